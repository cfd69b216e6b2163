package chat

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/scan"
)

// Assembler joins the chunks of a streamed answer into the answer that the provider would have sent without streaming.
// Strings are joined in their escaped form, so that a surrogate pair that was split between two chunks is valid again.
// The zero value is ready to use. It is for one stream and one goroutine.
//
// A null or an empty string replaces nothing. Of a member that has no rule for joining, the last value is kept; this
// includes unknown strings.
type Assembler struct {
	MaxBytes int // bound of the bytes that are kept; 0 means no bound
	size     int
	answer   object
	stack    []scan.Member // members of the objects that are being read; nested objects follow their parent
	err      error
}

// The errors of a stream that cannot be assembled.
var (
	ErrTooLong      = errors.New("is longer than what is kept")
	ErrIncompatible = errors.New("cannot be put together")
	ErrNoChoices    = errors.New("holds no choices")
)

// Add merges the next event: the JSON of a chunk, without the [DONE] at the end. After an error, all further calls
// return the same error and the chunks are dropped.
func (a *Assembler) Add(event []byte) error {
	if a.err != nil {
		return a.err
	}
	a.answer.kind = answerType
	if err := a.answer.add(a, event); err != nil {
		*a = Assembler{MaxBytes: a.MaxBytes, err: fmt.Errorf("the stream %w", err)}
	}
	return a.err
}

// Answer returns the answer assembled so far. It does not check whether the stream was complete.
func (a *Assembler) Answer() ([]byte, error) {
	if a.err != nil {
		return nil, a.err
	}
	if c := a.answer.find("choices"); c == nil || c.value == nil || len(c.value.(*indexedList).elements) == 0 {
		return nil, fmt.Errorf("the stream %w", ErrNoChoices)
	}
	text := jsontext.Value(a.answer.write(make([]byte, 0, a.size)))
	if err := text.Compact(jsontext.AllowInvalidUTF8(false)); err != nil {
		return nil, fmt.Errorf("the stream %w: %w", ErrIncompatible, err)
	}
	return text, nil
}

// memberOverhead estimates the memory of a member or an element beside its text.
const memberOverhead = 64

// maxMembers bounds the members of an object, which are searched linearly.
const maxMembers = 256

// grow counts n more bytes and fails beyond MaxBytes.
func (a *Assembler) grow(n int) error {
	if a.size += n; a.MaxBytes > 0 && a.size > a.MaxBytes {
		return ErrTooLong
	}
	return nil
}

// open reads the members of an object onto the stack; merge removes them.
func (a *Assembler) open(piece []byte) ([]scan.Member, error) {
	from := len(a.stack)
	members, err := scan.Object(piece, a.stack[from:from])
	if err != nil {
		return nil, fmt.Errorf("%w: a piece of it %w", ErrIncompatible, err)
	}
	a.stack = append(a.stack[:from], members...)
	return a.stack[from:], nil
}

// value is a JSON value that is assembled from chunks.
type value interface {
	add(a *Assembler, piece []byte) error // piece is not null
	write(to []byte) []byte
}

// constructor creates an empty value.
type constructor func() value

// objectType says how the members of an object are joined. A member that is not listed takes the last value.
type objectType struct {
	members  map[string]constructor
	renamed  map[string]string // new names of members; "" drops a member that only streams have
	omitNull map[string]bool   // members that are left out when they are null
	always   []member          // members that are written even if the stream has none
}

// The objects of a stream. Of the indexes only that of a choice is kept.
var (
	answerType = &objectType{
		members:  map[string]constructor{"choices": newIndexedList(choiceType), "error": newErrorValue},
		renamed:  map[string]string{"object": "", "obfuscation": ""},
		omitNull: map[string]bool{"usage": true, "error": true},
		always:   []member{{"object", &lastValue{[]byte(`"chat.completion"`)}}},
	}
	choiceType = &objectType{
		members: map[string]constructor{"message": newObject(messageType), "logprobs": newObject(logprobsType)},
		// some providers repeat the message so far beside the delta
		renamed: map[string]string{"index": "", "delta": "message", "message": ""},
		always:  []member{{"message", &object{kind: messageType}}, {"finish_reason", nil}},
	}
	messageType = &objectType{
		members: map[string]constructor{
			"content": newText, "reasoning_content": newText, "reasoning": newText, "refusal": newText,
			"tool_calls": newIndexedList(callType), "reasoning_details": newIndexedList(thoughtType),
			"annotations": newList, "images": newList,
			"function_call": newObject(functionType), "audio": newObject(audioType),
		},
		always: []member{{"role", &lastValue{[]byte(`"assistant"`)}}, {"content", nil}},
	}
	callType = &objectType{members: map[string]constructor{
		"function": newObject(functionType),
		"custom":   newObject(functionType),
	}, renamed: withoutIndex}
	functionType = &objectType{members: map[string]constructor{"arguments": newText, "input": newText}}
	thoughtType  = &objectType{members: map[string]constructor{
		"text": newText, "summary": newText,
		"signature": newText, "data": newText,
	}, renamed: withoutIndex}
	audioType    = &objectType{members: map[string]constructor{"data": newText, "transcript": newText}}
	logprobsType = &objectType{members: map[string]constructor{"content": newList, "refusal": newList}}
	withoutIndex = map[string]string{"index": ""}
)

