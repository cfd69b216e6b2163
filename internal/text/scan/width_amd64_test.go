package scan

import "testing"

// eachWidth runs a test as on a processor that has AVX2, where this one does, and as on one that has not.
func eachWidth(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	was := wide
	defer func() { wide = was }()
	if wide {
		t.Run("wide", test)
	}
	wide = false
	t.Run("narrow", test)
}
