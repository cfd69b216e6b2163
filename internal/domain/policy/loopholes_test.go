package policy_test

import (
	"fmt"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/policy"
	"sovereign/internal/grade/stat"
)

// Ways around the policy, each closed.

func TestDeletingAnAliasAndMakingItAnewIsARepoint(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.deletes("support")
		f.refuses(to(modelB))
		f.refuses(split(modelA, modelB, 100))
		f.allows(to(modelA))
		f.found.add(proof(modelA, modelB))
		f.allows(to(modelB))
		f.deletes("support")
		f.allows(to(modelA)) // the one before is no repoint, deleted or not
	})
}

func TestALargeCanaryIsARepoint(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.allows(split(modelA, modelB, 20))
		for _, percent := range []int{21, 50, 99, 100} {
			f.refuses(split(modelA, modelB, percent), fmt.Sprintf("a canary of %d %%", percent))
		}
		f.set(policy.EvidencePolicyChange{MaxUnprovenCanaryPercent: new(int64(100))})
		f.allows(split(modelA, modelB, 99))
		f.refuses(split(modelA, modelB, 100), "a canary of 100 %")
	})
}

func TestACutOverMakesTheCanaryTheIncumbent(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.found.add(proof(modelA, modelB))
		f.allows(split(modelA, modelB, 100))
		f.allows(to(modelB)) // no repoint
		f.refuses(to(modelC), "replace sim/b")
		f.allows(to(modelA)) // a return
	})
}

// The policy's promise is for all evals of a pair together. Evidence that is enough alone is not enough as one of many.
func TestEvalsThatAreRepeatedUntilOnePassesProveNothing(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		scarce := func(e *finding) {
			e.evidence.Cases, e.evidence.Pairs = 400, stat.Pairs{Both: 380, First: 5, Second: 5, Neither: 10}
		}
		unfinished := func(e *finding) { e.id, e.done = "eval_cancelled", false }
		for range 40 { // cancelled as soon as they looked bad
			f.found.add(proof(modelA, modelB, unfinished))
		}
		f.found.add(proof(modelA, modelB, scarce))
		f.refuses(to(modelB))
		f.found.evals = f.found.evals[40:]
		f.allows(to(modelB))
	})
}

// An eval does not become a better proof when those before it are too old to count: it was started because they failed.
func TestAnEvalStaysTheOneThatItWasWhenItStarted(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		scarce := func(age int) func(*finding) {
			return func(e *finding) {
				e.at = clock.Of(e.at.Std().Add(-days(age)))
				e.evidence.Cases, e.evidence.Pairs = 400, stat.Pairs{Both: 380, First: 5, Second: 5, Neither: 10}
			}
		}
		f.found.add(proof(modelA, modelB, scarce(20)))
		for range 5 {
			f.found.add(proof(modelA, modelB, scarce(40), func(e *finding) { e.done = false }))
		}
		f.refuses(to(modelB))
		f.found.evals = f.found.evals[:1]
		f.allows(to(modelB))
	})
}

func TestSerialAHundredEvalsOfAPairAreTheMostThatProveSomething(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		huge := func(e *finding) { e.evidence.Cases, e.evidence.Pairs = 100_000, stat.Pairs{Both: 100_000} }
		f.found.add(proof(modelA, modelB, huge))
		for range 100 {
			f.found.add(proof(modelA, modelB, func(e *finding) { e.done = false }))
		}
		f.refuses(to(modelB), "more than 100 evals", "confidence=0.99999899")
		f.found.evals = f.found.evals[:100]
		f.allows(to(modelB))
	})
}

func TestReturningIsAlwaysAllowedAndOnlyToTheModelBefore(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.found.add(proof(modelA, modelB), proof(modelB, modelC))
		f.allows(to(modelB))
		f.allows(to(modelC))
		f.found.evals = nil
		f.refuses(to(modelA)) // two repoints ago
		f.allows(to(modelB))
		f.allows(to(modelC)) // and forth
		f.refuses(to(modelA))
		f.allows(split(modelC, modelB, 100))
		f.allows(split(modelB, modelC, 60))
	})
}

// A return does not make the next repoint free.
func TestAReturnIsNoFirstStepToAnUnprovenModel(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.found.add(proof(modelA, modelB), proof(modelB, modelC))
		f.allows(to(modelB))
		f.allows(to(modelA))
		f.refuses(to(modelC), "replace sim/a") // it is proven against sim/b, which is in force no more
	})
}

func TestSwappingTargetAndCanaryIsARepoint(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.allows(split(modelA, modelB, 20))
		f.refuses(split(modelB, modelA, 80)) // the same shares, but then the canary could be removed
		f.refuses(split(modelB, modelA, 100))
		f.refuses(split(modelB, modelB, 20))
	})
}

func TestACanaryIsNotTheModelBefore(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.allows(split(modelA, modelC, 20))
		f.allows(to(modelA))
		f.refuses(to(modelC))
		f.found.add(proof(modelA, modelB))
		f.allows(split(modelB, modelC, 20))
		f.refuses(to(modelC))
	})
}

// A target that fails, as with a provider's key that was set wrong on purpose, gives all its requests to a fallback.
func TestAFallbackIsProvenLikeATarget(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		with := func(target string, fallbacks ...string) alias.Alias {
			return alias.Alias{Name: "support", TargetModel: target, FallbackModels: fallbacks}
		}
		f.allows(with(modelA, modelA))
		f.refuses(with(modelA, modelA, modelC), "a new fallback")
		f.found.add(proof(modelA, modelB), proof(modelA, modelC))
		f.allows(with(modelA, modelC))
		f.allows(with(modelB, modelC)) // a fallback stays one
		f.found.evals = nil
		f.allows(with(modelB, modelA, modelC)) // the model before is proven
		f.refuses(to(modelC))
		f.allows(to(modelB))
		f.refuses(with(modelB, modelC)) // it was removed
	})
}

// Names are case-sensitive, for the policy as for requests: an alias of another name serves other requests.
func TestANameIsItsOwnInEveryCase(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.allows(alias.Alias{Name: "Support", TargetModel: modelB})
		f.refuses(to(modelB))
		f.refuses(alias.Alias{Name: "Support", TargetModel: modelA})
	})
}

func TestAChangeThatRoutesNoModelMoreNeedsNoProof(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.found.add(proof(modelA, modelB), proof(modelA, modelC))
		f.allows(split(modelC, modelB, 100)) // two new models, of which one has no share
		f.found.evals = nil
		described := split(modelC, modelB, 100)
		described.Description = "answers customers"
		f.allows(described)
		f.refuses(split(modelC, modelB, 99)) // a share for sim/c
		f.found.add(proof(modelB, modelC))
		f.allows(split(modelC, modelB, 60))
		f.found.evals = nil
		f.allows(split(modelC, modelB, 30)) // less of a canary that is proven no more
		f.allows(split(modelC, modelB, 60)) // and more again: it was in force before the last repoint
	})
}

func TestAPromotedCanaryOfTheAliasIsAProof(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.allows(to(modelA))
		f.allows(split(modelA, modelB, 20))
		f.found.promoted = map[[3]string]bool{{"support", modelA, modelC}: true, {"other", modelA, modelB}: true}
		f.refuses(to(modelB))
		f.found.promoted = map[[3]string]bool{{"support", modelA, modelB}: true}
		f.allows(to(modelB))
	})
}
