package token

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func requestOf(t rapid.TB, texts ...string) []byte {
	t.Helper()
	request := struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
	}{Model: "m"}
	for i, text := range texts {
		request.Messages = append(request.Messages, message{[]string{"user", "assistant"}[i%2], text})
	}
	return marshal(t, request)
}

func marshal(t rapid.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// quote is text as a JSON string in which the characters that pick picks are written as \uXXXX.
func quote(text string, pick func() bool) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range text {
		switch {
		case !pick() && r >= ' ' && r != '"' && r != '\\':
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04X`, high, low)
		case r == '\n':
			out.WriteString(`\n`)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	out.WriteByte('"')
	return out.String()
}

// A template puts at most so many tokens around a message: Llama 3 needs five, with two line ends.
const template = 6

func TestABodyLiesBetweenItsBounds(t *testing.T) {
	all, texts := codecs(t), mixtures(t)
	rapid.Check(t, func(t *rapid.T) {
		messages := rapid.SliceOfN(texts, 1, 4).Draw(t, "messages")
		chat := requestOf(t, messages...)
		embeddings := marshal(t, map[string]any{"input": messages, "model": "m"})
		for _, codec := range all {
			var sum int64
			for _, text := range messages {
				sum += count(t, codec, text)
			}
			if got := Body(chat); got.Low > sum || got.High < sum+int64(template*len(messages)) {
				t.Fatalf("chat in %s: %d tokens in %d messages are not between %d and %d", codec.GetName(), sum, len(messages), got.Low, got.High)
			}
			if got := Body(embeddings); got.Low > sum || got.High < sum {
				t.Fatalf("embeddings in %s: %d tokens are not between %d and %d", codec.GetName(), sum, got.Low, got.High)
			}
		}
	})
}

func TestNeitherEscapesNorLayoutChangeTheBounds(t *testing.T) {
	texts := mixtures(t)
	rapid.Check(t, func(t *rapid.T) {
		text := texts.Draw(t, "text")
		plain := requestOf(t, text)
		want := Body(plain)
		indented := jsontext.Value(bytes.Clone(plain))
		if err := indented.Indent(); err != nil {
			t.Fatal(err)
		}
		if got := Body(indented); got != want {
			t.Fatalf("indented %v, compact %v", got, want)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		escaped := `{"model":"m","messages":[{"role":"user","content":` + quote(text, func() bool { return rng.IntN(2) == 0 }) + `}]}`
		if got := Body([]byte(escaped)); got != want {
			t.Fatalf("escaped %v, plain %v: %s", got, want, escaped)
		}
	})
}

func TestTheTextOfABodyIsBoundedAsThatText(t *testing.T) {
	for name, text := range files(t) {
		got, empty, alone := Body(requestOf(t, string(text))), Body(requestOf(t, "")), Text(text)
		if got.Low != alone.Low {
			t.Errorf("%s: Low is %d in a body and %d alone", name, got.Low, alone.Low)
		}
		if added := got.High - empty.High; added < alone.High*9/10-4 || added > alone.High*11/10+block {
			t.Errorf("%s adds %d to the High of a body, and is %d alone", name, added, alone.High)
		}
	}
}

func TestAMediumCountsAsItsAllowanceWhateverItsSize(t *testing.T) {
	bodies := map[string]string{
		"a picture":               `{"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s","detail":"high"}}]}]}`,
		"a remote picture":        `{"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"https://pictures.example/%s.png"}}]}]}`,
		"a sound":                 `{"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"input_audio","input_audio":{"data":"%s","format":"wav"}}]}]}`,
		"a document":              `{"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,%s"}}]}]}`,
		"an uploaded document":    `{"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"file","file":{"file_id":"file-%s"}}]}]}`,
		"a film":                  `{"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"video_url","video_url":{"url":"data:video/mp4;base64,%s"}}]}]}`,
		"a picture of responses":  `{"input":[{"role":"user","content":[{"type":"input_text","text":"What is this?"},{"type":"input_image","image_url":"data:image/jpeg;base64,%s"}]}]}`,
		"a document of responses": `{"input":[{"role":"user","content":[{"type":"input_text","text":"What is this?"},{"type":"input_file","file_url":"https://files.example/%s.pdf"}]}]}`,
		"a picture of the screen": `{"input":[{"role":"user","content":"What is this?"},{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,%s"}}]}`,
	}
	for name, body := range bodies {
		little, much := Body(fmt.Appendf(nil, body, "QUJD")), Body(fmt.Appendf(nil, body, strings.Repeat("QUJD", 100_000)))
		if little != much || little.Low != 3 || little.High < Medium || little.High > Medium+Preamble+150 {
			t.Errorf("%s: %v when small, %v when large", name, little, much)
		}
	}
}

func TestTwoMediaCountTwice(t *testing.T) {
	part := `{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}}`
	one, two := `{"messages":[{"role":"user","content":[`+part+`]}]}`, `{"messages":[{"role":"user","content":[`+part+`,`+part+`]}]}`
	if added := Body([]byte(two)).High - Body([]byte(one)).High; added < Medium || added > Medium+50 {
		t.Errorf("a second picture adds %d", added)
	}
}

