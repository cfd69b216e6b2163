package anthropic

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/wire/chat"
)

// tool is a function that the model may call.
type tool struct {
	Name         string             `json:"name"`
	Description  string             `json:"description,omitempty"`
	InputSchema  jsontext.Value     `json:"input_schema"`
	Strict       *bool              `json:"strict,omitzero"`
	CacheControl *chat.CacheControl `json:"cache_control,omitzero"`
}

// toolChoice says whether the model must call tools.
type toolChoice struct {
	Type            string `json:"type"` // none, auto, any, tool
	Name            string `json:"name,omitempty"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitzero"`
}

// function is the only type of tool, of call and of tool choice that has an equivalent.
const function = "function"

// setTools sets the tools and the tool choice.
func (q *messagesRequest) setTools(r *chat.Request, _ *live.Model) error {
	for i := range r.Tools {
		t, err := convertTool(&r.Tools[i], fmt.Sprintf("tools[%d]", i))
		if err != nil {
			return err
		}
		q.Tools = append(q.Tools, t)
	}
	return q.setToolChoice(r)
}

func convertTool(t *chat.Tool, at string) (tool, error) {
	switch {
	case t.Type != function || isSet(t.Custom):
		return tool{}, chat.Unsupported(at, "is no function, and nothing else has an equivalent in the "+apiName)
	case t.Function.Name == "":
		return tool{}, fault.Invalid(at+".function.name", "must not be empty")
	}
	schema, err := inputSchema(t.Function.Parameters, at+".function.parameters")
	if err != nil {
		return tool{}, err
	}
	cache, err := checkCacheControl(t.CacheControl, at)
	return tool{
		Name: t.Function.Name, Description: t.Function.Description, InputSchema: schema, Strict: t.Function.Strict,
		CacheControl: cache,
	}, err
}

// inputSchema returns the schema of a function's arguments. Anthropic requires the type object, which OpenAI implies.
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
		return withMember(parameters, "type", []byte(`"object"`)), nil
	case `"object"`:
		return parameters, nil
	default:
		return nil, fault.Invalid(at+".type", "must be object")
	}
}

// withMember inserts a member at the start of an object.
func withMember(object jsontext.Value, name string, value []byte) jsontext.Value {
	all := append([]byte(`{"`+name+`":`), value...)
	rest := object.Clone()
	if rest.Compact() == nil && string(rest) != "{}" {
		all = append(all, ',')
	}
	return append(all, rest[1:]...)
}

// toolChoiceTypes maps OpenAI's tool choices.
var toolChoiceTypes = map[string]string{"none": "none", "auto": "auto", "required": "any", function: "tool"}

// setToolChoice sets the tool choice. Without tools, none and auto need no equivalent.
func (q *messagesRequest) setToolChoice(r *chat.Request) error {
	choice := r.ToolChoice
	if choice == nil {
		choice = &chat.ToolChoice{Mode: "auto"}
	}
	kind, ok := toolChoiceTypes[choice.Mode]
	forced := choice.Mode == "required" || choice.Mode == function
	oneOnly := r.ParallelToolCalls != nil && !*r.ParallelToolCalls && kind != "none"
	switch {
	case !ok:
		return chat.Unsupported("tool_choice", "must be none, auto, required or a function for the "+apiName)
	case (choice.Mode == function) != (choice.Name != ""):
		return fault.Invalid("tool_choice", "must name the function, and nothing else")
	case forced && len(q.Tools) == 0:
		return fault.Invalid("tool_choice", "needs tools to choose from")
	case len(q.Tools) == 0 || r.ToolChoice == nil && !oneOnly:
		return nil
	}
	q.ToolChoice = &toolChoice{Type: kind, Name: choice.Name, DisableParallel: oneOnly}
	return nil
}

// forced reports whether the model must call a tool.
func (c *toolChoice) forced() bool { return c != nil && (c.Type == "any" || c.Type == "tool") }
