package sim

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
)

// embedRequest is the body of an embedding request.
type embedRequest struct {
	Model          string         `json:"model"`
	Input          inputs         `json:"input"`
	EncodingFormat *string        `json:"encoding_format"`
	Dimensions     *int           `json:"dimensions"`
	Sim            jsontext.Value `json:"sim"`
}

// input is one text. Input in tokens becomes a text whose words are the tokens.
type input struct {
	text   string
	tokens int64
}

type inputs []input

const (
	defaultDimensions = 256
	maxDimensions     = 3072
	maxInputs         = 2048
)

type embeddingUsage struct {
	Prompt int64 `json:"prompt_tokens"`
	Total  int64 `json:"total_tokens"`
}

func (q *embedRequest) simField() jsontext.Value { return q.Sim }

func (q *embedRequest) seedTexts() []string {
	parts := make([]string, len(q.Input))
	for i, in := range q.Input {
		parts[i] = in.text
	}
	return parts
}

func (q *embedRequest) check(m *live.Model) error {
	switch {
	case q.Model == "":
		return missing("model")
	case len(q.Input) == 0:
		return missing("input")
	case len(q.Input) > maxInputs:
		return invalid("input", "must not hold more than %d texts", maxInputs)
	case q.EncodingFormat != nil && *q.EncodingFormat != "float" && *q.EncodingFormat != "base64":
		return invalid("encoding_format", "must be 'float' or 'base64'")
	case q.Dimensions != nil && (*q.Dimensions < 1 || *q.Dimensions > maxDimensions):
		return invalid("dimensions", "must be from 1 to %d", maxDimensions)
	}
	for i, in := range q.Input {
		if in.tokens == 0 {
			return invalid("input", "text %d is empty", i)
		}
		if m.ContextWindow > 0 && in.tokens > m.ContextWindow {
			return contextExceeded("input", m, fmt.Sprintf("text %d has %d", i, in.tokens))
		}
	}
	return nil
}

// answer generates each vector when it is read: together they can be a thousand times as large as the request.
func (q *embedRequest) answer(m *live.Model, s settings, _ uint64) (answer, error) {
	var prompt int64
	for _, in := range q.Input {
		prompt += in.tokens
	}
	dimensions := defaultDimensions
	if q.Dimensions != nil {
		dimensions = *q.Dimensions
	}
	packed := q.EncodingFormat != nil && *q.EncodingFormat == "base64"
	next := 0
	return unstreamed(s.fail, func() (frame, bool) {
		var text []byte
		switch {
		case next == 0:
			text = append(text, `{"object":"list","data":[`...)
		case next < len(q.Input):
			text = append(text, ',')
		case next > len(q.Input):
			return frame{}, false
		}
		if next < len(q.Input) {
			v := vector(q.Input[next].text, dimensions, s.Seed)
			text = append(text, `{"object":"embedding","index":`+strconv.Itoa(next)+`,"embedding":`...)
			text = append(append(text, encodeVector(v, packed)...), '}')
		} else {
			text = append(text, `],"model":`+string(encode(m.Upstream))...)
			if u := s.usage.apply(prompt, nil); u != nil {
				text = append(text, `,"usage":`+string(encode(embeddingUsage{u.Prompt, u.Prompt}))...)
			}
			text = append(text, '}')
		}
		next++
		return frame{data: text}, true
	}), nil
}

// encodeVector encodes v as numbers or, packed, as base64 of little-endian float32.
func encodeVector(v []float32, packed bool) []byte {
	if !packed {
		return encode(v)
	}
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return encode(base64.StdEncoding.EncodeToString(raw))
}

// vector returns a vector of length 1. Texts that share words or parts of words get similar vectors: each word, and
// each run of five letters of a word, adds a weight to a dimension that the seed determines.
func vector(text string, dimensions int, seed uint64) []float32 {
	sum := make([]float64, dimensions)
	var salt [8]byte
	binary.LittleEndian.PutUint64(salt[:], seed)
	h := fnv.New64a()
	add := func(feature string, weight float64) {
		h.Reset()
		h.Write(salt[:])
		h.Write([]byte(feature))
		x := h.Sum64() // FNV's low bits are poor: mix them with the high ones
		x = (x ^ x>>32) * 0xd6e8feb86659fd93
		x = (x ^ x>>32) * 0xd6e8feb86659fd93
		x ^= x >> 32
		if x>>63 == 1 {
			weight = -weight
		}
		sum[x%uint64(dimensions)] += weight
	}
	words := strings.Fields(normalizeWords(text))
	if len(words) == 0 {
		words = []string{text}
	}
	for _, word := range words {
		letters := []rune(" " + word + " ")
		add(word, min(1, float64(len(letters)*len(letters))/64)) // short words have little weight
		for i := range len(letters) - 4 {
			add(string(letters[i:i+5]), 0.5)
		}
	}
	var square float64
	for _, x := range sum {
		square += x * x
	}
	if square == 0 { // all weights cancelled out
		sum[0], square = 1, 1
	}
	v := make([]float32, dimensions)
	for i, x := range sum {
		v[i] = float32(x / math.Sqrt(square))
	}
	return v
}

var errInput = errors.New("must be a text, an array of texts, an array of tokens, or an array of arrays of tokens")

// UnmarshalJSONFrom reads a string, strings, tokens, or arrays of tokens.
func (in *inputs) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var text string
	var texts []string
	var ids []uint32
	var lists [][]uint32
	switch {
	case raw.Kind() == 'n':
	case raw.Kind() == '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return errInput
		}
		*in = inputs{textInput(text)}
	case json.Unmarshal(raw, &texts) == nil:
		for _, text := range texts {
			*in = append(*in, textInput(text))
		}
	case json.Unmarshal(raw, &ids) == nil:
		*in = inputs{tokenInput(ids)}
	case json.Unmarshal(raw, &lists) == nil:
		for _, ids := range lists {
			*in = append(*in, tokenInput(ids))
		}
	default:
		return errInput
	}
	return nil
}

func textInput(text string) input { return input{text, tokens(len(text))} }

func tokenInput(ids []uint32) input {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.FormatUint(uint64(id), 10)
	}
	return input{strings.Join(words, " "), int64(len(ids))}
}
