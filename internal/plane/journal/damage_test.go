package journal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
)

// failures are the ways in which one operation can fail.
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

func TestAJournalRecoversFromEveryKindOfFailure(t *testing.T) {
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
				must(t, try(j), j.Sync(), j.Failure())
				got := requests(t, j)
				if slices.Contains(got, "req_refused") || got[0] != "req_before" || slices.Contains(got, "req_next") != (how == "found by the next append") {
					t.Errorf("%v", got)
				}
			})
		}
	}
}

func TestNothingIsWrittenAfterAPartialWriteThatCouldNotBeTruncated(t *testing.T) {
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

// A written entry must not be reported as refused, or its caller would settle it twice.
func TestAnEntryIsAcceptedWhenTheNextSegmentCannotBeStarted(t *testing.T) {
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

// A request that was open when a segment failed to start may be settled in the segment before. The failed segment
// must not be read.
func TestASegmentThatCouldNotBeStartedLeavesNothing(t *testing.T) {
	disk := journaltest.NewDisk()
	j := begin(t, disk)
	j.Limit = 1
	syncs := 0
	disk.Fail = func(operation string, size int) (int, error) {
		if operation == "sync" {
			if syncs++; syncs%2 == 0 { // the full segment's works, the new one's does not
				return 0, journaltest.ErrDisk
			}
		}
		return size, nil
	}
	opened := settled("req_1")
	opened.Kind = journal.Opened
	for _, e := range []journal.Entry{opened, settled("req_1")} {
		if syncs = 0; j.Append(e) != nil || j.Failure() == nil {
			t.Fatalf("not taken, or the segment was begun: %v", j.Failure())
		}
	}
	again, err := journal.Open(disk.Crash())
	must(t, err)
	orphans, err := again.Orphans(1)
	if err != nil || len(orphans) > 0 || again.End().Segment != 1 {
		t.Errorf("%d orphans %v; it ends at %+v", len(orphans), err, again.End())
	}
}

// A stubborn disk fails every Remove while keeps is set.
type stubborn struct {
	*journaltest.Disk
	keeps bool
}

func (s *stubborn) Remove(name string) error {
	if s.keeps {
		return journaltest.ErrDisk
	}
	return s.Disk.Remove(name)
}

func TestNothingIsWrittenWhileAFailedSegmentCannotBeRemoved(t *testing.T) {
	disk := &stubborn{Disk: journaltest.NewDisk()}
	j := begin(t, disk)
	j.Limit = 1
	syncs := 0
	disk.keeps, disk.Fail = true, func(operation string, size int) (int, error) {
		if operation == "sync" {
			if syncs++; syncs == 2 {
				return 0, journaltest.ErrDisk
			}
		}
		return size, nil
	}
	opened := settled("req_1")
	opened.Kind = journal.Opened
	if j.Append(opened) != nil || j.Failure() == nil {
		t.Fatalf("not taken, or the segment was begun: %v", j.Failure())
	}
	if err := j.Append(settled("req_1")); !errors.Is(err, journaltest.ErrDisk) {
		t.Fatalf("written while the next segment says that it is open: %v", err)
	}
	disk.keeps = false
	must(t, j.Append(settled("req_1")), j.Sync(), j.Failure())
	again, err := journal.Open(disk)
	must(t, err)
	orphans, err := again.Orphans(1)
	if got := requests(t, again); err != nil || len(orphans) > 0 || !slices.Equal(got, []string{"req_1"}) {
		t.Errorf("%v, %d orphans, %v", got, len(orphans), err)
	}
}

func TestAFailedSyncIsAFailureUntilASyncSucceeds(t *testing.T) {
	disk := journaltest.NewDisk()
	j := begin(t, disk)
	must(t, j.Append(settled("req_1")))
	disk.Fail = failOn("sync", 0)
	if j.Sync() == nil {
		t.Fatal("the disk does not fail")
	}
	must(t, j.Append(settled("req_2"))) // the kernel has it
	if j.Failure() == nil {
		t.Error("another entry could be written, and the first is taken for safe")
	}
	disk.Fail = nil
	must(t, j.Sync(), j.Failure())
}

func TestOpenSyncsWhatAKilledProcessLeftUnsynced(t *testing.T) {
	for seed := range uint64(20) {
		disk := journaltest.NewDisk()
		j := begin(t, disk)
		must(t, j.Append(settled("req_1")), j.Append(settled("req_2")))
		disk = disk.Crash()
		_, err := journal.Open(disk) // and its opener may have posted the entries by now
		must(t, err)
		again, err := journal.Open(disk.PowerLoss(rand.New(rand.NewPCG(seed, 1))))
		must(t, err)
		if got := requests(t, again); len(got) != 2 {
			t.Fatalf("seed %d: %v", seed, got)
		}
	}
}

func TestAnEntryThatIsTooLongIsRefusedAndTheJournalGoesOn(t *testing.T) {
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

func TestAClosedJournalRefusesEntries(t *testing.T) {
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

func TestAGapIsReportedAndReadingCreatesNoFile(t *testing.T) {
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

func TestOpenFailsWhenTheJournalCannotBeMadeDurable(t *testing.T) {
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
