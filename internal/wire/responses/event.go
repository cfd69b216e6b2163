package responses

import "github.com/go-json-experiment/json/jsontext"

// An event is one of a stream's. Which members it has, its type says.
type event struct {
	Type         string      `json:"type"`
	Sequence     int         `json:"sequence_number"`
	Response     *response   `json:"response,omitzero"`
	OutputIndex  *int        `json:"output_index,omitzero"`
	ItemID       string      `json:"item_id,omitempty"`
	ContentIndex *int        `json:"content_index,omitzero"`
	SummaryIndex *int        `json:"summary_index,omitzero"`
	Item         *item       `json:"item,omitzero"`
	Part         *part       `json:"part,omitzero"`
	Delta        *string     `json:"delta,omitzero"`
	Text         *string     `json:"text,omitzero"`
	Refusal      *string     `json:"refusal,omitzero"`
	Name         string      `json:"name,omitempty"`
	Arguments    *string     `json:"arguments,omitzero"`
	Logprobs     *[]struct{} `json:"logprobs,omitzero"`

	Annotation      jsontext.Value `json:"annotation,omitzero"`
	AnnotationIndex *int           `json:"annotation_index,omitzero"`
}

// partNames are the types of the events that tell of a part.
var partNames = map[string]struct{ added, delta, said, done string }{
	outputText: {"response.content_part.added", "response.output_text.delta", "response.output_text.done", "response.content_part.done"},
	refusal:    {"response.content_part.added", "response.refusal.delta", "response.refusal.done", "response.content_part.done"},
	summaryText: {
		"response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
		"response.reasoning_summary_text.done", "response.reasoning_summary_part.done",
	},
}

// event is one that tells of an item, or of the part that is being said.
func (g *growing) event(name string) event {
	e := event{Type: name, OutputIndex: &g.index, ItemID: g.ID}
	at := len(g.Content) + len(g.Summary) // of which a type has one
	switch g.Type {
	case message:
		e.ContentIndex = &at
	case reasoning:
		e.SummaryIndex = &at
	}
	if names := partNames[outputText]; name == names.delta || name == names.said {
		e.Logprobs = &[]struct{}{}
	}
	return e
}

// A flat event tells of an error. It is no response's: none has come, or the one that has is void.
type flat struct {
	Type     string  `json:"type"`
	Sequence int     `json:"sequence_number"`
	Code     *string `json:"code"`
	Message  string  `json:"message"`
	Param    *string `json:"param"`
}
