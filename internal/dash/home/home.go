// Package home answers the first page of the dashboard in one call: what is left to set up, what was spent, what should
// be looked at, what waits for the person who asks, and the latest jobs. It knows the domains by small functions alone.
package home

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/api"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Deps is what the page is composed of.
type Deps struct {
	Steps   []module.Step
	Balance func(context.Context, tenant.ID) (funds.Balance, error)
	Series  func(ctx context.Context, ws tenant.ID, f usage.Filter, by string) ([]usage.Point, error)
	Post    func(context.Context) error // posts the journal, so that answered requests are counted
	Jobs    func(ctx context.Context, ws tenant.ID, most int) ([]job.Listed, error)
	Failed  func(ctx context.Context, ws tenant.ID, since clock.Time, most int) ([]job.Listed, error)
	// Subjects returns what jobs of these ids work for.
	Subjects func(ctx context.Context, ws tenant.ID, jobs []string) ([]Subject, error)

	Alarms []func(context.Context, tenant.ID) ([]module.Notice, error)
	Waits  []func(context.Context, tenant.Caller) ([]module.Notice, error)
}

// Module serves the page.
func Module(d Deps) module.Module {
	h := &handler{d, clock.Now}
	return module.Module{Name: "home", Routes: []api.Route{
		api.Get("/home", api.SessionMember, h.home, "Read what the first page shows"),
	}}
}

type handler struct {
	Deps
	now func() clock.Time
}

// A Home is what the first page shows. Every number has the place that it leads to.
type Home struct {
	Object  string          `json:"object" enum:"home"`
	Setup   Setup           `json:"setup"`
	Wallet  Purse           `json:"wallet"`
	Spend   Spend           `json:"spend"`
	Alarms  []module.Notice `json:"alarms" nullable:"false" doc:"The newest first"`
	Waiting []module.Notice `json:"waiting" nullable:"false" doc:"What waits for the person who asks"`
	Jobs    []RecentJob     `json:"jobs" nullable:"false" doc:"The newest first"`
}

// A Setup is how far the workspace is set up.
type Setup struct {
	Steps []SetupStep `json:"steps" nullable:"false"`
	Next  *string     `json:"next" doc:"The first step that is not done; null when all are"`
}

// A SetupStep is one step of a Setup.
type SetupStep struct {
	ID     string      `json:"id"`
	Done   bool        `json:"done"`
	Action string      `json:"action" doc:"What to do; empty when it is done"`
	Link   module.Link `json:"link"`
}

// A Purse is the money of the workspace.
type Purse struct {
	Balance money.Nano  `json:"balance_usd"`
	Held    money.Nano  `json:"held_usd" doc:"By running requests and named holds"`
	Free    money.Nano  `json:"free_usd"`
	Link    module.Link `json:"link"`
}

// A Spend is what was spent of late, in UTC days.
type Spend struct {
	Today Spent        `json:"today"`
	Week  Spent        `json:"last_7_days"`
	Days  usage.Series `json:"series" doc:"Of the last seven days, by model"`
}

// Spent is what was used in some days.
type Spent struct {
	usage.Used
	Link module.Link `json:"link"`
}

// A RecentJob is a job of any kind.
type RecentJob struct {
	job.Listed
	Title string      `json:"title" doc:"What it does, and for what"`
	Link  module.Link `json:"link" doc:"Its page is empty where there is nothing to see"`
}

// A kind is how a kind of jobs is shown: what it does, and where. %s is the subject in the page, and the job in the
// query.
type kind struct{ title, page, query string }

var kinds = map[string]kind{
	"calibration":   {"Calibration of", "judges/%s", "tab=calibrations&run=%s"},
	"scan":          {"Scan by", "judges/%s", "tab=scans&scan=%s"},
	"improvement":   {"Improvement of", "judges/%s", "tab=drafts"},
	"suggestion":    {"Suggestion of judges", "judges", ""},
	"eval":          {"Eval", "evals/%s", ""},
	"dataset_build": {"Dataset", "datasets/%s", ""},
	"review":        {"Items for", "review/%s", ""},
	"demo":          {"Filling of the demo", "", ""},

	"fine_tuning_data": {"Data of a fine-tuning job", "training", ""},
	"grpo_data":        {"Prompts of a GRPO run", "training", ""},
	"raft_scoring":     {"Scoring of a RAFT round", "training", "tab=rounds"},
	"raft_comparing":   {"Comparison of a RAFT round", "training", "tab=rounds"},
	"raft_next":        {"Next RAFT round", "training", "tab=rounds"},
}

// show says what a job does, and where it is seen. One whose subject is gone leads to the list.
func show(j job.Listed, of *Subject) RecentJob {
	k, known := kinds[j.Kind]
	if !known {
		k.title = strings.ToUpper(j.Kind[:1]) + strings.ReplaceAll(j.Kind[1:], "_", " ")
	}
	shown := RecentJob{Listed: j, Title: k.title, Link: module.Link{Page: k.page}}
	list, _, ofSubject := strings.Cut(k.page, "/%s")
	switch {
	case !ofSubject:
		shown.Link.Query = k.query
	case of == nil:
		shown.Title, shown.Link.Page = k.title+" what was deleted", list
	default:
		shown.Title += " " + of.Name
		shown.Link.Page = fmt.Sprintf(k.page, of.ID)
		if shown.Link.Query = k.query; strings.Contains(k.query, "%s") {
			shown.Link.Query = fmt.Sprintf(k.query, j.ID)
		}
	}
	return shown
}