// member is a name and its value; nil means null.
type member struct {
	name  string
	value value
}

func (m member) write(to []byte) []byte {
	to, _ = jsontext.AppendQuote(to, m.name) // it was read from valid UTF-8
	to = append(to, ':')
	if m.value == nil {
		return append(to, "null,"...)
	}
	return append(m.value.write(to), ',')
}

// object is joined member by member.
type object struct {
	kind    *objectType
	members []member
}

func newObject(k *objectType) constructor { return func() value { return &object{kind: k} } }

func (o *object) find(name string) *member {
	for i := range o.members {
		if o.members[i].name == name {
			return &o.members[i]
		}
	}
	return nil
}

func (o *object) add(a *Assembler, piece []byte) error {
	members, err := a.open(piece)
	if err != nil {
		return err
	}
	return o.merge(a, members)
}

func (o *object) merge(a *Assembler, pieces []scan.Member) error {
	for _, p := range pieces {
		name := p.Name
		if as, other := o.kind.renamed[name]; other {
			name = as
		}
		if name == "" {
			continue
		}
		if err := o.mergeMember(a, name, p.Value); err != nil {
			return err
		}
	}
	a.stack = a.stack[:len(a.stack)-len(pieces)]
	return nil
}

func (o *object) mergeMember(a *Assembler, name string, piece []byte) error {
	m := o.find(name)
	if m == nil {
		if err := a.grow(len(name) + memberOverhead); err != nil {
			return err
		}
		if len(o.members) == maxMembers {
			return fmt.Errorf("%w: it has more than %d members", ErrIncompatible, maxMembers)
		}
		o.members = append(o.members, member{name: name})
		m = &o.members[len(o.members)-1]
	}
	if string(piece) == "null" {
		return nil
	}
	if m.value == nil {
		if grow := o.kind.members[name]; grow != nil {
			m.value = grow()
		} else {
			m.value = &lastValue{}
		}
	}
	return m.value.add(a, piece)
}

func (o *object) write(to []byte) []byte { return o.writeMembers(append(to, '{')) }

// writeMembers writes the members, the missing ones that must be present, and the closing brace.
func (o *object) writeMembers(to []byte) []byte {
	for _, m := range o.members {
		if m.value != nil || !o.kind.omitNull[m.name] {
			to = m.write(to)
		}
	}
	for _, m := range o.kind.always {
		if o.find(m.name) == nil {
			to = m.write(to)
		}
	}
	return append(bytes.TrimSuffix(to, []byte(",")), '}')
}

// lastValue keeps the last value.
type lastValue struct{ text []byte }

func (l *lastValue) add(a *Assembler, piece []byte) error {
	if string(piece) == `""` && len(l.text) > 0 {
		return nil
	}
	more := max(0, len(piece)-len(l.text))
	l.text = append(l.text[:0], piece...)
	return a.grow(more)
}

func (l *lastValue) write(to []byte) []byte { return append(to, l.text...) }

// errorValue fails: an event is an error and not a chunk.
type errorValue struct{ lastValue }

func newErrorValue() value { return &errorValue{} }

func (*errorValue) add(*Assembler, []byte) error {
	return fmt.Errorf("%w: an event of it is an error", ErrIncompatible)
}

// concatenation is a string or a list that grows at its end. A value of another type cannot be joined with it.
type concatenation struct {
	delimiters string    // quotes or brackets
	text       []byte    // between the delimiters
	other      lastValue // a value of another type
}

func newText() value { return &concatenation{delimiters: `""`} }
func newList() value { return &concatenation{delimiters: `[]`} }

