package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/plane/edge"
	"sovereign/internal/text/scan"
	"sovereign/internal/text/sse"
)

// chatEnd is how every chat's stream ends.
const chatEnd = "data: [DONE]\n\n"

var done = []byte("[DONE]")

// chatEvent reads one event of a chat's stream.
func chatEvent(s *relay, e sse.Event) (v verdict, failed *failure) {
	if bytes.Equal(e.Data, done) {
		if s.choices.none() {
			return v, s.garbage(errors.New("the stream ended without an answer"))
		}
		s.out = append(s.out, chatEnd...)
		return verdict{last: true}, nil
	}
	if s.mould != nil {
		if c, ok := s.mould.fits(e.Data); ok && s.deliver(&c, s.mould.text) {
			s.gather(e.Data)
			s.out = s.mould.pour(s.out, &c)
			return verdict{content: true}, nil
		}
	}
	var c chunk
	if err := c.read(e.Data); err != nil {
		return v, s.garbage(fmt.Errorf("an event of the stream: %w", err))
	}
	if present(c.Error) {
		return v, s.inside(c.Error)
	}
	if present(c.Usage) {
		if u := usageOf(c.Usage); u != nil {
			s.reported = u
		}
	}
	var text []byte // of the last choice
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index < 0 || choice.Index >= maxChoices {
			return v, s.garbage(fmt.Errorf("a choice has the index %d", choice.Index))
		}
		var says bool
		text, says = written(choice.Delta)
		v.content = v.content || says
		s.keep(text)
		over := choice.Finish != nil && *choice.Finish != ""
		s.choices.hear(choice.Index, over)
		if over {
			s.run.finish = *choice.Finish
		}
	}
	s.finished = s.choices.finished()
	s.gather(e.Data)
	cut := s.hidden(e.Data, &c)
	if s.mould = nil; v.content && c.plain && len(c.Choices) == 1 && c.Choices[0].Finish == nil && !present(c.Usage) && s.form.cast(e.Data, c.delta, text, cut) {
		s.mould = &s.form
	}
	s.show(e.Data, &c, cut)
	return v, nil
}

// chatFailure is the event that ends a chat's stream with an error.
func (s *relay) chatFailure(f *fault.Fault) []byte {
	return fmt.Appendf(nil, "data: %s\n\n", edge.Event(s.ask.ID, f))
}

// show puts an event in line as the caller sees it, without the usage that it did not ask for.
func (s *relay) show(event []byte, c *chunk, cut edit) {
	if !s.ask.usage && len(c.Usage) > 0 && len(c.Choices) == 0 {
		return
	}
	if cut.to > 0 {
		event = slices.Concat(event[:cut.from], event[cut.to:])
	}
	if bytes.IndexByte(event, '\n') >= 0 {
		event = bytes.ReplaceAll(event, []byte("\n"), []byte("\ndata: "))
	}
	s.out = append(append(append(s.out, "data: "...), event...), '\n', '\n')
}

// hidden is where the usage stands that the caller did not ask for; nowhere when there is none.
func (s *relay) hidden(event []byte, c *chunk) edit {
	if s.ask.usage || len(c.Usage) == 0 {
		return edit{}
	}
	members, err := scan.Object(event, nil)
	if err != nil || len(members) < 2 {
		return edit{}
	}
	a := Ask{Body: event, members: members}
	i, ok := a.member("usage")
	if !ok {
		return edit{}
	}
	return a.without(i)
}
