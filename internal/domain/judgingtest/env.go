// Package judgingtest is the fixture of the tests of judges. Labels, logs, jobs and signatures are real; models are a
// fake.
package judgingtest

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/draft"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/domain/monitor"
	"sovereign/internal/grade/judge"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
	"sovereign/internal/store/vault"
)

// An Env has everything that judges need, on one database with two workspaces.
type Env struct {
	DB           *db.DB
	LogDB        *db.DB
	Vault        *vault.Vault
	Settings     *live.AllSettings
	Logs         *logbook.Handler
	Book         *logbook.Store
	Recorder     *capture.Recorder
	Models       *Models
	Judges       *judging.Client
	Labels       *label.Store
	Criteria     *criterion.Store
	Calibrations *calibration.Store
	Monitors     *monitor.Store
	Drafts       *draft.Store
	Evals        *eval.Store
	Runner       *job.Runner
	Stop         func() // stops the runner

	modules  []module.Module
	ingester *logbook.Ingester
	split    *label.Split
	items    int // how many were made
}

// Quiet is a logger that writes nothing.
var Quiet = slog.New(slog.DiscardHandler)

// Each runs test once per database engine.
func Each(t *testing.T, test func(t *testing.T, e *Env)) {
	t.Helper()
	dbtest.EachWithLogs(t, func(t *testing.T, core, logs *db.DB) { test(t, New(t, core, logs)) })
}

