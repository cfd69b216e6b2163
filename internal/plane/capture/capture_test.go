package capture

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/live"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
)

const home = "ws_home"

type fixture struct {
	*Recorder
	settings *live.AllSettings
	spool    *spool.Spool
}

func newFixture(t testing.TB, days int64) fixture {
	t.Helper()
	settings := live.NewSettings()
	settings.Put(home, live.Settings{LogDays: days})
	s, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return fixture{NewRecorder(settings, s), settings, s}
}

func (f fixture) rows(t testing.TB) (all []*Row) {
	t.Helper()
	for at := (spool.Position{}); ; {
		batch, err := f.spool.Read(at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if batch.Next == at {
			return all
		}
		for _, record := range batch.Records {
			row, err := Parse(bytes.Clone(record))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, row)
		}
		at = batch.Next
	}
}

func answer(message, finish string) []byte {
	return fmt.Appendf(nil, `{"id":"x","object":"chat.completion","choices":[{"index":0,"finish_reason":%q,"message":%s}]}`, finish, message)
}

func exchange() *Exchange {
	return &Exchange{
		Workspace: home, Key: "key_1", Request: "req_1", Model: "p/m", Requested: "fast", Alias: "fast", Provider: "p", FallbackFrom: "p/first",
		Tag: "task", Trace: "run", Stream: true, Messages: []byte(`[{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"}]`),
		Tools: []byte(`[{"type":"function","function":{"name":"f"}}]`), Answer: answer(`{"role":"assistant","content":"Hello"}`, "stop"),
		Usage: live.Usage{Input: 5, Output: 2}, Cost: 42, Latency: 1500 * time.Microsecond, First: 700 * time.Microsecond,
	}
}

func TestAnExchangeIsLoggedAsItWas(t *testing.T) {
	d := newFixture(t, 7)
	before := clock.Now()
	d.Record(exchange())
	rows := d.rows(t)
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	r := rows[0]
	if r.At < before || r.At > clock.Now() || r.Expires != r.At.Add(7*24*time.Hour) || !strings.HasPrefix(r.ID, "log_") || len(r.Chain) == 0 || !strings.HasPrefix(r.Exact, "v_") {
		t.Errorf("%+v", r)
	}
	want := &Row{
		ID: r.ID, Workspace: home, Key: "key_1", Request: "req_1", At: r.At, Expires: r.Expires, Model: "p/m", Requested: "fast", Alias: "fast", Provider: "p",
		FallbackFrom: "p/first", Tag: "task", Trace: "run", Exact: r.Exact, Finish: "stop", Stream: true, Prompt: 5, Completion: 2, Cost: 42, Latency: 1500, First: 700,
		Chain: r.Chain, Messages: exchange().Messages, Tools: exchange().Tools, Response: []byte(`{"role":"assistant","content":"Hello"}`),
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
}

func TestNoTwoRowsHaveTheSameTime(t *testing.T) {
	d := newFixture(t, 7)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 200 {
				d.Record(exchange())
			}
		})
	}
	group.Wait()
	seen := map[clock.Time]bool{}
	for _, r := range d.rows(t) {
		if seen[r.At] {
			t.Fatalf("two rows of %s", r.At)
		}
		seen[r.At] = true
	}
	if len(seen) != 800 {
		t.Errorf("%d rows", len(seen))
	}
}

func TestRowsAreNewerThanAllBefore(t *testing.T) {
	d := newFixture(t, 7)
	later := clock.Now().Add(time.Hour) // the clock went back since
	d.After(later)
	d.Record(exchange())
	d.After(later - 5)
	d.Record(exchange())
	if rows := d.rows(t); len(rows) != 2 || rows[0].At != later+1 || rows[1].At != later+2 {
		t.Errorf("%v, %v; want after %v", rows[0].At, rows[1].At, later)
	}
}

