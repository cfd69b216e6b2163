package label

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// turns makes the exchanges of one conversation. Each is the beginning of the next.
func turns(name string, n int) (all []New) {
	var said []string
	for i := range n {
		said = append(said, fmt.Sprint(name, " asks ", i), fmt.Sprint(name, " is told ", i))
		all = append(all, inline(judge.Pass, said...))
	}
	return all
}

// halves creates labels, and returns whether each is in the report half.
func (f fixture) halves(t dbtest.T, ws tenant.ID, all []New) []bool {
	t.Helper()
	var where []bool
	for _, l := range f.make(t, ws, all...) {
		where = append(where, l.InReportHalf)
	}
	return where
}

// In whatever order they are graded, turns of one conversation are in one half, and so are answers to one question, and
// the steps of a run with the run. A judge that was shown one of them has seen the others.
func TestRelatedExchangesAreInOneHalf(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		families := map[string]func(name string, n int) []New{
			"a conversation": turns,
			"one question": func(name string, n int) (all []New) {
				for i := range n {
					all = append(all, inline(judge.Fail, name+" what?", "first", name+" and then?", fmt.Sprint("answer ", i)))
				}
				return all
			},
			"a run": func(name string, n int) []New {
				all := []New{{TraceID: name, Verdict: judge.Pass}}
				for i := range n {
					request := fmt.Sprintf("req_%s_%d", name, i)
					f.log(request, name, fmt.Sprint(name, " step ", i), "done")
					all = append(all, New{RequestID: request, Verdict: judge.Pass})
				}
				return all
			},
		}
		kinds := slices.Sorted(maps.Keys(families))
		rapid.Check(t, func(t *rapid.T) {
			ws, family := f.fresh(t), families[rapid.SampledFrom(kinds).Draw(t, "kind")]
			for i := range 2 { // beside one that it has no relation to
				clear(f.logs.requests)
				members := family(fmt.Sprint("family", i), rapid.IntRange(2, 4).Draw(t, "members"))
				for key, one := range f.logs.requests {
					one.ws = ws
					f.logs.requests[key] = one
				}
				members = rapid.Permutation(members).Draw(t, "order")
				var where []bool
				for len(members) > 0 {
					n := rapid.IntRange(1, len(members)).Draw(t, "at once")
					where = append(where, f.halves(t, ws, members[:n])...)
					members = members[n:]
				}
				if len(slices.Compact(where)) != 1 {
					t.Fatal("it is in both halves")
				}
			}
		})
	})
}

func TestTurnsThatAreGradedConcurrentlyAreInOneHalf(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		for round := range 6 {
			ws, members := f.fresh(t), turns(fmt.Sprint("round ", round), 6)
			where := make([]bool, len(members))
			var group sync.WaitGroup
			for i := range members {
				group.Go(func() {
					made, err := f.Create(t.Context(), ws, ann, members[i:i+1], at)
					if err != nil {
						t.Error(err)
						return
					}
					where[i] = made[0].InReportHalf
				})
			}
			group.Wait()
			if len(slices.Compact(where)) != 1 {
				t.Fatalf("it is in both halves")
			}
		}
	})
}

// Branches of one conversation are related. A beginning that very many exchanges share is a template.
func TestBranchesAreInOneHalfAndTemplatesRelateNothing(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		branches := func(root string, n int) (all []New) {
			for i := range n {
				all = append(all, inline(judge.Pass, root, "answer", fmt.Sprint("branch ", i), "answer"))
			}
			return all
		}
		for round := range 8 {
			ws, root := f.fresh(t), fmt.Sprint("root ", round)
			where := append(f.halves(t, ws, branches(root, 6)), f.halves(t, ws, []New{inline(judge.Pass, root, "answer")})...)
			if len(slices.Compact(where)) != 1 {
				t.Errorf("a conversation is in both halves: %v", where)
			}
		}
		where := f.halves(t, f.fresh(t), branches("template", 80))
		if !slices.Contains(where[maxShared:], true) || !slices.Contains(where[maxShared:], false) {
			t.Errorf("what begins alike is all in one half: %v", where)
		}
	})
}

// A label may connect two conversations that were drawn into different halves.
func TestALabelThatConnectsBothHalvesMeasuresNothing(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		for round := range 12 {
			ws, asked := f.fresh(t), fmt.Sprint("asked ", round)
			where := f.halves(t, ws, []New{inline(judge.Pass, asked, "another answer"), inline(judge.Pass, asked, "answer", "later", "answer")})
			made := f.make(t, ws, inline(judge.Pass, asked, "answer"))[0]
			if made.InBothHalves != (where[0] != where[1]) || !made.InBothHalves && made.InReportHalf != where[0] {
				t.Errorf("what it belongs to is in %v, and it is %+v", where, made)
			}
			some, err := Examples(t.Context(), f.db.In(ws), "crit_1", judge.Pass, 10)
			if err != nil {
				t.Fatal(err)
			}
			if shown := slices.ContainsFunc(some, func(e Example) bool { return e.ID == made.ID }); shown != (!where[0] && !where[1]) {
				t.Errorf("what it belongs to is in %v, and judges are shown it: %v", where, shown)
			}
		}
	})
}

func TestAnUngradedExchangeHasTheHalfThatItWouldBeGradedIn(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		half := func(trace string, said ...string) (report bool) {
			t.Helper()
			relations := RelationsOf([]judge.Step{talk(said...)}, trace)
			if _, err := f.db.Tx(t.Context(), func(tx *db.Tx) error {
				halves, err := OpenSplit(t.Context(), tx, mine, relations)
				if err == nil {
					report = halves.Half(relations) == Report
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return report
		}
		seen := map[bool]int{}
		for i := range 40 {
			asked, run := fmt.Sprint("asked ", i), fmt.Sprint("run ", i)
			first := half("", asked, "one answer")
			if half("", asked, "another") != first || half("", asked, "one answer") != first {
				t.Errorf("answers to %s are in both halves", asked)
			}
			if half(run, asked, "a step") != half(run, "something else", "another step") {
				t.Errorf("steps of %s are in both halves", run)
			}
			if made := f.make(t, mine, inline(judge.Pass, asked, "one answer"))[0]; made.InReportHalf != first {
				t.Errorf("%s is graded in another half", asked)
			}
			seen[first]++
		}
		if len(seen) != 2 {
			t.Error(seen)
		}
	})
}

func TestHalvesAreDrawnWithASecretAndStay(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		const n = 400
		var all []New
		for i := range n {
			all = append(all, inline(judge.Pass, fmt.Sprint("independent ", i), "yes"))
		}
		made := f.make(t, mine, all...)
		var where []bool
		report := 0.0
		for _, l := range made {
			where = append(where, l.InReportHalf)
			if l.InReportHalf {
				report++
			}
		}
		if sigma := math.Sqrt(n) / 2; math.Abs(report-n/2) > 5*sigma {
			t.Errorf("%v of %d are in the report half", report, n)
		}
		if slices.Equal(f.halves(t, theirs, all), where) {
			t.Error("two workspaces draw alike: the half of an item can be predicted")
		}
		for _, l := range made[:40] {
			if err := f.Delete(t.Context(), mine, ann, l.ID); err != nil {
				t.Fatal(err)
			}
		}
		slices.Reverse(all[:40])
		slices.Reverse(where[:40])
		if again := f.halves(t, mine, all[:40]); !slices.Equal(again, where[:40]) {
			t.Error("what was held out is not held out when it is graded again")
		}
	})
}
