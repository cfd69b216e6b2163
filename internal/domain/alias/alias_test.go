package alias_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/alias"
	"sovereign/internal/live"
)

// models are the catalog's, and own ones of a workspace: a trained model, and a dedicated endpoint.
func models() live.Models {
	own := live.NewOwnModels()
	for _, id := range []string{"ft/mine", "dedicated/x"} {
		own.Put("ws_1", &live.Model{ID: id, Provider: live.Engines, Kind: live.Chat})
	}
	return live.Models{Catalog: catalog, Own: own, Keys: live.NewKeyring()}
}

// catalog has models of two kinds, and one whose id could be an alias's name.
var catalog = func() *live.Catalog {
	sim := &live.Provider{Name: "sim", Protocol: live.Sim, Configured: true}
	var models []*live.Model
	for id, kind := range map[string]live.Kind{
		"sim/chat": live.Chat, "sim/chat-large": live.Chat, "sim/c": live.Chat, "sim/d": live.Chat, "sim/e": live.Chat,
		"sim/f": live.Chat, "sim/g": live.Chat, "sim/h": live.Chat, "sim/i": live.Chat,
		"sim/embedding": live.Embedding, "sim/embedding-large": live.Embedding, "plain-model": live.Chat,
	} {
		models = append(models, &live.Model{ID: id, Provider: sim, Kind: kind})
	}
	return live.NewCatalog([]*live.Provider{sim}, models)
}()

// refused reports whether err is a refusal of that kind, naming the field in its text too.
func refused(t *testing.T, what string, err error, kind fault.Kind, field string) {
	t.Helper()
	var f *fault.Fault
	if !errors.As(err, &f) || f.Kind != kind || f.Field != field || !strings.Contains(f.Message, field) {
		t.Errorf("%s: want %s of %q, got %v", what, kind.Code, field, err)
	}
}

func TestABrokenRuleIsRefusedByItsField(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*alias.Alias)
		field  string
	}{
		"no name":                     {func(a *alias.Alias) { a.Name = "" }, "name"},
		"a short name":                {func(a *alias.Alias) { a.Name = "ab" }, "name"},
		"a long name":                 {func(a *alias.Alias) { a.Name = strings.Repeat("a", 65) }, "name"},
		"a slash in the name":         {func(a *alias.Alias) { a.Name = "sim/x" }, "name"},
		"a space in the name":         {func(a *alias.Alias) { a.Name = "a b" }, "name"},
		"a line break after the name": {func(a *alias.Alias) { a.Name = "abc\n" }, "name"},
		"a letter outside ASCII":      {func(a *alias.Alias) { a.Name = "schön" }, "name"},
		"the id of a model":           {func(a *alias.Alias) { a.Name = "plain-model" }, "name"},
		"no target":                   {func(a *alias.Alias) { a.TargetModel = "" }, "target_model"},
		"an unknown target":           {func(a *alias.Alias) { a.TargetModel = "sim/none" }, "target_model"},
		"a target without provider":   {func(a *alias.Alias) { a.TargetModel = "none/chat" }, "target_model"},
		"an alias as the target":      {func(a *alias.Alias) { a.TargetModel = a.Name }, "target_model"},
		"a dedicated target":          {func(a *alias.Alias) { a.TargetModel = "dedicated/x" }, "target_model"},
		"an eval endpoint as target":  {func(a *alias.Alias) { a.TargetModel = "endpoint/ep_1" }, "target_model"},
		"an eval endpoint as canary":  {func(a *alias.Alias) { a.CanaryModel = "endpoint/ep_1" }, "canary_model"},
		"an eval endpoint to fall to": {func(a *alias.Alias) { a.FallbackModels = alias.Models{"endpoint/ep_1"} }, "fallback_models[0]"},
		"a target in other case":      {func(a *alias.Alias) { a.TargetModel = "sim/Chat" }, "target_model"},
		"an unknown canary":           {func(a *alias.Alias) { a.CanaryModel = "sim/none" }, "canary_model"},
		"an unknown trained model":    {func(a *alias.Alias) { a.TargetModel = "ft/none" }, "target_model"},
		"a dedicated canary":          {func(a *alias.Alias) { a.CanaryModel = "dedicated/x" }, "canary_model"},
		"a canary of another kind":    {func(a *alias.Alias) { a.CanaryModel = "sim/embedding" }, "canary_model"},
		"a percent without canary":    {func(a *alias.Alias) { a.CanaryPercent = 1 }, "canary_model"},
		"a percent below 0":           {func(a *alias.Alias) { a.CanaryModel, a.CanaryPercent = "sim/c", -1 }, "canary_percent"},
		"a percent above 100":         {func(a *alias.Alias) { a.CanaryModel, a.CanaryPercent = "sim/c", 101 }, "canary_percent"},
		"an unknown fallback":         {func(a *alias.Alias) { a.FallbackModels = alias.Models{"sim/c", "sim/none"} }, "fallback_models[1]"},
		"an empty fallback":           {func(a *alias.Alias) { a.FallbackModels = alias.Models{""} }, "fallback_models[0]"},
		"a dedicated fallback":        {func(a *alias.Alias) { a.FallbackModels = alias.Models{"dedicated/x"} }, "fallback_models[0]"},
		"a fallback of another kind":  {func(a *alias.Alias) { a.FallbackModels = alias.Models{"sim/c", "sim/embedding"} }, "fallback_models[1]"},
		"a fallback twice":            {func(a *alias.Alias) { a.FallbackModels = alias.Models{"sim/c", "sim/d", "sim/c"} }, "fallback_models[2]"},
		"nine fallbacks": {func(a *alias.Alias) {
			a.FallbackModels = alias.Models{"sim/chat", "sim/chat-large", "sim/c", "sim/d", "sim/e", "sim/f", "sim/g", "sim/h", "sim/i"}
		}, "fallback_models"},
		"a long description":           {func(a *alias.Alias) { a.Description = strings.Repeat("é", 501) }, "description"},
		"a description that holds NUL": {func(a *alias.Alias) { a.Description = "a\x00b" }, "description"},
	} {
		a := alias.Alias{Name: "support", TargetModel: "sim/chat"}
		c.change(&a)
		refused(t, what, a.Check(models(), "ws_1"), fault.InvalidParameter, c.field)
	}
}