// shown are jobs with their titles and places.
func (h *handler) shown(ctx context.Context, ws tenant.ID, jobs []job.Listed) ([]RecentJob, error) {
	ids := make([]string, len(jobs))
	for n := range jobs {
		ids[n] = jobs[n].ID
	}
	subjects, err := h.Subjects(ctx, ws, ids)
	if err != nil {
		return nil, err
	}
	all := make([]RecentJob, len(jobs))
	for n, j := range jobs {
		var of *Subject
		if at := slices.IndexFunc(subjects, func(s Subject) bool { return s.JobID == j.ID }); at >= 0 {
			of = &subjects[at]
		}
		all[n] = show(j, of)
	}
	return all, nil
}

// pages are the pages of the steps of the setup.
var pages = map[string]string{
	"create_key": "settings", "add_credit": "wallet", "send_request": "home", "turn_on_logging": "logs",
	"make_dataset": "datasets", "calibrate_judge": "judges",
}

func pageOf(name, otherwise string) string {
	if page, ok := pages[name]; ok {
		return page
	}
	return otherwise
}

const (
	latestJobs = 10
	// alarmDays is how long a failed job is an alarm.
	alarmDays  = 7
	mostFailed = 10
	mostModels = 6
)

func (h *handler) home(ctx context.Context, caller tenant.Caller, _ api.None) (Home, error) {
	ws := caller.Workspace
	page := Home{Object: "home", Alarms: []module.Notice{}, Waiting: []module.Notice{}, Jobs: []RecentJob{}}
	has, err := h.Balance(ctx, ws)
	if err != nil {
		return Home{}, err
	}
	page.Wallet = Purse{
		Balance: has.Balance, Held: has.Held, Free: has.Balance - has.Held, Link: module.Link{Page: "wallet"},
	}
	if page.Setup, err = h.setup(ctx, ws); err != nil {
		return Home{}, err
	}
	if page.Spend, err = h.spend(ctx, ws); err != nil {
		return Home{}, err
	}
	if err := h.alarms(ctx, ws, &page); err != nil {
		return Home{}, err
	}
	for _, waits := range h.Waits {
		some, err := waits(ctx, caller)
		if err != nil {
			return Home{}, err
		}
		page.Waiting = append(page.Waiting, some...)
	}
	jobs, err := h.Jobs(ctx, ws, latestJobs)
	if err != nil {
		return Home{}, err
	}
	page.Jobs, err = h.shown(ctx, ws, jobs)
	return page, err
}

func (h *handler) setup(ctx context.Context, ws tenant.ID) (Setup, error) {
	s := Setup{Steps: []SetupStep{}}
	for _, step := range h.Steps {
		done, err := step.Done(ctx, ws)
		if err != nil {
			return s, fmt.Errorf("setup step %s: %w", step.ID, err)
		}
		line := SetupStep{ID: step.ID, Done: done, Link: module.Link{Page: pageOf(step.ID, "home")}}
		if !done {
			line.Action = step.Action
			if s.Next == nil {
				s.Next = &step.ID
			}
		}
		s.Steps = append(s.Steps, line)
	}
	return s, nil
}

func (h *handler) spend(ctx context.Context, ws tenant.ID) (Spend, error) {
	soon, cancel := context.WithTimeout(ctx, time.Second)
	_ = h.Post(soon) // what is not posted now is posted later
	cancel()
	today := usage.DayOf(h.now())
	points, err := h.Series(ctx, ws, usage.Filter{From: today - 6, To: today}, "model")
	if err != nil {
		return Spend{}, err
	}
	days := usage.NewSeries(points, mostModels)
	days.By, days.From, days.To = "model", today-6, today
	of := usage.NewSeries(slices.DeleteFunc(slices.Clone(points), func(p usage.Point) bool {
		return p.Day != today
	}), 1)
	link := func(from usage.Day) module.Link {
		return module.Link{Page: "wallet", Query: fmt.Sprintf("by=model&from=%s&to=%s", from, today)}
	}
	return Spend{
		Today: Spent{of.Totals, link(today)}, Week: Spent{days.Totals, link(today - 6)}, Days: days,
	}, nil
}

func (h *handler) alarms(ctx context.Context, ws tenant.ID, page *Home) error {
	for _, alarms := range h.Alarms {
		some, err := alarms(ctx, ws)
		if err != nil {
			return err
		}
		page.Alarms = append(page.Alarms, some...)
	}
	failed, err := h.Failed(ctx, ws, h.now().Add(-alarmDays*24*time.Hour), mostFailed)
	if err != nil {
		return err
	}
	shown, err := h.shown(ctx, ws, failed)
	if err != nil {
		return err
	}
	for _, j := range shown {
		n := module.Notice{Kind: "job.failed", Subject: j.ID, Title: "Failed: " + j.Title, Link: j.Link}
		if j.Error != nil {
			n.Detail = *j.Error
		}
		if j.FinishedAt != nil {
			n.At = *j.FinishedAt
		}
		page.Alarms = append(page.Alarms, n)
	}
	slices.SortStableFunc(page.Alarms, func(a, b module.Notice) int { return int(min(1, max(-1, b.At-a.At))) })
	return nil
}
