package spool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
)

const plenty = 1 << 30

func open(t rapid.TB, disk journal.Disk, after Position, budget int64) *Spool {
	t.Helper()
	s, err := Open(disk, after, budget)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readAll reads everything from a position on, and forgets it.
func readAll(t rapid.TB, s *Spool, from Position) (all []string, next Position) {
	t.Helper()
	for {
		batch, err := s.Read(from, 100)
		if err != nil {
			t.Fatal(err)
		}
		if batch.Next == from {
			return all, from
		}
		for _, r := range batch.Records {
			all = append(all, string(r))
		}
		if from = batch.Next; len(all) > 1_000_000 {
			t.Fatal("it never ends")
		}
		if err := s.Forget(from.Segment); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever dies when, an accepted record is read once, in order. A power loss may cost a suffix of the unsynced
// records.
func TestEveryRecordIsReadOnceInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := journaltest.NewDisk()
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var cursor Position
		var want, got []string
		s := open(t, disk, cursor, plenty)
		synced := 0 // how many of want are synced
		count := 0
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				s.Limit = rapid.Int64Range(1, 300).Draw(t, "limit")
				for range rapid.IntRange(1, 5).Draw(t, "records") {
					count++
					record := fmt.Sprintf("%d %s", count, string(make([]byte, rapid.IntRange(0, 150).Draw(t, "size"))))
					if !s.Append([]byte(record)) {
						t.Fatal("it was refused")
					}
					want = append(want, record)
				}
			},
			"read": func(t *rapid.T) {
				if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
				synced = len(want)
				var some []string
				some, cursor = readAll(t, s, cursor)
				got = append(got, some...)
			},
			"sync": func(t *rapid.T) {
				if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
				synced = len(want)
			},
			"kill": func(t *rapid.T) {
				disk = disk.Crash()
				s = open(t, disk, cursor, plenty)
			},
			"power": func(t *rapid.T) {
				disk = disk.PowerLoss(random)
				s = open(t, disk, cursor, plenty)
				some, next := readAll(t, s, cursor)
				cursor, got = next, append(got, some...)
				if len(got) < min(synced, len(want)) {
					t.Fatalf("%d of %d synced records are left", len(got), synced)
				}
				for _, r := range got {
					if !slices.Contains(want, r) {
						t.Fatalf("nobody appended %q", r)
					}
				}
				want, synced = slices.Clone(got), len(got)
			},
			"": func(t *rapid.T) {
				if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
					t.Fatalf("read %q of %q", got, want)
				}
			},
		})
		some, _ := readAll(t, s, cursor)
		if got = append(got, some...); !slices.Equal(got, want) {
			t.Fatalf("read %d of %d", len(got), len(want))
		}
	})
}

func TestConcurrentAppendsKeepRecordsIntact(t *testing.T) {
	const writers, each = 8, 500
	s := open(t, journaltest.NewDisk(), Position{}, plenty)
	s.Limit = 10_000
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if !s.Append(fmt.Appendf(nil, "%d %d", w, i)) {
					t.Error("refused")
				}
			}
		})
	}
	group.Wait()
	all, _ := readAll(t, s, Position{})
	next := [writers]int{}
	for _, r := range all {
		var w, i int
		if _, err := fmt.Sscanf(r, "%d %d", &w, &i); err != nil || next[w] != i {
			t.Fatalf("%q, want %d of %d: %v", r, next[w], w, err)
		}
		next[w]++
	}
	if len(all) != writers*each {
		t.Errorf("%d records", len(all))
	}
}

func TestOverTheBudgetRecordsAreRefusedAndCountedUntilSomeAreForgotten(t *testing.T) {
	s := open(t, journaltest.NewDisk(), Position{}, 1000)
	s.Limit = 200
	record, taken := make([]byte, 92), 0
	for s.Append(record) {
		taken++
	}
	if state := s.State(); taken != 10 || state.Lost != 1 || state.Waiting != 1000 || state.Failure != nil {
		t.Fatalf("%d were taken: %+v", taken, state)
	}
	all, _ := readAll(t, s, Position{})
	if len(all) != taken || !s.Append(record) {
		t.Errorf("%d were read, and there is no room: %+v", len(all), s.State())
	}
}

