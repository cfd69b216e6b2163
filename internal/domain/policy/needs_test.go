package policy

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/domain/alias"
)

// No sequence of allowed changes, deletions included, has an alias route to a model that was never proven against the
// incumbent of its day, but for canaries of a small share. Going back to the model before is always allowed.
func TestSerialNoSequenceOfAllowedChangesReachesAnUnprovenModel(t *testing.T) {
	models := []string{"sim/a", "sim/b", "sim/c", "sim/d", "sim/e"}
	rapid.Check(t, func(t *rapid.T) {
		p := standard
		p.MaxUnprovenCanaryPercent = rapid.Int64Range(0, 100).Draw(t, "most")
		anyModel := rapid.SampledFrom(models)
		draw := func() alias.Alias {
			a := alias.Alias{
				Name: "support", TargetModel: anyModel.Draw(t, "target"),
				FallbackModels: rapid.SliceOfNDistinct(anyModel, 0, 2, rapid.ID[string]).Draw(t, "fallbacks"),
			}
			if rapid.Bool().Draw(t, "split") {
				a.CanaryModel = anyModel.Draw(t, "canary")
				a.CanaryPercent = rapid.SampledFrom([]int{0, 1, 20, 50, 99, 100}).Draw(t, "percent")
			}
			return a
		}
		first := draw()
		now, before := &alias.Incumbent{Model: standsFor(&first)}, &first
		proven := p.routed(&first)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
				before = nil
				continue
			}
			after := draw()
			needs := p.needs(alias.Change{Incumbent: now, Before: before, After: after})
			back := alias.Alias{Name: "support", TargetModel: now.Previous}
			if now.Previous != "" && len(p.needs(alias.Change{Incumbent: now, Before: before, After: back})) > 0 {
				t.Fatalf("%+v cannot go back", now)
			}
			if rapid.IntRange(0, 3).Draw(t, "proof") == 0 { // somebody proves all that is needed
				for _, n := range needs {
					proven = append(proven, n.Model)
				}
			} else if len(needs) > 0 {
				continue // refused
			}
			for _, model := range p.routed(&after) {
				if !slices.Contains(proven, model) {
					t.Fatalf("%s of %+v was never proven", model, after)
				}
			}
			if model := standsFor(&after); model != now.Model {
				now = &alias.Incumbent{Model: model, Previous: now.Model}
			}
			before = &after
		}
	})
}

// routed returns the models that answer requests of a, but for a canary of a small share.
func (p *EvidencePolicy) routed(a *alias.Alias) []string {
	all := append([]string{a.TargetModel}, a.FallbackModels...)
	if a.CanaryPercent == 100 || int64(a.CanaryPercent) > p.MaxUnprovenCanaryPercent {
		all = append(all, a.CanaryModel)
	}
	return all
}

// standsFor is the model that a's name stands for.
func standsFor(a *alias.Alias) string {
	if a.CanaryPercent == 100 {
		return a.CanaryModel
	}
	return a.TargetModel
}

// However many evals of a pair are started, each after a look at the last, they err together at most as often as the
// policy allows; and every suggested confidence is one that a gate takes.
func TestEvalsOneAfterTheOtherKeepTheConfidenceTogether(t *testing.T) {
	for _, confidence := range []float64{0.5, 0.95, 0.9999} {
		p := EvidencePolicy{Confidence: confidence}
		sum, last := 0.0, 1.0
		for n := int64(1); n <= 1_000_000; n++ {
			alpha := p.alpha(n)
			if alpha > last || alpha > (1-confidence)/float64(n) {
				t.Fatalf("eval %d may err with %g", n, alpha)
			}
			sum, last = sum+alpha, alpha
		}
		if sum > (1-confidence)*(1+1e-9) || sum < 0.99*(1-confidence) {
			t.Errorf("together they may err with %g of %g", sum, 1-confidence)
		}
		for _, n := range []int64{1, 2, 20, maxStarted} {
			suggested, err := strconv.ParseFloat(number(1-p.alpha(n)), 64)
			if err != nil || suggested > 0.999999999 || 1-suggested > p.alpha(n)+1e-12 {
				t.Errorf("eval %d: %v is suggested, for %g; %v", n, suggested, p.alpha(n), err)
			}
		}
	}
}
