package gemini

import (
	"errors"
	"io"

	"github.com/go-json-experiment/json"

	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/embed"
	"sovereign/internal/wire/upstream"
)

// embeddable is what a request for embeddings may say here. Google embeds at most 100 texts in a call.
var embeddable = embed.Wire{Name: wire, Own: []string{"task_type", "title"}, Most: 100}

// An embedRequest is one text of batchEmbedContents.
type embedRequest struct {
	Model                string  `json:"model"`
	Content              content `json:"content"`
	TaskType             string  `json:"taskType,omitzero"`
	Title                string  `json:"title,omitzero"`
	OutputDimensionality *int64  `json:"outputDimensionality,omitzero"`
}

// An embedding is one request for vectors.
type embedding struct {
	asked *embed.Request
	model string
	body  []byte
}

func askEmbed(_ Dialect, r *upstream.Request, body []byte) (upstream.Exchange, error) {
	asked, err := embeddable.Decode(body)
	if err != nil {
		return nil, err
	}
	said := struct {
		Requests []embedRequest `json:"requests"`
	}{}
	for i := range asked.Texts {
		said.Requests = append(said.Requests, embedRequest{
			Model: "models/" + short(r.Model.Upstream), Content: content{Parts: []part{{Text: &asked.Texts[i]}}},
			TaskType: asked.Own["task_type"], Title: asked.Own["title"], OutputDimensionality: asked.Dimensions,
		})
	}
	text, err := json.Marshal(&said)
	if err != nil {
		return nil, chat.Refuse(err)
	}
	return &embedding{asked: asked, model: r.Model.Upstream, body: text}, nil
}

// Wire implements upstream.Exchange.
func (e *embedding) Wire() (path string, body []byte) {
	return method(e.model, "batchEmbedContents"), e.body
}

// Event implements upstream.Exchange.
func (*embedding) Event(to []byte, _ sse.Event) ([]byte, error) {
	return to, errors.New("a stream came, and none was asked for")
}

// End implements upstream.Exchange.
func (*embedding) End(to []byte) ([]byte, error) { return to, io.ErrUnexpectedEOF }

// Answer implements upstream.Exchange.
func (e *embedding) Answer(body []byte) ([]byte, error) {
	var theirs struct {
		Embeddings []struct {
			Values []float64 `json:"values"`
		} `json:"embeddings"`
		UsageMetadata *usageMetadata `json:"usageMetadata"`
		Error         *refusal       `json:"error"`
	}
	if err := json.Unmarshal(body, &theirs, lenient); err != nil {
		return nil, err
	}
	if theirs.Error != nil {
		_, told := theirs.Error.tell(theirs.Error.status())
		return told, nil
	}
	vectors := make([][]float64, len(theirs.Embeddings))
	for i, one := range theirs.Embeddings {
		vectors[i] = one.Values
	}
	var tokens *int64
	if u := theirs.UsageMetadata.count(); u != nil {
		tokens = &u.PromptTokens
	}
	return e.asked.Answer(e.model, vectors, tokens)
}
