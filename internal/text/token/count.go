package token

import (
	"errors"
	"math"
	"strconv"
)

// A Count is a number of tokens, or of what else is paid for, as a provider reports it: whole, not below zero, and not
// beyond reason. A nil one was not reported, which is not 0.
type Count int64

// maxCount is beyond any context: a provider that says more is not believed.
const maxCount = 1_000_000_000

var errCount = errors.New("is no count")

// Or0 is the count, or nothing where none was reported.
func (c *Count) Or0() int64 {
	if c == nil {
		return 0
	}
	return int64(*c)
}

// UnmarshalJSON accepts 12 and 12.0, which some providers write.
func (c *Count) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(string(data), 64)
	if err != nil || f < 0 || f > maxCount || f != math.Trunc(f) {
		return errCount
	}
	*c = Count(f)
	return nil
}
