package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/breaker"
	"sovereign/internal/net/life"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/gateway/deadline"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/meter"
	"sovereign/internal/plane/spool"
	"sovereign/internal/wire/upstream"
)

const (
	gatedRequest       = `{"model":"al","messages":[{"role":"user","content":"hi"}]}`
	gatedStreamRequest = `{"model":"al","messages":[{"role":"user","content":"hi"}],"stream":true}`
)

// gated is a gateway with an alias whose gate draws every request, for the canary n. Its target is m.
type gated struct {
	*bench
	alias     live.Alias
	rows      *spool.Spool
	rowsDisk  *journaltest.Disk
	directory *live.Directory
	request   *request.Request
	caller    *life.Life
	writes    int // that the caller takes
}

func newGated(t testing.TB) *gated {
	t.Helper()
	g := &gated{
		bench: newBench(t, model("m"), model("n"), model("f"),
			model("modern", at(live.Provider{Name: "modern", Configured: true, Modern: true}))), rowsDisk: journaltest.NewDisk(), directory: live.NewDirectory(),
		alias:  live.Alias{Name: "al", Target: "m", Canary: "n", CanaryPercent: 60, Gate: &live.Gate{Epoch: "ep_1", Stratum: 2, Key: "secret", SamplePercent: 100}},
		caller: new(life.Life), writes: 99,
	}
	g.Own.Put(home, model("dedicated/d"))
	var err error
	if g.rows, err = spool.Open(g.rowsDisk, spool.Position{}, 1<<30); err != nil {
		t.Fatal(err)
	}
	g.Recorder = capture.NewRecorder(g.Workspaces, g.rows)
	_, digest, _ := apikey.New()
	g.directory.PutKey(digest, live.Key{ID: "key_1", Workspace: home, User: member.User})
	g.directory.PutMember(member, tenant.Member)
	grant := g.directory.Grant(digest)
	g.request = &request.Request{
		Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home, Key: "key_1"}, ID: "req_1", Body: []byte(gatedRequest),
		Annotations: &request.Annotations{}, Grant: &grant,
	}
	for _, ws := range []tenant.ID{home, "ws_poor"} {
		g.Workspaces.Put(ws, live.Settings{LogDays: 7})
	}
	g.answer = whole(good)
	return g
}

// timeouts sets the gateway's timeouts.
func (g *gated) timeouts(try, stall, total time.Duration) {
	g.Apply(Settings{TryTimeout: try, StallTimeout: stall, RequestTimeout: total})
}

