package scan

import (
	"strings"
	"testing"
)

func TestNoTwoUsualNamesHaveOneSlot(t *testing.T) {
	for name := range strings.FieldsSeq(usual) {
		if got := known[slot([]byte(name))]; got != name {
			t.Errorf("%s is where %s is", got, name)
		}
	}
}
