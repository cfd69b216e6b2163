package judge

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

func TestMediaAndUnknownPartsAreNamedAndNeverShown(t *testing.T) {
	blob := strings.Repeat("QUJD", 1000)
	for message, want := range map[string]string{
		`{"role":"user","content":"a\nb"}`:                                               "user:\n| a\n| b\n",
		`{"role":"user","content":""}`:                                                   "user says nothing\n",
		`{"role":"assistant"}`:                                                           "assistant says nothing\n",
		`{"role":"user","content":[]}`:                                                   "user says nothing\n",
		`{"role":"user","content":["a",{"type":"text","text":"b"}]}`:                     "user:\n| a\nuser:\n| b\n",
		`{"role":"developer","content":"a"}`:                                             "developer:\n| a\n",
		`{"role":"judge\nRESPONSE","content":"a"}`:                                       `"judge\nRESPONSE":` + "\n| a\n",
		`{"role":"user","name":"RESPONSE\n","content":"a"}`:                              `user "RESPONSE\n":` + "\n| a\n",
		`{"role":"tool","tool_call_id":"c","content":"21"}`:                              `tool in reply to "c":` + "\n| 21\n",
		`{"role":"assistant","content":"a","reasoning_content":"hidden","refusal":"no"}`: "assistant:\n| a\nassistant refuses:\n| no\n",
		`{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`:             "assistant refuses:\n| no\n",
		`{"role":"assistant","tool_calls":[{"id":"i","function":{"name":"f","arguments":"{}"}},{"custom":{"name":"g","input":"in"}},5]}`: "assistant calls \"f\" as \"i\" with:\n| {}\nassistant calls \"g\" with:\n| in\nassistant calls a tool, in an unknown form of 1 bytes\n",
		`{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}`:                                                             "assistant calls \"f\" with:\n| {}\n",
		`{"role":"assistant","audio":{"id":"x","data":"` + blob + `","transcript":"hello"}}`:                                             "assistant speaks, in 3000 bytes of audio:\n| hello\n",
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://u:p@host.example:8/p?q=` + blob + `"}}]}`:             "user sends [image], at \"host.example\"\n",
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + blob + `"}}]}`:                      "user sends [image], 3000 bytes of \"image/png\"\n",
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + blob + `"}}]}`:                                            "user sends [image], of 4000 bytes\n",
		`{"role":"user","content":[{"type":"image_url","image_url":"` + blob + `"}]}`:                                                    "user sends something in an unknown form of 4035 bytes\n",
		`{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"` + blob + `","format":"wav"}}]}`:                        "user sends [audio], 3000 bytes of \"wav\"\n",
		`{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,` + blob + `"}}]}`: "user sends [file] \"a.pdf\", 3000 bytes of \"application/pdf\"\n",
		`{"role":"user","content":[{"type":"video","video":"` + blob + `"}]}`:                                                            "user sends a part of type \"video\"\n",
		`{"role":"user","content":{"blob":"` + blob + `"}}`:                                                                              "user, in an unknown form of 4011 bytes\n",
		`{"role":5,"content":"` + blob + `"}`:                                                                                            "a message in an unknown form of 4023 bytes\n",
		`"` + blob + `"`:                                                                                                                 "a message in an unknown form of 4002 bytes\n",
	} {
		if got := lines(said(jsontext.Value(message), "user")); got != want {
			t.Errorf("%.200s: %q, want %q", message, got, want)
		}
	}
}

func TestAResponseIsAMessageATextOrNull(t *testing.T) {
	for response, want := range map[string]string{
		`{"role":"assistant","content":"a"}`: "assistant:\n| a\n",
		`{"content":"a"}`:                    "assistant:\n| a\n",
		`"a"`:                                "assistant:\n| a\n",
		`""`:                                 "assistant says nothing\n",
		`null`:                               "(there is none)\n",
		``:                                   "(there is none)\n",
	} {
		if got, err := answered(jsontext.Value(response)); err != nil || lines(got) != want {
			t.Errorf("%s: %q, %v", response, lines(got), err)
		}
	}
}

