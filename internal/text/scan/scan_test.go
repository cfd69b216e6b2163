package scan_test

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"sovereign/internal/text/scan"
)

// reference lists the members of a text as a full JSON parser sees them, and reports false when it is not an object.
func reference(text []byte) ([]scan.Member, bool) {
	var members []scan.Member
	decoder := jsontext.NewDecoder(bytes.NewReader(text))
	if open, err := decoder.ReadToken(); err != nil || open.Kind() != '{' {
		return nil, false
	}
	for decoder.PeekKind() != '}' {
		name, err := decoder.ReadValue()
		if err != nil {
			return nil, false
		}
		var m scan.Member
		if m.Name, err = unquoted(name); err != nil {
			return nil, false
		}
		m.Start = int(decoder.InputOffset()) - len(name)
		value, err := decoder.ReadValue()
		if err != nil {
			return nil, false
		}
		m.End, m.Value = int(decoder.InputOffset()), bytes.Clone(value)
		members = append(members, m)
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, false
	}
	return members, len(bytes.Trim(text[decoder.InputOffset():], " \t\r\n")) == 0
}

func unquoted(name []byte) (string, error) {
	text, err := jsontext.AppendUnquote(nil, name)
	return string(text), err
}

// depth returns the nesting depth of an object.
func depth(text []byte) (deepest int) {
	decoder := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := decoder.ReadToken(); err != nil {
			return deepest
		}
		deepest = max(deepest, decoder.StackDepth()-1)
	}
}

const most = 256 // the bound on members and on nesting levels

// checkObject compares Object with full JSON parsers, and checks the promises on everything that it accepts.
func checkObject(t interface{ Fatalf(string, ...any) }, text []byte) {
	before := bytes.Clone(text)
	got, err := scan.Object(text, nil)
	if !bytes.Equal(before, text) {
		t.Fatalf("%q was changed into %q", before, text)
	}
	want, valid := reference(text)
	switch {
	case !valid && err != nil:
		return
	case err == nil:
		checkMembers(t, text, got)
	case errors.Is(err, scan.ErrDepth) && depth(text) > most, len(want) > most:
		return
	default:
		t.Fatalf("%.200q is an object and is refused: %v", text, err)
	}
	if valid && !slices.EqualFunc(got, want, equal) {
		t.Fatalf("%.200q has the members %+v, want %+v", text, got, want)
	}
	// A more lenient parser at a provider must not see other members.
	var lax map[string]stdjson.RawMessage
	if stdjson.Unmarshal(text, &lax) == nil {
		if len(lax) != len(got) {
			t.Fatalf("%.200q has %d members, and another parser sees %d", text, len(got), len(lax))
		}
		for _, m := range got {
			if value, ok := lax[m.Name]; !ok || !bytes.Equal(value, m.Value) {
				t.Fatalf("%.200q: %q is %.100q, and another parser sees %.100q", text, m.Name, m.Value, value)
			}
		}
	}
}

func equal(a, b scan.Member) bool {
	return a.Name == b.Name && a.Start == b.Start && a.End == b.End && bytes.Equal(a.Value, b.Value)
}

