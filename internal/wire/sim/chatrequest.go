package sim

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
)

// chatRequest is the body of a chat completion. Parameters that only affect sampling, such as temperature, are ignored;
// those that ask for a kind of answer that is not simulated are refused.
type chatRequest struct {
	Model               string         `json:"model"`
	Messages            []message      `json:"messages"`
	Seed                *int64         `json:"seed"`
	N                   *int64         `json:"n"`
	MaxTokens           *int64         `json:"max_tokens"`
	MaxCompletionTokens *int64         `json:"max_completion_tokens"`
	Stop                stopSequences  `json:"stop"`
	Stream              *bool          `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options"`
	Tools               []tool         `json:"tools"`
	ToolChoice          toolChoice     `json:"tool_choice"`
	ParallelToolCalls   *bool          `json:"parallel_tool_calls"`
	ResponseFormat      *format        `json:"response_format"`
	ReasoningEffort     *string        `json:"reasoning_effort"`
	Sim                 jsontext.Value `json:"sim"`

	Logprobs         *bool          `json:"logprobs"`
	TopLogprobs      jsontext.Value `json:"top_logprobs"`
	Functions        jsontext.Value `json:"functions"`
	FunctionCall     jsontext.Value `json:"function_call"`
	Audio            jsontext.Value `json:"audio"`
	WebSearchOptions jsontext.Value `json:"web_search_options"`
}

type message struct {
	Role       string     `json:"role"`
	Content    content    `json:"content"`
	ToolCallID string     `json:"tool_call_id"`
	ToolCalls  []toolCall `json:"tool_calls"`
}

// content is the text of a message, and the number of its parts that are not text.
type content struct {
	given  bool
	text   string
	others int64
}

type part struct {
	Type string  `json:"type"`
	Text *string `json:"text"`
}

