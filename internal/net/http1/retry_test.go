package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A truncatingConn accepts a number of bytes, and then fails with EPIPE.
type truncatingConn struct {
	fakeConn
	limit   int
	written int
}

func (d *truncatingConn) Write(b []byte) (int, error) {
	n := min(len(b), d.limit-d.written)
	d.written += n
	if n < len(b) {
		return n, syscall.EPIPE
	}
	return n, nil
}

// A keep-alive connection may be closed between the stale check and the request. The request is sent again only if the
// server cannot have received all of it.
func TestARequestIsRetriedOnlyIfItWasNotSentWhole(t *testing.T) {
	small, large := post("hello"), post(strings.Repeat("x", 4*maxCoalesced))
	for name, test := range map[string]struct {
		r       *Request
		refuses func(head, whole int) int // how many of its last bytes
		again   bool
	}{
		"nothing of it":            {small, func(_, whole int) int { return whole }, true},
		"a part of its head":       {small, func(_, whole int) int { return whole - 9 }, true},
		"its head":                 {small, func(head, whole int) int { return whole - head }, true},
		"all but one byte":         {small, func(_, _ int) int { return 1 }, true},
		"all of it":                {small, func(_, _ int) int { return 0 }, false},
		"nothing of a large one":   {large, func(_, whole int) int { return whole }, true},
		"its head alone":           {large, func(head, whole int) int { return whole - head }, true},
		"all but one byte of much": {large, func(_, _ int) int { return 1 }, true},
		"all of a large one":       {large, func(_, _ int) int { return 0 }, false},
		"nothing of one of a head": {getRoot(), func(_, whole int) int { return whole }, true},
		"all of one of a head":     {getRoot(), func(_, _ int) int { return 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			s := newOrigin(t, nil, func(oc *originConn) {
				if body, ok := oc.readRequest(); ok {
					requests.Add(1)
					oc.respond(strconv.Itoa(len(body)))
				}
			})
			c := newClient(t, s.url)
			length := 0
			for _, part := range test.r.Body {
				length += len(part)
			}
			head := len(test.r.appendHead(nil, c.origin.host, length))
			conn := &truncatingConn{limit: head + length - test.refuses(head, head+length)}
			c.idle.put(newFakeClientConn(conn, initialBuffer), 0)
			_, err := roundTrip(context.Background(), c, test.r)
			if (err == nil) != test.again || (requests.Load() == 1) != test.again || !conn.closed.Load() {
				t.Errorf("%v, %d requests after %d bytes of another", err, requests.Load(), conn.written)
			}
			if !test.again && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
		})
	}
}

// A response that has arrived on a connection which accepts no more of the request is the response to it. The
// connection is not reused.
func TestAResponseInTheMiddleOfARequestCounts(t *testing.T) {
	s := newOrigin(t, nil, func(oc *originConn) { t.Error("the request was retried") })
	c := newClient(t, s.url)
	conn := &truncatingConn{limit: 100, fakeConn: fakeConn{wire: []byte("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")}}
	c.idle.put(newFakeClientConn(conn, initialBuffer), 0)
	response, err := c.Do(context.Background(), post(strings.Repeat("x", 4*maxCoalesced)))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := drain(response.Body, nil); string(text) != "no" || response.Status != 413 || err != nil {
		t.Errorf("%d %q %v", response.Status, text, err)
	}
	_ = response.Body.Close()
	if !conn.closed.Load() || c.idle.get() != nil {
		t.Error("the connection is reused")
	}
}

// A new connection that fails is not replaced: the origin is at fault.
func TestARequestIsNotRetriedOnANewConnection(t *testing.T) {
	s := newOrigin(t, nil, func(oc *originConn) {
		_, _ = oc.Peek(1)
		oc.reset()
	})
	c := newClient(t, s.url)
	if _, err := roundTrip(context.Background(), c, post(strings.Repeat("x", 8<<20))); !errors.Is(err, errUnsent) || s.accepted.Load() != 1 {
		t.Errorf("%v after %d connections", err, s.accepted.Load())
	}
}

// A request that was sent whole is never sent again, whatever becomes of its response.
func TestARequestThatWasSentIsNeverRetried(t *testing.T) {
	for name, ends := range map[string]func(*originConn){
		"closed": func(oc *originConn) { _ = oc.Close() }, "reset": func(oc *originConn) { oc.reset() },
		"half a head": func(oc *originConn) { _, _ = io.WriteString(oc.Conn, "HTTP/1.1 200 OK\r\nConte") },
		"half a body": func(oc *originConn) { _, _ = io.WriteString(oc.Conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab") },
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			s := newOrigin(t, nil, func(oc *originConn) {
				body, ok := oc.readRequest()
				for ; ok; body, ok = oc.readRequest() {
					if requests.Add(1) > 1 {
						ends(oc)
						return
					}
					oc.respond(body)
				}
			})
			c := newClient(t, s.url)
			if _, err := roundTrip(context.Background(), c, post("one")); err != nil {
				t.Fatal(err)
			}
			if got, err := roundTrip(context.Background(), c, post("two")); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%q %v", got, err)
			}
			if requests.Load() != 2 || s.accepted.Load() != 1 {
				t.Errorf("%d requests on %d connections", requests.Load(), s.accepted.Load())
			}
		})
	}
}

// An unwritableConn fails every write. What its peer sends can be read.
type unwritableConn struct{ net.Conn }

func (unwritableConn) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// The refusal of a server that stops reading may still arrive: its first byte is waited for until lingerTimeout, the
// rest like that of any response.
func TestALateRefusalIsWaitedForUntilTheLingerTimeout(t *testing.T) {
	for first, read := range map[time.Duration]bool{0: true, lingerTimeout - 1: true, lingerTimeout + 1: false} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			var peer sync.WaitGroup
			peer.Go(func() {
				time.Sleep(first)
				_, _ = io.WriteString(theirs, "HTTP/1.1 413 Too")
				time.Sleep(time.Minute)
				_, _ = io.WriteString(theirs, " Large\r\nContent-Length: 2\r\n\r\nno")
			})
			begun := time.Now()
			response, err := newClient(t, "http://origin.test").exchange(context.Background(), newFakeClientConn(unwritableConn{ours}, initialBuffer), post("x"))
			if (err == nil) != read || err != nil && !errors.Is(err, errUnsent) {
				t.Errorf("after %s: %v", first, err)
			}
			if passed := time.Since(begun); err != nil && passed != lingerTimeout {
				t.Errorf("given up after %s", passed)
			}
			if err == nil {
				if text, err := drain(response.Body, nil); string(text) != "no" || err != nil {
					t.Errorf("after %s: %q %v", first, text, err)
				}
				_ = response.Body.Close()
			}
			peer.Wait()
		})
	}
}
