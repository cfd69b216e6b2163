package chat

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/scan"
)

// Replay converts a complete answer into a stream in OpenAI's framing, for a caller that asked for one. It is the
// reverse of Assembler. usage says whether the caller asked for the usage. Tool calls and thoughts get their position
// as index.
func Replay(whole []byte, usage bool) ([]byte, error) {
	compact := jsontext.Value(bytes.Clone(whole)) // an event must not contain a line break
	if err := compact.Compact(); err != nil {
		return nil, fmt.Errorf("the answer %w: %w", scan.ErrSyntax, err)
	}
	top, err := readFields(compact)
	if err != nil {
		return nil, fmt.Errorf("the answer %w", err)
	}
	if failed := top.get("error"); failed != nil && string(failed) != "null" {
		return nil, fmt.Errorf("the answer %w: it is an error", ErrNoChoices)
	}
	r := replay{maxBytes: 16*len(compact) + 1<<20, tail: "]}\n\n"}
	for _, name := range commonMembers {
		if v := top.get(name); v != nil {
			r.head += `"` + name + `":` + string(v) + ","
		}
	}
	r.head += `"object":"chat.completion.chunk",`
	r.firstOnly = string(top.without(append([]string{"object", "choices", "usage", "error"}, commonMembers...)...))
	if usage {
		r.tail = "],\"usage\":null}\n\n"
	}
	choices, err := elements(top.get("choices"))
	if err != nil || len(choices) == 0 {
		return nil, fmt.Errorf("the answer %w", ErrNoChoices)
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
	if len(r.out) > r.maxBytes {
		return nil, fmt.Errorf("the answer %w", ErrTooLong)
	}
	return append(r.out, "data: [DONE]\n\n"...), nil
}

// commonMembers are the members that every chunk repeats. All others are in the first chunk only.
var commonMembers = []string{"id", "created", "model", "system_fingerprint", "service_tier"}

// fields are the members of a compact object.
type fields struct {
	text    []byte
	members []scan.Member
}

func readFields(text []byte) (fields, error) {
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

// without returns the members except names, each followed by a comma.
func (f fields) without(names ...string) (text []byte) {
	for _, m := range f.members {
		if !slices.Contains(names, m.Name) {
			text = append(append(text, f.text[m.Start:m.End]...), ',')
		}
	}
	return text
}

func elements(array []byte) (all []jsontext.Value, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(array), lenient...)
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return nil, fmt.Errorf("%w: a list is none", ErrIncompatible)
	}
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIncompatible, err)
		}
		all = append(all, v.Clone())
	}
	return all, nil
}

// replay is a stream that is being written.
type replay struct {
	out             []byte
	maxBytes        int    // bounds the output, which repeats the head for every part of the answer
	head, firstOnly string // members of every chunk, and of the first one
	tail            string // what follows the choice in a chunk
}

func (r *replay) event(choice string) {
	if len(r.out) <= r.maxBytes {
		r.out = append(r.out, "data: {"+r.head+r.firstOnly+`"choices":[`+choice+r.tail...)
	}
	r.firstOnly = ""
}

// choiceReplay is a choice that is being written.
type choiceReplay struct {
	*replay
	index    string
	message  fields
	logprobs []byte // member that is still to be written
}

// chunk writes one chunk. delta and beside are members, each followed by a comma.
func (t *choiceReplay) chunk(delta, beside []byte, finish string) {
	t.event(`{"index":` + t.index + `,"delta":{` + string(bytes.TrimSuffix(delta, []byte(","))) + "}," +
		string(beside) + `"finish_reason":` + finish + "}")
}

func (r *replay) choice(i int, text []byte) error {
	choice, err := readFields(text)
	if err != nil {
		return err
	}
	t := &choiceReplay{replay: r, index: strconv.Itoa(i)}
	if index := choice.get("index"); index != nil && string(index) != "null" {
		t.index = string(index)
	}
	if t.message, err = readFields(choice.get("message")); err != nil {
		return fmt.Errorf("has a message that %w", err)
	}
	if value := choice.get("logprobs"); value != nil {
		t.logprobs = []byte(`"logprobs":` + string(value) + ",")
	}
	if err := t.messageChunks(); err != nil {
		return err
	}
	finish := "null"
	if value := choice.get("finish_reason"); value != nil {
		finish = string(value)
	}
	t.chunk(
		nil, append(t.logprobs, choice.without("index", "message", "delta", "logprobs", "finish_reason")...), finish,
	)
	return nil
}

// streamedMembers are the members of a message that get chunks of their own, in this order, if they are non-empty
// strings or lists.
var streamedMembers = []struct {
	name  string
	mark  byte
	write func(*choiceReplay, string, []byte) error
}{
	{"reasoning_details", '[', (*choiceReplay).listChunks},
	{"reasoning_content", '"', (*choiceReplay).textChunk},
	{"reasoning", '"', (*choiceReplay).textChunk},
	{"content", '"', (*choiceReplay).textChunk},
	{"refusal", '"', (*choiceReplay).textChunk},
	{"tool_calls", '[', (*choiceReplay).listChunks},
}

// messageChunks writes the first chunk, with the role and all members that have no chunk of their own, and then the
// others.
func (t *choiceReplay) messageChunks() error {
	var later []string
	for _, streamed := range streamedMembers {
		if v := t.message.get(streamed.name); len(v) > 2 && v[0] == streamed.mark {
			later = append(later, streamed.name)
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
	t.chunk(first, nil, "null")
	for _, streamed := range streamedMembers {
		if !slices.Contains(later, streamed.name) {
			continue
		}
		if err := streamed.write(t, streamed.name, t.message.get(streamed.name)); err != nil {
			return err
		}
	}
	return nil
}

func (t *choiceReplay) textChunk(name string, value []byte) error {
	var beside []byte
	if name == "content" || name == "refusal" { // logprobs are those of the visible text
		beside, t.logprobs = t.logprobs, nil
	}
	t.chunk([]byte(`"`+name+`":`+string(value)), beside, "null")
	return nil
}

// listChunks writes the elements with their index, and the arguments of a tool call in a chunk of their own.
func (t *choiceReplay) listChunks(name string, value []byte) error {
	all, err := elements(value)
	if err != nil {
		return err
	}
	for i, element := range all {
		f, err := readFields(element)
		if err != nil {
			return fmt.Errorf("has an element of %s that %w", name, err)
		}
		begin, rest := `"`+name+`":[{"index":`+strconv.Itoa(i)+",", f.without("index")
		called, arguments := splitCall(f)
		if arguments != nil {
			rest = append(f.without("index", "function"), called...)
		}
		t.chunk(append(bytes.TrimSuffix([]byte(begin+string(rest)), []byte(",")), "}]"...), nil, "null")
		if arguments != nil {
			t.chunk([]byte(begin+`"function":{"arguments":`+string(arguments)+"}}]"), nil, "null")
		}
	}
	return nil
}

// splitCall returns the function member of a tool call with empty arguments, and the arguments. Both are nil when there
// are no arguments to send separately.
func splitCall(f fields) (function, arguments []byte) {
	called, err := readFields(f.get("function"))
	if a := called.get("arguments"); err == nil && len(a) > 2 && a[0] == '"' {
		return []byte(`"function":{` + string(called.without("arguments")) + `"arguments":""}`), a
	}
	return nil, nil
}
