package fold_test

import (
	"bytes"
	stdjson "encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"sovereign/internal/text/fold"
)

// reversed re-encodes a value: members in reverse order, indented, and every character of strings escaped.
func reversed(t *testing.T, text []byte) []byte {
	t.Helper()
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	var value func() []byte
	value = func() []byte {
		raw := func() []byte {
			v, err := d.ReadValue()
			if err != nil {
				t.Fatal(err)
			}
			return bytes.Clone(v)
		}
		switch kind := d.PeekKind(); kind {
		case '{', '[':
			_, _ = d.ReadToken()
			var all [][]byte
			for d.PeekKind() != '}' && d.PeekKind() != ']' {
				if kind == '[' {
					all = append(all, value())
				} else {
					all = append(all, slices.Concat(value(), []byte("\n:\t"), value()))
				}
			}
			end, _ := d.ReadToken()
			if kind == '{' {
				slices.Reverse(all)
			}
			return slices.Concat([]byte{byte(kind), '\n'}, bytes.Join(all, []byte(" ,\r\n")), []byte{' ', byte(end.Kind())})
		case '"':
			v := raw()
			text, _ := jsontext.AppendUnquote(nil, v)
			return []byte(escaped(string(text)))
		default:
			return raw()
		}
	}
	return value()
}

// exchangeShaped reports whether Keys must accept an exchange, as decided by the standard library.
func exchangeShaped(messages, response []byte) bool {
	var objects []map[string]any
	var one map[string]any
	unique := func(text []byte) bool { return jsontext.Value(text).IsValid(jsontext.AllowInvalidUTF8(true)) }
	if !utf8.Valid(messages) || !utf8.Valid(response) || !unique(messages) || !unique(response) {
		return false
	}
	if stdjson.Unmarshal(messages, &objects) != nil || objects == nil || stdjson.Unmarshal(response, &one) != nil || one == nil {
		return false
	}
	for _, m := range objects {
		if _, ok := m["role"].(string); !ok {
			return false
		}
	}
	return true
}

func FuzzKeysAreTheSameForEquivalentExchanges(f *testing.F) {
	f.Add([]byte(short), []byte(shortAnswer))
	f.Add(agent(2), []byte(called))
	f.Add([]byte(`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"b"}}]},{"role":"assistant","refusal":"\ud800","audio":{"id":1}}]`), []byte(`{"tool_calls":[{"function":{"arguments":"{"}}]}`))
	f.Add([]byte(`[{"role":"tool","a":{"c":-1.5e+3,"b":[true,false,null]}},{"role":1}]`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, messages, response []byte) {
		c, err := fold.Keys(messages, response)
		if (err == nil) != exchangeShaped(messages, response) {
			t.Fatalf("%q %q: %v", messages, response, err)
		}
		line, failed := fold.Example(nil, messages, response, nil, true)
		if err != nil {
			return
		}
		if again, err := fold.Keys(reversed(t, messages), reversed(t, response)); err != nil || !cmp.Equal(c, again) {
			t.Fatalf("%q %q: %x, written anew %x: %v", messages, response, c, again, err)
		}
		if stored, err := fold.Parse(c.Bytes()); err != nil || !cmp.Equal(c, stored) {
			t.Fatalf("%x is stored as %x: %v", c, stored, err)
		}
		var example struct {
			Messages []struct {
				Role   string
				Weight *int
			}
		}
		if failed != nil || bytes.ContainsAny(line, "\r\n") || stdjson.Unmarshal(line, &example) != nil {
			t.Fatalf("%q %q: %v %q", messages, response, failed, line)
		}
		assistants := 0
		for _, m := range example.Messages {
			if m.Weight != nil {
				assistants++
			}
		}
		if assistants != len(c.Earlier)+1 {
			t.Fatalf("%d turns weigh of %d: %q", assistants, len(c.Earlier)+1, line)
		}
	})
}

func FuzzParseReadsWhatBytesWrote(f *testing.F) {
	f.Add([]byte{})
	f.Add(append([]byte{1}, make([]byte, 48)...))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := fold.Parse(text)
		if err == nil && c.Own != (fold.Key{}) && !bytes.Equal(c.Bytes(), text) {
			t.Fatalf("%x is written as %x", text, c.Bytes())
		}
	})
}
