package raft

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/finetune"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/train"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/infer"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// A fixture is RAFT rounds with real judges, reward sessions, wallets and leases. The test is the worker. Models are a
// fake: a judge gives an answer the grade that stands in it.
type fixture struct {
	*Store
	*judgingtest.Env
	t       *testing.T
	disk    *journaltest.Disk
	folder  string
	wallets *wallet.Store
	worker  train.Worker
	judge   criterion.Criterion
	halt    func() // what runs in the background, beside jobs
	before  func() // called before the next round begins; may be nil
	halting func() // called when that is about to end
	asked   int    // questions before the round
}

// prompts is a dataset of 40 conversations, of which two have the same prompt, and of one that is too small.
type prompts struct{}

func (prompts) Get(_ context.Context, ws tenant.ID, id string) (dataset.Dataset, error) {
	rows, known := map[string]int64{"ds_1": 41, "ds_small": 10, "ds_reversed": 40}[id]
	if ws != dbtest.Mine || !known {
		return dataset.Dataset{}, fault.NotFound("dataset", id)
	}
	return dataset.Dataset{ID: id, Rows: rows}, nil
}

func (prompts) Lines(_ context.Context, _ tenant.ID, d *dataset.Dataset) iter.Seq2[dataset.Line, error] {
	return func(yield func(dataset.Line, error) bool) {
		for i := range d.Rows {
			number := i % 40
			if d.ID == "ds_reversed" {
				number = 39 - i
			}
			text := fmt.Sprintf(`{"messages":[{"role":"user","content":"prompt %d"},{"role":"assistant","content":"a"}]}`, number)
			if !yield(dataset.Line{Position: i, Line: []byte(text)}, nil) {
				return
			}
		}
	}
}

func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		f := &fixture{Env: e, t: t, disk: journaltest.NewDisk(), folder: t.TempDir()}
		f.open()
		f.Add(t, module.Module{Jobs: map[string]job.Work{ // of the server that runs then
			"raft_scoring":   func(ctx context.Context, run *job.Run) error { return f.score(ctx, run) },
			"raft_comparing": func(ctx context.Context, run *job.Run) error { return f.compare(ctx, run) },
			"raft_next": func(ctx context.Context, run *job.Run) error {
				if f.before != nil {
					f.before()
				}
				return f.follow(ctx, run)
			},
		}})
		f.judge = f.certified()
		_, err := f.wallets.TopUp(t.Context(), dbtest.Mine, tenant.Operator, 100*money.Dollar, "")
		f.ok(err)
		f.worker, _, err = f.Train.CreateWorker(t.Context(), tenant.Operator, "", "gpu-1")
		f.ok(err)
		text, err := json.Marshal(info)
		f.ok(err)
		_, err = db.Exec(t.Context(), f.Store.DB.Across("test"), `UPDATE workers SET info = $1, seen_at = $2`, string(text), time.Now().UnixMicro())
		f.ok(err)
		test(t, f)
	})
}

