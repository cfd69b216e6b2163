package memo_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"sovereign/internal/base/memo"
)

func TestAValueIsMadeOnceForEachKey(t *testing.T) {
	var made atomic.Int64
	m := memo.Memo[int, *int]{Make: func(key int) *int {
		made.Add(1)
		return &key
	}}
	const keys = 50
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				if got := m.Get(i % keys); *got != i%keys {
					t.Errorf("%d for %d", *got, i%keys)
				}
			}
		})
	}
	all.Wait()
	if made.Load() != keys {
		t.Errorf("%d were made", made.Load())
	}
	if n := testing.AllocsPerRun(100, func() { m.Get(7) }); n != 0 {
		t.Errorf("to look one up takes %v allocations", n)
	}
}

func BenchmarkGet(b *testing.B) {
	type key struct{ a, b string }
	m := memo.Memo[key, int]{Make: func(key) int { return 1 }}
	for b.Loop() {
		m.Get(key{"/v1/chat/completions", "finished"})
	}
}