// After logging was disabled and Settle has returned, nothing is written.
func TestNothingIsWrittenAfterLoggingIsDisabled(t *testing.T) {
	d := newFixture(t, 30)
	var stop atomic.Bool
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for !stop.Load() {
				d.Record(exchange())
			}
		})
	}
	for range 30 {
		d.settings.Put(home, live.Settings{})
		d.Settle()
		end := d.spool.End()
		time.Sleep(50 * time.Microsecond)
		if now := d.spool.End(); now != end {
			t.Fatalf("written after logging was off: %v, then %v", end, now)
		}
		d.settings.Put(home, live.Settings{LogDays: 30})
		time.Sleep(100 * time.Microsecond)
	}
	stop.Store(true)
	group.Wait()
	if len(d.rows(t)) == 0 {
		t.Error("nothing was ever written")
	}
}

func TestTooLargeAndUnreadableExchangesAreSkippedAndCounted(t *testing.T) {
	d := newFixture(t, 7)
	long := func(total int) *Exchange {
		e := exchange()
		e.Tools = nil
		const head, end = `[{"role":"user","content":"`, `"}]`
		rest := total - len(head) - len(end) - len(`{"role":"assistant","content":"Hello"}`)
		e.Messages = []byte(head + strings.Repeat("a", rest) + end)
		return e
	}
	d.Record(long(MaxSize))
	d.Record(long(MaxSize + 1))
	for _, bad := range []string{`{}`, `{"choices":[]}`, `{"choices":[{}]}`, `{"choices":7}`, `nothing`} {
		e := exchange()
		e.Answer = []byte(bad)
		d.Record(e)
	}
	torn, tools := exchange(), exchange()
	torn.Messages, tools.Tools = []byte(`[{"role":"user"`), []byte(`[tru]`)
	d.Record(torn)
	d.Record(tools)
	if got := d.Counts(); got != (Counts{Logged: 1, TooLarge: 1, Unreadable: 7}) {
		t.Errorf("%+v", got)
	}
	if rows := d.rows(t); len(rows) != 1 || len(rows[0].Messages)+len(rows[0].Response) != MaxSize {
		t.Errorf("%d rows", len(rows))
	}
}

