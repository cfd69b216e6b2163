package limit

import (
	"math"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// However greedily parties ask, each leaves a third of what it found, and a new one gets up to two thirds of the rest.
func TestNoPartyTakesAllOfShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(1000, 1<<40).Draw(t, "most")
		s := NewShares[int](most)
		for party := range 4 {
			found := most - s.Used()
			if want := found * 2 / 3; !s.Of(party + 10).Take(want) {
				t.Fatalf("a new party gets less than %d of %d", want, found)
			} else {
				s.Of(party + 10).Give(want)
			}
			for size := found; size > 0; size /= 2 {
				for s.Of(party).Take(size) {
				}
			}
			if used := s.Of(party).Used(); used > found*2/3+1 || used != found-(most-s.Used()) {
				t.Fatalf("party %d has %d of %d", party, used, found)
			}
		}
	})
}

func TestSharesAreNeverExceededConcurrentlyAndReturnToZero(t *testing.T) {
	const most = 1000
	s := NewShares[int](most)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			share := s.Of(worker % 3)
			for i := range 2000 {
				if n := int64(i%97 + 1); share.Take(n) {
					if used := s.Used(); used > most {
						t.Errorf("%d of %d are taken", used, most)
					}
					share.Give(n)
				}
			}
		})
	}
	group.Wait()
	if s.Used() != 0 || s.Of(0).Used() != 0 || s.Of(1).Used() != 0 || s.Of(2).Used() != 0 {
		t.Error("something is held")
	}
	if s.Set(math.MaxInt64); !s.Of(0).Take(1<<62) || s.Of(0).Take(1<<62) {
		t.Error("a very large bound overflows")
	}
}

func BenchmarkShare(b *testing.B) {
	s := NewShares[string](1 << 30)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			share := s.Of("ws_000000000000000001")
			share.Take(4096)
			share.Give(4096)
		}
	})
}
