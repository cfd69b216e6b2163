package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

func respondTo(model string) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("one two three")}}
}

func responseTool(name string) responses.ToolUnionParam {
	return responses.ToolParamOfFunction(name, map[string]any{"type": "object", "required": []string{"city"}, "properties": map[string]any{"city": map[string]any{"type": "string", "enum": []string{"Ulm"}}}}, true)
}

// responseGist is a summary of an answer in one line.
func responseGist(r *responses.Response) string {
	var out []string
	for _, item := range r.Output {
		line := []string{item.Type}
		for _, part := range item.Summary {
			line = append(line, part.Text)
		}
		for _, part := range item.Content {
			line = append(line, part.Text)
		}
		out = append(out, strings.TrimSpace(strings.Join(append(line, item.Name+item.Arguments.OfString), " ")))
	}
	u := r.Usage
	return fmt.Sprintf("%s | %s %s| in %d cached %d written %d out %d thought %d", strings.Join(out, ", "), r.Status, r.IncompleteDetails.Reason, u.InputTokens, u.InputTokensDetails.CachedTokens, u.InputTokensDetails.CacheWriteTokens, u.OutputTokens, u.OutputTokensDetails.ReasoningTokens)
}

// order is the order of the events of a stream, without repetitions of the same kind in a row.
func order(kinds []string) string { return strings.Join(slices.Compact(kinds), " ") }

func TestOpenAIsPackageReadsResponsesFromStreamsAndBodies(t *testing.T) {
	client := official(start(t))
	tools := respondTo("mock?tool&reasoning=2")
	tools.Tools = []responses.ToolUnionParam{responseTool("today"), responseTool("tomorrow")}
	chosen := tools
	chosen.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{OfFunctionTool: &responses.ToolChoiceFunctionParam{Name: "tomorrow"}}
	short := respondTo("mock?text=9")
	short.MaxOutputTokens = openai.Int(4)
	short.Instructions = openai.String("be brief")
	structured := respondTo("mock?json")
	structured.Text.Format = responses.ResponseFormatTextConfigParamOfJSONSchema("verdict", map[string]any{"type": "object", "required": []string{"pass"}, "properties": map[string]any{"pass": map[string]any{"type": "boolean"}}})
	seeing := respondTo("mock?text=1")
	seeing.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(responses.ResponseInputMessageContentListParam{
		responses.ResponseInputContentParamOfInputText("see this"), {OfInputImage: &responses.ResponseInputImageParam{ImageURL: openai.String("data:image/png;base64,AAAA"), Detail: "auto"}},
	}, "user")}}
	seeing.Reasoning = shared.ReasoningParam{Effort: "low"}
	const head, foot = "response.created response.in_progress ", "response.output_item.done "
	const text = "response.output_item.added response.content_part.added response.output_text.delta response.output_text.done response.content_part.done " + foot
	const thought = "response.output_item.added response.reasoning_summary_part.added response.reasoning_summary_text.delta response.reasoning_summary_text.done response.reasoning_summary_part.done " + foot
	const call = "response.output_item.added response.function_call_arguments.delta response.function_call_arguments.done " + foot
	for name, c := range map[string]struct {
		params       responses.ResponseNewParams
		want, events string
	}{
		"text":       {respondTo("mock?text=5"), "message every request is held before | completed | in 3 cached 0 written 0 out 5 thought 0", head + text + "response.completed"},
		"limit":      {short, "message every request is held | incomplete max_output_tokens| in 5 cached 0 written 0 out 4 thought 0", head + text + "response.incomplete"},
		"filter":     {respondTo("mock?text=1&finish=content_filter"), "message every | incomplete content_filter| in 3 cached 0 written 0 out 1 thought 0", head + text + "response.incomplete"},
		"failed":     {respondTo("mock?text=1&finish=failed"), "message every | failed | in 3 cached 0 written 0 out 1 thought 0", head + text + "response.failed"},
		"tools":      {tools, `reasoning every request, function_call today{"city":"Ulm"}, function_call tomorrow{"city":"Ulm"} | completed | in 3 cached 0 written 0 out 6 thought 2`, head + thought + call + call + "response.completed"},
		"chosen":     {chosen, `reasoning every request, function_call tomorrow{"city":"Ulm"} | completed | in 3 cached 0 written 0 out 4 thought 2`, head + thought + call + "response.completed"},
		"structured": {structured, `message {"pass":true} | completed | in 3 cached 0 written 0 out 1 thought 0`, head + text + "response.completed"},
		"image":      {seeing, "message every | completed | in 2 cached 0 written 0 out 1 thought 0", head + text + "response.completed"},
		"figures":    {respondTo("mock?text=1&in=100&cached=90&written=5&out=7"), "message every | completed | in 100 cached 90 written 5 out 7 thought 0", head + text + "response.completed"},
	} {
		t.Run(name, func(t *testing.T) {
			whole, err := client.Responses.New(t.Context(), c.params)
			if err != nil {
				t.Fatal(err)
			}
			stream := client.Responses.NewStreaming(t.Context(), c.params)
			var kinds []string
			var last responses.Response
			for stream.Next() {
				e := stream.Current()
				if extra := slices.DeleteFunc(unknown(e.AsAny()), func(s string) bool { return s == "name" }); len(extra) > 0 { // newer than the package, which other languages' have
					t.Errorf("unknown %v in %s", extra, e.RawJSON())
				}
				if e.SequenceNumber != int64(len(kinds)) {
					t.Errorf("event %d is numbered %d", len(kinds), e.SequenceNumber)
				}
				kinds, last = append(kinds, e.Type), e.Response
			}
			if stream.Err() != nil || order(kinds) != c.events {
				t.Errorf("%v\n%s\nis not\n%s", stream.Err(), order(kinds), c.events)
			}
			for _, r := range []*responses.Response{whole, &last} {
				if got := responseGist(r); got != c.want || len(unknown(*r)) > 0 {
					t.Errorf("unknown %v in\n%s\nwhich is not\n%s", unknown(*r), got, c.want)
				}
			}
		})
	}
}

