package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"sovereign/internal/base/money"
	"sovereign/internal/live"
	"sovereign/internal/wire/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var simProvider = &live.Provider{Name: "sim", Protocol: live.Sim}

// model returns a built-in model.
func model(id string) *live.Model {
	for _, m := range Models(simProvider) {
		if m.ID == id {
			return m
		}
	}
	panic("no model " + id)
}

var pathOf = map[live.Kind]string{live.Chat: "/chat/completions", live.Embedding: "/embeddings"}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// send sends a body to m and reads the answer; the error is that of the body.
func send(t fataler, p upstream.Sender, m *live.Model, body string) (*upstream.Response, string, error) {
	t.Helper()
	half := len(body) / 2 // bodies are passed in several parts
	r := &upstream.Request{Model: m, Path: pathOf[m.Kind], Body: [][]byte{[]byte(body[:half]), []byte(body[half:])}}
	response, err := p.Send(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

// ask returns the answer, which must have status 200.
func ask(t fataler, id, body string) string {
	t.Helper()
	response, text, err := send(t, New(), model(id), body)
	if response.Status != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s, %v", body, response.Status, text, err)
	}
	return text
}

// clientAnswer is an answer as a client reads it.
type clientAnswer struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []clientChoice `json:"choices"`
	Usage   *usage         `json:"usage"`
}

type clientChoice struct {
	Index   int       `json:"index"`
	Message assistant `json:"message"`
	Finish  string    `json:"finish_reason"`
}

func (h clientAnswer) text() string { return *h.Choices[0].Message.Content }

func askChat(t fataler, id, body string) clientAnswer {
	t.Helper()
	return parse[clientAnswer](t, ask(t, id, body))
}

