package chat

import (
	"cmp"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
)

// An Answer is a whole chat completion.
type Answer struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"` // chat.completion
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitempty"`
}

// A Choice is one of an answer's alternatives.
type Choice struct {
	Index        int            `json:"index"`
	Message      Reply          `json:"message"`
	Logprobs     jsontext.Value `json:"logprobs"`
	FinishReason string         `json:"finish_reason"`
}

// A Reply is what a model says.
type Reply struct {
	Role             string     `json:"role"`
	Content          *string    `json:"content"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ReasoningDetails []Thought  `json:"reasoning_details,omitempty"`
	Refusal          *string    `json:"refusal"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`
	ExtraContent     *Extra     `json:"extra_content,omitempty"`
}

// The reasons why a choice ends.
const (
	Stop          = "stop"
	Length        = "length"
	ToolCalls     = "tool_calls"
	ContentFilter = "content_filter"
)

// Usage counts tokens. Cached and written ones are part of the prompt's, reasoning ones of the completion's; a total is
// always the sum.
type Usage struct {
	PromptTokens            int64             `json:"prompt_tokens"`
	CompletionTokens        int64             `json:"completion_tokens"`
	TotalTokens             int64             `json:"total_tokens"`
	PromptTokensDetails     PromptDetails     `json:"prompt_tokens_details"`
	CompletionTokensDetails CompletionDetails `json:"completion_tokens_details"`
}

// PromptDetails say which tokens of a prompt were cheap, and which dear.
type PromptDetails struct {
	CachedTokens     int64 `json:"cached_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"` // not OpenAI's own: written into the provider's cache
	AudioTokens      int64 `json:"audio_tokens"`
}

// CompletionDetails say what of a completion was not its text.
type CompletionDetails struct {
	ReasoningTokens int64 `json:"reasoning_tokens"`
	AudioTokens     int64 `json:"audio_tokens"`
}

// Encode writes an answer.
func (a *Answer) Encode() ([]byte, error) { return json.Marshal(a, options) }

// options: answers are compact, and hold a provider's text as far as it is text.
var options = json.JoinOptions(jsontext.AllowInvalidUTF8(true))

// Failure is the error of a whole answer or of an event. Code is the status that the provider means, for the gateway
// to classify it by.
func Failure(status int, kind, message string) []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Code    int     `json:"code"`
		Param   *string `json:"param"`
	}
	text, err := json.Marshal(map[string]inner{"error": {message, kind, status, nil}}, options)
	if err != nil { // it holds nothing that could fail
		return []byte(`{"error":{"message":"the provider failed"}}`)
	}
	return text
}

// Refused is a provider's refusal as OpenAI would have told it, by its status; some come without a word.
func Refused(status int, message string) []byte {
	kind := fault.TypeInvalid
	switch {
	case status == http.StatusTooManyRequests:
		kind = fault.TypeRate
	case status >= http.StatusInternalServerError:
		kind = fault.TypeAPI
	}
	return Failure(status, kind, cmp.Or(message, "the provider refused the request"))
}
