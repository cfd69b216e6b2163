package journal_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/clock"
	"sovereign/internal/journal"
	"sovereign/internal/journal/journaltest"
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

// readFrom is everything from a segment on that was synced, and the error that ended it.
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

// The faults of a disk: what was refused is never read, what was taken is read exactly once and in order, whatever
// fails when, and a process that dies in between changes nothing about that.
func TestWhatWasTakenIsReadOnceAndWhatWasRefusedNever(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &life{t: t, disk: journaltest.NewDisk()}
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

// A life is a process with its journal, and what it was told.
type life struct {
	t       *rapid.T
	disk    *journaltest.Disk
	journal *journal.Journal
	first   int64 // its first segment
	failing int   // of ten operations
	made    int

	taken []journal.Entry
	open  map[string]journal.Entry
	doubt []journal.Entry // of the last write that failed
	uncut bool            // what it left is still there
	wrote bool            // something, since this was last false
}

func (l *life) start() {
	l.failing = 0
	l.journal = begin(l.t, l.disk)
	l.journal.Limit = 400
	l.first = l.journal.End().Segment
	l.taken, l.doubt, l.uncut, l.open = nil, nil, false, map[string]journal.Entry{}
	l.disk.Fail = l.fail
}

func (l *life) fail(operation string, size int) (int, error) {
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
		return part, nil // written in part, and nothing said
	}
	return part, journaltest.ErrDisk
}

