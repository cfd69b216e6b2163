package eval

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

// SetPageBytes bounds pages otherwise, until restore is called.
func SetPageBytes(n int) (restore func()) {
	before := pageBytes
	pageBytes = n
	return func() { pageBytes = before }
}

// SetMaxFree bounds the answers of endpoints otherwise, until restore is called.
func SetMaxFree(n int64) (restore func()) {
	before := maxFree
	maxFree = n
	return func() { maxFree = before }
}

// ListCases answers a request for cases.
func ListCases(ctx context.Context, s *Store, caller tenant.Caller, evalID string, limit, offset int,
) (api.List[Case], error) {
	h := &handler{s}
	return h.cases(ctx, caller, casesQuery{ID: evalID, Page: api.Page{Limit: limit, Offset: offset}})
}

// EstimateFor answers a request for an estimate of an eval that shall pass a gate.
func EstimateFor(ctx context.Context, s *Store, caller tenant.Caller, n NewEval, p Plan) (Estimate, error) {
	h := &handler{s}
	return h.estimate(ctx, caller, estimating{p, n})
}
