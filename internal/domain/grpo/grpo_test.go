package grpo

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/envtool"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/train"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/live"
	"sovereign/internal/net/netguard"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/quota"
	"sovereign/internal/store/vault"
)

// A fixture is GRPO runs with real judges, reward sessions, wallets and workers' leases. Models are a fake.
type fixture struct {
	*Store
	*judgingtest.Env
	t       *testing.T
	wallets *wallet.Store
	caller  tenant.Caller
	judge   criterion.Criterion
	tool    envtool.Tool
}

// prompts is a dataset of four conversations.
type prompts struct{}

func (prompts) Get(_ context.Context, ws tenant.ID, id string) (dataset.Dataset, error) {
	if ws != dbtest.Mine || id != "ds_1" {
		return dataset.Dataset{}, fault.NotFound("dataset", id)
	}
	return dataset.Dataset{ID: id, Rows: 4}, nil
}

func (prompts) Lines(context.Context, tenant.ID, *dataset.Dataset) iter.Seq2[dataset.Line, error] {
	return func(yield func(dataset.Line, error) bool) {
		for i := range 4 {
			text := fmt.Sprintf(`{"messages":[{"role":"user","content":"prompt %d"},{"role":"assistant","content":"a"}]}`, i)
			if !yield(dataset.Line{Position: int64(i), Line: []byte(text)}, nil) {
				return
			}
		}
	}
}

func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		f := &fixture{Env: e, t: t}
		f.open()
		f.judge = f.certified()
		test(t, f)
	})
}

func (f *fixture) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) open() {
	f.t.Helper()
	t, d := f.t, f.DB
	j, err := journal.Open(journaltest.NewDisk())
	f.ok(err)
	memory := funds.New()
	poster := wallet.NewPoster(d, j, memory, judgingtest.Quiet)
	_, err = poster.Recover(t.Context())
	f.ok(err)
	changes := feed.New(d, judgingtest.Quiet, poster.Sources())
	bounds := edge.NewBounds()
	bounds.Buffered.Set(1 << 30)
	folder, err := artifact.OpenFolder(t.TempDir())
	f.ok(err)
	files, none := artifact.NewStore(d, folder), func(money.Nano) {}
	guard := netguard.New(nil)
	t.Cleanup(guard.Close)
	runs := train.NewStore(train.Config{
		DB: d, Feed: changes, Holds: poster.Holds, Till: till.New(memory, j, judgingtest.Quiet, none, none), Drain: poster.Drain,
		Artifacts: files, Bounds: bounds, Prices: train.Prices{"cpu": 0}, Log: judgingtest.Quiet,
	})
	rewards := reward.NewStore(reward.Config{
		DB: d, Feed: changes, Holds: poster.Holds, Judges: f.Judges, Models: judgingtest.Catalog{}, Limits: live.NewLimits(),
		Bounds: bounds, Log: judgingtest.Quiet,
	})
	f.Store = NewStore(Config{
		DB: d, Feed: changes, Train: runs, Versions: modelversion.NewStore(d, files, f.Vault), Rewards: rewards,
		Tools: envtool.NewStore(d, f.Vault, guard), Artifacts: files, Datasets: prompts{}, Release: "test", Log: judgingtest.Quiet,
	})
	module := reward.Module(rewards, reward.Deps{Serving: func() error { return nil }, Log: judgingtest.Quiet})
	changes.Register(module.Publishers)
	f.ok(changes.Fill(t.Context()))
	f.loop(changes.Run)
	for _, l := range module.Background {
		f.loop(l.Run)
	}
	f.Add(t, Module(f.Store, func() error { return nil }))
	f.wallets = wallet.NewStore(d, changes, memory)
	_, err = f.wallets.TopUp(t.Context(), dbtest.Mine, tenant.Operator, 100*money.Dollar, "")
	f.ok(err)
	w, _, err := runs.CreateWorker(t.Context(), tenant.Operator, "", "gpu-1")
	f.ok(err)
	f.caller = tenant.Caller{Worker: &tenant.Worker{ID: w.ID, Name: w.Name}}
	f.tool, err = f.Tools.Create(t.Context(), dbtest.Mine, dbtest.Ann, envtool.Request{
		Name: "search", Description: "d", EndpointURL: "https://tools.acme.test/",
	})
	f.ok(err)
}

func (f *fixture) loop(run func(context.Context)) {
	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	f.t.Cleanup(func() { stop(); <-done })
}

