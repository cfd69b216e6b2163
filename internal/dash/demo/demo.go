// Package demo fills a workspace with simulated traffic, labels, judges, an eval and a canary, so that a newcomer sees
// every page of the dashboard alive. Everything is made on the product's own road: requests go through the server's own
// handler with a key of the workspace, to simulated models, and are logged, charged and judged like any other. Nothing
// is backdated. What a demo stores is deleted with it; the ledger and the audit trail stay.
package demo

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/job"
)

// Name is that of a demo's workspace, so that nobody takes it for another.
const Name = "Demo (simulated)"

// credit is what the wallet of a demo gets. It is simulated: a demo calls simulated models alone.
const credit = 25 * money.Dollar

// memo says in the ledger what the credit is.
const memo = "demo: simulated credit"

// retentionDays is for how long the exchanges of a demo are kept.
const retentionDays = 30

// A person may make so many demos in a day: each leaves rows in the ledger and the audit trail.
const (
	mostADay = 10
	day      = 24 * time.Hour
)

// The kinds of jobs.
const (
	filling  = "demo"
	deleting = "demo_deletion"
)

// A Demo is a workspace that is filled, with the job that fills it.
type Demo struct {
	Object      string        `json:"object" enum:"demo"`
	ID          string        `json:"id"`
	WorkspaceID tenant.ID     `json:"workspace_id"`
	Name        string        `json:"name" doc:"Of the workspace"`
	Step        string        `json:"step" db:"-" doc:"What the job does now; empty when it has ended"`
	UserID      tenant.UserID `json:"user_id" doc:"Who asked for it"`
	Skipped     []string      `json:"skipped" db:"-" nullable:"false" doc:"What could not be made, and why"`
	job.Job

	State string `json:"-"`
}

// show fills in what is kept as JSON.
func (d *Demo) show() error {
	s, err := readState(d.State)
	d.Skipped = append([]string{}, s.Skipped...)
	if d.Step = ""; !d.Status.Ended() && s.Step < len(steps) {
		d.Step = steps[s.Step].name
	}
	return err
}

// A state is what a fill has made so far. It is saved with the progress of the job.
type state struct {
	Step     int            `json:"step"`     // the step that is under way
	Asked    int            `json:"asked"`    // exchanges of the script that were sent
	Answered int            `json:"answered"` // those among them that were paid for
	Keys     []tenant.KeyID `json:"keys"`     // that they were sent with

	Criterion string   `json:"criterion,omitempty"`
	Anchor    string   `json:"anchor,omitempty"`
	Tone      string   `json:"tone,omitempty"`
	Skipped   []string `json:"skipped,omitempty"`
}

func readState(text string) (s state, err error) {
	if text == "" {
		return s, nil
	}
	err = json.Unmarshal([]byte(text), &s)
	return s, err
}

func (s *state) text() string {
	text, _ := json.Marshal(s, json.Deterministic(true)) // of texts and numbers
	return string(text)
}

// Config is what a Store needs of the server.
type Config struct {
	DB         *db.DB
	Feed       *feed.Feed
	Workspaces *workspace.Store
	Wallets    *wallet.Store
	Handler    func() http.Handler         // of the server's API, which the fill calls
	Drain      func(context.Context) error // posts what was charged, so that it can be counted

	// Queue makes a review queue of the exchanges that one judge is for; nil makes none.
	Queue func(ctx context.Context, ws tenant.ID, owner tenant.UserID, criterion string) error

	// Clear are the deletions of the domains that hold more than rows: money, what the data plane knows, logs.
	Clear []func(context.Context, tenant.ID) error
}

// A Store makes and deletes demos.
type Store struct{ Config }

// NewStore keeps demos as c says.
func NewStore(c Config) *Store { return &Store{c} }

// errTooMany refuses a person who makes one demo after the other.
func errTooMany(next clock.Time) error {
	wait := max(next.Std().Sub(clock.Now().Std()), time.Second)
	return fault.RateLimited.New("a person may make %d demos in a day", mostADay).In(wait)
}
