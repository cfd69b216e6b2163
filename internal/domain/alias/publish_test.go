package alias_test

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
)

// Whatever was put and deleted, what the feed applied on the way is what a filling finds at the end, and applying any
// change again, in any order, makes no difference.
func TestFillAndApplyConverge(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ctx := t.Context()
		workspaces := rapid.SampledFrom([]tenant.ID{mine, theirs})
		names := []string{"one", "two", "three"}
		models := rapid.SampledFrom([]string{"sim/chat", "sim/c", "sim/d"})
		kept := map[live.AliasName]live.Alias{}
		rapid.Check(t, func(t *rapid.T) {
			changes := rapid.IntRange(0, 6).Draw(t, "changes")
			for range changes {
				name := live.AliasName{Workspace: workspaces.Draw(t, "workspace"), Name: rapid.SampledFrom(names).Draw(t, "name")}
				if rapid.Bool().Draw(t, "delete") {
					err := r.Delete(ctx, name.Workspace, ann, name.Name)
					if _, there := kept[name]; there != (err == nil) {
						t.Fatal(err)
					}
					delete(kept, name)
					continue
				}
				want := live.Alias{
					Name: name.Name, Target: models.Draw(t, "target"), Canary: models.Draw(t, "canary"),
					CanaryPercent: rapid.IntRange(0, 100).Draw(t, "percent"), Fallbacks: rapid.SliceOfN(models, 0, 2).Draw(t, "fallbacks"),
				}
				put, err := r.Put(ctx, name.Workspace, ann, alias.Alias{
					Name: want.Name, TargetModel: want.Target, CanaryModel: want.Canary, CanaryPercent: want.CanaryPercent, FallbackModels: want.Fallbacks,
				})
				if err != nil {
					t.Fatal(err)
				}
				want.Created = put.CreatedAt
				kept[name] = want
			}
			refilled := live.NewAliases()
			refilled.Put(mine, &live.Alias{Name: "stale"})
			if err := alias.NewPublisher(r.db, refilled).Fill(ctx); err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 4).Draw(t, "again") {
				c := db.Change{Kind: "alias", Workspace: workspaces.Draw(t, "workspace"), Subject: rapid.SampledFrom(append(names, "never")).Draw(t, "name")}
				if err := r.pub.Apply(ctx, c); err != nil {
					t.Fatal(err)
				}
			}
			for _, ws := range []tenant.ID{mine, theirs} {
				for _, name := range append(names, "stale", "never") {
					applied, there := r.live.Find(ws, name)
					filled, found := refilled.Find(ws, name)
					want, exists := kept[live.AliasName{Workspace: ws, Name: name}]
					if there != exists || found != exists {
						t.Fatalf("%s of %s: kept %v, applied %v, filled %v", name, ws, exists, there, found)
					}
					if exists && (!reflect.DeepEqual(*applied, want) || !reflect.DeepEqual(*filled, want)) {
						t.Fatalf("kept %+v, applied %+v, filled %+v", want, *applied, *filled)
					}
				}
			}
		})
	})
}

// What cannot be read is told, and what is in force stays: a reader must not lose a workspace's aliases to an outage.
func TestAFailedReadingChangesNothing(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.put(t, mine, alias.Alias{Name: "support", TargetModel: "sim/chat"})
		if _, err := db.Exec(t.Context(), r.db.Across("test"), `UPDATE aliases SET fallback_models = '["a", 1]'`); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"fill":  r.pub.Fill(t.Context()),
			"apply": r.pub.Apply(t.Context(), db.Change{Kind: "alias", Workspace: mine, Subject: "support"}),
		} {
			if err == nil || !strings.Contains(err.Error(), "read alias") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got := r.target(mine, "support"); got != "sim/chat" {
			t.Errorf("routes to %q", got)
		}
	})
}
