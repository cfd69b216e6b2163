package fold_test

import (
	"bytes"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/text/fold"
)

var (
	texts = rapid.SampledFrom([]string{"", "a", "b", " a", "A \"quote\" and a \\", "line\nline", "é漢😀", "{}", "[redacted]", "<b>&\u2028"})
	calls = rapid.Custom(func(t *rapid.T) call {
		return call{
			ID: rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "id"), Name: rapid.SampledFrom([]string{"look", "edit"}).Draw(t, "name"),
			Args: rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "ä \""}), rapid.SampledFrom([]string{"1", "1.0", "null", "true", `"x"`, `[1,{"y":"\n"}]`, "{}"}), 0, 3).Draw(t, "args"),
		}
	})
	turns = rapid.Custom(func(t *rapid.T) turn {
		one := turn{Role: rapid.SampledFrom([]string{"assistant", "assistant", "user", "tool", "system"}).Draw(t, "role")}
		one.Parts = rapid.SliceOfN(rapid.OneOf(texts, texts, rapid.Just(picture+"base64,AAAA")), 0, 2).Draw(t, "parts")
		switch one.Role {
		case "assistant":
			one.Calls = rapid.SliceOfN(calls, 0, 2).Draw(t, "calls")
		case "tool":
			one.Answer = rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "call")
		case "user":
			one.Name = rapid.SampledFrom([]string{"", "", "eve"}).Draw(t, "name")
		}
		return one
	})
)

// An exchange is a logged conversation whose last turn is the response.
type exchange struct {
	path               []turn
	messages, response []byte
}

func (e exchange) identity() string {
	var b strings.Builder
	for _, t := range e.path {
		b.WriteString(t.identity() + "\n")
	}
	return b.String()
}

func (e exchange) GoString() string { return fmt.Sprintf("\n%s\n%s\n", e.messages, e.response) }

// foldsInto is the contract, stated on turns instead of keys.
func (e exchange) foldsInto(other exchange) bool {
	return len(e.path) < len(other.path) && strings.HasPrefix(other.identity(), e.identity())
}

// forests draws exchanges of branching conversations, some of them not logged and some logged twice.
var forests = rapid.Custom(func(t *rapid.T) (all []exchange) {
	p := clientWriter{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
	nodes := [][]turn{nil}
	for range rapid.IntRange(1, 30).Draw(t, "size") {
		// Prefer recent nodes, so that conversations grow long.
		from := max(rapid.IntRange(0, len(nodes)-1).Draw(t, "from"), rapid.IntRange(0, len(nodes)-1).Draw(t, "or from"))
		path := append(slices.Clone(nodes[from]), turns.Draw(t, "turn"))
		nodes = append(nodes, path)
		last := len(path) - 1
		if path[last].Role != "assistant" {
			continue
		}
		for range rapid.SampledFrom([]int{1, 1, 1, 1, 0, 2}).Draw(t, "times logged") {
			all = append(all, exchange{path, p.messages(path[:last]), p.message(path[last])})
		}
	}
	p.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
})

func chainsOf(t interface{ Fatalf(string, ...any) }, all []exchange) (chains []fold.Chain) {
	for _, e := range all {
		c, err := fold.Keys(e.messages, e.response)
		if err != nil {
			t.Fatalf("%s %s: %v", e.messages, e.response, err)
		}
		stored, err := fold.Parse(c.Bytes())
		if err != nil || !cmp.Equal(c, stored) {
			t.Fatalf("%+v is stored as %+v: %v", c, stored, err)
		}
		chains = append(chains, stored)
	}
	return chains
}

// want computes the position of an exchange from the contract, by comparing all pairs.
func want(all []exchange, i int) fold.Position {
	p := fold.Position{Leaf: true, Root: i, DuplicateOf: -1}
	earlier, shortest := map[string]bool{}, 0
	for j, other := range all {
		if all[i].foldsInto(other) {
			p.Leaf = false
		}
		if other.identity() == all[i].identity() && j < i && p.DuplicateOf < 0 {
			p.DuplicateOf = j
		}
		if other.foldsInto(all[i]) {
			earlier[other.identity()] = true
			if len(earlier) == 1 && shortest == 0 || len(other.path) < shortest {
				p.Root, shortest = j, len(other.path)
			}
		}
	}
	if p.Folded = len(earlier); p.Folded == 0 && p.DuplicateOf >= 0 {
		p.Root = p.DuplicateOf
	}
	return p
}

func TestLeavesMatchesTheContract(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := forests.Draw(t, "forest")
		places := fold.Leaves(slices.Values(chainsOf(t, all)))
		turns, conversations := map[string]bool{}, map[string]bool{}
		for i, got := range places {
			w := want(all, i)
			if got != w {
				t.Fatalf("exchange %d is %+v, want %+v:\n%s", i, got, w, all[i].identity())
			}
			switch {
			case !w.Leaf:
				turns[all[i].identity()] = true
			case w.Folded > 0:
				conversations[all[i].identity()] = true
			}
		}
		if c, n := fold.Count(places); c != len(conversations) || n != len(turns) {
			t.Fatalf("%d turns folded into %d conversations, want %d into %d", n, c, len(turns), len(conversations))
		}
	})
}

