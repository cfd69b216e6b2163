package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// Every fault of a provider becomes one clean error, and costs nothing when nothing was delivered.
func TestFaultsAreCleanErrorsOnEveryWire(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{
		"garbage": http.StatusBadGateway, "reset": http.StatusBadGateway, "die_after=1": http.StatusBadGateway, "end_after=1": http.StatusBadGateway,
		"hang": http.StatusRequestTimeout, "status=529": http.StatusBadGateway, "status=503": http.StatusBadGateway, "status=401": http.StatusBadGateway,
		"status=413": http.StatusBadRequest, "status=400": http.StatusBadRequest, "status=429": http.StatusTooManyRequests, "error_event_after=1": http.StatusBadGateway,
	}
	paths := map[string]string{
		"claude/%s": `/v1/chat/completions {"model":%q,"messages":[{"role":"user","content":"a"}]}`,
		"gemini/%s": `/v1/chat/completions {"model":%q,"messages":[{"role":"user","content":"a"}]}`,
		"native/%s": `/v1/responses {"model":%q,"input":"a"}`,
		"mock/%s":   `/v1/responses {"model":%q,"input":"a"}`,
	}
	models, asked := map[string]string{}, map[string]string{}
	for form, path := range paths {
		for fault := range kinds {
			id := fmt.Sprintf(form, strings.NewReplacer("=", "-").Replace(fault))
			models[id], asked[id+" "+fault] = "mock?"+fault, fmt.Sprintf(path, id)
		}
	}
	models["cohere/rerank"], models["cohere/embedding"], models["mock/rerank"] = "mock?garbage", "mock?die_after=1", "mock?hang"
	asked["cohere/rerank garbage"] = `/v1/rerank {"model":"cohere/rerank","query":"q","documents":["d"]}`
	asked["cohere/embedding die_after=1"] = `/v1/embeddings {"model":"cohere/embedding","input":"a"}`
	asked["mock/rerank hang"] = `/v1/rerank {"model":"mock/rerank","query":"q","documents":["d"]}`
	s, _, _ := wires(t, models, "--limits-try-timeout", "5s", "--limits-stall-timeout", "5s", "--limits-retries", "0")
	t.Run("each", func(t *testing.T) {
		for name, call := range asked {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, fault, _ := strings.Cut(name, " ")
				path, body, _ := strings.Cut(call, " ")
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				a, err := s.caller().post(ctx, path, body, nil)
				if err != nil || a.status != kinds[fault] || strings.HasPrefix(a.code(), "no envelope") {
					t.Errorf("%v: %d %s", err, a.status, a.body)
				}
			})
		}
	})
	if rows := s.usage(t, "default"); slices.ContainsFunc(slices.Collect(maps.Values(rows)), func(r usageRow) bool { return r.Charged != 0 }) {
		t.Errorf("charged for nothing: %v", rows)
	}
}

// A stream that breaks in the middle says so, on every wire, after what it had said.
func TestStreamsThatBreakSaySoOnEveryWire(t *testing.T) {
	t.Parallel()
	models := map[string]string{}
	for _, vendor := range []string{"claude", "gemini"} {
		for _, fault := range []string{"die", "garbage", "hang", "end", "reset", "error_event"} {
			models[vendor+"/"+fault] = "mock?chunks=5&" + fault + "_after=2"
		}
	}
	_, client, _ := wires(t, models, "--limits-try-timeout", "30s", "--limits-stall-timeout", "5s", "--limits-retries", "0")
	for model := range models {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			stream := client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("a")}})
			var text strings.Builder
			for stream.Next() {
				for _, choice := range stream.Current().Choices {
					text.WriteString(choice.Delta.Content)
				}
			}
			var broken *ssestream.StreamError
			if !errors.As(stream.Err(), &broken) || text.String() != "every request " {
				t.Errorf("%q, then %v", text.String(), stream.Err())
			}
		})
	}
}
