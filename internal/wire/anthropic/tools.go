package anthropic

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/wire/chat"
)

// A tool is what the model may call.
type tool struct {
	Name         string             `json:"name"`
	Description  string             `json:"description,omitempty"`
	InputSchema  jsontext.Value     `json:"input_schema"`
	Strict       *bool              `json:"strict,omitzero"`
	CacheControl *chat.CacheControl `json:"cache_control,omitzero"`
}

// A choice says whether the model calls tools.
type choice struct {
	Type    string `json:"type"` // none, auto, any, tool
	Name    string `json:"name,omitempty"`
	OneOnly bool   `json:"disable_parallel_tool_use,omitzero"`
}

// function is the type of the tools, of the calls and of the choice that have an equivalent.
const function = "function"

// offer says which tools there are, and how to choose among them.
func (q *question) offer(r *chat.Request, _ *live.Model) error {
	for i := range r.Tools {
		t, err := offered(&r.Tools[i], fmt.Sprintf("tools[%d]", i))
		if err != nil {
			return err
		}
		q.Tools = append(q.Tools, t)
	}
	return q.choose(r)
}

func offered(t *chat.Tool, at string) (tool, error) {
	switch {
	case t.Type != function || says(t.Custom):
		return tool{}, chat.Unsupported(at, "is no function, and nothing else has an equivalent in the "+wire)
	case t.Function.Name == "":
		return tool{}, fault.Invalid(at+".function.name", "must not be empty")
	}
	schema, err := inputSchema(t.Function.Parameters, at+".function.parameters")
	if err != nil {
		return tool{}, err
	}
	cache, err := mark(t.CacheControl, at)
	return tool{
		Name: t.Function.Name, Description: t.Function.Description, InputSchema: schema, Strict: t.Function.Strict, CacheControl: cache,
	}, err
}

// inputSchema is the schema of a function's arguments, which are always an object. OpenAI takes that for said.
func inputSchema(parameters jsontext.Value, at string) (jsontext.Value, error) {
	if len(parameters) == 0 || parameters.Kind() == 'n' {
		return jsontext.Value(`{"type":"object","properties":{}}`), nil
	}
	var has struct {
		Type jsontext.Value `json:"type"`
	}
	if err := json.Unmarshal(parameters, &has); err != nil || parameters.Kind() != '{' {
		return nil, fault.Invalid(at, "must be a schema")
	}
	switch string(has.Type) {
	case "":
		return with(parameters, "type", []byte(`"object"`)), nil
	case `"object"`:
		return parameters, nil
	default:
		return nil, fault.Invalid(at+".type", "must be object")
	}
}

// with is an object with one more member, in front.
func with(object jsontext.Value, name string, value []byte) jsontext.Value {
	all := append([]byte(`{"`+name+`":`), value...)
	rest := object.Clone()
	if rest.Compact() == nil && string(rest) != "{}" {
		all = append(all, ',')
	}
	return append(all, rest[1:]...)
}

// choices are the words for how to choose.
var choices = map[string]string{"none": "none", "auto": "auto", "required": "any", function: "tool"}

// choose says how to choose among tools. Where there are none, neither none nor auto asks for anything.
func (q *question) choose(r *chat.Request) error {
	said := r.ToolChoice
	if said == nil {
		said = &chat.ToolChoice{Mode: "auto"}
	}
	kind, ok := choices[said.Mode]
	forced := said.Mode == "required" || said.Mode == function
	oneOnly := r.ParallelToolCalls != nil && !*r.ParallelToolCalls && kind != "none"
	switch {
	case !ok:
		return chat.Unsupported("tool_choice", "must be none, auto, required or a function for the "+wire)
	case (said.Mode == function) != (said.Name != ""):
		return fault.Invalid("tool_choice", "must name the function, and nothing else")
	case forced && len(q.Tools) == 0:
		return fault.Invalid("tool_choice", "needs tools to choose from")
	case len(q.Tools) == 0 || r.ToolChoice == nil && !oneOnly:
		return nil
	}
	q.ToolChoice = &choice{Type: kind, Name: said.Name, OneOnly: oneOnly}
	return nil
}

// forced reports whether the model has to call a tool.
func (c *choice) forced() bool { return c != nil && (c.Type == "any" || c.Type == "tool") }
