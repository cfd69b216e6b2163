package id

import (
	"strings"
	"testing"
)

func TestHasAcceptsNoLineBreaks(t *testing.T) {
	for _, s := range []string{"ws_" + strings.Repeat("0", 24) + "\r\n", "ws_" + strings.Repeat("\n", 26)} {
		if Has("ws", s) {
			t.Errorf("accepts %q", s)
		}
	}
}
