package gemini

import (
	"fmt"
	"math"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// expressible is what a chat may say to Gemini.
var expressible = map[string]bool{
	"model": true, "messages": true, "models": true, "stream": true, "stream_options": true, "max_tokens": true,
	"max_completion_tokens": true, "temperature": true, "top_p": true, "top_k": true, "stop": true, "n": true, "seed": true,
	"presence_penalty": true, "frequency_penalty": true, "logprobs": true, "top_logprobs": true, "tools": true,
	"tool_choice": true, "parallel_tool_calls": true, "response_format": true, "reasoning_effort": true,
}

// settings are how an answer shall come about.
func settings(r *chat.Request, model string) (*generationConfig, error) {
	if err := bounded(r); err != nil {
		return nil, err
	}
	g := &generationConfig{
		Temperature: r.Temperature, TopP: r.TopP, TopK: r.TopK, CandidateCount: r.N, MaxOutputTokens: r.Limit(),
		StopSequences: r.Stop, Seed: r.Seed, PresencePenalty: r.PresencePenalty, FrequencyPenalty: r.FrequencyPenalty,
	}
	for _, set := range []func(*generationConfig, *chat.Request) error{likelihoods, form} {
		if err := set(g, r); err != nil {
			return nil, err
		}
	}
	var err error
	g.ThinkingConfig, err = thinking(r.ReasoningEffort, model)
	return g, err
}

// bounded refuses numbers that Gemini's 32 bits cannot hold, and two limits that are not one.
func bounded(r *chat.Request) error {
	for _, number := range []struct {
		name  string
		value *int64
		least int64
	}{
		{"max_tokens", r.MaxTokens, 1},
		{"max_completion_tokens", r.MaxCompletionTokens, 1},
		{"n", r.N, 1},
		{"top_k", r.TopK, 1},
		{"top_logprobs", r.TopLogprobs, 0},
		{"seed", r.Seed, math.MinInt32},
	} {
		if v := number.value; v != nil && (*v < number.least || *v > math.MaxInt32) {
			return fault.Invalid(number.name, fmt.Sprintf("must be a whole number of %d to %d", number.least, math.MaxInt32))
		}
	}
	if r.MaxTokens != nil && r.MaxCompletionTokens != nil && *r.MaxTokens != *r.MaxCompletionTokens {
		return fault.Invalid("max_tokens", "is another limit than max_completion_tokens")
	}
	return nil
}

// likelihoods asks for those of tokens, which an event of a stream has no place for.
func likelihoods(g *generationConfig, r *chat.Request) error {
	asked := r.Logprobs != nil && *r.Logprobs
	switch {
	case asked && r.Stream:
		return chat.Unsupported("logprobs", "cannot be streamed from the "+wire)
	case !asked && r.TopLogprobs != nil && *r.TopLogprobs > 0:
		return fault.Invalid("top_logprobs", "needs logprobs")
	case asked:
		g.ResponseLogprobs, g.Logprobs = true, r.TopLogprobs
	}
	return nil
}

const asJSON = "application/json"

// form is what an answer shall look like. Gemini holds to a schema always, strict or not; the schema's name is a label.
func form(g *generationConfig, r *chat.Request) error {
	f := r.ResponseFormat
	switch {
	case f == nil || f.Type == "text":
	case f.Type == "json_object":
		g.ResponseMIMEType = asJSON
	case f.Type != "json_schema":
		return chat.Unsupported("response_format.type", "cannot be expressed in the "+wire)
	case f.JSONSchema == nil || !object(f.JSONSchema.Schema):
		return fault.Invalid("response_format.json_schema.schema", "must be a JSON schema")
	default:
		var err error
		g.ResponseMIMEType = asJSON
		g.ResponseJSONSchema, err = f.JSONSchema.Described()
		return err
	}
	return nil
}

// An effort of reasoning is a level or, for the early models, a budget of tokens, as Google's own OpenAI endpoint has it.
// No level is none at all: only a budget can say that.
type effort struct {
	level  string
	budget int64
}

var efforts = map[string]effort{
	"none":    {"", 0},
	"minimal": {"MINIMAL", 1024},
	"low":     {"LOW", 1024},
	"medium":  {"MEDIUM", 8192},
	"high":    {"HIGH", 24576},
}

// thinking is what is asked for, with the thoughts told, or nothing: a model that is not asked does as it always does.
func thinking(asked, model string) (*thinkingConfig, error) {
	if asked == "" {
		return nil, nil //nolint:nilnil // not to ask is no error
	}
	e, ok := efforts[asked]
	switch {
	case !ok:
		return nil, chat.Unsupported("reasoning_effort", "must be none, minimal, low, medium or high in the "+wire)
	case early(model) && (e.budget > 0 || !restless(model)):
		return &thinkingConfig{ThinkingBudget: &e.budget, IncludeThoughts: e.budget > 0}, nil
	case e.level == "":
		return nil, chat.Unsupported("reasoning_effort", "cannot be none: the model always thinks")
	default:
		return &thinkingConfig{ThinkingLevel: e.level, IncludeThoughts: true}, nil
	}
}

// declare is the functions that may be called, with their schemas as they are.
func declare(tools []chat.Tool) ([]toolbox, error) {
	var box toolbox
	for i := range tools {
		t, at := &tools[i], fmt.Sprintf("tools[%d]", i)
		switch {
		case t.CacheControl != nil:
			return nil, chat.Unsupported(at+".cache_control", "cannot be expressed in the "+wire)
		case t.Type != "function" || present(t.Custom):
			return nil, chat.Unsupported(at+".type", "must be function in the "+wire)
		case t.Function.Name == "":
			return nil, fault.Invalid(at+".function.name", "is required")
		case present(t.Function.Parameters) && !object(t.Function.Parameters):
			return nil, fault.Invalid(at+".function.parameters", "must be a JSON schema")
		}
		d := declaration{Name: t.Function.Name, Description: t.Function.Description}
		if present(t.Function.Parameters) {
			d.ParametersJSONSchema = t.Function.Parameters
		}
		box.FunctionDeclarations = append(box.FunctionDeclarations, d)
	}
	if len(box.FunctionDeclarations) == 0 {
		return nil, nil
	}
	return []toolbox{box}, nil
}

// modes are Gemini's words for choices. A free choice of strict functions is the one that holds to their schemas; a
// forced one always does.
var modes = map[string]string{"none": "NONE", "auto": "AUTO", "required": "ANY", "function": "ANY"}

// choose says whether functions are called.
func choose(c *chat.ToolChoice, tools []chat.Tool) (*toolConfig, error) {
	strict := slices.ContainsFunc(tools, func(t chat.Tool) bool { return t.Function.Strict != nil && *t.Function.Strict })
	if c == nil {
		if !strict {
			return nil, nil //nolint:nilnil // not to choose is no error
		}
		c = &chat.ToolChoice{Mode: "auto"}
	}
	mode, ok := modes[c.Mode]
	switch {
	case !ok:
		return nil, chat.Unsupported("tool_choice", "must be none, auto, required or a function in the "+wire)
	case len(tools) == 0 && mode == "ANY":
		return nil, fault.Invalid("tool_choice", "needs tools")
	case len(tools) == 0:
		return nil, nil //nolint:nilnil // without functions none is called
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
