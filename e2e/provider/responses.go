package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/openai/openai-go/v3/responses"
)

// responsesWire is that of OpenAI's Responses: as the others of OpenAI's, but an error in a stream is flat.
var responsesWire = wire{
	key: openAI.key, unknown: openAI.unknown, refusal: openAI.refusal,
	broken: func(a *answer, message string) string {
		return event{name: "error", value: map[string]any{
			"type": "error", "code": "server_error", "message": message, "param": nil, "sequence_number": a.played,
		}}.lines()
	},
}

// A responsesRequest is what the answer depends on. The official types are held against the same body.
type responsesRequest struct {
	Model           string            `json:"model"`
	Stream          bool              `json:"stream"`
	Instructions    string            `json:"instructions"`
	Input           json.RawMessage   `json:"input"`
	MaxOutputTokens *int              `json:"max_output_tokens"`
	Tools           []json.RawMessage `json:"tools"`
	ToolChoice      json.RawMessage   `json:"tool_choice"`
	Parallel        *bool             `json:"parallel_tool_calls"`
	Include         []string          `json:"include"`
	Store           *bool             `json:"store"`
	Reasoning       *struct {
		Summary string `json:"summary"`
	} `json:"reasoning"`
	Text struct {
		Format *struct {
			Type   string         `json:"type"`
			Schema map[string]any `json:"schema"`
		} `json:"format"`
	} `json:"text"`
}

// An inputItem is one item of the conversation.
type inputItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      string          `json:"role"`
	Content   any             `json:"content"` // a text, or parts with a text each
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Output    any             `json:"output"`
	Encrypted string          `json:"encrypted_content"`
	Summary   json.RawMessage `json:"summary"`
}

// readResponses reads a request with OpenAI's own types.
func readResponses(a *answer) error {
	body := []byte(a.record.Body)
	var request responsesRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return err
	}
	// The official types lose an input without types, and the name of a chosen function, so these are read apart.
	if err := understood("", body, &responses.ResponseNewParams{}, "stream", "input", "tool_choice"); err != nil {
		return err
	}
	a.ask = ask{
		Model: request.Model, Stream: request.Stream, MaxTokens: request.MaxOutputTokens, Parallel: request.Parallel,
	}
	if request.MaxOutputTokens != nil && *request.MaxOutputTokens < 1 {
		return bad("max_output_tokens", "it must be at least 1")
	}
	if request.Instructions != "" {
		a.ask.Messages = append(a.ask.Messages, message{"system", request.Instructions})
	}
	if err := request.converse(&a.ask); err != nil {
		return err
	}
	if err := request.choose(&a.ask); err != nil {
		return err
	}
	if f := request.Text.Format; f != nil {
		a.ask.ResponseFormat = &format{Type: f.Type}
		a.ask.ResponseFormat.JSONSchema.Schema = f.Schema
	}
	a.ask.thinks = slices.Contains(request.Include, "reasoning.encrypted_content")
	return nil
}

func (r *responsesRequest) converse(a *ask) error {
	var text string
	if json.Unmarshal(r.Input, &text) == nil {
		a.Messages = append(a.Messages, message{"user", text})
		return nil
	}
	var items []map[string]any
	if err := json.Unmarshal(r.Input, &items); err != nil || len(items) == 0 {
		return bad("input", "it must be a text or items")
	}
	open := map[string]bool{}
	for i, raw := range items {
		place := fmt.Sprintf("input[%d]", i)
		item, err := readItem(place, raw)
		if err != nil {
			return err
		}
		switch item.Type {
		case "message":
			a.Messages = append(a.Messages, message{item.Role, item.Content})
		case "function_call":
			open[item.CallID] = true
		case "function_call_output":
			if !open[item.CallID] {
				return bad(place+".call_id", "there is no function call %q before it", item.CallID)
			}
			delete(open, item.CallID)
			a.Messages = append(a.Messages, message{"tool", item.Output})
		case "reasoning":
			if item.Encrypted != "" && item.Encrypted != signed("reasoning", item.ID) {
				return bad(place+".encrypted_content", "it is not mine")
			}
		default:
			return bad(place+".type", "this stand-in does not know %q", item.Type)
		}
	}
	for id := range open {
		return bad("input", "the function call %q has no output", id)
	}
	return nil
}

// readItem reads one item of the input with OpenAI's own type for it.
func readItem(place string, raw map[string]any) (item inputItem, err error) {
	if raw["type"] == nil && raw["role"] != nil {
		raw["type"] = "message"
	}
	text := []byte(encode(raw))
	if err := json.Unmarshal(text, &item); err != nil {
		return item, bad(place, "%s", err)
	}
	var as any = &responses.ResponseInputItemUnionParam{}
	if item.Type == "message" && item.ID != "" && item.Role == "assistant" {
		as = &responses.ResponseOutputMessageParam{}
	}
	return item, understood(place, text, as)
}

func (r *responsesRequest) choose(a *ask) error {
	for i, raw := range r.Tools {
		var one struct {
			Type, Name string
			Parameters map[string]any
		}
		if err := json.Unmarshal(raw, &one); err != nil || one.Type != "function" || one.Name == "" {
			return bad(fmt.Sprintf("tools[%d]", i), "this stand-in knows functions with a name alone")
		}
		t := tool{}
		t.Function.Name, t.Function.Parameters = one.Name, one.Parameters
		a.Tools = append(a.Tools, t)
	}
	var word string
	switch {
	case r.ToolChoice == nil:
	case json.Unmarshal(r.ToolChoice, &word) == nil:
		a.ToolChoice = word
	default:
		var chosen responses.ToolChoiceFunctionParam
		if err := understood("tool_choice", r.ToolChoice, &chosen); err != nil {
			return err
		}
		a.ToolChoice = map[string]any{"function": map[string]any{"name": chosen.Name}}
	}
	return nil
}
