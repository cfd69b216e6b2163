package anthropic

import (
	"strings"

	"sovereign/internal/live"
)

// traits are the differences of a model from the newest behaviour of the API.
type traits uint

const (
	thinksByBudget     traits = 1 << iota // thinking needs a budget; other models think adaptively
	thinksByDefault                       // thinks unless disabled, and shows thoughts on request
	alwaysThinks                          // thinking cannot be disabled
	thinksBetweenTools                    // thinking can be limited to between_tools, not disabled
	noForcedTool                          // a tool call cannot be forced
	fixedSampling                         // sampling parameters are refused
	temperatureOrTopP                     // accepts temperature or top_p, not both
	noXHighEffort                         // does not support the effort xhigh
	leadingSystemOnly                     // system messages are allowed at the start only
)

// models lists traits by prefix of the model's name; the first match counts. A model without an entry has no traits:
// Anthropic itself refuses what it does not support. Source: platform.claude.com (release notes and migration guides of
// each model), as of November 2026.
var models = []struct {
	start string
	are   traits
}{
	{"claude-fable-5-1", thinksByDefault | alwaysThinks | noForcedTool | fixedSampling},
	{"claude-mythos-5-1", thinksByDefault | alwaysThinks | noForcedTool | fixedSampling},
	{"claude-opus-5-5", thinksByDefault | alwaysThinks | noForcedTool | fixedSampling},
	{"claude-sonnet-5-5", thinksByDefault | thinksBetweenTools | noForcedTool | fixedSampling},
	{"claude-fable-5", thinksByDefault | alwaysThinks | fixedSampling},
	{"claude-mythos-5", thinksByDefault | alwaysThinks | fixedSampling},
	{"claude-opus-5", thinksByDefault | fixedSampling},
	{"claude-sonnet-5", thinksByDefault | fixedSampling},
	{"claude-haiku-5", thinksByDefault | fixedSampling},
	{"claude-opus-4-8", fixedSampling},
	{"claude-opus-4-7", fixedSampling | leadingSystemOnly},
	{"claude-opus-4-6", temperatureOrTopP | noXHighEffort | leadingSystemOnly},
	{"claude-sonnet-4-6", temperatureOrTopP | noXHighEffort | leadingSystemOnly},
	{"claude-opus-4-5", thinksByBudget | temperatureOrTopP | leadingSystemOnly},
	{"claude-sonnet-4-5", thinksByBudget | temperatureOrTopP | leadingSystemOnly},
	{"claude-haiku-4", thinksByBudget | temperatureOrTopP | leadingSystemOnly},
	{"claude-opus-4-1", thinksByBudget | temperatureOrTopP | leadingSystemOnly},
	{"claude-opus-4-0", thinksByBudget | leadingSystemOnly},
	{"claude-opus-4-2", thinksByBudget | leadingSystemOnly}, // claude-opus-4-20250514
	{"claude-sonnet-4-0", thinksByBudget | leadingSystemOnly},
	{"claude-sonnet-4-2", thinksByBudget | leadingSystemOnly},
	{"claude-3", thinksByBudget | leadingSystemOnly},
}

func traitsOf(m *live.Model) traits {
	for _, known := range models {
		if strings.HasPrefix(m.Upstream, known.start) {
			return known.are
		}
	}
	return 0
}

// has reports whether a trait is set.
func (t traits) has(one traits) bool { return t&one != 0 }