// checkMembers checks that members are in order within text, separated only by commas and white space, so that one can
// be replaced or removed without changing the rest.
func checkMembers(t interface{ Fatalf(string, ...any) }, text []byte, members []scan.Member) {
	at, names := 0, map[string]bool{}
	var spliced []byte
	plain := true
	for i, m := range members {
		if m.Start < at || m.ValueStart() <= m.Start || m.End <= m.ValueStart() || m.End > len(text) {
			t.Fatalf("%.200q: member %d is at %d to %d, with its value at %d, after %d", text, i, m.Start, m.End, m.ValueStart(), at)
		}
		if &m.Value[0] != &text[m.ValueStart()] || len(m.Value) != m.End-m.ValueStart() {
			t.Fatalf("%.200q: the value of member %d is not the text's own", text, i)
		}
		if separator, want := strings.Trim(string(text[at:m.Start]), " \t\r\n"), ","; separator != want && (i > 0 || separator != "{") {
			t.Fatalf("%.200q: %q stands before member %d", text, separator, i)
		}
		if names[m.Name] {
			t.Fatalf("%.200q has two members %q", text, m.Name)
		}
		names[m.Name] = true
		plain = plain && bytes.IndexFunc(text[m.Start:m.ValueStart()], func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' && r != '\n' }) < 0 &&
			!strings.ContainsAny(m.Name, "\t\r\n")
		spliced = append(append(spliced, text[at:m.ValueStart()]...), "null"...)
		at = m.End
	}
	if spliced = append(spliced, text[at:]...); plain {
		if _, ok := reference(spliced); !ok {
			t.Fatalf("%.200q is no object any more with its values replaced: %.200q", text, spliced)
		}
	}
	for _, m := range members {
		checkCount(t, m)
	}
}

func checkCount(t interface{ Fatalf(string, ...any) }, m scan.Member) {
	var elements []stdjson.RawMessage
	if stdjson.Unmarshal(m.Value, &elements) != nil || m.Value[0] != '[' {
		if m.Elements >= 0 && m.Value[0] != '[' {
			t.Fatalf("%.200q is no array and has %d elements", m.Value, m.Elements)
		}
		return
	}
	if m.Elements != len(elements) {
		t.Fatalf("%.200q has %d elements, want %d", m.Value, m.Elements, len(elements))
	}
}

var seeds = []string{
	`{}`, ` { } `, `{"a":1}`, "\t{\r\n\"a\" : [1, 2, {\"b\": []}] , \"c\":\"d\" }\n", `{"a":{"b":{"c":[[],{}]}},"d":null,"e":true,"f":false,"g":-1.5e+10}`,
	`{"a":"\\"}`, `{"a":"\\\""}`, `{"a\\":"\"","b":"\\\\"}`, `{"\"":"\u0022}"}`, `{"a":"]}{["}`, `{"model":"m","messages":[{"role":"user","content":"hi \"there\""}]}`,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"model":1,"mod\u0065l":2}`, `{"a/b":1,"a\/b":2}`, `{"é":1,"\u00e9":2}`, `{"😀":1,"\ud83d\ude00":2}`, `{"":1,"":2}`,
	`{"a":"\ud800"}`, `{"\ud800":1}`, "{\"a\":\"\x00\"}", "{\"a\":\"\xff\"}", "{\"a\xc3\":1}", `{"a":"\u0000"}`, "\ufeff{}", `[]`, `null`, `"{}"`, ``, `{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`,
	`{"a":1,}`, `{,}`, `{"a":1}}`, `{"a":1} x`, `{"a":[}`, `{"a":[1}`, `{"a":]}`, `{"a":{]}`, `{'a':1}`, `{a:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{"a":tru}`, `{"a":[1 2]}`, `{"a":[,]}`, `{"a":[1,]}`, `{"a":[[],[1,2],"x,y",{"z":[1,2]}]}`,
	"{\"a\":\"\n\"}", "{\"a\nb\":1}", `{"a":"\q"}`, `{"\q":1}`, `{"a":/**/1}`, `{"a":NaN}`, `{"a":[[[[[[]]]]]]}`, `{"A":1,"a":2}`, `{"__proto__":1}`,
}

func FuzzObjectMatchesAFullParser(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkObject(t, text) })
}

// drawValue draws a value. Some values are not valid JSON.
func drawValue(t *rapid.T, level int) string {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t\r "})
	atoms := rapid.SampledFrom([]string{"0", "-1.5e+10", "12", "true", "false", "null", `""`, `"a"`, `"\\"`, `"\""`, `"\\\""`, `"}"`, `"]"`, `","`, `"é\u00e9😀"`, `"\u0000"`, `"\n"`, "[]", "{}"})
	if level == 0 {
		return atoms.Draw(t, "atom")
	}
	var b strings.Builder
	switch rapid.IntRange(0, 2).Draw(t, "shape") {
	case 0:
		return atoms.Draw(t, "atom")
	case 1:
		b.WriteString("[")
		for i := range rapid.IntRange(0, 4).Draw(t, "elements") {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(space.Draw(t, "space") + drawValue(t, level-1) + space.Draw(t, "space"))
		}
		b.WriteString("]")
	default:
		b.WriteString("{")
		for i := range rapid.IntRange(0, 5).Draw(t, "members") {
			if i > 0 {
				b.WriteString(",")
			}
			name := rapid.SampledFrom([]string{`"a"`, `"b"`, `"\u0061"`, `"model"`, `"n"`, `""`, `"x\"y"`, `"\\"`, `"é"`, `"\u00e9"`, `"c"`, `"d"`}).Draw(t, "name")
			b.WriteString(space.Draw(t, "space") + name + space.Draw(t, "space") + ":" + space.Draw(t, "space") + drawValue(t, level-1) + space.Draw(t, "space"))
		}
		b.WriteString("}")
	}
	return b.String()
}

func TestObjectMatchesAFullParser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkObject(t, []byte(drawValue(t, rapid.IntRange(1, 4).Draw(t, "levels"))))
	})
}

// TestDamagedTextIsRefusedOrKeepsThePromises changes, removes or adds one byte.
func TestDamagedTextIsRefusedOrKeepsThePromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(drawValue(t, 3))
		at := rapid.IntRange(0, len(text)).Draw(t, "at")
		with := rapid.SampledFrom([]byte("\"\\{}[],: 0atn\x00\x1f\x80\xff")).Draw(t, "with")
		switch rapid.IntRange(0, 2).Draw(t, "damage") {
		case 0:
			text = text[:at]
		case 1:
			text = slices.Insert(text, at, with)
		default:
			if at < len(text) {
				text[at] = with
			}
		}
		checkObject(t, text)
	})
}

func TestDuplicateNamesAreRefusedInEverySpelling(t *testing.T) {
	for _, text := range []string{
		`{"model":1,"model":2}`, `{"model":1,"x":0,"\u006dodel":2}`, `{"\u006dodel":1,"mode\u006C":2}`, `{"a/b":1,"a\/b":2}`, `{"é":1,"\u00E9":2}`,
		`{"😀":1,"\ud83d\ude00":2}`, `{"":1,"":2}`, "{\"\\n\":1,\"\\u000a\":2}", `{"\"":1,"\u0022":2}`, `{"\\":1,"\u005c":2}`,
	} {
		if _, err := scan.Object([]byte(text), nil); !errors.Is(err, scan.ErrDuplicate) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`{"a":1,"A":2}`, `{"a":1,"a ":2}`, `{"a":{"b":1,"b":2}}`, `{"\\u0061":1,"a":2}`, "{\"e\u0301\":1,\"\u00e9\":2}"} {
		if members, err := scan.Object([]byte(text), nil); err != nil || len(members) == 0 {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestEachKindOfInvalidObjectHasItsError(t *testing.T) {
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	object := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%d":0`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	for text, want := range map[string]error{
		``: scan.ErrSyntax, `[]`: scan.ErrSyntax, `"a"`: scan.ErrSyntax, `{"a":1}{}`: scan.ErrSyntax, `{"a":1,}`: scan.ErrSyntax, `{"a":}`: scan.ErrSyntax, `{"a":[}}`: scan.ErrSyntax, `{"a":{]}`: scan.ErrSyntax,
		"\ufeff{}": scan.ErrSyntax, `{"\ud800":1}`: scan.ErrSyntax,
		"{\"a\":\"\x00\"}": scan.ErrText, "{\"a\x00\":1}": scan.ErrText, "{}\x00": scan.ErrText, "{\"a\":\"\xff\"}": scan.ErrText,
		"{\"a\":\"\xc0\xaf\"}": scan.ErrText, "{\"a\":\"\xed\xa0\x80\"}": scan.ErrText, "{\"a\":[\"\xf4\x90\x80\x80\"]}": scan.ErrText,
		deep(257): scan.ErrDepth, deep(1000): scan.ErrDepth, `{"a":` + strings.Repeat(`{"a":`, 1000): scan.ErrDepth, deep(256): nil,
		`{"a":"\u0000"}`: nil, object(256): nil,
	} {
		if _, err := scan.Object([]byte(text), nil); !errors.Is(err, want) {
			t.Errorf("%.60q: %v, want %v", text, err, want)
		}
	}
	if _, err := scan.Object([]byte(object(257)), nil); err == nil {
		t.Error("257 members are accepted")
	}
}

func TestObjectAppendsToTheCallersSlice(t *testing.T) {
	buffer := make([]scan.Member, 0, 4)
	members, err := scan.Object([]byte(`{"a":1,"b":2}`), buffer)
	if err != nil || len(members) != 2 || &members[0] != &buffer[:1][0] {
		t.Errorf("%v %v", members, err)
	}
}
