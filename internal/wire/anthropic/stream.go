package anthropic

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"sovereign/internal/live"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
)

// streamState is the state of a stream.
type streamState struct {
	out            chat.Stream
	requestedModel string             // model in the request
	started        bool               // message_start has arrived
	over           bool               // no event may follow
	complete       bool               // message_stop has arrived
	blocks         int                // blocks started
	open           map[int]*openBlock // blocks that have not stopped, by index
	textBytes      int                // bytes of text so far
	calls          int
	thoughts       int
	usage          usage
	reason         *string
	details        *stopDetails
}

// openBlock is a block that is being streamed. index counts calls and thoughts separately.
type openBlock struct {
	block
	index        int
	hasArguments bool           // some arguments were sent
	started      bool           // the first delta of the thought was sent
	position     *chat.Position // position of the thought
}

// event is an event of a stream.
type event struct {
	Type    string    `json:"type"`
	Message *message  `json:"message"`
	Index   int       `json:"index"`
	Block   *block    `json:"content_block"`
	Delta   *delta    `json:"delta"`
	Usage   *usage    `json:"usage"`
	Error   *apiError `json:"error"`
}

// delta is what an event adds to a block or to the message.
type delta struct {
	Type        string       `json:"type"`
	Text        string       `json:"text"`
	Thinking    string       `json:"thinking"`
	Signature   string       `json:"signature"`
	PartialJSON string       `json:"partial_json"`
	StopReason  *string      `json:"stop_reason"`
	StopDetails *stopDetails `json:"stop_details"`
}

// handlers handle the events by type.
var handlers = map[string]func(*streamState, []byte, *event) ([]byte, error){
	"message_start":       (*streamState).messageStart,
	"content_block_start": (*streamState).blockStart,
	"content_block_delta": (*streamState).blockDelta,
	"content_block_stop":  (*streamState).blockStop,
	"message_delta":       (*streamState).messageDelta,
	"message_stop":        (*streamState).messageStop,
	"error":               (*streamState).errorEvent,
}

var errOrder = errors.New("an event is out of its order")

// End implements upstream.Exchange.
func (p *streamState) End(to []byte) ([]byte, error) {
	if !p.complete {
		return to, io.ErrUnexpectedEOF
	}
	return to, nil
}

// UsageSoFar implements upstream.UsageReporter. The first event reports the input, and the last but one the output.
func (p *streamState) UsageSoFar() *live.Usage { return p.usage.total().Counts() }

// Event implements upstream.Exchange.
func (p *streamState) Event(to []byte, e sse.Event) ([]byte, error) {
	var decoded event
	if err := unmarshal(e.Data, &decoded); err != nil {
		return to, err
	}
	if decoded.Type == "ping" {
		return chat.AppendPing(to), nil
	}
	handle, ok := handlers[decoded.Type]
	first := decoded.Type == "message_start" // must come first and only once; an error may precede it
	switch {
	case !ok:
		return to, nil
	case p.over, first == p.started && decoded.Type != "error":
		return to, fmt.Errorf("%w: %s", errOrder, decoded.Type)
	}
	return handle(p, to, &decoded)
}

func (p *streamState) messageStart(to []byte, e *event) ([]byte, error) {
	if e.Message == nil || e.Message.Type != "message" || len(e.Message.Content) > 0 {
		return to, errNotMessage
	}
	p.started, p.open = true, map[int]*openBlock{}
	p.out.ID, p.out.Model = e.Message.ID, e.Message.Model
	p.usage.merge(e.Message.Usage)
	return p.messageDelta(to, &event{Delta: &delta{
		StopReason: e.Message.StopReason, StopDetails: e.Message.StopDetails,
	}})
}

// blockStart starts a block and sends the content that it starts with.
func (p *streamState) blockStart(to []byte, e *event) ([]byte, error) {
	if e.Block == nil || e.Index != p.blocks {
		return to, fmt.Errorf("%w: block %d, after %d", errOrder, e.Index, p.blocks)
	}
	if err := e.Block.checkKnown(); err != nil {
		return to, err
	}
	b := &openBlock{block: *e.Block}
	p.open[e.Index] = b
	p.blocks++
	switch b.Type {
	case blockText:
		return p.addText(to, b.Text), nil
	case blockToolUse:
		b.index = p.calls
		p.calls++
		return p.addCall(to, chat.ToolCall{
			Index: &b.index, ID: b.ID, Type: function,
			Function: chat.FunctionCall{Name: b.Name},
		}), nil
	default:
		b.index, b.position = p.thoughts, positionAfter(p.textBytes, p.calls)
		p.thoughts++
		return p.addThought(to, b, b.thought()), nil
	}
}

