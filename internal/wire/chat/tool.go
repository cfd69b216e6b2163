package chat

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
)

// A Tool is what a model may call.
type Tool struct {
	Type         string         `json:"type"`
	Function     Function       `json:"function,omitzero"`
	Custom       jsontext.Value `json:"custom,omitempty"`
	CacheControl *CacheControl  `json:"cache_control,omitempty"`
}

// A Function is a tool that takes arguments by a schema.
type Function struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Parameters  jsontext.Value `json:"parameters,omitempty"`
	Strict      *bool          `json:"strict,omitempty"`
}

// A ToolCall is a model's call of a function. Index is there in streams only.
type ToolCall struct {
	Index        *int           `json:"index,omitempty"`
	ID           string         `json:"id,omitempty"`
	Type         string         `json:"type,omitempty"`
	Function     Called         `json:"function"`
	Custom       jsontext.Value `json:"custom,omitempty"`
	ExtraContent *Extra         `json:"extra_content,omitempty"`
}

// Called is a function's name and its arguments, as JSON in a text.
type Called struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// A ToolChoice says whether a model calls tools: none, auto, required, or the function of that name.
type ToolChoice struct {
	Mode string // none, auto, required; or function, allowed_tools, custom where an object says so
	Name string // of the function
	raw  jsontext.Value
}

// UnmarshalJSONFrom reads a word or an object.
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
		of   string
		held bool
	}{
		{"function", object.Function != nil},
		{"allowed_tools", present(object.AllowedTools)},
		{"custom", present(object.Custom)},
	} {
		if member.held && member.of != object.Type {
			return Rule("says what does not belong to its type")
		}
	}
	if c.Mode = object.Type; object.Function != nil {
		c.Name = object.Function.Name
	}
	return nil
}

func present(value jsontext.Value) bool { return len(value) > 0 && value.Kind() != 'n' }

// MarshalJSONTo writes what was read.
func (c ToolChoice) MarshalJSONTo(e *jsontext.Encoder) error {
	if c.raw != nil {
		return e.WriteValue(c.raw)
	}
	if c.Name != "" {
		return json.MarshalEncode(e, map[string]any{"type": "function", "function": map[string]string{"name": c.Name}}, json.Deterministic(true))
	}
	return e.WriteToken(jsontext.String(c.Mode))
}

// A Format is the form that an answer shall have: text, json_object, json_schema.
type Format struct {
	Type       string      `json:"type"`
	JSONSchema *JSONSchema `json:"json_schema,omitempty"`
}

// A JSONSchema is a named schema of an answer.
type JSONSchema struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Schema      jsontext.Value `json:"schema,omitempty"`
	Strict      *bool          `json:"strict,omitempty"`
}

// Described is the schema with its description inside, for wires that have no other place for it.
func (s *JSONSchema) Described() (jsontext.Value, error) {
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
