package gemini

import (
	"fmt"
	"math"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// expressible are the parameters of a chat request that have an equivalent.
var expressible = map[string]bool{
	"model": true, "messages": true, "models": true, "stream": true, "stream_options": true, "max_tokens": true,
	"max_completion_tokens": true, "temperature": true, "top_p": true, "top_k": true, "stop": true, "n": true,
	"seed": true, "presence_penalty": true, "frequency_penalty": true, "logprobs": true, "top_logprobs": true,
	"tools": true, "tool_choice": true, "parallel_tool_calls": true, "response_format": true, "reasoning_effort": true,
}

// newGenerationConfig translates the sampling parameters, the format and the reasoning effort.
func newGenerationConfig(r *chat.Request, model string) (*generationConfig, error) {
	if err := checkNumbers(r); err != nil {
		return nil, err
	}
	g := &generationConfig{
		Temperature: r.Temperature, TopP: r.TopP, TopK: r.TopK, CandidateCount: r.N, MaxOutputTokens: r.Limit(),
		StopSequences: r.Stop, Seed: r.Seed, PresencePenalty: r.PresencePenalty, FrequencyPenalty: r.FrequencyPenalty,
	}
	for _, set := range []func(*generationConfig, *chat.Request) error{setLogprobs, setFormat} {
		if err := set(g, r); err != nil {
			return nil, err
		}
	}
	var err error
	g.ThinkingConfig, err = newThinkingConfig(r.ReasoningEffort, model)
	return g, err
}

// checkNumbers refuses numbers outside of Gemini's 32-bit range, and two different token limits.
func checkNumbers(r *chat.Request) error {
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
			return fault.Invalid(number.name, fmt.Sprintf("must be a whole number of %d to %d", number.least,
				math.MaxInt32))
		}
	}
	if r.MaxTokens != nil && r.MaxCompletionTokens != nil && *r.MaxTokens != *r.MaxCompletionTokens {
		return fault.Invalid("max_tokens", "is another limit than max_completion_tokens")
	}
	return nil
}

// setLogprobs asks for log probabilities. In streams they are refused, because they are not translated there.
func setLogprobs(g *generationConfig, r *chat.Request) error {
	asked := r.Logprobs != nil && *r.Logprobs
	switch {
	case asked && r.Stream:
		return chat.Unsupported("logprobs", "cannot be streamed from the "+apiName)
	case !asked && r.TopLogprobs != nil && *r.TopLogprobs > 0:
		return fault.Invalid("top_logprobs", "needs logprobs")
	case asked:
		g.ResponseLogprobs, g.Logprobs = true, r.TopLogprobs
	}
	return nil
}

const mimeJSON = "application/json"

// setFormat sets the format of the answer. Gemini always enforces a schema, strict or not. The name of the schema is
// not sent.
func setFormat(g *generationConfig, r *chat.Request) error {
	f := r.ResponseFormat
	switch {
	case f == nil || f.Type == "text":
	case f.Type == "json_object":
		g.ResponseMIMEType = mimeJSON
	case f.Type != "json_schema":
		return chat.Unsupported("response_format.type", "cannot be expressed in the "+apiName)
	case f.JSONSchema == nil || !isObject(f.JSONSchema.Schema):
		return fault.Invalid("response_format.json_schema.schema", "must be a JSON schema")
	default:
		var err error
		g.ResponseMIMEType = mimeJSON
		g.ResponseJSONSchema, err = f.JSONSchema.SchemaWithDescription()
		return err
	}
	return nil
}

// effort is a thinking level or, for models before Gemini 3, a token budget, as in Google's OpenAI-compatible endpoint.
// Only a budget can disable thinking.
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

// newThinkingConfig translates reasoning_effort and asks for the thoughts. Without reasoning_effort the model's default
// applies.
func newThinkingConfig(asked, model string) (*thinkingConfig, error) {
	if asked == "" {
		return nil, nil //nolint:nilnil // no effort is valid
	}
	e, ok := efforts[asked]
	switch {
	case !ok:
		return nil, chat.Unsupported("reasoning_effort", "must be none, minimal, low, medium or high in the "+apiName)
	case beforeGemini3(model) && (e.budget > 0 || !alwaysThinks(model)):
		return &thinkingConfig{ThinkingBudget: &e.budget, IncludeThoughts: e.budget > 0}, nil
	case e.level == "":
		return nil, chat.Unsupported("reasoning_effort", "cannot be none: the model always thinks")
	default:
		return &thinkingConfig{ThinkingLevel: e.level, IncludeThoughts: true}, nil
	}
}

// newGenerateRequest translates a chat request.
func newGenerateRequest(r *chat.Request, model string) (*generateRequest, error) {
	conversation, err := newConversation(r.Messages, beforeGemini3(model))
	if err != nil {
		return nil, err
	}
	translated := &generateRequest{Contents: conversation.turns}
	if len(conversation.system) > 0 {
		translated.SystemInstruction = &content{Parts: conversation.system}
	}
	if translated.GenerationConfig, err = newGenerationConfig(r, model); err != nil {
		return nil, err
	}
	if translated.Tools, err = convertTools(r.Tools); err != nil {
		return nil, err
	}
	translated.ToolConfig, err = newToolConfig(r.ToolChoice, r.Tools)
	return translated, err
}
