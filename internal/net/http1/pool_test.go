package http1

import (
	"context"
	"crypto/tls"
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

func TestAConnectionIsReused(t *testing.T) {
	eachTransport(t, func(t *testing.T, secure *tls.Config, trust func(*Config)) {
		s := newOrigin(t, secure, func(oc *originConn) {
			for {
				body, ok := oc.readRequest()
				if !ok {
					return
				}
				oc.respond(body)
			}
		})
		c := newClient(t, s.url, trust)
		for i := range 20 {
			want := strings.Repeat(strconv.Itoa(i), 1+i*2000)
			if got, err := roundTrip(context.Background(), c, post(want)); got != want || err != nil {
				t.Fatalf("%d: %d bytes, %v", i, len(got), err)
			}
		}
		if n := s.accepted.Load(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// Whatever the server does with a connection between two exchanges, the connection is stale.
func TestAStaleConnectionIsNotReused(t *testing.T) {
	const stray = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
	for name, between := range map[string]func(*originConn){
		"closed":               func(oc *originConn) { _ = oc.Close() },
		"reset":                func(oc *originConn) { oc.reset() },
		"another answer":       func(oc *originConn) { _, _ = io.WriteString(oc.Conn, stray) },
		"one byte":             func(oc *originConn) { _, _ = io.WriteString(oc.Conn, "H") },
		"an answer and closed": func(oc *originConn) { _, _ = io.WriteString(oc.Conn, stray); _ = oc.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, secure *tls.Config, trust func(*Config)) {
				first, disturbed, done := make(chan bool), make(chan bool), make(chan bool)
				var requests atomic.Int32
				s := newOrigin(t, secure, func(oc *originConn) {
					body, ok := oc.readRequest()
					if !ok {
						return
					}
					requests.Add(1)
					oc.respond(body)
					if oc.number > 1 {
						return
					}
					<-first
					between(oc)
					close(disturbed)
					<-done
				})
				defer close(done)
				c := newClient(t, s.url, trust)
				if got, err := roundTrip(context.Background(), c, post("one")); got != "one" || err != nil {
					t.Fatal(got, err)
				}
				close(first)
				<-disturbed
				if got, err := roundTrip(context.Background(), c, post("two")); got != "two" || err != nil {
					t.Fatal(got, err)
				}
				if s.accepted.Load() != 2 || requests.Load() != 2 {
					t.Errorf("%d connections, %d requests", s.accepted.Load(), requests.Load())
				}
			})
		})
	}
}

// Bytes after a response are not the beginning of the next. They arrive in the same segment as the response, so that
// they are in a buffer, ours or TLS's.
func TestBytesAfterAResponseAreNotTheNextResponse(t *testing.T) {
	const stray = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
	large := strings.Repeat("x", 3*initialBuffer)
	for name, answer := range map[string]string{
		"length":          "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood" + stray,
		"a large length":  "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(large)) + "\r\n\r\n" + large + stray,
		"chunks":          chunked + "4\r\ngood\r\n0\r\n\r\n" + stray,
		"trailers":        chunked + "4\r\ngood\r\n0\r\nA: b\r\n\r\n" + stray,
		"no body":         "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\ngood",
		"one byte":        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood\n",
		"a whole buffer":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", initialBuffer-len("HTTP/1.1 200 OK\r\nX: \r\nContent-Length: 4\r\n\r\ngood")) + "\r\nContent-Length: 4\r\n\r\ngood" + stray,
		"an empty answer": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + stray,
	} {
		for _, pieces := range []int{1, 2} {
			t.Run(name+" "+strconv.Itoa(pieces), func(t *testing.T) {
				eachTransport(t, func(t *testing.T, secure *tls.Config, trust func(*Config)) {
					s := newOrigin(t, secure, func(oc *originConn) {
						body, _ := oc.readRequest()
						if oc.number > 1 {
							oc.respond(body)
							return
						}
						if pieces == 1 {
							_, _ = io.WriteString(oc.Conn, answer)
						} else { // with TLS, two records
							end := max(len(answer)-len(stray), strings.Index(answer, "good"))
							whole := cork(oc)
							_, _ = io.WriteString(oc.Conn, answer[:end])
							_, _ = io.WriteString(oc.Conn, answer[end:])
							whole()
						}
						_, _ = oc.readRequest()
					})
					c := newClient(t, s.url, trust)
					if _, err := roundTrip(context.Background(), c, getRoot()); err != nil {
						t.Fatal(err)
					}
					if got, err := roundTrip(context.Background(), c, post("two")); got != "two" || err != nil {
						t.Fatalf("%q %v", got, err)
					}
				})
			})
		}
	}
}

// cork sets TCP_CORK, so that several TLS records arrive at once. The function that it returns sends what was held
// back.
func cork(oc *originConn) func() {
	socket := oc.Conn
	if s, ok := socket.(*tls.Conn); ok {
		socket = s.NetConn()
	}
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		return func() {}
	}
	cork := func(on int) {
		_ = raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, on) })
	}
	cork(1)
	return func() { cork(0) }
}

// exchangeAndClose makes an exchange over a fakeConn, and reports whether the connection is kept.
func exchangeAndClose(t *testing.T, c *Client, head string) (*fakeConn, bool) {
	t.Helper()
	before := idleConns(c)
	conn := &fakeConn{wire: []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + head + "\r\n")}
	response, err := c.exchange(context.Background(), newFakeClientConn(conn, initialBuffer), getRoot())
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return conn, idleConns(c) > before
}

