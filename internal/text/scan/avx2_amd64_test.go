//go:build !purego

package scan

import "testing"

// eachWidth runs test with AVX2, when this processor has it, and without.
func eachWidth(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	was := hasAVX2
	defer func() { hasAVX2 = was }()
	if hasAVX2 {
		t.Run("AVX2", test)
	}
	hasAVX2 = false
	t.Run("SSE2", test)
}
