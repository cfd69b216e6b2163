package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A mock is a provider that costs next to nothing: a loop over raw connections that writes prepared bytes. It speaks
// OpenAI's chat, whole and streamed, and embeddings. Each event of a stream is one write and one HTTP chunk.
type mock struct {
	behaviour atomic.Pointer[behaviour]
	requests  atomic.Int64 // to check that a gateway forwarded every request
	ids       atomic.Uint64
}

// A behaviour is how answers come.
type behaviour struct {
	latency  time.Duration // before the first byte
	interval time.Duration // between the events of a stream; 0 for as fast as they can be written
	chunks   int           // of content in a stream
	hold     chan struct{} // when it is not nil, streams pause after their first chunk until it is closed
}

func newMock() *mock {
	m := &mock{}
	m.behaviour.Store(&behaviour{chunks: 100})
	return m
}

// The prepared bytes. The hole is replaced by the answer's number.
const (
	hole = "0000000000000000"

	mockText = "MOCK-OK. The request was passed on to the mock of a provider, which answers every prompt with the same paragraph. " +
		"It is as long as a short turn of an assistant, so that reading and copying it costs what it costs in earnest, and not more."
	mockUsage = `{"prompt_tokens":120,"completion_tokens":60,"total_tokens":180,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},` +
		`"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}}`
	mockDimensions = 1536
)

var (
	mockAnswer = message(`{"id":"chatcmpl-` + hole + `","object":"chat.completion","created":1760000000,"model":"gpt-4o-mini","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"` + mockText +
		`","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":` + mockUsage +
		`,"system_fingerprint":"fp_mock"}`)
	mockNumbers = message(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[` + numbers() + `]}],"model":"text-embedding-3-small","usage":{"prompt_tokens":60,"total_tokens":60}}`)
	mockBase64  = message(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":"` + base64.StdEncoding.EncodeToString(floats()) +
		`"}],"model":"text-embedding-3-small","usage":{"prompt_tokens":60,"total_tokens":60}}`)

	streamHead  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
	roleEvent   = choice(`{"role":"assistant","content":"","refusal":null}`, "null")
	textEvent   = choice(`{"content":" token"}`, "null")
	stopEvent   = choice(`{}`, `"stop"`)
	usageEvent  = event(`[]`, mockUsage)
	doneEvent   = chunk("data: [DONE]\n\n")
	streamStart = []byte(streamHead + roleEvent)
)

func message(body string) []byte { return answer("200 OK", body) }

func answer(status, body string) []byte {
	return fmt.Appendf(
		nil, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body,
	)
}

func choice(delta, finish string) string {
	return event(`[{"index":0,"delta":`+delta+`,"logprobs":null,"finish_reason":`+finish+`}]`, "null")
}

