package responses

import "github.com/go-json-experiment/json/jsontext"

// event is an event of a stream. Its type determines its members.
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

// partEvents are the types of the events of a part.
var partEvents = map[string]struct{ added, delta, textDone, done string }{
	partOutputText: {
		"response.content_part.added", "response.output_text.delta", "response.output_text.done",
		"response.content_part.done",
	},
	partRefusal: {
		"response.content_part.added", "response.refusal.delta", "response.refusal.done",
		"response.content_part.done",
	},
	partSummaryText: {
		"response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
		"response.reasoning_summary_text.done", "response.reasoning_summary_part.done",
	},
}

// event returns an event of the item, or of its open part.
func (g *openItem) event(name string) event {
	e := event{Type: name, OutputIndex: &g.index, ItemID: g.ID}
	at := len(g.Content) + len(g.Summary) // an item has only one of them
	switch g.Type {
	case itemMessage:
		e.ContentIndex = &at
	case itemReasoning:
		e.SummaryIndex = &at
	}
	if names := partEvents[partOutputText]; name == names.delta || name == names.textDone {
		e.Logprobs = &[]struct{}{}
	}
	return e
}
