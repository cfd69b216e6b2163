package home

import (
	"context"
	"errors"
	"slices"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/api"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

const now = clock.Time(20_522*24*3600*1_000_000 + 5)

func step(id string, done bool) module.Step {
	return module.Step{ID: id, Action: "do " + id, Done: func(context.Context, tenant.ID) (bool, error) { return done, nil }}
}

func newHandler() *handler {
	failure, finished := "the judge failed", now-10
	return &handler{now: func() clock.Time { return now }, Deps: Deps{
		Steps: []module.Step{step("create_key", true), step("add_credit", false), step("make_dataset", false)},
		Balance: func(context.Context, tenant.ID) (funds.Balance, error) {
			return funds.Balance{Balance: 10 * money.Dollar, Held: 3 * money.Dollar}, nil
		},
		Post: func(context.Context) error { return errors.New("the database is slow") },
		Series: func(_ context.Context, _ tenant.ID, f usage.Filter, by string) ([]usage.Point, error) {
			if by != "model" || f.To-f.From != 6 {
				return nil, errors.New("another series")
			}
			return []usage.Point{
				{Day: f.To - 1, Group: "m1", Used: usage.Used{Requests: 2, Cost: 20}},
				{Day: f.To, Group: "m1", Used: usage.Used{Requests: 1, Cost: 5}},
				{Day: f.To, Group: "m2", Used: usage.Used{Requests: 1, Cost: 7}},
			}, nil
		},
		Jobs: func(context.Context, tenant.ID, int) ([]job.Listed, error) {
			return []job.Listed{{ID: "eval_1", Kind: "eval", Job: job.Job{Status: job.Running}}}, nil
		},
		Subjects: func(context.Context, tenant.ID, []string) ([]Subject, error) {
			return []Subject{{JobID: "eval_1", ID: "eval_1", Name: "large"}, {JobID: "cal_1", ID: "crit_1", Name: "Polite"}}, nil
		},
		Failed: func(_ context.Context, _ tenant.ID, since clock.Time, _ int) ([]job.Listed, error) {
			if now.Sub(since).Hours() != 7*24 {
				return nil, errors.New("another time")
			}
			return []job.Listed{{ID: "cal_1", Kind: "calibration", Job: job.Job{Status: job.Failed, Error: &failure, FinishedAt: &finished}}}, nil
		},
		Alarms: []func(context.Context, tenant.ID) ([]module.Notice, error){func(context.Context, tenant.ID) ([]module.Notice, error) {
			return []module.Notice{{Kind: "anchor.held", At: now - 20}, {Kind: "gate.paused", At: now - 5}}, nil
		}},
		Waits: []func(context.Context, tenant.Caller) ([]module.Notice, error){func(_ context.Context, by tenant.Caller) ([]module.Notice, error) {
			return []module.Notice{{Kind: "review", Subject: string(by.User), Count: 4}}, nil
		}},
	}}
}

func TestHomeIsComposedOfWhatTheDomainsSay(t *testing.T) {
	page, err := newHandler().home(t.Context(), tenant.Caller{Workspace: "ws_1", User: "usr_ann"}, api.None{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Setup.Steps) != 3 || page.Setup.Next == nil || *page.Setup.Next != "add_credit" || page.Setup.Steps[1].Link.Page != "wallet" {
		t.Errorf("%+v", page.Setup)
	}
	if page.Wallet.Free != 7*money.Dollar || page.Spend.Today.Cost != 12 || page.Spend.Week.Cost != 32 || len(page.Spend.Days.Points) != 3 {
		t.Errorf("%+v\n%+v", page.Wallet, page.Spend)
	}
	if want := "by=model&from=2026-03-04&to=2026-03-10"; page.Spend.Week.Link.Query != want {
		t.Errorf("%s, want %s", page.Spend.Week.Link.Query, want)
	}
	var kinds []string
	for _, a := range page.Alarms {
		kinds = append(kinds, a.Kind)
	}
	if !slices.Equal(kinds, []string{"gate.paused", "job.failed", "anchor.held"}) {
		t.Errorf("the newest first: %s", kinds)
	}
	if len(page.Waiting) != 1 || page.Waiting[0].Subject != "usr_ann" || len(page.Jobs) != 1 || page.Jobs[0].Link.Page != "evals/eval_1" || page.Jobs[0].Title != "Eval large" {
		t.Errorf("%+v\n%+v", page.Waiting, page.Jobs)
	}
	failed := page.Alarms[1]
	if failed.Title != "Failed: Calibration of Polite" || failed.Link != (module.Link{Page: "judges/crit_1", Query: "tab=calibrations&run=cal_1"}) {
		t.Errorf("%+v", failed)
	}
}

func TestAJobLeadsToWhatItWorksFor(t *testing.T) {
	for _, c := range []struct {
		kind  string
		of    *Subject
		title string
		link  module.Link
	}{
		{"scan", &Subject{ID: "crit_1", Name: "Polite"}, "Scan by Polite", module.Link{Page: "judges/crit_1", Query: "tab=scans&scan=job_1"}},
		{"improvement", &Subject{ID: "crit_1", Name: "Polite"}, "Improvement of Polite", module.Link{Page: "judges/crit_1", Query: "tab=drafts"}},
		{"suggestion", nil, "Suggestion of judges", module.Link{Page: "judges"}},
		{"dataset_build", &Subject{ID: "ds_1", Name: "support"}, "Dataset support", module.Link{Page: "datasets/ds_1"}},
		{"review", &Subject{ID: "rq_1", Name: "Answers"}, "Items for Answers", module.Link{Page: "review/rq_1"}},
		{"calibration", nil, "Calibration of what was deleted", module.Link{Page: "judges"}}, // the judge is deleted
		{"grpo_data", nil, "Prompts of a GRPO run", module.Link{Page: "training"}},
		{"raft_scoring", nil, "Scoring of a RAFT round", module.Link{Page: "training", Query: "tab=rounds"}},
		{"demo", nil, "Filling of the demo", module.Link{}},
		{"another_kind", nil, "Another kind", module.Link{}},
	} {
		if got := show(job.Listed{ID: "job_1", Kind: c.kind}, c.of); got.Title != c.title || got.Link != c.link {
			t.Errorf("%s: %q %+v", c.kind, got.Title, got.Link)
		}
	}
}
