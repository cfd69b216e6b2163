package reward

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/tenant"
)

// A job is a task that takes some time, and notes when it began and ended.
type job struct {
	takes        time.Duration
	gone         bool
	began, ended time.Time
	on           *recorder
	by           place
}

// A recorder notes how many slots are busy.
type recorder struct {
	mu              sync.Mutex
	busy, most      int
	byWorkspace     map[tenant.ID]int
	mostByWorkspace map[tenant.ID]int
	order           []place
}

func newRecorder() *recorder {
	return &recorder{byWorkspace: map[tenant.ID]int{}, mostByWorkspace: map[tenant.ID]int{}}
}

// now returns how many slots are busy.
func (r *recorder) now() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

func (j *job) claim() bool { return !j.gone }

func (j *job) run(func()) func() {
	j.on.mu.Lock()
	j.began = time.Now()
	j.on.busy++
	j.on.byWorkspace[j.by.workspace]++
	j.on.most = max(j.on.most, j.on.busy)
	j.on.mostByWorkspace[j.by.workspace] = max(j.on.mostByWorkspace[j.by.workspace], j.on.byWorkspace[j.by.workspace])
	j.on.order = append(j.on.order, j.by)
	j.on.mu.Unlock()
	time.Sleep(j.takes)
	j.on.mu.Lock()
	j.ended = time.Now()
	j.on.busy--
	j.on.byWorkspace[j.by.workspace]--
	j.on.mu.Unlock()
	return nil
}

func (r *recorder) jobs(s *slots, by place, n int, takes time.Duration) []*job {
	all, tasks := make([]*job, n), make([]task, n)
	for i := range all {
		all[i] = &job{takes: takes, on: r, by: by}
		tasks[i] = all[i]
	}
	s.add(by, tasks...)
	return all
}

func last(jobs []*job) time.Time {
	return slices.MaxFunc(jobs, func(a, b *job) int { return a.ended.Compare(b.ended) }).ended
}

// 8 calls of 512 items came first. Each call of one item is served in its turn all the same, and no slot is idle while
// something waits.
func TestLargeCallsDoNotStarveSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow, singles = 300 * time.Millisecond, 1000
		s, r, start := newSlots(64), newRecorder(), time.Now()
		var large [][]*job
		for i := range 8 {
			large = append(large, r.jobs(s, place{"ws", "rs", uint64(i)}, 512, slow))
		}
		waits := make([]time.Duration, singles)
		var small [][]*job
		for i := range singles {
			small = append(small, r.jobs(s, place{"ws", "rs", uint64(100 + i)}, 1, slow))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, one := range small {
			waits[i] = one[0].ended.Sub(start)
		}
		slices.Sort(waits)
		if p50, p99 := waits[singles/2], waits[singles*99/100]; p99 > 3*p50 || p99 > 10*time.Second {
			t.Errorf("half of the small calls took %v, 99 %% took %v", p50, p99)
		}
		ends := last(slices.Concat(large...)).Sub(start)
		// One workspace leaves 2 of the 64 slots free.
		if ideal := slow * ((8*512+singles)/62 + 1); ends > ideal+slow || r.most != 62 {
			t.Errorf("all took %v of %v, in %d slots", ends, ideal, r.most)
		}
		if len(s.root.byName) != 0 || s.busy != 0 {
			t.Errorf("%d are left, %d busy", len(s.root.byName), s.busy)
		}
	})
}

// However many calls and sessions a workspace has, and however slow its judge is, another one has its share at once.
func TestASlowWorkspaceLeavesOthersTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newSlots(64), newRecorder()
		for i := range 500 {
			r.jobs(s, place{"slow", fmt.Sprint("rs", i%20), uint64(i)}, 20, time.Minute)
		}
		synctest.Wait()
		if n := r.now(); n != 62 {
			t.Fatalf("%d slots are busy", n)
		}
		start := time.Now()
		quick := r.jobs(s, place{"quick", "rs", 1}, 400, 100*time.Millisecond)
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		// At first in the 2 free slots, and after a minute in as many as the slow workspace.
		if took := last(quick).Sub(start); took > 21*time.Second {
			t.Errorf("400 questions of 100 ms took %v", took)
		}
		if r.mostByWorkspace["slow"] > 62 {
			t.Errorf("one workspace had %d slots", r.mostByWorkspace["slow"])
		}
	})
}

// Whatever is added, dropped or gone: every other task runs once, never more than the limit at a time, and nothing is
// left behind.
func TestEveryTaskRunsOnceWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 40).Draw(rt, "limit")
		type batch struct {
			by      place
			n       int
			takes   time.Duration
			gone    bool
			dropped bool
			pause   time.Duration
		}
		batches := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) batch {
			return batch{
				by: place{
					tenant.ID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "ws")),
					rapid.SampledFrom([]string{"x", "y"}).Draw(t, "rs"), rapid.Uint64Range(0, 5).Draw(t, "call"),
				},
				n: rapid.IntRange(1, 30).Draw(t, "n"), takes: time.Duration(rapid.IntRange(0, 50).Draw(t, "takes")) * time.Millisecond,
				gone: rapid.Bool().Draw(t, "gone"), dropped: rapid.IntRange(0, 3).Draw(t, "dropped") == 0,
				pause: time.Duration(rapid.IntRange(0, 20).Draw(t, "pause")) * time.Millisecond,
			}
		}), 1, 12).Draw(rt, "batches")
		synctest.Test(t, func(t *testing.T) {
			s, r := newSlots(limit), newRecorder()
			dropped := map[place]bool{}
			var all []*job
			for _, b := range batches {
				made, tasks := make([]*job, b.n), make([]task, b.n)
				for i := range made {
					made[i] = &job{takes: b.takes, gone: b.gone && i%2 == 0, on: r, by: b.by}
					tasks[i] = made[i]
				}
				s.add(b.by, tasks...)
				all = append(all, made...)
				if b.dropped {
					s.drop(b.by)
					dropped[b.by] = true
				}
				time.Sleep(b.pause)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			for _, j := range all {
				if ran := !j.ended.IsZero(); ran && j.gone || !ran && !j.gone && !dropped[j.by] {
					rt.Fatalf("of %+v: gone %v, ran %v", j.by, j.gone, ran)
				}
			}
			if r.most > limit || s.busy != 0 || len(s.root.byName) != 0 || s.root.order.Len() != 0 {
				rt.Fatalf("%d busy at a time of %d; %d and %d are left", r.most, limit, s.busy, len(s.root.byName))
			}
		})
	})
}

func TestMoreSlotsStartWaitingTasksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newSlots(1), newRecorder()
		r.jobs(s, place{"ws", "rs", 1}, 10, time.Second)
		synctest.Wait()
		if n := r.now(); n != 1 {
			t.Fatalf("%d are busy", n)
		}
		s.setLimit(5)
		synctest.Wait()
		if n := r.now(); n != 5 {
			t.Errorf("%d are busy of 5", n)
		}
		s.setLimit(2)
		time.Sleep(time.Minute)
	})
}
