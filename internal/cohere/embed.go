package cohere

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/chat"
	"sovereign/internal/fault"
	"sovereign/internal/rerank"
	"sovereign/internal/upstream"
)

// embeddable is what a request for embeddings may say. The last two are Cohere's own.
var embeddable = map[string]bool{
	"model": true, "input": true, "dimensions": true, "encoding_format": true, "input_type": true, "truncate": true,
}

// embedRequest is the body of POST /v2/embed.
type embedRequest struct {
	Model           string   `json:"model"`
	Texts           []string `json:"texts"`
	InputType       string   `json:"input_type"`
	EmbeddingTypes  []string `json:"embedding_types"`
	OutputDimension *int64   `json:"output_dimension,omitempty"`
	Truncate        string   `json:"truncate,omitempty"`
}

const (
	// maxTexts is how many Cohere embeds in a call. More would be several calls, of which one may fail when others are
	// billed: who sends more splits them, and pays for what came back.
	maxTexts = 96

	// stored is the input type of texts that are to be found. Cohere wants one named, and OpenAI's callers name none.
	stored = "search_document"
)

// How vectors are written.
const (
	asFloats = "float"
	asBase64 = "base64"
)

func askEmbed(r *upstream.Request, body []byte) (*exchange, error) {
	if err := chat.Only(body, embeddable, wire); err != nil {
		return nil, err
	}
	var asked struct {
		Input          jsontext.Value `json:"input"`
		Dimensions     *int64         `json:"dimensions"`
		EncodingFormat string         `json:"encoding_format"`
		InputType      string         `json:"input_type"`
		Truncate       string         `json:"truncate"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, chat.Refuse(err)
	}
	texts, err := readTexts(asked.Input)
	if err != nil {
		return nil, err
	}
	format := cmp.Or(asked.EncodingFormat, asFloats)
	switch {
	case format != asFloats && format != asBase64:
		return nil, fault.Invalid("encoding_format", "must be float or base64")
	case asked.Dimensions != nil && *asked.Dimensions < 1:
		return nil, fault.Invalid("dimensions", "must be a whole number of at least 1")
	}
	said := embedRequest{
		Model: r.Model.Upstream, Texts: texts, InputType: cmp.Or(asked.InputType, stored),
		EmbeddingTypes: []string{asFloats}, OutputDimension: asked.Dimensions, Truncate: asked.Truncate,
	}
	return exchanged("/v2/embed", &said, func(answer []byte) ([]byte, error) {
		return embedded(r.Model.Upstream, len(texts), format, answer)
	})
}

// readTexts is a text, or texts. Tokens are of another model's alphabet.
func readTexts(input jsontext.Value) (chat.Texts, error) {
	if input == nil {
		return nil, fault.Invalid("input", "is required")
	}
	var texts chat.Texts
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

// A vector is one text's embedding: numbers, or a text of base64.
type vector struct {
	Object    string `json:"object"` // embedding
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

// embedded is an answer as OpenAI's, with a vector for each of that many texts.
func embedded(model string, texts int, format string, answer []byte) ([]byte, error) {
	var theirs struct {
		Embeddings struct {
			Float [][]float64 `json:"float"`
		} `json:"embeddings"`
		Meta jsontext.Value `json:"meta"`
	}
	if err := json.Unmarshal(answer, &theirs, lenient); err != nil {
		return nil, err
	}
	vectors := theirs.Embeddings.Float
	if len(vectors) != texts {
		return nil, fmt.Errorf("the answer holds %d vectors for %d texts", len(vectors), texts)
	}
	data := make([]vector, len(vectors))
	for i, v := range vectors {
		written, err := write(v, format)
		if err != nil {
			return nil, err
		}
		data[i] = vector{"embedding", i, written}
	}
	usage := rerank.Counts{PromptTokens: counts(theirs.Meta).PromptTokens}
	return json.Marshal(&struct {
		Object string         `json:"object"`
		Data   []vector       `json:"data"`
		Model  string         `json:"model"`
		Usage  *rerank.Counts `json:"usage,omitempty"`
	}{"list", data, model, usage.Whole()}, lenient)
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
		narrow := float32(x)
		if math.IsInf(float64(narrow), 0) {
			return nil, errors.New("a number of a vector is too large")
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(narrow))
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}
