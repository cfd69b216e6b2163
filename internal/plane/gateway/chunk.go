package gateway

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/scan"
	"sovereign/internal/text/token"
)

// A chunk is one event of a chat's stream.
type chunk struct {
	Choices []choice       `json:"choices"`
	Usage   jsontext.Value `json:"usage"`
	Error   jsontext.Value `json:"error"`

	delta hole // where the one choice's stands in a plain event
	plain bool
}

type choice struct {
	Index  int            `json:"index"`
	Delta  jsontext.Value `json:"delta"`
	Finish *string        `json:"finish_reason"`
}

func present(value jsontext.Value) bool { return len(value) > 0 && value.Kind() != 'n' }

// read reads an event: plainly, at a fraction of what decoding costs, where it is written as OpenAI writes it.
func (c *chunk) read(event []byte) error {
	if c.readPlain(event) && jsontext.Value(event).IsValid(jsontext.AllowDuplicateNames(true)) {
		c.plain = true
		return nil
	}
	*c = chunk{}
	return lenient(event, c)
}

// readPlain is false when anything in an event is unusual, if only a name that a decoder may take for another.
func (c *chunk) readPlain(event []byte) bool {
	var room [12]scan.Member
	members, err := scan.Object(event, room[:0])
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
			if alike(m.Name, "choices") || alike(m.Name, "usage") || alike(m.Name, "error") {
				return false
			}
		}
	}
	return err == nil
}

// readChoices takes no choice, or one.
func (c *chunk) readChoices(event []byte, m *scan.Member) bool {
	if m.Elements != 1 {
		return m.Elements == 0
	}
	object := bytes.TrimRight(event[m.ValueStart()+1:m.End-1], " \t\r\n") // within the brackets
	from := m.ValueStart() + 1 + len(object)
	object = bytes.TrimLeft(object, " \t\r\n")
	from -= len(object)
	var room [8]scan.Member
	members, err := scan.Object(object, room[:0])
	if err != nil {
		return false
	}
	var one choice
	for i := range members {
		m := &members[i]
		switch m.Name {
		case "index":
			index := plain{text: m.Value}
			var n token.Count
			if !index.count(&n) || len(index.text) > 0 {
				return false
			}
			one.Index = int(n)
		case "delta":
			one.Delta, c.delta = jsontext.Value(m.Value), hole{from + m.ValueStart(), from + m.End}
		case "finish_reason":
			if string(m.Value) == "null" {
				continue
			}
			text, ok := plainText(m.Value)
			if !ok {
				return false
			}
			finish := string(text)
			one.Finish = &finish
		default:
			if alike(m.Name, "index") || alike(m.Name, "delta") || alike(m.Name, "finish_reason") {
				return false
			}
		}
	}
	c.Choices = []choice{one}
	return true
}

// alike reports whether a decoder that minds neither case nor hyphens takes a name for a known one. What is not ASCII may have folds of its
// own: it is taken to be alike.
func alike(name, known string) bool {
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
