package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// byteWise writes one byte at a time.
type byteWise struct{ net.Conn }

func (b byteWise) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := b.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func TestAServerThatSendsAByteAtATimeIsRead(t *testing.T) {
	s := serving(t, nil, func(l *farEnd) {
		for body, ok := l.request(); ok; body, ok = l.request() {
			_, _ = io.WriteString(byteWise{l.Conn}, "HTTP/1.1 100 Continue\r\n\r\n"+chunked+"3;x\r\n"+body+"\r\n2\r\n!!\r\n0\r\nA: b\r\n\r\n")
		}
	})
	c := reaching(t, s.base)
	for range 3 {
		if got, err := ask(context.Background(), c, post("abc")); got != "abc!!" || err != nil {
			t.Fatalf("%q %v", got, err)
		}
	}
	if s.lines.Load() != 1 {
		t.Errorf("%d connections", s.lines.Load())
	}
}

// endless sends the beginning of an answer, and then a piece of it again and again for as long as somebody reads.
func endless(first, piece string) func(*farEnd) {
	piece = strings.Repeat(piece, 1+4096/len(piece))
	return func(l *farEnd) {
		_, _ = l.request()
		_, err := io.WriteString(l.Conn, first)
		for err == nil {
			_, err = io.WriteString(l.Conn, piece)
		}
	}
}

