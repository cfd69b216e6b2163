package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A bytewiseConn writes one byte at a time.
type bytewiseConn struct{ net.Conn }

func (b bytewiseConn) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := b.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func TestAResponseSentByteByByteIsRead(t *testing.T) {
	s := newOrigin(t, nil, func(oc *originConn) {
		for body, ok := oc.readRequest(); ok; body, ok = oc.readRequest() {
			_, _ = io.WriteString(bytewiseConn{oc.Conn}, "HTTP/1.1 100 Continue\r\n\r\n"+chunked+"3;x\r\n"+body+"\r\n2\r\n!!\r\n0\r\nA: b\r\n\r\n")
		}
	})
	c := newClient(t, s.url)
	for range 3 {
		if got, err := roundTrip(context.Background(), c, post("abc")); got != "abc!!" || err != nil {
			t.Fatalf("%q %v", got, err)
		}
	}
	if s.accepted.Load() != 1 {
		t.Errorf("%d connections", s.accepted.Load())
	}
}

// endlessResponse sends the beginning of a response, and then the same piece until the client closes.
func endlessResponse(first, piece string) func(*originConn) {
	piece = strings.Repeat(piece, 1+4096/len(piece))
	return func(oc *originConn) {
		_, _ = oc.readRequest()
		_, err := io.WriteString(oc.Conn, first)
		for err == nil {
			_, err = io.WriteString(oc.Conn, piece)
		}
	}
}

// Everything but a body has a limit.
func TestEndlessHeadsAndChunkLinesAreRefused(t *testing.T) {
	for name, handle := range map[string]func(*originConn){
		"a first line":        endlessResponse("HTTP/1.1 200 ", "O"),
		"a head of one line":  endlessResponse("HTTP/1.1 200 OK\r\nX: ", "y"),
		"a head of lines":     endlessResponse("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
		"a name":              endlessResponse("HTTP/1.1 200 OK\r\n", "X"),
		"interim answers":     endlessResponse("", "HTTP/1.1 100 Continue\r\n\r\n"),
		"a chunk's size":      endlessResponse(chunked, "0"),
		"a chunk's extension": endlessResponse(chunked+"5;", "x"),
		"trailers":            endlessResponse(chunked+"0\r\n", "X: y\r\n"),
		"a trailer":           endlessResponse(chunked+"0\r\nX: ", "y"),
		"a chunk's end":       endlessResponse(chunked+"1\r\nx", "x"),
		"empty lines":         endlessResponse("", "\r\n"),
		"not HTTP":            endlessResponse("", "\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, newOrigin(t, nil, handle).url)
			response, err := c.Do(context.Background(), getRoot())
			if err == nil {
				_, err = drain(response.Body, nil)
				if n := len(response.Body.conn.buffer); n > max(testMaxHead, maxBuffer) {
					t.Errorf("a buffer of %d bytes", n)
				}
				_ = response.Body.Close()
			}
			if !errors.Is(err, ErrMalformed) {
				t.Error(err)
			}
		})
	}
}

func TestTenThousandFieldsWithinMaxHeadAreRead(t *testing.T) {
	s := newOrigin(t, nil, func(oc *originConn) {
		for _, ok := oc.readRequest(); ok; _, ok = oc.readRequest() {
			_, _ = io.WriteString(oc.Conn, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X: y\r\n", 10_000)+"Content-Length: 2\r\n\r\nok")
		}
	})
	c := newClient(t, s.url, func(c *Config) { c.MaxHead = 64 << 10 })
	for range 2 {
		if got, err := roundTrip(context.Background(), c, getRoot()); got != "ok" || err != nil {
			t.Errorf("%q %v", got, err)
		}
	}
}

// The limits are exact.
func TestTheLimitsOfHeadsAndChunkLinesAreExact(t *testing.T) {
	c := newClient(t, "http://origin.test")
	const frame = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: \r\n\r\n"
	for size, good := range map[int]bool{testMaxHead - 1: true, testMaxHead: true, testMaxHead + 1: false} {
		head := strings.Replace(frame, "X: ", "X: "+strings.Repeat("y", size-len(frame)), 1)
		trailers := chunked + "0\r\nX: " + strings.Repeat("y", size-len("X: \r\n\r\n")) + "\r\n\r\n"
		for _, wire := range []string{head, trailers} {
			for _, cuts := range [][]byte{nil, {200}, {0}} {
				if _, err := readWithClient(c, []byte(wire), cuts, nil, initialBuffer); (err == nil) != good || err != nil && !errors.Is(err, ErrMalformed) {
					t.Errorf("%d bytes in pieces of %v: %v", size, cuts, err)
				}
			}
		}
	}
	for n, good := range map[int]bool{maxChunkLine - len("5;\r\n"): true, maxChunkLine - len("5;\r\n") + 1: false} {
		if _, err := readWithClient(c, []byte(chunked+"5;"+strings.Repeat("x", n)+"\r\nhello\r\n0\r\n\r\n"), nil, nil, initialBuffer); (err == nil) != good {
			t.Errorf("an extension of %d bytes: %v", n, err)
		}
	}
	cc := newFakeClientConn(&fakeConn{wire: []byte(strings.Repeat("x", 10_000))}, initialBuffer)
	if err := cc.readHead(new(responseHead), 5000); !errors.Is(err, ErrMalformed) || len(cc.buffer) != 5000 {
		t.Errorf("a buffer of %d bytes: %v", len(cc.buffer), err)
	}
	for n, good := range map[int]bool{maxInterim: true, maxInterim + 1: false} {
		wire := strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", n) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		if _, err := readWithClient(c, []byte(wire), nil, nil, initialBuffer); (err == nil) != good {
			t.Errorf("%d interim answers: %v", n, err)
		}
	}
}

