package live

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/tenant"
)

// unit draws from [0, 1), including values next to its ends.
var unit = rapid.OneOf(rapid.Just(0.0), rapid.Just(math.Nextafter(1, 0)), rapid.Float64Range(0, math.Nextafter(1, 0)))

func TestTheCanaryGetsNoRequestAtZeroPercentAndAllAtAHundred(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := unit.Draw(t, "u")
		for percent, want := range map[int]string{0: "old", 100: "new"} {
			a := Alias{Target: "old", Canary: "new", CanaryPercent: percent}
			if got := a.Pick(u); got != want {
				t.Fatalf("%d %%: %v picks %s", percent, u, got)
			}
		}
	})
}

func TestWithoutACanaryEveryRequestReachesTheTarget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Alias{Target: "old", CanaryPercent: rapid.IntRange(0, 100).Draw(t, "percent")}
		if got := a.Pick(unit.Draw(t, "u")); got != "old" {
			t.Fatalf("picks %q", got)
		}
	})
}

// The canary's share of n draws is binomial. It is more than six standard deviations away once in 500 million splits.
func TestTheSplitFollowsThePercent(t *testing.T) {
	const n = 20_000
	rapid.Check(t, func(t *rapid.T) {
		percent := rapid.IntRange(1, 99).Draw(t, "percent")
		draws := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		a, hits := Alias{Target: "old", Canary: "new", CanaryPercent: percent}, 0
		for range n {
			if a.Pick(draws.Float64()) == "new" {
				hits++
			}
		}
		p := float64(percent) / 100
		if off := math.Abs(float64(hits) - n*p); off > 6*math.Sqrt(n*p*(1-p)) {
			t.Fatalf("%d of %d at %d %%", hits, n, percent)
		}
	})
}

func TestRaisingThePercentTakesNoRequestFromTheCanary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, percent := unit.Draw(t, "u"), rapid.IntRange(0, 99).Draw(t, "percent")
		lower := Alias{Target: "old", Canary: "new", CanaryPercent: percent}
		higher := Alias{Target: "old", Canary: "new", CanaryPercent: percent + 1}
		if lower.Pick(u) == "new" && higher.Pick(u) == "old" {
			t.Fatalf("%v is the canary's at %d %% and not at %d %%", u, percent, percent+1)
		}
	})
}

// TestAliasesMatchAModel compares Aliases with a plain map under any sequence of changes.
func TestAliasesMatchAModel(t *testing.T) {
	universe := []AliasName{{"ws_1", "fast"}, {"ws_1", "slow"}, {"ws_2", "fast"}, {"ws_2", "slow"}}
	names := rapid.SampledFrom(universe)
	rapid.Check(t, func(t *rapid.T) {
		aliases, model := NewAliases(), map[AliasName]*Alias{}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				name := names.Draw(t, "name")
				model[name] = &Alias{Name: name.Name}
				aliases.Put(name.Workspace, model[name])
			},
			"drop": func(t *rapid.T) {
				name := names.Draw(t, "name")
				delete(model, name)
				aliases.Drop(name.Workspace, name.Name)
			},
			"replace": func(t *rapid.T) {
				model = map[AliasName]*Alias{}
				for _, name := range rapid.SliceOfDistinct(names, rapid.ID[AliasName]).Draw(t, "names") {
					model[name] = &Alias{Name: name.Name}
				}
				aliases.Replace(model)
			},
			"": func(t *rapid.T) {
				for _, name := range universe {
					got, ok := aliases.Find(name.Workspace, name.Name)
					if want, there := model[name]; got != want || ok != there {
						t.Fatalf("%v is %v %v, want %v", name, got, ok, want)
					}
				}
				for _, ws := range []tenant.ID{"ws_1", "ws_2", "ws_3"} {
					var want []*Alias
					for _, name := range universe { // sorted by name
						if name.Workspace == ws && model[name] != nil {
							want = append(want, model[name])
						}
					}
					if got := aliases.Of(ws); !slices.Equal(got, want) {
						t.Fatalf("%s has %v, want %v", ws, got, want)
					}
				}
			},
		})
	})
}

func TestARepointIsSeenByAReadThatStartsAfterPutReturned(t *testing.T) {
	const changes = 5000
	ws, aliases := tenant.ID("ws_1"), NewAliases()
	put := func(n int) { aliases.Put(ws, &Alias{Name: "fast", Target: strconv.Itoa(n)}) }
	put(0)
	var returned atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for last := int64(0); last < changes; {
				last = returned.Load()
				a, ok := aliases.Find(ws, "fast")
				if !ok {
					t.Error("an alias is unknown while it is repointed")
					return
				}
				if seen, err := strconv.ParseInt(a.Target, 10, 64); err != nil || seen < last {
					t.Errorf("repoint %d has returned, and the target is that of %s", last, a.Target)
					return
				}
			}
		})
	}
	for n := 1; n <= changes; n++ {
		put(n)
		returned.Store(int64(n))
	}
	group.Wait()
}
