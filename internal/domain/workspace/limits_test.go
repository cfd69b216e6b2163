package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/live"
	"sovereign/internal/plane/meter"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/quota"
)

// A limited is a fixture whose limits are published.
type limited struct {
	fixture
	limits *live.AllLimits
	meter  *meter.Meter
	spent  map[tenant.KeyID]meter.Spent
	fails  error // of summing up what was spent
	denied int
	mu     sync.Mutex
}

func eachLimited(t *testing.T, test func(t *testing.T, r *limited)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := &limited{limits: live.NewLimits(), spent: map[tenant.KeyID]meter.Spent{}}
		r.meter = meter.New(r.limits)
		r.db, r.dir = d, live.NewDirectory()
		counter := &workspace.Counter{Meter: r.meter, Spent: func(context.Context, tenant.ID, clock.Time) (map[tenant.KeyID]meter.Spent, error) {
			return r.spent, r.fails
		}}
		r.pub = workspace.NewPublisher(d, r.dir)
		r.pub.Limits, r.pub.Counter = r.limits, counter
		r.pub.Denied = func() { r.mu.Lock(); r.denied++; r.mu.Unlock() }
		f := feed.New(d, slog.New(slog.DiscardHandler), r.pub.Sources())
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); f.Run(ctx) }()
		t.Cleanup(func() { stop(); <-done })
		r.Store = workspace.NewStore(d, f)
		r.Counter = counter
		test(t, r)
	})
}

func (r *limited) of(ws tenant.ID, key tenant.KeyID) (*live.Limits, *live.Limits) {
	return r.limits.Of(&tenant.Caller{Workspace: ws, Key: key})
}

func (r *limited) deniedTimes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denied
}

func ptr[T any](v T) *T { return &v }

var all = workspace.LimitsChange{
	RequestsPerMinute: ptr(int64(600)), TokensPerMinute: ptr(int64(1000)), Concurrency: ptr(int64(5)),
	BudgetDay: ptr(5 * money.Dollar), BudgetMonth: ptr(100 * money.Dollar), Models: &workspace.Names{"sim/chat", "gpt-4o*"},
	Scope: ptr(workspace.ScopeInference), ExpiresAt: ptr("2099-01-02T03:04:05.000Z"), AllowedAddresses: &workspace.Names{"10.0.0.0/8", "::1"},
}

func TestTheLimitsOfAKeyAreInForceWhenItIsMintedAndUpdated(t *testing.T) {
	eachLimited(t, func(t *testing.T, r *limited) {
		ctx, ws := t.Context(), r.create(t, "one")
		key, text, err := r.MintKey(ctx, ws, tenant.Operator, "owner@one.test", "limited", &all)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string) {
			t.Helper()
			l, _ := r.of(ws, key.ID)
			if l == nil || l.RequestsPerMinute != 600 || l.TokensPerMinute != 1000 || l.Concurrency != 5 || l.BudgetPerDay != 5*money.Dollar ||
				l.BudgetPerMonth != 100*money.Dollar || fmt.Sprint(l.Models) != "[sim/chat gpt-4o*]" || !l.InferenceOnly ||
				l.ExpiresAt.String() != "2099-01-02T03:04:05.000Z" || fmt.Sprint(l.Addresses) != "[10.0.0.0/8 ::1/128]" {
				t.Errorf("%s: %+v", what, l)
			}
		}
		check("minted")
		if err := r.pub.Fill(ctx); err != nil {
			t.Fatal(err)
		}
		check("filled")
		for _, rpm := range []int64{10, 20, 0} {
			after, err := r.UpdateKey(ctx, ws, tenant.Operator, key.ID, &workspace.LimitsChange{RequestsPerMinute: &rpm})
			l, _ := r.of(ws, key.ID)
			if err != nil || after.RequestsPerMinute != rpm || l.RequestsPerMinute != rpm || l.Concurrency != 5 {
				t.Fatalf("%+v %+v %v", after, l, err)
			}
		}
		none := workspace.LimitsChange{
			TokensPerMinute: ptr(int64(0)), Concurrency: ptr(int64(0)), BudgetDay: ptr(money.Nano(0)), BudgetMonth: ptr(money.Nano(0)),
			Models: &workspace.Names{}, Scope: ptr(workspace.ScopeFull), ExpiresAt: ptr(""), AllowedAddresses: &workspace.Names{},
		}
		if _, err := r.UpdateKey(ctx, ws, tenant.Operator, key.ID, &none); err != nil {
			t.Fatal(err)
		}
		if l, _ := r.of(ws, key.ID); l != nil {
			t.Errorf("after everything was removed: %+v", l)
		}
		if _, verdict := r.keyStatus(digest(t, text)); verdict != live.Granted {
			t.Error(verdict)
		}
		if entries, err := audit.List(ctx, r.db, ws, "key.update", 10, 0); err != nil || len(entries) != 4 || !strings.Contains(string(entries[3].Before), `"requests_per_minute":600`) {
			t.Errorf("%d %v", len(entries), err)
		}
		keys, err := r.Keys(ctx, ws, "", 10, 0)
		if err != nil || len(keys) != 1 || keys[0].Scope != workspace.ScopeFull || keys[0].Models == nil {
			t.Errorf("%+v %v", keys, err)
		}
	})
}

