package main

import (
	"encoding/json"
	"slices"
	"strings"
)

// An ask is what a request says, as far as the answer depends on it.
type ask struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	N                   *int            `json:"n"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Tools               []tool          `json:"tools"`
	ToolChoice          any             `json:"tool_choice"` // a word, or {"function":{"name":…}}
	ResponseFormat      *format         `json:"response_format"`
	Input               json.RawMessage `json:"input"`
	EncodingFormat      string          `json:"encoding_format"`
	Dimensions          *int            `json:"dimensions"`
	Parallel            *bool           `json:"parallel_tool_calls"`
	Query               string          `json:"query"`
	Documents           []document      `json:"documents"`
	TopN                *int            `json:"top_n"`
	ReturnDocuments     *bool           `json:"return_documents"`

	thinks bool // other wires: the request wants to see the reasoning
}

// readAsk reads a request in OpenAI's own words.
func readAsk(a *answer) error {
	if err := json.Unmarshal([]byte(a.record.Body), &a.ask); err != nil {
		return err
	}
	return a.ask.check()
}

type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"` // a text, parts with a text each, or nothing
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type tool struct {
	Function struct {
		Name       string         `json:"name"`
		Parameters map[string]any `json:"parameters"`
	} `json:"function"`
}

type format struct {
	Type       string `json:"type"`
	JSONSchema struct {
		Name   string         `json:"name"`
		Schema map[string]any `json:"schema"`
	} `json:"json_schema"`
}

// check reports the parameter that breaks a rule, and how.
func (a *ask) check() error {
	least := map[string]*int{
		"n": a.N, "max_tokens": a.MaxTokens, "max_completion_tokens": a.MaxCompletionTokens, "dimensions": a.Dimensions,
		"top_n": a.TopN,
	}
	for name, value := range least {
		if value != nil && *value < 1 {
			return bad(name, "it must be at least 1")
		}
	}
	if a.N != nil && *a.N > 128 {
		return bad("n", "it is %d, and 128 is the most", *a.N)
	}
	return nil
}

func (a *ask) choices() int {
	if a.N == nil {
		return 1
	}
	return *a.N
}

// limit is how many tokens the caller wants at most; it is -1 when the caller does not say.
func (a *ask) limit() int {
	for _, limit := range []*int{a.MaxCompletionTokens, a.MaxTokens} {
		if limit != nil {
			return *limit
		}
	}
	return -1
}

func (a *ask) wantsUsage() bool { return a.StreamOptions != nil && a.StreamOptions.IncludeUsage }

// called are the tools that the answer calls.
func (a *ask) called() []tool {
	if a.ToolChoice == "none" || len(a.Messages) > 0 && a.Messages[len(a.Messages)-1].Role == "tool" {
		return nil
	}
	choice, _ := a.ToolChoice.(map[string]any)
	function, named := choice["function"].(map[string]any)
	tools := slices.DeleteFunc(slices.Clone(a.Tools), func(t tool) bool {
		return named && t.Function.Name != function["name"]
	})
	if a.Parallel != nil && !*a.Parallel && len(tools) > 1 {
		tools = tools[:1]
	}
	return tools
}

// input counts the words of all messages.
func (a *ask) input() (n int) {
	for _, m := range a.Messages {
		switch content := m.Content.(type) {
		case string:
			n += words(content)
		case []any:
			for _, part := range content {
				fields, _ := part.(map[string]any)
				text, _ := fields["text"].(string)
				n += words(text)
			}
		}
	}
	return n
}

func words(text string) int { return len(strings.Fields(text)) }
