package gemini

import (
	"github.com/go-json-experiment/json"

	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/embed"
	"sovereign/internal/wire/upstream"
)

// embedAPI is what batchEmbedContents accepts. Google embeds at most 100 texts in one call.
var embedAPI = embed.API{Name: apiName, Extra: []string{"task_type", "title"}, MaxTexts: 100}

// embedRequest is one text of batchEmbedContents.
type embedRequest struct {
	Model                string  `json:"model"`
	Content              content `json:"content"`
	TaskType             string  `json:"taskType,omitzero"`
	Title                string  `json:"title,omitzero"`
	OutputDimensionality *int64  `json:"outputDimensionality,omitzero"`
}

// embedExchange is one embedding request.
type embedExchange struct {
	upstream.NoStream
	request *embed.Request
	model   string
	body    []byte
}

func newEmbedExchange(_ Dialect, r *upstream.Request, body []byte) (upstream.Exchange, error) {
	request, err := embedAPI.Decode(body)
	if err != nil {
		return nil, err
	}
	batch := struct {
		Requests []embedRequest `json:"requests"`
	}{}
	for i := range request.Texts {
		batch.Requests = append(batch.Requests, embedRequest{
			Model: "models/" + modelName(r.Model.Upstream), Content: content{Parts: []part{{Text: &request.Texts[i]}}},
			TaskType: request.Extra["task_type"], Title: request.Extra["title"],
			OutputDimensionality: request.Dimensions,
		})
	}
	text, err := json.Marshal(&batch)
	if err != nil {
		return nil, chat.DecodeFault(err)
	}
	return &embedExchange{request: request, model: r.Model.Upstream, body: text}, nil
}

// Request implements upstream.Exchange.
func (e *embedExchange) Request() (path string, body []byte) {
	return methodPath(e.model, "batchEmbedContents"), e.body
}

// Answer implements upstream.Exchange.
func (e *embedExchange) Answer(body []byte) ([]byte, error) {
	var decoded struct {
		Embeddings []struct {
			Values []float64 `json:"values"`
		} `json:"embeddings"`
		UsageMetadata *usageMetadata `json:"usageMetadata"`
		Error         *apiError      `json:"error"`
	}
	if err := json.Unmarshal(body, &decoded, lenient); err != nil {
		return nil, err
	}
	if decoded.Error != nil {
		_, body := decoded.Error.errorAnswer(decoded.Error.status())
		return body, nil
	}
	vectors := make([][]float64, len(decoded.Embeddings))
	for i, one := range decoded.Embeddings {
		vectors[i] = one.Values
	}
	var tokens *int64
	if u := decoded.UsageMetadata.usage(); u != nil {
		tokens = &u.PromptTokens
	}
	return e.request.Answer(e.model, vectors, tokens)
}
