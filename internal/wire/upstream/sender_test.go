package upstream_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/live"
	"sovereign/internal/net/netguard"
	"sovereign/internal/wire/upstream"
)

// eachTransport runs a test on both transports, which make the same promises.
func eachTransport(t *testing.T, test func(*testing.T, live.Transport)) {
	t.Helper()
	for _, via := range []live.Transport{live.Lean, live.Standard} {
		t.Run(string(via), func(t *testing.T) { test(t, via) })
	}
}

// newSender returns a sender of a provider, and a model of it.
func newSender(t *testing.T, via live.Transport, p *live.Provider) (upstream.Sender, *live.Model) {
	t.Helper()
	p.Protocol, p.Transport = live.OpenAI, via
	if p.Name == "" {
		p.Name = "up"
	}
	m := &live.Model{ID: p.Name + "/m", Provider: p, Upstream: "m"}
	fleet, err := upstream.NewFleet(live.NewCatalog([]*live.Provider{p}, []*live.Model{m}), upstream.Protocols{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Sender(m).Close)
	return fleet.Sender(m), m
}

func newRequest(m *live.Model, parts ...string) *upstream.Request {
	r := &upstream.Request{Model: m, Path: "/chat/completions", ID: "req_1"}
	for _, part := range parts {
		r.Body = append(r.Body, []byte(part))
	}
	return r
}

// send sends a request and reads the complete answer.
func send(t *testing.T, s upstream.Sender, r *upstream.Request) (*upstream.Response, string) {
	t.Helper()
	response, err := s.Send(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// serve calls handle for each connection to a plain TCP socket.
func serve(t *testing.T, handle func(net.Conn)) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer func() { _ = conn.Close() }()
				_ = conn.SetDeadline(time.Now().Add(time.Minute)) // below the idle timeout of connections
				handle(conn)
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); group.Wait() })
	return "http://" + listener.Addr().String()
}

// readRequest reads one HTTP request: its header lines and its body.
func readRequest(r *bufio.Reader) (head []string, body string, err error) {
	length := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return head, "", err
		}
		if line = strings.TrimSuffix(line, "\r\n"); line == "" {
			break
		}
		_, _ = fmt.Sscanf(line, "Content-Length: %d", &length)
		head = append(head, line)
	}
	content := make([]byte, length)
	_, err = io.ReadFull(r, content)
	return head, string(content), err
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

func TestOnlyOurOwnHeadersAndTheCallersBytesAreSent(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		for name, c := range map[string]struct {
			key    string
			stream bool
			accept string
			parts  []string
		}{
			"with a key":             {key: "sk-1", accept: "application/json", parts: []string{`{"model":`, `"m"`, `,"n":1}`}},
			"without a key":          {accept: "application/json", parts: []string{`{}`}},
			"a stream":               {key: "sk-1", stream: true, accept: "text/event-stream", parts: []string{"", "{\"a\":\"\x01é\"", "", "}"}},
			"a body of many buffers": {key: "sk-1", accept: "application/json", parts: []string{strings.Repeat("a", 70_000), strings.Repeat("b", 70_000)}},
		} {
			t.Run(name, func(t *testing.T) {
				heads, bodies := make(chan []string, 1), make(chan string, 1)
				url := serve(t, func(conn net.Conn) {
					head, body, err := readRequest(bufio.NewReader(conn))
					if err != nil {
						t.Error(err)
					}
					heads <- head
					bodies <- body
					_, _ = io.WriteString(conn, okAnswer)
				})
				s, m := newSender(t, via, &live.Provider{BaseURL: url + "/v1", APIKey: secret.New(c.key)})
				r := newRequest(m, c.parts...)
				r.Stream = c.stream
				send(t, s, r)
				sent := strings.Join(c.parts, "")
				want := []string{
					"Accept: " + c.accept, fmt.Sprintf("Content-Length: %d", len(sent)), "Content-Type: application/json",
					"Host: " + strings.TrimPrefix(url, "http://"), "User-Agent: sovereign", "X-Client-Request-Id: req_1",
				}
				if c.key != "" {
					want = append(want, "Authorization: Bearer "+c.key)
				}
				slices.Sort(want)
				head := <-heads
				if line := head[0]; line != "POST /v1/chat/completions HTTP/1.1" {
					t.Error(line)
				}
				if got := slices.Sorted(slices.Values(head[1:])); !slices.Equal(got, want) {
					t.Errorf("%q\nwant %q", got, want)
				}
				if body := <-bodies; body != sent || r.Length() != int64(len(sent)) {
					t.Errorf("%.100q, want %.100q", body, sent)
				}
			})
		}
	})
}

