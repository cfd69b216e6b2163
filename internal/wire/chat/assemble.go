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

// An Assembly puts the events of a streamed answer together again: the whole is what the provider would have answered
// unstreamed. Texts are joined as they were written, escapes and all, so that even a character that was cut in two is one
// again. The zero value is ready, and keeps at most Most bytes, if Most is set. It is for one stream, and one goroutine.
//
// What is null or an empty text replaces nothing; of anything else that nobody knows how to join, the last piece counts,
// and that includes unknown texts.
type Assembly struct {
	Most  int
	kept  int
	whole object
	stack []scan.Member // of the objects that are being read, one inside another
	err   error
}

// The ways in which events are no answer.
var (
	ErrTooLong = errors.New("is longer than what is kept")
	ErrPieces  = errors.New("cannot be put together")
	ErrNone    = errors.New("holds no choices")
)

// Add takes the next event: the JSON text of a chunk, and not the [DONE] at the end. After an error there is no whole any
// more, and nothing is kept.
func (a *Assembly) Add(event []byte) error {
	if a.err != nil {
		return a.err
	}
	a.whole.kind = wholes
	if err := a.whole.add(a, event); err != nil {
		*a = Assembly{Most: a.Most, err: fmt.Errorf("the stream %w", err)}
	}
	return a.err
}

// Whole is the answer as far as it has come. Whether it is complete, the stream says and not the Assembly.
func (a *Assembly) Whole() ([]byte, error) {
	if a.err != nil {
		return nil, a.err
	}
	if c := a.whole.find("choices"); c == nil || c.value == nil || len(c.value.(*rows).all) == 0 {
		return nil, fmt.Errorf("the stream %w", ErrNone)
	}
	text := jsontext.Value(a.whole.write(make([]byte, 0, a.kept)))
	if err := text.Compact(jsontext.AllowInvalidUTF8(false)); err != nil {
		return nil, fmt.Errorf("the stream %w: %w", ErrPieces, err)
	}
	return text, nil
}

// cost is about what a member or an element takes beside its text.
const cost = 64

// maxMembers bounds the search for one.
const maxMembers = 256

// keep counts what is kept.
func (a *Assembly) keep(n int) error {
	if a.kept += n; a.Most > 0 && a.kept > a.Most {
		return ErrTooLong
	}
	return nil
}

// open reads the members of an object; take closes it.
func (a *Assembly) open(piece []byte) ([]scan.Member, error) {
	from := len(a.stack)
	members, err := scan.Object(piece, a.stack[from:from])
	if err != nil {
		return nil, fmt.Errorf("%w: a piece of it %w", ErrPieces, err)
	}
	a.stack = append(a.stack[:from], members...)
	return a.stack[from:], nil
}

// A part is a value that is put together from pieces.
type part interface {
	add(a *Assembly, piece []byte) error // one that is not null
	write(to []byte) []byte
}

// A making makes an empty part.
type making func() part

// A kind of object says how its members grow. What is not named is replaced by every piece.
type kind struct {
	grow  map[string]making
	as    map[string]string // what a member is called in the whole; "" is for what only streams have
	bare  map[string]bool   // members that are left out rather than null
	fixed []member          // what every whole has, be it in the stream or not
}