// certified makes a criterion whose judge agrees with people, and is measured.
func (f *fixture) certified() criterion.Criterion {
	f.t.Helper()
	c := f.NewCriterion(f.t)
	said := map[int]judge.Verdict{}
	f.Models.Say(func(item int) string {
		if said[item] == judge.Fail {
			return judgingtest.Assessment(judge.Fail, 0.1)
		}
		return judgingtest.Assessment(judge.Pass, 0.9)
	})
	for _, v := range []judge.Verdict{judge.Pass, judge.Fail} {
		for _, g := range f.Grade(f.t, c.ID, judgingtest.Grades(40, judgingtest.Grade{Report: true, Verdict: v})...) {
			said[g.Item] = g.Verdict
		}
	}
	f.Calibrate(f.t, c.ID)
	return f.Criterion(f.t, c.ID)
}

var info = train.Info{Release: "1", Engine: "small", Methods: []string{"grpo"}, Models: []train.Base{{ID: "tiny/bigram"}}, GPUType: "cpu", GPUCount: 1}

func worker(c tenant.Caller) train.Worker { return train.Worker{ID: c.Worker.ID, Name: c.Worker.Name} }

// start lets the worker ask for work, and creates a run.
func (f *fixture) start() Run {
	f.t.Helper()
	ended, cancel := context.WithCancel(f.t.Context())
	cancel()
	_, _ = f.Train.Await(ended, worker(f.caller), info) // the server learns what it can train
	f.seen()
	made, err := f.Create(f.t.Context(), dbtest.Mine, dbtest.Ann, f.request())
	f.ok(err)
	return made
}

// seen notes what the worker can train.
func (f *fixture) seen() {
	f.t.Helper()
	text, err := json.Marshal(info)
	f.ok(err)
	_, err = db.Exec(f.t.Context(), f.Store.DB.Across("test"), `UPDATE workers SET info = $1, seen_at = $2`, string(text), time.Now().UnixMicro())
	f.ok(err)
}

func (f *fixture) request() Request {
	return Request{
		BaseModel: "tiny/bigram", DatasetID: "ds_1", CriterionID: f.judge.ID, EnvironmentTools: []string{f.tool.ID}, Budget: 10 * money.Dollar,
		PromptCount: 2, MaxSteps: 4, GroupSize: 2, PromptsPerStep: 1,
	}
}

func (f *fixture) lease() *train.Lease {
	f.t.Helper()
	lease, err := f.Train.Await(f.t.Context(), worker(f.caller), info) // the job that prepares it may still run
	f.ok(err)
	if lease == nil {
		f.t.Fatal("there is no work")
	}
	return lease
}

func hand(l *train.Lease) train.LeaseRef {
	return train.LeaseRef{RunID: l.Run, Attempt: l.Attempt, Fence: l.Fence}
}

func (f *fixture) beat(l *train.Lease, n int64) train.Order {
	f.t.Helper()
	order, err := f.Train.Heartbeat(f.t.Context(), worker(f.caller), hand(l), train.Beat{Number: n, Step: n, TotalSteps: 4})
	f.ok(err)
	return order
}

func (f *fixture) save(l *train.Lease, step int64) {
	f.t.Helper()
	text := fmt.Sprint("weights of step ", step)
	file, err := f.Artifacts.Add(f.t.Context(), dbtest.Mine, strings.NewReader(text), 100)
	f.ok(err)
	_, err = f.Train.Save(f.t.Context(), worker(f.caller), hand(l), train.Saved{Step: step, Files: []train.Member{{Name: "model.bin", File: file}}})
	f.ok(err)
}

func (f *fixture) finish(l *train.Lease, outcome string, step int64) {
	f.t.Helper()
	f.ok(f.Train.Finish(f.t.Context(), worker(f.caller), hand(l), train.Done{Outcome: outcome, Step: step}))
}

func (f *fixture) get(id string) Run {
	f.t.Helper()
	got, err := f.Get(f.t.Context(), dbtest.Mine, id)
	f.ok(err)
	return got
}