// The keys of the questions within messages are those of the exchanges that asked them.
func TestQuestionsAreThePromptsAndAnswersWithinMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := clientWriter{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
		path, limit := rapid.SliceOfN(turns, 0, 12).Draw(t, "path"), rapid.IntRange(0, 9).Draw(t, "limit")
		var want []fold.Key
		asked := false
		for i, one := range path {
			asked = asked || one.Role == "user" || one.Role == "tool"
			if one.Role != "assistant" || !asked {
				continue
			}
			chain, err := fold.Keys(p.messages(path[:i]), p.message(one))
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, chain.Prompt, chain.Own)
		}
		got, err := fold.Questions(p.messages(path), limit)
		if err != nil || !slices.Equal(got, want[:min(limit, len(want))]) {
			t.Fatalf("%v %v, want %v", got, err, want)
		}
	})
	for _, bad := range []string{"", "{}", "[1]", `[{"content":"x"}]`, `[{"role":"user","role":"user"}]`} {
		if keys, err := fold.Questions([]byte(bad), 9); !errors.Is(err, fold.ErrMessages) || len(keys) > 0 {
			t.Errorf("%s: %v %v", bad, keys, err)
		}
	}
}

func TestEveryExchangeIsInTheExampleOfALeaf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := forests.Draw(t, "forest")
		var lines []string
		for i, p := range fold.Leaves(slices.Values(chainsOf(t, all))) {
			if !p.Leaf {
				continue
			}
			line, err := fold.Example(nil, all[i].messages, all[i].response, nil, p.Folded > 0)
			if err != nil {
				t.Fatal(err)
			}
			checkExample(t, line, all[i].path, p.Folded > 0)
			lines = append(lines, all[i].identity())
		}
		for i, e := range all {
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, e.identity()) }) {
				t.Fatalf("exchange %d is in no example:\n%s", i, e.identity())
			}
		}
	})
}

func checkExample(t interface{ Fatalf(string, ...any) }, line []byte, path []turn, folded bool) {
	if bytes.ContainsAny(line, "\r\n") {
		t.Fatalf("more than one line: %q", line)
	}
	var example struct{ Messages []stdjson.RawMessage }
	if err := stdjson.Unmarshal(line, &example); err != nil || len(example.Messages) != len(path) {
		t.Fatalf("%d messages for %d turns, %v: %s", len(example.Messages), len(path), err, line)
	}
	for i, raw := range example.Messages {
		got, weight, err := seen(raw)
		if err != nil || got.identity() != path[i].identity() {
			t.Fatalf("turn %d is %s, want %s: %v", i, got.identity(), path[i].identity(), err)
		}
		if weigh := folded && got.Role == "assistant"; weigh && weight != 1.0 || !weigh && bytes.Contains(raw, []byte(`"weight"`)) {
			t.Fatalf("turn %d, folded: %v: %s", i, folded, raw)
		}
	}
}

func TestIndependentExchangesDoNotFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := clientWriter{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
		prompt := turn{Role: "system", Parts: []string{texts.Draw(t, "prompt")}}
		answer := turn{Role: "assistant", Parts: []string{texts.Draw(t, "answer")}}
		var all []exchange
		for i := range rapid.IntRange(2, 20).Draw(t, "steps") {
			path := []turn{prompt, {Role: "user", Parts: []string{fmt.Sprint("step ", i)}}, answer}
			all = append(all, exchange{path, p.messages(path[:2]), p.message(answer)})
		}
		for i, got := range fold.Leaves(slices.Values(chainsOf(t, all))) {
			if want := (fold.Position{Leaf: true, Root: i, DuplicateOf: -1}); got != want {
				t.Fatalf("step %d is %+v", i, got)
			}
		}
	})
}

