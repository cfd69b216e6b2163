package responses

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// response is the object of the Responses API: parameters of the request, and the output.
type response struct {
	ID                 string             `json:"id"`
	Object             string             `json:"object"`
	CreatedAt          int64              `json:"created_at"`
	Status             string             `json:"status"`
	AccessPrograms     *string            `json:"access_programs"` // always null here
	Background         bool               `json:"background"`
	CompletedAt        *int64             `json:"completed_at"`
	Error              *responseError     `json:"error"`
	IncompleteDetails  *incompleteDetails `json:"incomplete_details"`
	Instructions       *string            `json:"instructions"`
	MaxOutputTokens    *int64             `json:"max_output_tokens"`
	MaxToolCalls       *int64             `json:"max_tool_calls"`
	Metadata           map[string]string  `json:"metadata"`
	Model              string             `json:"model"`
	Output             []item             `json:"output"`
	ParallelToolCalls  bool               `json:"parallel_tool_calls"`
	PreviousResponseID *string            `json:"previous_response_id"`
	PromptCacheKey     *string            `json:"prompt_cache_key"`
	Reasoning          reasoningEcho      `json:"reasoning"`
	SafetyIdentifier   *string            `json:"safety_identifier"`
	ServiceTier        string             `json:"service_tier"`
	Store              bool               `json:"store"`
	Temperature        *float64           `json:"temperature"`
	Text               textEcho           `json:"text"`
	ToolChoice         jsontext.Value     `json:"tool_choice"`
	Tools              []tool             `json:"tools"`
	TopLogprobs        int64              `json:"top_logprobs"`
	TopP               *float64           `json:"top_p"`
	Truncation         string             `json:"truncation"`
	Usage              *usage             `json:"usage"`
	User               *string            `json:"user,omitzero"`
}

// The statuses of a response and of its items.
const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

type reasoningEcho struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type textEcho struct {
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

// usage counts tokens. The gateway charges cache writes and audio by it.
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

// item is a message, a function call or a reasoning item. The members of its type are present even if empty, those of
// other types are absent.
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
	itemMessage      = "message"
	itemFunctionCall = "function_call"
	itemReasoning    = "reasoning"
)

var idPrefixes = map[string]string{itemMessage: "msg", itemFunctionCall: "fc", itemReasoning: "rs"}

// part is a part of an item's content.
type part struct {
	Type        string           `json:"type"`
	Text        *string          `json:"text,omitzero"`
	Refusal     *string          `json:"refusal,omitzero"`
	Annotations []jsontext.Value `json:"annotations,omitzero"`
	Logprobs    []struct{}       `json:"logprobs,omitzero"`
}

// The types of parts.
const (
	partOutputText  = "output_text"
	partRefusal     = "refusal"
	partSummaryText = "summary_text"
)

// newPart returns a part with a text.
func newPart(kind, text string) part {
	switch kind {
	case partOutputText:
		return part{Type: kind, Text: &text, Annotations: []jsontext.Value{}, Logprobs: []struct{}{}}
	case partRefusal:
		return part{Type: kind, Refusal: &text}
	default:
		return part{Type: kind, Text: &text}
	}
}

// echo returns the response before any output. Parameters that were not set have OpenAI's default, or null if the
// default is the provider's.
func (q *request) echo() response {
	r := response{
		Object: "response", Status: statusInProgress, Instructions: q.Instructions, MaxOutputTokens: q.MaxOutputTokens,
		Metadata: q.Metadata, Model: q.Model, Output: []item{},
		ParallelToolCalls: q.ParallelToolCalls == nil || *q.ParallelToolCalls,
		PromptCacheKey:    q.PromptCacheKey, SafetyIdentifier: q.SafetyIdentifier, ServiceTier: "default",
		Temperature: q.Temperature,
		Reasoning:   reasoningEcho{q.reasoning.Effort, q.reasoning.Summary},
		Text:        textEcho{q.text.Format, q.text.Verbosity},
		ToolChoice:  q.ToolChoice, Tools: []tool{}, TopP: q.TopP, Truncation: "disabled", User: q.User,
	}
	if !chat.IsSet(r.ToolChoice) {
		r.ToolChoice = jsontext.Value(`"auto"`)
	}
	if !chat.IsSet(r.Text.Format) {
		r.Text.Format = jsontext.Value(`{"type":"text"}`)
	}
	for _, t := range q.tools {
		r.Tools = append(r.Tools, tool{"function", t.Name, t.Description, t.Parameters, t.Strict != nil && *t.Strict})
	}
	return r
}

// readUsage converts the usage of a chat completion; nil if it is absent or invalid.
func readUsage(value jsontext.Value) *usage {
	var c struct {
		Prompt     *float64 `json:"prompt_tokens"` // some providers send 12.0
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
	if !chat.IsSet(value) || json.Unmarshal(value, &c, lenient) != nil || c.Prompt == nil {
		return nil
	}
	u := &usage{InputTokens: clampCount(*c.Prompt), OutputTokens: clampCount(c.Completion)}
	u.InputTokensDetails.CachedTokens = clampCount(c.Input.Cached)
	u.InputTokensDetails.CacheWriteTokens = clampCount(c.Input.Written)
	u.InputTokensDetails.AudioTokens = clampCount(c.Input.Audio)
	u.OutputTokensDetails.ReasoningTokens = clampCount(c.Output.Reasoning)
	u.OutputTokensDetails.AudioTokens = clampCount(c.Output.Audio)
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u
}

// maxCount bounds a token count that a provider reports.
const maxCount = 1_000_000_000

func clampCount(n float64) int64 { return int64(min(max(n, 0), maxCount)) }