func TestARunIsScoredByItsSessionAndEndsAsACandidate(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.start()
		if held := wallettest.Shown(f.t, f.wallets, dbtest.Mine).Held; held != 10*money.Dollar {
			t.Errorf("%s are held", held)
		}
		lease := f.lease()
		var told spec
		f.ok(json.Unmarshal(lease.Spec, &told))
		if lease.Run != made.ID || told.Hyperparameters.GroupSize != 2 || len(told.Tools) != 1 || told.Tools[0].Name != "search" ||
			len(lease.Inputs) != 1 {
			t.Fatalf("%+v %+v", lease, told)
		}
		from, err := f.Artifacts.Open(t.Context(), dbtest.Mine, lease.Inputs[0].Digest)
		f.ok(err)
		lines := make([]byte, 1000)
		n, _ := from.Read(lines)
		_ = from.Close()
		if want := "{\"messages\":[{\"role\":\"user\",\"content\":\"prompt 0\"}]}\n{\"messages\":[{\"role\":\"user\",\"content\":\"prompt 2\"}]}\n"; string(lines[:n]) != want {
			t.Errorf("prompts %s", lines[:n])
		}
		f.beat(lease, 1)
		body := `{"step":"1","items":[{"id":"a","prompt":"item-1","completion":[{"role":"assistant","content":"answer"}]}]}`
		h, answer := &handler{f.Store}, httptest.NewRecorder()
		run, err := h.leased(t.Context(), f.caller, hand(lease))
		f.ok(err)
		f.ok(f.Rewards.ServeScore(answer, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)), run.Workspace, run.SessionID))
		if !strings.Contains(answer.Body.String(), `"rewards":[0.9]`) {
			t.Errorf("scores %s", answer.Body)
		}
		f.save(lease, 4)
		f.finish(lease, "succeeded", 4)
		got := f.get(made.ID)
		if got.Status != train.Succeeded || got.Candidate == nil || got.Candidate.Step != 4 {
			t.Fatalf("%+v", got)
		}
		session, err := f.Rewards.Get(t.Context(), dbtest.Mine, got.RewardSessionID)
		if err != nil || session.Status != reward.Completed {
			t.Errorf("%+v %v", session, err)
		}
		version, err := f.Versions.Get(t.Context(), dbtest.Mine, got.Candidate.ModelVersionID)
		f.ok(err)
		keys, err := f.Vault.JWKS(t.Context())
		f.ok(err)
		if _, err := vault.VerifyDocument(judgingtest.JSON(t, version), keys); err != nil || len(version.Certificates) != 1 {
			t.Errorf("%+v: %v", version, err)
		}
		for role, want := range map[tenant.Role]int{tenant.Owner: 1, tenant.Member: 0} {
			if told, err := f.Waits(t.Context(), tenant.Caller{Workspace: dbtest.Mine, Role: role}); err != nil || len(told) != want {
				t.Errorf("%s is told %+v %v", role, told, err)
			}
		}
		if all, err := f.List(t.Context(), dbtest.Mine, 10, 0); err != nil || len(all.Runs) != 1 || all.Waiting != 1 || all.Active != 0 {
			t.Errorf("%+v %v", all, err)
		}
	})
}

func TestARunBeginsWithTheWeightsOfAVersion(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.start()
		first := f.lease()
		f.save(first, 4)
		f.finish(first, "succeeded", 4)
		parent, err := f.Versions.Get(t.Context(), dbtest.Mine, f.get(first.Run).Candidate.ModelVersionID)
		f.ok(err)
		in := f.request()
		in.BaseModel = parent.Name
		made, err := f.Create(t.Context(), dbtest.Mine, dbtest.Ann, in)
		f.ok(err)
		if made.BaseModel != "tiny/bigram" || made.ParentID == nil || *made.ParentID != parent.ID {
			t.Fatalf("%+v", made)
		}
		f.ok(f.Versions.Delete(t.Context(), dbtest.Mine, dbtest.Ann, parent.ID)) // the run keeps what it reads
		second := f.lease()
		if len(second.Inputs) != 2 || second.Inputs[0].Name != "model/model.bin" || second.Inputs[1].Name != "prompts.jsonl" {
			t.Fatalf("%+v", second.Inputs)
		}
		from, err := f.Artifacts.Open(t.Context(), dbtest.Mine, second.Inputs[0].Digest)
		f.ok(err)
		_ = from.Close()
		f.save(second, 4)
		f.finish(second, "succeeded", 4)
		child, err := f.Versions.Get(t.Context(), dbtest.Mine, f.get(made.ID).Candidate.ModelVersionID)
		f.ok(err)
		if child.ParentID == nil || *child.ParentID != parent.ID || len(child.Data) != 1 || child.Data[0].Name != "prompts.jsonl" {
			t.Errorf("%+v", child.Proof)
		}
	})
}

