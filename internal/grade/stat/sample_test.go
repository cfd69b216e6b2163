package stat

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is missing or errored, each decision is reached less easily than if the verdict were known.
func TestASampleWithoutAVerdictIsNeverEvidenceForADecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		falsePass := rapid.Float64Range(0, 0.5).Draw(t, "falsePass")
		var known, unknown Evidence
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			s := Sample{
				Stratum: rapid.IntRange(1, 3).Draw(t, "stratum"), Canary: rapid.Bool().Draw(t, "canary"),
				Result:  rapid.SampledFrom([]Result{Passed, Rejected}).Draw(t, "result"),
				Uniform: rapid.Float64Range(0, 0.999).Draw(t, "u"),
			}
			known.Add(s, falsePass)
			if rapid.Bool().Draw(t, "lost") {
				s.Result = Missing
			}
			unknown.Add(s, falsePass)
		}
		for i := range known.Promote {
			k, u := known.Promote[i], unknown.Promote[i]
			if k.Base.N != u.Base.N || k.Canary.N != u.Canary.N || u.Canary.Passed > k.Canary.Passed || u.Base.Passed < k.Base.Passed {
				t.Fatalf("promote: %+v becomes %+v", k, u)
			}
			k, u = known.RollBack[i], unknown.RollBack[i]
			if k.Base.N != u.Base.N || k.Canary.N != u.Canary.N || u.Canary.Passed < k.Canary.Passed || u.Base.Passed > k.Base.Passed {
				t.Fatalf("roll back: %+v becomes %+v", k, u)
			}
		}
	})
}

func TestASampleBelongsToItsStratum(t *testing.T) {
	var e Evidence
	e.Add(Sample{Stratum: 1, Percent: 5, Result: Passed}, 0)
	e.Add(Sample{Stratum: 3, Percent: 50, Canary: true, Result: Rejected}, 0)
	want := Strata{{Percent: 5, Base: Arm{1, 1}}, {}, {Percent: 50, Canary: Arm{1, 0}}}
	if !slices.Equal(e.Promote, want) || !slices.Equal(e.RollBack, want) {
		t.Errorf("%+v, want %+v", e, want)
	}
}

func TestAnErroredRequestPassesAsOftenAsTheJudgePassesBadAnswers(t *testing.T) {
	const n, falsePass = 1000, 0.2
	var e Evidence
	for i := range n {
		for _, canary := range []bool{false, true} {
			e.Add(Sample{Stratum: 1, Canary: canary, Result: Errored, Uniform: float64(i) / n}, falsePass)
		}
	}
	want := Evidence{
		Promote:  Strata{{Base: Arm{n, 200}, Canary: Arm{n, 0}}},
		RollBack: Strata{{Base: Arm{n, 0}, Canary: Arm{n, 200}}},
	}
	if e.Promote[0] != want.Promote[0] || e.RollBack[0] != want.RollBack[0] {
		t.Errorf("%+v, want %+v", e, want)
	}
}
