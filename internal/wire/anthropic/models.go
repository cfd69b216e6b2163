package anthropic

import (
	"strings"

	"sovereign/internal/live"
)

// Traits are what a model takes otherwise than its wire would have it.
type traits uint

const (
	budgeted traits = 1 << iota // it thinks by a budget; the others think adaptively
	eager                       // it thinks unless it is told not to, and shows its thoughts where it is asked to
	restless                    // it cannot be told not to
	between                     // told not to, it thinks between calls alone, and wants to be told so
	unforced                    // it cannot be made to call a tool
	fixed                       // it samples in its own way
	either                      // it takes a temperature or a top_p
	modest                      // it knows no effort of xhigh
	led                         // its system prompt leads, and nothing of the system's comes later
)

// models are the traits of models by how their names begin; the first that fits counts. A model that is not here has
// none: Anthropic says itself what it does not take. The source is platform.claude.com (what is new in each model, and
// the guides to moving to it), as of November 2026.
var models = []struct {
	start string
	are   traits
}{
	{"claude-fable-5-1", eager | restless | unforced | fixed},
	{"claude-mythos-5-1", eager | restless | unforced | fixed},
	{"claude-opus-5-5", eager | restless | unforced | fixed},
	{"claude-sonnet-5-5", eager | between | unforced | fixed},
	{"claude-fable-5", eager | restless | fixed},
	{"claude-mythos-5", eager | restless | fixed},
	{"claude-opus-5", eager | fixed},
	{"claude-sonnet-5", eager | fixed},
	{"claude-haiku-5", eager | fixed},
	{"claude-opus-4-8", fixed},
	{"claude-opus-4-7", fixed | led},
	{"claude-opus-4-6", either | modest | led},
	{"claude-sonnet-4-6", either | modest | led},
	{"claude-opus-4-5", budgeted | either | led},
	{"claude-sonnet-4-5", budgeted | either | led},
	{"claude-haiku-4", budgeted | either | led},
	{"claude-opus-4-1", budgeted | either | led},
	{"claude-opus-4-0", budgeted | led},
	{"claude-opus-4-2", budgeted | led}, // 0250514
	{"claude-sonnet-4-0", budgeted | led},
	{"claude-sonnet-4-2", budgeted | led},
	{"claude-3", budgeted | led},
}

func traitsOf(m *live.Model) traits {
	for _, known := range models {
		if strings.HasPrefix(m.Upstream, known.start) {
			return known.are
		}
	}
	return 0
}

// has reports whether a trait is among them.
func (t traits) has(one traits) bool { return t&one != 0 }
