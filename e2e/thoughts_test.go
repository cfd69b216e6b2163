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

// thinkingTalk is a conversation with a model that thinks, says a word and calls two tools.
func thinkingTalk(model, about string) openai.ChatCompletionNewParams {
	talk := openai.ChatCompletionNewParams{
		Model: model, ReasoningEffort: "low", MaxCompletionTokens: openai.Int(3000), User: openai.String("ann@example.com"),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(about)},
	}
	for _, name := range []string{"today", "tomorrow"} {
		talk.Tools = append(talk.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: name, Parameters: where}))
	}
	return talk
}

// answerTo continues a conversation with the assistant's message and the results of its calls.
func answerTo(t *testing.T, talk openai.ChatCompletionNewParams, what *said) openai.ChatCompletionNewParams {
	t.Helper()
	talk.Messages = append(talk.Messages, param.Override[openai.ChatCompletionMessageParamUnion](json.RawMessage(what.text(t))))
	for _, call := range what.ToolCalls {
		talk.Messages = append(talk.Messages, openai.ToolMessage("fine weather", call.ID))
	}
	return talk
}

// kinds are the types of the blocks of the assistant's last turn in a request to the provider.
func kinds(t *testing.T, body string) string {
	t.Helper()
	var sent struct {
		Messages []struct {
			Role    string
			Content []struct{ Type string }
		}
	}
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, m := range sent.Messages {
		if m.Role == "assistant" {
			all = all[:0]
			for _, b := range m.Content {
				all = append(all, b.Type)
			}
		}
	}
	return strings.Join(all, " ")
}

// Thoughts between a model's words and calls are sent back in their places, streamed or not. Another model does not get
// them.
func TestThoughtsComeBackToTheirPlacesAndTheirModel(t *testing.T) {
	t.Parallel()
	_, client, provider := wires(t, map[string]string{
		"claude/between": "interleaved-mock?tool&text=2&reasoning=2&preface=2&sealed",
		"claude/other":   "mock?tool&text=2&reasoning=2",
	})
	for _, stream := range []bool{false, true} {
		for model, want := range map[string]string{
			"claude/between": "thinking redacted_thinking text thinking redacted_thinking tool_use thinking redacted_thinking tool_use",
			"claude/other":   "text tool_use tool_use",
		} {
			t.Run(fmt.Sprintf("at %s, streamed: %t", model, stream), func(t *testing.T) {
				about := fmt.Sprintf("the weather at %s %t", model, stream)
				talk := thinkingTalk("claude/between", about)
				first := reply(t, client, talk, stream)
				if len(first.ToolCalls) != 2 || first.Content != "every request" || first.ReasoningContent != "every requestnow todaynow tomorrow" {
					t.Fatalf("%+v", first)
				}
				talk = answerTo(t, talk, &first)
				talk.Model = model
				if done := reply(t, client, talk, stream); done.Content != "every request" || done.finish != "stop" {
					t.Fatalf("%+v", done)
				}
				seen := seenBy(t, provider, about)
				last := seen[len(seen)-1]
				if got := kinds(t, last.Body); got != want || last.Status != http.StatusOK || strings.Contains(last.Body, "ann@") {
					t.Errorf("%d, %s, and not %s: %s", last.Status, got, want, last.Body)
				}
			})
		}
	}
}
