package money

import (
	"math"
	"math/bits"
)

// A Rate is a price in billionths of a dollar per million tokens. On the wire it is a JSON number of dollars per
// million tokens.
type Rate int64

// MaxRate is the highest accepted price. Anything above it is taken for a typing error.
const MaxRate = Rate(10_000 * Dollar)

// String returns r in dollars per million tokens.
func (r Rate) String() string { return Nano(r).String() }

// MarshalJSON writes r as a JSON number of dollars.
func (r Rate) MarshalJSON() ([]byte, error) { return Nano(r).MarshalJSON() }

// UnmarshalJSON reads a JSON number of dollars, exactly.
func (r *Rate) UnmarshalJSON(data []byte) error { return (*Nano)(r).UnmarshalJSON(data) }

// perRate is the number of tokens that a Rate is the price of.
const perRate = 1_000_000

// A Tally adds tokens at their rates exactly, and rounds once, at the end.
type Tally struct{ hi, lo uint64 }

// Add adds tokens at a rate. Negative values count as 0.
func (t *Tally) Add(tokens int64, at Rate) {
	if tokens <= 0 || at <= 0 {
		return
	}
	hi, lo := bits.Mul64(uint64(tokens), uint64(at))
	var carry uint64
	t.lo, carry = bits.Add64(t.lo, lo, 0)
	if t.hi, carry = bits.Add64(t.hi, hi, carry); carry != 0 {
		t.hi, t.lo = math.MaxUint64, math.MaxUint64
	}
}

// Cost returns the sum, rounded up to the next billionth of a dollar. It is the largest Nano when the sum overflows.
func (t Tally) Cost() Nano {
	if t.hi >= perRate {
		return math.MaxInt64
	}
	cost, rest := bits.Div64(t.hi, t.lo, perRate)
	if cost >= math.MaxInt64 {
		return math.MaxInt64
	}
	if rest > 0 {
		cost++
	}
	return Nano(cost)
}
