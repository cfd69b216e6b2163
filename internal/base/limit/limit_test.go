package limit

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestNoWindowGrantsMoreThanItsMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, per := rapid.IntRange(1, 5).Draw(t, "most"), time.Duration(rapid.IntRange(1, 50).Draw(t, "per"))
		w := NewWindows[string](most, per)
		now, opened, granted := noon, time.Time{}, 0
		for _, step := range rapid.SliceOf(rapid.IntRange(0, 60)).Draw(t, "steps") {
			now = now.Add(time.Duration(step))
			if opened.IsZero() || now.Sub(opened) >= per {
				opened, granted = now, 0
			}
			wait, ok := w.Allow("ws", now)
			if want := granted < most; ok != want {
				t.Fatalf("%s after the opening, with %d granted: %v", now.Sub(opened), granted, ok)
			}
			if ok {
				granted++
			} else if want := opened.Add(per).Sub(now); wait != want {
				t.Fatalf("%s after the opening: the wait is %s, not %s", now.Sub(opened), wait, want)
			}
		}
	})
}

func TestTheWaitIsExactAndRefusalsDoNotExtendIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, per := rapid.IntRange(1, 5).Draw(t, "most"), time.Duration(rapid.IntRange(2, 1e9).Draw(t, "per"))
		w := NewWindows[string](most, per)
		w.Allow("another", noon.Add(-per/2)) // so that memory is swept at other times than windows end
		for range most {
			w.Allow("ws", noon)
		}
		now := noon
		for range rapid.IntRange(1, 10).Draw(t, "refusals") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(noon.Add(per).Sub(now))-1).Draw(t, "step")))
			wait, ok := w.Allow("ws", now)
			if ok || !now.Add(wait).Equal(noon.Add(per)) {
				t.Fatalf("%s after the opening of %s: %v, wait %s", now.Sub(noon), per, ok, wait)
			}
		}
		if wait, ok := w.Allow("ws", noon.Add(per-1)); ok || wait != 1 {
			t.Fatalf("a moment before the end: %v, wait %s", ok, wait)
		}
		if _, ok := w.Allow("ws", noon.Add(per)); !ok {
			t.Fatal("refused after exactly the wait that was named")
		}
	})
}

func TestNamesDoNotInfluenceEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most, per = 3, 20
		together := NewWindows[int](most, per)
		alone := []*Windows[int]{NewWindows[int](most, per), NewWindows[int](most, per), NewWindows[int](most, per)}
		now := noon
		for _, step := range rapid.SliceOf(rapid.IntRange(0, 30)).Draw(t, "steps") {
			now = now.Add(time.Duration(step))
			name := rapid.IntRange(0, len(alone)-1).Draw(t, "name")
			wait, ok := together.Allow(name, now)
			if wantWait, want := alone[name].Allow(name, now); ok != want || wait != wantWait {
				t.Fatalf("among others %v %s, alone %v %s", ok, wait, want, wantWait)
			}
		}
	})
}

func TestConcurrentCallersGetExactlyTheLimit(t *testing.T) {
	const most = 20
	w := NewWindows[string](most, time.Minute)
	var granted atomic.Int64
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			for range 10 {
				if _, ok := w.Allow("ws", noon); ok {
					granted.Add(1)
				}
			}
		})
	}
	group.Wait()
	if granted.Load() != most {
		t.Errorf("%d granted", granted.Load())
	}
}

func TestMemoryDependsOnActiveNamesOnly(t *testing.T) {
	w := NewWindows[int](1, time.Minute)
	for name := range 10_000 {
		w.Allow(name, noon)
	}
	w.Allow(-1, noon.Add(30*time.Second))
	w.Allow(-2, noon.Add(time.Minute))
	if len(w.open) != 2 {
		t.Errorf("%d windows are kept for 2 active names", len(w.open))
	}
	if _, ok := w.Allow(-1, noon.Add(time.Minute)); ok {
		t.Error("a window was forgotten before its end")
	}
}

func TestABudgetTakesWhatFitsAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(0, 100).Draw(t, "most")
		b, held, total := NewBudget(most), []int64{}, int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.Int64Range(0, 120).Draw(t, "n")
				if got, want := b.Take(n), total+n <= most; got != want {
					t.Fatalf("take %d of %d with %d held: %v", n, most, total, got)
				} else if got {
					held, total = append(held, n), total+n
				}
			},
			"give": func(*rapid.T) {
				if len(held) > 0 {
					last := held[len(held)-1]
					b.Give(last)
					held, total = held[:len(held)-1], total-last
				}
			},
			"set": func(t *rapid.T) {
				most = rapid.Int64Range(0, 100).Draw(t, "most")
				b.Set(most)
			},
			"": func(t *rapid.T) {
				if b.Used() != total {
					t.Fatalf("used %d, held %d", b.Used(), total)
				}
			},
		})
	})
}

func TestABudgetIsNeverExceededConcurrentlyAndReturnsToZero(t *testing.T) {
	const most = 3
	b := NewBudget(most)
	var held, taken atomic.Int64
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 20_000 {
				n := int64((worker+i)%most + 1)
				if !b.Take(n) {
					continue
				}
				taken.Add(1)
				if now := held.Add(n); now > most {
					t.Errorf("%d are held", now)
				}
				held.Add(-n)
				b.Give(n)
			}
		})
	}
	group.Wait()
	if b.Used() != 0 || taken.Load() == 0 {
		t.Errorf("%d are still held after %d takes", b.Used(), taken.Load())
	}
}

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