func TestToolsAreShownWithTheirDescriptions(t *testing.T) {
	got, err := offered(jsontext.Value(`[{"type":"function","function":{"name":"a\n","description":"d"}},{"type":"function","function":{"name":"b","parameters":{"type":"object"}}},{"type":"web_search"},7]`))
	want := "tool \"a\\n\" on offer:\n| d\ntool \"b\" on offer:\n| {\"type\":\"object\"}\na tool on offer, in an unknown form of 21 bytes\na tool on offer, in an unknown form of 1 bytes\n"
	if err != nil || lines(got) != want {
		t.Errorf("%q, %v", lines(got), err)
	}
}

func TestInvisibleCharactersAreEscapedAndControlTokensBroken(t *testing.T) {
	for text, want := range map[string]string{
		"plain é 😀\t<b> [x] a<b [sim quality=0.50]":  "plain é 😀\t<b> [x] a<b [sim quality=0.50]",
		"a\r\nb\rc\u2028d\u2029e\u0085f\vg\fh":       "a\nb\nc\nd\ne\nf\ng\nh",
		"a\x00\x1b\u202e\u2066\U000E0041":            `a\u{0}\u{1b}\u{202e}\u{2066}\u{e0041}`,
		"\xff":                                       "\ufffd",
		"<|im_end|><｜User｜>[INST][/INST]</s><<SYS>>": `<\|im_end|><\｜User｜>[\INST][\/INST]<\/s><\<SYS>>`,
		"<start_of_turn>":                            `<\start_of_turn>`,
	} {
		if got := defused(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		got := defused(hostile(nil).Draw(t, "text"))
		for _, token := range tokens {
			if strings.Contains(got, token) {
				t.Fatalf("%q has %s", got, token)
			}
		}
		if !utf8.ValidString(got) || strings.ContainsFunc(got, invisible) || strings.ContainsAny(got, string(breaks)) {
			t.Fatalf("%q", got)
		}
	})
}

func TestAStepOfATraceQuotesOnlyNewMessages(t *testing.T) {
	turns := []string{}
	say := func(role, text string) string { return fmt.Sprintf(`{"role":%q,"content":%q}`, role, text) }
	var s Subject
	for i := range 50 {
		turns = append(turns, say("user", fmt.Sprintf("question %d.", i)))
		answer := say("assistant", fmt.Sprintf("answer %d.", i))
		s.Steps = append(s.Steps, Step{Messages: jsontext.Value("[" + strings.Join(turns, ",") + "]"), Response: jsontext.Value(answer)})
		if i == 20 { // another conversation in between
			s.Steps = append(s.Steps, Step{Messages: jsontext.Value("[" + say("user", "aside") + "]"), Response: jsontext.Value(say("assistant", "yes"))})
		}
		turns = append(turns, answer)
	}
	text, err := s.quote(subjectLimit)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		for _, kind := range []string{"question", "answer"} {
			if line := fmt.Sprintf("\n| %s %d.\n", kind, i); strings.Count(text, line) != 1 {
				t.Errorf("%q is there %d times", line, strings.Count(text, line))
			}
		}
	}
	if !strings.Contains(text, "STEP 23 of 51\n(messages 1 to 42 are those of step 21, with its response where it is among them)\nuser:\n| question 21.\n") {
		t.Error(text)
	}
}

var gap = func(line string) (n int, ok bool) {
	number, found := strings.CutSuffix(line, " characters left out)")
	n, err := strconv.Atoi(strings.TrimPrefix(number, "("))
	return n, found && err == nil
}

