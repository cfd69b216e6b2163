package alias_test

import (
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/domain/alias"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// incumbent is the model that a name stands for, and the one before it.
func (r fixture) incumbent(t *testing.T, name string) [2]string {
	t.Helper()
	type row struct{ Model, Previous string }
	found, err := db.Maybe[row](t.Context(), r.db.In(mine), `SELECT model, previous FROM alias_incumbents WHERE workspace_id = $1 AND name = $2`, name)
	if err != nil {
		t.Fatal(err)
	}
	if found == nil {
		return [2]string{}
	}
	return [2]string{found.Model, found.Previous}
}

func TestANameStandsForItsTargetOrTheCanaryAfterACutOver(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		for _, step := range []struct {
			to   alias.Alias
			want [2]string
		}{
			{alias.Alias{TargetModel: "sim/a"}, [2]string{"sim/a", ""}},
			{alias.Alias{TargetModel: "sim/a", CanaryModel: "sim/b", CanaryPercent: 99}, [2]string{"sim/a", ""}},
			{alias.Alias{TargetModel: "sim/a", CanaryModel: "sim/b", CanaryPercent: 100}, [2]string{"sim/b", "sim/a"}},
			{alias.Alias{TargetModel: "sim/b"}, [2]string{"sim/b", "sim/a"}},
			{alias.Alias{TargetModel: "sim/b", Description: "d"}, [2]string{"sim/b", "sim/a"}},
			{alias.Alias{TargetModel: "sim/c"}, [2]string{"sim/c", "sim/b"}},
			{alias.Alias{TargetModel: "sim/b"}, [2]string{"sim/b", "sim/c"}},
		} {
			step.to.Name = "support"
			r.put(t, mine, step.to)
			if got := r.incumbent(t, "support"); got != step.want {
				t.Errorf("%+v: it stands for %v, want %v", step.to, got, step.want)
			}
		}
		if err := r.Delete(t.Context(), mine, ann, "support"); err != nil {
			t.Fatal(err)
		}
		if got := r.incumbent(t, "support"); got != [2]string{"sim/b", "sim/c"} {
			t.Errorf("after it was deleted: %v", got)
		}
		r.put(t, mine, alias.Alias{Name: "support", TargetModel: "sim/d"})
		if got := r.incumbent(t, "support"); got != [2]string{"sim/d", "sim/b"} {
			t.Errorf("after it was made anew: %v", got)
		}
	})
}

// Aliases of a server before there were policies stand for what they route to.
func TestAnUpgradeKnowsWhatNamesStandFor(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, folder string, url secret.Text) {
		d := dbtest.Open(t, folder, url)
		if err := d.MigrateTo(t.Context(), 12); err != nil {
			t.Fatal(err)
		}
		dbtest.AddWorkspaces(t, d, mine)
		if _, err := db.Exec(t.Context(), d.Across("test"), `
			INSERT INTO aliases (workspace_id, name, target_model, description, canary_model, canary_percent, fallback_models, created_at, updated_at) VALUES
			('ws_mine', 'plain', 'sim/a', '', '', 0, '[]', 1, 2), ('ws_mine', 'split', 'sim/a', '', 'sim/b', 50, '[]', 1, 2),
			('ws_mine', 'cut-over', 'sim/a', '', 'sim/b', 100, '[]', 1, 2)`); err != nil {
			t.Fatal(err)
		}
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"plain": "sim/a", "split": "sim/a", "cut-over": "sim/b"} {
			if got := (fixture{db: d}).incumbent(t, name); got != [2]string{want, ""} {
				t.Errorf("%s stands for %v, want %s", name, got, want)
			}
		}
	})
}
