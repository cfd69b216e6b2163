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

// request is the body of POST /responses, without the members that chat completions cannot express.
type request struct {
	Model                string            `json:"model"`
	Input                textOrList        `json:"input"`
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
	ClientMetadata       jsontext.Value    `json:"client_metadata"` // for the operator of the API: it is not sent
	User                 *string           `json:"user"`
	SafetyIdentifier     *string           `json:"safety_identifier"`
	PromptCacheKey       *string           `json:"prompt_cache_key"`
	PromptCacheRetention *string           `json:"prompt_cache_retention"`
	Include              []string          `json:"include"`
	unknownMembers

	tools     []functionTool
	text      textConfig
	reasoning reasoningConfig
}

// functionTool is a function that a model may call. It is flat here and nested in chat.
type functionTool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"`
	unknownMembers
}

// textConfig is the format and the verbosity of the text.
type textConfig struct {
	Format    jsontext.Value `json:"format"`
	Verbosity *string        `json:"verbosity"`
	unknownMembers
}

// format is the format of the text.
type format struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Schema      jsontext.Value `json:"schema"`
	Strict      *bool          `json:"strict"`
	unknownMembers
}

// reasoningConfig is the reasoning effort and how it is summarized.
type reasoningConfig struct {
	Effort          *string `json:"effort"`
	Summary         *string `json:"summary"`
	GenerateSummary *string `json:"generate_summary"` // former name of summary
	unknownMembers
}

// chatRequest translates the request into a chat completion.
func (q *request) chatRequest(r *upstream.Request) (*chat.Request, error) {
	c := &chat.Request{
		Model: q.Model, Stream: r.Stream, Temperature: q.Temperature, TopP: q.TopP,
		ParallelToolCalls: q.ParallelToolCalls, User: deref(q.User), SafetyIdentifier: deref(q.SafetyIdentifier),
		PromptCacheKey: deref(q.PromptCacheKey),
	}
	if q.PromptCacheRetention != nil {
		c.PromptCacheTTL, _ = json.Marshal(q.PromptCacheRetention) // a text
	}
	if r.Stream && !r.Model.NoStreamUsage {
		c.StreamOptions = &chat.StreamOptions{IncludeUsage: true}
	}
	for _, part := range []func(*chat.Request, *upstream.Request) error{
		q.setLimit, q.checkOptions, q.setText, q.setReasoning, q.setTools, q.setToolChoice, q.setMessages,
	} {
		if err := part(c, r); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func deref(t *string) string {
	if t == nil {
		return ""
	}
	return *t
}

// setLimit sets the maximum of output tokens under the name that the provider knows.
func (q *request) setLimit(c *chat.Request, r *upstream.Request) error {
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

// checkOptions checks members that have no counterpart in chat. encrypted_content is always returned, requested or not.
func (q *request) checkOptions(*chat.Request, *upstream.Request) error {
	for i, name := range q.Include {
		if name != "reasoning.encrypted_content" {
			return chat.Unsupported(fmt.Sprintf("include[%d]", i), "has no equivalent in chat completions")
		}
	}
	if chat.IsSet(q.StreamOptions) {
		return decode("stream_options", q.StreamOptions, &unknownMembers{})
	}
	return nil
}

func (q *request) setText(c *chat.Request, _ *upstream.Request) error {
	if !chat.IsSet(q.Text) {
		return nil
	}
	if err := decode("text", q.Text, &q.text); err != nil {
		return err
	}
	c.Verbosity = deref(q.text.Verbosity)
	if !chat.IsSet(q.text.Format) {
		return nil
	}
	var f format
	if err := decode("text.format", q.text.Format, &f); err != nil {
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

// setReasoning sets the effort. The requested length of the summary is checked and not sent: all that the provider
// reports of its reasoning is returned.
func (q *request) setReasoning(c *chat.Request, _ *upstream.Request) error {
	if !chat.IsSet(q.Reasoning) {
		return nil
	}
	if err := decode("reasoning", q.Reasoning, &q.reasoning); err != nil {
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
	c.ReasoningEffort = deref(q.reasoning.Effort)
	return nil
}

func (q *request) setTools(c *chat.Request, _ *upstream.Request) error {
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
		if err := decode(at, value, &t); err != nil {
			return err
		}
		q.tools = append(q.tools, t)
		function := chat.Function{Name: t.Name, Description: deref(t.Description), Strict: t.Strict}
		if chat.IsSet(t.Parameters) {
			function.Parameters = t.Parameters
		}
		c.Tools = append(c.Tools, chat.Tool{Type: "function", Function: function})
	}
	return nil
}

func (q *request) setToolChoice(c *chat.Request, _ *upstream.Request) error {
	switch {
	case !chat.IsSet(q.ToolChoice):
		return nil
	case q.ToolChoice.Kind() == '"':
		choice := &chat.ToolChoice{}
		if err := json.Unmarshal(q.ToolChoice, &choice.Mode); err != nil ||
			!slices.Contains([]string{"none", "auto", "required"}, choice.Mode) {
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
		unknownMembers
	}
	if err := decode("tool_choice", q.ToolChoice, &one); err != nil {
		return err
	}
	if one.Name == "" {
		return fault.Invalid("tool_choice.name", "is required")
	}
	c.ToolChoice = &chat.ToolChoice{Mode: kind, Name: one.Name}
	return nil
}
