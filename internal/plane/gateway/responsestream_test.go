package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/secret"
	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/request"
)

func native() *live.Model {
	return model("m", at(live.Provider{Name: "p", Configured: true, Responses: true}))
}

// answered is a stream of the Responses API as OpenAI sends it.
const answered = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\",\"usage\":null}}\n\n" +
	"event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,\"item\":{\"id\":\"msg_1\",\"type\":\"message\"}}\n\n" +
	"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":2,\"delta\":\"one two\"}\n\n" +
	"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":3,\"delta\":\" three\"}\n\n" +
	"event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":4,\"response\":{\"id\":\"resp_1\",\"status\":\"completed\",\"usage\":{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":5,\"output_tokens_details\":{\"reasoning_tokens\":1}}}}\n\n"

func respond(b *bench, body string) (text string, err error) {
	w, err := b.askFrom(context.Background(), request.Responses, body)
	return w.Body.String(), err
}

const responding = `{"model":"m","input":"hi","stream":true}`

func TestAResponsesStreamReachesTheCallerToTheByteWhereverItIsCut(t *testing.T) {
	b := newBench(t, native())
	for at := range len(answered) {
		b.answer = events(&cut{[][]byte{[]byte(answered[:at]), []byte(answered[at:])}})
		got, err := respond(b, responding)
		if err != nil || got != answered {
			t.Fatalf("cut at %d: %v\n%s", at, err, got)
		}
		if e := b.settled(); e.Usage != (live.Usage{Input: 10, Cached: 4, Output: 5, Reasoning: 1}) || e.Outcome != string(outcome.Finished) || e.Route != "responses" {
			t.Fatalf("cut at %d: %+v", at, e)
		}
	}
}

func TestAResponsesStreamThatBreaksOffEndsWithItsOwnErrorEvent(t *testing.T) {
	b := newBench(t, native())
	first := endOf(answered, "one two")
	for at := range len(answered) {
		before, entries := b.funds.Balance(home).Spent, len(b.entries())
		b.answer = events(strings.NewReader(answered[:at]))
		got, err := respond(b, responding)
		spent := b.funds.Balance(home).Spent - before
		switch {
		case at < first:
			if f := fault.From(err); f == nil || f.Status != http.StatusBadGateway || spent != 0 || len(b.entries()) != entries || got != "" {
				t.Fatalf("cut at %d: %v, $%s, %s", at, err, spent, got)
			}
		default:
			if err != nil || !strings.Contains(got, "event: error\ndata: {\"type\":\"error\",\"code\":\"upstream_error\",\"message\":") || strings.Contains(got, "response.completed") || strings.Contains(got, "[DONE]") {
				t.Fatalf("cut at %d: %v\n%s", at, err, got)
			}
			if e := b.settled(); e.Outcome != string(outcome.Died) || !e.Counted || e.Usage.Output < 2 || spent == 0 {
				t.Fatalf("cut at %d: %+v", at, e)
			}
		}
	}
}

func TestAnErrorInAResponsesStreamIsNoAnswer(t *testing.T) {
	b := newBench(t, native())
	for text, status := range map[string]int{
		"event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"down\",\"sequence_number\":0}\n\n":                                                http.StatusBadGateway,
		"event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"slow\",\"sequence_number\":0}\n\n":                                         http.StatusTooManyRequests,
		"event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"down\"}}}\n\n": http.StatusBadGateway,
	} {
		b.answer = events(strings.NewReader(text))
		if _, err := respond(b, responding); fault.From(err) == nil || fault.From(err).Status != status {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAWholeResponseIsChargedAsReportedOrCounted(t *testing.T) {
	b := newBench(t, native())
	b.answer = whole(`{"id":"resp_1","object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"one two three"}]},{"type":"function_call","name":"f","arguments":"{}"}],"usage":{"input_tokens":7,"output_tokens":3}}`)
	if _, err := respond(b, `{"model":"m","input":"hi"}`); err != nil || b.settled().Usage != (live.Usage{Input: 7, Output: 3}) {
		t.Errorf("%v %+v", err, b.settled())
	}
	b.answer = whole(`{"id":"resp_1","object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"one two three"}]}],"usage":null}`)
	if _, err := respond(b, `{"model":"m","instructions":"be brief","input":"hi"}`); err != nil || b.settled().Usage.Output != 3 || b.settled().Usage.Input < 3 || !b.settled().Counted {
		t.Errorf("%v %+v", err, b.settled())
	}
	b.answer = whole(`{"id":"resp_1","object":"response","status":"failed","error":{"code":"server_error","message":"down"},"output":[]}`)
	if _, err := respond(b, `{"model":"m","input":"hi"}`); fault.From(err) == nil || fault.From(err).Status != http.StatusBadGateway {
		t.Errorf("%v", err)
	}
}

// What is stored under the server's key may be another workspace's, what a provider runs itself has a price that no
// hold covers, and a later answer could not be charged.
func TestWhatNoHoldCoversNeedsAnOwnKey(t *testing.T) {
	for field, body := range map[string]string{
		"previous_response_id": `{"model":"m","input":"hi","previous_response_id":"resp_1"}`,
		"conversation":         `{"model":"m","input":"hi","conversation":"conv_1"}`,
		"prompt":               `{"model":"m","input":"hi","prompt":{"id":"pmpt_1"}}`,
		"tools[1].type":        `{"model":"m","input":"hi","tools":[{"type":"function","name":"f"},{"type":"web_search"}]}`,
		"service_tier":         `{"model":"m","input":"hi","service_tier":"priority"}`,
	} {
		b := newBench(t, native())
		b.answer = whole(`{"output":[],"usage":{"input_tokens":1,"output_tokens":1}}`)
		_, err := respond(b, body)
		if f := fault.From(err); f == nil || f.Kind != fault.UnsupportedParameter || f.Field != field || len(b.sent) != 0 {
			t.Errorf("%s: %v", field, err)
		}
		b.Keys.Put(home, "p", &live.OwnKey{Key: secret.New("k")})
		if _, err := respond(b, body); err != nil {
			t.Errorf("%s, with an own key: %v", field, err)
		}
	}
	b := newBench(t, native())
	if _, err := respond(b, `{"model":"m","input":"hi","background":true}`); fault.From(err) == nil || fault.From(err).Field != "background" {
		t.Errorf("%v", err)
	}
}
