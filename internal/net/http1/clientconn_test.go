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

// smallBuffer sets a socket buffer, SO_SNDBUF or SO_RCVBUF, to its minimum.
func smallBuffer(option int) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) (err error) {
		called := raw.Control(func(fd uintptr) {
			err = errors.Join(
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, 1),
				syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536))
		})
		return errors.Join(called, err)
	}
}

// The send buffer is smaller than the request, so that it takes several writes.
func TestARequestLargerThanTheSendBufferIsSentWhole(t *testing.T) {
	config := net.ListenConfig{Control: smallBuffer(syscall.SO_RCVBUF)}
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		l := originConn{Conn: conn, Reader: bufio.NewReader(conn)}
		for {
			time.Sleep(20 * time.Millisecond) // until the buffers are full
			body, ok := l.readRequest()
			if !ok {
				return
			}
			l.respond(body)
		}
	}()
	c := newClient(t, "http://"+listener.Addr().String())
	c.dialer.Control = smallBuffer(syscall.SO_SNDBUF)
	for _, length := range []int{maxCoalesced - 1<<10, maxCoalesced - 1<<10, 3 * maxCoalesced, 3 * maxCoalesced} { // coalesced, and not
		body := strings.Repeat("0123456789abcde\n", length/16)
		if got, err := roundTrip(t.Context(), c, post(body)); err != nil || got != body {
			t.Fatalf("%d bytes came back of %d, %v", len(got), len(body), err)
		}
	}
}

// RoundTrip of package socket notices the reset. Do returns it all the same.
func TestDoReturnsAConnectionReset(t *testing.T) {
	s := newOrigin(t, nil, func(oc *originConn) {
		for answers := 0; ; answers++ {
			if _, ok := oc.readRequest(); !ok || answers > 0 {
				oc.reset()
				return
			}
			oc.respond("once")
		}
	})
	c := newClient(t, s.url)
	if got, err := roundTrip(context.Background(), c, post("first")); got != "once" || err != nil {
		t.Fatal(got, err)
	}
	if got, err := roundTrip(context.Background(), c, post("second")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v", got, err)
	}
}

// Do skips every keep-alive connection that the server has closed, and uses the first that is open.
func TestDoSkipsClosedKeepAliveConnections(t *testing.T) {
	closing := make(chan struct{})
	s := newOrigin(t, nil, func(oc *originConn) {
		for {
			if _, ok := oc.readRequest(); !ok {
				return
			}
			oc.respond("here")
			if oc.number > 1 {
				<-closing
				return
			}
		}
	})
	c := newClient(t, s.url)
	const kept = 5
	var open [kept]*Response
	for i := range open {
		var err error
		if open[i], err = c.Do(context.Background(), post("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range open { // the first stays open
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
	}
	close(closing)
	time.Sleep(50 * time.Millisecond)
	if got, err := roundTrip(context.Background(), c, post("again")); got != "here" || err != nil {
		t.Fatal(got, err)
	}
	if n := s.accepted.Load(); n != kept {
		t.Errorf("%d connections, though one was open", n)
	}
}

// The end of the context ends the wait for a response, and the connection is not reused.
func TestTheEndOfTheContextEndsTheWaitForAResponse(t *testing.T) {
	s := newOrigin(t, nil, func(oc *originConn) {
		_, _ = oc.readRequest()
		_, _ = oc.readRequest() // the end
	})
	c := newClient(t, s.url)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := roundTrip(ctx, c, post("x")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if c.idle.get() != nil {
		t.Error("the connection is reused")
	}
}

// A server may refuse a new connection before it has read a request. Its response may arrive before the client waits
// for one.
func TestAResponseBeforeTheRequestIsRead(t *testing.T) {
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
		c := newClient(t, "http://"+listener.Addr().String())
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		if got, err := roundTrip(ctx, c, post("hello")); got != "busy" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		cancel()
	}
}

// While the client waits for a response, it keeps no buffer of the request.
func TestTheRequestIsReleasedBeforeTheResponse(t *testing.T) {
	s := newOrigin(t, nil, func(oc *originConn) {
		_, _ = oc.readRequest()
		_, _ = oc.readRequest() // the end
	})
	c := newClient(t, s.url)
	cc, err := c.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer cc.close()
	cc.reused = true
	sent := make(chan struct{})
	cc.exchange.OnSent = func() {
		cc.outgoing.release()
		close(sent)
	}
	over := make(chan error, 1)
	go func() { over <- cc.send("a", post(strings.Repeat("b", 2*maxCoalesced))) }()
	<-sent
	if s := &cc.outgoing; s.header != nil || len(s.parts) > 0 || slices.ContainsFunc(s.parts[:cap(s.parts)], func(p []byte) bool { return p != nil }) {
		t.Error("the request is still referenced")
	}
	cc.abort()
	if err := <-over; err != nil {
		t.Error(err) // the next read returns it
	}
}
