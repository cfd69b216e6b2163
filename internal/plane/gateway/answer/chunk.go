package answer

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/plane/gateway/lenient"
	"sovereign/internal/text/scan"
	"sovereign/internal/text/token"
)

// A Chunk is one event of a chat's stream.
type Chunk struct {
	Choices []Choice       `json:"choices"`
	Usage   jsontext.Value `json:"usage"`
	Error   jsontext.Value `json:"error"`

	Delta lenient.Range `json:"-"` // where the delta of the only choice stands in a plain event
	Plain bool          `json:"-"` // the event is in OpenAI's usual form
}

// A Choice is one choice of a chunk.
type Choice struct {
	Index  int            `json:"index"`
	Delta  jsontext.Value `json:"delta"`
	Finish *string        `json:"finish_reason"`
}

// Present reports whether a member is there and is not null.
func Present(value jsontext.Value) bool { return len(value) > 0 && value.Kind() != 'n' }

// Read reads an event. An event in OpenAI's usual form costs a fraction of what decoding does.
func (c *Chunk) Read(event []byte) error {
	if c.readPlain(event) && jsontext.Value(event).IsValid(jsontext.AllowDuplicateNames(true)) {
		c.Plain = true
		return nil
	}
	*c = Chunk{}
	return lenient.Decode(event, c)
}

// readPlain returns false when anything in an event is unusual, such as a name that a decoder may match with another.
func (c *Chunk) readPlain(event []byte) bool {
	var buffer [12]scan.Member
	members, err := scan.Object(event, buffer[:0])
	for i := range members {
		m := &members[i]
		switch m.Name {
		case "choices":
			if !c.readChoices(event, m) {
				return false
			}
		case "usage":
			c.Usage = jsontext.Value(m.Value)
		case "error":
			c.Error = jsontext.Value(m.Value)
		default:
			if matches(m.Name, "choices") || matches(m.Name, "usage") || matches(m.Name, "error") {
				return false
			}
		}
	}
	return err == nil
}

// readChoices reads a list of one choice or none. It returns false for more.
func (c *Chunk) readChoices(event []byte, m *scan.Member) bool {
	if m.Elements != 1 {
		return m.Elements == 0
	}
	object := bytes.TrimRight(event[m.ValueStart()+1:m.End-1], " \t\r\n") // within the brackets
	from := m.ValueStart() + 1 + len(object)
	object = bytes.TrimLeft(object, " \t\r\n")
	from -= len(object)
	var buffer [8]scan.Member
	members, err := scan.Object(object, buffer[:0])
	if err != nil {
		return false
	}
	var one Choice
	for i := range members {
		m := &members[i]
		switch m.Name {
		case "index":
			index := countReader{text: m.Value}
			var n token.Count
			if !index.count(&n) || len(index.text) > 0 {
				return false
			}
			one.Index = int(n)
		case "delta":
			one.Delta, c.Delta = jsontext.Value(m.Value), lenient.Range{From: from + m.ValueStart(), To: from + m.End}
		case "finish_reason":
			if string(m.Value) == "null" {
				continue
			}
			text, ok := lenient.PlainString(m.Value)
			if !ok {
				return false
			}
			finish := string(text)
			one.Finish = &finish
		default:
			if matches(m.Name, "index") || matches(m.Name, "delta") || matches(m.Name, "finish_reason") {
				return false
			}
		}
	}
	c.Choices = []Choice{one}
	return true
}

// matches reports whether a decoder that ignores case, hyphens and underscores may take name for known. A name that is
// not ASCII may have case folds of its own: it counts as a match.
func matches(name, known string) bool {
	at := 0
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_', c == '-':
			continue
		case c >= 0x80:
			return true
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		for at < len(known) && known[at] == '_' {
			at++
		}
		if at == len(known) || known[at] != c {
			return false
		}
		at++
	}
	return at == len(known)
}