func TestAnAnswerIsPassedOnUnchanged(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Content-Encoding", "identity")
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, `{"error": "short and stout"}`)
		}))
		defer server.Close()
		s, m := newSender(t, via, &live.Provider{BaseURL: server.URL})
		response, body := send(t, s, newRequest(m, "{}"))
		if response.Status != http.StatusTeapot || response.ContentType != "application/problem+json" || response.RetryAfter != 0 || body != `{"error": "short and stout"}` {
			t.Errorf("%+v %s", response, body)
		}
	})
}

func TestARedirectIsNotFollowed(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		var followed atomic.Int64
		elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
		defer elsewhere.Close()
		for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, status))
			s, m := newSender(t, via, &live.Provider{BaseURL: server.URL, APIKey: secret.New("sk-1")})
			if response, _ := send(t, s, newRequest(m, "{}")); response.Status != status {
				t.Errorf("%d is answered with %d", status, response.Status)
			}
			server.Close()
		}
		if followed.Load() != 0 {
			t.Errorf("followed %d times", followed.Load())
		}
	})
}

func TestAnEncodedAnswerIsRefused(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		for _, encoding := range []string{"gzip", "br", "deflate", "zstd"} {
			left := make(chan error, 1)
			url := serve(t, func(conn net.Conn) {
				r := bufio.NewReader(conn)
				_, _, _ = readRequest(r)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Encoding: "+encoding+"\r\nContent-Length: 1000000\r\n\r\n\x1f\x8b")
				_, err := r.ReadByte()
				left <- err
			})
			s, m := newSender(t, via, &live.Provider{BaseURL: url})
			if _, err := s.Send(t.Context(), newRequest(m, "{}")); !errors.Is(err, upstream.ErrInvalidAnswer) || !strings.Contains(err.Error(), encoding) {
				t.Errorf("%s: %v", encoding, err)
			}
			if err := <-left; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the connection is kept: %v", encoding, err)
			}
		}
	})
}

func TestOnlyTheCAFileIsTrusted(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%s %s", r.Proto, body)
		}))
		server.EnableHTTP2 = true
		server.StartTLS()
		defer server.Close()
		file := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		spoken := map[live.Transport]string{live.Lean: "HTTP/1.1", live.Standard: "HTTP/2.0"}[via]
		s, m := newSender(t, via, &live.Provider{BaseURL: server.URL, CAFile: file})
		if _, body := send(t, s, newRequest(m, "one", "two")); body != spoken+" onetwo" {
			t.Error(body)
		}
		s, m = newSender(t, via, &live.Provider{BaseURL: server.URL})
		var unknown x509.UnknownAuthorityError
		if _, err := s.Send(t.Context(), newRequest(m, "{}")); !errors.As(err, &unknown) {
			t.Errorf("a certificate that nobody vouches for: %v", err)
		}
	})
}

func TestAnInvalidCAFileIsRefusedByName(t *testing.T) {
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, says := range map[string]string{filepath.Join(folder, "missing.pem"): "missing.pem", empty: "holds no certificate"} {
		p := &live.Provider{Name: "up", Protocol: live.OpenAI, BaseURL: "https://127.0.0.1:1", CAFile: file}
		_, err := upstream.NewFleet(live.NewCatalog([]*live.Provider{p}, nil), upstream.Protocols{}, nil)
		if err == nil || !strings.Contains(err.Error(), "provider up: ca_file") || !strings.Contains(err.Error(), says) {
			t.Errorf("%v", err)
		}
	}
}

