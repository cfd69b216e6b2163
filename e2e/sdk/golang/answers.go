package golang

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

func (s *suite) models(t *testing.T, _ string) {
	listed := s.Models["listed"]
	found := false
	pages := s.client.Models.ListAutoPaging(t.Context())
	for pages.Next() {
		model := pages.Current()
		if model.Object != "model" || model.OwnedBy == "" || model.Created == 0 {
			t.Error(model.RawJSON())
		}
		found = found || model.ID == listed
	}
	if pages.Err() != nil || !found {
		t.Errorf("%s is not listed: %v", listed, pages.Err())
	}
	if one, err := s.client.Models.Get(t.Context(), listed); err != nil || one.ID != listed {
		t.Error(one, err)
	}
}

func (s *suite) chat(t *testing.T, name string) {
	params, _ := s.ask(name)
	got, err := s.client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	choice, usage := only(t, got.Choices), got.Usage
	if choice.Message.Content == "" || choice.FinishReason != "stop" || choice.Message.Role != "assistant" ||
		usage.TotalTokens != usage.PromptTokens+usage.CompletionTokens || usage.CompletionTokens == 0 {
		t.Error(got.RawJSON())
	}
	if name == "chat" && (choice.Message.Content != answer || usage.PromptTokens != 3 || usage.CompletionTokens != 5) {
		t.Error(got.RawJSON())
	}
}

func (s *suite) hidden(t *testing.T, name string) {
	params, _ := s.ask(name)
	chunks, text, err := collect(s.client.Chat.Completions.NewStreaming(t.Context(), params))
	if err != nil || text == "" || name != "sim_chat" && text != answer {
		t.Fatalf("%q %v", text, err)
	}
	first, last := chunks[0], chunks[len(chunks)-1]
	for _, chunk := range chunks {
		if only(t, chunk.Choices); chunk.JSON.Usage.Valid() || chunk.ID != first.ID || chunk.Model != first.Model ||
			chunk.Created != first.Created {
			t.Error(chunk.RawJSON())
		}
	}
	if only(t, first.Choices).Delta.Role != "assistant" || only(t, last.Choices).FinishReason != "stop" {
		t.Error(first.RawJSON(), last.RawJSON())
	}
}

func (s *suite) asked(t *testing.T, name string) {
	params, _ := s.ask(name)
	chunks, _, err := collect(s.client.Chat.Completions.NewStreaming(t.Context(), withUsage(params)))
	if err != nil {
		t.Fatal(err)
	}
	last := chunks[len(chunks)-1]
	if usage := last.Usage; len(last.Choices) != 0 || usage.CompletionTokens == 0 ||
		usage.TotalTokens != usage.PromptTokens+usage.CompletionTokens || name != "sim_chat" &&
		usage.CompletionTokens != 5 {
		t.Error(last.RawJSON())
	}
	for _, chunk := range chunks[:len(chunks)-1] {
		if only(t, chunk.Choices); chunk.JSON.Usage.Raw() != "null" {
			t.Error(chunk.RawJSON())
		}
	}
}

