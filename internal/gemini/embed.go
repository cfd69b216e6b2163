package gemini

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/chat"
	"sovereign/internal/fault"
	"sovereign/internal/sse"
	"sovereign/internal/upstream"
)

// embeddable is what a request for embeddings may say. The last two are Google's own.
var embeddable = map[string]bool{
	"model": true, "input": true, "dimensions": true, "encoding_format": true, "task_type": true, "title": true,
}

// An embedRequest is one text of batchEmbedContents.
type embedRequest struct {
	Model                string  `json:"model"`
	Content              content `json:"content"`
	TaskType             string  `json:"taskType,omitzero"`
	Title                string  `json:"title,omitzero"`
	OutputDimensionality *int64  `json:"outputDimensionality,omitzero"`
}

// maxTexts is how many Google embeds in a call.
const maxTexts = 100

// How vectors are written.
const (
	asFloats = "float"
	asBase64 = "base64"
)

// An embedding is one request for vectors.
type embedding struct {
	path   string
	body   []byte
	model  string
	texts  int
	format string
}

func askEmbed(_ Dialect, r *upstream.Request, body []byte) (upstream.Exchange, error) {
	if err := chat.Only(body, embeddable, wire); err != nil {
		return nil, err
	}
	var asked struct {
		Input          jsontext.Value `json:"input"`
		Dimensions     *int64         `json:"dimensions"`
		EncodingFormat string         `json:"encoding_format"`
		TaskType       string         `json:"task_type"`
		Title          string         `json:"title"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, chat.Refuse(err)
	}
	texts, err := readTexts(asked.Input)
	e := &embedding{
		path: method(r.Model.Upstream, "batchEmbedContents"), model: r.Model.Upstream, texts: len(texts),
		format: cmp.Or(asked.EncodingFormat, asFloats),
	}
	switch {
	case err != nil:
		return nil, err
	case e.format != asFloats && e.format != asBase64:
		return nil, fault.Invalid("encoding_format", "must be float or base64")
	case asked.Dimensions != nil && (*asked.Dimensions < 1 || *asked.Dimensions > math.MaxInt32):
		return nil, fault.Invalid("dimensions", "must be a whole number of at least 1")
	}
	said := struct {
		Requests []embedRequest `json:"requests"`
	}{}
	for i := range texts {
		said.Requests = append(said.Requests, embedRequest{
			Model: "models/" + r.Model.Upstream, Content: content{Parts: []part{{Text: &texts[i]}}},
			TaskType: asked.TaskType, Title: asked.Title, OutputDimensionality: asked.Dimensions,
		})
	}
	if e.body, err = json.Marshal(&said); err != nil {
		return nil, chat.Refuse(err)
	}
	return e, nil
}

// readTexts is a text, or texts. Tokens are of another model's alphabet.
func readTexts(input jsontext.Value) (texts chat.Texts, err error) {
	if !present(input) {
		return nil, fault.Invalid("input", "is required")
	}
	switch err := json.Unmarshal(input, &texts); {
	case err != nil:
		return nil, chat.Unsupported("input", "must be a text or texts: the "+wire+" takes no tokens")
	case len(texts) == 0:
		return nil, fault.Invalid("input", "must not be empty")
	case len(texts) > maxTexts:
		return nil, chat.Unsupported("input", fmt.Sprintf("must have at most %d texts in the %s", maxTexts, wire))
	}
	return texts, nil
}

// Wire implements upstream.Exchange.
func (e *embedding) Wire() (path string, body []byte) { return e.path, e.body }

// Event implements upstream.Exchange.
func (*embedding) Event(to []byte, _ sse.Event) ([]byte, error) {
	return to, errors.New("a stream came, and none was asked for")
}

// Ended implements upstream.Exchange.
func (*embedding) Ended() bool { return false }

// A vector is one text's embedding: numbers, or a text of base64.
type vector struct {
	Object    string `json:"object"` // embedding
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

// A spent is what embeddings use: what is read.
type spent struct {
	PromptTokens int64 `json:"prompt_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

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
		_, told := theirs.Error.tell(http.StatusBadGateway)
		return told, nil
	}
	if len(theirs.Embeddings) != e.texts {
		return nil, fmt.Errorf("the answer holds %d vectors for %d texts", len(theirs.Embeddings), e.texts)
	}
	ours := struct {
		Object string   `json:"object"`
		Data   []vector `json:"data"`
		Model  string   `json:"model"`
		Usage  *spent   `json:"usage,omitzero"`
	}{Object: "list", Model: e.model}
	for i, one := range theirs.Embeddings {
		written, err := write(one.Values, e.format)
		if err != nil {
			return nil, err
		}
		ours.Data = append(ours.Data, vector{"embedding", i, written})
	}
	if u := theirs.UsageMetadata.count(); u != nil {
		ours.Usage = &spent{u.PromptTokens, u.PromptTokens}
	}
	return json.Marshal(&ours, lenient)
}

// write is v in a format. Base64 is of little-endian float32, as OpenAI's SDKs read it.
func write(v []float64, format string) (any, error) {
	if len(v) == 0 {
		return nil, errors.New("a vector is empty")
	}
	if format != asBase64 {
		return v, nil
	}
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		if math.Abs(x) > math.MaxFloat32 {
			return nil, errors.New("a number of a vector is too large")
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(x)))
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}
