package gemini

import (
	"fmt"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// convertTools returns the function declarations with their schemas unchanged.
func convertTools(tools []chat.Tool) ([]toolDeclarations, error) {
	var box toolDeclarations
	for i := range tools {
		t, at := &tools[i], fmt.Sprintf("tools[%d]", i)
		switch {
		case t.CacheControl != nil:
			return nil, chat.Unsupported(at+".cache_control", "cannot be expressed in the "+apiName)
		case t.Type != "function" || chat.IsSet(t.Custom):
			return nil, chat.Unsupported(at+".type", "must be function in the "+apiName)
		case t.Function.Name == "":
			return nil, fault.Invalid(at+".function.name", "is required")
		case chat.IsSet(t.Function.Parameters) && !isObject(t.Function.Parameters):
			return nil, fault.Invalid(at+".function.parameters", "must be a JSON schema")
		}
		d := functionDeclaration{Name: t.Function.Name, Description: t.Function.Description}
		if chat.IsSet(t.Function.Parameters) {
			d.ParametersJSONSchema = t.Function.Parameters
		}
		box.FunctionDeclarations = append(box.FunctionDeclarations, d)
	}
	if len(box.FunctionDeclarations) == 0 {
		return nil, nil
	}
	return []toolDeclarations{box}, nil
}

// callingModes maps OpenAI's tool choices. AUTO with strict functions becomes VALIDATED, which enforces their schemas;
// ANY always enforces them.
var callingModes = map[string]string{"none": "NONE", "auto": "AUTO", "required": "ANY", "function": "ANY"}

// newToolConfig translates the tool choice.
func newToolConfig(c *chat.ToolChoice, tools []chat.Tool) (*toolConfig, error) {
	strict := slices.ContainsFunc(tools, func(t chat.Tool) bool {
		return t.Function.Strict != nil && *t.Function.Strict
	})
	if c == nil {
		if !strict {
			return nil, nil //nolint:nilnil // no choice is valid
		}
		c = &chat.ToolChoice{Mode: "auto"}
	}
	mode, ok := callingModes[c.Mode]
	switch {
	case !ok:
		return nil, chat.Unsupported("tool_choice", "must be none, auto, required or a function in the "+apiName)
	case len(tools) == 0 && mode == "ANY":
		return nil, fault.Invalid("tool_choice", "needs tools")
	case len(tools) == 0:
		return nil, nil //nolint:nilnil // without functions no choice is needed
	case c.Mode == "auto" && strict:
		mode = "VALIDATED"
	}
	config := callingConfig{Mode: mode}
	if c.Mode == "function" {
		if !slices.ContainsFunc(tools, func(t chat.Tool) bool { return t.Function.Name == c.Name }) {
			return nil, fault.Invalid("tool_choice.function.name", "is not among the tools")
		}
		config.AllowedFunctionNames = []string{c.Name}
	}
	return &toolConfig{config}, nil
}
