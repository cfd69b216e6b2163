package responses

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// annotation is an annotation of a text. It is flat here; chat nests it under the name of its type.
type annotation struct{ jsontext.Value }

var errAnnotation = errors.New("an annotation has no type")

// UnmarshalJSONFrom reads an annotation of chat.
func (a *annotation) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var members map[string]jsontext.Value
	if err := json.UnmarshalDecode(d, &members); err != nil {
		return err
	}
	kind, ok := scalarText(members["type"])
	if !ok {
		return errAnnotation
	}
	if inner := members[kind]; inner.Kind() == '{' {
		delete(members, kind)
		if err := json.Unmarshal(inner, &members, lenient); err != nil { // adds to the members
			return err
		}
		members["type"] = jsontext.Value(quote(kind))
	}
	text, err := json.Marshal(members, encoding, json.Deterministic(true))
	a.Value = text
	return err
}

func quote(text string) []byte {
	quoted, err := jsontext.AppendQuote(nil, text)
	if err != nil { // cannot happen: it was read from JSON
		return []byte(`""`)
	}
	return quoted
}

// flushAnnotations adds the pending annotations to the open text part, or to a new one.
func (s *builder) flushAnnotations() {
	g := s.openItem(itemMessage)
	s.beginPart(g, partOutputText)
	for _, a := range s.annotations {
		i := len(g.annotations)
		e := g.event("response.output_text.annotation.added")
		e.Annotation, e.AnnotationIndex = a, &i
		g.annotations = append(g.annotations, a)
		s.emit(e)
	}
	s.annotations = nil
}
