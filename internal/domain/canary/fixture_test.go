package canary

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

const (
	mine   = dbtest.Mine
	theirs = dbtest.Theirs
	name   = "support"
	base   = "sim/chat"
	better = "sim/chat-large"
)

// A fixture has gated aliases on one database, whose feed runs. Requests are drawn, recorded and ingested as the server
// does.
type fixture struct {
	*judgingtest.Env
	*Store
	aliases *alias.Store
	live    *live.Aliases
	loop    *Loop
	drawn   []drawn // of the alias, in order

	mu   sync.Mutex
	says map[int]judge.Verdict // by item; items that are not in it pass
}

// each runs test once per database engine.
func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) { test(t, newFixture(t, e)) })
}

func newFixture(t testing.TB, e *judgingtest.Env) *fixture {
	t.Helper()
	f := &fixture{Env: e, live: live.NewAliases(), says: map[int]judge.Verdict{}}
	source := feed.New(e.DB, judgingtest.Quiet, alias.NewPublisher(e.DB, f.live).Sources())
	f.aliases = alias.NewStore(e.DB, source)
	f.Store = NewStore(Config{
		DB: e.DB, Feed: source, Logs: e.Book, Open: e.Logs.Open, Judges: e.Judges,
		Logging: func(ws tenant.ID) bool { return e.Settings.Of(ws).LogDays > 0 },
	})
	f.aliases.Attach(f.Store)
	f.restart()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); source.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	e.Models.Say(func(item int) string { return judgingtest.Assessment(f.verdict(item), 0.9) })
	return f
}

// restart forgets what the loop has in memory, as a new process does.
func (f *fixture) restart() {
	f.loop = NewLoop(f.Store, func() error { return nil }, judgingtest.Quiet)
}

func (f *fixture) verdict(item int) judge.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v, set := f.says[item]; set {
		return v
	}
	return judge.Pass
}

func (f *fixture) say(item int, v judge.Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.says[item] = v
}

// judged makes a criterion whose judge has a certificate of the tier calibrated.
func (f *fixture) judged(t testing.TB) criterion.Criterion {
	t.Helper()
	c := f.NewCriterion(t)
	f.calibrate(t, c.ID)
	return c
}

// calibrate measures a judge by labels that it agrees with.
func (f *fixture) calibrate(t testing.TB, criterionID string) {
	t.Helper()
	const each = 60
	all := append(judgingtest.Grades(each, judgingtest.Grade{Report: true, Verdict: judge.Pass}),
		judgingtest.Grades(each, judgingtest.Grade{Report: true, Verdict: judge.Fail})...)
	for _, g := range f.Grade(t, criterionID, all...) {
		f.say(g.Item, g.Verdict)
	}
	f.Calibrate(t, criterionID)
}

// gated is a split alias with a gate that decides after few samples.
func gated(criterionID string, change ...func(*alias.Alias)) alias.Alias {
	a := alias.Alias{
		Name: name, TargetModel: base, CanaryModel: better, CanaryPercent: 50, FallbackModels: alias.Models{},
		GateSettings: alias.GateSettings{
			GateCriterionID: criterionID, GateMode: alias.Recommend, GateMinSamples: 20, GateRollbackThreshold: 0.4, GateWindowHours: 168,
			GateSamplePercent: 100, GateMaxCost: 10 * money.Dollar,
		},
	}
	for _, one := range change {
		one(&a)
	}
	return a
}

func auto(a *alias.Alias) { a.GateMode = alias.Auto }

