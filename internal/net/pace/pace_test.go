package pace

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A sender is refused in the first window that has too few bytes, or when its time is over, and never before.
func TestABodyIsTooSlowInTheFirstWindowWithTooFewBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Meter{Limit: Limit{Timeout: time.Duration(rapid.Int64Range(1, 100).Draw(t, "timeout")) * time.Second, Rate: 100}}
		now := noon
		deadline, ok := m.Next(now)
		for ok {
			if deadline.After(noon.Add(m.Timeout)) || deadline.Sub(now) > Window {
				t.Fatalf("at %s the deadline is %s", now.Sub(noon), deadline.Sub(noon))
			}
			bytes := rapid.IntRange(0, 2000).Draw(t, "bytes")
			enough := m.Add(bytes)
			if enough != (bytes >= 1000) {
				t.Fatalf("%d bytes are enough: %v", bytes, enough)
			}
			now = deadline
			deadline, ok = m.Next(now)
			if over := !now.Before(noon.Add(m.Timeout)); ok != (enough && !over) {
				t.Fatalf("after %s, with %d bytes in the last window: %v", now.Sub(noon), bytes, ok)
			}
		}
	})
}

func TestWithoutARateABodyHasItsWholeTime(t *testing.T) {
	m := Meter{Limit: Limit{Timeout: time.Minute}}
	if deadline, ok := m.Next(noon); !ok || deadline != noon.Add(time.Minute) {
		t.Error(deadline, ok)
	}
	if m.Add(1 << 20) {
		t.Error("there is a second window")
	}
	if _, ok := m.Next(noon.Add(time.Minute)); ok {
		t.Error("it has more than its time")
	}
}
