package fold

import (
	"strings"
	"testing"
)

// TestKeysTakesLinearSteps counts nodes and hashed bytes: ten times the turns may take about ten times the steps, and
// would take 100 times if every turn hashed the turns before it.
func TestKeysTakesLinearSteps(t *testing.T) {
	steps := func(rounds int) int {
		const round = `,{"role":"assistant","content":"Hi!"},{"role":"user","content":"More."}`
		messages := []byte(`[{"role":"user","content":"Hello"}` + strings.Repeat(round, rounds) + `]`)
		var s scratch
		if _, err := s.chain(messages, []byte(`{"role":"assistant","content":"Hi!"}`)); err != nil {
			t.Fatal(err)
		}
		return s.steps
	}
	if short, long := steps(10), steps(100); short == 0 || long > 11*short {
		t.Errorf("%d steps for 10 rounds, and %d for 100", short, long)
	}
}
