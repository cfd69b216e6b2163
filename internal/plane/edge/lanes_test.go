package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/admission"
	"sovereign/internal/net/http1"
	"sovereign/internal/net/pace"
	"sovereign/internal/plane/edge"
)

// A site is an edge behind one of the two HTTP servers. Its handler reads the body and answers with its length.
type site struct {
	bounds *edge.Bounds
	key    string
}

// serve serves a site on a listener with one of the servers, until the end of the test.
func serve(t *testing.T, fast bool, l net.Listener) *site {
	t.Helper()
	s := &site{bounds: edge.NewBounds()}
	s.bounds.Connections.Set(admission.Limits{Connections: 100, PerAddress: 100, Keyless: 100})
	s.bounds.Body.Store(1 << 20)
	s.bounds.Buffered.Set(1 << 30)
	s.bounds.Timeout.Store(int64(time.Minute))
	s.bounds.Pace = pace.Limit{Timeout: time.Minute, Rate: 100}
	secret, digest, _ := apikey.New()
	s.key = secret.Reveal()
	directory := live.NewDirectory()
	directory.PutMember(live.Member{Workspace: "ws_1", User: "ann"}, tenant.Roles[0])
	directory.PutKey(digest, live.Key{ID: "key_1", Workspace: "ws_1", User: "ann"})
	handler := edge.New(edge.Config{Directory: directory, Log: slog.New(slog.DiscardHandler), Bounds: s.bounds}, http.HandlerFunc(s.readBody))
	server := &http.Server{Handler: handler, ConnContext: edge.ConnContext, ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, IdleTimeout: time.Hour}
	accepted := edge.Listen(l, s.bounds)
	served := net.Listener(accepted)
	if fast {
		others := http1.NewHandover(l.Addr())
		lane := &http1.Server{
			Handler: handler, Targets: []string{"/v1/chat/completions"}, Fallback: others.Deliver,
			ConnContext:   func(c net.Conn) context.Context { return edge.ConnContext(context.Background(), c) },
			HeaderTimeout: time.Minute, BodyTimeout: s.bounds.Pace.Timeout, BodyRate: s.bounds.Pace.Rate, IdleTimeout: time.Hour,
		}
		go func() { _ = lane.Serve(accepted) }()
		t.Cleanup(func() { _ = lane.Close() })
		served = others
	}
	go func() { _ = server.Serve(served) }()
	t.Cleanup(func() {
		_ = l.Close()
		_ = server.Close()
	})
	return s
}

func (s *site) readBody(w http.ResponseWriter, r *http.Request) {
	body, err := s.bounds.Read(r, s.bounds.Body.Load())
	if err != nil {
		edge.Refuse(w, r, err)
		return
	}
	defer body.Release()
	if pause, err := time.ParseDuration(r.Header.Get("Pause")); err == nil {
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	_, _ = fmt.Fprint(w, len(body.Bytes))
}

// eachLane runs a test with each server, on a real listener.
func eachLane(t *testing.T, test func(t *testing.T, s *site, dial func() net.Conn)) {
	t.Helper()
	for lane, fast := range map[string]bool{"fast lane": true, "net/http": false} {
		t.Run(lane, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			test(t, serve(t, fast, l), func() net.Conn {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.SetDeadline(time.Now().Add(3 * time.Minute))
				t.Cleanup(func() { _ = conn.Close() })
				return conn
			})
		})
	}
}

// head is the head of a request with a body of so many bytes. An empty key sends none.
func head(key string, length int, fields ...string) string {
	if key != "" {
		fields = append(fields, "Authorization: Bearer "+key)
	}
	fields = append(fields, "Host: x", "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", length))
	return "POST /v1/chat/completions HTTP/1.1\r\n" + strings.Join(fields, "\r\n") + "\r\n\r\n"
}

// ask sends a request and returns the response, without its body.
func ask(t *testing.T, conn net.Conn, text string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return receive(t, conn)
}

func receive(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return r
}

// closed waits until the server closes a connection, and fails if it sends something instead.
func closed(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection is open: %d bytes, %v", n, err)
	}
}

