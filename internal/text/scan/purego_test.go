//go:build purego

package scan

import (
	"strings"
	"testing"
)

// With the tag purego the tests run the code of processors without assembly, on any processor.
func TestTheTagLeavesTheAssemblyOut(t *testing.T) {
	text := []byte(strings.Repeat("a", 64*blockSize))
	if n := unquotedASCII(text); n != 0 {
		t.Errorf("unquotedASCII, which portable code does not have, finds %d bytes", n)
	}
}
