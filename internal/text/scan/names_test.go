package scan

import (
	"strings"
	"testing"
)

func TestCommonNamesDoNotCollide(t *testing.T) {
	for name := range strings.FieldsSeq(commonNames) {
		if got := commonNameTable[nameSlot([]byte(name))]; got != name {
			t.Errorf("the slot of %s holds %s", name, got)
		}
	}
}
