package gemini

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
)

// Event implements upstream.Exchange. Google names no end: an answer is over when every candidate has ended and the usage
// was told then or after, which is in one event or in two. What was told before counts what had come by then.
func (e *exchange) Event(to []byte, event sse.Event) ([]byte, error) {
	var g generated
	if err := json.Unmarshal(event.Data, &g, lenient); err != nil {
		return to, err
	}
	switch {
	case e.broken:
		return to, nil
	case g.Error != nil:
		_, told := g.Error.tell(g.Error.status())
		return e.fail(to, told), nil
	case e.stream == nil:
		e.stream = &chat.Stream{ID: cmp.Or(g.ResponseID, e.id), Created: e.made, Model: cmp.Or(g.ModelVersion, e.model), Usage: e.usage}
	}
	for i := range g.Candidates {
		var err error
		to, err = e.listen(to, &g.Candidates[i])
		var f failed
		if errors.As(err, &f) {
			return e.fail(to, f.tell()), nil
		}
		if err != nil {
			return to, err
		}
	}
	if g.PromptFeedback.BlockReason != "" {
		to = e.block(to)
	}
	count := g.UsageMetadata.count()
	if count != nil {
		e.count = count
	}
	if (e.ended == e.n || e.blocked) && count != nil && !e.over {
		e.over = true
		to = e.stream.End(to, count)
	}
	return to, nil
}

// End implements upstream.Exchange. An answer whose usage is not told at its end ends all the same, with what was told
// last; so does one of fewer candidates than were asked for, if all that were heard have ended.
func (e *exchange) End(to []byte) ([]byte, error) {
	switch {
	case e.broken || e.ended == 0 || e.ended < len(e.voices):
		return to, io.ErrUnexpectedEOF
	case !e.over:
		e.over = true
		return e.stream.End(to, e.count), nil
	default:
		return to, nil
	}
}

// listen appends what a candidate says next.
func (e *exchange) listen(to []byte, c *candidate) ([]byte, error) {
	v, err := e.voice(c.Index)
	if err != nil {
		return to, err
	}
	for i := range c.Content.Parts {
		deltas, err := v.hear(&c.Content.Parts[i], e.stream.ID)
		if err != nil {
			return to, err
		}
		for _, d := range deltas {
			if v.finish != "" {
				return to, fmt.Errorf("the candidate of index %d goes on after its end", c.Index)
			}
			to = e.stream.Add(to, c.Index, d)
		}
	}
	if v.finish != "" {
		return to, nil
	}
	finish, err := v.end(c)
	if err != nil || finish == "" {
		return to, err
	}
	return e.finish(to, v, finish), nil
}

func (e *exchange) finish(to []byte, v *voice, finish string) []byte {
	v.finish = finish
	e.ended++
	return e.stream.Finish(to, v.index, finish)
}

// block ends whatever has not ended: the prompt was blocked, before the first word or after some.
func (e *exchange) block(to []byte) []byte {
	e.blocked = true
	if len(e.voices) == 0 {
		e.voices[0] = &voice{}
	}
	for _, i := range slices.Sorted(maps.Keys(e.voices)) {
		if v := e.voices[i]; v.finish == "" {
			to = e.finish(to, v, chat.ContentFilter)
		}
	}
	return to
}

// fail appends a failure, after which nothing is said.
func (e *exchange) fail(to, told []byte) []byte {
	e.broken = true
	to = append(to, "data: "...)
	return append(append(to, told...), '\n', '\n')
}