func (f *fixture) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// open starts a server on the disk.
func (f *fixture) open() {
	f.t.Helper()
	t, d := f.t, f.DB
	j, err := journal.Open(f.disk)
	f.ok(err)
	memory := funds.New()
	poster := wallet.NewPoster(d, j, memory, judgingtest.Quiet)
	_, err = poster.Recover(t.Context())
	f.ok(err)
	changes := feed.New(d, judgingtest.Quiet, poster.Sources())
	bounds := edge.NewBounds()
	bounds.Buffered.Set(1 << 30)
	folder, err := artifact.OpenFolder(f.folder)
	f.ok(err)
	files, none := artifact.NewStore(d, folder), func(money.Nano) {}
	runs := train.NewStore(train.Config{
		DB: d, Feed: changes, Holds: poster.Holds, Till: till.New(memory, j, judgingtest.Quiet, none, none), Drain: poster.Drain,
		Artifacts: files, Bounds: bounds, Prices: train.Prices{"cpu": 36 * money.Dollar}, Log: judgingtest.Quiet,
	})
	rewards := reward.NewStore(reward.Config{
		DB: d, Feed: changes, Holds: poster.Holds, Judges: f.Judges, Models: judgingtest.Catalog{}, Limits: live.NewLimits(),
		Bounds: bounds, Log: judgingtest.Quiet,
	})
	versions := modelversion.NewStore(d, files, f.Vault)
	jobs := finetune.NewStore(finetune.Config{
		DB: d, Feed: changes, Train: runs, Versions: versions, Artifacts: files, Datasets: prompts{}, Release: "test",
	})
	f.Store = NewStore(Config{
		DB: d, Feed: changes, Train: runs, Jobs: jobs, Versions: versions, Rewards: rewards, Artifacts: files, Datasets: prompts{},
	})
	scoring := reward.Module(rewards, reward.Deps{Serving: func() error { return nil }, Log: judgingtest.Quiet})
	changes.Register(scoring.Publishers)
	f.ok(changes.Fill(t.Context()))
	loops := []func(context.Context){changes.Run}
	for _, l := range scoring.Background {
		loops = append(loops, l.Run)
	}
	training := train.Module(runs, train.Deps{Serving: func() error { return nil }})
	f.ok(training.Start(t.Context()))
	for _, l := range training.Background {
		loops = append(loops, l.Run)
	}
	f.halt = f.start(loops)
	t.Cleanup(f.halt)
	f.wallets = wallet.NewStore(d, changes, memory)
}

func (f *fixture) start(loops []func(context.Context)) func() {
	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	done := make(chan struct{})
	for _, run := range loops {
		go func() { run(ctx); done <- struct{}{} }()
	}
	stopped := false
	return func() {
		if stop(); !stopped {
			if f.halting != nil {
				f.halting()
			}
			for range loops {
				<-done
			}
		}
		stopped = true
	}
}

// restart kills the server, and starts the next one on what it left.
func (f *fixture) restart() {
	f.t.Helper()
	f.Stop()
	f.halt()
	f.disk = f.disk.Crash()
	f.open()
	f.Serve(f.t)
}

var gradeIn = regexp.MustCompile(`graded (\d\.\d+)`)

// certified makes a criterion whose judge agrees with people. From then on a judge gives the grade that it reads.
func (f *fixture) certified() criterion.Criterion {
	f.t.Helper()
	c := f.NewCriterion(f.t)
	said := map[int]judge.Verdict{}
	f.Models.Do(func(item int, r *infer.Request) (string, error) { return f.says(said, item, r) })
	for _, v := range []judge.Verdict{judge.Pass, judge.Fail} {
		for _, g := range f.Grade(f.t, c.ID, judgingtest.Grades(40, judgingtest.Grade{Report: true, Verdict: v})...) {
			said[g.Item] = g.Verdict
		}
	}
	f.Calibrate(f.t, c.ID)
	f.asked = f.Models.Calls()
	return f.Criterion(f.t, c.ID)
}

func (f *fixture) says(said map[int]judge.Verdict, item int, r *infer.Request) (string, error) {
	grade := 0.9
	if said[item] == judge.Fail {
		grade = 0.1
	}
	if bytes.Contains(r.Body, []byte("unjudged")) {
		return "I would rather not say.", nil
	}
	if all := gradeIn.FindAllSubmatch(r.Body, -1); all != nil {
		grade, _ = strconv.ParseFloat(string(all[len(all)-1][1]), 64)
	}
	if grade >= 0.5 {
		return judgingtest.Assessment(judge.Pass, grade), nil
	}
	return judgingtest.Assessment(judge.Fail, grade), nil
}

var info = train.Info{
	Release: "1", Engine: "small", Methods: []string{"sft", "sample"}, Models: []train.Base{{ID: "tiny/bigram"}}, GPUType: "cpu",
	GPUCount: 1,
}

func (f *fixture) request() Request {
	return Request{
		BaseModel: "tiny/bigram", DatasetID: "ds_1", CriterionID: f.judge.ID, SamplesPerPrompt: 3, Budget: 10 * money.Dollar,
		Suffix: "better",
	}
}

func (f *fixture) create(change ...func(*Request)) Round {
	f.t.Helper()
	in := f.request()
	for _, one := range change {
		one(&in)
	}
	made, err := f.Create(f.t.Context(), dbtest.Mine, dbtest.Ann, in)
	f.ok(err)
	return made
}