func TestAHeldRunPausesAndAReleasedOneGoesOn(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.start()
		lease := f.lease()
		f.beat(lease, 1)
		hold := func(at int64) {
			_, err := db.Exec(t.Context(), f.Store.DB.In(dbtest.Mine), `UPDATE reward_sessions SET held_at = $3,
				held_reason = 'it diverged' WHERE workspace_id = $1 AND id = $2`, made.RewardSessionID, at)
			f.ok(err)
		}
		hold(1)
		if order := f.beat(lease, 2); order != (train.Order{Command: train.CheckpointAndStop, Reason: "held: it diverged"}) {
			t.Errorf("%+v", order)
		}
		f.save(lease, 2)
		f.finish(lease, "stopped", 2)
		f.ok(f.resumeReleased(t.Context()))
		if got := f.get(made.ID); got.Status != train.Paused || !got.Held || *got.HeldReason != "it diverged" {
			t.Errorf("%+v", got)
		}
		hold(0)
		f.ok(f.resumeReleased(t.Context()))
		again := f.lease()
		if again.Run != made.ID || again.Attempt != 2 || again.ResumeFrom == nil || again.ResumeFrom.Step != 2 {
			t.Errorf("%+v", again)
		}
	})
}

func TestOnlyTheWorkerOfARunUsesItsToolsAndItsSession(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.start()
		lease := f.lease()
		h := &handler{f.Store}
		in := calling{LeaseRef: hand(lease), Tool: "tool_other"}
		if _, err := h.call(t.Context(), f.caller, in); fault.From(err).Kind != fault.Missing {
			t.Error(err)
		}
		in.Tool, in.Fence = f.tool.ID, "stale"
		if _, err := h.call(t.Context(), f.caller, in); fault.From(err).Kind != fault.StaleLease {
			t.Error(err)
		}
		other := tenant.Caller{Worker: &tenant.Worker{ID: "wrk_other"}}
		if _, err := h.leased(t.Context(), other, hand(lease)); fault.From(err).Kind != fault.StaleLease {
			t.Error(err)
		}
		if _, err := f.Get(t.Context(), dbtest.Theirs, lease.Run); fault.From(err).Kind != fault.Missing {
			t.Error(err)
		}
	})
}

func TestARunThatCannotBeginHoldsNothing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.seen()
		for want, change := range map[string]func(*Request){
			"criterionId is missing":      func(r *Request) { r.CriterionID = "" },
			"no criterion":                func(r *Request) { r.CriterionID = "crit_other" },
			"no dataset":                  func(r *Request) { r.DatasetID = "ds_other" },
			"no environment tool":         func(r *Request) { r.EnvironmentTools = []string{"tool_other"} },
			"rewardBudgetUsd must be":     func(r *Request) { r.RewardBudget = r.Budget },
			"the wallet has":              func(r *Request) { r.Budget = 1000 * money.Dollar },
			"promptsPerStep times":        func(r *Request) { r.PromptsPerStep, r.GroupSize = 256, 64 },
			"baseModel is not one that a": func(r *Request) { r.BaseModel = "gpt-9" },
		} {
			in := f.request()
			change(&in)
			if _, err := f.Create(t.Context(), dbtest.Mine, dbtest.Ann, in); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
			if held := wallettest.Shown(f.t, f.wallets, dbtest.Mine).Held; held != 0 {
				t.Errorf("%s: %s are held", want, held)
			}
		}
	})
}

// A run that has not ended counts as the model that it will make: what was paid for is never refused at its end.
func TestARunIsRefusedWhereItsModelWouldHaveNoRoom(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		_, err := quota.Set(t.Context(), f.DB, dbtest.Mine, dbtest.Ann, map[string]int64{"model_versions": 1})
		f.ok(err)
		f.start()
		_, err = f.Create(t.Context(), dbtest.Mine, dbtest.Ann, f.request())
		if err == nil || fault.From(err).Kind != fault.QuotaExceeded {
			t.Errorf("a second run: %v", err)
		}
		lease := f.lease()
		f.beat(lease, 1)
		f.save(lease, 4)
		f.finish(lease, "succeeded", 4)
		if all, err := f.List(t.Context(), dbtest.Mine, 10, 0); err != nil || all.Waiting != 1 {
			t.Errorf("%+v %v", all, err)
		}
	})
}
