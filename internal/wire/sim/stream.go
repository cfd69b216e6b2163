package sim

import (
	"io"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// chunk is one event of a stream. Its usage is absent, null or set.
type chunk struct {
	ID          string         `json:"id"`
	Object      string         `json:"object"`
	Created     int64          `json:"created"`
	Model       string         `json:"model"`
	Choices     []chunkChoice  `json:"choices"`
	Usage       jsontext.Value `json:"usage,omitzero"`
	Fingerprint string         `json:"system_fingerprint"`
}

type chunkChoice struct {
	Index    int       `json:"index"`
	Delta    delta     `json:"delta"`
	Logprobs *struct{} `json:"logprobs"`
	Finish   *string   `json:"finish_reason"`
}

type delta struct {
	Role      string         `json:"role,omitempty"`
	Content   jsontext.Value `json:"content,omitzero"`
	Reasoning string         `json:"reasoning_content,omitempty"`
	ToolCalls []toolDelta    `json:"tool_calls,omitempty"`
}

type toolDelta struct {
	Index    int           `json:"index"`
	ID       string        `json:"id,omitempty"`
	Type     string        `json:"type,omitempty"`
	Function functionDelta `json:"function"`
}

type functionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// garbageBody imitates the error page of a proxy.
const garbageBody = "<html><body>Simulated garbage</body></html>"

// connectionLost ends a body whose connection is lost.
var connectionLost = frame{err: io.ErrUnexpectedEOF}

// stream generates the events of an answer. Choices alternate, one event each.
type stream struct {
	head               completion
	includeUsage       bool // the caller asked for the usage
	choices            []*choiceEvents
	turn               int
	pause              time.Duration
	fail               string
	eventsUntilFailure int // events with content until the failure
	started            bool
	tail               []frame
}

func newStream(head completion, replies []reply, s settings, includeUsage bool) frames {
	st := &stream{
		head: head, includeUsage: includeUsage, pause: time.Duration(s.ChunkMS) * time.Millisecond, fail: s.fail,
	}
	total := 0
	for i, r := range replies {
		sc := newChoiceEvents(i, r, s.Chunks)
		st.choices = append(st.choices, sc)
		total += sc.contentEvents()
	}
	switch {
	case s.failAfter >= 0:
		st.eventsUntilFailure = min(s.failAfter, total)
	case s.fail != garbage:
		st.eventsUntilFailure = (total + 1) / 2
	}
	if includeUsage && head.Usage != nil {
		st.tail = append(st.tail, st.event([]chunkChoice{}, encode(head.Usage)))
	}
	st.tail = append(st.tail, data([]byte("[DONE]")))
	return st.next
}

// next returns the next event. A failure replaces everything after the content that precedes it.
func (st *stream) next() (frame, bool) {
	if st.fail != "" && st.eventsUntilFailure == 0 {
		return st.failure()
	}
	for range st.choices {
		sc := st.choices[st.turn%len(st.choices)]
		st.turn++
		if choice, content, ok := sc.next(); ok {
			var usage jsontext.Value
			if st.includeUsage && st.head.Usage != nil {
				usage = jsontext.Value("null")
			}
			f := st.event([]chunkChoice{choice}, usage)
			if content {
				st.eventsUntilFailure--
				if st.started {
					f.wait = st.pause
				}
				st.started = true
			}
			return f, true
		}
	}
	return st.end()
}

func (st *stream) end() (next frame, ok bool) {
	if len(st.tail) == 0 {
		return frame{}, false
	}
	next, st.tail = st.tail[0], st.tail[1:]
	return next, true
}

func (st *stream) failure() (frame, bool) {
	failure := map[string]frame{
		hang: {wait: forever}, die: connectionLost, garbage: data([]byte(garbageBody)),
		errorEvent: data(errorInAnswer.envelope()),
	}[st.fail]
	st.choices, st.tail, st.fail = nil, nil, ""
	return failure, true
}

func (st *stream) event(choices []chunkChoice, usage jsontext.Value) frame {
	return data(encode(chunk{
		ID: st.head.ID, Object: "chat.completion.chunk", Created: st.head.Created, Model: st.head.Model,
		Choices: choices, Usage: usage, Fingerprint: st.head.Fingerprint,
	}))
}

// data returns the frame of one event.
func data(text []byte) frame {
	return frame{data: append(append([]byte("data: "), text...), "\n\n"...)}
}

// choiceEvents generates the events of one choice: the role, each part in chunks, then the finish reason.
type choiceEvents struct {
	index   int
	role    delta
	parts   []*textChunks
	end     *string
	started bool
	ended   bool
}

// textChunks is a part of a choice that is sent in chunks.
type textChunks struct {
	opening *delta // sent before the text
	text    string
	chunks  int
	sent    int // chunks sent
	at      int // bytes sent
	runes   int
	delta   func(text string) delta
}

func newChoiceEvents(index int, r reply, chunks int) *choiceEvents {
	sc := &choiceEvents{index: index, end: &r.finish, role: delta{Role: "assistant", Content: jsontext.Value(`""`)}}
	if len(r.calls) > 0 {
		sc.role.Content = jsontext.Value("null")
	}
	sc.add(nil, r.reasoning, chunks, func(text string) delta { return delta{Reasoning: text} })
	sc.add(nil, r.text, chunks, func(text string) delta { return delta{Content: encode(text)} })
	for i, c := range r.calls {
		opening := delta{ToolCalls: []toolDelta{{
			Index: i, ID: c.ID, Type: c.Type,
			Function: functionDelta{Name: c.Function.Name},
		}}}
		sc.add(&opening, c.Function.Arguments, chunks, func(text string) delta {
			return delta{ToolCalls: []toolDelta{{Index: i, Function: functionDelta{Arguments: text}}}}
		})
	}
	return sc
}

func (sc *choiceEvents) add(opening *delta, text string, chunks int, d func(string) delta) {
	if chunks == 0 {
		chunks = int(tokens(len(text)))
	}
	runes := utf8.RuneCountInString(text)
	sc.parts = append(sc.parts, &textChunks{
		opening: opening, text: text, chunks: min(chunks, runes), runes: runes,
		delta: d,
	})
}

// contentEvents returns the number of events with content.
func (sc *choiceEvents) contentEvents() (n int) {
	for _, p := range sc.parts {
		n += p.chunks
		if p.opening != nil {
			n++
		}
	}
	return n
}

// next returns the choice of the next event, and whether it has content.
func (sc *choiceEvents) next() (c chunkChoice, content, ok bool) {
	c.Index = sc.index
	if !sc.started {
		sc.started = true
		c.Delta = sc.role
		return c, false, true
	}
	for len(sc.parts) > 0 {
		if c.Delta, ok = sc.parts[0].next(); ok {
			return c, true, true
		}
		sc.parts = sc.parts[1:]
	}
	if sc.ended {
		return c, false, false
	}
	sc.ended = true
	c.Finish = sc.end
	return c, false, true
}

// next returns the next chunk. Chunks differ by at most one character in length.
func (p *textChunks) next() (d delta, ok bool) {
	if p.opening != nil {
		d, p.opening = *p.opening, nil
		return d, true
	}
	if p.sent == p.chunks {
		return d, false
	}
	end := p.at
	for range p.runes*(p.sent+1)/p.chunks - p.runes*p.sent/p.chunks {
		_, size := utf8.DecodeRuneInString(p.text[end:])
		end += size
	}
	d = p.delta(p.text[p.at:end])
	p.at = end
	p.sent++
	return d, true
}