func (l *life) append(t *rapid.T) {
	var entries []journal.Entry
	next := map[string]journal.Entry{}
	for id, e := range l.open {
		next[id] = e
	}
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		l.made++
		e := journal.Entry{Kind: journal.Settled, Charge: journal.Charge{Request: fmt.Sprint("req_", l.made), Workspace: "ws_1", At: clock.Time(l.made)}}
		kind := rapid.SampledFrom([]journal.Kind{journal.Opened, journal.Progressed, journal.Settled}).Draw(t, "kind")
		if len(next) > 0 && kind != journal.Opened {
			e.Request = slices.Sorted(keys(next))[0]
		}
		if kind == journal.Opened || next[e.Request].Kind == journal.Opened {
			e.Kind = kind
		}
		if e.Kind == journal.Progressed {
			e.Workspace = "" // of a progress only the amounts are kept
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

func keys(open map[string]journal.Entry) func(func(string) bool) {
	return func(yield func(string) bool) {
		for id := range open {
			if !yield(id) {
				return
			}
		}
	}
}

// look makes the disk work again and reads what there is.
func (l *life) look() {
	l.t.Helper()
	l.failing = 0
	must(l.t, l.journal.Sync(), l.journal.Failure())
	if l.journal.Synced() != l.journal.End() {
		l.t.Fatalf("synced up to %+v of %+v", l.journal.Synced(), l.journal.End())
	}
	l.check(l.journal, nil)
}

// crash ends the process, checks what the next one finds, and goes on with that.
func (l *life) crash() {
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

// check holds what is read against what was taken. Beyond it may stand a first part of doubt.
func (l *life) check(j *journal.Journal, doubt []journal.Entry) {
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
		case journal.Opened: // which a new segment states again
			if !stated[e.At] {
				l.t.Fatalf("%+v was never taken", e)
			}
		case journal.Marked:
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

func TestManyWhoAppendToAFailingDiskAreToldTheTruth(t *testing.T) {
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

// failures are the ways in which one operation goes wrong.
var failures = map[string]func(j *journal.Journal, disk *journaltest.Disk) error{
	"a write fails": func(j *journal.Journal, disk *journaltest.Disk) error {
		disk.Fail = failOn("write", 0)
		return j.Append(settled("req_refused"))
	},
	"a write fails half-way": func(j *journal.Journal, disk *journaltest.Disk) error {
		disk.Fail = failOn("write", 40)
		return j.Append(settled("req_refused"), settled("req_refused"))
	},
	"a write is short and says nothing": func(j *journal.Journal, disk *journaltest.Disk) error {
		disk.Fail = func(operation string, size int) (int, error) {
			if operation == "write" {
				return size - 1, nil
			}
			return size, nil
		}
		return j.Append(settled("req_refused"))
	},
	"all is written before the write fails": func(j *journal.Journal, disk *journaltest.Disk) error {
		disk.Fail = failOn("write", 1<<20)
		return j.Append(settled("req_refused"))
	},
	"what a write left cannot be cut off": func(j *journal.Journal, disk *journaltest.Disk) error {
		disk.Fail = failAlways
		return j.Append(settled("req_refused"))
	},
	"a sync fails": func(j *journal.Journal, disk *journaltest.Disk) error {
		if err := j.Append(settled("req_taken")); err != nil {
			return nil
		}
		disk.Fail = failOn("sync", 0)
		return j.Sync()
	},
}

func failOn(operation string, part int) func(string, int) (int, error) {
	return func(which string, size int) (int, error) {
		if which == operation {
			return part, journaltest.ErrDisk
		}
		return size, nil
	}
}

func failAlways(_ string, size int) (int, error) { return size, journaltest.ErrDisk }

func TestAJournalThatCanBeWrittenAgainSaysSo(t *testing.T) {
	mend := map[string]func(*journal.Journal) error{
		"found by the next sync":   (*journal.Journal).Sync,
		"found by the next append": func(j *journal.Journal) error { return j.Append(settled("req_next")) },
	}
	for name, fail := range failures {
		for how, try := range mend {
			t.Run(name+", "+how, func(t *testing.T) {
				disk := journaltest.NewDisk()
				j := begin(t, disk)
				if err := j.Append(settled("req_before")); err != nil {
					t.Fatal(err)
				}
				if err := fail(j, disk); err == nil || j.Failure() == nil {
					t.Fatalf("%v, %v", err, j.Failure())
				}
				disk.Fail = failAlways
				if err := try(j); err == nil || j.Failure() == nil {
					t.Fatalf("while it fails: %v, %v", err, j.Failure())
				}
				disk.Fail = nil
				must(t, try(j), j.Failure(), j.Sync())
				got := requests(t, j)
				if slices.Contains(got, "req_refused") || got[0] != "req_before" || slices.Contains(got, "req_next") != (how == "found by the next append") {
					t.Errorf("%v", got)
				}
			})
		}
	}
}

func TestNothingIsWrittenBehindWhatCouldNotBeCutOff(t *testing.T) {
	disk := journaltest.NewDisk()
	j := begin(t, disk)
	disk.Fail = failAlways
	if j.Append(settled("req_refused")) == nil {
		t.Fatal("the disk does not fail")
	}
	disk.Fail = failOn("truncate", 0) // writing would work again, cutting does not
	if err := j.Append(settled("req_also_refused")); !errors.Is(err, journaltest.ErrDisk) {
		t.Fatalf("written behind what a failed write left: %v", err)
	}
	disk.Fail = nil
	must(t, j.Append(settled("req_taken")), j.Sync())
	if got := requests(t, j); !slices.Equal(got, []string{"req_taken"}) {
		t.Errorf("%v", got)
	}
}

// What was written is written, and whoever wrote it must not be told otherwise, or it would be settled twice.
func TestAnEntryIsTakenThoughTheNextSegmentCannotBeBegun(t *testing.T) {
	for _, operation := range []string{"sync", "open", "truncate"} {
		t.Run(operation, func(t *testing.T) {
			disk := journaltest.NewDisk()
			j := begin(t, disk)
			j.Limit = 1
			disk.Fail = failOn(operation, 0)
			for i := range 3 {
				if err := j.Append(settled(fmt.Sprint("req_", i))); err != nil {
					t.Fatalf("entry %d is written and refused: %v", i, err)
				}
				if j.Failure() == nil {
					t.Fatal("a disk that fails is not noticed")
				}
			}
			disk.Fail = nil
			must(t, j.Append(settled("req_3")), j.Failure(), j.Sync())
			if got := requests(t, j); !slices.Equal(got, []string{"req_0", "req_1", "req_2", "req_3"}) {
				t.Errorf("%v", got)
			}
			if got := j.End().Segment; got != 2 {
				t.Errorf("the segment is %d", got)
			}
		})
	}
}

func TestAnEntryThatCouldNotBeReadBackIsRefusedAlone(t *testing.T) {
	j := begin(t, journaltest.NewDisk())
	long := settled("req_long")
	long.Model = strings.Repeat("m", 70_000)
	if err := j.Append(settled("req_beside"), long); err == nil {
		t.Error("an entry is taken that no reading would find again")
	}
	if err := j.Failure(); err != nil {
		t.Errorf("the disk is blamed: %v", err)
	}
	must(t, j.Append(settled("req_1")), j.Sync())
	if got := requests(t, j); !slices.Equal(got, []string{"req_1"}) {
		t.Errorf("%v", got)
	}
}

func TestAClosedJournalTakesNothing(t *testing.T) {
	disk := journaltest.NewDisk()
	j := begin(t, disk)
	must(t, j.Append(settled("req_1")), j.Close(), j.Close())
	if j.Append(settled("req_2")) == nil || j.Failure() == nil {
		t.Error("taken")
	}
	again, err := journal.Open(disk.PowerLoss(rand.New(rand.NewPCG(1, 1)))) // closing has synced
	must(t, err)
	if got := requests(t, again); !slices.Equal(got, []string{"req_1"}) {
		t.Errorf("%v", got)
	}
}

func TestAGapIsFoundAndReadingMakesNothing(t *testing.T) {
	disk := journaltest.NewDisk()
	j := begin(t, disk)
	j.Limit = 200
	for i := range 20 {
		must(t, j.Append(settled(fmt.Sprint("req_", i))))
	}
	must(t, j.Close())
	again, err := journal.Open(disk)
	must(t, err)
	_, half, err := again.Read(journal.Position{Segment: 2})
	must(t, err)
	damages := map[string]func(journal.File) error{
		"is shorter than was posted": func(f journal.File) error { return f.Truncate(half.Offset / 2) },
		"is empty":                   func(f journal.File) error { return f.Truncate(0) },
		"has other bytes":            func(f journal.File) error { _, err := f.WriteAt([]byte{1, 2, 3, 4}, 2); return err },
		"is missing":                 nil,
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			file, err := disk.Open("000000000002.journal")
			must(t, err)
			size, err := file.Size()
			must(t, err)
			whole := make([]byte, size)
			if _, err := file.ReadAt(whole, 0); err != nil {
				t.Fatal(err)
			}
			if damage == nil {
				must(t, disk.Remove("000000000002.journal"))
			} else {
				must(t, damage(file))
			}
			before, _ := disk.List()
			if some, err := readFrom(again, 2); !errors.Is(err, journal.ErrGap) {
				t.Errorf("%d entries, %v", len(some), err)
			}
			if _, _, err := again.Read(half); name != "has other bytes" && !errors.Is(err, journal.ErrGap) { // those lie before
				t.Errorf("from where it was posted: %v", err)
			}
			if after, _ := disk.List(); len(after) != len(before) {
				t.Errorf("reading made files: %v", after)
			}
			file, err = disk.Open("000000000002.journal")
			must(t, err, file.Truncate(0))
			_, err = file.WriteAt(whole, 0)
			must(t, err)
			if got := len(requests(t, again)); got != 20 {
				t.Fatalf("mended, %d are there", got)
			}
		})
	}
}

func TestAJournalIsOpenedOnlyWhenItIsOnTheDisk(t *testing.T) {
	for _, operation := range []string{"open", "write", "truncate", "sync"} {
		disk := journaltest.NewDisk()
		disk.Fail = failOn(operation, 3)
		if _, err := journal.Open(disk); !errors.Is(err, journaltest.ErrDisk) {
			t.Errorf("%s fails: %v", operation, err)
		}
		disk.Fail = nil
		j := begin(t, disk) // half an id, with no segment beside it, is no journal yet
		again, err := journal.Open(disk)
		if err != nil || again.ID != j.ID || !strings.HasPrefix(j.ID, "jrn_") {
			t.Errorf("%s had failed: %v; %q and then %q", operation, err, j.ID, again.ID)
		}
	}
}

func TestADamagedIDBesideSegmentsIsRefused(t *testing.T) {
	disk := journaltest.NewDisk()
	must(t, begin(t, disk).Close())
	file, _ := disk.Open("id")
	_, _ = file.WriteAt([]byte("x"), 1)
	if _, err := journal.Open(disk); err == nil {
		t.Error("a journal without its id was opened as another")
	}
}

func TestTheEndOfATornSegmentIsFoundAndTold(t *testing.T) {
	for _, tail := range [][]byte{{0}, make([]byte, 100), []byte("garbage that is longer than a frame")} {
		disk := journaltest.NewDisk()
		j := begin(t, disk)
		must(t, j.Append(settled("req_1"), settled("req_2")), j.Sync())
		end := j.End()
		file, _ := disk.Open("000000000001.journal")
		_, err := file.WriteAt(tail, end.Offset)
		must(t, err)
		again, err := journal.Open(disk)
		must(t, err)
		if again.End() != end || again.Torn != int64(len(tail)) || len(requests(t, again)) != 2 {
			t.Errorf("it ends at %+v, want %+v, with %d bytes torn, want %d", again.End(), end, again.Torn, len(tail))
		}
	}
}

// A cache is a disk behind a page cache that, like Linux's, takes what it failed to write for clean: the next sync of
// the same bytes succeeds and writes nothing.
type cache struct {
	files map[string]*cached
	fails func() bool // asked at every sync of a file
}

type cached struct {
	disk         *cache
	now, durable []byte
	dirty        map[int]bool
}

func (c *cache) List() ([]string, error) {
	var all []string
	for name := range c.files {
		all = append(all, name)
	}
	return all, nil
}

func (c *cache) Open(name string) (journal.File, error) {
	if c.files[name] == nil {
		c.files[name] = &cached{disk: c, dirty: map[int]bool{}}
	}
	return c.files[name], nil
}

func (c *cache) Remove(name string) error {
	if c.files[name] == nil {
		return fs.ErrNotExist
	}
	delete(c.files, name)
	return nil
}

func (c *cache) Sync() error { return nil }

// powerLoss is the disk as the next boot finds it.
func (c *cache) powerLoss() *cache {
	next := &cache{files: map[string]*cached{}, fails: func() bool { return false }}
	for name, f := range c.files {
		next.files[name] = &cached{disk: next, now: slices.Clone(f.durable), durable: slices.Clone(f.durable), dirty: map[int]bool{}}
	}
	return next
}

func (f *cached) ReadAt(p []byte, at int64) (int, error) {
	if n := copy(p, f.now[min(int(at), len(f.now)):]); n < len(p) {
		return n, io.EOF
	}
	return len(p), nil
}

func (f *cached) WriteAt(p []byte, at int64) (int, error) {
	f.now = append(f.now, make([]byte, max(0, int(at)+len(p)-len(f.now)))...)
	for i, b := range p {
		f.now[int(at)+i] = b
		f.dirty[int(at)+i] = true
	}
	return len(p), nil
}

func (f *cached) Size() (int64, error) { return int64(len(f.now)), nil }

func (f *cached) Truncate(size int64) error {
	f.now, f.durable = f.now[:min(int(size), len(f.now))], f.durable[:min(int(size), len(f.durable))]
	return nil
}

func (f *cached) Sync() error {
	failed := f.disk.fails()
	if !failed {
		f.durable = append(f.durable, make([]byte, len(f.now)-len(f.durable))...)
		for i := range f.dirty {
			f.durable[i] = f.now[i]
		}
	}
	clear(f.dirty)
	if failed {
		return journaltest.ErrDisk
	}
	return nil
}

func (f *cached) Close() error { return nil }

func TestWhatIsSaidToBeSyncedSurvivesAPowerLossThoughSyncsFailed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		failing := false
		disk := &cache{files: map[string]*cached{}, fails: func() bool { return failing }}
		j := begin(t, disk)
		j.Limit = 300
		var safe, unsafe []string
		note := func() {
			if j.Synced() == j.End() {
				safe, unsafe = append(safe, unsafe...), nil
			}
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			failing = rapid.IntRange(0, 3).Draw(t, "failing") == 0
			if rapid.Bool().Draw(t, "sync") {
				_ = j.Sync()
			} else if request := fmt.Sprint("req_", i); j.Append(settled(request)) == nil {
				unsafe = append(unsafe, request)
			}
			note()
		}
		again, err := journal.Open(disk.powerLoss())
		must(t, err)
		got, err := readFrom(again, 1)
		there := map[string]bool{}
		for _, e := range got {
			there[e.Request] = true
		}
		for _, request := range safe {
			if !there[request] {
				t.Fatalf("%s was synced and is lost; of %d safe ones %d entries are there (%v)", request, len(safe), len(got), err)
			}
		}
	})
}
