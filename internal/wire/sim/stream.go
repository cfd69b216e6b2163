package sim

import (
	"io"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// chunk is one event of a stream. Its usage is absent, null or told.
type chunk struct {
	ID          string         `json:"id"`
	Object      string         `json:"object"`
	Created     int64          `json:"created"`
	Model       string         `json:"model"`
	Choices     []streamed     `json:"choices"`
	Usage       jsontext.Value `json:"usage,omitzero"`
	Fingerprint string         `json:"system_fingerprint"`
}

type streamed struct {
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

// gibberish is what a proxy answers in place of a provider.
const gibberish = "<html><body>Simulated garbage</body></html>"

// died is how a body ends whose connection is lost.
var died = frame{err: io.ErrUnexpectedEOF}

// A stream is an answer as events. Choices take turns, one event each.
type stream struct {
	head    completion
	told    bool // of the usage
	scripts []*script
	turn    int
	pause   time.Duration
	fail    string
	left    int // events with content until it fails
	began   bool
	tail    []frame
}

func newStream(head completion, replies []reply, s settings, told bool) frames {
	st := &stream{head: head, told: told, pause: time.Duration(s.ChunkMS) * time.Millisecond, fail: s.fail}
	total := 0
	for i, r := range replies {
		sc := newScript(i, r, s.Chunks)
		st.scripts = append(st.scripts, sc)
		total += sc.contents()
	}
	switch {
	case s.failAfter >= 0:
		st.left = min(s.failAfter, total)
	case s.fail != garbage:
		st.left = (total + 1) / 2
	}
	if told && head.Usage != nil {
		st.tail = append(st.tail, st.event([]streamed{}, encode(head.Usage)))
	}
	st.tail = append(st.tail, data([]byte("[DONE]")))
	return st.next
}

// next is the next event. A failure takes the place of everything after the content that it waits for.
func (st *stream) next() (frame, bool) {
	if st.fail != "" && st.left == 0 {
		return st.failure()
	}
	for range st.scripts {
		sc := st.scripts[st.turn%len(st.scripts)]
		st.turn++
		if choice, content, ok := sc.next(); ok {
			var usage jsontext.Value
			if st.told && st.head.Usage != nil {
				usage = jsontext.Value("null")
			}
			f := st.event([]streamed{choice}, usage)
			if content {
				st.left--
				if st.began {
					f.wait = st.pause
				}
				st.began = true
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
		hang: {wait: forever}, die: died, garbage: data([]byte(gibberish)), errorEvent: data(midway.envelope()),
	}[st.fail]
	st.scripts, st.tail, st.fail = nil, nil, ""
	return failure, true
}

func (st *stream) event(choices []streamed, usage jsontext.Value) frame {
	return data(encode(chunk{
		ID: st.head.ID, Object: "chat.completion.chunk", Created: st.head.Created, Model: st.head.Model,
		Choices: choices, Usage: usage, Fingerprint: st.head.Fingerprint,
	}))
}

// data is one event.
func data(text []byte) frame {
	return frame{data: append(append([]byte("data: "), text...), "\n\n"...)}
}

// A script is a reply as events: the role, then each part in chunks, then why it ended.
type script struct {
	index int
	role  delta
	parts []*split
	end   *string
	began bool
	ended bool
}

// A split is a part of a reply, which is told in chunks.
type split struct {
	opening *delta // that comes before the text
	text    string
	chunks  int
	told    int // chunks
	at      int // bytes
	runes   int
	delta   func(text string) delta
}

func newScript(index int, r reply, chunks int) *script {
	sc := &script{index: index, end: &r.finish, role: delta{Role: "assistant", Content: jsontext.Value(`""`)}}
	if len(r.calls) > 0 {
		sc.role.Content = jsontext.Value("null")
	}
	sc.add(nil, r.reasoning, chunks, func(text string) delta { return delta{Reasoning: text} })
	sc.add(nil, r.text, chunks, func(text string) delta { return delta{Content: encode(text)} })
	for i, c := range r.calls {
		opening := delta{ToolCalls: []toolDelta{{Index: i, ID: c.ID, Type: c.Type, Function: functionDelta{Name: c.Function.Name}}}}
		sc.add(&opening, c.Function.Arguments, chunks, func(text string) delta {
			return delta{ToolCalls: []toolDelta{{Index: i, Function: functionDelta{Arguments: text}}}}
		})
	}
	return sc
}

func (sc *script) add(opening *delta, text string, chunks int, d func(string) delta) {
	if chunks == 0 {
		chunks = int(tokens(len(text)))
	}
	runes := utf8.RuneCountInString(text)
	sc.parts = append(sc.parts, &split{opening: opening, text: text, chunks: min(chunks, runes), runes: runes, delta: d})
}

// contents is how many events with content there are.
func (sc *script) contents() (n int) {
	for _, p := range sc.parts {
		n += p.chunks
		if p.opening != nil {
			n++
		}
	}
	return n
}

// next is the choice of the next event, and whether it has content.
func (sc *script) next() (c streamed, content, ok bool) {
	c.Index = sc.index
	if !sc.began {
		sc.began = true
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

// next is the next chunk: as many characters as each of the others, or one more or less.
func (p *split) next() (d delta, ok bool) {
	if p.opening != nil {
		d, p.opening = *p.opening, nil
		return d, true
	}
	if p.told == p.chunks {
		return d, false
	}
	end := p.at
	for range p.runes*(p.told+1)/p.chunks - p.runes*p.told/p.chunks {
		_, size := utf8.DecodeRuneInString(p.text[end:])
		end += size
	}
	d = p.delta(p.text[p.at:end])
	p.at = end
	p.told++
	return d, true
}
