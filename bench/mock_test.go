package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// raiseMock is a mock that runs here, and its address.
func raiseMock(t *testing.T) (*mock, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	m := newMock()
	go func() { _ = m.serve(l) }()
	return m, l.Addr().String()
}

func TestTheMockSpeaksHTTP(t *testing.T) {
	m, address := raiseMock(t)
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	const body = `{"model":"m","messages":[]}`
	for i, how := range []struct {
		body   io.Reader
		expect bool
	}{
		{body: strings.NewReader(body)},
		{body: io.MultiReader(strings.NewReader(body[:10]), strings.NewReader(body[10:]))}, // of unknown length: chunked
		{body: strings.NewReader(body), expect: true},
	} {
		request, err := http.NewRequest(http.MethodPost, "http://"+address+"/v1/chat/completions", how.body)
		if err != nil {
			t.Fatal(err)
		}
		if how.expect {
			request.Header.Set("Expect", "100-continue")
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), "MOCK-OK") {
			t.Errorf("%d: %s %v: %s", i, response.Status, err, text)
		}
		if got := m.requests.Load(); got != int64(i+1) {
			t.Errorf("%d requests were counted, want %d", got, i+1)
		}
	}
	for path, want := range map[string]int{"/v1/none": http.StatusNotFound, "/control?latency=soon": http.StatusBadRequest, "/control?colour=red": http.StatusBadRequest} {
		response, err := client.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}

func TestTheMockAnswersAsOpenAIDoes(t *testing.T) {
	_, address := raiseMock(t)
	client := openai.NewClient(option.WithBaseURL("http://"+address+"/v1"), option.WithAPIKey("none"))
	ask := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(`"stream": true`)}}
	whole, err := client.Chat.Completions.New(t.Context(), ask)
	if err != nil || len(whole.Choices) != 1 || !strings.Contains(whole.Choices[0].Message.Content, "MOCK-OK") || whole.Usage.TotalTokens != 180 {
		t.Fatalf("%v: %+v", err, whole)
	}
	ask.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := client.Chat.Completions.NewStreaming(t.Context(), ask)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Fatalf("%+v does not fit", stream.Current())
		}
	}
	if err := stream.Err(); err != nil || all.Usage.TotalTokens != 180 || all.Choices[0].Message.Content != strings.Repeat(" token", streamChunks) || all.Choices[0].FinishReason != "stop" {
		t.Errorf("%v: %+v", err, all.ChatCompletion)
	}
	for _, format := range []openai.EmbeddingNewParamsEncodingFormat{"float", "base64"} {
		made, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{
			Model: "m", EncodingFormat: format, Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("text")},
		})
		if format == "base64" { // which the package leaves to its callers
			if made == nil || !strings.Contains(made.RawJSON(), `"embedding":"`) {
				t.Errorf("%v: %+v", err, made)
			}
			continue
		}
		if err != nil || len(made.Data) != 1 || len(made.Data[0].Embedding) != mockDimensions || made.Usage.PromptTokens == 0 {
			t.Errorf("%v: %+v", err, made)
		}
	}
}

// loaded sends a short load to an address.
func loaded(t *testing.T, l *load, during time.Duration) figure {
	t.Helper()
	l.memory = 4 << 10
	callers, err := l.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer callers.close()
	f, err := callers.run(t.Context(), during)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestEveryScenarioPassesThroughTheProxy(t *testing.T) {
	m, address := raiseMock(t)
	to := &url.URL{Scheme: "http", Host: address}
	server := httptest.NewServer(proxy(to))
	defer server.Close()
	for i := range scenarios {
		sc := &scenarios[i]
		t.Run(sc.name, func(t *testing.T) {
			if err := m.behave(url.Values{"interval": {(sc.interval / 100).String()}}); err != nil {
				t.Fatal(err)
			}
			before := m.requests.Load()
			l := &load{addresses: []string{to.Host}, order: newOrder(sc.path, sc.body, anonymousSenders(sc.kind)), want: sc.want, conns: min(8, sc.conns), rate: sc.rate}
			l.addresses[0] = server.Listener.Addr().String()
			f := loaded(t, l, 30*time.Millisecond)
			if asked := m.requests.Load() - before; f.requests == 0 || f.requests != asked {
				t.Errorf("%d answers, and the mock was asked %d times", f.requests, asked)
			}
			if f.events != f.requests*int64(sc.want.events) || len(f.begin) != int(f.requests) {
				t.Errorf("%d events of %d answers", f.events, f.requests)
			}
		})
	}
}

func TestStreamsThatAreHeldAreOpenAtOnceAndEndWhenReleased(t *testing.T) {
	m, address := raiseMock(t)
	l := &load{addresses: []string{address}, order: newOrder(chatPath, chat(100, true), anonymousSenders("chat")), want: streamed, conns: 300, memory: 2 << 10}
	_ = m.behave(url.Values{"hold": {"true"}})
	callers, err := l.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer callers.close()
	wait, err := callers.begin(t.Context())
	if err != nil || m.requests.Load() != 300 {
		t.Fatalf("%v: %d requests", err, m.requests.Load())
	}
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err := <-ended:
		t.Fatalf("nobody released them, and they have ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	_ = m.behave(url.Values{"hold": {"false"}})
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A server that stalls once delays all requests that were due meanwhile, and all of their latencies must show it.
func TestAStallCountsForAllRequestsThatWereDue(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		from := bufio.NewReader(c)
		var h head
		for i := 0; readHead(from, &h) == nil && readBody(from, &h, func([]byte) {}) == nil; i++ {
			if i == 0 {
				time.Sleep(100 * time.Millisecond)
			}
			if _, err := c.Write(mockAnswer); err != nil {
				return
			}
		}
	}()
	f := loaded(t, &load{addresses: []string{l.Addr().String()}, order: newOrder(chatPath, chat(100, false), anonymousSenders("chat")), want: whole, conns: 1, rate: 1000}, 100*time.Millisecond)
	if f.requests < 60 || percentile(f.whole, 0.5) < 30*time.Millisecond {
		t.Errorf("of %d requests the median waited %v", f.requests, percentile(f.whole, 0.5))
	}
}

func TestTheFirstWrongAnswerEndsALoad(t *testing.T) {
	_, address := raiseMock(t)
	l := &load{addresses: []string{address}, order: newOrder("/v1/none", chat(100, false), anonymousSenders("chat")), want: whole, conns: 4, memory: 4 << 10}
	callers, err := l.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := callers.run(t.Context(), time.Minute); err == nil || !strings.Contains(fmt.Sprint(err), "404") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := callers.run(ctx, time.Minute); err == nil || time.Since(began) > 30*time.Second {
		t.Errorf("it went on for %v: %v", time.Since(began), err)
	}
}