// idleConns returns the number of idle connections.
func idleConns(c *Client) int {
	c.idle.mutex.Lock()
	defer c.idle.mutex.Unlock()
	return len(c.idle.conns)
}

func TestTheServersKeepAliveTimeoutIsHonoured(t *testing.T) {
	for head, test := range map[string]struct {
		seconds int // after which it is no longer reused; 0 if it is not kept
	}{
		"":                                       {60},
		"Keep-Alive: timeout=5\r\n":              {4},
		"keep-alive: max=3 , timeout=5\r\n":      {4},
		"Keep-Alive: timeout=2\r\n":              {1},
		"Keep-Alive: timeout=1\r\n":              {0},
		"Keep-Alive: timeout=0\r\n":              {0},
		"Keep-Alive: timeout=600\r\n":            {60},
		"Keep-Alive: timeout=soon\r\n":           {60},
		"Keep-Alive: timeout=99999999\r\n":       {60},
		"Connection: close\r\n":                  {0},
		"Connection: x, CLOSE ,y\r\n":            {0},
		"Connection: keep-alive\r\n":             {60},
		"Connection: closed, not-close\r\n":      {60},
		"Connection: x\r\nConnection: close\r\n": {0},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, "http://origin.test")
			for _, early := range []bool{true, false} {
				conn, is := exchangeAndClose(t, c, head)
				if is != (test.seconds > 0) || conn.closed.Load() == is {
					t.Fatalf("%q: kept %v, closed %v", head, is, conn.closed.Load())
				}
				wait := time.Duration(test.seconds) * time.Second
				if early {
					wait -= time.Millisecond
				}
				time.Sleep(wait) // on the bubble's clock
				synctest.Wait()
				if got := c.idle.get(); is && (got != nil) != early || conn.closed.Load() == (got != nil) {
					t.Errorf("%q: after %s it is reused: %v", head, wait, got != nil)
				}
			}
		})
	}
}

func TestIdleConnectionsAreClosedAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, "http://origin.test")
		var all []*fakeConn
		for range 3 {
			conn, _ := exchangeAndClose(t, c, "")
			all = append(all, conn)
			time.Sleep(20 * time.Second)
		}
		for i := range all { // the first was used a minute ago
			synctest.Wait()
			for j, conn := range all {
				if conn.closed.Load() != (j <= i) {
					t.Errorf("connection %d after %d seconds: closed %v", j, 60+20*i, conn.closed.Load())
				}
			}
			time.Sleep(20 * time.Second)
		}
		synctest.Wait()
		if len(c.idle.conns) != 0 || c.idle.timer != nil {
			t.Error("a connection or the timer is left")
		}
		conn, _ := exchangeAndClose(t, c, "") // the timer starts again
		time.Sleep(time.Minute)
		synctest.Wait()
		if !conn.closed.Load() {
			t.Error("the connection is never closed")
		}
	})
}

func TestThePoolIsLastInFirstOutAndBounded(t *testing.T) {
	c := newClient(t, "http://origin.test", func(c *Config) { c.Idle = 2 })
	var all []*fakeConn
	for range 3 {
		conn, _ := exchangeAndClose(t, c, "")
		all = append(all, conn)
	}
	if all[0].closed.Load() || all[1].closed.Load() || !all[2].closed.Load() {
		t.Error("the first two are not the ones that are kept")
	}
	if c.idle.get().conn != net.Conn(all[1]) || c.idle.get().conn != net.Conn(all[0]) || c.idle.get() != nil {
		t.Error("the pool is not last in, first out")
	}
}

func TestCloseClosesIdleConnectionsOnly(t *testing.T) {
	ended := make(chan int, 2)
	release := make(chan bool)
	s := newOrigin(t, nil, func(oc *originConn) {
		for {
			body, ok := oc.readRequest()
			if !ok {
				ended <- oc.number
				return
			}
			_, _ = io.WriteString(oc.Conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
			if body == "slow" {
				<-release
			}
			_, _ = io.WriteString(oc.Conn, "done")
		}
	})
	c := newClient(t, s.url)
	slow, err := c.Do(context.Background(), post("slow"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := roundTrip(context.Background(), c, post("fast")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if number := <-ended; number != 2 || idleConns(c) != 0 {
		t.Errorf("connection %d was closed, %d are kept", number, idleConns(c))
	}
	close(release)
	if text, err := drain(slow.Body, nil); string(text) != "done" || err != nil {
		t.Errorf("%q %v", text, err)
	}
	_ = slow.Body.Close()
	if _, err := roundTrip(context.Background(), c, post("after")); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

// Two exchanges never have the same connection.
func TestAnIdleConnectionIsTakenOnce(t *testing.T) {
	c := newClient(t, "http://origin.test")
	for range 200 {
		for range 4 {
			exchangeAndClose(t, c, "")
		}
		var mutex sync.Mutex
		taken := map[*clientConn]int{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if cc := c.idle.get(); cc != nil {
					mutex.Lock()
					taken[cc]++
					mutex.Unlock()
				}
			})
		}
		all.Wait()
		if len(taken) != 4 {
			t.Fatal(taken)
		}
	}
}