// Nothing that a server sends without end is read without end, but for a body.
func TestWhatNeverEndsIsRefused(t *testing.T) {
	for name, handle := range map[string]func(*farEnd){
		"a first line":        endless("HTTP/1.1 200 ", "O"),
		"a head of one line":  endless("HTTP/1.1 200 OK\r\nX: ", "y"),
		"a head of lines":     endless("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
		"a name":              endless("HTTP/1.1 200 OK\r\n", "X"),
		"interim answers":     endless("", "HTTP/1.1 100 Continue\r\n\r\n"),
		"a chunk's size":      endless(chunked, "0"),
		"a chunk's extension": endless(chunked+"5;", "x"),
		"trailers":            endless(chunked+"0\r\n", "X: y\r\n"),
		"a trailer":           endless(chunked+"0\r\nX: ", "y"),
		"a chunk's end":       endless(chunked+"1\r\nx", "x"),
		"empty lines":         endless("", "\r\n"),
		"nothing of HTTP":     endless("", "\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			c := reaching(t, serving(t, nil, handle).base)
			response, err := c.Do(context.Background(), get())
			if err == nil {
				_, err = drain(response.Body, nil)
				if n := len(response.Body.link.buffer); n > max(smallHead, mostBuffer) {
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

func TestTenThousandLinesAreReadWhereThereIsRoom(t *testing.T) {
	s := serving(t, nil, func(l *farEnd) {
		for _, ok := l.request(); ok; _, ok = l.request() {
			_, _ = io.WriteString(l.Conn, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X: y\r\n", 10_000)+"Content-Length: 2\r\n\r\nok")
		}
	})
	c := reaching(t, s.base, func(c *Config) { c.MaxHead = 64 << 10 })
	for range 2 {
		if got, err := ask(context.Background(), c, get()); got != "ok" || err != nil {
			t.Errorf("%q %v", got, err)
		}
	}
}

// The limit is what it says, to the byte.
func TestAHeadIsAsLongAsItMayBe(t *testing.T) {
	c := reaching(t, "http://origin.test")
	const frame = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: \r\n\r\n"
	for size, good := range map[int]bool{smallHead - 1: true, smallHead: true, smallHead + 1: false} {
		head := strings.Replace(frame, "X: ", "X: "+strings.Repeat("y", size-len(frame)), 1)
		trailers := chunked + "0\r\nX: " + strings.Repeat("y", size-len("X: \r\n\r\n")) + "\r\n\r\n"
		for _, wire := range []string{head, trailers} {
			for _, cuts := range [][]byte{nil, {200}, {0}} {
				if _, err := asWeRead(c, []byte(wire), cuts, nil, firstBuffer); (err == nil) != good || err != nil && !errors.Is(err, ErrMalformed) {
					t.Errorf("%d bytes in pieces of %v: %v", size, cuts, err)
				}
			}
		}
	}
	for n, good := range map[int]bool{maxFrame - len("5;\r\n"): true, maxFrame - len("5;\r\n") + 1: false} {
		if _, err := asWeRead(c, []byte(chunked+"5;"+strings.Repeat("x", n)+"\r\nhello\r\n0\r\n\r\n"), nil, nil, firstBuffer); (err == nil) != good {
			t.Errorf("an extension of %d bytes: %v", n, err)
		}
	}
	l := over(&played{wire: []byte(strings.Repeat("x", 10_000))}, firstBuffer)
	if err := l.head(new(head), 5000); !errors.Is(err, ErrMalformed) || len(l.buffer) != 5000 {
		t.Errorf("a buffer of %d bytes: %v", len(l.buffer), err)
	}
	for n, good := range map[int]bool{maxInterim: true, maxInterim + 1: false} {
		wire := strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", n) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		if _, err := asWeRead(c, []byte(wire), nil, nil, firstBuffer); (err == nil) != good {
			t.Errorf("%d interim answers: %v", n, err)
		}
	}
}

// A server may refuse a request while the body is on its way: it closes, or it reads on.
func TestAnEarlyRefusalIsRead(t *testing.T) {
	const refusal = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno"
	body := strings.Repeat("x", 8<<20)
	for name, handle := range map[string]func(*farEnd){
		"and it closes": func(l *farEnd) {
			_, _ = l.Peek(1) // what is unread makes the end known to who writes
			_, _ = io.WriteString(l.Conn, refusal)
		},
		"and it reads on": func(l *farEnd) {
			_, _ = io.WriteString(l.Conn, refusal)
			_, _ = l.request()
			_, _ = l.request()
		},
		"and it reads some, and closes": func(l *farEnd) {
			_, _ = io.CopyN(io.Discard, l, 1<<20)
			_, _ = io.WriteString(l.Conn, refusal)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, nil, handle)
			response, err := reaching(t, s.base).Do(context.Background(), post(body))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if text, err := drain(response.Body, nil); response.Status != 401 || string(text) != "no" || err != nil || s.lines.Load() != 1 {
				t.Errorf("%d %q %v, %d connections", response.Status, text, err, s.lines.Load())
			}
		})
	}
}

func TestARequestIsSentAsItIs(t *testing.T) {
	var got atomic.Value
	s := serving(t, nil, func(l *farEnd) {
		text := make([]byte, 4096)
		n, _ := l.Read(text)
		got.Store(string(text[:n]))
		l.say("")
	})
	c := reaching(t, s.base)
	r := &Request{Method: "POST", Target: "/v1/x?y=%20z", Fields: []Field{{"A", "b"}, {"X-Empty", ""}, {"X-Tab", "a\tb"}, {"X-", "ü"}}, Body: [][]byte{[]byte("he"), nil, []byte("llo")}}
	if _, err := ask(context.Background(), c, r); err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(s.base, "http://")
	want := "POST /v1/x?y=%20z HTTP/1.1\r\nHost: " + host + "\r\nA: b\r\nX-Empty: \r\nX-Tab: a\tb\r\nX-: ü\r\nContent-Length: 5\r\n\r\nhello"
	if got.Load() != want {
		t.Errorf("%q\n%q", got.Load(), want)
	}
	h, err := c.HeaderTemplate(r.Method, r.Target, r.Fields[:2]...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(context.Background(), c, &Request{HeaderTemplate: h, Fields: r.Fields[2:], Body: r.Body}); err != nil || got.Load() != want {
		t.Errorf("with a letterhead: %q\n%q %v", got.Load(), want, err)
	}
}

// A small request leaves in one piece, a large one without being copied.
func TestARequestIsSentInFewPieces(t *testing.T) {
	for size, pieces := range map[int]int{0: 1, 100: 1, together / 2: 1, together: 3, 1 << 20: 3} {
		conn := &played{wire: []byte("HTTP/1.1 204 No Content\r\n\r\n")}
		if _, err := reaching(t, "http://origin.test").exchange(context.Background(), over(conn, firstBuffer), post(strings.Repeat("x", size))); err != nil || conn.writes != pieces {
			t.Errorf("%d bytes in %d pieces: %v", size, conn.writes, err)
		}
	}
}

// What would break out of its place in a head is refused, and nothing of the request is sent; nobody is even called.
func TestWhatWouldBreakOutOfAHeadIsNotSent(t *testing.T) {
	s := serving(t, nil, func(*farEnd) { t.Error("called") })
	c := reaching(t, s.base)
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
		if _, err := ask(context.Background(), c, r); err == nil {
			t.Errorf("%+v was sent", r)
		}
		if _, err := c.HeaderTemplate(r.Method, r.Target, r.Fields...); err == nil {
			t.Errorf("%+v was taken for a letterhead", r)
		}
	}
}

// Host, and all that says where a body ends, are the client's to say: twice they are a riddle to the server.
func TestWhatIsTheClientsToSayIsNotTheCallers(t *testing.T) {
	s := serving(t, nil, func(*farEnd) { t.Error("called") })
	c := reaching(t, s.base)
	for _, name := range []string{"Host", "Content-Length", "content-length", "Transfer-Encoding", "TRANSFER-ENCODING"} {
		r := post("x")
		r.Fields = []Field{{name, "1"}}
		if _, err := ask(context.Background(), c, r); err == nil {
			t.Errorf("%q was sent", name)
		}
	}
	// Answers to HEAD have lengths and no bodies: this client would wait for them.
	if _, err := ask(context.Background(), c, &Request{Method: "HEAD", Target: "/"}); err == nil {
		t.Error("HEAD was sent")
	}
}

// Whom no request can be sent to.
func TestAnOriginIsOneOrNone(t *testing.T) {
	for base, address := range map[string]string{
		"http://a.test": "a.test:80", "https://a.test/v1": "a.test:443", "http://a.test:8080": "a.test:8080", "https://[::1]:1": "[::1]:1", "http://[::1]": "[::1]:80",
		"ftp://a.test": "", "a.test": "", "http://": "", "http://:80": "", "": "", "unix:///x": "", "//a.test": "",
	} {
		c, err := newFor(base)
		if (err == nil) != (address != "") || err != nil && !errors.Is(err, ErrOrigin) || err == nil && c.origin.address != address {
			t.Errorf("%q: %v", base, err)
		}
	}
}

// Where a server's words and their end disagree: what is behind the end is never the next answer.
func TestALengthThatLiesHarmsItsOwnAnswerOnly(t *testing.T) {
	for name, answer := range map[string]string{
		"larger": "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", "largest": "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nhello",
		"a chunk larger": chunked + "6\r\nhello\r\n0\r\n\r\n", "a chunk largest": chunked + "fffffffffffffff\r\nhello",
	} {
		s := serving(t, nil, func(l *farEnd) {
			body, _ := l.request()
			if l.turn > 1 {
				l.say(body)
				return
			}
			_, _ = io.WriteString(l.Conn, answer)
		})
		c := reaching(t, s.base)
		if got, err := ask(context.Background(), c, get()); err == nil {
			t.Errorf("%s: %q", name, got)
		}
		if got, err := ask(context.Background(), c, post("next")); got != "next" || err != nil {
			t.Errorf("%s: then %q %v", name, got, err)
		}
	}
}

// A server that has taken no part of a request for a while, and has said nothing, is waited for as long as ctx allows.
func TestAServerThatNeverReadsIsLeftWhenTheContextEnds(t *testing.T) {
	plain := serving(t, nil, func(l *farEnd) { _, _ = l.Peek(1); <-t.Context().Done() })
	passed := time.Hour
	for try := 0; try < 10 && passed >= lingering; try++ { // a busy machine may stop us for longer than that
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		begun := time.Now()
		if _, err := ask(ctx, reaching(t, plain.base), post(strings.Repeat("x", 32<<20))); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		passed = time.Since(begun)
	}
	if passed >= lingering {
		t.Errorf("left after %s", passed) // its refusal is nothing to wait for
	}
}
