// Package money counts dollars exactly: integers of a billionth, never a float.
package money

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Nano is a billionth of a dollar. On the wire it is a JSON number of dollars.
type Nano int64

// Dollar is one dollar.
const Dollar Nano = 1_000_000_000

const (
	decimals = 9
	maxShift = 40 // the largest exponent that is accepted
)

// ErrAmount is returned for a text that is not an amount of dollars that a Nano represents exactly.
var ErrAmount = errors.New("must be an amount in dollars, below 9223372036 and with at most 9 decimals")

// Parse reads a decimal amount of dollars such as 25, 0.000001 or -3.5. It never rounds: what does not fit is an error.
func Parse(text string) (Nano, error) {
	digits, negative := strings.CutPrefix(text, "-")
	whole, fraction, dotted := strings.Cut(digits, ".")
	if whole == "" || (dotted && fraction == "") || len(fraction) > decimals || !numeric(whole) || !numeric(fraction) {
		return 0, ErrAmount
	}
	fraction += strings.Repeat("0", decimals-len(fraction))
	sign := ""
	if negative {
		sign = "-"
	}
	n, err := strconv.ParseInt(sign+whole+fraction, 10, 64)
	if err != nil {
		return 0, ErrAmount
	}
	return Nano(n), nil
}

func numeric(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// String returns n in dollars, exact and without trailing zeros. Parse is its inverse.
func (n Nano) String() string {
	sign, magnitude := "", uint64(n)
	if n < 0 {
		sign, magnitude = "-", -uint64(n) // wraps to the magnitude, for the lowest int64 too
	}
	unit := uint64(Dollar)
	text := sign + strconv.FormatUint(magnitude/unit, 10)
	if rest := magnitude % unit; rest != 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%09d", rest), "0")
	}
	return text
}

// Add returns n + m, or false when the sum overflows.
func (n Nano) Add(m Nano) (Nano, bool) {
	sum := n + m
	if (m > 0 && sum < n) || (m < 0 && sum > n) {
		return 0, false
	}
	return sum, true
}

// MarshalJSON writes n as a JSON number of dollars.
func (n Nano) MarshalJSON() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalJSON reads a JSON number of dollars in plain or exponent notation, exactly.
func (n *Nano) UnmarshalJSON(data []byte) error {
	text := string(data)
	if mantissa, exponent, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		plain, err := shift(mantissa, exponent)
		if err != nil {
			return err
		}
		text = plain
	}
	parsed, err := Parse(text)
	if err != nil {
		return err
	}
	*n = parsed
	return nil
}

// shift moves mantissa's point by exponent places, so that 1e-9, as JSON encoders write small numbers, stays exact.
func shift(mantissa, exponent string) (string, error) {
	places, err := strconv.Atoi(strings.TrimPrefix(exponent, "+"))
	if err != nil || places < -maxShift || places > maxShift {
		return "", ErrAmount
	}
	digits, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.Repeat("0", maxShift) + whole + fraction + strings.Repeat("0", maxShift)
	point := maxShift + len(whole) + places
	whole, fraction = digits[:point], digits[point:]
	text := whole
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		text += "." + fraction
	}
	if negative {
		text = "-" + text
	}
	return text, nil
}