func canon(t *testing.T, message string) string {
	t.Helper()
	form, err := fold.Canon(nil, []byte(message))
	if err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	return string(form)
}

func TestCanonEqualsForEquivalentMessages(t *testing.T) {
	call := func(function string) string {
		return `{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":` + function + `}]}`
	}
	for _, same := range [][]string{
		{
			`{"role":"assistant","content":"Paris."}`, ` { "content" : "\u0050aris." , "role":"assistant" } `,
			`{"role":"assistant","content":[{"type":"text","text":"Paris."}]}`,
			`{"role":"assistant","content":[{"text":"Paris.","type":"text","cache_control":{"type":"ephemeral"}}],"refusal":null}`,
			`{"role":"assistant","content":[{"type":"thinking","thinking":"…"},{"type":"text","text":"Paris."}]}`,
			`{"role":"assistant","content":"Paris.","refusal":null,"annotations":[],"audio":null,"function_call":null,"tool_calls":null}`,
			`{"role":"assistant","content":"Paris.","reasoning_content":"…","reasoning":"…","thinking":{},"reasoning_details":[{}],"tool_calls":[]}`,
			`{"role":"assistant","content":"Paris.","name":"guide","weight":1,"refusal":"","provider_specific_fields":{"a":[1]}}`,
		},
		{
			call(`{"name":"look","arguments":"{\"at\":1,\"by\":{\"a\":null}}"}`), call(`{"arguments":"{\n \"by\": {\"a\":null}, \"at\": 1}","name":"look"}`),
			call(`{"name":"look","arguments":"{\"\\u0061t\":1,\"by\":{\"a\":null}}","parsed_arguments":{}}`), call(`{"name":"look","arguments":{"at":1,"by":{"a":null}}}`),
			`{"role":"assistant","content":"","tool_calls":[{"index":0,"id":"c","function":{"name":"look","arguments":" {\"at\":1,\"by\":{\"a\":null}}"}}]}`,
			`{"role":"assistant","content":[],"tool_calls":[{"id":"c","custom":null,"function":{"name":"look","arguments":"{\"at\":1,\"by\":{\"a\":null}}"}}]}`,
		},
		{call(`{"name":"look","arguments":"{}"}`), call(`{"name":"look","arguments":""}`), call(`{"name":"look"}`), call(`{"name":"look","arguments":" { } "}`)},
		{`{"role":"system","content":"Be brief."}`, `{"role":"developer","content":[{"type":"text","text":"Be brief."}],"cache_control":{}}`},
		{`{"role":"user","content":""}`, `{"role":"user"}`, `{"role":"user","content":[{"type":"text","text":""}]}`, `{"role":"user","content":null,"name":null}`},
		{`{"role":"user","content":["a",{"type":"text","text":"b"}]}`, `{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":null}]}`},
		{`{"role":"user","content":"\ud83d\ude00 \ud83d"}`, `{"role":"user","content":"😀 \ufffd"}`},
		{`{"role":"assistant","audio":{"id":"a","data":"UklGRg==","transcript":"Hi"}}`, `{"role":"assistant","content":null,"audio":{"id":"a"}}`},
		{`{"role":"user","content":[{"type":"image_url","image_url":{"url":"u","detail":"low"}}]}`, `{"role":"user","content":[{"image_url":{"detail":"low","url":"u"},"type":"image_url","cache_control":{}}]}`},
	} {
		for _, other := range same[1:] {
			if canon(t, same[0]) != canon(t, other) {
				t.Errorf("%s\nis told apart from\n%s", same[0], other)
			}
		}
	}
}