// What is a medium by its look only is a text to the model, and would be free of charge if it were not counted.
func TestWhatLooksLikeAMediumElsewhereCountsAsText(t *testing.T) {
	url := "data:image/png;base64," + strings.Repeat("QUJDREVG", 2_000)
	bodies := map[string]string{
		"a message":             `{"messages":[{"role":"user","content":"%s"}]}`,
		"a text part":           `{"messages":[{"role":"user","content":[{"type":"text","text":"%s"}]}]}`,
		"an input":              `{"input":"%s"}`,
		"an input in a list":    `{"input":["%s"]}`,
		"arguments":             `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"%s"}}]}]}`,
		"a tool":                `{"tools":[{"type":"function","function":{"parameters":{"image_url":{"url":"%s"}}}}]}`,
		"a setting":             `{"metadata":{"image_url":"%s"}}`,
		"a name":                `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"%s":"url"}}]}]}`,
		"too deep":              `{"messages":[{"content":[{"image_url":{"image_url":{"image_url":{"url":"%s"}}}}]}]}`,
		"under another's name":  `{"a":{"messages":[{"content":[{"image_url":{"url":"%s"}}]}]}}`,
		"after a deeper object": `{"a":{"b":{"messages":[{"content":[{"c":{"d":{"e":1}},"image_url":{"url":"%s"}}]}]}}}`,
		"after a deeper list":   `{"a":{"b":[[[[[[[[1]]]]]]]],"messages":[{"content":[{"image_url":{"url":"%s"}}]}]}}`,
		"a list of addresses":   `{"messages":[{"content":[{"image_url":[{"url":1},"%s"]}]}]}`,
		"inside an address":     `{"messages":[{"content":[{"image_url":{"url":{"a":"%s"}}}]}]}`,
		"a page of a search":    `{"input":[{"type":"web_search_call","action":{"type":"open_page","url":"%s"}}]}`,
		"a citation":            `{"input":[{"content":[{"text":"","annotations":[{"url":"%s"}]}]}]}`,
	}
	for name, body := range bodies {
		if got := Body(fmt.Appendf(nil, body, url)); got.High < int64(len(url))*9/10 {
			t.Errorf("%s: %v for %d bytes", name, got, len(url))
		}
	}
}

func TestLowCountsNothingButPromptText(t *testing.T) {
	bodies := map[string]int64{
		`{"model":"one two","messages":[{"role":"user","name":"three four","content":"five six"}]}`:                         2,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"one two"},{"type":"other","note":"three"}]}]}`:       2,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"one two"}}]}]}`: 0,
		`{"tools":[{"function":{"description":"one two","parameters":{"content":"three","text":"four"}}}]}`:                 0,
		`{"metadata":{"content":"one","messages":[{"content":"two"}]},"user":"three"}`:                                      0,
		`{"input":"one two three"}`:                      3,
		`{"input":["one","two three"],"dimensions":256}`: 3,
		`{"input":[1,2,3]}`:                              0,
		`{"input":[[1,2],[3]]}`:                          0,
		`{"prompt":"one two"}`:                           2,
		`{"prompt":["one","two"]}`:                       2,
		`{"input":[{"role":"user","content":"one"},{"role":"user","content":[{"type":"input_text","text":"two"}]}],"instructions":"three"}`: 2,
		`{"messages":[{"content":"one\ntwo\tthree\u0020four \"five\""}]}`:                                                                   5,
		`{"messages":[{"content":{"text":"one"}},{"content":"two"}]}`:                                                                       1,
		`{"messages":"one","content":"two","text":"three"}`:                                                                                 0,
		`{"a":[[[[[[[[{"content":"one"}]]]]]]]],"messages":[{"content":"two"}]}`:                                                            1,
		`{"a":{"b":[[[[[[[[1]]]]]]]],"messages":[{"content":"one"}]}}`:                                                                      0,
		``: 0,
	}
	for body, want := range bodies {
		if got := Body([]byte(body)); got.Low != want {
			t.Errorf("%s: Low is %d, not %d", body, got.Low, want)
		}
	}
}

func TestNumbersOfAnInputAreCountedAtLeastOnceEach(t *testing.T) {
	body := `{"input":[` + strings.Repeat("7,", 999) + `7]}`
	if got := Body([]byte(body)); got.High < 1000 {
		t.Errorf("%v for 1000 tokens", got)
	}
}

func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"messages":[{"content":[{"text":"a\n\ud83d\ude00\ud83d \u00","image_url":{"url":"x"}}]}]}`))
	f.Add([]byte(`{"input":["\`))
	f.Add([]byte(`]]}}{"":[[[[[[[[[[{"a":"b"`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got := Body(body)
		media := int64(bytes.Count(body, []byte(`"`))/2) + 1
		if got.Low < 0 || got.Low > got.High || got.High > int64(len(body))+spare+Preamble+media*Medium {
			t.Fatalf("%v for %q", got, body)
		}
	})
}

// Most is what is held for a long body without measuring it: it must never be less.
func TestMostIsNoLowerThanHighWhereThereAreNoMedia(t *testing.T) {
	words := rapid.SampledFrom([]string{"hello", "wörld", "\\n", "\\u0041", "日本", "<|x|>", "a_b", "image", "_url", "\\\"", "{", "]", "12345", " "})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(words).Draw(t, "words"), rapid.SampledFrom([]string{"", " ", ","}).Draw(t, "between"))
		body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s"},{"role":"user","content":[{"type":"text","text":"%s"}]}],"tools":[{"%s":1}]}`, text, text, strings.Join(Media(), ""))
		if high, most := Body([]byte(body)).High, Most(len(body)); high > most {
			t.Fatalf("%s: %d, and at most %d", body, high, most)
		}
	})
	if len(Media()) != 6 {
		t.Errorf("%q are the names of media", Media())
	}
}
