package quota_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/quota"
)

func addAlias(t *testing.T, d *db.DB, ws tenant.ID, name string) error {
	_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := db.Exec(t.Context(), tx.In(ws), `
			INSERT INTO aliases (workspace_id, name, target_model, description, canary_model, canary_percent, fallback_models, created_at, updated_at)
			VALUES ($1, $2, 'm', '', '', 0, '[]', 1, 1)`, name); err != nil {
			return err
		}
		return quota.Check(t.Context(), tx.In(ws), quota.Aliases, 1)
	})
	return err
}

// Transactions at once cannot each find room for one more.
func TestTransactionsAtOnceDoNotExceedAQuota(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		if _, err := quota.Set(t.Context(), d, dbtest.Mine, dbtest.Ann, map[string]int64{"aliases": 3}); err != nil {
			t.Fatal(err)
		}
		var stored atomic.Int64
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				err := addAlias(t, d, dbtest.Mine, fmt.Sprint("a", i))
				if err == nil {
					stored.Add(1)
				} else if f := fault.From(err); f.Kind != fault.QuotaExceeded || !strings.Contains(f.Message, "stores 3 aliases, and its quota of aliases is 3: 1 more") {
					t.Error(err)
				}
			})
		}
		group.Wait()
		all, err := quota.List(t.Context(), d.In(dbtest.Mine))
		if err != nil || stored.Load() != 3 || all[0] != (quota.State{Kind: "aliases", Quota: 3, Stored: 3}) {
			t.Errorf("%d were stored: %+v %v", stored.Load(), all, err)
		}
		if err := addAlias(t, d, dbtest.Theirs, "a"); err != nil {
			t.Errorf("another workspace: %v", err)
		}
	})
}

func TestQuotasAreSetByKindAndAudited(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine)
		before, err := quota.List(t.Context(), d.In(dbtest.Mine))
		if err != nil || len(before) != len(quota.Kinds) {
			t.Fatal(before, err)
		}
		small := map[string]bool{quota.Channels.Name: true, quota.DedicatedEndpoints.Name: true, quota.Topups.Name: true} // each costs work outside of the server
		for i, k := range quota.Kinds {
			if before[i] != (quota.State{Kind: k.Name, Quota: k.Default}) || k.Default < 100 && !small[k.Name] {
				t.Errorf("%+v", before[i])
			}
		}
		for _, bad := range []map[string]int64{{"nothing": 1}, {"keys": -1}, {"keys": 1 << 40}} {
			if _, err := quota.Set(t.Context(), d, dbtest.Mine, dbtest.Ann, bad); fault.From(err) == nil || fault.From(err).Kind != fault.InvalidParameter {
				t.Errorf("%v: %v", bad, err)
			}
		}
		after, err := quota.Set(t.Context(), d, dbtest.Mine, dbtest.Ann, map[string]int64{"keys": 0, "labels": 7})
		want := slices.Clone(before)
		for i := range want {
			if most, ok := map[string]int64{"keys": 0, "labels": 7}[want[i].Kind]; ok {
				want[i].Quota = most
			}
		}
		if err != nil || !slices.Equal(after, want) {
			t.Errorf("%+v %v", after, err)
		}
		if entries, err := audit.List(t.Context(), d, dbtest.Mine, "workspace.quotas", 10, 0); err != nil || len(entries) != 1 {
			t.Errorf("%v %v", entries, err)
		}
	})
}