func loopback() *[]netip.Prefix { return &[]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

func TestAConnectionClosesAfterA401UnlessAProxyOpenedIt(t *testing.T) {
	eachLane(t, func(t *testing.T, s *site, dial func() net.Conn) {
		conn := dial()
		if r := ask(t, conn, head(s.key, 2)+"{}"); r.StatusCode != http.StatusOK || r.Close {
			t.Fatal(r.Status, r.Close)
		}
		if r := ask(t, conn, head("", 2)+"{}"); r.StatusCode != http.StatusUnauthorized || !r.Close {
			t.Errorf("%s, closes: %v", r.Status, r.Close)
		}
		closed(t, conn)
		s.bounds.Proxies.Store(loopback())
		conn = dial()
		for range 2 {
			if r := ask(t, conn, head("", 2)+"{}"); r.StatusCode != http.StatusUnauthorized || r.Close {
				t.Errorf("from a proxy: %s, closes: %v", r.Status, r.Close)
			}
		}
	})
}

func TestConnectionsWithoutAKeyMakeRoomForOthers(t *testing.T) {
	eachLane(t, func(t *testing.T, s *site, dial func() net.Conn) {
		s.bounds.Connections.Set(admission.Limits{Connections: 4, PerAddress: 100, Keyless: 100})
		paying := dial()
		if r := ask(t, paying, head(s.key, 2)+"{}"); r.StatusCode != http.StatusOK {
			t.Fatal(r.Status)
		}
		var silent []net.Conn
		for range 6 {
			time.Sleep(300 * time.Millisecond) // longer than a new connection is spared
			silent = append(silent, dial())
		}
		time.Sleep(300 * time.Millisecond)
		late := dial()
		for range 2 {
			for _, conn := range []net.Conn{paying, late} {
				if r := ask(t, conn, head(s.key, 2)+"{}"); r.StatusCode != http.StatusOK {
					t.Error(r.Status)
				}
			}
		}
		for _, conn := range silent[:4] {
			closed(t, conn)
		}
		if c := s.bounds.Connections.Counts(); c.Evicted != 4 || c.Refused != 0 {
			t.Errorf("%+v", c)
		}
	})
}

func TestRequestsWithoutAKeyAreLimitedByAddress(t *testing.T) {
	eachLane(t, func(t *testing.T, s *site, dial func() net.Conn) {
		s.bounds.Connections.Set(admission.Limits{Connections: 100, PerAddress: 100, Keyless: 4})
		keyed := dial()
		if r := ask(t, keyed, head(s.key, 2)+"{}"); r.StatusCode != http.StatusOK { // does not count
			t.Fatal(r.Status)
		}
		for range 2 { // two starts each: a connection and a request
			if r := ask(t, dial(), head("", 2)+"{}"); r.StatusCode != http.StatusUnauthorized {
				t.Error(r.Status)
			}
		}
		r := ask(t, dial(), head("", 2)+"{}")
		if r.StatusCode != http.StatusTooManyRequests || !r.Close || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s, closes: %v", r.Status, r.Close)
		}
		if r := ask(t, keyed, head(s.key, 2)+"{}"); r.StatusCode != http.StatusOK {
			t.Errorf("with a key, from the same address: %s", r.Status)
		}
		s.bounds.Unlimited.Store(loopback())
		if r := ask(t, dial(), head("", 2)+"{}"); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("from an address without limits: %s", r.Status)
		}
	})
}

