package responses

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/chat"
)

// A speech is an answer that grows. Whole answers and streams go through it alike; a stream's events are in line in out.
type speech struct {
	bridge   Bridge
	from     string // the provider, if its wire is OpenAI's
	response response
	out      []byte
	quiet    bool // nobody wants events
	begun    bool
	sequence int
	err      error // of writing, the first

	items []*growing
	open  *growing         // the message or the reasoning that is being said
	calls map[int]*growing // by the index that chat gives them
	last  int              // index of a call
	known map[string]bool  // the ids of calls
	kept  sealed           // what comes with the message, and with calls
	cited []jsontext.Value // annotations of a text that has not come yet
}

// A growing item is not said to its end yet.
type growing struct {
	item
	index    int
	kind     string // of the part that is being said; empty between parts
	text     strings.Builder
	cited    []jsontext.Value // annotations of that part
	thoughts []chat.Thought
	content  bool   // the provider calls the text of its thoughts reasoning_content
	wire     string // a call's id at the provider, which may have none
	done     bool
}

// A delta is what a chunk adds to the message, or what a whole message says.
type delta struct {
	Content          *string         `json:"content"`
	Refusal          *string         `json:"refusal"`
	ReasoningContent *string         `json:"reasoning_content"`
	Reasoning        jsontext.Value  `json:"reasoning"` // how some providers call it
	ReasoningDetails []chat.Thought  `json:"reasoning_details"`
	ToolCalls        []chat.ToolCall `json:"tool_calls"`
	ExtraContent     *chat.Extra     `json:"extra_content"`
	FunctionCall     jsontext.Value  `json:"function_call"`
	Audio            jsontext.Value  `json:"audio"`
	Images           jsontext.Value  `json:"images"`
	Annotations      []annotation    `json:"annotations"`
}

// What an answer says that was not asked for, and that a response cannot say.
var (
	errFunctionCall = errors.New("the answer calls a function in the old way")
	errAudio        = errors.New("the answer is a sound")
	errImages       = errors.New("the answer has images")
	errToolCall     = errors.New("the answer calls a tool that is no function with a name")
	errChoice       = errors.New("the answer has more than one choice, or none")
)

// start says that the answer has begun, once.
func (s *speech) start(model string) {
	if s.begun {
		return
	}
	s.begun = true
	if model != "" {
		s.response.Model = model
	}
	s.emit(event{Type: "response.created", Response: &s.response})
	s.emit(event{Type: "response.in_progress", Response: &s.response})
}

