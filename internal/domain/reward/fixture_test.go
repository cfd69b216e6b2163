package reward_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/module"
	"sovereign/internal/store/quota"
)

// credit is what the wallet of Mine has at first.
const credit = 100 * money.Dollar

// A fixture is the reward sessions of two workspaces, with real judges, wallets and holds. Models are a fake.
type fixture struct {
	*judgingtest.Env
	t       *testing.T
	store   *reward.Store
	module  module.Module
	wallets *wallet.Store
	poster  *wallet.Poster
	feed    *feed.Feed
	limits  *live.AllLimits
	funds   *funds.Funds
	bounds  *edge.Bounds
	client  apitest.Client
	skew    *atomic.Int64 // microseconds that the clock of the store is ahead
	catalog *catalog
	graded  *grades
}

// A catalog is the models that can judge.
type catalog struct {
	judgingtest.Catalog
	gone  atomic.Bool
	asked atomic.Pointer[func()] // called when it is asked for a model
}

func (c *catalog) Chats(ws tenant.ID, field, model string) error {
	if asked := c.asked.Load(); asked != nil {
		(*asked)()
	}
	if c.gone.Load() {
		return fault.Invalid(field, "cannot be called: it is gone")
	}
	return c.Catalog.Chats(ws, field, model)
}

// grades are what people said of items, which judges repeat.
type grades struct {
	mu   sync.Mutex
	said map[int]judge.Verdict
}

func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) { test(t, newFixture(t, e)) })
}

func newFixture(t *testing.T, e *judgingtest.Env) *fixture {
	t.Helper()
	f := &fixture{
		Env: e, t: t, limits: live.NewLimits(), skew: new(atomic.Int64), catalog: &catalog{},
		graded: &grades{said: map[int]judge.Verdict{}},
	}
	e.Models.Say(f.graded.repeat)
	j, err := journal.Open(journaltest.NewDisk())
	if err != nil {
		t.Fatal(err)
	}
	memory := funds.New()
	f.funds, f.bounds = memory, edge.NewBounds()
	f.bounds.Buffered.Set(1 << 30)
	f.poster = wallet.NewPoster(e.DB, j, memory, judgingtest.Quiet)
	if _, err := f.poster.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.feed = feed.New(e.DB, judgingtest.Quiet, f.poster.Sources())
	f.store = f.newStore()
	f.module = reward.Module(f.store, reward.Deps{
		Find:    func(_ context.Context, name string) (tenant.ID, error) { return tenant.ID(name), nil },
		Serving: func() error { return nil }, Log: judgingtest.Quiet,
	})
	f.feed.Register(f.module.Publishers)
	if err := f.feed.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.run(f.feed.Run)
	f.wallets = wallet.NewStore(e.DB, f.feed, memory)
	for _, ws := range []tenant.ID{dbtest.Mine, dbtest.Theirs} {
		if _, err := f.wallets.TopUp(t.Context(), ws, tenant.Operator, credit, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []tenant.UserID{"usr_owner", dbtest.Ann.User} {
		f.exec(`INSERT INTO users (id, email, created_at) VALUES ($1, $2, 1)`, user, string(user))
		f.exec(`INSERT INTO members (workspace_id, user_id, role, created_at, updated_at) VALUES ($1, $2, 'owner', 1, 1)`, dbtest.Mine, user)
	}
	f.client = apitest.NewClient(t, e.DB, f.feed, dbtest.Mine, dbtest.Theirs, f.module.Routes, shape)
	return f
}

// newStore returns a store as a server that starts now makes it.
func (f *fixture) newStore() *reward.Store {
	s := reward.NewStore(reward.Config{
		DB: f.DB, Feed: f.feed, Holds: f.poster.Holds, Judges: f.Judges, Models: f.catalog, Limits: f.limits,
		Bounds: f.bounds,
		Log:    judgingtest.Quiet,
	})
	s.SetNow(func() clock.Time { return clock.Now() + clock.Time(f.skew.Load()) })
	return s
}

// run runs a loop until the test ends.
func (f *fixture) run(loop func(context.Context)) {
	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); loop(ctx) }()
	f.t.Cleanup(func() { stop(); <-done })
}

// pass lets time pass for the store.
func (f *fixture) pass(d time.Duration) { f.skew.Add(d.Microseconds()) }

func (f *fixture) exec(text string, args ...any) {
	f.t.Helper()
	if _, err := db.Exec(f.t.Context(), f.DB.Across("test"), text, args...); err != nil {
		f.t.Fatal(err)
	}
}

