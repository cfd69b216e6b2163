package anthropic

import (
	"fmt"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/wire/chat"
)

// thinking says whether and how a model thinks before it answers.
type thinking struct {
	Type         string `json:"type"` // disabled, between_tools, adaptive, enabled
	Display      string `json:"display,omitempty"`
	BudgetTokens int64  `json:"budget_tokens,omitzero"`
}

// efforts are OpenAI's words for how hard to think, with the share of max_tokens, in percent, that each is where a model
// wants a budget.
var efforts = map[string]int64{"minimal": 0, "low": 20, "medium": 50, "high": 80, "xhigh": 95}

// leastBudget is the smallest that Anthropic takes.
const leastBudget = 1024

// reason says how hard the model shall think, and refuses what Anthropic does not allow beside it. A model that thinks
// unasked is asked to show it; one that has to call a tool is left to itself.
func (q *question) reason(r *chat.Request, m *live.Model) error {
	is, forced := traitsOf(m), q.ToolChoice.forced()
	switch {
	case is.has(unforced) && forced:
		return chat.Unsupported("tool_choice", "cannot force a call with this model")
	case r.ReasoningEffort == "none":
		return q.rest(is)
	case r.ReasoningEffort != "":
		return q.strive(r.ReasoningEffort, is)
	case is.has(eager) && !forced:
		q.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
	}
	return nil
}

// rest turns thinking off, as far as the model can.
func (q *question) rest(is traits) error {
	if is.has(restless) {
		return chat.Unsupported("reasoning_effort", "cannot be none with this model; low is the least")
	}
	q.Thinking = &thinking{Type: "disabled"}
	if is.has(between) {
		q.Thinking.Type = "between_tools"
	}
	return nil
}

// strive asks for an effort.
func (q *question) strive(effort string, is traits) error {
	const field = "reasoning_effort"
	share, known := efforts[effort]
	switch {
	case !known:
		return fault.Invalid(field, "must be none, minimal, low, medium, high or xhigh")
	case is.has(budgeted) && q.MaxTokens <= leastBudget:
		return chat.Unsupported(field, fmt.Sprintf("needs max_tokens over %d with this model", leastBudget))
	case is.has(budgeted):
		q.Thinking = &thinking{Type: "enabled", BudgetTokens: max(leastBudget, q.MaxTokens/100*share)}
	case effort == "minimal":
		return chat.Unsupported(field, "minimal has no equivalent with this model; low has")
	case effort == "xhigh" && is.has(modest):
		return chat.Unsupported(field, "xhigh has no equivalent with this model; high has")
	default:
		q.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
		q.OutputConfig.Effort = effort
	}
	at, thoughtless := q.thoughtless()
	switch {
	case q.Temperature != nil:
		return chat.Unsupported("temperature", "can only be 1 where the model reasons, in the "+wire)
	case q.TopP != nil && *q.TopP < 0.95:
		return chat.Unsupported("top_p", "cannot be below 0.95 where the model reasons, in the "+wire)
	case q.TopK != nil:
		return chat.Unsupported("top_k", "cannot be said where the model reasons, in the "+wire)
	case q.ToolChoice.forced():
		return chat.Unsupported("tool_choice", "cannot force a call where the model reasons, in the "+wire)
	case is.has(budgeted) && thoughtless:
		return chat.Unsupported(at+".reasoning_details", "must hold the model's own thought before its calls where this model reasons")
	}
	return nil
}

// thoughtless finds calls whose results are still to be answered to, and before which there was no thought. A model that
// thinks by a budget does not go on from there.
func (q *question) thoughtless() (at string, is bool) {
	holds := func(t turn, kinds ...string) bool {
		return slices.ContainsFunc(t.Content, func(b block) bool { return slices.Contains(kinds, b.Type) })
	}
	for _, t := range slices.Backward(q.Messages) {
		switch {
		case t.Role == byUser && !holds(t, blockResult), holds(t, blockThinking, blockSealed):
			return at, is && t.Role == byUser
		case holds(t, blockCall):
			at, is = t.at, true
		}
	}
	return at, is
}
