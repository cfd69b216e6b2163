package capture

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/live"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
)

var split = Split{Workspace: home, Alias: "fast", Epoch: "ep_1"}

// place draws a request, which must be drawn.
func (f fixture) place(t testing.TB, of Split) Place {
	t.Helper()
	p := f.Draw(of)
	if p.Seq == 0 {
		t.Fatal("nothing is drawn")
	}
	return p
}

// Requests that are drawn at once get the numbers from 1 on, each once; those of another alias, epoch or workspace are
// numbered by themselves.
func TestDrawsAreNumberedWithoutGaps(t *testing.T) {
	f := newFixture(t, 7)
	f.settings.Put("ws_2", live.Settings{LogDays: 30})
	splits := []Split{split, {home, "fast", "ep_2"}, {home, "slow", "ep_1"}, {"ws_2", "fast", "ep_1"}}
	const each, callers = 200, 8
	var mu sync.Mutex
	seen := map[Split][]int64{}
	times, sources := map[clock.Time]bool{}, map[string]bool{}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range each {
				of := splits[i%len(splits)]
				p := f.Draw(of)
				mu.Lock()
				seen[of] = append(seen[of], p.Seq)
				times[p.At], sources[p.Source] = true, true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for of, numbers := range seen {
		slices.Sort(numbers)
		for i, n := range numbers {
			if n != int64(i)+1 {
				t.Fatalf("%v has %d at place %d", of, n, i)
			}
		}
	}
	if len(times) != each*callers || len(sources) != 1 {
		t.Errorf("%d times of %d draws, %d sources", len(times), each*callers, len(sources))
	}
}

// The sources of later processes sort after those of earlier ones, even if the clock goes back.
func TestSourcesSortByTheirStart(t *testing.T) {
	last := Place{}
	for i := range 5 {
		f := newFixture(t, 7)
		f.After(last.At + clock.Time(i)*3_600_000_000) // as if the clock of the last process had been ahead
		next := f.place(t, split)
		if next.Source <= last.Source || next.At <= last.At || next.Seq != 1 {
			t.Fatalf("%+v after %+v", next, last)
		}
		last = f.place(t, split)
		if last.Source != next.Source || last.Seq != 2 {
			t.Fatalf("%+v after %+v", last, next)
		}
	}
}

// A number that is missing when a node's membership ends is lost, so that the next membership numbers anew.
func TestTheEndOfAMembershipEndsItsSource(t *testing.T) {
	settings := live.NewSettings()
	settings.Put(home, live.Settings{LogDays: 7})
	s, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	life := "jrn_1.1"
	f := fixture{NewRecorder(settings, s), settings, s}
	f.Life = func() string { return life }
	first, second := f.place(t, split), f.place(t, split)
	life = "jrn_1.2"
	third := f.place(t, split)
	if first.Source != second.Source || second.Seq != 2 || !strings.HasSuffix(first.Source, ".jrn_1.1") {
		t.Errorf("%+v, then %+v", first, second)
	}
	if third.Source <= first.Source || third.Seq != 1 || !strings.HasSuffix(third.Source, ".jrn_1.2") {
		t.Errorf("%+v, then %+v", second, third)
	}
}

// When the spool loses a record, which may be a draw's, a new source begins: nobody waits for the lost one. While the
// spool cannot take records, nothing is drawn.
func TestALostRecordEndsItsSource(t *testing.T) {
	settings := live.NewSettings()
	settings.Put(home, live.Settings{LogDays: 7})
	disk := journaltest.NewDisk()
	s, err := spool.Open(disk, spool.Position{}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{NewRecorder(settings, s), settings, s}
	first := f.place(t, split)
	disk.Fail = func(string, int) (int, error) { return 0, journaltest.ErrDisk }
	f.Drawn(&Draw{Workspace: home, Place: first})
	if p := f.Draw(split); p != (Place{}) {
		t.Errorf("%+v is drawn while the disk fails", p)
	}
	disk.Fail = nil
	f.Record(exchange()) // it is written, and the spool works again
	if p := f.place(t, split); p.Source <= first.Source || p.Seq != 1 {
		t.Errorf("%+v after %+v", p, first)
	}
}

func TestNothingIsDrawnWhenTheSpoolIsNearlyFull(t *testing.T) {
	settings := live.NewSettings()
	settings.Put(home, live.Settings{LogDays: 7})
	s, err := spool.Open(journaltest.NewDisk(), spool.Position{}, spool.MaxRecord+1000)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{NewRecorder(settings, s), settings, s}
	f.place(t, split)
	s.Append(make([]byte, 1000))
	if p := f.Draw(split); p != (Place{}) {
		t.Errorf("%+v", p)
	}
}

func TestNothingIsDrawnWithoutLogging(t *testing.T) {
	f := newFixture(t, 0)
	if p := f.Draw(split); p != (Place{}) {
		t.Errorf("%+v", p)
	}
}

func TestADrawIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.Make[Draw]().Draw(t, "draw")
		record := want.Append(nil)
		got, err := ParseDraw(record)
		if err != nil || *got != want || !IsDraw(record) {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
		if _, err := Parse(record); err == nil {
			t.Fatal("a draw is read as a row")
		}
		for i := range record {
			if _, err := ParseDraw(record[:i]); err == nil {
				t.Fatalf("%d of %d bytes are a draw", i, len(record))
			}
		}
		if _, err := ParseDraw(append(record, 0)); err == nil {
			t.Fatal("a byte more is a draw")
		}
	})
}

