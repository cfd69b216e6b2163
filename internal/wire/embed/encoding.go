package embed

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/text/scan"
)

// An Encoding is how the vectors of an answer are written: a value of encoding_format.
type Encoding string

// The encodings.
const (
	Float  Encoding = "float"  // numbers
	Base64 Encoding = "base64" // little-endian float32 in base64, as OpenAI's SDKs ask for it by default
)

// Encodes reports whether an answer's first vector is written in e. It reads no further than the beginning of that
// vector, since nearly every answer is as it was asked for.
func (e Encoding) Encodes(answer []byte) bool {
	switch firstByte(answer) {
	case '[':
		return e == Float
	case '"':
		return e == Base64
	default: // it has no vector, or one of another form, which Recode would leave as it is
		return true
	}
}

var vectorName = []byte(`"embedding"`)

// firstByte returns the first byte of the first vector in an answer, or 0 where it finds none.
func firstByte(answer []byte) byte {
	for rest := answer; ; {
		_, after, found := bytes.Cut(rest, vectorName)
		if !found {
			return 0
		}
		rest = trimSpace(after)
		if len(rest) == 0 || rest[0] != ':' { // a text, such as the value of object
			continue
		}
		if rest = trimSpace(rest[1:]); len(rest) == 0 {
			return 0
		}
		return rest[0]
	}
}

func trimSpace(text []byte) []byte { return bytes.TrimLeft(text, " \t\r\n") }

// Recode returns an answer with its vectors written in e, and all else as it was. A vector that cannot be written in e,
// such as a list of vectors, stays as it came.
func (e Encoding) Recode(answer []byte) []byte {
	members, err := scan.Object(answer, nil)
	if err != nil {
		return answer
	}
	i := slices.IndexFunc(members, func(m scan.Member) bool { return m.Name == "data" })
	if i < 0 {
		return answer
	}
	data, count := members[i], 0
	out := append(slices.Clone(answer[:data.ValueStart()]), '[')
	for element := range scan.Elements(data.Value) {
		if count++; count > 1 {
			out = append(out, ',')
		}
		out = e.appendElement(out, element)
	}
	if count != data.Elements { // it is no list, or one with a syntax error
		return answer
	}
	return append(append(out, ']'), answer[data.End:]...)
}

// appendElement appends one object of data to out.
func (e Encoding) appendElement(out, element []byte) []byte {
	var buffer [4]scan.Member
	members, err := scan.Object(element, buffer[:0])
	if err != nil {
		return append(out, element...)
	}
	for _, m := range members {
		if m.Name != "embedding" {
			continue
		}
		if vector, ok := e.recode(m.Value); ok {
			out = append(out, element[:m.ValueStart()]...)
			return append(append(out, vector...), element[m.End:]...)
		}
	}
	return append(out, element...)
}

// recode returns a vector in e. It returns false for one that is in e already, or cannot be written in it.
func (e Encoding) recode(vector []byte) ([]byte, bool) {
	if e == Base64 {
		var numbers []float32
		if vector[0] != '[' || json.Unmarshal(vector, &numbers) != nil {
			return nil, false
		}
		text, err := pack(numbers)
		return []byte(`"` + text + `"`), err == nil
	}
	numbers, ok := unpack(vector)
	if !ok {
		return nil, false
	}
	text, err := json.Marshal(numbers)
	return text, err == nil
}

// pack encodes a vector as little-endian float32 in base64.
func pack[T float32 | float64](vector []T) (string, error) {
	if len(vector) == 0 {
		return "", errEmpty
	}
	raw := make([]byte, 0, 4*len(vector))
	for _, x := range vector {
		narrow := float32(x)
		if math.IsInf(float64(narrow), 0) {
			return "", errors.New("a number of a vector is too large")
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(narrow))
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}

var errEmpty = errors.New("a vector is empty")

// unpack decodes what pack encodes, with or without padding. It returns false for anything else.
func unpack(vector []byte) ([]float32, bool) {
	var text string
	if vector[0] != '"' || json.Unmarshal(vector, &text) != nil {
		return nil, false
	}
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(raw) == 0 || len(raw)%4 != 0 {
		return nil, false
	}
	numbers := make([]float32, 0, len(raw)/4)
	for ; len(raw) > 0; raw = raw[4:] {
		x := math.Float32frombits(binary.LittleEndian.Uint32(raw))
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) { // JSON has no such numbers
			return nil, false
		}
		numbers = append(numbers, x)
	}
	return numbers, true
}
