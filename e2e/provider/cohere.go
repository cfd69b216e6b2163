package main

import (
	"encoding/json"
	"net/http"
	"slices"

	cohere "github.com/cohere-ai/cohere-go/v2"
)

// cohereWire is Cohere's second version.
var cohereWire = wire{
	key: bearer, unknown: http.StatusUnauthorized,
	refusal: func(a *answer, _ int, _, _, message string) any {
		return map[string]any{"id": a.w.Header().Get("X-Request-Id"), "message": message}
	},
	broken: func(a *answer, message string) string { return encode(a.wire.refusal(a, 0, "", "", message)) },
}

// mostTexts is how many texts one call may embed.
const mostTexts = 96

func readCohereRerank(a *answer) error {
	var request cohere.V2RerankRequest
	if err := understood("", []byte(a.record.Body), &request); err != nil {
		return err
	}
	switch {
	case request.Query == "":
		return bad("query", "it must not be empty")
	case len(request.Documents) == 0:
		return bad("documents", "there must be some")
	case slices.Contains(request.Documents, ""):
		return bad("documents", "none may be empty")
	case request.TopN != nil && *request.TopN < 1:
		return bad("top_n", "it must be at least 1")
	}
	a.ask = ask{Model: request.Model, Query: request.Query, TopN: request.TopN}
	for _, text := range request.Documents {
		a.ask.Documents = append(a.ask.Documents, document(text))
	}
	return nil
}

func (p *provider) cohereRerank(a *answer) {
	out := map[string]any{"id": p.id("cohere"), "results": a.ask.rank()}
	units := map[string]any{"search_units": (len(a.ask.Documents) + 99) / 100}
	if a.plan.report(0, 0, 0) != nil {
		out["meta"] = meta(units)
	}
	a.whole(out)
}

func readCohereEmbed(a *answer) error {
	var request cohere.V2EmbedRequest
	if err := understood("", []byte(a.record.Body), &request); err != nil {
		return err
	}
	if _, err := cohere.NewEmbedInputTypeFromString(string(request.InputType)); err != nil {
		return bad("input_type", "it is required, and %q is none", request.InputType)
	}
	if _, err := cohere.NewV2EmbedRequestTruncateFromString(string(value(request.Truncate))); request.Truncate != nil &&
		err != nil {
		return bad("truncate", "%q is none", *request.Truncate)
	}
	switch n := len(request.Texts); {
	case len(request.Images) > 0 || len(request.Inputs) > 0:
		return bad("texts", "this stand-in embeds texts alone")
	case n == 0 || n > mostTexts:
		return bad("texts", "there are %d, and 1 to %d can be embedded at once", n, mostTexts)
	case slices.Contains(request.Texts, ""):
		return bad("texts", "none may be empty")
	case request.OutputDimension != nil && !slices.Contains([]int{256, 512, 1024, 1536}, *request.OutputDimension):
		return bad("output_dimension", "it must be 256, 512, 1024 or 1536")
	}
	for _, kind := range request.EmbeddingTypes {
		if kind != cohere.EmbeddingTypeFloat && kind != cohere.EmbeddingTypeBase64 {
			return bad("embedding_types", "this stand-in has no %s", kind)
		}
		if kind == cohere.EmbeddingTypeBase64 {
			a.ask.EncodingFormat = "base64"
		}
	}
	texts, err := json.Marshal(request.Texts)
	a.ask.Model, a.ask.Input, a.ask.Dimensions = request.Model, texts, request.OutputDimension
	return err
}

func (p *provider) cohereEmbed(a *answer) {
	inputs, tokens := a.ask.inputs()
	size := dimensions
	if a.ask.Dimensions != nil {
		size = *a.ask.Dimensions
	}
	var floats [][]float32
	var packed []string
	for _, text := range inputs {
		floats = append(floats, embed(text, size))
		packed = append(packed, pack(floats[len(floats)-1]))
	}
	embeddings := map[string]any{"float": floats}
	if a.ask.EncodingFormat == "base64" {
		embeddings = map[string]any{"base64": packed}
	}
	out := map[string]any{"id": p.id("cohere"), "embeddings": embeddings, "texts": inputs}
	if u := a.plan.report(tokens, 0, 0); u != nil {
		out["meta"] = meta(map[string]any{"input_tokens": u.Prompt})
	}
	a.whole(out)
}

func meta(billed map[string]any) any {
	return map[string]any{"api_version": map[string]any{"version": "2"}, "billed_units": billed}
}

// value is what a pointer points to, or nothing.
func value[T any](of *T) (out T) {
	if of != nil {
		out = *of
	}
	return out
}