func TestAFinishReasonIsSanitized(t *testing.T) {
	for said, want := range map[string]string{"stop": "stop", "a\x00b\n": "ab", strings.Repeat("x", 63) + "ü": strings.Repeat("x", 63), "\xff": "", "": ""} {
		if got := sanitizeFinish(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

func TestUnusualButValidJSONIsLogged(t *testing.T) {
	d := newFixture(t, 7)
	odd := exchange()
	odd.Messages = []byte(`[{"role":"user","role":"user","content":"a\u0000b"}]`)
	d.Record(odd)
	if rows := d.rows(t); len(rows) != 1 || !bytes.Equal(rows[0].Messages, odd.Messages) || len(rows[0].Chain) != 0 {
		t.Errorf("%+v", rows)
	}
}

func TestNoCredentialLeavesTheRecorder(t *testing.T) {
	canary := "AK" + "IAQYLPMN5HHHFPZAM2" // formatted like an access key, but not one
	for place, put := range map[string]func(*Exchange){
		"a message": func(e *Exchange) { e.Messages = []byte(`[{"role":"user","content":"` + canary + `"}]`) },
		"a part": func(e *Exchange) {
			e.Messages = []byte(`[{"role":"user","content":[{"type":"text","text":"` + canary + `"}]}]`)
		},
		"a name": func(e *Exchange) { e.Messages = []byte(`[{"role":"user","name":"` + canary + `","content":""}]`) },
		"a result": func(e *Exchange) {
			e.Messages = []byte(`[{"role":"tool","tool_call_id":"c","content":"{\"key\":\"` + canary + `\"}"}]`)
		},
		"a member":   func(e *Exchange) { e.Messages = []byte(`[{"role":"user","content":"","` + canary + `":1}]`) },
		"the system": func(e *Exchange) { e.Messages = []byte(`[{"role":"system","content":"` + canary + `"}]`) },
		"tools": func(e *Exchange) {
			e.Tools = []byte(`[{"type":"function","function":{"description":"` + canary + `"}}]`)
		},
		"the answer": func(e *Exchange) { e.Answer = answer(`{"role":"assistant","content":"`+canary+`"}`, "stop") },
		"a call": func(e *Exchange) {
			e.Answer = answer(`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"k\":\"`+canary+`\"}"}}]}`, "tool_calls")
		},
		"a thought": func(e *Exchange) {
			e.Answer = answer(`{"role":"assistant","content":"","reasoning_content":"`+canary+`"}`, "stop")
		},
		"the tag":     func(e *Exchange) { e.Tag = canary },
		"the trace":   func(e *Exchange) { e.Trace = "x " + canary },
		"the finish":  func(e *Exchange) { e.Answer = answer(`{"role":"assistant","content":""}`, canary) },
		"the escapes": func(e *Exchange) { e.Messages = []byte(`[{"role":"user","content":"\u0041` + canary[1:] + `"}]`) },
	} {
		t.Run(place, func(t *testing.T) {
			d := newFixture(t, 7)
			e := exchange()
			put(e)
			d.Record(e)
			rows := d.rows(t)
			if len(rows) != 1 {
				t.Fatalf("%d rows", len(rows))
			}
			record := rows[0].Append(nil)
			if bytes.Contains(record, []byte(canary[1:])) || !bytes.Contains(record, []byte("[redacted]")) {
				t.Errorf("%q", record)
			}
		})
	}
}

func TestNoHalfOfASplitCredentialLeavesTheRecorder(t *testing.T) {
	one, two := "AK"+"IAQYLPMN5", "HHHFPZAM2" // formatted like an access key, but not one
	parts := `[{"type":"text","text":"use ` + one + `"},{"type":"text","text":"` + two + ` for it"}]`
	d := newFixture(t, 7)
	e := exchange()
	e.Messages = []byte(`[{"role":"user","content":` + parts + `}]`)
	e.Answer = answer(`{"role":"assistant","content":`+parts+`}`, "stop")
	d.Record(e)
	rows := d.rows(t)
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, body := range [][]byte{rows[0].Messages, rows[0].Response} {
		if bytes.Contains(body, []byte(one[1:])) || bytes.Contains(body, []byte(two)) || bytes.Count(body, []byte("[redacted]")) != 2 {
			t.Errorf("%s", body)
		}
	}
}

func TestTheSystemPromptIsTheTextBeforeTheFirstOtherMessage(t *testing.T) {
	for messages, want := range map[string]string{
		`[]`: "", `[{"role":"user","content":"Hi"}]`: "", `not JSON`: "",
		`[{"role":"system","content":"A"},{"role":"developer","content":"B"},{"role":"user","content":"C"},{"role":"system","content":"D"}]`: "A\nB",
		`[{"role":"system","content":[{"type":"text","text":"A"},{"type":"text","text":"B"}]}]`:                                              "A\nB",
		`[{"role":"system","content":null},{"role":"system","content":"A"}]`:                                                                 "A",
	} {
		if got := System([]byte(messages)); got != want {
			t.Errorf("%s: %q, want %q", messages, got, want)
		}
	}
}

func TestARowIsDecodedAsItWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.Make[Row]().Draw(t, "row")
		got, err := Parse(want.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range want.bodies() {
			if *body == nil {
				*body = []byte{}
			}
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add((&Row{ID: "log_1", Messages: []byte(`[]`)}).Append(nil))
	f.Fuzz(func(t *testing.T, record []byte) {
		row, err := Parse(record)
		if err != nil {
			return
		}
		again, err := Parse(row.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	d := newFixture(b, 7)
	e := exchange()
	e.Messages = []byte(`[{"role":"system","content":"You are a helpful assistant of a bank."},{"role":"user","content":"` + strings.Repeat("what is the answer ", 20) + `"}]`)
	row := d.row(e)
	size := len(row.Append(nil))
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if d.row(e) == nil {
			b.Fatal("no row")
		}
	}
}
