package live

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/tenant"
)

// own returns own models of two workspaces, one of them by the same id.
func own() *OwnModels {
	o := NewOwnModels()
	for ws, ids := range map[tenant.ID][]string{"ws_1": {"ft/a", "dedicated/a"}, "ws_2": {"ft/a", "ft/b", "dedicated/b"}} {
		for _, id := range ids {
			o.Put(ws, &Model{ID: id, Provider: Engines, Upstream: string(ws)})
		}
	}
	return o
}

func TestAWorkspaceCallsItsOwnModelsAndTheCatalogs(t *testing.T) {
	open, keyed := &Provider{Name: "open", Configured: true}, &Provider{Name: "keyed"}
	keys := NewKeyring()
	keys.Put("ws_1", "keyed", &OwnKey{})
	models := Models{
		Catalog: NewCatalog([]*Provider{open, keyed}, []*Model{{ID: "open/m", Provider: open}, {ID: "keyed/m", Provider: keyed}, {ID: "plain", Provider: open}}),
		Own:     own(), Keys: keys,
	}
	for _, c := range []struct {
		ws   tenant.ID
		id   string
		code string // of the refusal; empty if the model can be called
		has  bool   // no alias can have the name
	}{
		{"ws_1", "open/m", "", true},
		{"ws_2", "open/m", "", true},
		{"ws_1", "keyed/m", "", true},
		{"ws_2", "keyed/m", "unknown_provider", true},
		{"ws_2", "keyed/none", "unknown_provider", false},
		{"ws_1", "keyed/none", "model_not_found", false},
		{"ws_1", "plain", "", true},
		{"ws_1", "none", "model_not_found", false},
		{"ws_1", "none/m", "unknown_provider", false},
		{"ws_1", "ft/a", "", true},
		{"ws_1", "ft/b", "model_not_found", false},
		{"ws_2", "ft/b", "", true},
		{"ws_3", "ft/a", "model_not_found", false},
		{"ws_1", "dedicated/a", "", true},
		{"ws_2", "dedicated/a", "dedicated_endpoint_not_found", false},
		{"ws_1", "endpoint/a", "model_not_found", false},
	} {
		m, err := models.Find(c.ws, c.id)
		refused, _ := err.(interface{ Name() string })
		switch {
		case c.code == "" && (err != nil || m.ID != c.id || IsOwn(c.id) && m.Upstream != string(c.ws)):
			t.Errorf("%s of %s: %v %v", c.id, c.ws, m, err)
		case c.code != "" && (refused == nil || refused.Name() != c.code || m != nil):
			t.Errorf("%s of %s: %v %v, want %s", c.id, c.ws, m, err, c.code)
		}
		if models.Has(c.ws, c.id) != c.has {
			t.Errorf("%s of %s: known %v", c.id, c.ws, !c.has)
		}
		listed := slices.ContainsFunc(models.Of(c.ws), func(m *Model) bool { return m.ID == c.id })
		if listed != (c.code == "") {
			t.Errorf("%s of %s: listed %v", c.id, c.ws, listed)
		}
	}
}

func TestReplacingOwnModelsOfAPrefixKeepsTheOthers(t *testing.T) {
	universe := []string{"ft/a", "ft/b", "dedicated/a"}
	workspaces := rapid.SampledFrom([]tenant.ID{"ws_1", "ws_2", "ws_3"})
	rapid.Check(t, func(t *rapid.T) {
		o := own()
		want := map[tenant.ID]map[string]bool{}
		for _, ws := range []tenant.ID{"ws_1", "ws_2", "ws_3"} {
			want[ws] = map[string]bool{}
			for _, m := range o.Of(ws) {
				want[ws][m.ID] = IsDedicated(m.ID)
			}
		}
		next := map[tenant.ID][]*Model{}
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			ws, id := workspaces.Draw(t, "ws"), rapid.SampledFrom(universe[:2]).Draw(t, "id")
			next[ws] = append(next[ws], &Model{ID: id})
			want[ws][id] = true
		}
		o.Replace(TrainedPrefix, next)
		for ws, ids := range want {
			for _, id := range universe {
				if _, ok := o.Find(ws, id); ok != ids[id] {
					t.Fatalf("%s of %s is there: %v, want %v", id, ws, ok, ids[id])
				}
			}
		}
	})
}

func TestOneVersionIsOneModelByWhateverID(t *testing.T) {
	trained := &Model{ID: "ft/a", Provider: Engines, Engines: "pool", Upstream: "a", Version: "mv_1"}
	dedicated := &Model{ID: "dedicated/x", Provider: Engines, Engines: "ep", Upstream: "x", Version: "mv_1"}
	other := &Model{ID: "ft/b", Provider: Engines, Engines: "pool", Upstream: "b", Version: "mv_2"}
	if trained.Identity() != dedicated.Identity() || trained.Identity() == other.Identity() {
		t.Errorf("%q %q %q", trained.Identity(), dedicated.Identity(), other.Identity())
	}
}
