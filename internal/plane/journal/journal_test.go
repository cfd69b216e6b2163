package journal

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/quick"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/live"
)

func charge(request string, cost money.Nano) Charge {
	return Charge{
		Request: request, Workspace: "ws_1", Key: "key_1", At: 1700, Route: "chat", Model: "m", Requested: "a", Alias: "a", Provider: "p",
		Outcome: "finished", Usage: live.Usage{Input: 10, Cached: 3, Output: 7, Reasoning: 2}, Price: live.Rates{Input: 5, CachedInput: 4, WrittenInput: 6, AudioInput: 7, Output: 9, Reasoning: 8, AudioOutput: 11, Search: 12}, Cost: cost, Charged: cost,
	}
}

// all reads every synced entry, from the first segment on.
func all(t interface {
	Helper()
	Fatal(...any)
}, j *Journal,
) []Entry {
	t.Helper()
	segments, err := j.Segments()
	if err != nil || len(segments) == 0 {
		t.Fatal("no segments", err)
	}
	var entries []Entry
	for at := (Position{segments[0], 0}); ; {
		some, next, err := j.Read(at)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			return entries
		}
		entries, at = append(entries, some...), next
	}
}

func begun(t testing.TB, disk Disk) *Journal {
	t.Helper()
	j, err := Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Begin(); err != nil {
		t.Fatal(err)
	}
	return j
}

func tempDisk(t testing.TB) Disk {
	t.Helper()
	disk, err := Folder(t.TempDir() + "/journal")
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

func TestEveryFieldIsReadBackAsItWasWritten(t *testing.T) {
	if err := quick.Check(func(request, model, outcome, hold string, at, cost, charged int64, counted bool, u live.Usage, p live.Rates) bool {
		if len(request)+len(model)+len(outcome)+len(hold) > maxPayload/2 {
			return true
		}
		want := Entry{Settled, charge(request, money.Nano(cost))}
		want.Hold = hold
		want.At, want.Model, want.Outcome, want.Counted, want.Usage, want.Price, want.Charged = clock.Time(at), model, outcome, counted, u, p, money.Nano(charged)
		got, n, err := decodeEntry(appendEntry(nil, &want), map[string]string{})
		return err == nil && got == want && n > headerSize
	}, nil); err != nil {
		t.Error(err)
	}
}

func FuzzDecodingArbitraryBytesNeverPanics(f *testing.F) {
	e := Entry{Opened, charge("req_1", 5)}
	f.Add(appendEntry(nil, &e))
	e.Hold, e.Usage.GPUSeconds = "rs_1", 60
	f.Add(appendEntry(nil, &e))
	e.Kind = Progressed
	f.Add(appendEntry(nil, &e))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, n, err := decodeEntry(data, map[string]string{})
		if err != nil {
			return
		}
		if n <= headerSize || n > len(data) {
			t.Fatalf("%d bytes of %d", n, len(data))
		}
		if again, _, err := decodeEntry(appendEntry(nil, &e), map[string]string{}); err != nil || again != e {
			t.Fatalf("%+v is read back as %+v, %v", e, again, err)
		}
	})
}

func TestEveryChangedBitIsDetected(t *testing.T) {
	e := Entry{Settled, charge("req_1", 5)}
	whole := appendEntry(nil, &e)
	for i := range whole {
		for bit := range 8 {
			damaged := append([]byte{}, whole...)
			damaged[i] ^= 1 << bit
			if _, _, err := decodeEntry(damaged, map[string]string{}); err == nil {
				t.Fatalf("bit %d of byte %d was changed unnoticed", bit, i)
			}
		}
	}
	for n := range whole {
		if _, _, err := decodeEntry(whole[:n], map[string]string{}); !errors.Is(err, errTorn) {
			t.Fatalf("a record cut at %d: %v", n, err)
		}
	}
}

func TestConcurrentAppendsAreEachWrittenOnce(t *testing.T) {
	j := begun(t, tempDisk(t))
	j.Limit = 10_000 // many segments
	const writers, each = 16, 200
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if err := j.Append(Entry{Settled, charge(fmt.Sprintf("req_%d_%d", w, i), 1)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, e := range all(t, j) {
		seen[e.Request]++
	}
	for w := range writers {
		for i := range each {
			if n := seen[fmt.Sprintf("req_%d_%d", w, i)]; n != 1 {
				t.Fatalf("request %d of writer %d is there %d times", i, w, n)
			}
		}
	}
	if segments, _ := j.Segments(); len(segments) < 10 {
		t.Errorf("only %d segments", len(segments))
	}
}

func TestTheCostsOfOneReadFitIntoAnAmount(t *testing.T) {
	j := begun(t, tempDisk(t))
	const n = 7
	for i := range n {
		if err := j.Append(Entry{Settled, charge(fmt.Sprint("req_", i), math.MaxInt64/2-1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	segments, _ := j.Segments()
	readings, read := 0, 0
	for at := (Position{segments[0], 0}); ; readings++ {
		some, next, err := j.Read(at)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			break
		}
		var sum money.Nano
		for _, e := range some {
			next, fits := sum.Add(e.Cost)
			if sum = next; !fits {
				t.Fatalf("%d entries of one reading cost more than fits", len(some))
			}
		}
		at, read = next, read+len(some)
	}
	if read != n || readings != 4 {
		t.Errorf("%d entries in %d readings, want %d in 4", read, readings, n)
	}
}

func TestAMissingSegmentIsReportedAsAGap(t *testing.T) {
	disk := tempDisk(t)
	j := begun(t, disk)
	j.Limit = 200
	for i := range 20 {
		if err := j.Append(Entry{Settled, charge(fmt.Sprint("req_", i), 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := disk.Remove(segmentName(2)); err != nil {
		t.Fatal(err)
	}
	again, err := Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Orphans(1); !errors.Is(err, ErrGap) {
		t.Errorf("a missing segment: %v", err)
	}
	file, _ := disk.Open(segmentName(4))
	_, _ = file.WriteAt([]byte{0xff}, 20)
	if _, _, err := again.Read(Position{4, 0}); !errors.Is(err, ErrGap) {
		t.Errorf("a damaged segment in the middle: %v", err)
	}
}

func BenchmarkAppend(b *testing.B) {
	j := begun(b, tempDisk(b))
	e := Entry{Settled, charge("req_01k0000000000000000000000", 5)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := j.Append(e); err != nil {
				b.Fatal(err)
			}
		}
	})
}
