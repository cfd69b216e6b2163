package chat

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/scan"
)

// Replay is a whole answer as a stream in OpenAI's framing, for a caller who asked for one: the way back from what an
// Assembly does. The usage is there when the caller asked for it. Calls and thoughts get the index of their place.
func Replay(whole []byte, usage bool) ([]byte, error) {
	compact := jsontext.Value(bytes.Clone(whole)) // so that no line ends inside an event
	if err := compact.Compact(); err != nil {
		return nil, fmt.Errorf("the answer %w: %w", scan.ErrSyntax, err)
	}
	top, err := read(compact)
	if err != nil {
		return nil, fmt.Errorf("the answer %w", err)
	}
	if failed := top.get("error"); failed != nil && string(failed) != "null" {
		return nil, fmt.Errorf("the answer %w: it is an error", ErrNone)
	}
	r := replay{most: 16*len(compact) + 1<<20, tail: "]}\n\n"}
	for _, name := range everywhere {
		if v := top.get(name); v != nil {
			r.head += `"` + name + `":` + string(v) + ","
		}
	}
	r.head += `"object":"chat.completion.chunk",`
	r.once = string(top.without(append([]string{"object", "choices", "usage", "error"}, everywhere...)...))
	if usage {
		r.tail = "],\"usage\":null}\n\n"
	}
	choices, err := elements(top.get("choices"))
	if err != nil || len(choices) == 0 {
		return nil, fmt.Errorf("the answer %w", ErrNone)
	}
	for i, c := range choices {
		if err := r.choice(i, c); err != nil {
			return nil, fmt.Errorf("choice %d of the answer %w", i, err)
		}
	}
	if used := top.get("usage"); usage && used != nil && string(used) != "null" {
		r.tail = "],\"usage\":" + string(used) + "}\n\n"
		r.event("")
	}
	if len(r.out) > r.most {
		return nil, fmt.Errorf("the answer %w", ErrTooLong)
	}
	return append(r.out, "data: [DONE]\n\n"...), nil
}

// everywhere are the members of an answer that every event has. The others are in the first.
var everywhere = []string{"id", "created", "model", "system_fingerprint", "service_tier"}

// fields are the members of a compact object.
type fields struct {
	text    []byte
	members []scan.Member
}

func read(text []byte) (fields, error) {
	members, err := scan.Object(text, nil)
	return fields{text, members}, err
}

func (f fields) get(name string) []byte {
	for _, m := range f.members {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// without writes the other members, each with a comma behind it.
func (f fields) without(names ...string) (text []byte) {
	for _, m := range f.members {
		if !slices.Contains(names, m.Name) {
			text = append(append(text, f.text[m.Start:m.End]...), ',')
		}
	}
	return text
}

func elements(array []byte) (all []jsontext.Value, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(array), lax...)
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return nil, fmt.Errorf("%w: a list is none", ErrPieces)
	}
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPieces, err)
		}
		all = append(all, v.Clone())
	}
	return all, nil
}

// A replay is a stream that is being written.
type replay struct {
	out        []byte
	most       int    // bytes of it: an answer of very many parts is not blown up
	head, once string // of every event, and of the first
	tail       string // from the end of its choice on
}

func (r *replay) event(choice string) {
	if len(r.out) <= r.most {
		r.out = append(r.out, "data: {"+r.head+r.once+`"choices":[`+choice+r.tail...)
	}
	r.once = ""
}

// A turn is a choice that is being written.
type turn struct {
	*replay
	index    string
	message  fields
	logprobs []byte // as a member, until they are told
}

// say writes an event. Members have a comma behind each.
func (t *turn) say(delta, beside []byte, finish string) {
	t.event(`{"index":` + t.index + `,"delta":{` + string(bytes.TrimSuffix(delta, []byte(","))) + "}," + string(beside) + `"finish_reason":` + finish + "}")
}

func (r *replay) choice(i int, text []byte) error {
	choice, err := read(text)
	if err != nil {
		return err
	}
	t := &turn{replay: r, index: strconv.Itoa(i)}
	if index := choice.get("index"); index != nil && string(index) != "null" {
		t.index = string(index)
	}
	if t.message, err = read(choice.get("message")); err != nil {
		return fmt.Errorf("has a message that %w", err)
	}
	if told := choice.get("logprobs"); told != nil {
		t.logprobs = []byte(`"logprobs":` + string(told) + ",")
	}
	if err := t.speak(); err != nil {
		return err
	}
	finish := "null"
	if told := choice.get("finish_reason"); told != nil {
		finish = string(told)
	}
	t.say(nil, append(t.logprobs, choice.without("index", "message", "delta", "logprobs", "finish_reason")...), finish)
	return nil
}

// spoken are the members of a message that have events of their own, in the order of these, when they are texts or lists
// that hold something.
var spoken = []struct {
	name string
	mark byte
	tell func(*turn, string, []byte) error
}{
	{"reasoning_details", '[', (*turn).list},
	{"reasoning_content", '"', (*turn).text},
	{"reasoning", '"', (*turn).text},
	{"content", '"', (*turn).text},
	{"refusal", '"', (*turn).text},
	{"tool_calls", '[', (*turn).list},
}

// speak writes the first event, with the role and all that has no event of its own, and then the others.
func (t *turn) speak() error {
	var later []string
	for _, s := range spoken {
		if v := t.message.get(s.name); len(v) > 2 && v[0] == s.mark {
			later = append(later, s.name)
		}
	}
	var first []byte
	if t.message.get("role") == nil {
		first = []byte(`"role":"assistant",`)
	}
	first = append(first, t.message.without(later...)...)
	if slices.Contains(later, "content") {
		first = append(first, `"content":"",`...)
	}
	t.say(first, nil, "null")
	for _, s := range spoken {
		if !slices.Contains(later, s.name) {
			continue
		}
		if err := s.tell(t, s.name, t.message.get(s.name)); err != nil {
			return err
		}
	}
	return nil
}

func (t *turn) text(name string, value []byte) error {
	var beside []byte
	if name == "content" || name == "refusal" { // tokens of what is heard
		beside, t.logprobs = t.logprobs, nil
	}
	t.say([]byte(`"`+name+`":`+string(value)), beside, "null")
	return nil
}

// list writes elements, each with its index, and the arguments of a call after the call.
func (t *turn) list(name string, value []byte) error {
	all, err := elements(value)
	if err != nil {
		return err
	}
	for i, element := range all {
		f, err := read(element)
		if err != nil {
			return fmt.Errorf("has an element of %s that %w", name, err)
		}
		begin, rest := `"`+name+`":[{"index":`+strconv.Itoa(i)+",", f.without("index")
		called, arguments := call(f)
		if arguments != nil {
			rest = append(f.without("index", "function"), called...)
		}
		t.say(append(bytes.TrimSuffix([]byte(begin+string(rest)), []byte(",")), "}]"...), nil, "null")
		if arguments != nil {
			t.say([]byte(begin+`"function":{"arguments":`+string(arguments)+"}}]"), nil, "null")
		}
	}
	return nil
}

// call is a call's function before its arguments, and these; nil when it has none that could come later.
func call(f fields) (function, arguments []byte) {
	called, err := read(f.get("function"))
	if a := called.get("arguments"); err == nil && len(a) > 2 && a[0] == '"' {
		return []byte(`"function":{` + string(called.without("arguments")) + `"arguments":""}`), a
	}
	return nil, nil
}