func TestRetryAfterIsParsedAndBounded(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		const date = "Wed, 21 Oct 2026 07:28:00 GMT"
		for name, c := range map[string]struct {
			header map[string]string
			want   time.Duration
		}{
			"nothing":                    {nil, 0},
			"seconds":                    {map[string]string{"Retry-After": "7"}, 7 * time.Second},
			"spaces":                     {map[string]string{"Retry-After": " 7 "}, 7 * time.Second},
			"at once":                    {map[string]string{"Retry-After": "0"}, 0},
			"milliseconds":               {map[string]string{"Retry-After-Ms": "1500"}, 1500 * time.Millisecond},
			"milliseconds win":           {map[string]string{"Retry-After-Ms": "20", "Retry-After": "7"}, 20 * time.Millisecond},
			"milliseconds that are none": {map[string]string{"Retry-After-Ms": "soon", "Retry-After": "7"}, 7 * time.Second},
			"below zero":                 {map[string]string{"Retry-After-Ms": "-5", "Retry-After": "-7"}, 0},
			"a word":                     {map[string]string{"Retry-After": "later"}, 0},
			"no longer than an hour":     {map[string]string{"Retry-After": "86400"}, time.Hour},
			"nor in milliseconds":        {map[string]string{"Retry-After-Ms": "9223372036854775807"}, time.Hour},
			"more than can be counted":   {map[string]string{"Retry-After": "92233720368547758070"}, 0},
			"a date by their clock":      {map[string]string{"Date": date, "Retry-After": "Wed, 21 Oct 2026 07:29:30 GMT"}, 90 * time.Second},
			"a date of another form":     {map[string]string{"Date": date, "Retry-After": "Wednesday, 21-Oct-26 07:28:05 GMT"}, 5 * time.Second},
			"a date that is past":        {map[string]string{"Date": date, "Retry-After": "Wed, 21 Oct 2026 07:00:00 GMT"}, 0},
			"a date far away":            {map[string]string{"Date": date, "Retry-After": "Wed, 21 Oct 2126 07:28:00 GMT"}, time.Hour},
		} {
			t.Run(name, func(t *testing.T) {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					for key, value := range c.header {
						w.Header().Set(key, value)
					}
					w.WriteHeader(http.StatusTooManyRequests)
				}))
				defer server.Close()
				s, m := newSender(t, via, &live.Provider{BaseURL: server.URL})
				if response, _ := send(t, s, newRequest(m, "{}")); response.RetryAfter != c.want || response.Status != http.StatusTooManyRequests {
					t.Errorf("%s, want %s", response.RetryAfter, c.want)
				}
			})
		}
		t.Run("a date without theirs counts from ours", func(t *testing.T) {
			url := serve(t, func(conn net.Conn) {
				_, _, _ = readRequest(bufio.NewReader(conn))
				at := time.Now().Add(40 * time.Second).UTC().Format(http.TimeFormat)
				_, _ = io.WriteString(conn, "HTTP/1.1 503 Busy\r\nRetry-After: "+at+"\r\nContent-Length: 0\r\n\r\n")
			})
			s, m := newSender(t, via, &live.Provider{BaseURL: url})
			if response, _ := send(t, s, newRequest(m, "{}")); response.RetryAfter < 35*time.Second || response.RetryAfter > 40*time.Second {
				t.Errorf("%s", response.RetryAfter)
			}
		})
	})
}

func TestCancellingARequestClosesItsConnection(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		for name, answer := range map[string]string{
			"before the answer begins":    "",
			"in the middle of the header": "HTTP/1.1 200 OK\r\nContent-",
			"in the middle of the body":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				answered, closed := make(chan struct{}), make(chan error, 1)
				url := serve(t, func(conn net.Conn) {
					r := bufio.NewReader(conn)
					_, _, _ = readRequest(r)
					_, _ = io.WriteString(conn, answer)
					close(answered)
					_, err := r.ReadByte()
					closed <- err
				})
				s, m := newSender(t, via, &live.Provider{BaseURL: url})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				hasBody := strings.Contains(answer, "hello")
				if !hasBody {
					go func() {
						<-answered
						cancel()
					}()
				}
				response, err := s.Send(ctx, newRequest(m, "{}"))
				if hasBody != (err == nil) {
					t.Fatal(err)
				}
				if err == nil {
					body := make([]byte, len("hello"))
					if _, err := io.ReadFull(response.Body, body); err != nil || string(body) != "hello" {
						t.Errorf("%q %v", body, err)
					}
					go cancel()
					_, err = io.ReadAll(response.Body)
					_ = response.Body.Close()
				}
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if err := <-closed; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the connection is still open: %v", err)
				}
			})
		}
	})
}

