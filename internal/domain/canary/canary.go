// Package canary decides about the canaries of gated aliases. Requests to a split alias are drawn before their outcome
// is known. A judge grades their answers, and is not told which model gave them. An e-process weighs the grades in the
// order in which the requests were drawn: it may be looked at after every grade.
//
// The evidence belongs to an epoch: a pair of models, a version of a judge and its certificate. When one of them
// changes, the next epoch begins, with nothing counted. Within an epoch every share of the traffic has a stratum of its
// own.
package canary

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/plane/capture"
)

// Logs reads the requests that were drawn, and logged exchanges.
type Logs interface {
	DrawSources(ctx context.Context, ws tenant.ID, alias, epoch, from string) ([]string, error)
	Draws(
		ctx context.Context, ws tenant.ID, alias, epoch, source string, afterSeq int64, most int,
	) ([]logbook.CanaryDraw, error)
	Request(ctx context.Context, ws tenant.ID, requestID string) (step judge.Step, trace string, err error)
}

// A result is what a sample counts as. It is "" until it is known.
type result string

// The results. Those of stat count, the others do not. A question counts once in an epoch, when it is first drawn,
// whichever arm that is and whatever becomes of it: the answers to a repeated question, and the judge's errors about
// them, are not independent.
const (
	pending  result = ""
	passed          = result(stat.Passed)
	rejected        = result(stat.Rejected)
	errored         = result(stat.Errored)
	missing         = result(stat.Missing)
	left            = result(outcome.Departed)
	excluded        = result(outcome.Excluded)
	repeated        = result("repeated")
)

// known are the results of the outcomes. The judge has to say what an answer is.
var known = map[outcome.Sample]result{
	outcome.Answered: pending, outcome.Failed: errored, outcome.Departed: left, outcome.Excluded: excluded,
}

// A sample is a draw that was taken, at its position in the order of all draws of its epoch.
type sample struct {
	Position  int64
	RequestID string
	Stratum   int64
	Canary    bool
	Result    result
	Tries     int64 // to judge it, in vain, while the judge answered others
	Latency   int64 // in microseconds
	Cost      money.Nano
	DrawnAt   clock.Time
	ExpiresAt clock.Time
	question  capture.Question // of one that is taken; it is not read again
}

// uniform draws a number in [0, 1) from the id of a request.
func uniform(requestID string) float64 {
	sum := sha256.Sum256([]byte("canary\n" + requestID))
	return float64(binary.BigEndian.Uint64(sum[:8])>>11) / (1 << 53)
}