type streamOptions struct {
	IncludeUsage *bool `json:"include_usage"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
}

type toolChoice struct{ mode, name string }

// The tool choices beside none and a function.
const (
	auto     = "auto"
	required = "required"
)

type stopSequences []string

type format struct {
	Type       string `json:"type"`
	JSONSchema *struct {
		Name   string         `json:"name"`
		Schema jsontext.Value `json:"schema"`
	} `json:"json_schema"`
}

// efforts are the reasoning tokens by reasoning_effort.
var efforts = map[string]int64{none: 0, "minimal": 8, "low": 16, "medium": 32, "high": 64, "xhigh": 128, "max": 256}

var (
	roles        = []string{"system", "developer", "user", "assistant", "tool", "function"}
	partTypes    = []string{"text", "refusal", "image_url", "input_audio", "file"}
	formatTypes  = []string{"text", "json_object", "json_schema"}
	functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
)

const (
	maxChoices    = 128
	maxStops      = 4
	maxTools      = 128
	tokensPerPart = 85 // of a content part that is not text
)

func (q *chatRequest) simField() jsontext.Value { return q.Sim }

func (q *chatRequest) seedTexts() []string {
	var parts []string
	if q.Seed != nil {
		parts = append(parts, strconv.FormatInt(*q.Seed, 10))
	}
	for _, m := range q.Messages {
		parts = append(parts, m.Role, m.Content.text)
	}
	return parts
}

func (q *chatRequest) check(m *live.Model) error {
	for _, extra := range []struct {
		name  string
		given bool
	}{
		{"logprobs", q.Logprobs != nil && *q.Logprobs},
		{"top_logprobs", !null(q.TopLogprobs)},
		{"functions", !null(q.Functions)},
		{"function_call", !null(q.FunctionCall)},
		{"audio", !null(q.Audio)},
		{"web_search_options", !null(q.WebSearchOptions)},
	} {
		if extra.given {
			return unsupported(extra.name)
		}
	}
	switch {
	case q.Model == "":
		return missing("model")
	case len(q.Messages) == 0:
		return missing("messages")
	case q.N != nil && (*q.N < 1 || *q.N > maxChoices):
		return invalid("n", "must be from 1 to %d", maxChoices)
	case q.MaxTokens != nil && *q.MaxTokens < 1:
		return invalid("max_tokens", "must be 1 or more")
	case q.MaxCompletionTokens != nil && *q.MaxCompletionTokens < 1:
		return invalid("max_completion_tokens", "must be 1 or more")
	case len(q.Stop) > maxStops:
		return invalid("stop", "must not hold more than %d texts", maxStops)
	case len(q.Tools) > maxTools:
		return invalid("tools", "must not hold more than %d tools", maxTools)
	case q.StreamOptions != nil && (q.Stream == nil || !*q.Stream):
		return invalid("stream_options", "is only allowed when 'stream' is true")
	}
	if q.ReasoningEffort != nil {
		if _, ok := efforts[*q.ReasoningEffort]; !ok {
			return invalid("reasoning_effort", "%q is not an effort", *q.ReasoningEffort)
		}
	}
	for i := range q.Messages {
		if err := q.Messages[i].check("messages[" + strconv.Itoa(i) + "]"); err != nil {
			return err
		}
	}
	if err := q.checkTools(); err != nil {
		return err
	}
	if err := q.ResponseFormat.check(); err != nil {
		return err
	}
	if prompt := q.tokens(); m.ContextWindow > 0 && prompt > m.ContextWindow {
		return contextExceeded("messages", m, fmt.Sprintf("your messages resulted in %d tokens", prompt))
	}
	return nil
}

func null(v jsontext.Value) bool { return v == nil || v.Kind() == 'n' }

func (m *message) check(name string) error {
	switch {
	case m.Role == "":
		return missing(name + ".role")
	case !slices.Contains(roles, m.Role):
		return invalid(name+".role", "%q is not one of %q", m.Role, roles)
	case !m.Content.given && (m.Role != "assistant" || len(m.ToolCalls) == 0):
		return missing(name + ".content")
	case m.Role == "tool" && m.ToolCallID == "":
		return missing(name + ".tool_call_id")
	}
	return nil
}

func (q *chatRequest) checkTools() error {
	for i, t := range q.Tools {
		name := "tools[" + strconv.Itoa(i) + "]"
		switch {
		case t.Type != "function":
			return invalid(name+".type", "%q is not 'function'", t.Type)
		case !functionName.MatchString(t.Function.Name):
			return invalid(name+".function.name", "must be 1 to 64 letters, digits, underscores or dashes")
		case !null(t.Function.Parameters) && t.Function.Parameters.Kind() != '{':
			return invalid(name+".function.parameters", "must be an object")
		}
	}
	switch choice := q.ToolChoice; {
	case choice.name != "" && q.toolIndex(choice.name) < 0:
		return invalid("tool_choice", "there is no tool %q", choice.name)
	case choice.mode == required && len(q.Tools) == 0:
		return invalid("tool_choice", "is only allowed when 'tools' are specified")
	}
	return nil
}

// toolIndex returns the index of the tool with that name, or -1.
func (q *chatRequest) toolIndex(name string) int {
	return slices.IndexFunc(q.Tools, func(t tool) bool { return t.Function.Name == name })
}

func (f *format) check() error {
	switch {
	case f == nil:
		return nil
	case !slices.Contains(formatTypes, f.Type):
		return invalid("response_format.type", "%q is not one of %q", f.Type, formatTypes)
	case f.Type == "json_schema" && f.JSONSchema == nil:
		return missing("response_format.json_schema")
	case f.Type == "json_schema" && f.JSONSchema.Name == "":
		return missing("response_format.json_schema.name")
	}
	return nil
}

// tokens returns the number of prompt tokens.
func (q *chatRequest) tokens() int64 {
	text, parts := 0, int64(0)
	for _, m := range q.Messages {
		text += len(m.Role) + len(m.Content.text)
		parts += m.Content.others
		for _, c := range m.ToolCalls {
			text += len(c.Function.Name) + len(c.Function.Arguments)
		}
	}
	for _, t := range q.Tools {
		text += len(t.Function.Name) + len(t.Function.Parameters)
		if t.Function.Description != nil {
			text += len(*t.Function.Description)
		}
	}
	return max(1, tokens(text)+parts*tokensPerPart)
}

// userText returns the last text of a user or, without one, the text of the last message.
func (q *chatRequest) userText() string {
	for _, m := range slices.Backward(q.Messages) {
		if m.Role == "user" {
			return m.Content.text
		}
	}
	return q.lastMessage().Content.text
}

func (q *chatRequest) lastMessage() *message { return &q.Messages[len(q.Messages)-1] }

// UnmarshalJSONFrom reads a string, an array of parts, or null.
func (c *content) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '[':
		c.given = true
		var parts []part
		if err := json.UnmarshalDecode(dec, &parts); err != nil {
			return err
		}
		var b strings.Builder
		for _, p := range parts {
			switch {
			case !slices.Contains(partTypes, p.Type):
				return errors.New("a part's type must be one of " + strings.Join(partTypes, ", "))
			case p.Type != "text":
				c.others++
			case p.Text == nil:
				return errors.New("a part of type text needs a text")
			default:
				b.WriteString(*p.Text)
			}
		}
		c.text = b.String()
		return nil
	default:
		c.given = true
		return json.UnmarshalDecode(dec, &c.text)
	}
}

// UnmarshalJSONFrom reads a string, an array of strings, or null.
func (s *stopSequences) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '[':
		return json.UnmarshalDecode(dec, (*[]string)(s))
	default:
		*s = make([]string, 1)
		return json.UnmarshalDecode(dec, &(*s)[0])
	}
}

// UnmarshalJSONFrom reads none, auto, required, an object that names a function, or null.
func (c *toolChoice) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '{':
		var named tool
		if err := json.UnmarshalDecode(dec, &named); err != nil {
			return err
		}
		if named.Type != "function" || named.Function.Name == "" {
			return errors.New("must name a function")
		}
		c.name = named.Function.Name
		return nil
	default:
		if err := json.UnmarshalDecode(dec, &c.mode); err != nil {
			return err
		}
		if !slices.Contains([]string{none, auto, required}, c.mode) {
			return errors.New("must be none, auto, required or an object that names a function")
		}
		return nil
	}
}
