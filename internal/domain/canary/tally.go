package canary

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/money"
	"sovereign/internal/grade/stat"
)

// A tally counts the samples of an epoch, in the order in which they were drawn.
type tally struct {
	Evidence stat.Evidence `json:"evidence"`
	Leaves   stat.Leaves   `json:"leaves"`
	Refusals stat.Leaves   `json:"refusals"` // in the same way, requests that were refused or stopped, and do not count
	Base     figures       `json:"base"`
	Canary   figures       `json:"canary"`
}

// figures are what is shown of one model.
type figures struct {
	N       int64      `json:"n"` // that count
	Passes  int64      `json:"passes"`
	Errors  int64      `json:"errors"`
	Missing int64      `json:"missing"`
	Left    int64      `json:"left"`
	Repeats int64      `json:"repeats"`
	Cost    money.Nano `json:"cost"`
	Answers latencies  `json:"answers"`
}

// add counts a sample whose result is known. percent is the canary's share in its stratum, falsePass
// stat.Evidence.Add's.
func (t *tally) add(s *sample, percent int, falsePass float64) {
	f := &t.Base
	if s.Canary {
		f = &t.Canary
	}
	switch s.Result {
	case repeated:
		f.Repeats++
		return
	case excluded:
		countEnd(&t.Refusals, s, percent, 1)
		return
	default:
	}
	countEnd(&t.Refusals, s, percent, 0)
	switch s.Result {
	case left:
		f.Left++
		countEnd(&t.Leaves, s, percent, 1)
		return
	case passed:
		f.Passes++
	case errored:
		f.Errors++
	case missing:
		f.Missing++
	case rejected, excluded, repeated, pending: // the others are counted above, and pending ones are not added
	}
	f.N++
	f.Cost += s.Cost
	if s.Result != errored {
		f.Answers.add(s.Latency)
	}
	countEnd(&t.Leaves, s, percent, 0)
	t.Evidence.Add(stat.Sample{
		Stratum: int(s.Stratum), Percent: percent, Canary: s.Canary, Result: stat.Result(s.Result),
		Uniform: uniform(s.RequestID),
	}, falsePass)
}

// countEnd counts one more request, and whether it ended in the way that all counts.
func countEnd(all *stat.Leaves, s *sample, percent int, so int64) {
	for int64(len(*all)) < s.Stratum {
		*all = append(*all, stat.Stratum{})
	}
	stratum := &(*all)[s.Stratum-1]
	stratum.Percent = percent
	arm := &stratum.Base
	if s.Canary {
		arm = &stratum.Canary
	}
	arm.N++
	arm.Passed += so
}

// rate returns the passes among the samples with a verdict or an error.
func (f *figures) rate() stat.Arm { return stat.Arm{N: f.N - f.Missing, Passed: f.Passes} }

// Scan reads a tally as the table has it.
func (t *tally) Scan(kept any) error {
	text, ok := kept.(string)
	if !ok {
		return fmt.Errorf("a tally is kept as text, not %T", kept)
	}
	return json.Unmarshal([]byte(text), t)
}

// text returns a tally as the table has it.
func (t *tally) text() (string, error) {
	text, err := json.Marshal(t, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("write a tally: %w", err)
	}
	return string(text), nil
}

// latencies count latencies by their logarithm, so that a quantile is exact within 2.5 % whatever their number.
type latencies map[int]int64

var width = math.Log(1.05)

func (l *latencies) add(micros int64) {
	if *l == nil {
		*l = latencies{}
	}
	(*l)[int(math.Round(math.Log(float64(max(micros, 1)))/width))]++
}

// quantile returns the latency in milliseconds that a share q of the answers does not exceed, or nil without answers.
func (l latencies) quantile(q float64) *float64 {
	var n int64
	for _, count := range l {
		n += count
	}
	if n == 0 {
		return nil
	}
	rest := int64(math.Ceil(q * float64(n)))
	for _, bucket := range slices.Sorted(maps.Keys(l)) {
		if rest -= l[bucket]; rest <= 0 {
			micros := math.Round(math.Exp(float64(bucket) * width))
			return new(math.Round(micros/10) / 100)
		}
	}
	return nil
}