func TestAConnectionIsReusedOnlyAfterACompleteAnswer(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		var connections atomic.Int64
		url := serve(t, func(conn net.Conn) {
			connections.Add(1)
			for r := bufio.NewReader(conn); ; {
				if _, _, err := readRequest(r); err != nil {
					return
				}
				if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"); err != nil {
					return
				}
			}
		})
		s, m := newSender(t, via, &live.Provider{BaseURL: url})
		for range 5 {
			send(t, s, newRequest(m, "{}"))
		}
		if connections.Load() != 1 {
			t.Errorf("%d connections for one after the other", connections.Load())
		}
		for range 3 {
			response, err := s.Send(t.Context(), newRequest(m, "{}"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = response.Body.Read(make([]byte, 4))
			_ = response.Body.Close()
		}
		if _, body := send(t, s, newRequest(m, "{}")); body != "0123456789" {
			t.Errorf("the rest of another answer: %q", body)
		}
		if connections.Load() != 4 {
			t.Errorf("%d connections, and three answers were left half-way", connections.Load())
		}
		s.Close()
		if send(t, s, newRequest(m, "{}")); connections.Load() != 5 {
			t.Errorf("%d connections: an idle one was kept", connections.Load())
		}
	})
}

// A request that a provider may have received is never sent twice: it would be charged twice.
func TestARequestThatWasReadIsNotSentAgain(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		var requests atomic.Int64
		url := serve(t, func(conn net.Conn) {
			r := bufio.NewReader(conn)
			for i := 0; ; i++ {
				if _, _, err := readRequest(r); err != nil {
					return
				}
				requests.Add(1)
				if i == 1 { // the second on a connection: read whole, and no byte of answer
					return
				}
				_, _ = io.WriteString(conn, okAnswer)
			}
		})
		s, m := newSender(t, via, &live.Provider{BaseURL: url})
		send(t, s, newRequest(m, "{}"))
		if _, err := s.Send(t.Context(), newRequest(m, `{"dear":true}`)); err == nil || requests.Load() != 2 {
			t.Errorf("%v, and %d requests arrived", err, requests.Load())
		}
	})
}

func TestErrorsOfInvalidAnswersDoNotContainTheKey(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		const key = "sk-canary"
		for name, answer := range map[string]string{
			"nothing":               "",
			"another protocol":      "SSH-2.0-OpenSSH_9.6\r\n",
			"half a head":           "HTTP/1.1 200 OK\r\nContent-Type",
			"a head that is long":   "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("a", 1000)+"\r\n", 200) + "Content-Length: 2\r\n\r\n{}",
			"two lengths":           "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
			"a length below zero":   "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
			"a status of no number": "HTTP/1.1 abc OK\r\n\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				url := serve(t, func(conn net.Conn) {
					_, _, _ = readRequest(bufio.NewReader(conn))
					_, _ = io.WriteString(conn, answer)
				})
				s, m := newSender(t, via, &live.Provider{BaseURL: url, APIKey: secret.New(key)})
				if _, err := s.Send(t.Context(), newRequest(m, "{}")); err == nil || strings.Contains(err.Error(), key) {
					t.Errorf("%v", err)
				}
			})
		}
		s, m := newSender(t, via, &live.Provider{BaseURL: "http://127.0.0.1:1", APIKey: secret.New(key)})
		if _, err := s.Send(t.Context(), newRequest(m, "{}")); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("nobody listens: %v", err)
		}
		s, m = newSender(t, via, &live.Provider{BaseURL: "http://127.0.0.1:1", APIKey: secret.New(key + "\nX: y")})
		if _, err := s.Send(t.Context(), newRequest(m, "{}")); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("a key of two lines: %v", err)
		}
	})
}

func TestATruncatedBodyIsAnError(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
		for name, answer := range map[string]string{
			"before its length": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234",
			"between chunks":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n",
			"within a chunk":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n01234",
		} {
			t.Run(name, func(t *testing.T) {
				url := serve(t, func(conn net.Conn) {
					_, _, _ = readRequest(bufio.NewReader(conn))
					_, _ = io.WriteString(conn, answer)
				})
				s, m := newSender(t, via, &live.Provider{BaseURL: url})
				response, err := s.Send(t.Context(), newRequest(m, "{}"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
				if body, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) || string(body) != "01234" {
					t.Errorf("%q %v", body, err)
				}
			})
		}
	})
}

