package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testTargets are the Targets of the servers under test.
var testTargets = []string{"/v1/chat/completions", "/v1/embeddings"}

// A scriptedConn is a connection whose caller sends given pieces and then closes its side.
type scriptedConn struct {
	remote  string
	done    chan struct{}
	mutex   sync.Mutex
	pieces  [][]byte
	written []byte
	closed  bool
}

func newScriptedConn(from string, wire, cuts []byte) *scriptedConn {
	s := &scriptedConn{remote: from, done: make(chan struct{})}
	for i := 0; len(wire) > 0; i++ {
		n := len(wire)
		if i < len(cuts) {
			n = min(int(cuts[i])+1, n)
		}
		s.pieces, wire = append(s.pieces, wire[:n]), wire[n:]
	}
	return s
}

func (s *scriptedConn) Read(p []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case s.closed:
		return 0, net.ErrClosed
	case len(s.pieces) == 0:
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *scriptedConn) Write(p []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	s.written = append(s.written, p...)
	return len(p), nil
}

func (s *scriptedConn) Close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	return nil
}

func (s *scriptedConn) LocalAddr() net.Addr              { return testAddr("here") }
func (s *scriptedConn) RemoteAddr() net.Addr             { return testAddr(s.remote) }
func (s *scriptedConn) SetDeadline(time.Time) error      { return nil }
func (s *scriptedConn) SetReadDeadline(time.Time) error  { return nil }
func (s *scriptedConn) SetWriteDeadline(time.Time) error { return nil }

type testAddr string

func (testAddr) Network() string  { return "script" }
func (a testAddr) String() string { return string(a) }

// A serverPair has one handler behind net/http's server alone, which reads what was checked, and behind a Server.
type serverPair struct {
	netHTTP, fast *Handover
	serial        atomic.Int64
	mutex         sync.Mutex
	seen          map[string][]string // what reached the handler, by connection
	served        atomic.Int64        // requests that the Server answered itself
}

func newServerPair(t testing.TB) *serverPair {
	t.Helper()
	w := &serverPair{seen: map[string][]string{}, netHTTP: NewHandover(testAddr("net/http")), fast: NewHandover(testAddr("server"))}
	rest := NewHandover(testAddr("rest"))
	netHTTP := &http.Server{Handler: w, ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute}
	server := &Server{
		Handler: w, Targets: testTargets, Fallback: rest.Deliver,
		HeaderTimeout: time.Minute, BodyTimeout: time.Minute, IdleTimeout: time.Minute,
	}
	var all sync.WaitGroup
	all.Go(func() { _ = netHTTP.Serve(Strict(w.netHTTP)) })
	all.Go(func() { _ = netHTTP.Serve(rest) })
	all.Go(func() { _ = server.Serve(w.fast) })
	t.Cleanup(func() {
		_ = w.fast.Close()
		_ = server.Close()
		_ = netHTTP.Close()
		all.Wait()
	})
	return w
}

// ServeHTTP records and answers everything that a handler can see of a request.
func (p *serverPair) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if _, ok := out.(*responseWriter); ok {
		p.served.Add(1)
	}
	body, err := io.ReadAll(r.Body)
	text := describe(r, body, err)
	p.mutex.Lock()
	p.seen[r.RemoteAddr] = append(p.seen[r.RemoteAddr], r.Method+"\n"+text)
	p.mutex.Unlock()
	_, _ = io.WriteString(out, text)
}

// describe writes down a request as its handler sees it.
func describe(r *http.Request, body []byte, err error) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s\nurl %q host %q length %d close %v trailer %v te %v\n", r.Method, r.RequestURI, r.Proto, r.URL, r.Host,
		r.ContentLength, r.Close, r.Trailer, r.TransferEncoding)
	fmt.Fprintf(&text, "path %q raw %q query %q fragment %q none %v\n", r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.URL.Fragment, r.Body == http.NoBody)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&text, "%q %q\n", name, r.Header[name])
	}
	fmt.Fprintf(&text, "body %q %v\n", body, err)
	return text.String()
}

// A parsedResponse is a response as its caller reads it, without the order of the fields and the date.
type parsedResponse struct {
	Proto  string
	Status string
	Header http.Header
	Close  bool
	Length int64
	Coding []string
	Body   string
	Err    string
}

