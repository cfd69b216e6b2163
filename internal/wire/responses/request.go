package responses

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// A request is the body of POST /responses, as far as chat completions can say it.
type request struct {
	Model                string            `json:"model"`
	Input                said              `json:"input"`
	Instructions         *string           `json:"instructions"`
	Stream               bool              `json:"stream"`
	StreamOptions        jsontext.Value    `json:"stream_options"`
	MaxOutputTokens      *int64            `json:"max_output_tokens"`
	Temperature          *float64          `json:"temperature"`
	TopP                 *float64          `json:"top_p"`
	Tools                []jsontext.Value  `json:"tools"`
	ToolChoice           jsontext.Value    `json:"tool_choice"`
	ParallelToolCalls    *bool             `json:"parallel_tool_calls"`
	Text                 jsontext.Value    `json:"text"`
	Reasoning            jsontext.Value    `json:"reasoning"`
	Metadata             map[string]string `json:"metadata"`
	ClientMetadata       jsontext.Value    `json:"client_metadata"` // for whoever serves the API: it goes no further
	User                 *string           `json:"user"`
	SafetyIdentifier     *string           `json:"safety_identifier"`
	PromptCacheKey       *string           `json:"prompt_cache_key"`
	PromptCacheRetention *string           `json:"prompt_cache_retention"`
	Include              []string          `json:"include"`
	rest

	tools     []functionTool
	text      textConfig
	reasoning reasoningConfig
}

// A functionTool is a function that a model may call: flat here, nested in chat.
type functionTool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"`
	rest
}

// A textConfig says how the text shall be.
type textConfig struct {
	Format    jsontext.Value `json:"format"`
	Verbosity *string        `json:"verbosity"`
	rest
}

// A format is the form of the text.
type format struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Schema      jsontext.Value `json:"schema"`
	Strict      *bool          `json:"strict"`
	rest
}

// A reasoningConfig says how a model shall think.
type reasoningConfig struct {
	Effort          *string `json:"effort"`
	Summary         *string `json:"summary"`
	GenerateSummary *string `json:"generate_summary"` // its old name
	rest
}