// previousRow is a row in the format of the release before there were draws, in hexadecimal.
const previousRow = `0101d00fa01f0a0454b817f80a056c6f675f310477735f31056b65795f31057265715f3103702f6d04666173740466617374
017000047461736b0372756e0565786163740473746f7000205b7b22726f6c65223a2275736572222c22636f6e74656e7422
3a224869227d5d00267b22726f6c65223a22617373697374616e74222c22636f6e74656e74223a2248656c6c6f227d`

// The previous release's spool may wait on the disk when this one starts.
func TestARowOfThePreviousReleaseIsRead(t *testing.T) {
	record, err := hex.DecodeString(strings.ReplaceAll(previousRow, "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	row, err := Parse(record)
	if err != nil || IsDraw(record) {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s %s %s %d %d %s %v %s %s", row.ID, row.Workspace, row.Request, row.At, row.Cost, row.Alias, row.Stream, row.Messages, row.Response)
	if want := `log_1 ws_1 req_1 1000 42 fast true [{"role":"user","content":"Hi"}] {"role":"assistant","content":"Hello"}`; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// A draw of the previous release has no question.
func TestADrawOfThePreviousReleaseIsRead(t *testing.T) {
	want := Draw{Workspace: home, Alias: "fast", Epoch: "ep_1", Request: "req_1", Outcome: "answered"}
	record := want.Append(nil)
	record[0] = oldDrawFormat
	record = record[:len(record)-len(want.Question)]
	if got, err := ParseDraw(record); err != nil || *got != want || !IsDraw(record) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Only the key and the messages matter to a digest, and each of them does.
func TestAQuestionIsRecognisedUnderItsKeyAlone(t *testing.T) {
	asked := NewQuestion("key", []byte(`[{"role":"user","content":"hi"}]`))
	if again := NewQuestion("key", []byte(`[{"role":"user","content":"hi"}]`)); again != asked || asked == (Question{}) {
		t.Errorf("%x, and again %x", asked, again)
	}
	for name, other := range map[string]Question{
		"another key":      NewQuestion("KEY", []byte(`[{"role":"user","content":"hi"}]`)),
		"another question": NewQuestion("key", []byte(`[{"role":"user","content":"ho"}]`)),
		"no key":           NewQuestion("", []byte(`[{"role":"user","content":"hi"}]`)),
	} {
		if other == asked {
			t.Errorf("%s has the same digest", name)
		}
	}
}

func FuzzParseDraw(f *testing.F) {
	f.Add((&Draw{Workspace: home, Alias: "fast", Outcome: "answered"}).Append(nil))
	f.Fuzz(func(t *testing.T, record []byte) {
		draw, err := ParseDraw(record)
		if err != nil {
			return
		}
		if again, err := ParseDraw(draw.Append(nil)); err != nil || *again != *draw {
			t.Errorf("%v: %+v, %+v", err, draw, again)
		}
	})
}

func BenchmarkDraw(b *testing.B) {
	f := newFixture(b, 7)
	b.ReportAllocs()
	for b.Loop() {
		f.Drawn(&Draw{Workspace: home, Alias: "fast", Epoch: "ep_1", Place: f.Draw(split), Request: "req_01k", Arm: live.CanaryArm, Outcome: "answered"})
	}
}
