package responses

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// builder builds a response from deltas and emits its events into out. Complete answers use it too, without events.
type builder struct {
	dialect  Dialect
	provider string // name of the provider, if it speaks chat itself
	response response
	out      []byte
	noEvents bool // the answer is not streamed
	started  bool
	sequence int
	err      error // errors of encoding

	items       []*openItem
	open        *openItem         // the open message or reasoning item
	calls       map[int]*openItem // by their index in chat
	lastCall    int               // index of the last call
	callIDs     map[string]bool   // call ids in use
	state       state             // signatures of the message and of calls
	annotations []jsontext.Value  // annotations that wait for a text
}

// openItem is an item that is being built.
type openItem struct {
	item
	index              int
	partType           string // type of the open part; empty if none is open
	text               strings.Builder
	annotations        []jsontext.Value // annotations of the open part
	thoughts           []chat.Thought
	isReasoningContent bool   // the provider sent reasoning_content
	providerCallID     string // call id of the provider; may be empty
	done               bool
}

// delta is what a chunk adds to the message, or the complete message.
type delta struct {
	Content          *string            `json:"content"`
	Refusal          *string            `json:"refusal"`
	ReasoningContent *string            `json:"reasoning_content"`
	Reasoning        jsontext.Value     `json:"reasoning"` // the name that some providers use for reasoning_content
	ReasoningDetails []chat.Thought     `json:"reasoning_details"`
	ToolCalls        []chat.ToolCall    `json:"tool_calls"`
	ExtraContent     *chat.ExtraContent `json:"extra_content"`
	FunctionCall     jsontext.Value     `json:"function_call"`
	Audio            jsontext.Value     `json:"audio"`
	Images           jsontext.Value     `json:"images"`
	Annotations      []annotation       `json:"annotations"`
}

// The errors of answers that have no equivalent. No request of ours asks for them.
var (
	errFunctionCall = errors.New("the answer calls a function in the old way")
	errAudio        = errors.New("the answer is a sound")
	errImages       = errors.New("the answer has images")
	errToolCall     = errors.New("the answer calls a tool that is no function with a name")
	errChoice       = errors.New("the answer has more than one choice, or none")
)

// start emits the first events, once.
func (s *builder) start(model string) {
	if s.started {
		return
	}
	s.started = true
	if model != "" {
		s.response.Model = model
	}
	s.emit(event{Type: "response.created", Response: &s.response})
	s.emit(event{Type: "response.in_progress", Response: &s.response})
}