// The kinds of objects in a stream. An index is for streams, and of a choice.
var (
	wholes = &kind{
		grow:  map[string]making{"choices": row(choices), "error": refused},
		as:    map[string]string{"object": "", "obfuscation": ""},
		bare:  map[string]bool{"usage": true, "error": true},
		fixed: []member{{"object", &latest{[]byte(`"chat.completion"`)}}},
	}
	choices = &kind{
		grow:  map[string]making{"message": one(messages), "logprobs": one(logprobs)},
		as:    map[string]string{"index": "", "delta": "message", "message": ""}, // some repeat the message so far beside the delta
		fixed: []member{{"message", &object{kind: messages}}, {"finish_reason", nil}},
	}
	messages = &kind{
		grow: map[string]making{
			"content": text, "reasoning_content": text, "reasoning": text, "refusal": text,
			"tool_calls": row(calls), "reasoning_details": row(thoughts), "annotations": list, "images": list,
			"function_call": one(functions), "audio": one(sounds),
		},
		fixed: []member{{"role", &latest{[]byte(`"assistant"`)}}, {"content", nil}},
	}
	calls     = &kind{grow: map[string]making{"function": one(functions), "custom": one(functions)}, as: unplaced}
	functions = &kind{grow: map[string]making{"arguments": text, "input": text}}
	thoughts  = &kind{grow: map[string]making{"text": text, "summary": text, "signature": text, "data": text}, as: unplaced}
	sounds    = &kind{grow: map[string]making{"data": text, "transcript": text}}
	logprobs  = &kind{grow: map[string]making{"content": list, "refusal": list}}
	unplaced  = map[string]string{"index": ""}
)

// A member is a name and its value; nil is null.
type member struct {
	name  string
	value part
}

func (m member) write(to []byte) []byte {
	to, _ = jsontext.AppendQuote(to, m.name) // it was read from UTF-8
	to = append(to, ':')
	if m.value == nil {
		return append(to, "null,"...)
	}
	return append(m.value.write(to), ',')
}

// An object grows member by member.
type object struct {
	kind    *kind
	members []member
}

func one(k *kind) making { return func() part { return &object{kind: k} } }

func (o *object) find(name string) *member {
	for i := range o.members {
		if o.members[i].name == name {
			return &o.members[i]
		}
	}
	return nil
}

func (o *object) add(a *Assembly, piece []byte) error {
	members, err := a.open(piece)
	if err != nil {
		return err
	}
	return o.take(a, members)
}

func (o *object) take(a *Assembly, pieces []scan.Member) error {
	for _, p := range pieces {
		name := p.Name
		if as, other := o.kind.as[name]; other {
			name = as
		}
		if name == "" {
			continue
		}
		if err := o.member(a, name, p.Value); err != nil {
			return err
		}
	}
	a.stack = a.stack[:len(a.stack)-len(pieces)]
	return nil
}

func (o *object) member(a *Assembly, name string, piece []byte) error {
	m := o.find(name)
	if m == nil {
		if err := a.keep(len(name) + cost); err != nil {
			return err
		}
		if len(o.members) == maxMembers {
			return fmt.Errorf("%w: it has more than %d members", ErrPieces, maxMembers)
		}
		o.members = append(o.members, member{name: name})
		m = &o.members[len(o.members)-1]
	}
	if string(piece) == "null" {
		return nil
	}
	if m.value == nil {
		if grow := o.kind.grow[name]; grow != nil {
			m.value = grow()
		} else {
			m.value = &latest{}
		}
	}
	return m.value.add(a, piece)
}

func (o *object) write(to []byte) []byte { return o.rest(append(to, '{')) }

// rest writes the members, with those that are missing and must not be, and the end.
func (o *object) rest(to []byte) []byte {
	for _, m := range o.members {
		if m.value != nil || !o.kind.bare[m.name] {
			to = m.write(to)
		}
	}
	for _, m := range o.kind.fixed {
		if o.find(m.name) == nil {
			to = m.write(to)
		}
	}
	return append(bytes.TrimSuffix(to, []byte(",")), '}')
}

// The latest piece is the value.
type latest struct{ text []byte }

func (l *latest) add(a *Assembly, piece []byte) error {
	if string(piece) == `""` && len(l.text) > 0 {
		return nil
	}
	more := max(0, len(piece)-len(l.text))
	l.text = append(l.text[:0], piece...)
	return a.keep(more)
}

func (l *latest) write(to []byte) []byte { return append(to, l.text...) }

// An alarm is an error where an answer should be.
type alarm struct{ latest }

func refused() part { return &alarm{} }

