package reward_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/domain/reward"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func candidates(n int, prompt func(i int) string) []reward.Candidate {
	all := make([]reward.Candidate, n)
	for i := range all {
		all[i] = reward.Candidate{
			Position: int64(i + 1), Prompt: []byte(prompt(i)), Completion: fmt.Append(nil, "completion ", i), Scored: true,
		}
	}
	return all
}

func TestASampleHasOneCompletionPerPrompt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, prompts := rapid.IntRange(0, 200).Draw(t, "items"), rapid.IntRange(1, 40).Draw(t, "prompts")
		size := rapid.IntRange(8, 64).Draw(t, "size")
		all := candidates(n, func(i int) string { return strconv.Itoa(i % prompts) })
		for i := range all {
			all[i].Scored = rapid.Bool().Draw(t, "scored")
		}
		compared, masked := reward.Draw(all, size, seeded(rapid.Uint64().Draw(t, "seed")))
		drawn, scored, unscored := map[string]bool{}, map[string]bool{}, 0
		for _, c := range all {
			if c.Scored {
				scored[string(c.Prompt)] = true
			} else {
				unscored++
			}
		}
		for _, position := range compared {
			c := all[position-1]
			if drawn[string(c.Prompt)] || !c.Scored {
				t.Fatalf("%d is drawn: %+v", position, c)
			}
			drawn[string(c.Prompt)] = true
		}
		if len(compared) != min(size, len(scored)) || int(masked) > unscored {
			t.Fatalf("%d and %d of %d prompts are drawn, of which %d have a reward", len(compared), masked, prompts, len(scored))
		}
	})
}

// A trainer that scores a good completion again and again, under many ids and steps, does not make it more likely to be
// drawn than a bad one.
func TestACompletionThatIsScoredOftenIsNotDrawnMoreOften(t *testing.T) {
	bad := 0
	for seed := range uint64(2000) {
		all := candidates(100, func(int) string { return "the only prompt" })
		for i := range all[:99] {
			all[i].Completion = []byte("good")
		}
		compared, _ := reward.Draw(all, 8, seeded(seed))
		if compared[0] == 100 {
			bad++
		}
	}
	if bad < 850 || bad > 1150 { // 1,000 are expected, with a standard deviation of 22
		t.Errorf("of two completions the one that was scored once is drawn %d of 2000 times", bad)
	}
}

func TestEveryPromptIsAsLikelyToBeDrawn(t *testing.T) {
	counts := map[int64]int{}
	for seed := range uint64(4000) {
		compared, _ := reward.Draw(candidates(32, strconv.Itoa), 8, seeded(seed))
		for _, position := range compared {
			counts[position]++
		}
	}
	for position := range int64(32) {
		if n := counts[position+1]; n < 830 || n > 1170 { // 1,000 are expected, with a standard deviation of 27
			t.Errorf("item %d is drawn %d of 4000 times", position+1, n)
		}
	}
}

// A trainer that sends completions which no judge can grade does not hide the one of the prompt that has a reward.
func TestItemsWithoutARewardHideNoOther(t *testing.T) {
	for seed := range uint64(100) {
		all := candidates(100, func(i int) string { return strconv.Itoa(i % 10) })
		for i := range all {
			all[i].Scored = i < 10
		}
		if compared, masked := reward.Draw(all, 64, seeded(seed)); len(compared) != 10 || masked == 0 {
			t.Fatalf("%d are drawn, and %d are masked", len(compared), masked)
		}
	}
}

// A trainer that scores completions of a prompt until one passes does not look like one that games its judge: what is
// drawn passes as often as what was scored.
func TestWhoStopsAtAPassHasNoMorePassesDrawn(t *testing.T) {
	random, drawn, passes := seeded(7), 0.0, 0.0
	for range 200 {
		var all []reward.Candidate
		passed := map[int64]bool{}
		for prompt := range 300 {
			for stop := false; !stop; {
				position := int64(len(all) + 1)
				all = append(all, reward.Candidate{
					Position: position, Prompt: fmt.Append(nil, prompt), Completion: fmt.Append(nil, position), Scored: true,
				})
				stop = random.Float64() < 0.3
				passed[position] = stop
			}
		}
		compared, _ := reward.Draw(all, 64, random)
		for _, position := range compared {
			if drawn++; passed[position] {
				passes++
			}
		}
	}
	if rate := passes / drawn; rate > 0.36 { // 0.3 of the completions pass; each prompt as likely as any other made 0.52
		t.Errorf("%.3f of what is drawn passes", rate)
	}
}
