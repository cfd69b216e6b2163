package label

import (
	"context"
	"fmt"
	"slices"

	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/stat"
	"sovereign/internal/store/db"
)

// An Agreement says how far people agree with each other on items that several of them graded. Their own grades count,
// whatever was adjudicated since.
type Agreement struct {
	Object  string         `json:"object" enum:"agreement"`
	Items   int64          `json:"items" doc:"That at least two people graded"`
	Graders int64          `json:"graders" doc:"Who graded any of them"`
	Pairs   int64          `json:"pairs" doc:"Of grades of the same item"`
	Percent *float64       `json:"percent" doc:"How many of the pairs agree, 0 to 100; null without pairs"`
	Alpha   *float64       `json:"alpha" doc:"Krippendorff's, nominal: 1 is perfect, 0 is chance; null when it is undefined, as where all grades are the same"`
	AlphaCI *stat.Interval `json:"alpha_ci" doc:"At 95 %, by resampling items; null with fewer than 10 items"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Agreement) SchemaName() string { return "GraderAgreement" }

// Tallies count the items that so many people passed and so many failed.
type Tallies map[Tally]int64

// A Tally is how many people passed an item, and how many failed it.
type Tally struct{ Passes, Fails int64 }

// agreementSeed makes the interval of an agreement repeatable.
const agreementSeed = 1

// NewAgreement measures the agreement of some people on items. Items that fewer than two people graded are left out.
func NewAgreement(items Tallies, graders int64) Agreement {
	a := Agreement{Object: "agreement", Graders: graders}
	var units []stat.Units
	for t, n := range items {
		if t.Passes+t.Fails > 1 && n > 0 {
			units = append(units, stat.Units{Values: []int64{t.Passes, t.Fails}, N: n})
			a.Items += n
		}
	}
	// Sorted, so that the same grades always have the same interval.
	slices.SortFunc(units, func(a, b stat.Units) int { return slices.Compare(a.Values, b.Values) })
	agreed, pairs := stat.PairAgreement(units)
	if a.Pairs = pairs; pairs == 0 {
		return a
	}
	percent := 100 * float64(agreed) / float64(pairs)
	a.Percent = &percent
	if alpha, ok := stat.Alpha(units); ok {
		a.Alpha = &alpha
	}
	if ci, ok := stat.AlphaInterval(units, confidence, agreementSeed); ok {
		a.AlphaCI = &ci
	}
	return a
}

// confidence is the confidence level of intervals.
const confidence = 0.95

// Agreement measures how far the people who graded for a criterion agree with each other.
func (s *Store) Agreement(ctx context.Context, ws tenant.ID, criterionID string) (a Agreement, _ error) {
	err := s.db.SnapshotIn(ctx, ws, func(in db.Scoped) (err error) {
		if err := s.judges.Exists(ctx, in, criterionID); err != nil {
			return err
		}
		a, err = agreementFor(ctx, in, criterionID)
		return err
	})
	return a, err
}

// agreementFor reads what several people said of the same items.
func agreementFor(ctx context.Context, in db.Scoped, criterionID string) (Agreement, error) {
	const shared = `FROM labels l JOIN label_consensus c ON c.workspace_id = l.workspace_id
		AND c.criterion_id = l.criterion_id AND c.item = l.item
		WHERE l.workspace_id = $1 AND l.criterion_id = $2 AND c.graders > 1`
	graders, err := db.One[int64](ctx, in, `SELECT COUNT(DISTINCT l.author) `+shared, criterionID)
	if err != nil {
		return Agreement{}, fmt.Errorf("count graders: %w", err)
	}
	type row struct{ Passes, Fails, N int64 }
	rows, err := db.Query[row](ctx, in, `
		SELECT passes, fails, COUNT(*) AS n FROM (
			SELECT CAST(SUM(CASE WHEN l.verdict = 'pass' THEN 1 ELSE 0 END) AS BIGINT) AS passes,
				CAST(SUM(CASE WHEN l.verdict = 'fail' THEN 1 ELSE 0 END) AS BIGINT) AS fails
			`+shared+` GROUP BY l.item) items
		GROUP BY passes, fails`, criterionID)
	if err != nil {
		return Agreement{}, fmt.Errorf("read what several people graded: %w", err)
	}
	items := Tallies{}
	for _, r := range rows {
		items[Tally{r.Passes, r.Fails}] = r.N
	}
	return NewAgreement(items, graders), nil
}