func TestAFailedWriteIsCountedAndDamagesNothing(t *testing.T) {
	disk := journaltest.NewDisk()
	s := open(t, disk, Position{}, plenty)
	s.Append([]byte("before"))
	disk.Fail = func(operation string, size int) (int, error) { return size / 2, journaltest.ErrDisk }
	for range 3 {
		if s.Append([]byte("in vain")) {
			t.Error("a record that could not be written was kept")
		}
	}
	if state := s.State(); state.Lost != 3 || !errors.Is(state.Failure, journaltest.ErrDisk) {
		t.Errorf("%+v", state)
	}
	disk.Fail = nil
	s.Append([]byte("after"))
	if all, _ := readAll(t, s, Position{}); !slices.Equal(all, []string{"before", "after"}) || s.State().Failure != nil {
		t.Errorf("%q, %v", all, s.State().Failure)
	}
}

func TestDamagedRecordsAreSkippedAndCounted(t *testing.T) {
	disk := journaltest.NewDisk()
	s := open(t, disk, Position{}, plenty)
	for i := range 3 {
		s.Append(fmt.Appendf(nil, "record %d", i))
	}
	file, err := disk.Open(segmentName(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("!"), 16+headerSize+3); err != nil { // within the second
		t.Fatal(err)
	}
	s = open(t, disk.Crash(), Position{}, plenty)
	s.Append([]byte("later"))
	batch, err := s.Read(Position{}, 1<<20)
	if err != nil || len(batch.Records) != 1 || batch.Damaged != 32 {
		t.Fatalf("%q, %d bytes damaged, %v", batch.Records, batch.Damaged, err)
	}
	if all, _ := readAll(t, s, batch.Next); !slices.Equal(all, []string{"later"}) {
		t.Errorf("%q", all)
	}
}

func TestARecordThatIsTooLongIsRefused(t *testing.T) {
	s := open(t, journaltest.NewDisk(), Position{}, plenty)
	long := make([]byte, MaxRecord)
	if !s.Append(long) || s.Append(append(long, 0)) {
		t.Error("the bound is elsewhere")
	}
	if all, _ := readAll(t, s, Position{}); len(all) != 1 || len(all[0]) != MaxRecord {
		t.Errorf("%d records", len(all))
	}
}

func TestTheNumberOfALostSegmentIsNotReused(t *testing.T) {
	s := open(t, journaltest.NewDisk(), Position{Segment: 7, Offset: 1000}, plenty)
	s.Append([]byte("new"))
	if all, _ := readAll(t, s, Position{Segment: 7, Offset: 1000}); !slices.Equal(all, []string{"new"}) {
		t.Errorf("%q", all)
	}
}

func BenchmarkAppend(b *testing.B) {
	disk, err := journal.Folder(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(disk, Position{}, 1<<40)
	if err != nil {
		b.Fatal(err)
	}
	record := make([]byte, 1500)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.Append(record)
		}
	})
	b.StopTimer()
	if err := s.Forget(s.End().Segment); err != nil {
		b.Fatal(err)
	}
}

func TestSyncSkipsWhatIsSyncedAndRetriesAfterAFailure(t *testing.T) {
	disk, syncs, broken := journaltest.NewDisk(), 0, false
	disk.Fail = func(operation string, size int) (int, error) {
		if operation != "sync" {
			return size, nil
		}
		if syncs++; broken {
			return 0, journaltest.ErrDisk
		}
		return size, nil
	}
	s := open(t, disk, Position{}, plenty)
	if err := s.Sync(); err != nil || syncs != 2 { // the segment and the folder
		t.Fatalf("%d syncs, %v", syncs, err)
	}
	if err := s.Sync(); err != nil || syncs != 2 {
		t.Errorf("nothing was written, and it is synced: %d, %v", syncs, err)
	}
	s.Append([]byte("one"))
	broken = true
	if err := s.Sync(); !errors.Is(err, journaltest.ErrDisk) {
		t.Error(err)
	}
	broken = false
	if err := s.Sync(); err != nil || syncs != 4 {
		t.Errorf("%d syncs, %v", syncs, err)
	}
	if all, _ := readAll(t, open(t, disk.PowerLoss(rand.New(rand.NewPCG(1, 1))), Position{}, plenty), Position{}); !slices.Equal(all, []string{"one"}) {
		t.Errorf("%q", all)
	}
}

func TestAppendedSignalsAWrite(t *testing.T) {
	s := open(t, journaltest.NewDisk(), Position{}, plenty)
	for range 2 {
		select {
		case <-s.Appended():
			t.Fatal("nothing was written")
		default:
		}
		s.Append([]byte("one"))
		s.Append([]byte("two"))
		<-s.Appended()
	}
}
