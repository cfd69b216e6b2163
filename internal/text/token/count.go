package token

import (
	"errors"
	"math"
	"strconv"
)

// A Count is a number of tokens or other billed units, as a provider reports it: an integer between 0 and maxCount. A
// nil Count was not reported, which differs from 0.
type Count int64

// maxCount is above any context window. Higher counts are rejected as implausible.
const maxCount = 1_000_000_000

var errCount = errors.New("is no count")

// Or0 returns the count, or 0 when none was reported.
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