func event(choices, usage string) string {
	return chunk(`data: {"id":"chatcmpl-` + hole + `","object":"chat.completion.chunk","created":1760000000,"model":"gpt-4o-mini","system_fingerprint":"fp_mock","choices":` +
		choices + `,"usage":` + usage + "}\n\n")
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func coordinate(i int) float32 { return float32(math.Sin(float64(i)*1.7) / 27) }

func numbers() string {
	texts := make([]string, mockDimensions)
	for i := range texts {
		texts[i] = strconv.FormatFloat(float64(coordinate(i)), 'g', -1, 32)
	}
	return strings.Join(texts, ",")
}

func floats() []byte {
	var raw []byte
	for i := range mockDimensions {
		bits := math.Float32bits(coordinate(i))
		raw = append(raw, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	return raw
}

// listen answers on address until ctx ends.
func (m *mock) listen(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	if err := m.serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

func (m *mock) serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go m.connection(c)
	}
}

// A mockConn is a connection to the mock.
type mockConn struct {
	*mock
	net.Conn
	body []byte
	out  []byte
}

func (m *mock) connection(c net.Conn) {
	defer func() { _ = c.Close() }()
	t := &mockConn{mock: m, Conn: c, out: bytes.Clone(mockAnswer)}
	from := bufio.NewReaderSize(c, 8<<10)
	var h head
	keep := func(piece []byte) { t.body = append(t.body, piece...) }
	for {
		if readHead(from, &h) != nil {
			return
		}
		if h.expect && t.say("HTTP/1.1 100 Continue\r\n\r\n") != nil {
			return
		}
		t.body = t.body[:0]
		if readBody(from, &h, keep) != nil || t.answer(h.line) != nil || h.close {
			return
		}
	}
}

func (t *mockConn) say(text string) error {
	_, err := t.Write([]byte(text))
	return err
}

// answer answers the request that has this first line.
func (t *mockConn) answer(line []byte) error {
	method, rest, _ := bytes.Cut(line, []byte(" "))
	path, _, _ := bytes.Cut(rest, []byte(" "))
	switch {
	case string(method) == http.MethodPost && bytes.HasSuffix(path, []byte("/chat/completions")):
		return t.chat()
	case string(method) == http.MethodPost && bytes.HasSuffix(path, []byte("/embeddings")):
		return t.embed()
	case bytes.HasPrefix(path, []byte("/control")):
		return t.control(string(path))
	}
	_, err := t.Write(answer("404 Not Found", `{"error":{"message":"no such path","type":"invalid_request_error"}}`))
	return err
}

// ask counts a request and waits for the configured latency.
func (t *mockConn) ask(member string) (*behaviour, bool) {
	b := t.behaviour.Load()
	t.requests.Add(1)
	if b.latency > 0 {
		time.Sleep(b.latency)
	}
	return b, bytes.HasPrefix(t.body, []byte("{")) && bytes.Contains(t.body, []byte(member))
}

var notAsked = answer(
	"400 Bad Request", `{"error":{"message":"the body is no such request","type":"invalid_request_error"}}`,
)

func (t *mockConn) embed() error {
	_, ok := t.ask(`"input"`)
	out := mockNumbers
	switch {
	case !ok:
		out = notAsked
	case bytes.Contains(t.body, []byte(`"base64"`)):
		out = mockBase64
	}
	_, err := t.Write(out)
	return err
}

func (t *mockConn) chat() error {
	b, ok := t.ask(`"messages"`)
	switch {
	case !ok:
		_, err := t.Write(notAsked)
		return err
	case isTrue(t.body, `"stream"`):
		return t.stream(b)
	}
	at := bytes.Index(t.out[:200], []byte("chatcmpl-")) + len("chatcmpl-")
	copy(t.out[at:at+len(hole)], fmt.Sprintf("%016x", t.ids.Add(1)))
	_, err := t.Write(t.out)
	return err
}

func (t *mockConn) stream(b *behaviour) error {
	if _, err := t.Write(streamStart); err != nil {
		return err
	}
	if b.interval > 0 { // each stream has a phase of its own
		time.Sleep(b.interval * time.Duration(t.ids.Add(1)%16) / 16)
	}
	content := []byte(textEvent)
	for i := range b.chunks {
		if i > 0 && b.interval > 0 {
			time.Sleep(b.interval)
		}
		if _, err := t.Write(content); err != nil {
			return err
		}
		if i == 0 && b.hold != nil {
			<-b.hold
		}
	}
	end := stopEvent
	if isTrue(t.body, `"include_usage"`) {
		end += usageEvent
	}
	return t.say(end + doneEvent + "0\r\n\r\n")
}

// isTrue reports whether the member of that name in quotes is true. Within a text its quotes would be escaped, so that
// what a message says cannot be taken for it.
func isTrue(body []byte, name string) bool {
	_, rest, _ := bytes.Cut(body, []byte(name))
	return bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n:"), []byte("true"))
}

// control changes the behaviour by a query such as latency=60ms&chunks=100&interval=10ms&hold=true, and tells how many
// requests there were.
func (t *mockConn) control(target string) error {
	u, err := url.Parse(target)
	if err == nil {
		err = t.behave(u.Query())
	}
	out := message(fmt.Sprintf(`{"requests":%d}`, t.requests.Load()))
	if err != nil {
		out = answer("400 Bad Request", `{"error":{"message":"no such behaviour"}}`)
	}
	_, err = t.Write(out)
	return err
}

func (m *mock) behave(q url.Values) (err error) {
	was := m.behaviour.Load()
	b := *was
	for name, values := range q {
		switch value := values[0]; name {
		case "latency":
			b.latency, err = time.ParseDuration(value)
		case "interval":
			b.interval, err = time.ParseDuration(value)
		case "chunks":
			b.chunks, err = strconv.Atoi(value)
		case "hold":
			b.hold = nil
			if value == "true" {
				b.hold = make(chan struct{})
			}
		default:
			err = fmt.Errorf("no such setting: %s", name)
		}
		if err != nil {
			return err
		}
	}
	m.behaviour.Store(&b)
	if was.hold != nil && was.hold != b.hold {
		close(was.hold)
	}
	return nil
}