// Behind a trusted proxy, the address in X-Forwarded-For counts. From others that header changes nothing.
func TestTheLimitPerAddressBelievesTrustedProxiesAlone(t *testing.T) {
	eachLane(t, func(t *testing.T, s *site, dial func() net.Conn) {
		s.bounds.Connections.Set(admission.Limits{Connections: 100, PerAddress: 100, Keyless: 2})
		s.bounds.Proxies.Store(loopback())
		conn := dial()
		for i, from := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"} {
			want := http.StatusUnauthorized
			if i == 2 {
				want = http.StatusTooManyRequests
			}
			if r := ask(t, conn, head("", 2, "X-Forwarded-For: 198.51.100.9, "+from)+"{}"); r.StatusCode != want || r.Close {
				t.Errorf("request %d, of %s: %s", i, from, r.Status)
			}
		}
		s.bounds.Proxies.Store(&[]netip.Prefix{})
		for i, want := range []int{http.StatusUnauthorized, http.StatusTooManyRequests} {
			if r := ask(t, dial(), head("", 2, fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i))+"{}"); r.StatusCode != want {
				t.Errorf("with a header that is not believed: %s, not %d", r.Status, want)
			}
		}
	})
}

// inBubble runs a test with each server, over net.Pipe and in a synctest bubble.
func inBubble(t *testing.T, test func(t *testing.T, s *site, conn net.Conn)) {
	t.Helper()
	for lane, fast := range map[string]bool{"fast lane": true, "net/http": false} {
		t.Run(lane, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := http1.NewHandover(&net.UnixAddr{Name: "pipe"})
				s := serve(t, fast, l)
				client, server := net.Pipe()
				go l.Deliver(server)
				test(t, s, client)
				_ = client.Close()
				time.Sleep(time.Hour) // until everything that waits has ended
			})
		})
	}
}

func TestABodyThatStallsGets408AndItsConnectionIsClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site, conn net.Conn) {
		begun := time.Now()
		_, _ = io.WriteString(conn, head(s.key, 5000)+strings.Repeat(" ", 4999))
		r := receive(t, conn)
		// All but the last byte came in the first window, so that a second one was granted.
		if took := time.Since(begun); r.StatusCode != http.StatusRequestTimeout || !r.Close || took < pace.Window || took > 2*pace.Window {
			t.Errorf("%s after %s, closes: %v", r.Status, took, r.Close)
		}
		closed(t, conn)
		if used := s.bounds.Buffered.Used(); used != 0 {
			t.Errorf("%d bytes are held", used)
		}
	})
}

func TestABodyMustKeepItsRate(t *testing.T) {
	for _, c := range []struct{ bytes, want int }{{150, http.StatusOK}, {50, http.StatusRequestTimeout}} {
		t.Run(fmt.Sprint(c.bytes, " bytes per second"), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site, conn net.Conn) {
				begun := time.Now()
				go func() {
					_, _ = io.WriteString(conn, head(s.key, 30*c.bytes))
					for range 30 {
						time.Sleep(time.Second)
						_, _ = io.WriteString(conn, strings.Repeat(" ", c.bytes))
					}
				}()
				r := receive(t, conn)
				if took := time.Since(begun); r.StatusCode != c.want || c.want != http.StatusOK && took > pace.Window+time.Second {
					t.Errorf("%s after %s", r.Status, took)
				}
			})
		})
	}
}

// The deadlines of a body end with it: an answer may take longer.
func TestAnAnswerMayTakeLongerThanItsBody(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site, conn net.Conn) {
		for range 2 {
			go func() {
				_, _ = io.WriteString(conn, head(s.key, 2, "Pause: 1h")+"{")
				time.Sleep(time.Second)
				_, _ = io.WriteString(conn, "}")
			}()
			if r := receive(t, conn); r.StatusCode != http.StatusOK || r.Close {
				t.Errorf("%s, closes: %v", r.Status, r.Close)
			}
		}
	})
}

func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	for want, length := range map[int]int{http.StatusUnauthorized: 100, http.StatusRequestEntityTooLarge: 101} {
		inBubble(t, func(t *testing.T, s *site, conn net.Conn) {
			s.bounds.Body.Store(100)
			begun, key := time.Now(), s.key
			if want == http.StatusUnauthorized {
				key = ""
			}
			go func() { _, _ = io.WriteString(conn, head(key, length)) }()
			if r := receive(t, conn); r.StatusCode != want || time.Since(begun) != 0 {
				t.Errorf("%s after %s", r.Status, time.Since(begun))
			}
		})
	}
}