// A server may refuse a request while the body is being sent, and then close the connection or read on.
func TestAResponseBeforeTheEndOfTheRequestIsRead(t *testing.T) {
	const refusal = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno"
	body := strings.Repeat("x", 8<<20)
	for name, handle := range map[string]func(*originConn){
		"and it closes": func(oc *originConn) {
			_, _ = oc.Peek(1) // closing with unread data sends a reset, which the client notices
			_, _ = io.WriteString(oc.Conn, refusal)
		},
		"and it reads on": func(oc *originConn) {
			_, _ = io.WriteString(oc.Conn, refusal)
			_, _ = oc.readRequest()
			_, _ = oc.readRequest()
		},
		"and it reads some, and closes": func(oc *originConn) {
			_, _ = io.CopyN(io.Discard, oc, 1<<20)
			_, _ = io.WriteString(oc.Conn, refusal)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOrigin(t, nil, handle)
			response, err := newClient(t, s.url).Do(context.Background(), post(body))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if text, err := drain(response.Body, nil); response.Status != 401 || string(text) != "no" || err != nil || s.accepted.Load() != 1 {
				t.Errorf("%d %q %v, %d connections", response.Status, text, err, s.accepted.Load())
			}
		})
	}
}

func TestRequestEncoding(t *testing.T) {
	var got atomic.Value
	s := newOrigin(t, nil, func(oc *originConn) {
		text := make([]byte, 4096)
		for { // until the client closes: a connection that the server closed could be reused before the client sees it
			n, err := oc.Read(text)
			if err != nil {
				return
			}
			got.Store(string(text[:n]))
			oc.respond("")
		}
	})
	c := newClient(t, s.url)
	r := &Request{Method: "POST", Target: "/v1/x?y=%20z", Fields: []Field{{"A", "b"}, {"X-Empty", ""}, {"X-Tab", "a\tb"}, {"X-", "ü"}}, Body: [][]byte{[]byte("he"), nil, []byte("llo")}}
	if _, err := roundTrip(context.Background(), c, r); err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(s.url, "http://")
	want := "POST /v1/x?y=%20z HTTP/1.1\r\nHost: " + host + "\r\nA: b\r\nX-Empty: \r\nX-Tab: a\tb\r\nX-: ü\r\nContent-Length: 5\r\n\r\nhello"
	if got.Load() != want {
		t.Errorf("%q\n%q", got.Load(), want)
	}
	h, err := c.HeaderTemplate(r.Method, r.Target, r.Fields[:2]...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := roundTrip(context.Background(), c, &Request{HeaderTemplate: h, Fields: r.Fields[2:], Body: r.Body}); err != nil || got.Load() != want {
		t.Errorf("with a header template: %q\n%q %v", got.Load(), want, err)
	}
}

// A small request is sent with one write, a large one without being copied.
func TestASmallRequestIsSentWithOneWrite(t *testing.T) {
	for size, pieces := range map[int]int{0: 1, 100: 1, maxCoalesced / 2: 1, maxCoalesced: 3, 1 << 20: 3} {
		conn := &fakeConn{wire: []byte("HTTP/1.1 204 No Content\r\n\r\n")}
		if _, err := newClient(t, "http://origin.test").exchange(context.Background(), newFakeClientConn(conn, initialBuffer), post(strings.Repeat("x", size))); err != nil || conn.writes != pieces {
			t.Errorf("%d bytes in %d pieces: %v", size, conn.writes, err)
		}
	}
}

// What would change the structure of the head is refused before a connection is made.
func TestInvalidRequestsAreNotSent(t *testing.T) {
	s := newOrigin(t, nil, func(*originConn) { t.Error("the server was called") })
	c := newClient(t, s.url)
	var bad []*Request
	for _, text := range []string{"a\r\nX: y", "a\rb", "a\nb", "a\x00b", "\r", "\n", "a\x7f", "a\x0bb", "a\x1bb"} {
		bad = append(bad,
			&Request{Method: "GET", Target: "/", Fields: []Field{{"A", text}}},
			&Request{Method: "GET", Target: "/", Fields: []Field{{"Good", "x"}, {text, "b"}}},
			&Request{Method: "GET", Target: "/" + text},
			&Request{Method: "GET" + text, Target: "/"},
		)
	}
	for _, name := range []string{"", " ", "a b", "a:", "a ", "ä", "a\t", "(a)"} {
		bad = append(bad, &Request{Method: "GET", Target: "/", Fields: []Field{{name, "b"}}})
	}
	for _, target := range []string{"", "x", "*", "http://other.test/", "/ HTTP/1.1", "/ä", "/\x80", "/a b", "/\t"} {
		bad = append(bad, &Request{Method: "GET", Target: target})
	}
	for _, method := range []string{"", "G T", "GET ", "GÉT", "GET\t/x"} {
		bad = append(bad, &Request{Method: method, Target: "/"})
	}
	for _, r := range bad {
		if _, err := roundTrip(context.Background(), c, r); err == nil {
			t.Errorf("%+v was sent", r)
		}
		if _, err := c.HeaderTemplate(r.Method, r.Target, r.Fields...); err == nil {
			t.Errorf("%+v was accepted for a header template", r)
		}
	}
}

// Host and the framing are set by the client. A second value would be ambiguous to the server.
func TestReservedFieldsAndHEADAreRefused(t *testing.T) {
	s := newOrigin(t, nil, func(*originConn) { t.Error("the server was called") })
	c := newClient(t, s.url)
	for _, name := range []string{"Host", "Content-Length", "content-length", "Transfer-Encoding", "TRANSFER-ENCODING"} {
		r := post("x")
		r.Fields = []Field{{name, "1"}}
		if _, err := roundTrip(context.Background(), c, r); err == nil {
			t.Errorf("%q was sent", name)
		}
	}
	// The responses to HEAD have a length and no body: this client would wait for one.
	if _, err := roundTrip(context.Background(), c, &Request{Method: "HEAD", Target: "/"}); err == nil {
		t.Error("HEAD was sent")
	}
}

func TestNewAcceptsHTTPOriginsOnly(t *testing.T) {
	for base, address := range map[string]string{
		"http://a.test": "a.test:80", "https://a.test/v1": "a.test:443", "http://a.test:8080": "a.test:8080", "https://[::1]:1": "[::1]:1", "http://[::1]": "[::1]:80",
		"ftp://a.test": "", "a.test": "", "http://": "", "http://:80": "", "": "", "unix:///x": "", "//a.test": "",
	} {
		c, err := newClientFor(base)
		if (err == nil) != (address != "") || err != nil && !errors.Is(err, ErrOrigin) || err == nil && c.origin.address != address {
			t.Errorf("%q: %v", base, err)
		}
	}
}

// When a length is wrong, the bytes after the end are never taken for the next response.
func TestAWrongLengthDoesNotAffectTheNextResponse(t *testing.T) {
	for name, answer := range map[string]string{
		"larger": "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", "largest": "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nhello",
		"a chunk larger": chunked + "6\r\nhello\r\n0\r\n\r\n", "a chunk largest": chunked + "fffffffffffffff\r\nhello",
	} {
		s := newOrigin(t, nil, func(oc *originConn) {
			body, _ := oc.readRequest()
			if oc.number > 1 {
				oc.respond(body)
				return
			}
			_, _ = io.WriteString(oc.Conn, answer)
		})
		c := newClient(t, s.url)
		if got, err := roundTrip(context.Background(), c, getRoot()); err == nil {
			t.Errorf("%s: %q", name, got)
		}
		if got, err := roundTrip(context.Background(), c, post("next")); got != "next" || err != nil {
			t.Errorf("%s: then %q %v", name, got, err)
		}
	}
}

// A server that does not read a request is waited for until the context ends.
func TestTheEndOfTheContextEndsAWriteThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe() // which blocks a write until it is read
		defer func() { _ = theirs.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		begun := time.Now()
		cc := newFakeClientConn(ours, initialBuffer)
		cc.abort = func() { _ = ours.SetDeadline(longAgo) } // as for a connection that was dialled
		_, err := newClient(t, "http://origin.test").exchange(ctx, cc, post(strings.Repeat("x", 1<<20)))
		if passed := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || passed != 50*time.Millisecond {
			t.Errorf("%v after %s", err, passed) // it must not wait for a response
		}
	})
}