func (f *fixture) put(t testing.TB, a alias.Alias) alias.Alias {
	t.Helper()
	kept, err := f.aliases.Put(t.Context(), mine, dbtest.Ann, a)
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func (f *fixture) get(t testing.TB) alias.Alias {
	t.Helper()
	a, err := f.aliases.Get(t.Context(), mine, name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A drawn request, and what becomes of it.
type drawn struct {
	capture.Draw
	item    int
	verdict judge.Verdict // of an answer
}

// draw draws a request to the alias as it is in force. Nothing is known of its outcome yet.
func (f *fixture) draw(t testing.TB, canary bool) *drawn {
	t.Helper()
	a, ok := f.live.Find(mine, name)
	if !ok || a.Gate == nil {
		t.Fatal("nothing is drawn for the alias")
	}
	d := drawn{item: judgingtest.FirstLogged + len(f.drawn), Draw: capture.Draw{
		Workspace: mine, Alias: name, Epoch: a.Gate.Epoch, Stratum: int64(a.Gate.Stratum), Arm: live.BaseArm, Model: a.Target,
		Latency: int64(1000 * (1 + len(f.drawn)%7)), Cost: money.Nano(len(f.drawn) % 5),
	}}
	if canary {
		d.Arm, d.Model = live.CanaryArm, a.Canary
	}
	d.Place = f.Recorder.Draw(capture.Split{Workspace: mine, Alias: name, Epoch: d.Epoch})
	d.Request = fmt.Sprintf("req_%d", d.item)
	d.Question = asks(d.item)
	f.drawn = append(f.drawn, d)
	return &f.drawn[len(f.drawn)-1]
}

// asks is the digest of a question, by its number.
func asks(n int) capture.Question { return capture.NewQuestion("key", fmt.Append(nil, n)) }

// end records what becomes of a drawn request. An answer is logged before it.
func (f *fixture) end(d *drawn, o outcome.Sample, v judge.Verdict) {
	d.Outcome, d.verdict = o, v
	if o == outcome.Answered {
		f.say(d.item, v)
		step := judgingtest.Exchange(d.item)
		f.Recorder.Record(&capture.Exchange{
			Workspace: mine, Key: "key_1", Request: d.Request, Model: d.Model, Requested: name, Alias: name, Provider: "sim",
			Messages: step.Messages, Answer: fmt.Appendf(nil, `{"choices":[{"message":%s,"finish_reason":"stop"}]}`, step.Response),
		})
	}
	f.Recorder.Drawn(&d.Draw)
}

// answers draws requests to both models in turn, and has them answered. The n-th of a model passes by its function.
func (f *fixture) answers(t testing.TB, n int, basePasses, canaryPasses func(int) bool) {
	t.Helper()
	for i := range n {
		for _, canary := range []bool{false, true} {
			passes := basePasses
			if canary {
				passes = canaryPasses
			}
			v := judge.Fail
			if passes(i) {
				v = judge.Pass
			}
			f.end(f.draw(t, canary), outcome.Answered, v)
		}
	}
}

func always(int) bool { return true }
func never(int) bool  { return false }

// poll looks at all gates once, and waits until what it began to judge is judged.
func (f *fixture) poll(t testing.TB) {
	t.Helper()
	var working sync.WaitGroup
	f.loop.Poll(t.Context(), &working)
	working.Wait()
}

// await polls until the gate's verdict is there.
func (f *fixture) await(t testing.TB, want Verdict) *alias.GateReport {
	t.Helper()
	return f.until(t, string(want), func(g *alias.GateReport) bool { return g.Verdict == string(want) })
}

// until polls until the gate shows something.
func (f *fixture) until(t testing.TB, what string, holds func(*alias.GateReport) bool) *alias.GateReport {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		f.poll(t)
		g := f.get(t).Gate
		if holds(g) {
			return g
		}
		if time.Now().After(deadline) {
			t.Fatalf("want %s, and the gate is %+v", what, g)
		}
	}
}

// entered polls until n samples are in the tally.
func (f *fixture) entered(t testing.TB, n int64) *epoch {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		f.poll(t)
		e := f.epoch(t)
		if e.Entered >= n {
			return e
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d samples are entered, want %d", e.Entered, n)
		}
	}
}

func (f *fixture) epoch(t testing.TB) *epoch {
	t.Helper()
	st, err := load(t.Context(), f.Store.DB.In(mine), name)
	if err != nil || st == nil || st.epoch == nil {
		t.Fatalf("no epoch: %+v, %v", st, err)
	}
	return st.epoch
}

// recount counts the rows of an epoch anew.
func (f *fixture) recount(t testing.TB, e *epoch) *tally {
	t.Helper()
	rows, err := db.Query[sample](t.Context(), f.Store.DB.In(mine), sampleColumns+` AND position <= $3 ORDER BY position`, e.ID, e.Entered)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(rows)) != e.Entered {
		t.Fatalf("%d rows, and %d are counted", len(rows), e.Entered)
	}
	var counted tally
	for i := range rows {
		counted.add(&rows[i], e.Percents.of(rows[i].Stratum), e.FalsePass)
	}
	return &counted
}

// void voids the certificate of a judge, as the correction of a label does.
func (f *fixture) void(t testing.TB, criterionID string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), f.Store.DB.In(mine), `
		UPDATE certificates SET voided_at = 1, voided_reason = 'test', voided_by = 'labels' WHERE workspace_id = $1 AND criterion_id = $2`,
		criterionID); err != nil {
		t.Fatal(err)
	}
}

func text(t testing.TB, v any) string {
	t.Helper()
	encoded, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}
