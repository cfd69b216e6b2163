package live

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
)

// unit draws from [0, 1), including values next to its ends.
var unit = rapid.OneOf(rapid.Just(0.0), rapid.Just(math.Nextafter(1, 0)), rapid.Float64Range(0, math.Nextafter(1, 0)))

func TestTheCanaryGetsNoRequestAtZeroPercentAndAllAtAHundred(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := unit.Draw(t, "u")
		for percent, want := range map[int]string{0: "old", 100: "new"} {
			a := Alias{Target: "old", Canary: "new", CanaryPercent: percent}
			if got := a.Model(a.Pick(u)); got != want {
				t.Fatalf("%d %%: %v picks %s", percent, u, got)
			}
		}
	})
}

func TestWithoutACanaryEveryRequestReachesTheTarget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Alias{Target: "old", CanaryPercent: rapid.IntRange(0, 100).Draw(t, "percent")}
		if got := a.Model(a.Pick(unit.Draw(t, "u"))); got != "old" {
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
			if a.Pick(draws.Float64()) == CanaryArm {
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
		if lower.Pick(u) == CanaryArm && higher.Pick(u) == BaseArm {
			t.Fatalf("%v is the canary's at %d %% and not at %d %%", u, percent, percent+1)
		}
	})
}

func TestEveryArmHasAnother(t *testing.T) {
	a := Alias{Target: "old", Canary: "new"}
	for arm, model := range map[Arm]string{BaseArm: "old", CanaryArm: "new"} {
		if arm.Other() == arm || arm.Other().Other() != arm || a.Model(arm) != model {
			t.Errorf("%s: %s, %s", arm, arm.Other(), a.Model(arm))
		}
	}
}

// Whether a request is drawn depends on its id and the percent alone, and a higher percent draws no request less. So
// neither the arm nor what becomes of the request can decide it.
func TestADrawDependsOnTheIDAlone(t *testing.T) {
	percent := rapid.OneOf(rapid.Just(0.0), rapid.Just(100.0), rapid.Float64Range(0, 100))
	rapid.Check(t, func(t *rapid.T) {
		name, p, q := rapid.String().Draw(t, "id"), percent.Draw(t, "percent"), percent.Draw(t, "other")
		drawn := (&Gate{Epoch: "ep_1", SamplePercent: p}).Draws(name)
		if drawn != (&Gate{Epoch: "ep_2", Stratum: 7, SamplePercent: p}).Draws(name) {
			t.Fatalf("%q is drawn by one gate of %v %% and not by another", name, p)
		}
		if other := (&Gate{SamplePercent: q}).Draws(name); p <= q && drawn && !other || q <= p && other && !drawn {
			t.Fatalf("%q is drawn at the lower percent alone of %v and %v", name, p, q)
		}
		if p == 0 && drawn || p == 100 && !drawn {
			t.Fatalf("%v at %v %%", drawn, p)
		}
	})
}

// The share of drawn requests is binomial, also for ids of one moment, and in either half of the random bits that pick
// the arm.
func TestDrawsFollowThePercent(t *testing.T) {
	const n = 20_000
	rapid.Check(t, func(t *rapid.T) {
		g := Gate{SamplePercent: rapid.Float64Range(1, 99).Draw(t, "percent")}
		at := time.UnixMicro(rapid.Int64Range(0, 1<<51).Draw(t, "time"))
		split, hits, counts := Alias{Canary: "new", CanaryPercent: 50}, map[Arm]float64{}, map[Arm]float64{}
		for range n {
			arm := split.Pick(rand.Float64())
			if counts[arm]++; g.Draws(id.At("req", at)) {
				hits[arm]++
			}
		}
		for arm, all := range counts {
			p := g.SamplePercent / 100
			if off := math.Abs(hits[arm] - all*p); off > 6*math.Sqrt(all*p*(1-p)) {
				t.Fatalf("%v of %v of the %s at %v %%", hits[arm], all, arm, g.SamplePercent)
			}
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
