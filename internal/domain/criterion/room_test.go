package criterion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/infer"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
	"sovereign/internal/store/vault"
)

const (
	mine   tenant.ID = "ws_mine"
	theirs tenant.ID = "ws_theirs"
)

var ann = tenant.Caller{Workspace: mine, User: "usr_ann", Key: "key_1"}.Actor()

// A room is the judges of one storage with two workspaces: labels, logs, jobs and signatures are real, and models are an oracle.
type room struct {
	*Store
	db       *db.DB
	vault    *vault.Vault
	labels   *label.Store
	book     *logbook.Store
	logs     *logbook.Handler
	settings *live.AllSettings
	recorder *capture.Recorder
	clerk    *logbook.Ingester
	oracle   *oracle
	bench    *Bench
	handler  *Handler
	runner   *job.Runner
	stop     func() // ends it
	halves   *label.Split
	items    *int // that were made
}

func everywhere(t *testing.T, test func(t *testing.T, r *room)) {
	t.Helper()
	dbtest.EachWithLogs(t, func(t *testing.T, core, logs *db.DB) { test(t, furnish(t, core, logs)) })
}

func furnish(t testing.TB, core, logs *db.DB) *room {
	t.Helper()
	for _, ws := range []tenant.ID{mine, theirs} {
		if _, err := db.Exec(t.Context(), core.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, string(ws)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	r := &room{db: core, settings: live.NewSettings(), book: logbook.NewStore(logs), oracle: &oracle{answered: map[string]int{}}, items: new(int)}
	if r.vault, err = vault.Open(t.Context(), core, root); err != nil {
		t.Fatal(err)
	}
	s, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, ws := range []tenant.ID{mine, theirs} {
		r.settings.Put(ws, live.Settings{LogDays: 30})
	}
	r.recorder, r.clerk = capture.NewRecorder(r.settings, s), logbook.NewIngester(logs, s, "test", quiet)
	r.logs = logbook.NewHandler(r.book, r.clerk, r.settings)
	r.Store = NewStore(core, r.vault)
	r.labels = label.NewStore(core, r.logs, r.Store)
	r.bench = NewBench(core, r.oracle)
	r.bench.pause = time.Millisecond
	if _, err := core.Tx(t.Context(), func(tx *db.Tx) (err error) {
		r.halves, err = label.OpenSplit(t.Context(), tx, mine)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.serve(t)
	return r
}

var quiet = slog.New(slog.DiscardHandler)

// serve runs jobs, in place of whoever did before.
func (r *room) serve(t testing.TB) {
	t.Helper()
	r.runner = job.NewRunner(job.Config{DB: r.db, Log: quiet})
	r.handler = NewHandler(Config{Store: r.Store, Bench: r.bench, Logs: r.book, Open: r.logs.Open, Models: catalog{}, Runner: r.runner})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	runner := r.runner
	go func() { defer close(done); runner.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
	t.Cleanup(r.stop)
}

// A catalog has two models.
type catalog struct{}

const model, another = "sim/judge", "sim/other"

func (catalog) Chats(_ tenant.ID, field, name string) error {
	if name != model && name != another {
		return fault.Invalid(field, "cannot be called: no such model")
	}
	return nil
}

const (
	price    = money.Nano(1000) // of an answer
	foretold = money.Nano(3000) // of an estimate
)

// An oracle is all models. say is the text that it answers a question about an item with, or its refusal; by default all passes.
type oracle struct {
	mu       sync.Mutex
	say      func(item int, r *infer.Request) (string, error)
	answered map[string]int // by the question
	calls    int
	paid     money.Nano
	last     []byte // the body of the last question
}

func (o *oracle) Complete(ctx context.Context, r *infer.Request) (*infer.Answer, error) {
	o.mu.Lock()
	o.calls++
	name, say := fmt.Sprintf("req_%d", o.calls), o.say
	o.last = r.Body
	o.mu.Unlock()
	text := opinion(judge.Pass, 0.9)
	if say != nil {
		var err error
		if text, err = say(itemOf(r.Body), r); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	answer := &infer.Answer{RequestID: name, Model: r.Model, Cost: price, Body: fmt.Appendf(nil, `{"choices":[{"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, text)}
	if r.Keep != nil {
		if err := r.Keep(answer); err != nil {
			return nil, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered[string(r.Body)]++
	o.paid += price
	return answer, nil
}

func (o *oracle) Estimate(*infer.Request, int64) (money.Nano, error) { return foretold, nil }

// tells lets the oracle answer by the item.
func (o *oracle) tells(say func(item int) string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.say = func(item int, _ *infer.Request) (string, error) { return say(item), nil }
}

func (o *oracle) does(say func(item int, r *infer.Request) (string, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.say = say
}

// asked is how many questions were answered, and whether any was more than once.
func (o *oracle) asked() (n int, twice bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, times := range o.answered {
		n += times
		twice = twice || times > 1
	}
	return n, twice
}

func opinion(v judge.Verdict, grade float64) string {
	return fmt.Sprintf(`{"critique":"as I see it","grade":%v,"verdict":%q}`, grade, v)
}

var numbered = regexp.MustCompile(`reply to item (\d+)`)

// itemOf is what a question is about: the last that it quotes.
func itemOf(body []byte) int {
	all := numbered.FindAllSubmatch(body, -1)
	if all == nil {
		return -1
	}
	n, _ := strconv.Atoi(string(all[len(all)-1][1]))
	return n
}

func exchange(item int) judge.Step {
	return judge.Step{
		Messages: fmt.Appendf(nil, `[{"role":"user","content":"question %d"}]`, item),
		Response: fmt.Appendf(nil, `{"role":"assistant","content":"reply to item %d"}`, item),
	}
}

func ptr[T any](v T) *T { return &v }

// judge makes a criterion.
func (r *room) judge(t testing.TB, change ...func(*Definition)) Criterion {
	t.Helper()
	d := &Definition{Name: ptr("polite"), Rubric: ptr("It is polite."), JudgeModel: ptr(model)}
	for _, one := range change {
		one(d)
	}
	c, err := r.Create(t.Context(), mine, ann, d, catalog{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A mark is what people say of an item that stands in a half.
type mark struct {
	report   bool
	verdict  judge.Verdict
	critique string
}

func marks(n int, m mark) (all []mark) { return slices.Repeat([]mark{m}, n) }

// A graded item is one with its label.
type graded struct {
	label.Label
	item int
}

// grade makes labels of new items, each in the half that is asked for.
func (r *room) grade(t testing.TB, criterionID string, all ...mark) []graded {
	t.Helper()
	news, made := make([]label.New, len(all)), make([]graded, len(all))
	for i, m := range all {
		for {
			*r.items++
			step := exchange(*r.items)
			if (r.halves.Half(label.KinOf([]judge.Step{step}, "")) == label.Report) == m.report {
				news[i] = label.New{Messages: step.Messages, Response: step.Response, CriterionID: criterionID, Verdict: m.verdict, Critique: m.critique}
				made[i].item = *r.items
				break
			}
		}
	}
	labels, err := r.labels.Create(t.Context(), mine, ann, news, func(int) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range labels {
		if made[i].Label = l; l.InReportHalf != all[i].report {
			t.Fatal("a label stands in the wrong half")
		}
	}
	return made
}

// begin starts a calibration.
func (r *room) begin(t testing.TB, criterionID string) Calibration {
	t.Helper()
	made, err := r.Calibrate(t.Context(), mine, ann, criterionID, Effort{Spending: within(0)}, r.bench)
	if err != nil {
		t.Fatal(err)
	}
	r.runner.Wake()
	return made
}

// calibrate runs one to its end.
func (r *room) calibrate(t testing.TB, criterionID string) Calibration {
	t.Helper()
	return r.done(t, criterionID, r.begin(t, criterionID).ID, job.Done)
}

func (r *room) done(t testing.TB, criterionID, name string, want job.Status) Calibration {
	t.Helper()
	return await(t, want, func() (Calibration, job.Job, error) {
		c, err := r.Calibration(t.Context(), mine, criterionID, name)
		return c, c.Job, err
	})
}

// await reads something until its job has ended as it should.
func await[T any](t testing.TB, want job.Status, read func() (T, job.Job, error)) T {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Millisecond) {
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

func (r *room) rule(t testing.TB, labelID string, ruling label.Ruling) label.Label {
	t.Helper()
	l, err := r.labels.Adjudicate(t.Context(), mine, ann, labelID, ruling)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (r *room) erase(t testing.TB, labelID string) {
	t.Helper()
	if err := r.labels.Delete(t.Context(), mine, ann, labelID); err != nil {
		t.Fatal(err)
	}
}

func (r *room) certificate(t testing.TB, criterionID string) Certificate {
	t.Helper()
	c, err := r.Certificate(t.Context(), mine, criterionID)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (r *room) report(t testing.TB, criterionID string) Report {
	t.Helper()
	report, err := r.Adjudication(t.Context(), mine, criterionID)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func (r *room) get(t testing.TB, criterionID string) Criterion {
	t.Helper()
	c, err := r.Get(t.Context(), mine, criterionID)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (r *room) rows(t testing.TB, text string, args ...any) int {
	t.Helper()
	n, err := db.One[int](t.Context(), r.db.Across("test"), `SELECT COUNT(*) FROM `+text, args...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// log logs exchanges about items on the road that they really take.
func (r *room) log(t testing.TB, ws tenant.ID, tag string, items ...int) {
	t.Helper()
	for _, item := range items {
		step := exchange(item)
		r.recorder.Record(&capture.Exchange{
			Workspace: ws, Key: "key_1", Request: fmt.Sprintf("req_log_%d", item), Model: "sim/chat", Requested: "sim/chat", Provider: "sim", Tag: tag,
			Messages: step.Messages, Answer: fmt.Appendf(nil, `{"choices":[{"message":%s,"finish_reason":"stop"}]}`, step.Response),
		})
	}
	if err := r.clerk.Ingest(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = 1_000_000 + i
	}
	return all
}

// refused checks that an error is a refusal of that status whose message has all the words.
func refused(t testing.TB, err error, status int, words ...string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok || f.Status != status {
		t.Errorf("%v, want a refusal with %d", err, status)
		return
	}
	for _, word := range words {
		if !strings.Contains(f.Message, word) {
			t.Errorf("%q does not say %q", f.Message, word)
		}
	}
}

func shown(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A gate is shut until it is opened, at the end of the test at the latest.
type gate struct {
	opened chan struct{}
	once   sync.Once
}

func held(t testing.TB) *gate {
	g := &gate{opened: make(chan struct{})}
	t.Cleanup(g.open)
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// within is a bound of what may be spent; 0 is none.
func within(most money.Nano) Spending {
	if most == 0 {
		return Spending{}
	}
	return Spending{MaxCostUSD: &most}
}

func share(percent float64) *float64 { return &percent }
