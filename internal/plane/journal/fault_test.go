package journal_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
)

type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func begin(t tester, disk journal.Disk) *journal.Journal {
	t.Helper()
	j, err := journal.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Begin(); err != nil {
		t.Fatal(err)
	}
	return j
}

func settled(request string) journal.Entry {
	return journal.Entry{Kind: journal.Settled, Charge: journal.Charge{Request: request, Workspace: "ws_1"}}
}

// readFrom reads every synced entry from a segment on, and returns the error that ended it.
func readFrom(j *journal.Journal, segment int64) (all []journal.Entry, err error) {
	for at := (journal.Position{Segment: segment}); ; {
		some, next, err := j.Read(at)
		if err != nil || len(some) == 0 {
			return all, err
		}
		all, at = append(all, some...), next
	}
}

func requests(t tester, j *journal.Journal) (all []string) {
	t.Helper()
	entries, err := readFrom(j, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Kind == journal.Settled {
			all = append(all, e.Request)
		}
	}
	return all
}

func must(t tester, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Whatever disk operation fails when: a refused entry is never read, an accepted one is read exactly once and in
// order, and a process that dies in between does not change that.
func TestAcceptedEntriesAreReadOnceAndRefusedOnesNever(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &process{t: t, disk: journaltest.NewDisk()}
		l.start()
		t.Repeat(map[string]func(*rapid.T){
			"append": l.append,
			"sync":   func(*rapid.T) { _ = l.journal.Sync() },
			"weather": func(t *rapid.T) {
				l.failing = rapid.SampledFrom([]int{0, 2, 5, 9}).Draw(t, "failing in ten")
			},
			"crash": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					l.crash()
				}
			},
			"look": func(*rapid.T) { l.look() },
		})
		l.look()
		l.crash()
	})
}

// A process is a server process with its journal, and what its callers were told.
type process struct {
	t       *rapid.T
	disk    *journaltest.Disk
	journal *journal.Journal
	first   int64 // its first segment
	failing int   // failing operations of ten
	made    int

	taken []journal.Entry
	open  map[string]journal.Entry
	doubt []journal.Entry // entries of the last failed write
	uncut bool            // its partial bytes are not truncated yet
	wrote bool            // something was written since this was last reset
}

func (l *process) start() {
	l.failing = 0
	l.journal = begin(l.t, l.disk)
	l.journal.Limit = 400
	l.first = l.journal.End().Segment
	l.taken, l.doubt, l.uncut, l.open = nil, nil, false, map[string]journal.Entry{}
	l.disk.Fail = l.fail
}

func (l *process) fail(operation string, size int) (int, error) {
	bad := rapid.IntRange(0, 9).Draw(l.t, operation) < l.failing
	switch {
	case operation == "write":
		l.uncut, l.wrote, l.doubt = bad, true, nil
	case operation == "truncate" && !bad:
		l.uncut = false
	}
	if !bad {
		return size, nil
	}
	part := rapid.IntRange(0, max(0, size-1)).Draw(l.t, "part")
	if operation == "write" && rapid.Bool().Draw(l.t, "short") {
		return part, nil // a short write without an error
	}
	return part, journaltest.ErrDisk
}

func (l *process) append(t *rapid.T) {
	var entries []journal.Entry
	next := maps.Clone(l.open)
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		l.made++
		e := journal.Entry{Kind: journal.Settled, Charge: journal.Charge{Request: fmt.Sprint("req_", l.made), Workspace: "ws_1", At: clock.Time(l.made)}}
		kind := rapid.SampledFrom([]journal.Kind{journal.Opened, journal.Progressed, journal.Settled}).Draw(t, "kind")
		if len(next) > 0 && kind != journal.Opened {
			e.Request = slices.Sorted(maps.Keys(next))[0]
		}
		if kind == journal.Opened || next[e.Request].Kind == journal.Opened {
			e.Kind = kind
		}
		if e.Kind == journal.Progressed {
			e.Workspace = "" // a Progressed entry keeps only the amounts
		}
		track(next, &e)
		entries = append(entries, e)
	}
	l.wrote = false
	if err := l.journal.Append(entries...); err != nil {
		if l.journal.Failure() == nil {
			l.t.Fatal("a journal that refuses does not say that it fails")
		}
		if l.wrote {
			l.doubt = entries
		}
		return
	}
	l.taken, l.open = append(l.taken, entries...), next
}