// A base URL of a workspace is reached over the guarded transport only.
func TestAWorkspacesOwnKeyAndURLAreUsed(t *testing.T) {
	type seen struct{ key, host string }
	asked := make(chan seen, 4)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- seen{r.Header.Get("Authorization"), r.Host}
	}))
	defer server.Close()
	p := &live.Provider{Name: "up", Protocol: live.OpenAI, BaseURL: server.URL, APIKey: secret.New("server-key")}
	m := &live.Model{ID: "up/m", Provider: p, Upstream: "m"}
	reach := func(guard *netguard.Guard) upstream.Sender {
		fleet, err := upstream.NewFleet(live.NewCatalog([]*live.Provider{p}, []*live.Model{m}), upstream.Protocols{Guarded: guard.Transport()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return fleet.Sender(m)
	}
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for name, c := range map[string]struct {
		own     *upstream.Credentials
		allowed []netip.Prefix
		want    string
	}{
		"the server's":            {nil, nil, "Bearer server-key"},
		"an own key":              {&upstream.Credentials{Key: secret.New("own-key")}, nil, "Bearer own-key"},
		"an own URL":              {&upstream.Credentials{Key: secret.New("own-key"), BaseURL: server.URL}, loopback, "Bearer own-key"},
		"an own URL to ourselves": {&upstream.Credentials{Key: secret.New("own-key"), BaseURL: server.URL}, nil, ""},
	} {
		r := newRequest(m, "{}")
		r.Credentials = c.own
		response, err := reach(netguard.New(c.allowed)).Send(t.Context(), r)
		var f *fault.Fault
		if c.want == "" {
			if !errors.As(err, &f) || f.Kind != fault.UnknownProvider || strings.Contains(f.Message, "own-key") || len(asked) != 0 {
				t.Errorf("%s: %v, and it was asked %d times", name, err, len(asked))
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = response.Body.Close()
		if got := <-asked; got.key != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A customer cannot tell by the answer whether a name leads to a private address or nowhere: localhost is known without
// a resolver, and no resolver is reached for the other name.
func TestANameGetsTheSameAnswerWhetherItIsPrivateOrUnknown(t *testing.T) {
	none := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no resolver") }}
	guard := netguard.New(nil, netguard.WithResolver(none), netguard.WithRefusalTime(0))
	p := &live.Provider{Name: "up", Protocol: live.OpenAI, BaseURL: "http://127.0.0.1:1", APIKey: secret.New("server-key")}
	m := &live.Model{ID: "up/m", Provider: p, Upstream: "m"}
	fleet, err := upstream.NewFleet(live.NewCatalog([]*live.Provider{p}, []*live.Model{m}), upstream.Protocols{Guarded: guard.Transport()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "nobody.test"} {
		r := newRequest(m, "{}")
		r.Credentials = &upstream.Credentials{Key: secret.New("own-key"), BaseURL: "http://" + host + ":1"}
		_, err := fleet.Sender(m).Send(t.Context(), r)
		want := "the workspace's own URL for up cannot be used: " + host + " is not a public address"
		var f *fault.Fault
		if !errors.As(err, &f) || f.Kind != fault.UnknownProvider || f.Message != want {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestEachProtocolSendsItsKeyInItsOwnHeader(t *testing.T) {
	for protocol, want := range map[live.Protocol]string{
		live.OpenAI: "Authorization: Bearer k", live.Cohere: "Authorization: Bearer k", live.Anthropic: "X-Api-Key: k", live.Gemini: "X-Goog-Api-Key: k",
	} {
		heads := make(chan []string, 1)
		url := serve(t, func(conn net.Conn) {
			head, _, _ := readRequest(bufio.NewReader(conn))
			heads <- head
			_, _ = io.WriteString(conn, okAnswer)
		})
		p := &live.Provider{Name: "up", Protocol: protocol, BaseURL: url, APIKey: secret.New("k")}
		m := &live.Model{ID: "up/m", Provider: p}
		fleet, err := upstream.NewFleet(live.NewCatalog([]*live.Provider{p}, []*live.Model{m}), upstream.Protocols{Dialects: map[live.Protocol]upstream.Dialect{
			live.Anthropic: upperCase{}, live.Gemini: upperCase{}, live.Cohere: upperCase{},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		send(t, fleet.Sender(m), newRequest(m, "{}"))
		head := <-heads
		keyed := slices.DeleteFunc(slices.Clone(head), func(line string) bool { return !strings.HasSuffix(line, " k") })
		if !slices.Equal(keyed, []string{want}) {
			t.Errorf("%s: %q", protocol, keyed)
		}
		if versioned := slices.Contains(head, "Anthropic-Version: 2023-06-01"); versioned != (protocol == live.Anthropic) {
			t.Errorf("%s: %q", protocol, head)
		}
	}
}
