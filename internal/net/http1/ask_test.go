package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// small is for sockets that take hardly anything at once.
func small(option int) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) (err error) {
		called := raw.Control(func(fd uintptr) {
			err = errors.Join(
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, 1),
				syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536))
		})
		return errors.Join(called, err)
	}
}

// A connection whose buffers are smaller than a request takes it in pieces.
func TestARequestThatDoesNotFitIsSentWhole(t *testing.T) {
	few := net.ListenConfig{Control: small(syscall.SO_RCVBUF)}
	listener, err := few.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		l := farEnd{Conn: conn, Reader: bufio.NewReader(conn)}
		for {
			time.Sleep(20 * time.Millisecond) // until nothing more fits
			body, ok := l.request()
			if !ok {
				return
			}
			l.say(body)
		}
	}()
	c := reaching(t, "http://"+listener.Addr().String())
	c.dialer.Control = small(syscall.SO_SNDBUF)
	for _, length := range []int{together - 1<<10, together - 1<<10, 3 * together, 3 * together} { // as one piece, and as two
		body := strings.Repeat("0123456789abcde\n", length/16)
		if got, err := ask(t.Context(), c, post(body)); err != nil || got != body {
			t.Fatalf("%d bytes came back of %d, %v", len(got), len(body), err)
		}
	}
}

// What ended a connection is told as it was, though it was noticed while the request was sent.
func TestAConnectionThatIsResetInsteadOfAnAnswerSaysSo(t *testing.T) {
	s := serving(t, nil, func(l *farEnd) {
		for answers := 0; ; answers++ {
			if _, ok := l.request(); !ok || answers > 0 {
				l.reset()
				return
			}
			l.say("once")
		}
	})
	c := reaching(t, s.base)
	if got, err := ask(context.Background(), c, post("first")); got != "once" || err != nil {
		t.Fatal(got, err)
	}
	if got, err := ask(context.Background(), c, post("second")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v", got, err)
	}
}

// All connections that were closed meanwhile are passed over, and the request goes over the first that stands.
func TestConnectionsThatWereClosedArePassedOver(t *testing.T) {
	closing := make(chan struct{})
	s := serving(t, nil, func(l *farEnd) {
		for {
			if _, ok := l.request(); !ok {
				return
			}
			l.say("here")
			if l.turn > 1 {
				<-closing
				return
			}
		}
	})
	c := reaching(t, s.base)
	const kept = 5
	var open [kept]*Response
	for i := range open {
		var err error
		if open[i], err = c.Do(context.Background(), post("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range open { // the first is the one that stands
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
	}
	close(closing)
	time.Sleep(50 * time.Millisecond)
	if got, err := ask(context.Background(), c, post("again")); got != "here" || err != nil {
		t.Fatal(got, err)
	}
	if n := s.lines.Load(); n != kept {
		t.Errorf("%d connections, and there was one that stood", n)
	}
}

// An end cuts who waits for an answer, and nothing is read over the connection any more.
func TestAnEndCutsWhoWaitsForAnAnswer(t *testing.T) {
	s := serving(t, nil, func(l *farEnd) {
		_, _ = l.request()
		_, _ = l.request() // the end
	})
	c := reaching(t, s.base)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := ask(ctx, c, post("x")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if c.idle.get() != nil {
		t.Error("the connection is used again")
	}
}

// A peer who has refused before it was asked is heard, though its words came before anybody waited for them.
func TestAPeerWhoSpeaksFirstIsHeard(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy")
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	for range 300 {
		c := reaching(t, "http://"+listener.Addr().String())
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		if got, err := ask(ctx, c, post("hello")); got != "busy" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		cancel()
	}
}

// Who waits for an answer keeps nothing of what it has sent.
func TestWhatWasSentIsGivenBackBeforeTheAnswer(t *testing.T) {
	s := serving(t, nil, func(l *farEnd) {
		_, _ = l.request()
		_, _ = l.request() // the end
	})
	c := reaching(t, s.base)
	link, err := c.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.close()
	link.kept = true
	sent := make(chan struct{})
	link.asked.Sent = func() {
		link.sending.end()
		close(sent)
	}
	over := make(chan error, 1)
	go func() { over <- link.send("a", post(strings.Repeat("b", 2*together))) }()
	<-sent
	if s := &link.sending; s.head != nil || len(s.parts) > 0 || slices.ContainsFunc(s.parts[:cap(s.parts)], func(p []byte) bool { return p != nil }) {
		t.Error("it holds on to what it has sent")
	}
	link.cut()
	if err := <-over; err != nil {
		t.Error(err) // who reads is told
	}
}
