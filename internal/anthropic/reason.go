package anthropic

import (
	"fmt"
	"slices"
	"strings"

	"sovereign/internal/chat"
	"sovereign/internal/fault"
	"sovereign/internal/live"
)

// thinking says whether and how a model thinks before it answers.
type thinking struct {
	Type         string `json:"type"` // disabled, adaptive, enabled
	Display      string `json:"display,omitempty"`
	BudgetTokens int64  `json:"budget_tokens,omitzero"`
}

// efforts are OpenAI's words for how hard to think, with the share of max_tokens, in percent, that each is where a model
// wants a budget.
var efforts = map[string]int64{"minimal": 0, "low": 20, "medium": 50, "high": 80, "xhigh": 95}

// budgeted are how the names of models begin that think by a budget alone. All others think adaptively.
var budgeted = []string{
	"claude-3", "claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-2", "claude-opus-4-5",
	"claude-sonnet-4-0", "claude-sonnet-4-2", "claude-sonnet-4-5", "claude-haiku-4",
}

// leastBudget is the smallest that Anthropic takes.
const leastBudget = 1024

// reason says how hard the model shall think, and refuses what Anthropic does not allow beside it.
func (q *question) reason(r *chat.Request, m *live.Model) error {
	const field = "reasoning_effort"
	share, known := efforts[r.ReasoningEffort]
	byBudget := slices.ContainsFunc(budgeted, func(start string) bool { return strings.HasPrefix(m.Upstream, start) })
	switch {
	case r.ReasoningEffort == "":
		return nil
	case r.ReasoningEffort == "none":
		q.Thinking = &thinking{Type: "disabled"}
		return nil
	case !known:
		return fault.Invalid(field, "must be none, minimal, low, medium, high or xhigh")
	case byBudget && q.MaxTokens <= leastBudget:
		return chat.Unsupported(field, fmt.Sprintf("needs max_tokens over %d with this model", leastBudget))
	case byBudget:
		q.Thinking = &thinking{Type: "enabled", BudgetTokens: max(leastBudget, q.MaxTokens/100*share)}
	case r.ReasoningEffort == "minimal":
		return chat.Unsupported(field, "minimal has no equivalent with this model; low has")
	default:
		q.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
		q.OutputConfig.Effort = r.ReasoningEffort
	}
	switch {
	case q.Temperature != nil && *q.Temperature != 1:
		return chat.Unsupported("temperature", "can only be 1 where the model reasons, in the "+wire)
	case q.TopP != nil && *q.TopP < 0.95:
		return chat.Unsupported("top_p", "cannot be below 0.95 where the model reasons, in the "+wire)
	case q.TopK != nil:
		return chat.Unsupported("top_k", "cannot be said where the model reasons, in the "+wire)
	case q.ToolChoice.forced():
		return chat.Unsupported("tool_choice", "cannot force a call where the model reasons, in the "+wire)
	}
	return nil
}

// thoughts are an assistant's, as Anthropic wants them back. Its words alone are worth nothing to it, and those that are
// another provider's are not for it.
func thoughts(m *chat.Message, at string) (all []block, err error) {
	var words strings.Builder
	for i, t := range chat.Whole(m.ReasoningDetails) {
		switch {
		case !t.Of(chat.OfAnthropic):
		case t.Type == chat.ThoughtText && t.Signature != "" && t.Data == "":
			all = append(all, block{Type: blockThinking, Thinking: &t.Text, Signature: t.Signature})
		case t.Type == chat.ThoughtSealed && t.Data != "" && t.Text == "" && t.Signature == "":
			all = append(all, block{Type: blockSealed, Data: t.Data})
		default:
			return nil, chat.Unsupported(fmt.Sprintf("%s.reasoning_details[%d]", at, i), "is neither a signed thought nor a sealed one")
		}
		words.WriteString(t.Text)
	}
	if said := m.ReasoningContent; said != nil && *said != "" && *said != words.String() {
		return nil, chat.Unsupported(at+".reasoning_content", "cannot be given back without the signed reasoning_details that say the same")
	}
	return all, nil
}