// deltaBlockTypes maps each type of delta to the type of block it belongs to.
var deltaBlockTypes = map[string]string{
	"text_delta": blockText, "thinking_delta": blockThinking, "signature_delta": blockThinking,
	"input_json_delta": blockToolUse,
}

func (p *streamState) blockDelta(to []byte, e *event) ([]byte, error) {
	b, d := p.open[e.Index], e.Delta
	switch {
	case b == nil || d == nil:
		return to, fmt.Errorf("%w: a delta of block %d", errOrder, e.Index)
	case deltaBlockTypes[d.Type] != b.Type:
		return to, fmt.Errorf("a delta of type %q in a block of type %q %w", d.Type, b.Type, errUnknown)
	}
	switch b.Type {
	case blockText:
		return p.addText(to, d.Text), nil
	case blockThinking:
		return p.addThought(to, b, chat.Thought{
			Type: chat.ThoughtText, Text: d.Thinking, Signature: d.Signature,
			Format: chat.FormatAnthropic,
		}), nil
	default:
		return p.addArguments(to, b, d.PartialJSON), nil
	}
}

func (p *streamState) blockStop(to []byte, e *event) ([]byte, error) {
	b := p.open[e.Index]
	if b == nil {
		return to, fmt.Errorf("%w: the end of block %d", errOrder, e.Index)
	}
	delete(p.open, e.Index)
	if b.Type != blockToolUse || b.hasArguments {
		return to, nil
	}
	arguments, err := b.arguments()
	if err != nil {
		return to, err
	}
	return p.addArguments(to, b, arguments), nil
}

// messageDelta stores the usage and the stop reason.
func (p *streamState) messageDelta(to []byte, e *event) ([]byte, error) {
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

// messageStop ends the answer and stops blocks that are still open.
func (p *streamState) messageStop(to []byte, _ *event) ([]byte, error) {
	reason, err := finishReason(p.reason)
	if err != nil {
		return to, err
	}
	for _, i := range slices.Sorted(maps.Keys(p.open)) {
		if to, err = p.blockStop(to, &event{Index: i}); err != nil {
			return to, err
		}
	}
	if explanation := p.details.explanation(); explanation != nil {
		to = p.out.Add(to, 0, chat.Delta{Refusal: explanation})
	}
	p.over, p.complete = true, true
	return p.out.End(p.out.Finish(to, 0, reason), p.usage.total()), nil
}

// errorEvent ends the answer with an error.
func (p *streamState) errorEvent(to []byte, e *event) ([]byte, error) {
	p.over = true
	f := apiError{}
	if e.Error != nil {
		f = *e.Error
	}
	to = append(append(to, "data: "...), f.answerBody()...)
	return append(to, '\n', '\n'), nil
}

func (p *streamState) addText(to []byte, words string) []byte {
	if words == "" {
		return to
	}
	p.textBytes += len(words)
	return p.out.Text(to, 0, words)
}

// addThought sends a delta of a thought: its text in reasoning_content, and all of it in reasoning_details. The first
// delta carries the model and the position.
func (p *streamState) addThought(to []byte, b *openBlock, t chat.Thought) []byte {
	if isEmpty(t) {
		return to
	}
	if !b.started {
		b.started, t.Model, t.Position = true, p.requestedModel, b.position
	}
	t.Index = &b.index
	d := chat.Delta{ReasoningDetails: []chat.Thought{t}}
	if t.Text != "" {
		d.ReasoningContent = &t.Text
	}
	return p.out.Add(to, 0, d)
}

// addArguments sends a delta of a call's arguments.
func (p *streamState) addArguments(to []byte, b *openBlock, piece string) []byte {
	if piece == "" {
		return to
	}
	b.hasArguments = true
	return p.addCall(to, chat.ToolCall{Index: &b.index, Function: chat.FunctionCall{Arguments: piece}})
}

func (p *streamState) addCall(to []byte, c chat.ToolCall) []byte {
	return p.out.Add(to, 0, chat.Delta{ToolCalls: []chat.ToolCall{c}})
}