// exchange sends wire to one of the two. It returns what the handler saw and what was answered.
func (p *serverPair) exchange(t testing.TB, to *Handover, wire, cuts []byte) (seen []string, responses []parsedResponse) {
	t.Helper()
	script := newScriptedConn(fmt.Sprintf("192.0.2.1:%d", p.serial.Add(1)), wire, cuts)
	to.Deliver(script)
	select {
	case <-script.done:
	case <-time.After(5 * time.Minute):
		t.Fatalf("the connection stays open after %q", wire)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	seen = p.seen[script.remote]
	delete(p.seen, script.remote)
	return seen, parseResponses(script.written, seen)
}

func parseResponses(wire []byte, seen []string) (all []parsedResponse) {
	in := bufio.NewReader(bytes.NewReader(wire))
	for {
		if _, err := in.Peek(1); err != nil {
			return all
		}
		method := http.MethodGet
		if len(seen) > 0 {
			method, _, _ = strings.Cut(seen[0], "\n")
		}
		one, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			rest, _ := io.ReadAll(in)
			return append(all, parsedResponse{Err: err.Error(), Body: string(rest)})
		}
		body, err := io.ReadAll(one.Body)
		if _, err := http.ParseTime(one.Header.Get("Date")); err == nil {
			one.Header.Set("Date", "now")
		}
		all = append(all, parsedResponse{one.Proto, one.Status, one.Header, one.Close, one.ContentLength, one.TransferEncoding, string(body), fmt.Sprint(err)})
		if one.StatusCode >= http.StatusOK && len(seen) > 0 {
			seen = seen[1:]
		}
	}
}

// compare sends the same to both, and returns how they differ.
func (p *serverPair) compare(t testing.TB, wire, cuts []byte) string {
	t.Helper()
	seen, responses := p.exchange(t, p.netHTTP, wire, nil)
	fastSeen, fastResponses := p.exchange(t, p.fast, wire, cuts)
	return cmp.Diff(seen, fastSeen) + cmp.Diff(responses, fastResponses)
}

const (
	postHead   = "POST /v1/chat/completions HTTP/1.1\r\nHost: a.test\r\n"
	getRequest = "GET /v1/models HTTP/1.1\r\nHost: a.test\r\n\r\n"
)

