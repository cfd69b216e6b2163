package responses_test

import (
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"sovereign/internal/text/sse"
)

func TestAStreamCutAnywhereReadsTheSame(t *testing.T) {
	for name, s := range recordings {
		text := chunks(s.chunks...)
		want, err := stream(minimalRequest, text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for cut := range text {
			if got, err := stream(minimalRequest, text[:cut], text[cut:]); err != nil || got != want {
				t.Fatalf("%s, cut at %d: %v\n%s", name, cut, err, cmp.Diff(want, got))
			}
		}
	}
}

func TestATruncatedStreamIsNeverComplete(t *testing.T) {
	for name, s := range recordings {
		text := chunks(s.chunks...)
		want, err := stream(minimalRequest, text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for cut := range len(text) - 1 { // the last byte of all is the end of the last event
			got, err := stream(minimalRequest, text[:cut])
			events := text[:strings.LastIndex(text[:cut], "\n\n")+1]
			if strings.Contains(events, `"finish_reason":"`) && !strings.Contains(events, `"error":`) {
				if err != nil || !strings.Contains(got, "event: "+s.last+"\n") { // the choice has finished, as chat takes it too
					t.Fatalf("%s, at its end at %d: %v after\n%s", name, cut, err, got)
				}
				continue
			}
			if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(want, got) || strings.Contains(got, "event: "+s.last+"\n") {
				t.Fatalf("%s, broken off at %d: %v after\n%s", name, cut, err, got)
			}
		}
	}
}

// withoutIDs removes ids, which differ between answers.
func withoutIDs(t *testing.T, text []byte) string {
	t.Helper()
	parts := strings.Split(canonical(t, text), `"id":"`)
	for i, p := range parts[1:] {
		prefix, rest, _ := strings.Cut(p, "_")
		_, rest, _ = strings.Cut(rest, `"`)
		parts[i+1] = prefix + `"` + rest
	}
	return strings.Join(parts, `"id":"`)
}

func TestAStreamYieldsTheSameAsTheCompleteAnswer(t *testing.T) {
	for name, s := range recordings {
		if s.whole == "" {
			continue
		}
		text, err := stream(fullRequest, chunks(s.chunks...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, err := translateAnswer(fullRequest, s.whole)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all := receivedEvents(t, text)
		got := member[jsontext.Value](t, all[len(all)-1].data, "response")
		if d := cmp.Diff(withoutIDs(t, []byte(want)), withoutIDs(t, got)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// checkEvents assembles an answer from its events as clients do, and checks what clients rely on.
func checkEvents(t *testing.T, all []receivedEvent) {
	t.Helper()
	type place struct {
		output int
		kind   string
		part   int
	}
	texts, parts, added, done := map[place]string{}, map[place]string{}, []jsontext.Value{}, map[int]string{}
	ids, cites := map[int]string{}, map[place]int{}
	for i, e := range all {
		if e.name != member[string](t, e.data, "type") || i != member[int](t, e.data, "sequence_number") {
			t.Fatalf("event %d is %s %s", i, e.name, e.data)
		}
		if e.name == "error" || strings.HasPrefix(e.name, "response.c") && !strings.Contains(e.name, "part") || e.name == "response.in_progress" || e.name == "response.incomplete" || e.name == "response.failed" {
			continue
		}
		at := place{output: member[int](t, e.data, "output_index")}
		if done[at.output] != "" {
			t.Fatalf("%s after the item is done", e.name)
		}
		if e.name == "response.output_item.added" {
			if at.output != len(added) {
				t.Fatalf("item %d comes after %d", at.output, len(added))
			}
			item := member[jsontext.Value](t, e.data, "item")
			added, ids[at.output] = append(added, item), member[string](t, item, "id")
			continue
		}
		if e.name == "response.output_item.done" {
			item := member[jsontext.Value](t, e.data, "item")
			if member[string](t, item, "id") != ids[at.output] {
				t.Fatalf("the id changed: %s", e.data)
			}
			done[at.output] = canonical(t, item)
			continue
		}
		if member[string](t, e.data, "item_id") != ids[at.output] {
			t.Fatalf("the id is another: %s", e.data)
		}
		for _, index := range []string{"content_index", "summary_index"} {
			if strings.Contains(string(e.data), `"`+index+`"`) {
				at.kind, at.part = index, member[int](t, e.data, index)
			}
		}
		switch verb := e.name[strings.LastIndex(e.name, ".")+1:]; {
		case strings.Contains(e.name, "part.added"):
			parts[at] = "open"
		case strings.Contains(e.name, "part.done"):
			part := string(member[jsontext.Value](t, e.data, "part"))
			if strings.Count(part, `"type":"url_citation"`) != cites[at] {
				t.Fatalf("%d citations are in %s", cites[at], part)
			}
			if parts[at] != "said" || !strings.Contains(part, quoted(texts[at])) {
				t.Fatalf("%s of %q", part, texts[at])
			}
			parts[at] = "done"
		case strings.HasSuffix(e.name, "annotation.added"):
			if parts[at] != "open" || member[int](t, e.data, "annotation_index") != cites[at] {
				t.Fatalf("%s: %s", e.name, e.data)
			}
			cites[at]++
		case verb == "delta":
			if at.kind != "" && parts[at] != "open" {
				t.Fatalf("%s before its part", e.name)
			}
			texts[at] += member[string](t, e.data, "delta")
		case verb == "done":
			name := map[string]string{"response.refusal.done": "refusal", "response.function_call_arguments.done": "arguments"}[e.name]
			if name == "" {
				name = "text"
			}
			if got := member[string](t, e.data, name); got != texts[at] {
				t.Fatalf("%s of %q", e.data, texts[at])
			}
			parts[at] = "said"
		default:
			t.Fatalf("what is %s?", e.name)
		}
	}
	last := all[len(all)-1]
	if last.name == "error" {
		return
	}
	for i, item := range member[[]jsontext.Value](t, member[jsontext.Value](t, last.data, "response"), "output") {
		if canonical(t, item) != done[i] {
			t.Fatalf("item %d was %s and is %s", i, done[i], item)
		}
		delete(done, i)
	}
	if len(done) > 0 || len(ids) != len(added) {
		t.Fatalf("%v are lost", done)
	}
}

func TestEventsAddUpToTheAnswer(t *testing.T) {
	for name, s := range recordings {
		t.Run(name, func(t *testing.T) {
			text, err := stream(fullRequest, chunks(s.chunks...))
			if err != nil {
				t.Fatal(err)
			}
			all := receivedEvents(t, text)
			if last := all[len(all)-1].name; last != s.last || strings.Contains(text, "[DONE]") {
				t.Errorf("it ends with %s", last)
			}
			if name != "error at once" && (all[0].name != "response.created" || all[1].name != "response.in_progress") {
				t.Errorf("it begins with %s, %s", all[0].name, all[1].name)
			}
			checkEvents(t, all)
		})
	}
}

var update = flag.Bool("update", false, "write the golden files")

func TestEventsMatchTheGoldenFiles(t *testing.T) {
	s := recordings["parallel tools, interleaved"]
	first := chunk(`{"role":"assistant","reasoning_content":"Both.","reasoning_details":[{"type":"reasoning.text","text":"Both.","signature":"sig","index":0}]}`, "null")
	got, err := stream(fullRequest, chunks(append([]string{first}, s.chunks...)...))
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/tools.sse"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Error(d)
	}
}

// feed passes chunks to one exchange and returns their translation.
func feed(t *testing.T, all ...string) (string, error) {
	t.Helper()
	x, err := testDialect().NewExchange(request(`{"model":"m","input":"Hi"}`, true))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, one := range all {
		if out, err = x.Event(out, sse.Event{Data: []byte(one)}); err != nil {
			break
		}
	}
	return string(out), err
}

func TestAnAnswerWithoutEquivalentIsAnError(t *testing.T) {
	for name, all := range map[string][]string{
		"an old call":            {chunk(`{"function_call":{"name":"f","arguments":""}}`, "null")},
		"a sound":                {chunk(`{"audio":{"id":"a"}}`, "null")},
		"images":                 {chunk(`{"images":[{"type":"image_url","image_url":{"url":"data:"}}]}`, "null")},
		"a strange annotation":   {chunk(`{"annotations":[{"url":"https://x"}]}`, "null")},
		"a custom tool":          {chunk(`{"tool_calls":[{"index":0,"id":"c","type":"custom","custom":{"name":"f","input":""}}]}`, "null")},
		"a call without a name":  {chunk(`{"tool_calls":[{"index":0,"id":"c","function":{"arguments":"{}"}}]}`, "null")},
		"another choice":         {`{"choices":[{"index":1,"delta":{"content":"x"}}]}`},
		"an end without reason":  {chunk(`{"content":"x"}`, "null"), end},
		"an end of nothing":      {end},
		"no JSON":                {`{"choices":[`},
		"content of other shape": {chunk(`{"content":[1]}`, "null")},
	} {
		if text, err := feed(t, all...); err == nil || strings.Contains(text, "response.completed") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	for name, body := range map[string]string{
		"no choice":    `{"choices":[],"usage":null}`,
		"two choices":  `{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"},{"index":1,"message":{"content":"b"},"finish_reason":"stop"}]}`,
		"an old call":  completion(`{"content":null,"function_call":{"name":"f","arguments":""}}`, "function_call", spent),
		"a sound":      completion(`{"content":null,"audio":{"id":"a"}}`, "stop", spent),
		"images":       completion(`{"content":"see","images":[{"type":"image_url","image_url":{"url":"data:"}}]}`, "stop", spent),
		"no JSON":      `<html>`,
		"another type": `[]`,
	} {
		if text, err := translateAnswer(fullRequest, body); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestAnErrorIsPassedOn(t *testing.T) {
	text, err := feed(t, `{"error":{"message":"too much","type":"rate_limit_error","code":429,"param":null}}`, chunk(`{"content":"x"}`, "stop"), end)
	want := "event: error\ndata: " + `{"type":"error","sequence_number":0,"code":"429","message":"too much","param":null}` + "\n\n"
	if err != nil || text != want {
		t.Errorf("%v %s", err, text)
	}
	body := `{"error":{"message":"boom","type":"api_error","code":500,"param":null}}`
	if text, err := translateAnswer(fullRequest, body); err != nil || text != body {
		t.Errorf("%v %s", err, text)
	}
	if status, text := testDialect().ErrorAnswer(429, []byte(body)); status != 429 || string(text) != body {
		t.Errorf("%d %s", status, text)
	}
}

func TestAnEmptyChunkBecomesAPing(t *testing.T) {
	text, err := feed(t, chunk(`{"role":"assistant"}`, "null"), `{"choices":[]}`, chunk(`{"content":""}`, "null"), chunk(`{}`, "stop"))
	if err != nil || !strings.HasSuffix(text, "\n\n: ping\n: ping\n") {
		t.Errorf("%v %q", err, text)
	}
}

func TestCallsAreDistinguishedWithoutUniqueIDsOrIndexes(t *testing.T) {
	for name, all := range map[string][]string{
		"without ids": {
			chunk(`{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}`, "null"), chunk(`{"tool_calls":[{"index":1,"function":{"name":"g","arguments":"[]"}}]}`, "null"),
			chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`, "tool_calls"),
		},
		"of one id": {
			chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"x","function":{"name":"g","arguments":"[]"}}]}`, "tool_calls"),
		},
		"of one index": {
			chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{}"}},{"index":0,"id":"y","function":{"name":"g","arguments":"[]"}}]}`, "tool_calls"),
		},
		"without indices": {
			chunk(`{"tool_calls":[{"id":"x","function":{"name":"f","arguments":"{"}}]}`, "null"), chunk(`{"tool_calls":[{"function":{"arguments":"}"}},{"id":"y","function":{"name":"g","arguments":"[]"}}]}`, "tool_calls"),
		},
		"with everything again and again": {
			chunk(`{"tool_calls":[{"index":0,"id":"x","type":"function","function":{"name":"f","arguments":"{"}}]}`, "null"), chunk(`{"tool_calls":[{"index":0,"id":"x","type":"function","function":{"name":"f","arguments":"}"}},{"index":1,"id":"y","function":{"name":"g","arguments":"[]"}}]}`, "tool_calls"),
		},
	} {
		text, err := feed(t, append(all, end)...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		events := receivedEvents(t, text)
		checkEvents(t, events)
		output := member[[]jsontext.Value](t, member[jsontext.Value](t, events[len(events)-1].data, "response"), "output")
		if len(output) != 2 || member[string](t, output[0], "call_id") == member[string](t, output[1], "call_id") {
			t.Fatalf("%s: %s", name, output)
		}
		for i, want := range []string{"f{}", "g[]"} {
			if got := member[string](t, output[i], "name") + member[string](t, output[i], "arguments"); got != want {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
}

func quoted(text string) string {
	b, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestOnlyTheLastItemOfATruncatedAnswerIsIncomplete(t *testing.T) {
	text, err := feed(t, chunk(`{"content":"a"}`, "null"), chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"y","function":{"name":"g","arguments":"{"}}]}`, "length"), end)
	if err != nil {
		t.Fatal(err)
	}
	all := receivedEvents(t, text)
	for i, item := range member[[]jsontext.Value](t, member[jsontext.Value](t, all[len(all)-1].data, "response"), "output") {
		if got, want := member[string](t, item, "status"), []string{"completed", "completed", "incomplete"}[i]; got != want {
			t.Errorf("item %d is %s", i, got)
		}
	}
}

func TestCallsOfACompleteAnswerAreNotMerged(t *testing.T) {
	call := `{"index":0,"function":{"name":"f","arguments":"{}"}}`
	text, err := translateAnswer(fullRequest, completion(`{"tool_calls":[`+call+`,`+call+`]}`, "tool_calls", spent))
	if err != nil {
		t.Fatal(err)
	}
	if output := member[[]jsontext.Value](t, []byte(text), "output"); len(output) != 2 {
		t.Errorf("%s", output)
	}
}

func TestASignatureIsMatchedToItsCallByID(t *testing.T) {
	text, err := translateAnswer(fullRequest, recordings["parallel tools, interleaved"].whole)
	if err != nil {
		t.Fatal(err)
	}
	output := member[[]jsontext.Value](t, []byte(text), "output")
	words, first, second, signature := string(output[0]), string(output[1]), string(output[2]), string(output[3])
	const answers = `{"type":"function_call_output","call_id":"call_a","output":"1"}`
	for _, order := range [][]string{
		{words, first, second, signature}, {signature, words, first, second}, {first, signature, second}, {second, first, answers, signature},
	} {
		wire := string(translate(t, `{"model":"m","input":[`+strings.Join(order, ",")+`]}`))
		if !strings.Contains(wire, `{"id":"call_a","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Bern\"}"},"extra_content":{"google":{"thought_signature":"gsig"}}}`) || strings.Count(wire, "gsig") != 1 {
			t.Errorf("%s", wire)
		}
	}
}

func TestReasoningIsReadUnderBothNames(t *testing.T) {
	for delta, want := range map[string]int{
		`{"reasoning":"hm"}`: 1, `{"reasoning_content":"hm"}`: 1, `{"reasoning":"hm","reasoning_content":"hm"}`: 1,
		`{"reasoning":null,"reasoning_details":[]}`: 0, `{"reasoning":{"effort":"low"}}`: 0,
	} {
		text, err := feed(t, chunk(delta, "null"), chunk(`{"content":"a"}`, "stop"), end)
		if got := strings.Count(text, `"delta":"hm"`); err != nil || got != want {
			t.Errorf("%s: %v, %d times", delta, err, got)
		}
	}
}
