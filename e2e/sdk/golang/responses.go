package golang

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// respond is ask, for the Responses API.
func (s *suite) respond(name string) responses.ResponseNewParams {
	_, nonce := s.ask(name)
	return responses.ResponseNewParams{
		Model: s.Models[name], Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("one two " + nonce)},
	}
}

func (s *suite) response(t *testing.T, name string) {
	params := s.respond(name)
	params.Instructions = param.NewOpt("Be brief.")
	got, err := s.client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	usage := got.Usage
	if got.Object != "response" || got.Status != "completed" || got.OutputText() == "" || usage.OutputTokens == 0 ||
		usage.TotalTokens != usage.InputTokens+usage.OutputTokens {
		t.Error(got.RawJSON())
	}
	if name == "chat" && got.OutputText() != answer {
		t.Error(got.RawJSON())
	}
}

func (s *suite) responseStream(t *testing.T, name string) {
	stream := s.client.Responses.NewStreaming(t.Context(), s.respond(name))
	var text, done string
	var last responses.ResponseStreamEventUnion
	ids := map[string]bool{}
	for at := int64(0); stream.Next(); at++ {
		last = stream.Current()
		if last.SequenceNumber != at {
			t.Errorf("event %d has the number %d: %s", at, last.SequenceNumber, last.RawJSON())
		}
		switch event := last.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += event.Delta
		case responses.ResponseTextDoneEvent:
			done += event.Text
		}
		if last.JSON.Response.Valid() {
			ids[last.Response.ID] = true
		}
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	if last.Type != "response.completed" || text == "" || text != done || text != last.Response.OutputText() ||
		len(ids) != 1 || last.Response.Usage.OutputTokens == 0 {
		t.Errorf("%q, then %q: %s", text, done, last.RawJSON())
	}
	if name != "sim_chat" && text != answer {
		t.Error(text)
	}
}

func (s *suite) responseTools(t *testing.T, name string) {
	params := s.respond(name)
	want := []string{"today", "tomorrow"}
	for _, one := range want {
		params.Tools = append(params.Tools, responses.ToolParamOfFunction(one, place, true))
	}
	got, err := s.client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	var called []string
	next := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(
		params.Input.OfString.Value, responses.EasyInputMessageRoleUser,
	)}
	for _, item := range got.Output {
		// as it came
		next = append(next, param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(item.RawJSON())))
		if item.Type == "function_call" {
			called = append(called, item.Name)
		}
	}
	for _, item := range got.Output {
		if item.Type == "function_call" {
			result := responses.ResponseInputItemParamOfFunctionCallOutput("rain")
			result.OfFunctionCallOutput.CallID = param.NewOpt(item.CallID)
			next = append(next, result)
		}
	}
	if !slices.Equal(called, want) {
		t.Fatal(got.RawJSON())
	}
	params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: next}
	if got, err = s.client.Responses.New(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	if got.OutputText() == "" {
		t.Error(got.RawJSON())
	}
}

func (s *suite) responseBroken(t *testing.T, name string) {
	stream := s.client.Responses.NewStreaming(t.Context(), s.respond(name))
	told := false
	for stream.Next() {
		kind := stream.Current().Type
		told = told || kind == "error"
		if kind == "response.completed" {
			t.Error("it is complete")
		}
	}
	if stream.Err() == nil && !told {
		t.Error("nobody says that it broke off")
	}
}