// plainPost returns a request that a Server answers itself.
func plainPost(body string, lines ...string) string {
	lines = append(slices.Clip(lines), "Content-Length: "+strconv.Itoa(len(body)))
	return postHead + strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// requestSeeds are requests, and malformed ones.
func requestSeeds() []string {
	one, two := plainPost(`{"a":1}`, "Authorization: Bearer one"), plainPost(`{"b":22}`, "Authorization: Bearer two")
	seeds := []string{
		one, one + one, one + two + one, one + getRequest + two, getRequest + one, one + "\r\n" + two, one + "\r\n", one + "\r\n\r\n" + two,
		one + "\n" + getRequest, one + "\r\n\r\n\r\n" + two, one + "\r\n\r", one + "X", one + "PO", one + "POST", one + "POST /v1/chat/comp",
		"\r\n" + one, "\n" + one, one[:20], one[:60], one[:len(one)-3], one + one[:len(one)-3], strings.ToLower(one), strings.ReplaceAll(one, "\r\n", "\n"),
		strings.Replace(one, "\r\n\r\n", "\n\n", 1), strings.Replace(one, "\r\n\r\n", "\r\n\n", 1), strings.Replace(one, "\r\n\r\n", "\n\r\n", 1),
		strings.Replace(one, "\r\n", "\r", 1), strings.Replace(one, "1.1", "1.0", 1), strings.Replace(one, "1.1", "1.2", 1), strings.Replace(one, "1.1", "2.0", 1),
		strings.Replace(one, "1.1", "1.1 ", 1), strings.Replace(one, " HTTP/1.1", "", 1), strings.Replace(one, "POST ", "POST  ", 1), strings.Replace(one, "POST ", "POST\t", 1),
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		one + "GET /v1/models HTTP/1.0\r\n\r\n" + two, one + "HEAD /v1/chat/completions HTTP/1.1\r\nHost: a.test\r\n\r\n" + two,
	}
	for _, target := range []string{
		"http://a.test/v1/chat/completions", "a.test:443", "//v1/chat/completions", "/v1//chat/completions", "/v1/chat%2Fcompletions", "/v1/%63hat/completions",
		"/v1/chat/completions#x", "/v1/chat/completions?x=1", "/v1/chat/completions?", "/v1/chat/completions/", "/v1/embeddings", "/v1/../v1/embeddings", "*", "/", "/v1/chat/completions\x00", "/v1/chat/completionsé",
	} {
		seeds = append(seeds, strings.Replace(one, "/v1/chat/completions", target, 1)+two)
	}
	for _, l := range []string{
		"Content-Length: 7", "Content-Length: 8", "content-length: 7", "Transfer-Encoding: chunked", "transfer-encoding: Chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding : chunked",
		"Transfer-Encoding: identity", "Transfer-Encoding:\tchunked", "Transfer-Encoding:\x0bchunked", "X: a\r\n Transfer-Encoding: chunked", " X: folded", "\tX: folded", "X : spaced", ": none", "X", "",
		"X: \x00", "X: \x7f", "X: \xff", "X: é", "X: a\rb", "X: a\nb", "X:\ta", "X: a\t", "X:  a  ", "X:", "X: ", "x: 1", "X: 1\r\nX: 2", "X: 1\r\nx: 2", "é: 1", "X\x00: 1",
		"Host: b.test", "host: a.test", "Connection: close", "Connection: Close", "Connection: keep-alive", "Connection: Keep-Alive", "Connection: upgrade", "Connection: close, te", "Connection: X\r\nX: 1",
		"Connection: ", "Connection: close\r\nConnection: keep-alive", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA", "Expect: 100-continue", "Expect: 200-ok", "expect: 100-Continue",
		"Trailer: X", "TE: trailers", "Pragma: no-cache", "Pragma: no-cache\r\nCache-Control: x", "Cache-Control: no-cache", "Keep-Alive: timeout=5", "Proxy-Connection: close",
		"Cookie: a=1", "Cookie: a=1\r\nCookie: b=2", "X-A_b.c: 1", "x!y: 1", strings.Repeat("X-Long: "+strings.Repeat("y", 300)+"\r\n", 1), "X: " + strings.Repeat("z", 5000), "X: " + strings.Repeat("z", 9000),
	} {
		with := plainPost(`{"a":1}`, l)
		seeds = append(seeds, with, with+two, one+with+two)
	}
	for _, length := range []string{"0", "+7", "-7", " 7 ", "7,7", "7 7", "07", "0x7", "7_", "", "7;", "１", "9223372036854775808", "4611686018427387903", "18446744073709551616", "\t7", "7\t"} {
		seeds = append(seeds, postHead+"Content-Length: "+length+"\r\n\r\n{\"a\":1}"+two)
	}
	for _, host := range []string{"", "a.test:80", "[::1]:80", "[::1]", "a b", "a/b", "a@b", "a#b", "a^b", "a|b", "a`b", "a%b", "a'b", "a(b", "a,b", "a_b", "A.TEST", "a\x7fb", "?", "\"", "<>"} {
		seeds = append(seeds, strings.Replace(one, "a.test", host, 1)+two)
	}
	var lines []string
	for i := range 60 {
		lines = append(lines, fmt.Sprintf("X-%d: %d", i, i))
	}
	return append(seeds,
		strings.Replace(one, "Host: a.test\r\n", "", 1), "POST /v1/chat/completions HTTP/1.1\r\n\r\n", one+"POST /v1/chat/completions HTTP/1.1\r\n\r\n"+two, plainPost("", lines[:40]...)+one, plainPost("x", lines...)+one, plainPost("x", lines[:45]...)+plainPost("y", lines[:20]...)+plainPost("z", lines[20:45]...),
		plainPost("")+plainPost("x", "A: 1", "B: 2")+plainPost("x", "B: 2", "A: 1")+plainPost("x", "A: 1")+plainPost("x", "A: 3", "B: 2"),
		plainPost(strings.Repeat("b", 9000))+one, plainPost(strings.Repeat("b", 3000))+plainPost(strings.Repeat("c", 3000))+getRequest,
		postHead+"Transfer-Encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n0\r\n\r\n"+one, one+postHead+"Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+getRequest, postHead+"\r\n"+one,
		plainPost("GET /v1/admin HTTP/1.1\r\nHost: a\r\n\r\n")+two,
	)
}

// Neither a caller nor a handler can tell a Server from net/http's server.
func FuzzServerBehavesLikeNetHTTP(f *testing.F) {
	for i, seed := range requestSeeds() {
		f.Add([]byte(seed), []byte{byte(i), byte(7 * i), 0, 3, byte(31 * i)})
		f.Add([]byte(seed), []byte(nil))
	}
	w := newServerPair(f)
	f.Fuzz(func(t *testing.T, wire, cuts []byte) {
		if len(wire) > 64<<10 {
			return
		}
		if diff := w.compare(t, wire, cuts); diff != "" {
			t.Errorf("%q cut by %v: net/http alone is -, the Server is +\n%s", wire, cuts, diff)
		}
	})
}

func TestServerBehavesLikeNetHTTPByteByByte(t *testing.T) {
	w := newServerPair(t)
	for _, seed := range requestSeeds() {
		if len(seed) > 2000 {
			continue
		}
		if diff := w.compare(t, []byte(seed), make([]byte, len(seed))); diff != "" {
			t.Errorf("%q: net/http alone is -, the Server is +\n%s", seed, diff)
		}
	}
	if w.served.Load() < 100 {
		t.Errorf("the Server answered %d requests", w.served.Load())
	}
}

// A Server does not answer requests with unsupported fields, even those that net/http's server ignores today.
func TestRequestsWithUnsupportedFieldsGoToTheFallback(t *testing.T) {
	w := newServerPair(t)
	for name := range unsupportedFields {
		w.exchange(t, w.fast, []byte(plainPost("", name+": x")), nil)
	}
	if n := w.served.Load(); n > 0 {
		t.Errorf("the Server answered %d requests", n)
	}
	for _, name := range []string{"Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Te", "Pragma", "Proxy-Connection", "Keep-Alive", "Http2-Settings"} {
		if !unsupportedFields[name] {
			t.Error(name)
		}
	}
}
