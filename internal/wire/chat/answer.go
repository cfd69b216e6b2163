package chat

import (
	"cmp"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
)

// Answer is a complete chat completion.
type Answer struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"` // chat.completion
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitempty"`
}

// Choice is one of the alternatives of an answer.
type Choice struct {
	Index        int            `json:"index"`
	Message      Reply          `json:"message"`
	Logprobs     jsontext.Value `json:"logprobs"`
	FinishReason string         `json:"finish_reason"`
}

// Reply is the message of a choice.
type Reply struct {
	Role             string        `json:"role"`
	Content          *string       `json:"content"`
	ReasoningContent string        `json:"reasoning_content,omitempty"`
	ReasoningDetails []Thought     `json:"reasoning_details,omitempty"`
	Refusal          *string       `json:"refusal"`
	ToolCalls        []ToolCall    `json:"tool_calls,omitempty"`
	ExtraContent     *ExtraContent `json:"extra_content,omitempty"`
}

// The finish reasons of a choice.
const (
	Stop          = "stop"
	Length        = "length"
	ToolCalls     = "tool_calls"
	ContentFilter = "content_filter"
)

// Usage counts tokens. PromptTokens includes cached and cache-written tokens, CompletionTokens includes reasoning
// tokens, and TotalTokens is always the sum of both.
type Usage struct {
	PromptTokens            int64             `json:"prompt_tokens"`
	CompletionTokens        int64             `json:"completion_tokens"`
	TotalTokens             int64             `json:"total_tokens"`
	PromptTokensDetails     PromptDetails     `json:"prompt_tokens_details"`
	CompletionTokensDetails CompletionDetails `json:"completion_tokens_details"`
}

// Counts returns the usage as it is priced.
func (u *Usage) Counts() *live.Usage {
	if u == nil {
		return nil
	}
	in, out := &u.PromptTokensDetails, &u.CompletionTokensDetails
	return &live.Usage{
		Input: u.PromptTokens, Cached: in.CachedTokens, Written: in.CacheWriteTokens, AudioInput: in.AudioTokens,
		Output: u.CompletionTokens, Reasoning: out.ReasoningTokens, AudioOutput: out.AudioTokens,
	}
}

// PromptDetails counts the prompt tokens that have another price.
type PromptDetails struct {
	CachedTokens     int64 `json:"cached_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"` // not OpenAI's: written into the provider's cache
	AudioTokens      int64 `json:"audio_tokens"`
}

// CompletionDetails counts the completion tokens that are not text.
type CompletionDetails struct {
	ReasoningTokens int64 `json:"reasoning_tokens"`
	AudioTokens     int64 `json:"audio_tokens"`
}

// Encode returns the answer as JSON.
func (a *Answer) Encode() ([]byte, error) { return json.Marshal(a, encoding) }

// encoding allows a provider's text that is not valid UTF-8.
var encoding = json.JoinOptions(jsontext.AllowInvalidUTF8(true))

// ErrorBody is the error of a complete answer or of an event. Code is the HTTP status that the provider means, by which
// the gateway classifies the error.
func ErrorBody(status int, kind, message string) []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Code    int     `json:"code"`
		Param   *string `json:"param"`
	}
	text, err := json.Marshal(map[string]inner{"error": {message, kind, status, nil}}, encoding)
	if err != nil { // cannot happen: it holds strings and numbers only
		return []byte(`{"error":{"message":"the provider failed"}}`)
	}
	return text
}

// StatusErrorBody is a provider's error in OpenAI's shape, with the error type that OpenAI uses for the status. The
// message may be empty.
func StatusErrorBody(status int, message string) []byte {
	kind := fault.TypeInvalid
	switch {
	case status == http.StatusTooManyRequests:
		kind = fault.TypeRate
	case status >= http.StatusInternalServerError:
		kind = fault.TypeAPI
	}
	return ErrorBody(status, kind, cmp.Or(message, "the provider refused the request"))
}