func (s *suite) accumulated(t *testing.T, name string) {
	params, _ := s.ask(name)
	stream := s.client.Chat.Completions.NewStreaming(t.Context(), withUsage(params))
	var sum openai.ChatCompletionAccumulator
	finished := ""
	for stream.Next() {
		if !sum.AddChunk(stream.Current()) {
			t.Errorf("not added: %s", stream.Current().RawJSON())
		}
		if text, ok := sum.JustFinishedContent(); ok {
			finished = text
		}
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	choice := only(t, sum.Choices)
	if finished == "" || choice.Message.Content != finished || choice.FinishReason != "stop" ||
		sum.Usage.CompletionTokens == 0 || name != "sim_chat" && finished != answer {
		t.Errorf("%q, finished by %q, %+v", finished, choice.FinishReason, sum.Usage)
	}
}

var place = map[string]any{
	"type": "object", "required": []string{"city"}, "additionalProperties": false,
	"properties": map[string]any{"city": map[string]any{"type": "string", "enum": []string{"Ulm"}}},
}

func (s *suite) tools(t *testing.T, name string) {
	type call struct{ Name, Arguments string }
	want := []call{{"today", `{"city":"Ulm"}`}, {"tomorrow", `{"city":"Ulm"}`}}
	params, _ := s.ask(name)
	for _, one := range want {
		params.Tools = append(params.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: one.Name, Parameters: place,
		}))
	}
	got, err := s.client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	check := func(kind string, got openai.ChatCompletionChoice) {
		ids, calls := map[string]bool{}, []call{}
		for _, one := range got.Message.ToolCalls {
			ids[one.ID] = true
			calls = append(calls, call{one.Function.Name, one.Function.Arguments})
		}
		if !slices.Equal(calls, want) || len(ids) != 2 || got.FinishReason != "tool_calls" {
			t.Errorf("%s: %v, finished by %s", kind, calls, got.FinishReason)
		}
	}
	check("body", only(t, got.Choices))
	stream := s.client.Chat.Completions.NewStreaming(t.Context(), params)
	var sum openai.ChatCompletionAccumulator
	var finished []call
	for stream.Next() {
		for _, one := range only(t, stream.Current().Choices).Delta.ToolCalls {
			first := one.ID != ""
			if first != (one.Function.Name != "") || first && (one.Type != "function" || one.Function.Arguments != "") {
				t.Error(one.RawJSON())
			}
		}
		sum.AddChunk(stream.Current())
		if one, ok := sum.JustFinishedToolCall(); ok {
			finished = append(finished, call{one.Name, one.Arguments})
		}
	}
	if stream.Err() != nil || !slices.Equal(finished, want) {
		t.Fatal(finished, stream.Err())
	}
	check("stream", only(t, sum.Choices))
}

func (s *suite) structured(t *testing.T, name string) {
	params, _ := s.ask(name)
	params.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "place", Schema: place, Strict: openai.Bool(true)}}
	got, err := s.client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	_, streamed, err := collect(s.client.Chat.Completions.NewStreaming(t.Context(), params))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{only(t, got.Choices).Message.Content, streamed} {
		var parsed struct{ City string }
		if err := json.Unmarshal([]byte(text), &parsed); err != nil || parsed.City != "Ulm" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func (s *suite) reasoning(t *testing.T, name string) {
	params, _ := s.ask(name)
	got, err := s.client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if beside := only(t, got.Choices).Message.JSON.ExtraFields["reasoning_content"]; beside.Raw() != `"every request"` || got.Usage.CompletionTokensDetails.ReasoningTokens != 2 {
		t.Error(got.RawJSON())
	}
	chunks, _, err := collect(s.client.Chat.Completions.NewStreaming(t.Context(), params))
	var thought []string
	for _, chunk := range chunks {
		if piece, ok := only(t, chunk.Choices).Delta.JSON.ExtraFields["reasoning_content"]; ok {
			thought = append(thought, piece.Raw())
		}
	}
	if err != nil || !slices.Equal(thought, []string{`"every "`, `"request"`}) {
		t.Error(thought, err)
	}
}

// The Go package asks for numbers by default, and leaves base64 to its callers.
func (s *suite) embeddings(t *testing.T, name string) {
	params := openai.EmbeddingNewParams{
		Model: s.Models[name],
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one two", "three"}},
	}
	floats, err := s.client.Embeddings.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	params.EncodingFormat = openai.EmbeddingNewParamsEncodingFormatBase64
	var packed struct {
		Data []struct{ Embedding []byte } // which is base64
	}
	if err := s.client.Post(t.Context(), "embeddings", params, &packed); err != nil || len(packed.Data) != 2 ||
		len(floats.Data) != 2 || floats.Usage.PromptTokens == 0 {
		t.Fatal(packed, floats.RawJSON(), err)
	}
	for i, one := range floats.Data {
		var unpacked []float32
		for part := range slices.Chunk(packed.Data[i].Embedding, 4) {
			unpacked = append(unpacked, math.Float32frombits(binary.LittleEndian.Uint32(part)))
		}
		if int(one.Index) != i || len(unpacked) == 0 ||
			!slices.EqualFunc(one.Embedding, unpacked, func(a float64, b float32) bool { return float32(a) == b }) {
			t.Errorf("%d: %v is not %v", i, one.Embedding, unpacked)
		}
	}
}
