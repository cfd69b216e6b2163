package responses

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A response is what OpenAI calls so: what was asked, as far as it matters, and what came back.
type response struct {
	ID                 string            `json:"id"`
	Object             string            `json:"object"`
	CreatedAt          int64             `json:"created_at"`
	Status             string            `json:"status"`
	AccessPrograms     *string           `json:"access_programs"` // OpenAI's own; there are none
	Background         bool              `json:"background"`
	CompletedAt        *int64            `json:"completed_at"`
	Error              *failure          `json:"error"`
	IncompleteDetails  *incomplete       `json:"incomplete_details"`
	Instructions       *string           `json:"instructions"`
	MaxOutputTokens    *int64            `json:"max_output_tokens"`
	MaxToolCalls       *int64            `json:"max_tool_calls"`
	Metadata           map[string]string `json:"metadata"`
	Model              string            `json:"model"`
	Output             []item            `json:"output"`
	ParallelToolCalls  bool              `json:"parallel_tool_calls"`
	PreviousResponseID *string           `json:"previous_response_id"`
	PromptCacheKey     *string           `json:"prompt_cache_key"`
	Reasoning          reasoned          `json:"reasoning"`
	SafetyIdentifier   *string           `json:"safety_identifier"`
	ServiceTier        string            `json:"service_tier"`
	Store              bool              `json:"store"`
	Temperature        *float64          `json:"temperature"`
	Text               texted            `json:"text"`
	ToolChoice         jsontext.Value    `json:"tool_choice"`
	Tools              []tool            `json:"tools"`
	TopLogprobs        int64             `json:"top_logprobs"`
	TopP               *float64          `json:"top_p"`
	Truncation         string            `json:"truncation"`
	Usage              *usage            `json:"usage"`
	User               *string           `json:"user,omitzero"`
}

// The states of a response and of its items.
const (
	inProgress   = "in_progress"
	completed    = "completed"
	isIncomplete = "incomplete"
	failed       = "failed"
)

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type reasoned struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type texted struct {
	Format    jsontext.Value `json:"format"`
	Verbosity *string        `json:"verbosity,omitzero"`
}

type tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      bool           `json:"strict"`
}

// A usage counts tokens. The ones written to a cache, and those of sounds, are there for the gateway to charge by.
type usage struct {
	InputTokens        int64 `json:"input_tokens"`
	InputTokensDetails struct {
		CachedTokens     int64 `json:"cached_tokens"`
		CacheWriteTokens int64 `json:"cache_write_tokens"`
		AudioTokens      int64 `json:"audio_tokens,omitzero"`
	} `json:"input_tokens_details"`
	OutputTokens        int64 `json:"output_tokens"`
	OutputTokensDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
		AudioTokens     int64 `json:"audio_tokens,omitzero"`
	} `json:"output_tokens_details"`
	TotalTokens int64 `json:"total_tokens"`
}

// An item is one thing that a model did: a message, a call of a function, a piece of reasoning. A type's own members are
// there, if empty; the others' are not.
type item struct {
	ID        string  `json:"id"`
	Type      string  `json:"type"`
	Status    string  `json:"status"`
	Role      string  `json:"role,omitempty"`
	Content   []part  `json:"content,omitzero"`
	Summary   []part  `json:"summary,omitzero"`
	Encrypted *string `json:"encrypted_content,omitzero"`
	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitzero"`
}

// The types of items, and the prefixes of their ids.
const (
	message      = "message"
	functionCall = "function_call"
	reasoning    = "reasoning"
)

var prefixes = map[string]string{message: "msg", functionCall: "fc", reasoning: "rs"}

// A part is a piece of an item's text.
type part struct {
	Type        string           `json:"type"`
	Text        *string          `json:"text,omitzero"`
	Refusal     *string          `json:"refusal,omitzero"`
	Annotations []jsontext.Value `json:"annotations,omitzero"`
	Logprobs    []struct{}       `json:"logprobs,omitzero"`
}

// The types of parts.
const (
	outputText  = "output_text"
	refusal     = "refusal"
	summaryText = "summary_text"
)

// partOf is a part that says text.
func partOf(kind, text string) part {
	switch kind {
	case outputText:
		return part{Type: kind, Text: &text, Annotations: []jsontext.Value{}, Logprobs: []struct{}{}}
	case refusal:
		return part{Type: kind, Refusal: &text}
	default:
		return part{Type: kind, Text: &text}
	}
}

// echo is the response before anything has come back. What was not asked for is as it is by default, or null where that
// is the provider's to say.
func (q *request) echo() response {
	r := response{
		Object: "response", Status: inProgress, Instructions: q.Instructions, MaxOutputTokens: q.MaxOutputTokens,
		Metadata: q.Metadata, Model: q.Model, Output: []item{}, ParallelToolCalls: q.ParallelToolCalls == nil || *q.ParallelToolCalls,
		PromptCacheKey: q.PromptCacheKey, SafetyIdentifier: q.SafetyIdentifier, ServiceTier: "default", Temperature: q.Temperature,
		Reasoning: reasoned{q.reasoning.Effort, q.reasoning.Summary}, Text: texted{q.text.Format, q.text.Verbosity},
		ToolChoice: q.ToolChoice, Tools: []tool{}, TopP: q.TopP, Truncation: "disabled", User: q.User,
	}
	if !there(r.ToolChoice) {
		r.ToolChoice = jsontext.Value(`"auto"`)
	}
	if !there(r.Text.Format) {
		r.Text.Format = jsontext.Value(`{"type":"text"}`)
	}
	for _, t := range q.tools {
		r.Tools = append(r.Tools, tool{"function", t.Name, t.Description, t.Parameters, t.Strict != nil && *t.Strict})
	}
	return r
}

// usageOf reads chat's usage. What is no usage is none: it was not reported.
func usageOf(value jsontext.Value) *usage {
	var c struct {
		Prompt     *float64 `json:"prompt_tokens"` // some providers write 12.0
		Completion float64  `json:"completion_tokens"`
		Input      struct {
			Cached  float64 `json:"cached_tokens"`
			Written float64 `json:"cache_write_tokens"`
			Audio   float64 `json:"audio_tokens"`
		} `json:"prompt_tokens_details"`
		Output struct {
			Reasoning float64 `json:"reasoning_tokens"`
			Audio     float64 `json:"audio_tokens"`
		} `json:"completion_tokens_details"`
	}
	if !there(value) || json.Unmarshal(value, &c, lenient) != nil || c.Prompt == nil {
		return nil
	}
	u := &usage{InputTokens: count(*c.Prompt), OutputTokens: count(c.Completion)}
	u.InputTokensDetails.CachedTokens = count(c.Input.Cached)
	u.InputTokensDetails.CacheWriteTokens = count(c.Input.Written)
	u.InputTokensDetails.AudioTokens = count(c.Input.Audio)
	u.OutputTokensDetails.ReasoningTokens = count(c.Output.Reasoning)
	u.OutputTokensDetails.AudioTokens = count(c.Output.Audio)
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u
}

// maxCount is beyond any context: no provider is believed to have used more.
const maxCount = 1_000_000_000

func count(n float64) int64 { return int64(min(max(n, 0), maxCount)) }
