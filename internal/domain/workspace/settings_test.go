package workspace_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/live"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

func TestSettingsAreInForceWhenTheyAreSetAndAudited(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		set := live.NewSettings()
		publisher := workspace.NewSettingsPublisher(d, set, workspace.Hooks{Uncached: func(tenant.ID) {}, Unlogged: func() {}})
		changes := feed.New(d, slog.New(slog.DiscardHandler), publisher.Sources())
		ctx, stop := context.WithCancel(context.Background())
		var group sync.WaitGroup
		group.Go(func() { changes.Run(ctx) })
		t.Cleanup(func() { stop(); group.Wait() })
		s := workspace.NewStore(d, changes)
		one, _, err := s.Create(ctx, tenant.Operator, "one", "a@one.test")
		if err != nil {
			t.Fatal(err)
		}
		two, _, err := s.Create(ctx, tenant.Operator, "two", "a@two.test")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Settings(ctx, one.ID); err != nil || got.DefaultMaxTokens != 0 {
			t.Errorf("nothing was set: %+v %v", got, err)
		}
		for _, n := range []int64{500, 600, 0} {
			if _, err := s.Set(ctx, one.ID, tenant.Operator, workspace.SettingsChange{DefaultMaxTokens: &n}); err != nil {
				t.Fatal(err)
			}
			if got := set.Of(one.ID).DefaultMaxTokens; got != n {
				t.Errorf("%d is in force, not %d", got, n)
			}
			if got, err := s.Settings(ctx, one.ID); err != nil || got.DefaultMaxTokens != n {
				t.Errorf("%+v %v", got, err)
			}
		}
		if got := set.Of(two.ID); got != (live.Settings{}) {
			t.Errorf("another workspace has %+v", got)
		}
		for _, n := range []int64{-1, 2_000_000_000} {
			var f *fault.Fault
			if _, err := s.Set(ctx, one.ID, tenant.Operator, workspace.SettingsChange{DefaultMaxTokens: &n}); !errors.As(err, &f) || f.Field != "default_max_tokens" {
				t.Errorf("%d: %v", n, err)
			}
		}
		if trail, err := audit.List(ctx, d, one.ID, "workspace.set", 10, 0); err != nil || len(trail) != 3 {
			t.Errorf("%d entries, %v", len(trail), err)
		}
		if _, err := s.Set(ctx, one.ID, tenant.Operator, workspace.SettingsChange{DefaultMaxTokens: new(int64(7))}); err != nil {
			t.Fatal(err)
		}
		set.Replace(nil)
		if err := publisher.Fill(ctx); err != nil || set.Of(one.ID).DefaultMaxTokens != 7 || set.Of(two.ID).DefaultMaxTokens != 0 {
			t.Errorf("after a filling: %+v %v", set.Of(one.ID), err)
		}
	})
}
