package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/plane/gateway/lenient"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/text/scan"
	"sovereign/internal/text/sse"
)

// chatEnd is the last event of every chat's stream.
const chatEnd = "data: [DONE]\n\n"

var chatDone = []byte("[DONE]")

// chatEvent reads one event of a chat's stream.
func chatEvent(s *relay, e sse.Event) (effect eventEffect, failed *failure) {
	if bytes.Equal(e.Data, chatDone) {
		if s.choices.none() {
			return effect, unreadable(s.run.bill.model, errors.New("the stream ended without an answer"))
		}
		s.pending = append(s.pending, chatEnd...)
		return eventEffect{last: true}, nil
	}
	if t := s.template; t != nil {
		if slots, ok := t.Match(e.Data); ok && s.deliver(t, &slots) {
			s.run.assemble(e.Data)
			s.pending = t.Append(s.pending, &slots)
			return eventEffect{content: true}, nil
		}
	}
	var c answer.Chunk
	if err := c.Read(e.Data); err != nil {
		return effect, unreadable(s.run.bill.model, fmt.Errorf("an event of the stream: %w", err))
	}
	if answer.Present(c.Error) {
		return effect, errorInAnswer(s.run.bill.model, c.Error)
	}
	if answer.Present(c.Usage) {
		if u := answer.Usage(c.Usage); u != nil {
			s.run.bill.reported = u
		}
	}
	text, content, failed := s.readChoices(&c)
	if failed != nil {
		return effect, failed
	}
	s.run.assemble(e.Data)
	cut := s.hiddenUsage(e.Data, &c)
	s.template = nil
	if content && c.Plain && len(c.Choices) == 1 && c.Choices[0].Finish == nil && !answer.Present(c.Usage) &&
		s.learned.Learn(e.Data, c.Delta, text, cut) {
		s.template = &s.learned
	}
	s.show(e.Data, &c, cut)
	return eventEffect{content: content}, nil
}

// readChoices reads the choices of a chunk. It returns the text of the last one, and whether any has content.
func (s *relay) readChoices(c *answer.Chunk) (text []byte, content bool, failed *failure) {
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index < 0 || choice.Index >= request.MaxChoices {
			return nil, false, unreadable(s.run.bill.model, fmt.Errorf("a choice has the index %d", choice.Index))
		}
		var says bool
		text, says = answer.MessageText(choice.Delta)
		content = content || says
		s.run.bill.deliver(text)
		ended := choice.Finish != nil && *choice.Finish != ""
		s.choices.note(choice.Index, ended)
		if ended {
			s.run.progress.finished(choice.Index, *choice.Finish)
		}
	}
	s.finished = s.choices.finished()
	return text, content, nil
}

// chatFailure returns the event that ends a chat's stream with an error.
func chatFailure(s *relay, f *fault.Fault) []byte {
	return fmt.Appendf(nil, "data: %s\n\n", edge.Event(s.run.request.ID, f))
}

// show appends an event to pending as the caller sees it, without usage that it did not ask for.
func (s *relay) show(event []byte, c *answer.Chunk, cut lenient.Range) {
	if !s.run.request.IncludeUsage && len(c.Usage) > 0 && len(c.Choices) == 0 {
		return
	}
	if cut.To > 0 {
		event = slices.Concat(event[:cut.From], event[cut.To:])
	}
	if bytes.IndexByte(event, '\n') >= 0 {
		event = bytes.ReplaceAll(event, []byte("\n"), []byte("\ndata: "))
	}
	s.pending = append(append(append(s.pending, "data: "...), event...), '\n', '\n')
}

// hiddenUsage returns where the usage stands that the caller did not ask for, or a zero Range.
func (s *relay) hiddenUsage(event []byte, c *answer.Chunk) lenient.Range {
	if s.run.request.IncludeUsage || len(c.Usage) == 0 {
		return lenient.Range{}
	}
	members, err := scan.Object(event, nil)
	if err != nil || len(members) < 2 {
		return lenient.Range{}
	}
	i, ok := lenient.Member(members, "usage")
	if !ok {
		return lenient.Range{}
	}
	return lenient.Cut(members, i)
}