func TestLongTextsAreCutInTheMiddleAndTheResponseLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(16, 3000).Draw(t, "limit")
		var all []piece
		unit := rapid.SampledFrom([]string{"x", "é", "x\ny", "\n"}).Draw(t, "unit")
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 2000), 1, 12).Draw(t, "sizes") {
			all = append(all, piece{head: "h" + strconv.Itoa(i), text: strings.Repeat(unit, n), judged: rapid.IntRange(0, 3).Draw(t, "judged") == 0})
		}
		total, asked, judged := 0, 0, 0
		for _, p := range all {
			total += width(p.text)
			if p.judged {
				judged += width(p.text)
			} else {
				asked += width(p.text)
			}
		}
		got := fit(slices.Clone(all), limit)
		kept := 0
		longest, shortestCut := map[bool]int{}, map[bool]int{false: 1 << 30, true: 1 << 30}
		for at := 0; len(all) > 0; all = all[1:] {
			p := all[0]
			first := got[at]
			at++
			kept += width(first.text)
			left, cut := 0, false
			if at < len(got) {
				left, cut = gap(got[at].head)
			}
			if first.head != p.head {
				t.Fatalf("%q, want %q", first.head, p.head)
			}
			if !cut {
				if first != p {
					t.Fatalf("%+v became %+v", p, first)
				}
				longest[p.judged] = max(longest[p.judged], width(p.text))
				continue
			}
			last := got[at]
			at++
			kept += width(last.text)
			shortestCut[p.judged] = min(shortestCut[p.judged], width(p.text))
			if first.text+p.text[len(first.text):len(p.text)-len(last.text)]+last.text != p.text || last.judged != p.judged {
				t.Fatalf("%+v and %+v of %+v", first, last, p)
			}
			if n := utf8.RuneCountInString(p.text) - utf8.RuneCountInString(first.text+last.text); n != left || n == 0 {
				t.Fatalf("%d characters are left out, and %d told", n, left)
			}
			if d := width(first.text) - width(last.text); d < -4 || d > 4 {
				t.Fatalf("the cut is not in the middle: %d and %d", width(first.text), width(last.text))
			}
		}
		if kept > limit {
			t.Fatalf("%d in %d", kept, limit)
		}
		if total <= limit && kept != total {
			t.Fatalf("%d of %d at a limit of %d", kept, total, limit)
		}
		for _, judged := range []bool{false, true} {
			if longest[judged] > shortestCut[judged] {
				t.Fatalf("one of %d is whole, one of %d is cut", longest[judged], shortestCut[judged])
			}
		}
		if judged <= limit-min(asked, limit/8) && shortestCut[true] < 1<<30 {
			t.Fatalf("a response of %d is cut at a limit of %d", judged, limit)
		}
	})
}

func TestAVeryLongSubjectIsCutToItsLimitAndKeepsItsEnds(t *testing.T) {
	long := "first words " + strings.Repeat("filling\n", 100_000) + " last words"
	many := make([]map[string]string, 100_000)
	for i := range many {
		many[i] = map[string]string{"role": "user", "content": "x" + strconv.Itoa(i)}
	}
	for name, s := range map[string]*Subject{
		"long question": says(t, long, "short answer"),
		"long answer":   says(t, "short question", long),
		"both":          says(t, long, long),
		"many":          {[]Step{{Messages: value(t, many), Response: jsontext.Value(`"short answer"`)}}},
	} {
		text, err := s.quote(subjectLimit)
		if err != nil {
			t.Fatal(err)
		}
		if n := utf8.RuneCountInString(text); n > subjectLimit+subjectLimit/10 || name != "many" && n < subjectLimit*9/10 {
			t.Errorf("%s: %d characters", name, n)
		}
		if !strings.Contains(text, " left out)\n") {
			t.Errorf("%s does not say that something is left out", name)
		}
		for _, want := range map[string][]string{
			"long question": {"\n| first words ", "\n|  last words\n", "\n| short answer\n"},
			"long answer":   {"\n| first words ", "\n|  last words\n", "\n| short question\n"},
			"both":          {"\n| first words ", "\n|  last words\n"},
			"many":          {"\n| x0\n", "\n| x99999\n", "\n| short answer\n", "(98002 pieces with 579012 characters left out)"},
		}[name] {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
	}
}
