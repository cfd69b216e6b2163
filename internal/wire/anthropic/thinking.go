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

// efforts are the values of reasoning_effort with their thinking budget in percent of max_tokens.
var efforts = map[string]int64{"minimal": 0, "low": 20, "medium": 50, "high": 80, "xhigh": 95}

// minBudget is the smallest thinking budget that Anthropic accepts.
const minBudget = 1024

// setThinking translates reasoning_effort and refuses parameters that Anthropic does not allow beside it. Without
// reasoning_effort, a model that thinks by default is asked for its thoughts, unless a tool call is forced.
func (q *messagesRequest) setThinking(r *chat.Request, m *live.Model) error {
	is, forced := traitsOf(m), q.ToolChoice.forced()
	switch {
	case is.has(noForcedTool) && forced:
		return chat.Unsupported("tool_choice", "cannot force a call with this model")
	case r.ReasoningEffort == "none":
		return q.disableThinking(is)
	case r.ReasoningEffort != "":
		return q.enableThinking(r.ReasoningEffort, is)
	case is.has(thinksByDefault) && !forced:
		q.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
	}
	return nil
}

// disableThinking turns thinking off, as far as the model allows.
func (q *messagesRequest) disableThinking(is traits) error {
	if is.has(alwaysThinks) {
		return chat.Unsupported("reasoning_effort", "cannot be none with this model; low is the least")
	}
	q.Thinking = &thinking{Type: "disabled"}
	if is.has(thinksBetweenTools) {
		q.Thinking.Type = "between_tools"
	}
	return nil
}

// enableThinking sets an effort or, for older models, a budget.
func (q *messagesRequest) enableThinking(effort string, is traits) error {
	const field = "reasoning_effort"
	share, known := efforts[effort]
	switch {
	case !known:
		return fault.Invalid(field, "must be none, minimal, low, medium, high or xhigh")
	case is.has(thinksByBudget) && q.MaxTokens <= minBudget:
		return chat.Unsupported(field, fmt.Sprintf("needs max_tokens over %d with this model", minBudget))
	case is.has(thinksByBudget):
		q.Thinking = &thinking{Type: "enabled", BudgetTokens: max(minBudget, q.MaxTokens/100*share)}
	case effort == "minimal":
		return chat.Unsupported(field, "minimal has no equivalent with this model; low has")
	case effort == "xhigh" && is.has(noXHighEffort):
		return chat.Unsupported(field, "xhigh has no equivalent with this model; high has")
	default:
		q.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
		q.OutputConfig.Effort = effort
	}
	at, thoughtless := q.callsWithoutThought()
	switch {
	case q.Temperature != nil:
		return chat.Unsupported("temperature", "can only be 1 where the model reasons, in the "+apiName)
	case q.TopP != nil && *q.TopP < 0.95:
		return chat.Unsupported("top_p", "cannot be below 0.95 where the model reasons, in the "+apiName)
	case q.TopK != nil:
		return chat.Unsupported("top_k", "cannot be said where the model reasons, in the "+apiName)
	case q.ToolChoice.forced():
		return chat.Unsupported("tool_choice", "cannot force a call where the model reasons, in the "+apiName)
	case is.has(thinksByBudget) && thoughtless:
		return chat.Unsupported(at+".reasoning_details",
			"must hold the model's own thought before its calls where this model reasons")
	}
	return nil
}

// callsWithoutThought finds tool calls of the current turn that have no thought before them. Models with a thinking
// budget refuse to continue such a turn.
func (q *messagesRequest) callsWithoutThought() (at string, is bool) {
	holds := func(t turn, kinds ...string) bool {
		return slices.ContainsFunc(t.Content, func(b block) bool { return slices.Contains(kinds, b.Type) })
	}
	for _, t := range slices.Backward(q.Messages) {
		switch {
		case t.Role == roleUser && !holds(t, blockToolResult), holds(t, blockThinking, blockRedactedThinking):
			return at, is && t.Role == roleUser
		case holds(t, blockToolUse):
			at, is = t.path, true
		}
	}
	return at, is
}