func TestWhatKeepsTheRulesIsAccepted(t *testing.T) {
	for what, a := range map[string]alias.Alias{
		"the least":                      {Name: "abc", TargetModel: "sim/chat"},
		"the most":                       {Name: strings.Repeat("a", 64), TargetModel: "sim/chat", Description: strings.Repeat("é", 500), CanaryModel: "sim/c", CanaryPercent: 100, FallbackModels: alias.Models{"sim/chat", "sim/chat-large", "sim/c", "sim/d", "sim/e", "sim/f", "sim/g", "sim/h"}},
		"every kind of character":        {Name: "Az.09_-", TargetModel: "plain-model"},
		"dots alone":                     {Name: "...", TargetModel: "sim/chat"},
		"a canary that is rolled back":   {Name: "abc", TargetModel: "sim/chat", CanaryModel: "sim/c"},
		"a canary that is the target":    {Name: "abc", TargetModel: "sim/chat", CanaryModel: "sim/chat", CanaryPercent: 50},
		"embeddings with embeddings":     {Name: "abc", TargetModel: "sim/embedding", CanaryModel: "sim/embedding-large", CanaryPercent: 1, FallbackModels: alias.Models{"sim/embedding"}},
		"a trained model as canary":      {Name: "abc", TargetModel: "sim/chat", CanaryModel: "ft/mine", CanaryPercent: 5},
		"a trained model":                {Name: "abc", TargetModel: "ft/mine", FallbackModels: alias.Models{"ft/mine", "sim/c"}},
		"a description of several lines": {Name: "abc", TargetModel: "sim/chat", Description: "one\ntwo"},
	} {
		if err := a.Check(models(), "ws_1"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Whatever is accepted can be routed: every model is in the catalog, and any of them can answer for the others.
func TestAnAcceptedAliasNamesModelsOfOneKind(t *testing.T) {
	ids := rapid.SampledFrom([]string{"", "sim/chat", "sim/c", "sim/embedding", "sim/embedding-large", "sim/none", "dedicated/x", "ft/mine", "ft/none", "plain-model"})
	named := regexp.MustCompile(`^[A-Za-z0-9._-]{3,64}$`)
	rapid.Check(t, func(t *rapid.T) {
		a := alias.Alias{
			Name:           rapid.OneOf(rapid.Just("support"), rapid.StringN(0, 70, -1)).Draw(t, "name"),
			TargetModel:    ids.Draw(t, "target"),
			CanaryModel:    ids.Draw(t, "canary"),
			CanaryPercent:  rapid.IntRange(-1, 101).Draw(t, "percent"),
			FallbackModels: rapid.SliceOfN(ids, 0, 3).Draw(t, "fallbacks"),
		}
		err := a.Check(models(), "ws_1")
		used := append([]string{a.TargetModel}, a.FallbackModels...)
		if a.CanaryModel != "" {
			used = append(used, a.CanaryModel)
		}
		keeps := named.MatchString(a.Name) && !catalog.Has(a.Name) && a.CanaryPercent >= 0 && a.CanaryPercent <= 100 && (a.CanaryPercent == 0 || a.CanaryModel != "")
		kinds, seen := map[live.Kind]bool{}, map[string]bool{}
		for _, id := range used {
			m, err := models().Find("ws_1", id)
			if keeps = keeps && err == nil && !strings.HasPrefix(id, "dedicated/"); keeps {
				kinds[m.Kind] = true
			}
		}
		for _, id := range a.FallbackModels {
			keeps = keeps && !seen[id]
			seen[id] = true
		}
		if keeps = keeps && len(kinds) == 1; keeps != (err == nil) {
			t.Fatalf("%+v: %v", a, err)
		}
	})
}
