package limit

import (
	"math"
	"testing"
	"time"
)

// Callers read the clock before they queue for the lock, so that they come in slightly out of order.
func TestCallersThatComeOutOfOrderOpenNoSecondWindow(t *testing.T) {
	const most = 20
	w := NewWindows[string](most, time.Minute)
	granted := 0
	for i := range 1000 {
		if _, ok := w.Allow("ws", noon.Add(-time.Duration(i)*time.Microsecond)); ok {
			granted++
		}
	}
	if granted != most {
		t.Errorf("%d granted", granted)
	}
}

func TestABudgetRefusesWhatWouldOverflow(t *testing.T) {
	b := NewBudget(10)
	b.Take(1)
	if b.Take(math.MaxInt64) || b.Used() != 1 {
		t.Errorf("%d are held of 10", b.Used())
	}
}
