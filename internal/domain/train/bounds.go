package train

import (
	"fmt"

	"sovereign/internal/base/fault"
)

// A Bound is a number of a request, with the lowest and the highest that it may be.
type Bound struct {
	field              string
	value, least, most float64
}

// Within bounds a number of a request.
func Within(field string, value, least, most float64) Bound { return Bound{field, value, least, most} }

// CheckBounds reports the first number that is out of its bounds, naming its field.
func CheckBounds(bounds ...Bound) error {
	for _, b := range bounds {
		if !(b.value >= b.least && b.value <= b.most) { // so that NaN is refused
			return fault.Invalid(b.field, fmt.Sprintf("must be %g to %g", b.least, b.most))
		}
	}
	return nil
}
