package anthropic

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
)

// progress is how far a stream has come.
type progress struct {
	out      chat.Stream
	asked    string        // the model
	begun    bool          // the head of the message is there
	over     bool          // nothing may come any more
	ended    bool          // because all was said
	blocks   int           // how many have begun
	open     map[int]*part // and have not ended
	words    int           // bytes of text
	calls    int
	thoughts int
	usage    usage
	reason   *string
	details  *details
}

// A part is a block that is being streamed. Calls and thoughts are counted each for themselves.
type part struct {
	block
	index  int
	argued bool        // arguments have come
	told   bool        // a piece of the thought has been said
	place  *chat.Place // of the thought
}

// An event is one of a stream.
type event struct {
	Type    string   `json:"type"`
	Message *answer  `json:"message"`
	Index   int      `json:"index"`
	Block   *block   `json:"content_block"`
	Delta   *delta   `json:"delta"`
	Usage   *usage   `json:"usage"`
	Error   *failure `json:"error"`
}

// A delta is what an event adds to a block, or to the message.
type delta struct {
	Type        string   `json:"type"`
	Text        string   `json:"text"`
	Thinking    string   `json:"thinking"`
	Signature   string   `json:"signature"`
	PartialJSON string   `json:"partial_json"`
	StopReason  *string  `json:"stop_reason"`
	StopDetails *details `json:"stop_details"`
}

// handlers take the events, by their types.
var handlers = map[string]func(*progress, []byte, *event) ([]byte, error){
	"message_start":       (*progress).start,
	"content_block_start": (*progress).openBlock,
	"content_block_delta": (*progress).add,
	"content_block_stop":  (*progress).closeBlock,
	"message_delta":       (*progress).learn,
	"message_stop":        (*progress).finish,
	"error":               (*progress).fail,
}

var errOrder = errors.New("an event is out of its order")

// End implements upstream.Exchange.
func (p *progress) End(to []byte) ([]byte, error) {
	if !p.ended {
		return to, io.ErrUnexpectedEOF
	}
	return to, nil
}

// Event implements upstream.Exchange.
func (p *progress) Event(to []byte, e sse.Event) ([]byte, error) {
	var said event
	if err := read(e.Data, &said); err != nil {
		return to, err
	}
	if said.Type == "ping" {
		return chat.Ping(to), nil
	}
	handle, ok := handlers[said.Type]
	first := said.Type == "message_start" // once, and before all but an error
	switch {
	case !ok:
		return to, nil
	case p.over, first == p.begun && said.Type != "error":
		return to, fmt.Errorf("%w: %s", errOrder, said.Type)
	}
	return handle(p, to, &said)
}

func (p *progress) start(to []byte, e *event) ([]byte, error) {
	if e.Message == nil || e.Message.Type != "message" || len(e.Message.Content) > 0 {
		return to, errNoMessage
	}
	p.begun, p.open = true, map[int]*part{}
	p.out.ID, p.out.Model = e.Message.ID, e.Message.Model
	p.usage.merge(e.Message.Usage)
	return p.learn(to, &event{Delta: &delta{StopReason: e.Message.StopReason, StopDetails: e.Message.StopDetails}})
}

// openBlock begins a block. What it holds already is said at once.
func (p *progress) openBlock(to []byte, e *event) ([]byte, error) {
	if e.Block == nil || e.Index != p.blocks {
		return to, fmt.Errorf("%w: block %d, after %d", errOrder, e.Index, p.blocks)
	}
	if err := e.Block.known(); err != nil {
		return to, err
	}
	b := &part{block: *e.Block}
	p.open[e.Index] = b
	p.blocks++
	switch b.Type {
	case blockText:
		return p.text(to, b.Text), nil
	case blockCall:
		b.index = p.calls
		p.calls++
		return p.call(to, chat.ToolCall{Index: &b.index, ID: b.ID, Type: function, Function: chat.Called{Name: b.Name}}), nil
	default:
		b.index, b.place = p.thoughts, after(p.words, p.calls)
		p.thoughts++
		return p.think(to, b, b.thought()), nil
	}
}

