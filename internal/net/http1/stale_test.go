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

// A dying connection takes so many bytes of a request, and then none.
type dying struct {
	played
	takes int
	took  int
}

func (d *dying) Write(b []byte) (int, error) {
	n := min(len(b), d.takes-d.took)
	d.took += n
	if n < len(b) {
		return n, syscall.EPIPE
	}
	return n, nil
}

// Between the look at a connection and the request it may be closed. The request goes again only if nobody can have it whole.
func TestARequestIsSentAgainOnlyWhenItWasNotSentWhole(t *testing.T) {
	small, large := post("hello"), post(strings.Repeat("x", 4*together))
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
		"nothing of one of a head": {get(), func(_, whole int) int { return whole }, true},
		"all of one of a head":     {get(), func(_, _ int) int { return 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			s := serving(t, nil, func(l *farEnd) {
				if body, ok := l.request(); ok {
					requests.Add(1)
					l.say(strconv.Itoa(len(body)))
				}
			})
			c := reaching(t, s.base)
			length := 0
			for _, part := range test.r.Body {
				length += len(part)
			}
			head := len(test.r.head(nil, c.origin.host, length))
			conn := &dying{takes: head + length - test.refuses(head, head+length)}
			c.idle.put(over(conn, firstBuffer), 0)
			_, err := ask(context.Background(), c, test.r)
			if (err == nil) != test.again || (requests.Load() == 1) != test.again || !conn.closed.Load() {
				t.Errorf("%v, %d requests after %d bytes of another", err, requests.Load(), conn.took)
			}
			if !test.again && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
		})
	}
}

// A refusal that stands on a connection which takes no more of a request is the answer to it; no other request may follow.
func TestARefusalInTheMiddleOfARequestIsItsAnswer(t *testing.T) {
	s := serving(t, nil, func(l *farEnd) { t.Error("sent again") })
	c := reaching(t, s.base)
	conn := &dying{takes: 100, played: played{wire: []byte("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")}}
	c.idle.put(over(conn, firstBuffer), 0)
	response, err := c.Do(context.Background(), post(strings.Repeat("x", 4*together)))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := drain(response.Body, nil); string(text) != "no" || response.Status != 413 || err != nil {
		t.Errorf("%d %q %v", response.Status, text, err)
	}
	_ = response.Body.Close()
	if !conn.closed.Load() || c.idle.get() != nil {
		t.Error("used again")
	}
}

// On a connection that is new nothing is tried twice: the origin is what fails.
func TestARequestIsNotSentAgainOnANewConnection(t *testing.T) {
	s := serving(t, nil, func(l *farEnd) {
		_, _ = l.Peek(1)
		l.reset()
	})
	c := reaching(t, s.base)
	if _, err := ask(context.Background(), c, post(strings.Repeat("x", 8<<20))); !errors.Is(err, errUnsent) || s.lines.Load() != 1 {
		t.Errorf("%v after %d connections", err, s.lines.Load())
	}
}

// A request that the server has read is never sent twice, whatever becomes of its answer.
func TestARequestThatWasReadIsNeverSentTwice(t *testing.T) {
	for name, ends := range map[string]func(*farEnd){
		"closed": func(l *farEnd) { _ = l.Close() }, "reset": func(l *farEnd) { l.reset() },
		"half a head": func(l *farEnd) { _, _ = io.WriteString(l.Conn, "HTTP/1.1 200 OK\r\nConte") },
		"half a body": func(l *farEnd) { _, _ = io.WriteString(l.Conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab") },
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			s := serving(t, nil, func(l *farEnd) {
				body, ok := l.request()
				for ; ok; body, ok = l.request() {
					if requests.Add(1) > 1 {
						ends(l)
						return
					}
					l.say(body)
				}
			})
			c := reaching(t, s.base)
			if _, err := ask(context.Background(), c, post("one")); err != nil {
				t.Fatal(err)
			}
			if got, err := ask(context.Background(), c, post("two")); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%q %v", got, err)
			}
			if requests.Load() != 2 || s.lines.Load() != 1 {
				t.Errorf("%d requests on %d connections", requests.Load(), s.lines.Load())
			}
		})
	}
}

// A mute connection takes nothing of a request; what its peer says comes through a pipe.
type mute struct{ net.Conn }

func (mute) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// The refusal of a server that takes no more may be on its way. It is waited for a moment; once it has begun, for as long as
// any other.
func TestARefusalOnItsWayIsWaitedForAMoment(t *testing.T) {
	for first, read := range map[time.Duration]bool{0: true, lingering - 1: true, lingering + 1: false} {
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
			response, err := reaching(t, "http://origin.test").exchange(context.Background(), over(mute{ours}, firstBuffer), post("x"))
			if (err == nil) != read || err != nil && !errors.Is(err, errUnsent) {
				t.Errorf("after %s: %v", first, err)
			}
			if passed := time.Since(begun); err != nil && passed != lingering {
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
