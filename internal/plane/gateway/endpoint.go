package gateway

import (
	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/wire/rerank"
)

// A format is how the answers of an endpoint are read.
type format struct {
	whole  wholeFormat
	stream streamFormat
}

// maxCompletion bounds an answer that the product asks for: it is held in memory until it is kept.
const maxCompletion = 4 << 20

var (
	chatWhole  = wholeFormat{content: "choices", usage: answer.Usage, text: answer.ChoicesText}
	chatFormat = format{
		whole:  chatWhole,
		stream: streamFormat{event: chatEvent, end: chatEnd, failure: chatFailure},
	}
	internalFormat   = format{whole: limitTo(maxCompletion, chatWhole)}
	embeddingsFormat = format{whole: wholeFormat{content: "data", usage: answer.Usage, mustHave: true}}
	rerankFormat     = format{whole: wholeFormat{render: renderRanking}}
	responsesFormat  = format{
		whole: wholeFormat{
			content: "output", mayBeEmpty: true, usage: answer.ResponseUsage, text: answer.ResponseText,
		},
		stream: streamFormat{event: responseEvent, failure: responseFailure},
	}
)

func limitTo(limit int, f wholeFormat) wholeFormat {
	f.limit = limit
	return f
}

// formatOf returns the format of an endpoint's answers.
func formatOf(e *request.Endpoint) *format {
	switch e {
	case request.Internal:
		return &internalFormat
	case request.Embeddings:
		return &embeddingsFormat
	case request.Rerank, request.RerankV2:
		return &rerankFormat
	case request.Responses:
		return &responsesFormat
	default:
		return &chatFormat
	}
}

// renderRanking converts a reranker's answer to the endpoint's form, best first, whatever the provider's form is.
func renderRanking(r *run, body []byte) ([]byte, *live.Usage, error) {
	render := rerank.Render
	if r.request.Endpoint == request.RerankV2 {
		render = rerank.RenderV2
	}
	body, reported, err := render(r.request.Question, body, r.request.ID)
	if err != nil || reported == nil {
		return body, nil, err
	}
	used := &live.Usage{Input: reported.PromptTokens.Or0(), Searches: reported.SearchUnits.Or0()}
	if reported.SearchUnits == nil {
		used.Searches = r.bill.searches()
	}
	return body, used, nil
}