func (*alarm) add(*Assembly, []byte) error {
	return fmt.Errorf("%w: an event of it is an error", ErrPieces)
}

// A text or a list grows at its end. A value of another kind stands alone, and cannot grow.
type growing struct {
	marks string // that it stands between
	text  []byte // between its marks
	other latest
}

func text() part { return &growing{marks: `""`} }
func list() part { return &growing{marks: `[]`} }

func (g *growing) add(a *Assembly, piece []byte) error {
	if piece[0] != g.marks[0] {
		if len(g.text)+len(g.other.text) > 0 {
			return fmt.Errorf("%w: its pieces are of different kinds", ErrPieces)
		}
		return g.other.add(a, piece)
	}
	more := piece[1 : len(piece)-1]
	if g.marks == "[]" {
		more = bytes.TrimSpace(more)
	}
	if len(more) == 0 {
		return nil
	}
	if len(g.other.text) > 0 {
		return fmt.Errorf("%w: its pieces are of different kinds", ErrPieces)
	}
	if g.marks == "[]" && len(g.text) > 0 {
		g.text = append(g.text, ',')
	}
	g.text = append(g.text, more...)
	return a.keep(len(more) + 1)
}

func (g *growing) write(to []byte) []byte {
	if len(g.other.text) > 0 {
		return g.other.write(to)
	}
	return append(append(append(to, g.marks[0]), g.text...), g.marks[1])
}

// Rows are objects by their index.
type rows struct {
	kind   *kind
	all    map[int64]*object
	last   int64 // that a piece was for
	end    int64 // beyond every index
	from   bytes.Buffer
	pieces jsontext.Decoder
}

func row(k *kind) making { return func() part { return &rows{kind: k, all: map[int64]*object{}} } }

// lax: what lies deep inside is looked at when all is put together.
var lax = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func (r *rows) add(a *Assembly, piece []byte) error {
	r.from = *bytes.NewBuffer(piece)
	r.pieces.Reset(&r.from, lax...)
	if t, err := r.pieces.ReadToken(); err != nil || t.Kind() != '[' {
		return fmt.Errorf("%w: a list is none", ErrPieces)
	}
	for r.pieces.PeekKind() != ']' {
		element, err := r.pieces.ReadValue()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrPieces, err)
		}
		if err := r.element(a, element); err != nil {
			return err
		}
	}
	return nil
}

func (r *rows) element(a *Assembly, piece []byte) error {
	members, err := a.open(piece)
	if err != nil {
		return err
	}
	if r.kind == choices && has(members, "message") && !has(members, "delta") {
		return fmt.Errorf("%w: it has a message in place of a delta", ErrPieces)
	}
	if r.last, err = r.place(members); err != nil {
		return err
	}
	r.end = max(r.end, r.last+1)
	if r.all[r.last] == nil {
		r.all[r.last] = &object{kind: r.kind}
		if err := a.keep(cost); err != nil {
			return err
		}
	}
	return r.all[r.last].take(a, members)
}

// place is the index of a piece. One that names none goes on with the last, unless it has another id or type.
func (r *rows) place(piece []scan.Member) (int64, error) {
	for _, m := range piece {
		if m.Name == "index" && string(m.Value) != "null" {
			i, err := strconv.ParseInt(string(m.Value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%w: an index is no number", ErrPieces)
			}
			return i, nil
		}
	}
	if last := r.all[r.last]; last != nil && last.differs(piece) {
		return r.end, nil
	}
	return r.last, nil
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

func (r *rows) write(to []byte) []byte {
	to = append(to, '[')
	for n, i := range slices.Sorted(maps.Keys(r.all)) {
		if n > 0 {
			to = append(to, ',')
		}
		to = append(to, '{')
		if r.kind == choices {
			to = append(strconv.AppendInt(append(to, `"index":`...), i, 10), ',')
		}
		to = r.all[i].rest(to)
	}
	return append(to, ']')
}
