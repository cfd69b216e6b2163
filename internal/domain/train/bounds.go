package train

import (
	"fmt"

	"sovereign/internal/base/fault"
)

// A Bound is a number of a request, with the lowest and the highest that it may be.
type Bound struct {
	Field              string
	Value, Least, Most float64
}

// CheckBounds reports the first number that is out of its bounds, naming its field.
func CheckBounds(bounds []Bound) error {
	for _, b := range bounds {
		if !(b.Value >= b.Least && b.Value <= b.Most) { // so that NaN is refused
			return fault.Invalid(b.Field, fmt.Sprintf("must be %g to %g", b.Least, b.Most))
		}
	}
	return nil
}