func TestDifferentTurnsHaveDifferentForms(t *testing.T) {
	call := func(call string) string { return `{"role":"assistant","tool_calls":[` + call + `]}` }
	all := []string{
		`{"role":"user","content":"a"}`, `{"role":"user","content":"A"}`, `{"role":"user","content":"a "}`, `{"role":"user"}`, `{"role":"system","content":"a"}`,
		`{"role":"user","content":"a","name":"eve"}`, `{"role":"user","content":"a","name":"bob"}`, `{"role":"user","content":"a","tool_calls":[]}`,
		`{"role":"user","x":"1","y":"2"}`, `{"role":"user","x":"1\"\u0001y\"\u00012"}`,
		`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, `{"role":"user","content":"ab"}`, `{"role":"user","content":"a\nb"}`,
		`{"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"a"}]}`, `{"role":"user","content":[{"type":"other","text":"a"}]}`,
		`{"role":"user","content":[{"type":"text","text":"a","more":1}]}`, `{"role":"user","content":[{"type":"text","text":"a","more":1.0}]}`, `{"role":"user","content":[{"type":"text","text":1}]}`,
		`{"role":"user","content":[{"type":"thinking","thinking":"a"}]}`, `{"role":"user","content":[["a","b"]]}`, `{"role":"user","content":{"type":"text","text":"a"}}`,
		`{"role":"user","content":true}`, `{"role":"user","content":false}`, `{"role":"user","content":1}`, `{"role":"user","content":"1"}`,
		`{"role":"assistant"}`, `{"role":"assistant","content":"a"}`, `{"role":"assistant","refusal":"a"}`, `{"role":"assistant","content":"a","refusal":"a"}`,
		`{"role":"assistant","content":false}`, `{"role":"assistant","function_call":false}`, `{"role":"assistant","function_call":{"name":false}}`,
		`{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}`, `{"role":"assistant","audio":{"id":"a"}}`, `{"role":"assistant","tool_calls":"f"}`,
		call(`{"id":"c","function":{"name":"f","arguments":"{}"}}`), call(`{"id":"d","function":{"name":"f","arguments":"{}"}}`),
		call(`{"id":"c","function":{"name":"g","arguments":"{}"}}`), call(`{"id":"c","function":{"name":"f","arguments":"{\"a\":1}"}}`),
		call(`{"id":"c","function":{"name":"f","arguments":"{\"a\":1.0}"}}`), call(`{"id":"c","function":{"name":"f","arguments":"{\"a\":null}"}}`),
		call(`{"id":"c","function":{"name":"f","arguments":"{\"a\":\"1\"}"}}`), call(`{"id":"c","function":{"name":"f","arguments":"{\"a\":1"}}`),
		call(`{"id":"c","function":{"name":"f","arguments":"{\"a\":1,\"a\":1}"}}`), call(`{"id":"c","function":{"name":"f","arguments":"[]"}}`),
		call(`{"id":"c","function":{"name":"f","arguments":"[ ]"}}`), call(`{"id":"c","function":{"name":"f","arguments":"{\"a\":[1,2]}"}}`),
		call(`{"id":"c","function":{"name":"f","arguments":"{\"a\":[[1],2]}"}}`), call(`{"id":"c","function":{"name":"f","arguments":"{\"a\":[12]}"}}`),
		call(`{"id":"c","function":{"name":"f"}},{"id":"d","function":{"name":"f"}}`), call(`{"id":"d","function":{"name":"f"}},{"id":"c","function":{"name":"f"}}`),
		call(`{"id":"c","type":"custom","custom":{"name":"f","input":"a"}}`), call(`{"id":"c","type":"custom","custom":{"name":"f","input":"b"}}`),
		call(`{"id":"c"}`), call(`"c"`), call(`{"id":"c","function":"f"}`), call(`{"function":{"name":"c"}}`),
		`{"role":"tool","tool_call_id":"c","content":"{\"a\":1}"}`, `{"role":"tool","tool_call_id":"c","content":"{\"a\": 1}"}`, `{"role":"tool","tool_call_id":"d","content":"{\"a\":1}"}`,
	}
	forms := map[string]string{}
	for _, message := range all {
		form := canon(t, message)
		if other, taken := forms[form]; taken {
			t.Errorf("%s\nis not told from\n%s", message, other)
		}
		forms[form] = message
	}
}

func keys(t *testing.T, messages, response string) fold.Chain {
	t.Helper()
	c, err := fold.Keys([]byte(messages), []byte(response))
	if err != nil {
		t.Fatalf("%s %s: %v", messages, response, err)
	}
	return c
}

const (
	ask   = `{"role":"user","content":"Hello"}`
	hello = `{"role":"assistant","content":"Hi!"}`
	more  = `{"role":"user","content":"More."}`
)

func places(chains ...fold.Chain) []fold.Position { return fold.Leaves(slices.Values(chains)) }

func TestARegeneratedAnswerIsABranch(t *testing.T) {
	got := places(
		keys(t, `[`+ask+`]`, hello), keys(t, `[`+ask+`]`, `{"role":"assistant","content":"Hello."}`), keys(t, `[`+ask+`,`+hello+`,`+more+`]`, hello))
	want := []fold.Position{{Root: 0, DuplicateOf: -1}, {Leaf: true, Root: 1, DuplicateOf: -1}, {Leaf: true, Folded: 1, Root: 0, DuplicateOf: -1}}
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func TestAnAnswerThatTheClientEditedDoesNotFold(t *testing.T) {
	for _, edited := range []string{
		`{"role":"assistant","content":"Hi! "}`, `{"role":"assistant","content":"Hi"}`, `{"role":"user","content":"Hi!"}`,
		`{"role":"assistant","content":"Hi!","tool_calls":[{"id":"c","function":{"name":"f"}}]}`, hello + `,` + hello,
	} {
		got := places(keys(t, `[`+ask+`]`, hello), keys(t, `[`+ask+`,`+edited+`,`+more+`]`, hello))
		if folds := edited == hello+`,`+hello; got[0].Leaf == folds { // there the answer is whole, and more is behind it
			t.Errorf("%s: %+v", edited, got)
		}
	}
	changed := places(keys(t, `[`+ask+`]`, hello), keys(t, `[`+more+`,`+hello+`,`+more+`]`, hello))
	if !changed[0].Leaf || changed[1].Folded != 0 {
		t.Errorf("what was asked is another, and it folds: %+v", changed)
	}
}

func TestAnExchangeGoesOnWhereAnAnswerIsToBeFinished(t *testing.T) {
	got := places(keys(t, `[`+ask+`]`, hello), keys(t, `[`+ask+`,`+hello+`]`, `{"role":"assistant","content":" And you?"}`))
	if got[0].Leaf || got[1].Folded != 1 {
		t.Errorf("%+v", got)
	}
}

func TestNoMessagesAreABeginningToo(t *testing.T) {
	got := places(keys(t, `[]`, hello), keys(t, ` [ ] `, hello), keys(t, `[`+hello+`,`+ask+`]`, hello))
	want := []fold.Position{{Root: 0, DuplicateOf: -1}, {Root: 0, DuplicateOf: 0}, {Leaf: true, Folded: 1, Root: 0, DuplicateOf: -1}}
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func TestWhatCannotBeReadFoldsWithNothing(t *testing.T) {
	got := places(fold.Chain{}, fold.Chain{}, keys(t, `[`+ask+`]`, hello), fold.Chain{Earlier: []fold.Key{{}}})
	for i, p := range got {
		if want := (fold.Position{Leaf: true, Root: i, DuplicateOf: -1}); p != want {
			t.Errorf("exchange %d is %+v", i, p)
		}
	}
}

func TestPromptIsTheKeyOfTheMessagesAlone(t *testing.T) {
	one, other := keys(t, `[`+ask+`]`, hello), keys(t, `[`+ask+`]`, `{"content":"Other."}`)
	if one.Prompt != other.Prompt || one.Own == other.Own || one.Prompt == keys(t, `[`+more+`]`, hello).Prompt {
		t.Errorf("%x, %x", one, other)
	}
	if again := keys(t, `[`+ask+`,`+hello+`]`, hello); again.Prompt != one.Own || !slices.Contains(again.Earlier, one.Own) {
		t.Errorf("%x does not go on from %x", again, one)
	}
}

// Keys lie in databases: a change of the canonical form needs a new version, and new keys here.
func TestKeysStayAsTheyWereStored(t *testing.T) {
	c := keys(t, `[{"role":"developer","content":"Be brief."},`+ask+`,`+called+`,{"role":"tool","tool_call_id":"call_9f8c2b6d","content":"1.0","n":1.0},`+hello+`,`+
		`{"role":"user","name":"eve","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"b","detail":null}},{"type":"text","text":"c"}]}]`,
		`{"content":"","refusal":"No.","audio":{"id":"a"},"function_call":{"name":"f"},"tool_calls":[{"id":"c","type":"custom","custom":{"z":[true,false,null,-1e5],"a":{}}}]}`)
	const want = "018fa1b0dfe0ef02878220a43040ab686d4e00e4d6bf3d6f89d7efb25151707fa5973c7e266f1dfc9f2120639a9c72546edc6fb2d6eb782677d26ac467d549972d"
	if got := hex.EncodeToString(c.Bytes()); got != want {
		t.Errorf("stored as %s, want %s", got, want)
	}
}

func TestAResponseIsTheAssistantsWhateverItSays(t *testing.T) {
	for _, response := range []string{`{"content":"Hi!"}`, `{"role":null,"content":"Hi!"}`, `{"role":"model","content":"Hi!"}`} {
		if keys(t, `[`+ask+`]`, response).Own != keys(t, `[`+ask+`]`, hello).Own {
			t.Errorf("%s is another answer", response)
		}
	}
}

func TestWhatIsNoExchangeIsRefused(t *testing.T) {
	for _, messages := range []string{
		``, ` `, `null`, `{}`, `"a"`, `[`, `[1]`, `[null]`, `["a"]`, `[[]]`, `[{}]`, `[{"role":1}]`, `[{"role":null}]`, `[` + ask, `[` + ask + `,]`, `[` + ask + `] 1`,
		`[{"role":"user","role":"assistant"}]`, `[{"role":"user","\u0072ole":"assistant"}]`, "[{\"role\":\"\xff\"}]", strings.Repeat(`[`, 20_000),
		`[{"role":"user","content":` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `}]`,
	} {
		if c, err := fold.Keys([]byte(messages), []byte(hello)); !errors.Is(err, fold.ErrMessages) || !cmp.Equal(c, fold.Chain{}) {
			t.Errorf("%.100s: %v", messages, err)
		}
	}
	for _, message := range []string{``, `null`, `[]`, `{}`, `{"role":1}`, ask + ask} {
		if form, err := fold.Canon([]byte("before"), []byte(message)); !errors.Is(err, fold.ErrMessages) || string(form) != "before" {
			t.Errorf("%s: %q, %v", message, form, err)
		}
	}
	for _, response := range []string{``, `null`, `[]`, `"a"`, `{`, `{"content":"a","content":"b"}`, `{} {}`} {
		if c, err := fold.Keys([]byte(`[]`), []byte(response)); !errors.Is(err, fold.ErrResponse) || !cmp.Equal(c, fold.Chain{}) {
			t.Errorf("%.100s: %v", response, err)
		}
	}
}

func TestDeepContentIsRead(t *testing.T) {
	deep := func(inner string) string {
		return `[{"role":"user","content":` + strings.Repeat(`{"b":1,"a":[`, 4000) + inner + strings.Repeat(`]}`, 4000) + `}]`
	}
	if keys(t, deep("1"), hello).Own == keys(t, deep("2"), hello).Own {
		t.Error("what is deep inside does not count")
	}
}

func TestParseRefusesWhatBytesDidNotWrite(t *testing.T) {
	whole := keys(t, `[`+ask+`,`+hello+`,`+more+`]`, hello).Bytes()
	for n := 1; n < len(whole); n++ {
		if _, err := fold.Parse(whole[:n]); (err == nil) != (n == 33) {
			t.Errorf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
	whole[0]++
	if _, err := fold.Parse(whole); !errors.Is(err, fold.ErrChain) {
		t.Errorf("another version: %v", err)
	}
	if c, err := fold.Parse(fold.Chain{}.Bytes()); err != nil || !cmp.Equal(c, fold.Chain{}) {
		t.Errorf("the zero chain is stored as %+v: %v", c, err)
	}
}

// A conversation of 2,000 turns is logged at every tenth answer. All of its exchanges form one example.
func TestALongConversationIsOneExample(t *testing.T) {
	const rounds = 1000
	conversation := func(rounds int) []byte {
		return []byte(`[` + ask + strings.Repeat(`,`+hello+`,`+more, rounds) + `]`)
	}
	var chains []fold.Chain
	for i := range rounds {
		if i%10 == 9 {
			chains = append(chains, keys(t, string(conversation(i)), hello))
		}
	}
	all := fold.Leaves(slices.Values(chains))
	last := len(all) - 1
	if conversations, turns := fold.Count(all); conversations != 1 || turns != last || all[last].Folded != last || !all[last].Leaf {
		t.Errorf("%d conversations of %d turns; the last is %+v", conversations, turns, all[last])
	}
	line, err := fold.Example(nil, conversation(rounds), []byte(hello), nil, true)
	if err != nil || bytes.Count(line, []byte(`"weight":1`)) != rounds+1 {
		t.Errorf("%d turns weigh: %v", bytes.Count(line, []byte(`"weight":1`)), err)
	}
}