// add adds a delta.
func (s *builder) add(d *delta) error {
	switch {
	case chat.IsSet(d.FunctionCall):
		return errFunctionCall
	case chat.IsSet(d.Audio):
		return errAudio
	case chat.IsSet(d.Images) && string(d.Images) != "[]":
		return errImages
	}
	thought := deref(d.ReasoningContent)
	if d.ReasoningContent == nil {
		thought, _ = scalarText(d.Reasoning)
	}
	if len(d.ReasoningDetails) > 0 || thought != "" {
		g := s.openItem(itemReasoning)
		g.thoughts = appendThoughts(g.thoughts, d.ReasoningDetails)
		g.isReasoningContent = g.isReasoningContent || s.provider != "" && deref(d.ReasoningContent) != ""
		s.addText(g, partSummaryText, thought)
	}
	if more := deref(d.Content); more != "" {
		s.addText(s.openItem(itemMessage), partOutputText, more)
	}
	for _, a := range d.Annotations {
		s.annotations = append(s.annotations, a.Value)
	}
	if s.open != nil && s.open.partType == partOutputText {
		s.flushAnnotations()
	}
	if more := deref(d.Refusal); more != "" {
		s.addText(s.openItem(itemMessage), partRefusal, more)
	}
	for i := range d.ToolCalls {
		if err := s.addCall(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	if signature := d.ExtraContent.Signature(); signature != "" {
		s.state.Signature = signature
	}
	return s.err
}

// addItem starts an item.
func (s *builder) addItem(i item) *openItem {
	i.ID, i.Status = s.dialect.New(idPrefixes[i.Type]), statusInProgress
	g := &openItem{item: i, index: len(s.items)}
	s.items = append(s.items, g)
	s.emit(event{Type: "response.output_item.added", OutputIndex: &g.index, Item: &g.item})
	return g
}

// openItem returns the open message or reasoning item. It closes an open item of another type.
func (s *builder) openItem(kind string) *openItem {
	if s.open != nil && s.open.Type == kind {
		return s.open
	}
	s.closeItem(s.open, statusCompleted)
	i := item{Type: kind}
	if kind == itemMessage {
		i.Role, i.Content = chat.RoleAssistant, []part{}
	} else {
		i.Summary = []part{}
	}
	s.open = s.addItem(i)
	return s.open
}

// addText adds text to the open part of a type.
func (s *builder) addText(g *openItem, kind, more string) {
	if more == "" {
		return
	}
	s.beginPart(g, kind)
	g.text.WriteString(more)
	e := g.event(partEvents[kind].delta)
	e.Delta = &more
	s.emit(e)
}

// beginPart opens a part, unless one of this type is open.
func (s *builder) beginPart(g *openItem, kind string) {
	if g.partType == kind {
		return
	}
	s.endPart(g)
	empty := newPart(kind, "")
	added := g.event(partEvents[kind].added)
	added.Part, g.partType = &empty, kind
	s.emit(added)
}

// addCall adds a delta of a tool call. Calls of different indexes may alternate and stay open until the end.
func (s *builder) addCall(c *chat.ToolCall) error {
	if c.Type != "" && c.Type != "function" {
		return errToolCall
	}
	index := s.lastCall
	if c.Index != nil {
		index = *c.Index
	} else if c.Function.Name != "" {
		index = s.lastCall + 1
	}
	g := s.calls[index]
	// some providers use the same index for all calls
	if g == nil || c.Function.Name != "" && c.ID != "" && c.ID != g.providerCallID {
		if c.Function.Name == "" {
			return errToolCall
		}
		s.closeItem(s.open, statusCompleted)
		s.open = nil
		g = s.addItem(item{
			Type: itemFunctionCall, CallID: s.callID(c.ID), Name: c.Function.Name, Arguments: new(string),
		})
		g.providerCallID, s.calls[index] = c.ID, g
	}
	s.lastCall = index
	s.state.sign(g.CallID, c.ExtraContent)
	if more := c.Function.Arguments; more != "" {
		g.text.WriteString(more)
		e := g.event("response.function_call_arguments.delta")
		e.Delta = &more
		s.emit(e)
	}
	return nil
}

// callID returns the provider's call id. A missing or repeated id is replaced: clients match results by it.
func (s *builder) callID(id string) string {
	if id == "" || s.callIDs[id] {
		id = s.dialect.New("call")
	}
	s.callIDs[id] = true
	return id
}

// endPart closes the open part.
func (s *builder) endPart(g *openItem) {
	if g.partType == "" {
		return
	}
	whole := newPart(g.partType, g.text.String())
	whole.Annotations = append(whole.Annotations, g.annotations...)
	textDone, done := g.event(partEvents[g.partType].textDone), g.event(partEvents[g.partType].done)
	textDone.Text, textDone.Refusal = whole.Text, whole.Refusal
	done.Part = &whole
	s.emit(textDone)
	s.emit(done)
	if g.partType == partSummaryText {
		g.Summary = append(g.Summary, whole)
	} else {
		g.Content = append(g.Content, whole)
	}
	g.partType, g.annotations = "", nil
	g.text.Reset()
}

// closeItem closes an item.
func (s *builder) closeItem(g *openItem, status string) {
	if g == nil || g.done {
		return
	}
	s.endPart(g)
	g.done, g.Status = true, status
	switch g.Type {
	case itemFunctionCall:
		arguments := g.text.String()
		g.Arguments = &arguments
		e := g.event("response.function_call_arguments.done")
		e.Name, e.Arguments = g.Name, &arguments
		s.emit(e)
	case itemReasoning:
		s.setState(g, &state{Thoughts: withoutIndexes(g.thoughts), ReasoningContent: g.isReasoningContent})
	}
	s.emit(event{Type: "response.output_item.done", OutputIndex: &g.index, Item: &g.item})
}

func (s *builder) setState(g *openItem, kept *state) {
	var err error
	kept.Provider = s.provider
	if g.Encrypted, err = kept.encode(); err != nil {
		s.err = errors.Join(s.err, err)
	}
}

// outcome is the status of a response by finish reason.
type outcome struct {
	status, reason string
}

var outcomes = map[string]outcome{
	chat.Stop: {status: statusCompleted}, chat.ToolCalls: {status: statusCompleted},
	chat.Length: {statusIncomplete, "max_output_tokens"}, chat.ContentFilter: {statusIncomplete, "content_filter"},
}

// finish closes all items and the response. An unknown finish reason fails the response, because its meaning is
// unknown.
func (s *builder) finish(reason string) error {
	end, known := outcomes[reason]
	if !known {
		end.status = statusFailed
		s.response.Error = &responseError{
			"server_error",
			fmt.Sprintf("the provider ended the answer for the reason %q, which is not known", reason),
		}
	}
	if len(s.annotations) > 0 {
		s.flushAnnotations()
	}
	for i, g := range s.items {
		status := statusCompleted
		if i == len(s.items)-1 && end.status != statusCompleted {
			status = statusIncomplete
		}
		s.closeItem(g, status)
	}
	if !s.state.empty() {
		g := s.addItem(item{Type: itemReasoning, Summary: []part{}})
		g.done, g.Status = true, statusCompleted
		s.setState(g, &s.state)
		s.emit(event{Type: "response.output_item.done", OutputIndex: &g.index, Item: &g.item})
	}
	for _, g := range s.items {
		s.response.Output = append(s.response.Output, g.item)
	}
	switch s.response.Status = end.status; end.status {
	case statusCompleted:
		at := s.dialect.Now().Unix()
		s.response.CompletedAt = &at
	case statusIncomplete:
		s.response.IncompleteDetails = &incompleteDetails{end.reason}
	}
	s.emit(event{Type: "response." + end.status, Response: &s.response})
	return s.err
}

// emit appends an event to out.
func (s *builder) emit(e event) {
	if s.noEvents {
		return
	}
	e.Sequence = s.sequence
	s.sequence++
	if err := s.write(e.Type, &e); err != nil {
		s.err = errors.Join(s.err, err)
	}
}

func (s *builder) write(name string, e any) error {
	text, err := json.Marshal(e, encoding, json.Deterministic(true))
	if err != nil {
		return err
	}
	s.out = append(append(s.out, "event: "...), name...)
	s.out = append(append(s.out, "\ndata: "...), text...)
	s.out = append(s.out, "\n\n"...)
	return nil
}