// fits are the blocks that deltas add to.
var fits = map[string]string{
	"text_delta": blockText, "thinking_delta": blockThinking, "signature_delta": blockThinking, "input_json_delta": blockCall,
}

func (p *progress) add(to []byte, e *event) ([]byte, error) {
	b, d := p.open[e.Index], e.Delta
	switch {
	case b == nil || d == nil:
		return to, fmt.Errorf("%w: a delta of block %d", errOrder, e.Index)
	case fits[d.Type] != b.Type:
		return to, fmt.Errorf("a delta of type %q in a block of type %q %w", d.Type, b.Type, errUnknown)
	}
	switch b.Type {
	case blockText:
		return p.text(to, d.Text), nil
	case blockThinking:
		return p.think(to, b, chat.Thought{Type: chat.ThoughtText, Text: d.Thinking, Signature: d.Signature, Format: chat.OfAnthropic}), nil
	default:
		return p.argue(to, b, d.PartialJSON), nil
	}
}

func (p *progress) closeBlock(to []byte, e *event) ([]byte, error) {
	b := p.open[e.Index]
	if b == nil {
		return to, fmt.Errorf("%w: the end of block %d", errOrder, e.Index)
	}
	delete(p.open, e.Index)
	if b.Type != blockCall || b.argued {
		return to, nil
	}
	arguments, err := b.arguments()
	if err != nil {
		return to, err
	}
	return p.argue(to, b, arguments), nil
}

// learn takes what is known of the whole message so far.
func (p *progress) learn(to []byte, e *event) ([]byte, error) {
	p.usage.merge(e.Usage)
	if e.Delta == nil {
		return to, nil
	}
	if e.Delta.StopReason != nil {
		p.reason = e.Delta.StopReason
	}
	if e.Delta.StopDetails != nil {
		p.details = e.Delta.StopDetails
	}
	return to, nil
}

// finish ends the answer. What is still open ends with it.
func (p *progress) finish(to []byte, _ *event) ([]byte, error) {
	reason, err := reasonOf(p.reason)
	if err != nil {
		return to, err
	}
	for _, i := range slices.Sorted(maps.Keys(p.open)) {
		if to, err = p.closeBlock(to, &event{Index: i}); err != nil {
			return to, err
		}
	}
	if why := p.details.explanation(); why != nil {
		to = p.out.Add(to, 0, chat.Delta{Refusal: why})
	}
	p.over, p.ended = true, true
	return p.out.End(p.out.Finish(to, 0, reason), p.usage.sum()), nil
}

// fail ends the answer with an error: no end of it may follow.
func (p *progress) fail(to []byte, e *event) ([]byte, error) {
	p.over = true
	f := failure{}
	if e.Error != nil {
		f = *e.Error
	}
	to = append(append(to, "data: "...), f.inside()...)
	return append(to, '\n', '\n'), nil
}

func (p *progress) text(to []byte, words string) []byte {
	if words == "" {
		return to
	}
	p.words += len(words)
	return p.out.Text(to, 0, words)
}

// think says a piece of a thought: its words for people, and all of it for the way back. The first piece says whose it is
// and where it stood.
func (p *progress) think(to []byte, b *part, t chat.Thought) []byte {
	if empty(t) {
		return to
	}
	if !b.told {
		b.told, t.Model, t.Place = true, p.asked, b.place
	}
	t.Index = &b.index
	d := chat.Delta{ReasoningDetails: []chat.Thought{t}}
	if t.Text != "" {
		d.ReasoningContent = &t.Text
	}
	return p.out.Add(to, 0, d)
}

// argue says a piece of a call's arguments.
func (p *progress) argue(to []byte, b *part, piece string) []byte {
	if piece == "" {
		return to
	}
	b.argued = true
	return p.call(to, chat.ToolCall{Index: &b.index, Function: chat.Called{Arguments: piece}})
}

func (p *progress) call(to []byte, c chat.ToolCall) []byte {
	return p.out.Add(to, 0, chat.Delta{ToolCalls: []chat.ToolCall{c}})
}