func (g *grades) repeat(item int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, ok := g.said[item]; ok {
		return judgingtest.Assessment(v, map[judge.Verdict]float64{judge.Pass: 0.9, judge.Fail: 0.1}[v])
	}
	return judgingtest.Assessment(judge.Pass, 0.9)
}

// certified makes a criterion that is measured: its judge agrees with n people's verdicts of either kind.
func (f *fixture) certified(n int, change ...func(*criterion.Definition)) criterion.Criterion {
	f.t.Helper()
	c := f.NewCriterion(f.t, change...)
	f.recalibrate(c.ID, n)
	return f.Criterion(f.t, c.ID)
}

// recalibrate adds labels to a criterion, and calibrates it.
func (f *fixture) recalibrate(id string, n int) []judgingtest.Graded {
	f.t.Helper()
	all := f.Grade(f.t, id, slices.Concat(
		judgingtest.Grades(n, judgingtest.Grade{Report: true, Verdict: judge.Pass}),
		judgingtest.Grades(n, judgingtest.Grade{Report: true, Verdict: judge.Fail}))...)
	f.graded.mu.Lock()
	for _, g := range all {
		f.graded.said[g.Item] = g.Verdict
	}
	f.graded.mu.Unlock()
	f.Calibrate(f.t, id)
	return all
}

// wanted is a session that one judge scores.
func wanted(criterionID string) *reward.NewSession {
	return &reward.NewSession{Label: "run 1", Reward: reward.Rule{Mode: reward.Single, CriterionID: criterionID}, Budget: money.Dollar}
}

func (f *fixture) create(n *reward.NewSession) reward.Session {
	f.t.Helper()
	made, err := f.store.Create(f.t.Context(), dbtest.Mine, dbtest.Ann, n)
	if err != nil {
		f.t.Fatal(err)
	}
	return made
}

func (f *fixture) get(id string) reward.Session {
	f.t.Helper()
	got, err := f.store.Get(f.t.Context(), dbtest.Mine, id)
	if err != nil {
		f.t.Fatal(err)
	}
	return got
}

// quota sets how many sessions Mine may store.
func (f *fixture) quota(most int64) {
	f.t.Helper()
	_, err := quota.Set(f.t.Context(), f.DB, dbtest.Mine, tenant.Operator, map[string]int64{"reward_sessions": most})
	f.ok(err)
}

// held returns what is held of the wallet of Mine.
func (f *fixture) held() money.Nano { return wallettest.Shown(f.t, f.wallets, dbtest.Mine).Held }

// audited returns the actions of the audit trail about a session, the oldest first.
func (f *fixture) audited(id string) []string {
	f.t.Helper()
	entries, err := audit.History(f.t.Context(), f.DB, dbtest.Mine, "reward_session", id, 1000, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	var actions []string
	for _, e := range slices.Backward(entries) {
		actions = append(actions, strings.TrimPrefix(e.Action, "reward_session."))
	}
	return actions
}

var ids = regexp.MustCompile(`\b(rs|rtok|crit|cert|cal|req)_[0-9a-z]{26}\b`)

func shape(text string) string { return ids.ReplaceAllString(text, "${1}_…") }

func decoded[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// code returns the code of a refusal, or nothing.
func code(err error) string {
	var f *fault.Fault
	if !errors.As(err, &f) {
		return ""
	}
	return f.Code
}

func unmarshal(text string, v any) error {
	return json.Unmarshal([]byte(text), v, json.RejectUnknownMembers(false))
}

// dump returns every text that the reward tables and the audit trail have.
func (f *fixture) dump() string {
	f.t.Helper()
	var all strings.Builder
	for _, column := range []string{
		"label || reason || judges FROM reward_sessions", "task FROM reward_tasks", "body FROM reward_texts",
		"id || name FROM reward_tokens", "action || subject FROM audit_entries",
	} {
		rows, err := db.Query[string](f.t.Context(), f.DB.Across("test"), `SELECT `+column)
		if err != nil {
			f.t.Fatal(err)
		}
		all.WriteString(strings.Join(rows, "\n"))
	}
	for _, column := range []string{"before_json", "after_json"} {
		rows, err := db.Query[[]byte](f.t.Context(), f.DB.Across("test"), `SELECT `+column+` FROM audit_entries WHERE `+column+` IS NOT NULL`)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, row := range rows {
			all.Write(row)
		}
	}
	return all.String()
}
