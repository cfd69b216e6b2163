package chat

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
)

// Tool is a tool that a model may call.
type Tool struct {
	Type         string         `json:"type"`
	Function     Function       `json:"function,omitzero"`
	Custom       jsontext.Value `json:"custom,omitempty"`
	CacheControl *CacheControl  `json:"cache_control,omitempty"`
}

// Function is a tool whose arguments follow a JSON schema.
type Function struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Parameters  jsontext.Value `json:"parameters,omitempty"`
	Strict      *bool          `json:"strict,omitempty"`
}

// ToolCall is a model's call of a tool. Index is set in streams only.
type ToolCall struct {
	Index        *int           `json:"index,omitempty"`
	ID           string         `json:"id,omitempty"`
	Type         string         `json:"type,omitempty"`
	Function     FunctionCall   `json:"function"`
	Custom       jsontext.Value `json:"custom,omitempty"`
	ExtraContent *ExtraContent  `json:"extra_content,omitempty"`
}

// FunctionCall is the name of a function and its arguments, which are JSON in a string.
type FunctionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// ToolChoice says whether a model must call tools: none, auto, required, or one function by name.
type ToolChoice struct {
	Mode string // none, auto, required; or the type of an object: function, allowed_tools, custom
	Name string // name of the function
	raw  jsontext.Value
}

// UnmarshalJSONFrom reads a string or an object.
func (c *ToolChoice) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		return json.UnmarshalDecode(d, &c.Mode)
	}
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	c.raw = raw.Clone()
	var object struct {
		Type     string `json:"type"`
		Function *struct {
			Name string `json:"name"`
		} `json:"function"`
		AllowedTools jsontext.Value `json:"allowed_tools"`
		Custom       jsontext.Value `json:"custom"`
	}
	if err := json.Unmarshal(raw, &object, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	for _, member := range []struct {
		kind string
		set  bool
	}{
		{"function", object.Function != nil},
		{"allowed_tools", IsSet(object.AllowedTools)},
		{"custom", IsSet(object.Custom)},
	} {
		if member.set && member.kind != object.Type {
			return ValueError("says what does not belong to its type")
		}
	}
	if c.Mode = object.Type; object.Function != nil {
		c.Name = object.Function.Name
	}
	return nil
}

// IsSet reports whether a member is present and not null.
func IsSet(value jsontext.Value) bool { return len(value) > 0 && value.Kind() != 'n' }

// MarshalJSONTo writes the value that was read.
func (c ToolChoice) MarshalJSONTo(e *jsontext.Encoder) error {
	if c.raw != nil {
		return e.WriteValue(c.raw)
	}
	if c.Name != "" {
		return json.MarshalEncode(e, map[string]any{"type": "function", "function": map[string]string{"name": c.Name}},
			json.Deterministic(true))
	}
	return e.WriteToken(jsontext.String(c.Mode))
}

// Format is the response format: text, json_object or json_schema.
type Format struct {
	Type       string      `json:"type"`
	JSONSchema *JSONSchema `json:"json_schema,omitempty"`
}

// JSONSchema is a named schema of an answer.
type JSONSchema struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Schema      jsontext.Value `json:"schema,omitempty"`
	Strict      *bool          `json:"strict,omitempty"`
}

// SchemaWithDescription returns the schema with the description as one of its members, for APIs that have no other
// field for it.
func (s *JSONSchema) SchemaWithDescription() (jsontext.Value, error) {
	const field = "response_format.json_schema.description"
	if s.Description == "" {
		return s.Schema, nil
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(s.Schema, &members); err != nil || members["description"] != nil {
		return nil, Unsupported(field, "cannot be said beside the schema's own")
	}
	all, err := jsontext.AppendQuote([]byte(`{"description":`), s.Description)
	if err != nil {
		return nil, fault.Invalid(field, "is no text")
	}
	if len(members) > 0 {
		all = append(all, ',')
	}
	return append(all, bytes.TrimLeft(s.Schema, "{ \t\r\n")...), nil
}
