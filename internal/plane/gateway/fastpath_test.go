package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/admission"
	"sovereign/internal/net/fastpath"
	"sovereign/internal/net/http1"
	"sovereign/internal/net/poller"
	"sovereign/internal/plane/edge"
	"sovereign/internal/wire/upstream"
)

// fastPathUse counts how often each ability of package fastpath was used.
type fastPathUse struct {
	pieces   atomic.Int64 // pieces that Next handed out
	polls    atomic.Int64 // calls of Poll that the poller served
	turns    atomic.Int64
	tries    atomic.Int64 // pieces that TryNext handed out
	sends    atomic.Int64
	ends     atomic.Int64
	trySends atomic.Int64 // sends without blocking
}

// countingSender passes requests to a real sender, and counts how the body of its answer is read.
type countingSender struct {
	upstream.Sender
	t   *testing.T
	use *fastPathUse
}

func (s *countingSender) Send(ctx context.Context, r *upstream.Request) (*upstream.Response, error) {
	response, err := s.Sender.Send(ctx, r)
	if err != nil {
		return nil, err
	}
	body, ok := response.Body.(*http1.Body)
	if !ok {
		s.t.Errorf("the answer's body is a %T, and not that of http1.Client", response.Body)
		return response, nil
	}
	response.Body = &countingBody{body, s.use}
	return response, nil
}

type countingBody struct {
	*http1.Body
	use *fastPathUse
}

var _ fastpath.PolledBody = (*countingBody)(nil)

func (b *countingBody) Next() ([]byte, error) {
	piece, err := b.Body.Next()
	if len(piece) > 0 {
		b.use.pieces.Add(1)
	}
	return piece, err
}

func (b *countingBody) Poll(p *poller.Poller, turn func(time.Time) bool) bool {
	ok := b.Body.Poll(p, func(now time.Time) bool {
		b.use.turns.Add(1)
		return turn(now)
	})
	if ok {
		b.use.polls.Add(1)
	}
	return ok
}

func (b *countingBody) TryNext() ([]byte, bool) {
	piece, ok := b.Body.TryNext()
	if len(piece) > 0 {
		b.use.tries.Add(1)
	}
	return piece, ok
}

// countingWriter is the writer of the edge, and counts how it is written to.
type countingWriter struct {
	http.ResponseWriter
	use *fastPathUse
}

func (w *countingWriter) Send(p []byte) error {
	w.use.sends.Add(1)
	return edge.Send(w.ResponseWriter, p)
}

func (w *countingWriter) End(p []byte) error {
	w.use.ends.Add(1)
	return edge.End(w.ResponseWriter, p)
}

func (w *countingWriter) TrySend() func(time.Time, []byte) bool {
	send := edge.TrySend(w.ResponseWriter)
	if send == nil {
		return nil
	}
	return func(now time.Time, p []byte) bool {
		w.use.trySends.Add(1)
		return send(now, p)
	}
}

// A streamed chat goes through the HTTP/1 server, the edge, the gateway and the HTTP/1 client by the fast path. Every
// ability is found by a type assertion, so that without this test one that is missing would only make streams slower.
func TestAStreamTakesTheFastPathThroughAllLayers(t *testing.T) {
	const events = 30
	use := &fastPathUse{}
	b := wired(t, slowStream(events))
	m, err := b.Fleet().Catalog.Find("m")
	if err != nil {
		t.Fatal(err)
	}
	bridge(t, b, provider, &countingSender{b.Fleet().Sender(m), t, use}, nil)
	b.Poller = poller.New(1)
	t.Cleanup(b.Poller.Close)
	address, key := b.listen(use)

	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		key, len(streamRequestWithUsage), streamRequestWithUsage); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK || strings.Count(string(text), `"content":" word`) != events || !strings.HasSuffix(string(text), chatEnd) {
		t.Fatalf("%v %d\n%s", err, response.StatusCode, text)
	}
	for name, n := range map[string]*atomic.Int64{
		"Pieces.Next": &use.pieces, "PolledBody.Poll": &use.polls, "a turn of the poller": &use.turns, "PolledBody.TryNext": &use.tries,
		"DirectWriter.Send": &use.sends, "DirectWriter.End": &use.ends, "TrySender.TrySend": &use.trySends,
	} {
		if n.Load() == 0 {
			t.Errorf("%s was never used: the fast path is off", name)
		}
	}
}

// slowStream answers with a stream whose events come one at a time.
func slowStream(events int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		for i := range events {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word%d\"},\"finish_reason\":null}],\"usage\":null}\n\n", i)
			_ = flush.Flush()
			time.Sleep(10 * time.Millisecond)
		}
		_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n"+
			"data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5}}\n\n"+chatEnd)
	}
}

// listen serves the gateway on a socket, behind the HTTP/1 server and the edge, as the product does. It returns the
// address, and a valid key.
func (b *bench) listen(use *fastPathUse) (address, key string) {
	b.t.Helper()
	secret, digest, _ := apikey.New()
	directory := live.NewDirectory()
	directory.PutMember(live.Member{Workspace: home, User: "ann"}, tenant.Roles[0])
	directory.PutKey(digest, live.Key{ID: "key_1", Workspace: home, User: "ann"})
	b.Bounds.Timeout.Store(int64(10 * time.Second))
	b.Bounds.Connections.Set(admission.Limits{Connections: 10, PerAddress: 10, Keyless: 10})
	log := slog.New(slog.DiscardHandler)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.checkAbilities(w, r)
		if err := b.ServeChat(&countingWriter{w, use}, r); err != nil {
			edge.Refuse(w, r, err)
		}
	})
	server := &http1.Server{
		Handler: edge.New(edge.Config{Directory: directory, Log: log, Bounds: b.Bounds}, handler), Log: log,
		Targets:     []string{"/v1/chat/completions"},
		ConnContext: func(conn net.Conn) context.Context { return edge.ConnContext(context.Background(), conn) },
		Fallback: func(conn net.Conn) {
			b.t.Error("the HTTP/1 server did not take the request")
			_ = conn.Close()
		},
		HeaderTimeout: 10 * time.Second, BodyTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second,
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(edge.Listen(inner, b.Bounds))
	}()
	b.t.Cleanup(func() {
		_ = inner.Close()
		_ = server.Close()
		<-done
	})
	return inner.Addr().String(), secret.Reveal()
}

// checkAbilities checks that the edge hands on what the HTTP/1 server can do.
func (b *bench) checkAbilities(w http.ResponseWriter, r *http.Request) {
	for writer := w; writer != nil; {
		if _, ok := writer.(fastpath.DirectWriter); !ok {
			b.t.Errorf("%T is no DirectWriter", writer)
		}
		if _, ok := writer.(fastpath.TrySender); !ok {
			b.t.Errorf("%T is no TrySender", writer)
		}
		wrapped, ok := writer.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		writer = wrapped.Unwrap()
	}
	if _, ok := r.Context().(fastpath.ValueKeeper); !ok {
		b.t.Errorf("the request's context was wrapped in a %T", r.Context())
	}
}