func (f *fixture) lease(method string) *train.Lease {
	f.t.Helper()
	lease, err := f.Train.Await(f.t.Context(), f.worker, info)
	f.ok(err)
	if lease == nil || lease.Method != method {
		f.t.Fatalf("want work of the method %s, got %+v", method, lease)
	}
	return lease
}

func hand(l *train.Lease) train.LeaseRef {
	return train.LeaseRef{RunID: l.Run, Attempt: l.Attempt, Fence: l.Fence}
}

// finish commits a file as the last checkpoint of a run, and ends it.
func (f *fixture) finish(l *train.Lease, name string, text []byte) {
	f.t.Helper()
	ctx := f.t.Context()
	_, err := f.Train.Heartbeat(ctx, f.worker, hand(l), train.Beat{Number: 1, Step: 1, TotalSteps: l.TotalSteps})
	f.ok(err)
	file, err := f.Artifacts.Add(ctx, dbtest.Mine, bytes.NewReader(text), 1<<30)
	f.ok(err)
	_, err = f.Train.Save(ctx, f.worker, hand(l), train.Saved{Step: 5, Files: []train.Member{{Name: name, File: file}}})
	f.ok(err)
	f.ok(f.Train.Finish(ctx, f.worker, hand(l), train.Done{Outcome: "succeeded", Step: 5}))
}

// A say is what the model answers to a prompt: its place among the prompts, and the index of the sample.
type say func(at, index int) string

func graded(grade float64) say {
	return func(_, index int) string {
		return fmt.Sprintf("answer %d graded %.2f", index, grade+0.01*float64(index))
	}
}

// sampled returns what a worker samples.
func (f *fixture) sampled(l *train.Lease, answer say) []byte {
	f.t.Helper()
	var told spec
	f.ok(json.Unmarshal(l.Spec, &told))
	var out bytes.Buffer
	for at, p := range f.promptsOf(l) {
		for index := range int(told.Hyperparameters.SamplesPerPrompt) {
			f.ok(writeLine(&out, map[string]any{"prompt_id": p.ID, "index": index, "content": answer(at, index)}))
		}
	}
	return out.Bytes()
}

func (f *fixture) promptsOf(l *train.Lease) (all []prompt) {
	f.t.Helper()
	from, err := f.Artifacts.Open(f.t.Context(), dbtest.Mine, l.Inputs[0].Digest)
	f.ok(err)
	defer func() { _ = from.Close() }()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var p prompt
		f.ok(json.Unmarshal(lines.Bytes(), &p))
		all = append(all, p)
	}
	return all
}

// sample does the sampling run that waits.
func (f *fixture) sample(answer say) *train.Lease {
	f.t.Helper()
	l := f.lease("sample")
	f.finish(l, samplesFile, f.sampled(l, answer))
	return l
}

// learn does the fine-tuning job that waits.
func (f *fixture) learn() *train.Lease {
	f.t.Helper()
	l := f.lease("sft")
	f.finish(l, "model.bin", []byte("weights of "+l.Run))
	return l
}

func (f *fixture) get(id string) Round {
	f.t.Helper()
	got, err := f.Get(f.t.Context(), dbtest.Mine, id)
	f.ok(err)
	return got
}

// await reads a round until something is true of it.
func (f *fixture) await(id string, until func(Round) bool) Round {
	f.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		got := f.get(id)
		if until(got) {
			return got
		}
		if got.Status == Failed || got.Status == Cancelled || time.Now().After(deadline) {
			f.t.Fatalf("%s while %s: %+v", got.Status, got.Stage, got.Error)
		}
	}
}

func ended(r Round) bool { return r.FinishedAt != nil }

// awaitHeld waits until so much of the wallet is held: holds end when everything is charged.
func (f *fixture) awaitHeld(want money.Nano) {
	f.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		held := wallettest.Shown(f.t, f.wallets, dbtest.Mine).Held
		if held == want {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%s are held, want %s", held, want)
		}
	}
}

func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q, got %v", want, err)
	}
}