// New returns an Env on two migrated databases. It runs jobs until the test ends.
func New(t testing.TB, core, logs *db.DB) *Env {
	t.Helper()
	dbtest.AddWorkspaces(t, core, dbtest.Mine, dbtest.Theirs)
	root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	book := logbook.NewStore(logs)
	e := &Env{
		DB: core, LogDB: logs, Book: book, Settings: live.NewSettings(), Models: &Models{answered: map[string]int{}},
	}
	if e.Vault, err = vault.Open(t.Context(), core, root); err != nil {
		t.Fatal(err)
	}
	s, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, ws := range []tenant.ID{dbtest.Mine, dbtest.Theirs} {
		e.Settings.Put(ws, live.Settings{LogDays: 30})
	}
	e.Recorder, e.ingester = capture.NewRecorder(e.Settings, s), logbook.NewIngester(logs, s, "test", Quiet)
	e.Logs = logbook.NewHandler(book, e.ingester, e.Settings)
	e.Judges = judging.NewClient(core, e.Models)
	e.Judges.SetPause(time.Millisecond)
	e.Criteria = criterion.NewStore(core)
	e.Calibrations = calibration.NewStore(core, e.Vault, e.Criteria, e.Judges)
	e.Monitors = monitor.NewStore(core, book, e.Logs.Open, e.Judges)
	e.Drafts = draft.NewStore(draft.Config{
		DB: core, Criteria: e.Criteria, Judges: e.Judges, Logs: book,
		Open: e.Logs.Open, Models: Catalog{},
	})
	e.Criteria.Attach(e.Calibrations.Dependent(), e.Monitors.Dependent())
	e.Labels = label.NewStore(core, e.Logs, e.Calibrations)
	e.Evals = eval.NewStore(eval.Config{
		DB: core, Judges: e.Judges, Models: Catalog{}, Logs: book, Open: e.Logs.Open, Labels: e.Labels,
		Datasets: dataset.NewStore(core, book, nil, e.Logs.Open), // no test builds one
	})
	e.modules = []module.Module{
		judging.Module(e.Judges), criterion.Module(e.Criteria, Catalog{}, nil), calibration.Module(e.Calibrations),
		monitor.Module(e.Monitors, func() error { return nil }, Quiet), draft.Module(e.Drafts), eval.Module(e.Evals),
	}
	if _, err := core.Tx(t.Context(), func(tx *db.Tx) (err error) {
		e.split, err = label.OpenSplit(t.Context(), tx, dbtest.Mine)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	e.Serve(t)
	return e
}

// Serve starts a runner, in place of one that was stopped.
func (e *Env) Serve(t testing.TB) {
	t.Helper()
	runner := job.NewRunner(job.Config{DB: e.DB, Log: Quiet})
	for _, m := range e.modules {
		for kind, work := range m.Jobs {
			runner.Handle(kind, work)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); runner.Run(ctx) }()
	e.Runner, e.Stop = runner, func() { cancel(); <-done }
	t.Cleanup(e.Stop)
}

// Add adds modules, whose jobs run from now on.
func (e *Env) Add(t testing.TB, all ...module.Module) {
	t.Helper()
	e.Stop()
	e.modules = append(e.modules, all...)
	e.Serve(t)
}

// Sweep deletes what is left over, as the server does.
func (e *Env) Sweep(t testing.TB) {
	t.Helper()
	for _, m := range e.modules {
		if m.Sweep == nil {
			continue
		}
		if err := m.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Ptr returns a pointer to a value.
func Ptr[T any](v T) *T { return &v }

// NewCriterion makes a criterion of the workspace Mine.
func (e *Env) NewCriterion(t testing.TB, change ...func(*criterion.Definition)) criterion.Criterion {
	t.Helper()
	d := &criterion.Definition{Name: Ptr("polite"), Rubric: Ptr("It is polite."), JudgeModel: Ptr(Model)}
	for _, one := range change {
		one(d)
	}
	c, err := e.Criteria.Create(t.Context(), dbtest.Mine, dbtest.Ann, d, Catalog{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A Grade is the label that an item gets, and the half that it is in.
type Grade struct {
	Report   bool
	Verdict  judge.Verdict
	Critique string
}

// Grades repeats a grade.
func Grades(n int, g Grade) []Grade { return slices.Repeat([]Grade{g}, n) }

// A Graded item has a label.
type Graded struct {
	label.Label
	Item int
}

// Grade labels new items, each in the half that its grade asks for.
func (e *Env) Grade(t testing.TB, criterionID string, all ...Grade) []Graded {
	t.Helper()
	posted, graded := make([]label.New, len(all)), make([]Graded, len(all))
	for i, g := range all {
		for {
			e.items++
			step := Exchange(e.items)
			if (e.split.Half(label.RelationsOf([]judge.Step{step}, "")) == label.Report) == g.Report {
				posted[i] = label.New{
					Messages: step.Messages, Response: step.Response, CriterionID: criterionID,
					Verdict: g.Verdict, Critique: g.Critique,
				}
				graded[i].Item = e.items
				break
			}
		}
	}
	labels, err := e.Labels.Create(t.Context(), dbtest.Mine, dbtest.Ann, posted, func(int) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range labels {
		if graded[i].Label = l; l.InReportHalf != all[i].Report {
			t.Fatal("a label is in the wrong half")
		}
	}
	return graded
}

// StartCalibration begins a calibration.
func (e *Env) StartCalibration(t testing.TB, criterionID string) calibration.Calibration {
	t.Helper()
	started, err := e.Calibrations.Start(t.Context(), dbtest.Mine, dbtest.Ann, criterionID, calibration.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return started
}

// Calibrate runs a calibration to its end.
func (e *Env) Calibrate(t testing.TB, criterionID string) calibration.Calibration {
	t.Helper()
	return e.AwaitCalibration(t, criterionID, e.StartCalibration(t, criterionID).ID, job.Done)
}

// AwaitCalibration waits until a calibration has ended with that status.
func (e *Env) AwaitCalibration(t testing.TB, criterionID, name string, want job.Status) calibration.Calibration {
	t.Helper()
	return Await(t, want, func() (calibration.Calibration, job.Job, error) {
		c, err := e.Calibrations.Get(t.Context(), dbtest.Mine, criterionID, name)
		return c, c.Job, err
	})
}

// Await reads something until its job has ended with that status.
func Await[T any](t testing.TB, want job.Status, read func() (T, job.Job, error)) T {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		got, j, err := read()
		if err != nil {
			t.Fatal(err)
		}
		if j.Status == want {
			return got
		}
		if j.Status.Ended() || time.Now().After(deadline) {
			why := ""
			if j.Error != nil {
				why = *j.Error
			}
			t.Fatalf("it is %s, want %s: %s", j.Status, want, why)
		}
	}
}

// Adjudicate adjudicates a label.
func (e *Env) Adjudicate(t testing.TB, labelID string, r label.Ruling) label.Label {
	t.Helper()
	l, err := e.Labels.Adjudicate(t.Context(), dbtest.Mine, dbtest.Ann, labelID, r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// DeleteLabel deletes a label.
func (e *Env) DeleteLabel(t testing.TB, labelID string) {
	t.Helper()
	if err := e.Labels.Delete(t.Context(), dbtest.Mine, dbtest.Ann, labelID); err != nil {
		t.Fatal(err)
	}
}

// Certificate reads a criterion's last certificate.
func (e *Env) Certificate(t testing.TB, criterionID string) calibration.Certificate {
	t.Helper()
	c, err := e.Calibrations.Certificate(t.Context(), dbtest.Mine, criterionID)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Report reads a criterion's adjudication report.
func (e *Env) Report(t testing.TB, criterionID string) calibration.Report {
	t.Helper()
	report, err := e.Calibrations.Report(t.Context(), dbtest.Mine, criterionID)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// Criterion reads a criterion.
func (e *Env) Criterion(t testing.TB, criterionID string) criterion.Criterion {
	t.Helper()
	c, err := e.Criteria.Get(t.Context(), dbtest.Mine, criterionID)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ChangeRubric makes a new version of a criterion.
func (e *Env) ChangeRubric(t testing.TB, criterionID, rubric string) criterion.Criterion {
	t.Helper()
	c, err := e.Criteria.Update(t.Context(), dbtest.Mine, dbtest.Ann, criterionID,
		&criterion.Definition{Rubric: &rubric}, Catalog{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Log logs exchanges about items through the recorder, the spool and the ingester, as the server does.
func (e *Env) Log(t testing.TB, ws tenant.ID, tag string, items ...int) {
	t.Helper()
	for _, item := range items {
		step := Exchange(item)
		e.Recorder.Record(&capture.Exchange{
			Workspace: ws, Key: "key_1", Request: fmt.Sprintf("req_log_%d", item), Model: "sim/chat",
			Requested: "sim/chat", Provider: "sim", Tag: tag,
			Messages: step.Messages,
			Answer:   fmt.Appendf(nil, `{"choices":[{"message":%s,"finish_reason":"stop"}]}`, step.Response),
		})
	}
	e.Ingest(t)
}

// Ingest moves what was recorded to the log database.
func (e *Env) Ingest(t testing.TB) {
	t.Helper()
	if err := e.ingester.Ingest(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// FirstLogged is the first item of LogItems. Items of labels are lower.
const FirstLogged = 1_000_000

// LogItems returns n items for Log.
func LogItems(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = FirstLogged + i
	}
	return all
}

// JSON encodes a value.
func JSON(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Limit is a spending limit; 0 is none.
func Limit(most money.Nano) judging.Spending {
	if most == 0 {
		return judging.Spending{}
	}
	return judging.Spending{MaxCostUSD: &most}
}

// A Gate is closed until it is opened, at the end of the test at the latest.
type Gate struct {
	opened chan struct{}
	once   sync.Once
}

// NewGate returns a closed gate.
func NewGate(t testing.TB) *Gate {
	g := &Gate{opened: make(chan struct{})}
	t.Cleanup(g.Open)
	return g
}

// Open opens the gate.
func (g *Gate) Open() { g.once.Do(func() { close(g.opened) }) }

// Wait waits until the gate is open.
func (g *Gate) Wait() { <-g.opened }

// Opposite returns the other verdict.
func Opposite(v judge.Verdict) judge.Verdict {
	if v == judge.Pass {
		return judge.Fail
	}
	return judge.Pass
}

// GradeBy grades an item anew as another person, in a review.
func (e *Env) GradeBy(t testing.TB, by, criterionID string, item int, v judge.Verdict) label.Label {
	t.Helper()
	step := Exchange(item)
	prepared, err := e.Labels.Prepare(t.Context(), dbtest.Mine,
		label.New{Messages: step.Messages, Response: step.Response, CriterionID: criterionID, Verdict: v})
	if err != nil {
		t.Fatal(err)
	}
	var made label.Label
	if _, err := e.DB.Tx(t.Context(), func(tx *db.Tx) error {
		actor := tenant.Actor{Kind: tenant.ActorSession, User: tenant.UserID(by)}
		made, err = e.Labels.PutReview(t.Context(), tx, dbtest.Mine, actor, prepared)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return made
}