// add says what a delta says.
func (s *speech) add(d *delta) error {
	switch {
	case there(d.FunctionCall):
		return errFunctionCall
	case there(d.Audio):
		return errAudio
	case there(d.Images) && string(d.Images) != "[]":
		return errImages
	}
	thought := text(d.ReasoningContent)
	if d.ReasoningContent == nil {
		thought, _ = plain(d.Reasoning)
	}
	if len(d.ReasoningDetails) > 0 || thought != "" {
		g := s.talk(reasoning)
		g.thoughts = think(g.thoughts, d.ReasoningDetails)
		g.content = g.content || s.from != "" && text(d.ReasoningContent) != ""
		s.say(g, summaryText, thought)
	}
	if said := text(d.Content); said != "" {
		s.say(s.talk(message), outputText, said)
	}
	for _, a := range d.Annotations {
		s.cited = append(s.cited, a.Value)
	}
	if s.open != nil && s.open.kind == outputText {
		s.cite()
	}
	if said := text(d.Refusal); said != "" {
		s.say(s.talk(message), refusal, said)
	}
	for i := range d.ToolCalls {
		if err := s.call(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	if signature := d.ExtraContent.Signature(); signature != "" {
		s.kept.Signature = signature
	}
	return s.err
}

// begin opens an item.
func (s *speech) begin(i item) *growing {
	i.ID, i.Status = s.bridge.New(prefixes[i.Type]), inProgress
	g := &growing{item: i, index: len(s.items)}
	s.items = append(s.items, g)
	s.emit(event{Type: "response.output_item.added", OutputIndex: &g.index, Item: &g.item})
	return g
}

// talk is the open message or reasoning. One ends when the other begins.
func (s *speech) talk(kind string) *growing {
	if s.open != nil && s.open.Type == kind {
		return s.open
	}
	s.shut(s.open, completed)
	i := item{Type: kind}
	if kind == message {
		i.Role, i.Content = chat.Assistant, []part{}
	} else {
		i.Summary = []part{}
	}
	s.open = s.begin(i)
	return s.open
}

// say adds text to an item's part of a kind.
func (s *speech) say(g *growing, kind, more string) {
	if more == "" {
		return
	}
	s.beginPart(g, kind)
	g.text.WriteString(more)
	e := g.event(partNames[kind].delta)
	e.Delta = &more
	s.emit(e)
}

// beginPart opens a part of a kind, if none is open.
func (s *speech) beginPart(g *growing, kind string) {
	if g.kind == kind {
		return
	}
	s.endPart(g)
	empty := partOf(kind, "")
	added := g.event(partNames[kind].added)
	added.Part, g.kind = &empty, kind
	s.emit(added)
}

// call takes a piece of a tool call. Calls of several indices grow side by side, and stay open to the end.
func (s *speech) call(c *chat.ToolCall) error {
	if c.Type != "" && c.Type != "function" {
		return errToolCall
	}
	index := s.last
	if c.Index != nil {
		index = *c.Index
	} else if c.Function.Name != "" {
		index = s.last + 1
	}
	g := s.calls[index]
	if g == nil || c.Function.Name != "" && c.ID != "" && c.ID != g.wire { // some providers give every call the same index
		if c.Function.Name == "" {
			return errToolCall
		}
		s.shut(s.open, completed)
		s.open = nil
		g = s.begin(item{Type: functionCall, CallID: s.callID(c.ID), Name: c.Function.Name, Arguments: new(string)})
		g.wire, s.calls[index] = c.ID, g
	}
	s.last = index
	s.kept.sign(g.CallID, c.ExtraContent)
	if more := c.Function.Arguments; more != "" {
		g.text.WriteString(more)
		e := g.event("response.function_call_arguments.delta")
		e.Delta = &more
		s.emit(e)
	}
	return nil
}

// callID is the id that the provider gave a call. Clients tell calls by their ids: one that is missing, or is there
// twice, is made.
func (s *speech) callID(id string) string {
	if id == "" || s.known[id] {
		id = s.bridge.New("call")
	}
	s.known[id] = true
	return id
}

// endPart closes the part that is being said.
func (s *speech) endPart(g *growing) {
	if g.kind == "" {
		return
	}
	whole := partOf(g.kind, g.text.String())
	whole.Annotations = append(whole.Annotations, g.cited...)
	said, done := g.event(partNames[g.kind].said), g.event(partNames[g.kind].done)
	said.Text, said.Refusal = whole.Text, whole.Refusal
	done.Part = &whole
	s.emit(said)
	s.emit(done)
	if g.kind == summaryText {
		g.Summary = append(g.Summary, whole)
	} else {
		g.Content = append(g.Content, whole)
	}
	g.kind, g.cited = "", nil
	g.text.Reset()
}

// shut closes an item.
func (s *speech) shut(g *growing, status string) {
	if g == nil || g.done {
		return
	}
	s.endPart(g)
	g.done, g.Status = true, status
	switch g.Type {
	case functionCall:
		arguments := g.text.String()
		g.Arguments = &arguments
		e := g.event("response.function_call_arguments.done")
		e.Name, e.Arguments = g.Name, &arguments
		s.emit(e)
	case reasoning:
		s.encrypt(g, &sealed{Thoughts: whole(g.thoughts), Content: g.content})
	}
	s.emit(event{Type: "response.output_item.done", OutputIndex: &g.index, Item: &g.item})
}

func (s *speech) encrypt(g *growing, kept *sealed) {
	var err error
	kept.From = s.from
	if g.Encrypted, err = kept.encode(); err != nil {
		s.err = errors.Join(s.err, err)
	}
}

// An ending is what a finish reason makes of a response.
type ending struct {
	status, reason string
}

var endings = map[string]ending{
	chat.Stop: {status: completed}, chat.ToolCalls: {status: completed},
	chat.Length: {isIncomplete, "max_output_tokens"}, chat.ContentFilter: {isIncomplete, "content_filter"},
}

// finish closes what is open, and ends the response as chat's reason says. A reason that nobody knows is a failure: what
// it means for the answer cannot be told.
func (s *speech) finish(reason string) error {
	end, known := endings[reason]
	if !known {
		end.status = failed
		s.response.Error = &failure{"server_error", fmt.Sprintf("the provider ended the answer for the reason %q, which is not known", reason)}
	}
	if len(s.cited) > 0 {
		s.cite()
	}
	for i, g := range s.items {
		status := completed
		if i == len(s.items)-1 && end.status != completed {
			status = isIncomplete
		}
		s.shut(g, status)
	}
	if !s.kept.empty() {
		g := s.begin(item{Type: reasoning, Summary: []part{}})
		g.done, g.Status = true, completed
		s.encrypt(g, &s.kept)
		s.emit(event{Type: "response.output_item.done", OutputIndex: &g.index, Item: &g.item})
	}
	for _, g := range s.items {
		s.response.Output = append(s.response.Output, g.item)
	}
	switch s.response.Status = end.status; end.status {
	case completed:
		at := s.bridge.Now().Unix()
		s.response.CompletedAt = &at
	case isIncomplete:
		s.response.IncompleteDetails = &incomplete{end.reason}
	}
	s.emit(event{Type: "response." + end.status, Response: &s.response})
	return s.err
}

// emit puts an event in line.
func (s *speech) emit(e event) {
	if s.quiet {
		return
	}
	e.Sequence = s.sequence
	s.sequence++
	if err := s.write(e.Type, &e); err != nil {
		s.err = errors.Join(s.err, err)
	}
}

func (s *speech) write(name string, e any) error {
	text, err := json.Marshal(e, written, json.Deterministic(true))
	if err != nil {
		return err
	}
	s.out = append(append(s.out, "event: "...), name...)
	s.out = append(append(s.out, "\ndata: "...), text...)
	s.out = append(s.out, "\n\n"...)
	return nil
}
