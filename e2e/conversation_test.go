package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

var where = map[string]any{
	"type": "object", "required": []string{"city"}, "additionalProperties": false,
	"properties": map[string]any{"city": map[string]any{"type": "string", "enum": []string{"Ulm"}}},
}

// A conversation in which a model sees a picture, thinks, calls two tools and gets their results continues on every
// wire: what the provider signed comes back to it as it was, whether it was streamed or not.
func TestAConversationContinuesOnEveryWire(t *testing.T) {
	t.Parallel()
	models := map[string]string{
		"mock/tools":      "mock?tool&text=2",
		"claude/adaptive": "mock?tool&text=2&reasoning=2&sealed&preface=1",
		"claude/budgeted": "claude-sonnet-4-5-mock?tool&text=2&reasoning=2",
		"gemini/level":    "mock?tool&text=2&reasoning=2&preface=1&vouched",
		"gemini/budget":   "gemini-2.5-mock?tool&text=2&reasoning=2&vouched",
	}
	_, client, provider := wires(t, models)
	for model := range models {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed: %t", model, stream), func(t *testing.T) {
				talk := openai.ChatCompletionNewParams{Model: model, ReasoningEffort: "low", MaxCompletionTokens: openai.Int(3000)}
				talk.Messages = []openai.ChatCompletionMessageParamUnion{
					openai.SystemMessage("be brief"),
					openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
						openai.TextContentPart("what is this"),
						openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64,iVBORw0KGgo="}),
					}),
				}
				for _, name := range []string{"today", "tomorrow"} {
					talk.Tools = append(talk.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: name, Parameters: where}))
				}
				said := reply(t, client, talk, stream)
				if len(said.ToolCalls) != 2 || said.ToolCalls[0].ID == said.ToolCalls[1].ID || said.finish != "tool_calls" {
					t.Fatalf("%+v", said)
				}
				if thinks := !strings.HasPrefix(model, "mock/"); thinks && said.ReasoningContent != "every request" {
					t.Errorf("it thought %q", said.ReasoningContent)
				}
				talk.Messages = append(talk.Messages, param.Override[openai.ChatCompletionMessageParamUnion](json.RawMessage(said.text(t))))
				for _, call := range said.ToolCalls {
					talk.Messages = append(talk.Messages, openai.ToolMessage("fine weather", call.ID))
				}
				done := reply(t, client, talk, stream)
				if done.Content != "every request" || done.finish != "stop" || len(done.ToolCalls) > 0 {
					t.Fatalf("%+v", done)
				}
				talk.Messages = append(talk.Messages, param.Override[openai.ChatCompletionMessageParamUnion](json.RawMessage(done.text(t))), openai.UserMessage("and now"))
				if third := reply(t, client, talk, stream); len(third.ToolCalls) != 2 {
					t.Errorf("%+v", third)
				}
			})
		}
	}
	for _, one := range seenBy(t, provider, "iVBORw0KGgo=") {
		if one.Status != http.StatusOK {
			t.Errorf("the provider answered %d to %s", one.Status, one.Body)
		}
	}
}

// A said is an assistant's message, with the members that are not OpenAI's.
type said struct {
	Role             string           `json:"role"`
	Content          string           `json:"content,omitempty"`
	ReasoningContent string           `json:"reasoning_content,omitempty"`
	ReasoningDetails []map[string]any `json:"reasoning_details,omitempty"`
	ExtraContent     map[string]any   `json:"extra_content,omitempty"`
	ToolCalls        []struct {
		Index    *int   `json:"index,omitempty"`
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
		ExtraContent map[string]any `json:"extra_content,omitempty"`
	} `json:"tool_calls,omitempty"`
	finish string
}

// text is the message as a caller sends it back.
func (s *said) text(t *testing.T) []byte {
	t.Helper()
	s.Role = "assistant"
	for i := range s.ToolCalls {
		s.ToolCalls[i].Index = nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// reply asks and assembles the message, as a caller does that keeps members it does not know.
func reply(t *testing.T, client openai.Client, talk openai.ChatCompletionNewParams, stream bool) (out said) {
	t.Helper()
	if !stream {
		got, err := client.Chat.Completions.New(t.Context(), talk)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(got.Choices[0].Message.RawJSON()), &out); err != nil {
			t.Fatal(err)
		}
		out.finish = got.Choices[0].FinishReason
		return out
	}
	events := client.Chat.Completions.NewStreaming(t.Context(), talk)
	for events.Next() {
		for _, choice := range events.Current().Choices {
			var d said
			if err := json.Unmarshal([]byte(choice.Delta.RawJSON()), &d); err != nil {
				t.Fatal(err)
			}
			out.add(d, choice.FinishReason)
		}
	}
	if events.Err() != nil {
		t.Fatal(events.Err())
	}
	return out
}

func (s *said) add(d said, finish string) {
	s.Content, s.ReasoningContent = s.Content+d.Content, s.ReasoningContent+d.ReasoningContent
	s.ReasoningDetails = append(s.ReasoningDetails, d.ReasoningDetails...)
	if d.ExtraContent != nil {
		s.ExtraContent = d.ExtraContent
	}
	for _, call := range d.ToolCalls {
		if *call.Index == len(s.ToolCalls) {
			s.ToolCalls = append(s.ToolCalls, call)
			continue
		}
		s.ToolCalls[*call.Index].Function.Arguments += call.Function.Arguments
	}
	if finish != "" {
		s.finish = finish
	}
}

// A conversation with thoughts and calls that began at one vendor goes on at another, as it does where an alias splits
// its requests. What a vendor signed is for that vendor alone.
func TestAConversationMovesFromOneVendorToAnother(t *testing.T) {
	t.Parallel()
	models := map[string]string{"mock/tools": "mock?tool&text=2", "claude/tools": "mock?tool&text=2&reasoning=3&sealed", "gemini/tools": "mock?tool&text=2&reasoning=3"}
	_, client, _ := wires(t, models)
	for from := range models {
		for to := range models {
			t.Run(from+" to "+to, func(t *testing.T) {
				talk := openai.ChatCompletionNewParams{Model: from, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("one two three")}, ReasoningEffort: "medium"}
				for _, name := range []string{"today", "tomorrow"} {
					talk.Tools = append(talk.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: name, Parameters: where}))
				}
				first := reply(t, client, talk, false)
				talk.Messages = append(talk.Messages, param.Override[openai.ChatCompletionMessageParamUnion](json.RawMessage(first.text(t))))
				for _, call := range first.ToolCalls {
					talk.Messages = append(talk.Messages, openai.ToolMessage("fine weather", call.ID))
				}
				talk.Model = to
				if done := reply(t, client, talk, true); done.Content != "every request" || len(first.ToolCalls) != 2 {
					t.Errorf("%+v", done)
				}
				if thinks := from != "mock/tools"; thinks != (len(first.ReasoningDetails) > 0) {
					t.Errorf("it thought %+v", first.ReasoningDetails)
				}
			})
		}
	}
}