func TestResponsesToolTurnsGoRound(t *testing.T) {
	address := start(t)
	client := official(address)
	params := respondTo("mock?tool&reasoning=2&text=1")
	params.Tools = []responses.ToolUnionParam{responseTool("today"), responseTool("tomorrow")}
	params.Include = []responses.ResponseIncludable{"reasoning.encrypted_content"}
	first, err := client.Responses.New(t.Context(), params)
	if err != nil || len(first.Output) != 3 || first.Output[0].EncryptedContent == "" {
		t.Fatal(err)
	}
	var items []string
	for _, item := range first.Output {
		items = append(items, item.RawJSON())
	}
	for _, item := range first.Output[1:] {
		items = append(items, `{"type":"function_call_output","call_id":"`+item.CallID+`","output":"fine"}`)
	}
	body := func(items ...string) string {
		return `{"model":"mock?tool&text=1","tools":[{"type":"function","name":"today","parameters":{"type":"object"},"strict":false}],"input":[{"role":"user","content":"a"},` + strings.Join(items, ",") + `]}`
	}
	if _, text, err := send(t, t.Context(), address, "/v1/responses", body(items...)); err != nil || !strings.Contains(text, `"text":"every"`) {
		t.Error(text, err)
	}
	for want, body := range map[string]string{
		"has no output":             body(items[:3]...),
		"no function call":          body(items[3]),
		"it is not mine":            body(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}`),
		"bogus is not known":        `{"model":"mock","input":"a","bogus":1}`,
		"input[0]: it is not":       `{"model":"mock","input":[{"type":"nothing"}]}`,
		"input[0].name is not":      `{"model":"mock","input":[{"role":"user","content":"a","name":"x"}]}`,
		"max_output_tokens":         `{"model":"mock","input":"a","max_output_tokens":0}`,
		"tool_choice.function":      `{"model":"mock","input":"a","tool_choice":{"type":"function","name":"f","function":{"name":"f"}}}`,
		"it must be a text or item": `{"model":"mock"}`,
	} {
		response, text, err := send(t, t.Context(), address, "/v1/responses", body)
		if err != nil || response.StatusCode != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %s %v", want, text, err)
		}
	}
}

func TestResponsesRefusalsAndFaultsAreItsOwn(t *testing.T) {
	client := official(start(t))
	var refusal *openai.Error
	if _, err := client.Responses.New(t.Context(), respondTo("mock?status=429")); !errors.As(err, &refusal) || refusal.StatusCode != http.StatusTooManyRequests {
		t.Error(err)
	}
	for model, want := range map[string]string{"mock?error_event_after=1": "broke down in the middle", "mock?die_after=1": "EOF", "mock?garbage_after=1": "invalid", "mock?reset_after=1": "reset"} {
		stream, heard := client.Responses.NewStreaming(t.Context(), respondTo(model)), 0
		failed := ""
		for stream.Next() {
			if e := stream.Current(); e.Type == "error" {
				failed = e.Message
			} else {
				heard += len(e.Delta)
			}
		}
		if stream.Err() != nil {
			failed = stream.Err().Error()
		}
		if !strings.Contains(failed, want) || heard == 0 {
			t.Errorf("%s: %q after %d", model, failed, heard)
		}
	}
}
