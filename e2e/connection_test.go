package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// Clients that ask and never read: their connections are given up, and others get in.
func TestClientsThatDoNotReadAreGivenUp(t *testing.T) {
	t.Parallel()
	s := newInstance(t, secret.Text{}).serve(t, "--limits-connections", "3", "--limits-operation-timeout", "500ms")
	host := strings.TrimPrefix(s.address(), "http://")
	for range 3 {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, strings.Repeat("GET /docs HTTP/1.1\r\nHost: x\r\n\r\n", 5000))
	}
	eventually(t, "another client is served", func() bool {
		response, err := http.Get(s.address() + "/healthz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// Connections that have shown a key are kept, and those over the limit are refused. Connections that have shown none
// are closed instead, the oldest first.
func TestConnectionsOverTheLimitAreShed(t *testing.T) {
	t.Parallel()
	s := newInstance(t, secret.Text{}).serve(t, "--limits-connections", "3") // two of them for one workspace
	host, key := strings.TrimPrefix(s.address(), "http://"), s.key()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(limit))
		return conn
	}
	ask := func(conn net.Conn) (*http.Response, error) {
		text := "GET /v1/setup/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\n\r\n"
		if _, err := io.WriteString(conn, text); err != nil {
			return nil, err
		}
		return http.ReadResponse(bufio.NewReader(conn), nil)
	}
	keyless := []net.Conn{dial(), dial()}
	time.Sleep(time.Second) // longer than a new connection is spared
	var conns []net.Conn
	for i := range 4 {
		conn := dial()
		conns = append(conns, conn)
		response, err := ask(conn)
		if err != nil {
			t.Fatal(err)
		}
		want := http.StatusOK
		if i >= 2 {
			want = http.StatusTooManyRequests
		}
		if response.StatusCode != want || (want == 429 && (response.Header.Get("Retry-After") == "" || !response.Close)) {
			t.Errorf("connection %d: %d, closes %v", i+1, response.StatusCode, response.Close)
		}
	}
	for i, conn := range keyless {
		if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d without a key was not closed: %v", i, err)
		}
	}
	_ = conns[0].Close()
	eventually(t, "another connection is served after one was closed", func() bool {
		conn := dial()
		defer func() { _ = conn.Close() }()
		response, err := ask(conn)
		return err == nil && response.StatusCode == http.StatusOK
	})
}

// One workspace opens connections until it is refused. Another one is served.
func TestAWorkspaceLeavesConnectionsForOthers(t *testing.T) {
	t.Parallel()
	const most = 12
	for lane, flag := range lanes {
		t.Run(lane, func(t *testing.T) {
			p := newInstance(t, secret.Text{})
			s := p.serve(t, "--limits-connections", strconv.Itoa(most), flag)
			ask := func(key string) int {
				conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				_ = conn.SetDeadline(time.Now().Add(limit))
				_, _ = fmt.Fprintf(conn, "GET /v1/setup/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", key)
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				return response.StatusCode
			}
			served := 0
			for range 2 * most {
				if ask(s.key()) == http.StatusOK {
					served++
				}
			}
			if served != most*2/3 {
				t.Errorf("one workspace has %d of %d connections", served, most)
			}
			other := p.newWorkspace(t, "other", money.Dollar)
			eventually(t, "another workspace is served", func() bool { return ask(other) == http.StatusOK })
		})
	}
}

func TestSlowSendersAreClosedInTime(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	s := p.serve(t, "--limits-header-timeout", "300ms", "--limits-body-timeout", "600ms")
	for name, head := range map[string]string{
		"head":    "GET /healthz HTTP/1.1\r\nHost:",
		"body":    "GET /v1/setup/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.key() + "\r\nContent-Length: 10\r\n\r\n{",
		"options": "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("slow %s: not closed in time: %v", name, err)
		}
		if want := map[string]string{"head": "", "body": "HTTP/1.1 408", "options": "HTTP/1.1 404"}[name]; !strings.HasPrefix(string(answer), want) {
			t.Errorf("slow %s: %s", name, answer)
		}
	}
}

// Contradicting lengths, duplicate lengths, bad encodings: none of them hides a second request in the body of a first.
func TestHiddenRequestsAreNotAnswered(t *testing.T) {
	t.Parallel()
	s := newInstance(t, secret.Text{}).serve(t)
	hidden := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, raw := range map[string]string{
		"two lengths":         "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: " + strconv.Itoa(len(hidden)) + "\r\n\r\n" + hidden,
		"list of lengths":     "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0, 35\r\n\r\n" + hidden,
		"signed length":       "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: +0\r\n\r\n" + hidden,
		"odd encoding":        "POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n" + hidden,
		"space before colon":  "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length : 0\r\n\r\n" + hidden,
		"two hosts":           "GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"no host":             "GET /healthz HTTP/1.1\r\n\r\n",
		"bad chunk":           "POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + hidden,
		"length and encoding": "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(limit))
		if _, err := io.WriteString(conn, raw); err != nil {
			t.Fatal(err)
		}
		if closer, ok := conn.(*net.TCPConn); ok {
			_ = closer.CloseWrite()
		}
		all, _ := io.ReadAll(conn)
		_ = conn.Close()
		if n := bytes.Count(all, []byte("HTTP/1.1 2")); n != 0 {
			t.Errorf("%s: a hidden request was answered:\n%s", name, all)
		}
	}
}