// serve serves the request. A panic is an error.
func (g *gated) serve() (err error) {
	for _, ws := range []tenant.ID{home, "ws_poor"} {
		g.Aliases.Put(ws, &g.alias)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return g.Serve(g.caller, g.request, &leaving{httptest.NewRecorder(), g.writes})
}

// records returns the draws in the spool, and how many rows there are before the first of them.
func (g *gated) records() (draws []*capture.Draw, rowsBefore int) {
	g.t.Helper()
	for at := (spool.Position{}); ; {
		batch, err := g.rows.Read(at, 1<<20)
		if err != nil {
			g.t.Fatal(err)
		}
		if batch.Next == at {
			return draws, rowsBefore
		}
		for _, record := range batch.Records {
			if !capture.IsDraw(record) {
				if len(draws) == 0 {
					rowsBefore++
				}
				continue
			}
			draw, err := capture.ParseDraw(record)
			if err != nil {
				g.t.Fatal(err)
			}
			draws = append(draws, draw)
		}
		at = batch.Next
	}
}

// hang answers nothing until the attempt ends. It calls first before that.
func (g *gated) hang(first func()) {
	g.respond = func(ctx context.Context, _ *upstream.Request) (*upstream.Response, error) {
		first()
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

// hangHalfWay streams some content, calls then, and says nothing more until the attempt ends.
func (g *gated) hangHalfWay(then func()) {
	g.stream()
	g.answerWith(func(ctx context.Context) io.Reader {
		return io.MultiReader(strings.NewReader(providerStream[:endOf(providerStream, "one ")]), readerFunc(func([]byte) (int, error) {
			then()
			<-ctx.Done()
			return 0, ctx.Err()
		}))
	})
}

func (g *gated) stream() { g.request.Body = []byte(gatedStreamRequest) }

func nothing() {}

// ends are the ways in which a request can end that was drawn for the canary n.
var ends = []struct {
	name   string
	lead   func(*gated)
	want   outcome.Sample
	served string // the model that answered
}{
	{"answered", func(*gated) {}, outcome.Answered, "n"},
	{"answered by a stream", func(g *gated) { g.stream(); g.answer = events(strings.NewReader(providerStream)) }, outcome.Answered, "n"},
	{"answered by a retry", func(g *gated) {
		g.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: 2 * time.Minute, Retries: 1})
		g.answer = func(r *upstream.Request) (*upstream.Response, error) {
			if len(g.sent) == 1 {
				return answers(500, "{}")(r)
			}
			return whole(good)(r)
		}
	}, outcome.Answered, "n"},

	{"provider fails", func(g *gated) { g.answer = answers(500, "{}") }, outcome.Failed, ""},
	{"provider is at its limit", func(g *gated) { g.answer = answers(429, "{}") }, outcome.Failed, ""},
	{"provider rejects the key", func(g *gated) { g.answer = answers(401, "{}") }, outcome.Failed, ""},
	{"provider does not know the model", func(g *gated) { g.answer = answers(404, "{}") }, outcome.Failed, ""},
	{"provider cannot be reached", func(g *gated) { g.answer = refuse(errors.New("connection refused")) }, outcome.Failed, ""},
	{"provider sends garbage", func(g *gated) { g.answer = whole("garbage") }, outcome.Failed, ""},
	{"provider says nothing", func(g *gated) { g.timeouts(5*time.Millisecond, time.Minute, time.Minute); g.hang(nothing) }, outcome.Failed, ""},
	{"request takes too long", func(g *gated) { g.timeouts(time.Minute, time.Minute, 5*time.Millisecond); g.hang(nothing) }, outcome.Failed, ""},
	{"stream stalls", func(g *gated) { g.timeouts(time.Minute, 5*time.Millisecond, time.Minute); g.hangHalfWay(nothing) }, outcome.Failed, "n"},
	{"stream takes too long", func(g *gated) { g.hangHalfWay(func() { g.requests.Stop(deadline.ErrTooLong) }) }, outcome.Failed, "n"},
	{"stream breaks off before content", func(g *gated) { g.stream(); g.answer = events(strings.NewReader(providerStream[:9])) }, outcome.Failed, ""},
	{"stream breaks off after content", func(g *gated) {
		g.stream()
		g.answer = events(strings.NewReader(providerStream[:endOf(providerStream, "one ")]))
	}, outcome.Failed, "n"},
	{"circuit is open", func(g *gated) {
		g.Breaker.Apply(breaker.Settings{Failures: 1, Pause: time.Hour, Longest: time.Hour})
		now := time.Now()
		g.Breaker.Allow("n", now)
		g.Breaker.Done("n", now, now, false)
	}, outcome.Failed, ""},
	{"fallback answers", func(g *gated) {
		g.alias.Fallbacks = []string{"f"}
		g.answer = by(map[string]func(*upstream.Request) (*upstream.Response, error){"n": answers(500, "{}"), "f": whole(good)})
	}, outcome.Failed, "f"},
	{"fallback is refused", func(g *gated) {
		g.alias.Fallbacks = []string{"f"}
		g.answer = by(map[string]func(*upstream.Request) (*upstream.Response, error){"n": answers(500, "{}"), "f": answers(400, "{}")})
	}, outcome.Failed, ""},
	{"caller leaves the fallback", func(g *gated) {
		g.alias.Fallbacks, g.freeWait = []string{"f"}, 0
		g.answer = by(map[string]func(*upstream.Request) (*upstream.Response, error){"n": answers(500, "{}"), "f": func(r *upstream.Request) (*upstream.Response, error) {
			g.caller.End(errLeft)
			return whole(good)(r)
		}})
	}, outcome.Failed, ""},
	{"model has left the catalog", func(g *gated) { g.alias.Canary = "gone" }, outcome.Failed, "m"},
	{"panic before content", func(g *gated) {
		g.answer = func(*upstream.Request) (*upstream.Response, error) { panic("a poisonous answer") }
	}, outcome.Failed, ""},
	{"panic after content", func(g *gated) { g.hangHalfWay(func() { panic("a poisonous answer") }) }, outcome.Failed, "n"},

	{"caller leaves before content", func(g *gated) { g.stream(); g.hang(func() { g.caller.End(errLeft) }) }, outcome.Departed, ""},
	{"caller leaves after content", func(g *gated) {
		g.stream()
		g.writes = 1
		at := endOf(providerStream, "one ")
		g.answer = events(&cut{[][]byte{[]byte(providerStream[:at]), []byte(providerStream[at:])}})
	}, outcome.Departed, "n"},
	{"caller does not take the end", func(g *gated) { g.stream(); g.writes = 0; g.answer = events(strings.NewReader(providerStream)) }, outcome.Departed, "n"},
	{"caller leaves at once", func(g *gated) { g.freeWait = time.Hour; g.hang(func() { g.caller.End(errLeft) }) }, outcome.Departed, ""},
	{"caller leaves before the answer", func(g *gated) {
		g.freeWait = 0
		g.answer = func(r *upstream.Request) (*upstream.Response, error) { g.caller.End(errLeft); return whole(good)(r) }
	}, outcome.Departed, ""},
	{"caller leaves before the provider fails", func(g *gated) {
		g.freeWait = 0
		g.answer = func(r *upstream.Request) (*upstream.Response, error) {
			g.caller.End(errLeft)
			return answers(500, "{}")(r)
		}
	}, outcome.Departed, ""},
	{"caller does not take the answer", func(g *gated) { g.writes = 0 }, outcome.Departed, "n"},

	{"provider refuses the request", func(g *gated) { g.answer = answers(400, "{}") }, outcome.Excluded, ""},
	{"gateway does not ask the arm's model this", func(g *gated) {
		g.alias.Canary = "modern"
		g.request.Body = []byte(strings.Replace(gatedRequest, `"model"`, `"service_tier":"flex","model"`, 1))
	}, outcome.Excluded, ""},
	{"protocol cannot express the request", func(g *gated) { g.answer = refuse(fault.UnsupportedParameter.New("no")) }, outcome.Excluded, ""},
	{"empty wallet", func(g *gated) { g.request.Caller.Workspace = "ws_poor" }, outcome.Excluded, ""},
	{"empty wallet, and the model has left the catalog", func(g *gated) {
		g.alias.Canary, g.request.Caller.Workspace = "gone", "ws_poor"
	}, outcome.Excluded, ""},
	{"limit of tokens", func(g *gated) {
		limits := live.NewLimits()
		limits.Put("key_1", &live.Limits{TokensPerMinute: 1})
		g.Meter = meter.New(limits)
		pass, err := g.Meter.Enter(&g.request.Caller, time.Now())
		if err != nil {
			g.t.Fatal(err)
		}
		g.request.Pass = pass
	}, outcome.Excluded, ""},
	{"key is revoked", func(g *gated) { g.hang(func() { g.directory.DropMember(member); g.EndDenied() }) }, outcome.Excluded, ""},
	{"key is revoked after content", func(g *gated) { g.hangHalfWay(func() { g.directory.DropMember(member); g.EndDenied() }) }, outcome.Excluded, "n"},
	{"server stops", func(g *gated) { g.hang(g.Abort) }, outcome.Excluded, ""},
	{"server stops after content", func(g *gated) { g.hangHalfWay(g.Abort) }, outcome.Excluded, "n"},
	{"memory is exhausted", func(g *gated) { g.answer = refuse(upstream.ErrMemoryLimit) }, outcome.Excluded, ""},
	{"charge cannot be recorded", func(g *gated) {
		g.answer = func(r *upstream.Request) (*upstream.Response, error) {
			g.disk.Fail = func(string, int) (int, error) { return 0, journaltest.ErrDisk }
			return whole(good)(r)
		}
	}, outcome.Excluded, ""},
	{"charge of a stream cannot be recorded", func(g *gated) {
		g.stream()
		at := endOf(providerStream, "one ")
		g.answer = events(io.MultiReader(strings.NewReader(providerStream[:at]), readerFunc(func(p []byte) (int, error) {
			g.disk.Fail = func(string, int) (int, error) { return 0, journaltest.ErrDisk }
			return copy(p, providerStream[at:]), nil
		})))
	}, outcome.Excluded, "n"},
	{"logging is turned off meanwhile", func(g *gated) {
		g.answer = func(r *upstream.Request) (*upstream.Response, error) {
			g.Workspaces.Put(home, live.Settings{})
			return whole(good)(r)
		}
	}, outcome.Answered, "n"},
}

// However a request ends that was drawn, it leaves one record with the arm that was drawn.
func TestEveryDrawnRequestLeavesOneRecord(t *testing.T) {
	seen := map[outcome.Sample]bool{}
	for _, e := range ends {
		t.Run(e.name, func(t *testing.T) {
			g := newGated(t)
			e.lead(g)
			err := g.serve()
			draws, rows := g.records()
			if len(draws) != 1 {
				t.Fatalf("%d records; %v", len(draws), err)
			}
			d := draws[0]
			if d.Outcome != e.want || d.Model != e.served {
				t.Errorf("%s, served by %q; want %s by %q; %v", d.Outcome, d.Model, e.want, e.served, err)
			}
			if d.Workspace != g.request.Caller.Workspace || d.Alias != "al" || d.Epoch != "ep_1" || d.Stratum != 2 || d.Arm != live.CanaryArm ||
				d.Request != "req_1" || d.Seq != 1 || d.Source == "" || d.At == 0 || d.Expires.Sub(d.At) != 7*24*time.Hour {
				t.Errorf("%+v", d)
			}
			if d.Question != capture.NewQuestion("secret", []byte(`[{"role":"user","content":"hi"}]`)) {
				t.Errorf("the digest of the question is %x", d.Question)
			}
			if logged := int(g.Recorder.Counts().Logged); logged != rows || logged > 1 || e.want == outcome.Answered && g.Recorder.Enabled(home) && rows != 1 {
				t.Errorf("%d rows, %d of them before the record", logged, rows)
			}
			if e.want == outcome.Answered && (d.Cost != 30_000 || d.Latency <= 0) {
				t.Errorf("cost %d, latency %d", d.Cost, d.Latency)
			}
		})
		seen[e.want] = true
	}
	for _, s := range outcome.Samples {
		if !seen[s] {
			t.Errorf("nothing ends as %s", s)
		}
	}
}

// Requests that run at once and end in every way leave one record each, with the numbers from 1 on.
func TestRequestsThatAreDrawnAtOnceLeaveOneRecordEach(t *testing.T) {
	g := newGated(t)
	g.freeWait, g.Random = 0, rand.Float64
	g.Aliases.Put(home, &g.alias)
	const many = 400
	callers := make([]*life.Life, many)
	g.respond = func(_ context.Context, r *upstream.Request) (*upstream.Response, error) {
		var n int
		if _, err := fmt.Sscanf(r.ID, "req_%d", &n); err != nil {
			panic(err)
		}
		switch n % 5 {
		case 0:
			callers[n].End(errLeft)
		case 1:
			return answers(500, "{}")(r)
		case 2:
			panic("a poisonous answer")
		case 3:
			if r.Stream {
				return events(strings.NewReader(providerStream))(r)
			}
		}
		return whole(good)(r)
	}
	var all sync.WaitGroup
	for i := range many {
		callers[i] = new(life.Life)
		q := *g.request
		q.ID = fmt.Sprintf("req_%d", i)
		if i%10 >= 5 {
			q.Body = []byte(gatedStreamRequest)
		}
		all.Go(func() {
			defer func() { _ = recover() }()
			_ = g.Serve(callers[i], &q, &leaving{httptest.NewRecorder(), 9})
		})
	}
	all.Wait()
	draws, _ := g.records()
	requests, numbers := map[string]bool{}, map[int64]bool{}
	for _, d := range draws {
		requests[d.Request], numbers[d.Seq] = true, true
		if d.Seq < 1 || d.Seq > many {
			t.Errorf("%+v", d)
		}
	}
	if len(draws) != many || len(requests) != many || len(numbers) != many {
		t.Errorf("%d records, %d requests, %d numbers", len(draws), len(requests), len(numbers))
	}
}

// Only what would be judged is drawn.
func TestWhatIsNotDrawnLeavesNoRecord(t *testing.T) {
	for name, lead := range map[string]func(*gated){
		"without a gate":              func(g *gated) { g.alias.Gate = nil },
		"without a split":             func(g *gated) { g.alias.Canary = "" },
		"none are drawn":              func(g *gated) { g.alias.Gate.SamplePercent = 0 },
		"a model instead of an alias": func(g *gated) { g.request.Body = []byte(plainRequest) },
		"not logged by the caller":    func(g *gated) { g.request.Annotations.NoLog = true },
		"not logged by the workspace": func(g *gated) { g.Workspaces.Put(home, live.Settings{}) },
		"of the product":              func(g *gated) { g.request.Annotations = nil },
		"too large": func(g *gated) {
			g.request.Body = []byte(strings.Replace(gatedRequest, "hi", strings.Repeat("x", capture.MaxSize), 1))
		},
		"of another endpoint": func(g *gated) {
			g.request.Endpoint = request.Responses
			g.request.Body = []byte(`{"model":"al","input":"hi"}`)
		},
		"a dedicated canary":        func(g *gated) { g.alias.Canary = "dedicated/d" },
		"a dedicated target":        func(g *gated) { g.alias.Target = "dedicated/d" },
		"a refusal of the body":     func(g *gated) { g.request.Body = []byte(`{"model":"al"}`) },
		"neither arm can be called": func(g *gated) { g.alias.Target, g.alias.Canary = "gone", "gone too" },
		"cached": func(g *gated) {
			g.request.Cache = "on"
			gate := g.alias.Gate
			g.alias.Gate = nil
			if err := g.serve(); err != nil {
				g.t.Fatal(err)
			}
			g.alias.Gate = gate
		},
		"cached for the other arm": func(g *gated) {
			g.request.Cache = "on"
			gate, percent := g.alias.Gate, g.alias.CanaryPercent
			g.alias.Gate, g.alias.CanaryPercent = nil, 40
			if err := g.serve(); err != nil {
				g.t.Fatal(err)
			}
			g.alias.Gate, g.alias.CanaryPercent = gate, percent
		},
		"the spool cannot be written": func(g *gated) {
			g.rowsDisk.Fail = func(string, int) (int, error) { return 0, journaltest.ErrDisk }
			g.rows.Append([]byte("lost"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGated(t)
			lead(g)
			err := g.serve()
			if draws, _ := g.records(); len(draws) != 0 {
				t.Errorf("%+v; %v", draws[0], err)
			}
		})
	}
}

// The arms are compared on the same questions, also where the cache answers some. Easy questions are repeated here, and
// both models answer them equally well.
func TestTheCacheDoesNotGiveTheArmsDifferentQuestions(t *testing.T) {
	g := newGated(t)
	random := rand.New(rand.NewPCG(5, 5))
	g.Random, g.alias.CanaryPercent = random.Float64, 10
	var drawn, easy [2]float64
	isEasy := map[string]bool{}
	for i := range 4000 {
		q := fmt.Sprintf("hard %d", i)
		if random.IntN(2) == 0 {
			q = fmt.Sprintf("easy %d", random.IntN(400))
		}
		g.request = &request.Request{
			Endpoint: request.Chat, Caller: g.request.Caller, ID: fmt.Sprintf("req_%d", i), Cache: "on", Grant: g.request.Grant,
			Annotations: &request.Annotations{}, Body: []byte(strings.Replace(gatedRequest, "hi", q, 1)),
		}
		isEasy[g.request.ID] = strings.HasPrefix(q, "easy")
		if err := g.serve(); err != nil {
			t.Fatal(err)
		}
	}
	draws, _ := g.records()
	for _, d := range draws {
		arm := 0
		if d.Arm == live.CanaryArm {
			arm = 1
		}
		drawn[arm]++
		if isEasy[d.Request] {
			easy[arm]++
		}
	}
	if base, canary := easy[0]/drawn[0], easy[1]/drawn[1]; canary > base+0.1 {
		t.Errorf("%.2f of the target's questions are easy, and %.2f of the canary's", base, canary)
	}
}

// An arm stands once it is drawn. Its model may have left the catalog, or lost its key: the other model answers.
func TestTheOtherArmsModelReplacesOneThatCannotBeCalled(t *testing.T) {
	for name, c := range map[string]struct {
		target, canary string
		arm            live.Arm
		served, absent string
	}{
		"both":      {"m", "n", live.CanaryArm, "n", ""},
		"no canary": {"m", "gone", live.CanaryArm, "m", "gone"},
		"no target": {"gone", "n", live.BaseArm, "n", "gone"},
	} {
		g := newGated(t)
		g.alias.Target, g.alias.Canary, g.alias.Gate = c.target, c.canary, nil
		if c.arm == live.BaseArm {
			g.alias.CanaryPercent = 40
		}
		g.Aliases.Put(home, &g.alias)
		w := httptest.NewRecorder()
		if err := g.Serve(g.caller, g.request, &httpWriter{w}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := w.Header().Get("X-Service-Served-Model"); got != c.served {
			t.Errorf("%s: served by %s", name, got)
		}
		if row := g.row(); row.FallbackFrom != c.absent || row.Model != c.served || row.Alias != "al" {
			t.Errorf("%s: logged as from %q, by %q", name, row.FallbackFrom, row.Model)
		}
	}
}

// row returns the first logged row.
func (g *gated) row() *capture.Row {
	g.t.Helper()
	batch, err := g.rows.Read(spool.Position{}, 1<<20)
	if err != nil || len(batch.Records) == 0 {
		g.t.Fatal("nothing is logged", err)
	}
	row, err := capture.Parse(batch.Records[0])
	if err != nil {
		g.t.Fatal(err)
	}
	return row
}
