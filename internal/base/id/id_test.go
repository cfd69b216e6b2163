package id

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestIDsSortByTimeOfBirth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		birth := rapid.Int64Range(0, 1<<56-2).Draw(t, "birth")
		later := rapid.OneOf(rapid.Just(birth+1), rapid.Just(int64(1<<56-1)), rapid.Int64Range(birth+1, 1<<56-1)).Draw(t, "later")
		one, other := At("key", time.UnixMicro(birth)), At("key", time.UnixMicro(later))
		if one >= other {
			t.Fatalf("%s was born at %d and %s at %d", one, birth, other, later)
		}
	})
}

func TestIDsBornAtOneInstantAreDistinct(t *testing.T) {
	const many = 100_000
	now, seen := time.Now(), make(map[string]bool, many)
	for range many {
		seen[At("key", now)] = true
	}
	if len(seen) != many {
		t.Errorf("%d ids of %d are distinct", len(seen), many)
	}
}

func TestHasAcceptsOursAndNoOther(t *testing.T) {
	for range 1000 {
		if one := New("ws"); !Has("ws", one) {
			t.Fatalf("refuses its own %s", one)
		}
	}
	body := strings.TrimPrefix(New("ws"), "ws_")
	for _, other := range []string{
		"", "ws", "ws_", body, "_" + body, "key_" + body, "ws" + body, "ws-" + body, "WS_" + body, "ws_ws_" + body, "xws_" + body,
		"ws_" + body[1:], "ws_" + body + "0", " ws_" + body, "ws_" + body + " ", "ws_" + body[1:] + "=",
	} {
		if Has("ws", other) {
			t.Errorf("accepts %q", other)
		}
	}
	for _, foreign := range "ilouABZ=-_ \x00é" {
		for i := range body {
			if other := "ws_" + body[:i] + string(foreign) + body[i+1:]; Has("ws", other) {
				t.Errorf("accepts %q", other)
			}
		}
	}
}

func TestHasAcceptsNoLineBreaks(t *testing.T) {
	for _, s := range []string{"ws_" + strings.Repeat("0", 24) + "\r\n", "ws_" + strings.Repeat("\n", 26)} {
		if Has("ws", s) {
			t.Errorf("accepts %q", s)
		}
	}
}