// exchange writes bytes to a server as they are, and reads until the server closes the connection.
func exchange(t *testing.T, s *process, raw string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server does not close the connection after %.200q", raw)
	}
	return string(all)
}

// A request that hides in another's body, by lengths that contradict each other, never reaches a provider. The vectors
// of TestOnlyWhatEveryReaderSeesReachesTheProvider have many more.
func TestARequestHiddenInAnotherReachesNoProvider(t *testing.T) {
	t.Parallel()
	s, provider := serveMock(t, map[string]string{"chat": "mock"})
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.key() + "\r\nContent-Type: application/json\r\n"
	hiddenBody := chat("mock/chat", "hidden")
	hidden := head + "Content-Length: " + strconv.Itoa(len(hiddenBody)) + "\r\n\r\n" + hiddenBody
	open := chat("mock/chat", "open")
	length := strconv.Itoa(len(open))
	for name, raw := range map[string]string{
		"length and encoding": head + "Content-Length: " + length + "\r\nTransfer-Encoding: chunked\r\n\r\n" + open + hidden,
		"two lengths":         head + "Content-Length: " + length + "\r\nContent-Length: " + strconv.Itoa(len(open)+len(hidden)) + "\r\n\r\n" + open + hidden,
		"odd encoding":        head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden,
		"early end":           head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n" + hidden,
		"signed length":       head + "Content-Length: +0\r\n\r\n" + hidden,
		"list of lengths":     head + "Content-Length: 0, " + length + "\r\n\r\n" + hidden,
	} {
		got := exchange(t, s, raw)
		if n := strings.Count(got, "HTTP/1.1 200"); n > 1 {
			t.Errorf("%s: %d answers:\n%s", name, n, got)
		}
		if reached := seenBy(t, provider, "hidden"); len(reached) > 0 {
			t.Errorf("%s: the hidden request reached the provider", name)
		}
	}
}

func TestThreeTimesTheLoadIsShedAndWhatWasAcceptedIsSettled(t *testing.T) {
	const room = 40
	s, _ := serveMock(t, map[string]string{"chat": "mock?chunks=20&chunk_delay=20ms&in=10&out=20"}, "--limits-connections", strconv.Itoa(room), "--limits-body", "1MiB", "--limits-buffered-memory", "8MiB")
	body := chat("mock/chat", strings.Repeat("load ", 20_000), `"stream":true`, `"max_tokens":50`)
	var shed, done atomic.Int64
	var group sync.WaitGroup
	for range 3 * room {
		group.Go(func() {
			for range 4 {
				c := s.caller() // a connection of its own
				a, err := c.post(context.Background(), "/v1/chat/completions", body, nil)
				c.client.CloseIdleConnections()
				switch {
				case err != nil:
					shed.Add(1) // the kernel's queue was full, or the connection was closed before it was read
				case a.status == 200 && a.done:
					done.Add(1)
				case a.status == 429 && a.header.Get("Retry-After") != "" && a.code() == "rate_limited":
					shed.Add(1)
				default:
					t.Errorf("%d %s %v", a.status, a.body, a.events)
				}
			}
		})
	}
	group.Wait()
	if shed.Load() == 0 || done.Load() == 0 {
		t.Errorf("%d answered, %d shed", done.Load(), shed.Load())
	}
	eventually(t, "no hold is left", func() bool { return s.wallet(t, "default").Held == 0 })
	finished := 0
	for _, row := range s.usage(t, "default") {
		if row.Outcome == "finished" {
			finished++
		}
	}
	if int64(finished) != done.Load() {
		t.Errorf("%d answers came to the end, and %d are charged as such", done.Load(), finished)
	}
	s.verifyLedger(t)
	if memory := resident(t, s.Process.Pid); memory > 400<<20 {
		t.Errorf("%d MiB are resident", memory>>20)
	}
	t.Logf("%d answered, %d shed", done.Load(), shed.Load())
}

// neverRead asks a model for a stream, and takes nothing of it.
func (s *process) neverRead(t *testing.T, model string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body := chat(model, "never read", `"stream":true`)
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", s.key(), len(body), body); err != nil {
		t.Fatal(err)
	}
}

func TestACallerWhoStopsReadingIsGivenUpAndItsHoldIsFree(t *testing.T) {
	t.Parallel()
	s, provider := serveMock(t, map[string]string{"chat": "mock?chunks=200000&in=10&out=200000&text=200000"}, "--limits-operation-timeout", "1s")
	s.neverRead(t, "mock/chat")
	eventually(t, "it runs", func() bool { return len(seenBy(t, provider, "never read")) == 1 })
	eventually(t, "the hold is free again", func() bool { return s.wallet(t, "default").Held == 0 })
	eventually(t, "the provider sees the cancellation", func() bool { return seenBy(t, provider, "never read")[0].CancelledAt != nil })
	for _, row := range s.usage(t, "default") {
		if row.Outcome != "left" || row.Output == 0 {
			t.Errorf("%+v", row)
		}
	}
}