func TestTheLimitsOfAWorkspaceAreInForceWhenTheyAreSet(t *testing.T) {
	eachLimited(t, func(t *testing.T, r *limited) {
		ctx, ws, other := t.Context(), r.create(t, "one"), r.create(t, "two")
		after, err := r.SetLimits(ctx, ws, tenant.Operator, &all)
		if err != nil || after.RequestsPerMinute != 600 {
			t.Fatal(after, err)
		}
		if _, l := r.of(ws, ""); l == nil || l.TokensPerMinute != 1000 {
			t.Errorf("%+v", l)
		}
		if _, l := r.of(other, ""); l != nil {
			t.Errorf("another workspace has %+v", l)
		}
		if got, err := r.Limits(ctx, ws); err != nil || got.Concurrency != 5 {
			t.Error(got, err)
		}
		if got, err := r.Limits(ctx, other); err != nil || got.Scope != workspace.ScopeFull {
			t.Error(got, err)
		}
		if entries, err := audit.List(ctx, r.db, ws, "workspace.limits", 10, 0); err != nil || len(entries) != 1 {
			t.Error(len(entries), err)
		}
	})
}

// A workspace's limits are the operator's means against what its keys cost others. Its owners may be stricter.
func TestOwnersTightenWhatTheOperatorHasLimitedAndNoMore(t *testing.T) {
	owner := tenant.Actor{Kind: tenant.ActorSession, User: "usr_1", Session: "ses_1"}
	eachLimited(t, func(t *testing.T, r *limited) {
		ctx, ws := t.Context(), r.create(t, "one")
		set := func(by tenant.Actor, c workspace.LimitsChange, status int) {
			t.Helper()
			_, err := r.SetLimits(ctx, ws, by, &c)
			if status == 0 && err != nil || status != 0 && (err == nil || fault.From(err).Status != status) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		set(owner, workspace.LimitsChange{BudgetDay: ptr(money.Nano(5))}, 0)
		set(tenant.Operator, workspace.LimitsChange{
			RequestsPerMinute: ptr(int64(60)), Models: &workspace.Names{"a-*", "b"}, ExpiresAt: ptr("2030-01-01T00:00:00Z"),
			AllowedAddresses: &workspace.Names{"10.0.0.0/8"}, Scope: ptr(workspace.ScopeInference),
		}, 0)
		for _, more := range []workspace.LimitsChange{
			{RequestsPerMinute: ptr(int64(0))},
			{RequestsPerMinute: ptr(int64(61))},
			{ExpiresAt: ptr("")},
			{ExpiresAt: ptr("2030-01-02T00:00:00Z")},
			{Models: &workspace.Names{}},
			{Models: &workspace.Names{"b", "*"}},
			{Models: &workspace.Names{"b*"}},
			{AllowedAddresses: &workspace.Names{}},
			{AllowedAddresses: &workspace.Names{"10.1.0.0/16", "0.0.0.0/0"}},
			{Scope: ptr(workspace.ScopeFull)},
		} {
			set(owner, more, 403)
		}
		set(owner, workspace.LimitsChange{
			RequestsPerMinute: ptr(int64(6)), Models: &workspace.Names{"a-1"}, ExpiresAt: ptr("2029-01-01T00:00:00Z"),
			AllowedAddresses: &workspace.Names{"10.1.2.3"},
		}, 0)
		set(owner, workspace.LimitsChange{RequestsPerMinute: ptr(int64(60)), Models: &workspace.Names{"b", "a-*"}}, 0)
		set(owner, workspace.LimitsChange{BudgetDay: ptr(money.Nano(0)), Concurrency: ptr(int64(3))}, 0) // their own
		set(tenant.Operator, workspace.LimitsChange{RequestsPerMinute: ptr(int64(0))}, 0)
		set(owner, workspace.LimitsChange{RequestsPerMinute: ptr(int64(1000))}, 0)
	})
}

func TestBadLimitsAreRefusedByField(t *testing.T) {
	eachLimited(t, func(t *testing.T, r *limited) {
		ctx, ws, other := t.Context(), r.create(t, "one"), r.create(t, "two")
		key, _ := r.mint(t, ws, "owner@one.test")
		for field, c := range map[string]workspace.LimitsChange{
			"requests_per_minute":  {RequestsPerMinute: ptr(int64(-1))},
			"tokens_per_minute":    {TokensPerMinute: ptr(int64(1 << 60))},
			"budget_day_usd":       {BudgetDay: ptr(money.Nano(-1))},
			"scope":                {Scope: ptr(workspace.Scope("admin"))},
			"expires_at":           {ExpiresAt: ptr("tomorrow")},
			"models[1]":            {Models: &workspace.Names{"a", "b*c"}},
			"models[0]":            {Models: &workspace.Names{""}},
			"allowed_addresses[0]": {AllowedAddresses: &workspace.Names{"10.0.0.0/33"}},
		} {
			for _, set := range []func() error{
				func() error { _, err := r.UpdateKey(ctx, ws, tenant.Operator, key.ID, &c); return err },
				func() error { _, err := r.SetLimits(ctx, ws, tenant.Operator, &c); return err },
				func() error { _, _, err := r.MintKey(ctx, ws, tenant.Operator, "owner@one.test", "x", &c); return err },
			} {
				var f *fault.Fault
				if err := set(); !errors.As(err, &f) || f.Field != field {
					t.Errorf("%s: %v", field, err)
				}
			}
		}
		_, err := r.UpdateKey(ctx, other, tenant.Operator, key.ID, &all)
		wants(t, err, fault.Missing)
	})
}

// What was spent before a budget is set counts against it, for the key and for all keys of the workspace.
func TestABudgetCountsWhatWasSpentBefore(t *testing.T) {
	eachLimited(t, func(t *testing.T, r *limited) {
		ctx, ws := t.Context(), r.create(t, "one")
		key, _ := r.mint(t, ws, "owner@one.test")
		r.spent[key.ID], r.spent["key_other"] = meter.Spent{Day: 3, Month: 30}, meter.Spent{Day: 1, Month: 10}
		free := func(key tenant.KeyID) money.Nano {
			t.Helper()
			pass, err := r.meter.Enter(&tenant.Caller{Workspace: ws, Key: key}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			defer pass.Leave()
			return pass.Free(time.Now())
		}
		if _, err := r.UpdateKey(ctx, ws, tenant.Operator, key.ID, &workspace.LimitsChange{BudgetMonth: ptr(money.Nano(100))}); err != nil {
			t.Fatal(err)
		}
		if got := free(key.ID); got != 70 {
			t.Errorf("%d are free for the key", got)
		}
		if _, err := r.SetLimits(ctx, ws, tenant.Operator, &workspace.LimitsChange{BudgetDay: ptr(money.Nano(10))}); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a second fill counts nothing twice
			if got := free("key_new"); got != 6 {
				t.Errorf("%d are free for the workspace", got)
			}
			if err := r.pub.Fill(ctx); err != nil {
				t.Fatal(err)
			}
		}
		r.fails = errors.New("a sum that takes too long for the feed") // a new key has spent nothing, and needs none
		fresh, _, err := r.MintKey(ctx, ws, tenant.Operator, "owner@one.test", "x", &workspace.LimitsChange{BudgetDay: ptr(money.Nano(2))})
		if got := free(fresh.ID); err != nil || got != 2 {
			t.Errorf("%d are free for a new key, %v", got, err)
		}
	})
}

// Whatever makes a key refused has the running requests checked, before the change is answered.
func TestTheRunningRequestsAreCheckedWhenAKeyEnds(t *testing.T) {
	eachLimited(t, func(t *testing.T, r *limited) {
		ctx, ws := t.Context(), r.create(t, "one")
		if _, err := r.AddMember(ctx, ws, tenant.Operator, "ann@one.test", tenant.Member); err != nil {
			t.Fatal(err)
		}
		for name, end := range map[string]func(workspace.Key) error{
			"revoked": func(k workspace.Key) error { _, err := r.RevokeKey(ctx, ws, tenant.Operator, k.ID, ""); return err },
			"expired": func(k workspace.Key) error {
				_, err := r.UpdateKey(ctx, ws, tenant.Operator, k.ID, &workspace.LimitsChange{ExpiresAt: ptr(clock.Now().String())})
				return err
			},
			"removed": func(workspace.Key) error {
				_, err := r.RemoveMember(ctx, ws, tenant.Operator, "ann@one.test", "")
				return err
			},
		} {
			email := "owner@one.test"
			if name == "removed" {
				email = "ann@one.test"
			}
			key, _ := r.mint(t, ws, email)
			before := r.deniedTimes()
			if err := end(key); err != nil || r.deniedTimes() == before {
				t.Errorf("%s: %v, checked %d times", name, err, r.deniedTimes()-before)
			}
		}
	})
}

func TestQuotasBoundKeysAndMembers(t *testing.T) {
	eachLimited(t, func(t *testing.T, r *limited) {
		ctx, ws := t.Context(), r.create(t, "one")
		if _, err := quota.Set(ctx, r.db, ws, tenant.Operator, map[string]int64{"keys": 1, "members": 2}); err != nil {
			t.Fatal(err)
		}
		key, _ := r.mint(t, ws, "owner@one.test")
		_, _, err := r.CreateKey(ctx, ws, tenant.Operator, "owner@one.test", "x")
		wants(t, err, fault.QuotaExceeded)
		if _, err := r.RevokeKey(ctx, ws, tenant.Operator, key.ID, ""); err != nil {
			t.Fatal(err)
		}
		r.mint(t, ws, "owner@one.test")
		for i, want := range []bool{true, false} {
			if _, err := r.AddMember(ctx, ws, tenant.Operator, fmt.Sprintf("m%d@one.test", i), tenant.Member); (err == nil) != want {
				t.Errorf("member %d: %v", i, err)
			}
		}
	})
}