func (g *concatenation) add(a *Assembler, piece []byte) error {
	if piece[0] != g.delimiters[0] {
		if len(g.text)+len(g.other.text) > 0 {
			return fmt.Errorf("%w: its pieces are of different kinds", ErrIncompatible)
		}
		return g.other.add(a, piece)
	}
	more := piece[1 : len(piece)-1]
	if g.delimiters == "[]" {
		more = bytes.TrimSpace(more)
	}
	if len(more) == 0 {
		return nil
	}
	if len(g.other.text) > 0 {
		return fmt.Errorf("%w: its pieces are of different kinds", ErrIncompatible)
	}
	if g.delimiters == "[]" && len(g.text) > 0 {
		g.text = append(g.text, ',')
	}
	g.text = append(g.text, more...)
	return a.grow(len(more) + 1)
}

func (g *concatenation) write(to []byte) []byte {
	if len(g.other.text) > 0 {
		return g.other.write(to)
	}
	return append(append(append(to, g.delimiters[0]), g.text...), g.delimiters[1])
}

// indexedList is a list of objects that are joined by their index.
type indexedList struct {
	kind      *objectType
	elements  map[int64]*object
	lastIndex int64 // that a piece was for
	nextIndex int64 // beyond every index
	from      bytes.Buffer
	pieces    jsontext.Decoder
}

func newIndexedList(k *objectType) constructor {
	return func() value { return &indexedList{kind: k, elements: map[int64]*object{}} }
}

// lenient accepts what is checked later, when the complete answer is encoded.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func (r *indexedList) add(a *Assembler, piece []byte) error {
	r.from = *bytes.NewBuffer(piece)
	r.pieces.Reset(&r.from, lenient...)
	if t, err := r.pieces.ReadToken(); err != nil || t.Kind() != '[' {
		return fmt.Errorf("%w: a list is none", ErrIncompatible)
	}
	for r.pieces.PeekKind() != ']' {
		element, err := r.pieces.ReadValue()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrIncompatible, err)
		}
		if err := r.element(a, element); err != nil {
			return err
		}
	}
	return nil
}

func (r *indexedList) element(a *Assembler, piece []byte) error {
	members, err := a.open(piece)
	if err != nil {
		return err
	}
	if r.kind == choiceType && has(members, "message") && !has(members, "delta") {
		return fmt.Errorf("%w: it has a message in place of a delta", ErrIncompatible)
	}
	if r.lastIndex, err = r.indexOf(members); err != nil {
		return err
	}
	r.nextIndex = max(r.nextIndex, r.lastIndex+1)
	if r.elements[r.lastIndex] == nil {
		r.elements[r.lastIndex] = &object{kind: r.kind}
		if err := a.grow(memberOverhead); err != nil {
			return err
		}
	}
	return r.elements[r.lastIndex].merge(a, members)
}

// indexOf returns the index of a chunk's element. An element without an index continues the last one, unless it has
// another id or type.
func (r *indexedList) indexOf(piece []scan.Member) (int64, error) {
	for _, m := range piece {
		if m.Name == "index" && string(m.Value) != "null" {
			i, err := strconv.ParseInt(string(m.Value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%w: an index is no number", ErrIncompatible)
			}
			return i, nil
		}
	}
	if last := r.elements[r.lastIndex]; last != nil && last.differs(piece) {
		return r.nextIndex, nil
	}
	return r.lastIndex, nil
}

func has(piece []scan.Member, name string) bool {
	return slices.ContainsFunc(piece, func(m scan.Member) bool { return m.Name == name && string(m.Value) != "null" })
}

func (o *object) differs(piece []scan.Member) bool {
	for _, p := range piece {
		if p.Name != "id" && p.Name != "type" || string(p.Value) == "null" || string(p.Value) == `""` {
			continue
		}
		if m := o.find(p.Name); m != nil && m.value != nil && !bytes.Equal(m.value.write(nil), p.Value) {
			return true
		}
	}
	return false
}

func (r *indexedList) write(to []byte) []byte {
	to = append(to, '[')
	for n, i := range slices.Sorted(maps.Keys(r.elements)) {
		if n > 0 {
			to = append(to, ',')
		}
		to = append(to, '{')
		if r.kind == choiceType {
			to = append(strconv.AppendInt(append(to, `"index":`...), i, 10), ',')
		}
		to = r.elements[i].writeMembers(to)
	}
	return append(to, ']')
}
