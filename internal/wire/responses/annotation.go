package responses

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// An annotation of a text, as a response tells it: flat, where chat has it below the name of its type.
type annotation struct{ jsontext.Value }

var errAnnotation = errors.New("an annotation has no type")

// UnmarshalJSONFrom reads chat's.
func (a *annotation) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var members map[string]jsontext.Value
	if err := json.UnmarshalDecode(d, &members); err != nil {
		return err
	}
	kind, ok := plain(members["type"])
	if !ok {
		return errAnnotation
	}
	if inner := members[kind]; inner.Kind() == '{' {
		delete(members, kind)
		if err := json.Unmarshal(inner, &members, lenient); err != nil { // beside what is there
			return err
		}
		members["type"] = jsontext.Value(quote(kind))
	}
	text, err := json.Marshal(members, written, json.Deterministic(true))
	a.Value = text
	return err
}

func quote(text string) []byte {
	quoted, err := jsontext.AppendQuote(nil, text)
	if err != nil { // it was read from JSON
		return []byte(`""`)
	}
	return quoted
}

// cite adds the annotations that have come to the text that is open, or to an empty one.
func (s *speech) cite() {
	g := s.talk(message)
	s.beginPart(g, outputText)
	for _, a := range s.cited {
		i := len(g.cited)
		e := g.event("response.output_text.annotation.added")
		e.Annotation, e.AnnotationIndex = a, &i
		g.cited = append(g.cited, a)
		s.emit(e)
	}
	s.cited = nil
}