// look repairs the disk and reads the journal.
func (l *process) look() {
	l.t.Helper()
	l.failing = 0
	must(l.t, l.journal.Sync(), l.journal.Failure())
	if l.journal.Synced() != l.journal.End() {
		l.t.Fatalf("synced up to %+v of %+v", l.journal.Synced(), l.journal.End())
	}
	l.check(l.journal, nil)
}

// crash ends the process, checks what the next one finds, and continues with that.
func (l *process) crash() {
	l.t.Helper()
	l.disk = l.disk.Crash()
	again, err := journal.Open(l.disk)
	must(l.t, err)
	if !l.uncut {
		l.doubt = nil
	}
	l.check(again, l.doubt)
	l.start()
}

// check compares what is read with what was accepted. After it, a prefix of doubt may follow.
func (l *process) check(j *journal.Journal, doubt []journal.Entry) {
	l.t.Helper()
	entries, err := readFrom(j, l.first)
	must(l.t, err)
	stated := map[clock.Time]bool{}
	for _, e := range slices.Concat(l.taken, doubt) {
		stated[e.At] = true
	}
	var got []journal.Entry
	for _, e := range entries {
		switch e.Kind {
		case journal.Opened: // a new segment repeats it
			if !stated[e.At] {
				l.t.Fatalf("%+v was never taken", e)
			}
		case journal.Probe:
		default:
			got = append(got, e)
		}
	}
	var want []journal.Entry
	for _, e := range slices.Concat(l.taken, doubt) {
		if e.Kind != journal.Opened {
			want = append(want, e)
		}
	}
	least := len(want)
	for _, e := range doubt {
		if e.Kind != journal.Opened {
			least--
		}
	}
	if len(got) < least || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
		l.t.Fatalf("read %+v, want %+v, of which the first %d are sure", got, want, least)
	}
	if len(doubt) > 0 {
		return
	}
	orphans, err := j.Orphans(l.first)
	must(l.t, err)
	if len(orphans) != len(l.open) {
		l.t.Fatalf("%d orphans, want %d", len(orphans), len(l.open))
	}
	for _, o := range orphans {
		if o != l.open[o.Request] {
			l.t.Fatalf("%+v, want %+v", o, l.open[o.Request])
		}
	}
}

func TestConcurrentAppendsToAFailingDiskReportWhatWasWritten(t *testing.T) {
	disk := journaltest.NewDisk()
	j := begin(t, disk)
	j.Limit = 2000
	random := rand.New(rand.NewPCG(1, 2))
	var failing atomic.Bool
	failing.Store(true)
	disk.Fail = func(_ string, size int) (int, error) { // one at a time
		if failing.Load() && random.IntN(4) == 0 {
			return random.IntN(size + 1), journaltest.ErrDisk
		}
		return size, nil
	}
	const writers, each = 8, 250
	var taken sync.Map
	var refused atomic.Int64
	var group, syncing sync.WaitGroup
	done := make(chan struct{})
	syncing.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = j.Sync()
			}
		}
	})
	for w := range writers {
		group.Go(func() {
			for i := range each {
				e := settled(fmt.Sprintf("req_%d_%d", w, i))
				if j.Append(e) == nil {
					taken.Store(e.Request, true)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	group.Wait()
	close(done)
	syncing.Wait()
	failing.Store(false)
	must(t, j.Sync(), j.Failure())
	seen := map[string]int{}
	for _, request := range requests(t, j) {
		if seen[request]++; seen[request] > 1 {
			t.Errorf("%s is there twice", request)
		}
		if _, ok := taken.LoadAndDelete(request); !ok && seen[request] == 1 {
			t.Errorf("%s was refused and is there", request)
		}
	}
	taken.Range(func(request, _ any) bool {
		t.Errorf("%s was taken and is not there", request)
		return true
	})
	if refused.Load() == 0 || len(seen) == 0 {
		t.Errorf("%d were refused, %d taken", refused.Load(), len(seen))
	}
}