// chat says the request as a chat completion.
func (q *request) chat(r *upstream.Request) (*chat.Request, error) {
	c := &chat.Request{
		Model: q.Model, Stream: r.Stream, Temperature: q.Temperature, TopP: q.TopP, ParallelToolCalls: q.ParallelToolCalls,
		User: text(q.User), SafetyIdentifier: text(q.SafetyIdentifier), PromptCacheKey: text(q.PromptCacheKey),
	}
	if q.PromptCacheRetention != nil {
		c.PromptCacheTTL, _ = json.Marshal(q.PromptCacheRetention) // a text
	}
	if r.Stream && !r.Model.NoStreamUsage {
		c.StreamOptions = &chat.StreamOptions{IncludeUsage: true}
	}
	for _, part := range []func(*chat.Request, *upstream.Request) error{
		q.sayLimit, q.sayOptions, q.sayText, q.sayReasoning, q.sayTools, q.sayToolChoice, q.sayInput,
	} {
		if err := part(c, r); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func text(t *string) string {
	if t == nil {
		return ""
	}
	return *t
}

func there(value jsontext.Value) bool { return len(value) > 0 && value.Kind() != 'n' }

// sayLimit names the limit as most providers know it.
func (q *request) sayLimit(c *chat.Request, r *upstream.Request) error {
	switch {
	case q.MaxOutputTokens != nil && *q.MaxOutputTokens < 1:
		return fault.Invalid("max_output_tokens", "must be a whole number of at least 1")
	case r.Model.Provider.Modern:
		c.MaxCompletionTokens = q.MaxOutputTokens
	default:
		c.MaxTokens = q.MaxOutputTokens
	}
	return nil
}

// sayOptions looks at what says nothing in chat. Reasoning that must come back is sealed in the answer, asked or not.
func (q *request) sayOptions(*chat.Request, *upstream.Request) error {
	for i, name := range q.Include {
		if name != "reasoning.encrypted_content" {
			return chat.Unsupported(fmt.Sprintf("include[%d]", i), "has no equivalent in chat completions")
		}
	}
	if there(q.StreamOptions) {
		return read("stream_options", q.StreamOptions, &rest{})
	}
	return nil
}

func (q *request) sayText(c *chat.Request, _ *upstream.Request) error {
	if !there(q.Text) {
		return nil
	}
	if err := read("text", q.Text, &q.text); err != nil {
		return err
	}
	c.Verbosity = text(q.text.Verbosity)
	if !there(q.text.Format) {
		return nil
	}
	var f format
	if err := read("text.format", q.text.Format, &f); err != nil {
		return err
	}
	switch f.Type {
	case "text":
	case "json_object":
		c.ResponseFormat = &chat.Format{Type: f.Type}
	case "json_schema":
		c.ResponseFormat = &chat.Format{Type: f.Type, JSONSchema: &chat.JSONSchema{
			Name: f.Name, Description: f.Description, Schema: f.Schema, Strict: f.Strict,
		}}
	default:
		return chat.Unsupported("text.format.type", "must be text, json_object or json_schema")
	}
	return nil
}

// sayReasoning passes the effort on. What a provider tells of its reasoning is handed on whole: how much that shall be is
// a preference.
func (q *request) sayReasoning(c *chat.Request, _ *upstream.Request) error {
	if !there(q.Reasoning) {
		return nil
	}
	if err := read("reasoning", q.Reasoning, &q.reasoning); err != nil {
		return err
	}
	for _, wanted := range []struct {
		name string
		how  *string
	}{{"summary", q.reasoning.Summary}, {"generate_summary", q.reasoning.GenerateSummary}} {
		if wanted.how != nil && !slices.Contains([]string{"auto", "concise", "detailed"}, *wanted.how) {
			return fault.Invalid("reasoning."+wanted.name, "must be auto, concise or detailed")
		}
	}
	c.ReasoningEffort = text(q.reasoning.Effort)
	return nil
}

func (q *request) sayTools(c *chat.Request, _ *upstream.Request) error {
	for i, value := range q.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		kind, err := typeOf(at, value)
		if err != nil {
			return err
		}
		if kind != "function" {
			return chat.Unsupported(at+".type", "must be function for this model")
		}
		var t functionTool
		if err := read(at, value, &t); err != nil {
			return err
		}
		q.tools = append(q.tools, t)
		function := chat.Function{Name: t.Name, Description: text(t.Description), Strict: t.Strict}
		if there(t.Parameters) {
			function.Parameters = t.Parameters
		}
		c.Tools = append(c.Tools, chat.Tool{Type: "function", Function: function})
	}
	return nil
}

func (q *request) sayToolChoice(c *chat.Request, _ *upstream.Request) error {
	switch {
	case !there(q.ToolChoice):
		return nil
	case q.ToolChoice.Kind() == '"':
		choice := &chat.ToolChoice{}
		if err := json.Unmarshal(q.ToolChoice, &choice.Mode); err != nil || !slices.Contains([]string{"none", "auto", "required"}, choice.Mode) {
			return fault.Invalid("tool_choice", "must be none, auto, required or a function")
		}
		c.ToolChoice = choice
		return nil
	}
	kind, err := typeOf("tool_choice", q.ToolChoice)
	if err != nil {
		return err
	}
	if kind != "function" {
		return chat.Unsupported("tool_choice.type", "must be function for this model")
	}
	var one struct {
		Type string `json:"type"`
		Name string `json:"name"`
		rest
	}
	if err := read("tool_choice", q.ToolChoice, &one); err != nil {
		return err
	}
	if one.Name == "" {
		return fault.Invalid("tool_choice.name", "is required")
	}
	c.ToolChoice = &chat.ToolChoice{Mode: kind, Name: one.Name}
	return nil
}