func parse[T any](t fataler, text string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// chatWith returns a chat request with further members.
func chatWith(fields string) string { return chatBody("Why is the sky blue?", fields) }

func chatBody(text, fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"model":"m","messages":[{"role":"user","content":` + string(encode(text)) + `}]` + fields + `}`
}

func TestAnAnswerSaysThatItIsSimulatedAndQuotesTheQuestion(t *testing.T) {
	h := askChat(t, "sim/chat", chatWith(""))
	if !strings.HasPrefix(h.text(), `Simulated answer of sim/chat to "Why is the sky blue?": `) || h.Choices[0].Finish != "stop" {
		t.Errorf("%q, %s", h.text(), h.Choices[0].Finish)
	}
	if h.Model != "sim/chat" || h.Object != "chat.completion" || h.Created != 1767225600 || !strings.HasPrefix(h.ID, "chatcmpl-sim-") {
		t.Errorf("%+v", h)
	}
	if want := (usage{Prompt: 6, Completion: tokens(len(h.text())), Total: 6 + tokens(len(h.text()))}); *h.Usage != want {
		t.Errorf("usage %+v, want %+v", *h.Usage, want)
	}
}

func TestTheSameRequestHasTheSameAnswerAtAnySpeed(t *testing.T) {
	for _, fields := range []string{`"n":3`, `"reasoning_effort":"low"`, `"response_format":{"type":"json_object"}`} {
		first := ask(t, "sim/chat", chatWith(fields))
		if again := ask(t, "sim/chat", chatWith(fields)); again != first {
			t.Errorf("%s: another answer:\n%s\n%s", fields, first, again)
		}
		if paced := ask(t, "sim/chat", chatWith(fields+`,"temperature":1.5,"sim":{"latency_ms":2,"chunk_ms":3,"chunks":4,"fail_after":1}`)); paced != first {
			t.Errorf("%s: the pace changed the answer:\n%s\n%s", fields, first, paced)
		}
	}
	others := map[string]string{
		"another seed":     ask(t, "sim/chat", chatWith(`"sim":{"seed":1}`)),
		"the API's seed":   ask(t, "sim/chat", chatWith(`"seed":1`)),
		"another model":    ask(t, "sim/chat-large", chatWith("")),
		"another question": ask(t, "sim/chat", chatBody("Why is the sky blue", "")),
		"none of these":    ask(t, "sim/chat", chatWith("")),
	}
	seen := map[string]string{}
	for name, text := range others {
		var h clientAnswer
		_ = json.Unmarshal([]byte(text), &h)
		_, prose, _ := strings.Cut(h.text(), "blue")
		if twin := seen[prose]; twin != "" {
			t.Errorf("%s and %s have the same answer: %q", name, twin, prose)
		}
		seen[prose] = name
	}
}

func TestNoAnswerIsLongerThanAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		question := rapid.String().Draw(t, "question")
		limit := rapid.IntRange(1, 60).Draw(t, "limit")
		n := rapid.IntRange(1, 3).Draw(t, "n")
		fields := fmt.Sprintf(`"n":%d,"stream_options":null,"sim":{"seed":%d}`, n, rapid.IntRange(0, 9).Draw(t, "seed"))
		for _, extra := range []string{"", `,"reasoning_effort":"medium"`, `,"response_format":{"type":"json_object"}`} {
			full := askChat(t, "sim/chat", chatBody(question, fields))
			bound := rapid.SampledFrom([]string{"max_tokens", "max_completion_tokens"}).Draw(t, "bound")
			h := askChat(t, "sim/chat", chatBody(question, fmt.Sprintf(`%s%s,"%s":%d`, fields, extra, bound, limit)))
			var counted int64
			for i, c := range h.Choices {
				spoken, thought := tokens(len(*c.Message.Content)), tokens(len(c.Message.Reasoning))
				counted += spoken + thought
				if spoken+thought > int64(limit) || thought > int64(limit+1)/2 || (thought == 0) == strings.Contains(extra, "effort") {
					t.Fatalf("%d tokens and %d of thought, of %d", spoken, thought, limit)
				}
				if extra == "" && !strings.HasPrefix(*full.Choices[i].Message.Content, *c.Message.Content) {
					t.Fatalf("%q is not the beginning of %q", *c.Message.Content, *full.Choices[i].Message.Content)
				}
				if extra == "" && (c.Finish == "length") != (len(*c.Message.Content) < len(*full.Choices[i].Message.Content)) {
					t.Fatalf("%s: %q of %q", c.Finish, *c.Message.Content, *full.Choices[i].Message.Content)
				}
			}
			if h.Usage.Completion != counted || len(h.Choices) != n {
				t.Fatalf("%d choices with %d tokens, told %d", len(h.Choices), counted, h.Usage.Completion)
			}
		}
	})
}

func TestAModelsMaximumBoundsItsAnswers(t *testing.T) {
	m := *model("sim/chat")
	m.MaxOutput = 5
	_, text, _ := send(t, New(), &m, chatWith(`"max_tokens":100`))
	if h := parse[clientAnswer](t, text); h.Usage.Completion != 5 || h.Choices[0].Finish != "length" {
		t.Errorf("%+v", h)
	}
}

func TestAnAnswerHasExactlyTheTokensThatAreAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		question, want := rapid.String().Draw(t, "question"), rapid.Int64Range(1, 400).Draw(t, "tokens")
		h := askChat(t, "sim/chat", chatBody(question, fmt.Sprintf(`"sim":{"tokens":%d}`, want)))
		if h.Usage.Completion != want || h.Choices[0].Finish != "stop" {
			t.Fatalf("%d tokens, not %d: %q", h.Usage.Completion, want, h.text())
		}
		if marked := strings.HasSuffix(h.text(), "]"); marked != (want >= 9) {
			t.Fatalf("%d tokens: %q", want, h.text())
		}
	})
}

func TestAnAnswerEndsBeforeAStopSequence(t *testing.T) {
	full := askChat(t, "sim/chat", chatWith("")).text()
	for stop, before := range map[string]string{`"blue"`: "blue", `["nowhere","blue","sky b"]`: "sky b", `["sky blue?","","blue"]`: "blue"} {
		h := askChat(t, "sim/chat", chatWith(`"stop":`+stop))
		want, _, _ := strings.Cut(full, before)
		if h.text() != want || h.Choices[0].Finish != "stop" {
			t.Errorf("stop %s: %q", stop, h.text())
		}
	}
}

func TestQualityIsTheMeanAndTheShareOfGoodAnswers(t *testing.T) {
	const n = 1000
	for _, want := range []float64{0, 0.2, 0.5, 0.8, 0.95, 1} {
		var sum, goods float64
		for i := range n {
			h := askChat(t, "sim/chat", chatBody("What?", fmt.Sprintf(`"sim":{"seed":%d,"quality":%v}`, i, want)))
			at := strings.LastIndex(h.text(), markerStart)
			var q float64
			if _, err := fmt.Sscanf(h.text()[at:], markerStart+"%f]", &q); err != nil {
				t.Fatal(err)
			}
			sum += q
			if isGood(h.text()) {
				goods++
			}
		}
		if mean := sum / n; mean < want-0.05 || mean > want+0.05 {
			t.Errorf("quality %v: the mean is %v", want, mean)
		}
		if share := goods / n; share < want-0.05 || share > want+0.05 {
			t.Errorf("quality %v: %v are good", want, share)
		}
	}
}

func TestUsageFollowsTheSimField(t *testing.T) {
	counted := *askChat(t, "sim/chat", chatWith("")).Usage
	for told, want := range map[string]*usage{
		`"normal"`: &counted,
		`"none"`:   nil,
		`"zero"`:   {},
		`{"prompt_tokens":7,"completion_tokens":9,"cached_tokens":3}`: {Prompt: 7, Completion: 9, Total: 16, PromptDetails: promptDetails{3}},
		`{"cached_tokens":2,"prompt_tokens":null}`:                    {Prompt: counted.Prompt, Completion: counted.Completion, Total: counted.Total, PromptDetails: promptDetails{2}},
		`{"prompt_tokens":0}`:                                         {Completion: counted.Completion, Total: counted.Completion},
	} {
		h := askChat(t, "sim/chat", chatWith(`"sim":{"usage":`+told+`}`))
		if diff := cmp.Diff(want, h.Usage); diff != "" {
			t.Errorf("%s: %s", told, diff)
		}
		text := ask(t, "sim/chat", chatWith(`"stream":true,"stream_options":{"include_usage":true},"sim":{"usage":`+told+`}`))
		if (want == nil) == strings.Contains(text, "usage") {
			t.Errorf("%s, streamed: %s", told, text)
		}
		streamed := readStream(t, text)
		if diff := cmp.Diff(want, streamed.Usage); diff != "" {
			t.Errorf("%s, streamed: %s", told, diff)
		}
	}
}

func TestPromptTokensAreCounted(t *testing.T) {
	for messages, want := range map[string]int64{
		`{"role":"user","content":""}`:                                              1,
		`{"role":"user","content":"12345678"}`:                                      3,
		`{"role":"user","content":"12345678"},{"role":"user","content":"12345678"}`: 6,
		`{"role":"user","content":[{"type":"text","text":"1234"},{"type":"image_url","image_url":{}},{"type":"text","text":"5678"}]}`: 3 + 85,
		`{"role":"assistant","tool_calls":[{"id":"x","type":"function","function":{"name":"1234567","arguments":"12345678"}}]}`:       6,
	} {
		if h := askChat(t, "sim/chat", `{"model":"m","messages":[`+messages+`]}`); h.Usage.Prompt != want {
			t.Errorf("%s: %d, not %d", messages, h.Usage.Prompt, want)
		}
	}
}

func TestEffortShowsAsReasoningThatIsPartOfTheOutput(t *testing.T) {
	for effort, want := range efforts {
		h := askChat(t, "sim/chat", chatWith(`"reasoning_effort":"`+effort+`"`))
		thought, m := h.Usage.CompletionDetails.Reasoning, h.Choices[0].Message
		if thought != want || thought != tokens(len(m.Reasoning)) || h.Usage.Completion != thought+tokens(len(*m.Content)) {
			t.Errorf("%s: %+v for %q", effort, *h.Usage, m.Reasoning)
		}
	}
}

func TestARequestFailsAsTheSimFieldSays(t *testing.T) {
	for fail, want := range statusErrors {
		for id, body := range map[string]string{"sim/chat": chatWith(`"stream":true,"sim":{"fail":"` + fail + `"}`), "sim/embedding": `{"model":"m","input":"x","sim":{"fail":"` + fail + `"}}`} {
			response, text, err := send(t, New(), model(id), body)
			if err != nil || "status_"+strconv.Itoa(response.Status) != fail || response.ContentType != jsonType || response.RetryAfter != want.retryAfter {
				t.Errorf("%s: %+v, %v", fail, response, err)
			}
			if e := envelope(t, text); e.Message == "" || e.Type == "" {
				t.Errorf("%s: %s", fail, text)
			}
		}
	}
	for id, body := range map[string]string{"sim/chat": chatWith(`"sim":{"fail":"%s"}`), "sim/embedding": `{"model":"m","input":"x","sim":{"fail":"%s"}}`} {
		whole := ask(t, id, strings.Replace(body, "%s", "", 1))
		response, text, err := send(t, New(), model(id), fmt.Sprintf(body, die))
		if response.Status != http.StatusOK || !errors.Is(err, io.ErrUnexpectedEOF) || text == "" || !strings.HasPrefix(whole, text) || text == whole {
			t.Errorf("%s, die: %d %q, %v", id, response.Status, text, err)
		}
		response, text, err = send(t, New(), model(id), fmt.Sprintf(body, garbage))
		if response.Status != http.StatusOK || err != nil || jsontext.Value(text).IsValid() {
			t.Errorf("%s, garbage: %d %q, %v", id, response.Status, text, err)
		}
		response, text, err = send(t, New(), model(id), fmt.Sprintf(body, errorEvent))
		if response.Status != http.StatusOK || err != nil || envelope(t, text).Type != serverError {
			t.Errorf("%s, error: %d %q, %v", id, response.Status, text, err)
		}
	}
}

type inner struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// envelope decodes an error answer.
func envelope(t fataler, text string) inner {
	t.Helper()
	var out struct {
		Error inner `json:"error"`
	}
	if err := json.Unmarshal([]byte(text), &out, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out.Error
}

func TestErrorsOccurAtTheirRateAndARetryCanSucceed(t *testing.T) {
	const n = 4000
	runs := [3][n]bool{}
	for run, body := range []string{chatWith(""), chatWith(""), chatBody("Another question", "")} {
		p, m := New(), model("sim/flaky")
		for i := range n {
			response, text, err := send(t, p, m, body)
			if err != nil || (response.Status != http.StatusOK && response.Status != http.StatusServiceUnavailable) {
				t.Fatal(response.Status, text, err)
			}
			runs[run][i] = response.Status == http.StatusOK
		}
	}
	if runs[0] != runs[1] {
		t.Error("after a new start the failures are others")
	}
	if runs[0] == runs[2] {
		t.Error("every question fails at the same time")
	}
	failed, recovered := 0, false
	for i, ok := range runs[0] {
		if !ok {
			failed++
		}
		recovered = recovered || i > 0 && ok && !runs[0][i-1]
	}
	if share := float64(failed) / n; share < 0.26 || share > 0.34 || !recovered {
		t.Errorf("%v failed", share)
	}
	for rate, want := range map[string]int{"0": http.StatusOK, "1": http.StatusServiceUnavailable} {
		for range 50 {
			if response, _, _ := send(t, New(), model("sim/flaky"), chatWith(`"sim":{"error_rate":`+rate+`}`)); response.Status != want {
				t.Fatalf("a rate of %s: %d", rate, response.Status)
			}
		}
	}
}

func TestABehaviourIsTheDefaultOfARequest(t *testing.T) {
	m := *model("sim/chat")
	m.Behaviour = &live.Behaviour{Seed: 7, Chunks: 3, Quality: 1, LatencyMS: 5, ChunkMS: 5}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, text, _ := send(t, New(), &m, chatWith(`"stream":true`))
		took := time.Since(start)
		if l := readStream(t, text); l.deltas != 3 || !strings.HasSuffix(l.text(), "[sim quality=1.00]") || took != 15*time.Millisecond {
			t.Errorf("%d chunks in %s: %q", l.deltas, took, l.text())
		}
	})
	m.Behaviour = nil
	if response, text, err := send(t, New(), &m, chatWith("")); response.Status != http.StatusOK || err != nil {
		t.Errorf("without a behaviour: %s, %v", text, err)
	}
}

func TestTheBuiltInModelsArePriced(t *testing.T) {
	type row struct {
		kind                  live.Kind
		input, cached, output money.Rate
		window, most          int64
	}
	cents := func(n float64) money.Rate { return money.Rate(n * float64(money.Dollar) / 100) }
	want := map[string]row{
		"sim/chat":       {live.Chat, cents(15), cents(7.5), cents(60), 128000, 16384},
		"sim/flaky":      {live.Chat, cents(15), cents(7.5), cents(60), 128000, 16384},
		"sim/chat-large": {live.Chat, cents(250), cents(125), cents(1000), 128000, 16384},
		"sim/judge":      {live.Chat, cents(100), cents(50), cents(400), 128000, 16384},
		"sim/embedding":  {live.Embedding, cents(2), cents(2), 0, 8192, 0},
		"sim/rerank":     {live.Rerank, cents(5), cents(5), 0, 8192, 0},
	}
	for _, m := range Models(simProvider) {
		got := row{m.Kind, m.Price.Input, m.Price.CachedInput, m.Price.Output, m.ContextWindow, m.MaxOutput}
		if got != want[m.ID] || m.Provider != simProvider || m.Created == 0 || m.Behaviour == nil || m.Upstream != m.ID {
			t.Errorf("%s: %+v", m.ID, m)
		}
		delete(want, m.ID)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}
