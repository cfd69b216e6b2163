package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// echoHandler answers with the body, after the duration of the request's Pause header.
func echoHandler(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	pause, _ := time.ParseDuration(r.Header.Get("Pause"))
	time.Sleep(pause)
	_, _ = fmt.Fprint(w, string(body), err)
}

// timeUntilClosed reads until the connection ends, and returns how long that took.
func timeUntilClosed(conn net.Conn) time.Duration {
	begun := time.Now()
	_, _ = io.Copy(io.Discard, conn)
	return time.Since(begun)
}

// trickle writes text slowly, and then the same byte until the connection ends.
func trickle(conn net.Conn, text string, each time.Duration) {
	for i := 0; ; i++ {
		piece := "x"
		if i < len(text) {
			piece = text[i : i+1]
		}
		if _, err := io.WriteString(conn, piece); err != nil {
			return
		}
		time.Sleep(each)
	}
}

func TestHeaderAndIdleTimeoutsAreLikeNetHTTPs(t *testing.T) {
	begun := postHead[:30]
	for name, test := range map[string]struct {
		first bool // after a first request
		send  func(conn net.Conn)
		most  time.Duration
	}{
		"a silent one":                          {false, func(net.Conn) {}, 10 * time.Second},
		"a head that stops":                     {false, func(conn net.Conn) { _, _ = io.WriteString(conn, begun) }, 10 * time.Second},
		"a head that trickles":                  {false, func(conn net.Conn) { trickle(conn, postHead+"X: ", time.Second) }, 10 * time.Second},
		"a head that trickles beyond the limit": {false, func(conn net.Conn) { trickle(conn, postHead+"X: ", 3*time.Millisecond) }, 10 * time.Second},
		"another's head that trickles":          {false, func(conn net.Conn) { trickle(conn, "GET / HTTP/1.1\r\nX: ", time.Second) }, 10 * time.Second},
		"an idle one":                           {true, func(net.Conn) {}, 2 * time.Minute},
		"an idle one that began":                {true, func(conn net.Conn) { _, _ = io.WriteString(conn, "\r\n") }, 2 * time.Minute},
		"a second head that stops": {true, func(conn net.Conn) {
			time.Sleep(time.Minute)
			_, _ = io.WriteString(conn, begun)
		}, time.Minute + 10*time.Second},
		"a second head that trickles": {true, func(conn net.Conn) {
			time.Sleep(time.Minute)
			_, _ = io.WriteString(conn, begun)
			trickle(conn, postHead[30:]+"X: ", time.Second)
		}, time.Minute + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			took := map[bool]time.Duration{}
			eachServerInBubble(t, func(t *testing.T, fast bool) {
				_, dial := startPipedServer(t, fast, http.HandlerFunc(echoHandler))
				conn := dial()
				if test.first {
					write(t, conn, plainPost("hello"))
					readBody(t, bufio.NewReader(conn))
				}
				var sending sync.WaitGroup
				sending.Go(func() { test.send(conn) })
				took[fast] = timeUntilClosed(conn)
				sending.Wait()
			})
			if took[false] != test.most {
				t.Errorf("net/http takes %v", took[false])
			}
			if over := took[true] - took[false]; over < -time.Second || over > 10*time.Second {
				t.Errorf("the Server takes %v", took[true])
			}
			if !strings.Contains(name, "another") && !strings.Contains(name, "limit") && took[true] != test.most {
				t.Errorf("the Server takes %v, not %v", took[true], test.most)
			}
		})
	}
}

func TestTheFallbackGetsAConnectionWithoutADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dial := startPipedServer(t, true, http.HandlerFunc(echoHandler), func(h *testServer) { h.netHTTP.ReadHeaderTimeout, h.netHTTP.ReadTimeout = 0, 0 })
		conn := dial()
		write(t, conn, getRequest[:20])
		time.Sleep(time.Hour)
		write(t, conn, getRequest[20:])
		if got := readBody(t, bufio.NewReader(conn)); got != "<nil>" {
			t.Error(got)
		}
	})
}

func TestAWriteDeadlineHoldsForOneResponse(t *testing.T) {
	eachServerInBubble(t, func(t *testing.T, fast bool) {
		_, dial := startPipedServer(t, fast, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X") == "1" {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
			}
			_, _ = io.WriteString(w, "hello")
		}))
		conn := dial()
		in := bufio.NewReader(conn)
		for i := range 3 {
			write(t, conn, plainPost("", "X: "+strconv.Itoa(i)))
			if got := readBody(t, in); got != "hello" {
				t.Error(got)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestTimeoutsStartAnewWithEveryRequest(t *testing.T) {
	eachServerInBubble(t, func(t *testing.T, fast bool) {
		_, dial := startPipedServer(t, fast, http.HandlerFunc(echoHandler))
		conn := dial()
		in := bufio.NewReader(conn)
		for i, pause := range []string{"", "3m", "5ms", "1h", "", "500ms", "20ms"} {
			write(t, conn, plainPost("hello", "Pause: "+pause))
			if got := readBody(t, in); got != "hello<nil>" {
				t.Errorf("%d: %q", i, got)
			}
			time.Sleep(time.Duration(i%3) * 59 * time.Second)
		}
		if took := timeUntilClosed(conn); took > 2*time.Minute || took < 2*time.Minute-time.Second {
			t.Error(took)
		}
	})
}

func TestTheIdleTimeoutIsExactToASecond(t *testing.T) {
	eachServerInBubble(t, func(t *testing.T, fast bool) {
		_, dial := startPipedServer(t, fast, http.HandlerFunc(echoHandler))
		conn := dial()
		in := bufio.NewReader(conn)
		for range 1000 {
			head, body, _ := strings.Cut(plainPost("hello"), "hello")
			write(t, conn, head)
			write(t, conn, "hello"+body)
			readBody(t, in)
			time.Sleep(300 * time.Millisecond)
		}
		if took := timeUntilClosed(conn) + 300*time.Millisecond; took > 2*time.Minute || took < 2*time.Minute-time.Second {
			t.Error(took)
		}
	})
}

func TestTheBodyTimeoutIsLikeNetHTTPs(t *testing.T) {
	for _, reads := range []bool{true, false} {
		t.Run(strconv.FormatBool(reads), func(t *testing.T) {
			eachServerInBubble(t, func(t *testing.T, fast bool) {
				failed := make(chan error, 1)
				_, dial := startPipedServer(t, fast, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var err error
					if reads {
						_, err = io.ReadAll(r.Body)
					}
					failed <- err
					w.WriteHeader(http.StatusTeapot)
				}))
				conn, begun := dial(), time.Now()
				var sending sync.WaitGroup
				sending.Go(func() { trickle(conn, postHead+"Content-Length: 100000\r\n\r\n", 10*time.Millisecond) })
				if err := <-failed; reads && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
				}
				r, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || r.StatusCode != http.StatusTeapot {
					t.Fatal(r, err)
				}
				timeUntilClosed(conn)
				sending.Wait()
				if took := time.Since(begun); took < time.Minute || took > time.Minute+5*time.Second {
					t.Error(took)
				}
			})
		})
	}
}

func TestShutdownClosesIdleConnectionsAtOnceAndOthersAfterTheirResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts, dial := startPipedServer(t, true, http.HandlerFunc(echoHandler))
		fresh, idle, begun, runs, sends := dial(), dial(), dial(), dial(), dial()
		write(t, idle, plainPost("hello"))
		readBody(t, bufio.NewReader(idle))
		write(t, begun, postHead[:30])
		write(t, runs, plainPost("hello", "Pause: 5s"))
		write(t, sends, postHead+"Content-Length: 5\r\n\r\nhel")
		synctest.Wait()
		at := time.Now()
		done := make(chan error)
		go func() { done <- ts.fast.Shutdown(context.Background()) }()
		for name, conn := range map[string]net.Conn{"fresh": fresh, "idle": idle, "begun": begun} {
			if took := timeUntilClosed(conn); took != 0 {
				t.Errorf("%s: %v", name, took)
			}
		}
		late := dial() // accepted after the Shutdown
		if took := timeUntilClosed(late); took != 0 {
			t.Errorf("late: %v", took)
		}
		time.Sleep(time.Second)
		write(t, sends, "lo")
		for _, conn := range []net.Conn{sends, runs} {
			in := bufio.NewReader(conn)
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(r.Body); string(body) != "hello<nil>" || err != nil || !r.Close {
				t.Errorf("%q, %v, closed: %v", body, err, r.Close)
			}
			if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		if err := <-done; err != nil || time.Since(at) < 5*time.Second || time.Since(at) > 5*time.Second+100*time.Millisecond {
			t.Error(err, time.Since(at))
		}
	})
}

func TestShutdownReturnsTheContextsErrorAndCloseClosesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan error, 1)
		ts, dial := startPipedServer(t, true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			left <- r.Context().Err()
		}))
		conn := dial()
		write(t, conn, plainPost(""))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ts.fast.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if len(left) > 0 {
			t.Error("the request was cancelled before Close")
		}
		if err := ts.fast.Close(); err != nil {
			t.Error(err)
		}
		if took := timeUntilClosed(conn); took != 0 {
			t.Error(took)
		}
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := ts.fast.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Shutdown may close a connection between the arrival of a head and the call of the handler.
func TestARequestOnAConnectionClosedByShutdownIsNotServed(t *testing.T) {
	s := &Server{conns: map[*serverConn]struct{}{}}
	one, other := net.Pipe()
	t.Cleanup(func() { _ = other.Close() })
	sc := newServerConn(s, one)
	s.track(sc)
	if !sc.setIdle() {
		t.Fatal("setIdle fails on a running server")
	}
	s.closeConns(false)
	if sc.setActive() {
		t.Error("a request is served on a closed connection")
	}
	if s.closeConns(false) != 0 {
		t.Error("the connection is still tracked")
	}
}

func TestHandoverDeliversUntilItIsClosed(t *testing.T) {
	h := NewHandover(testAddr("here"))
	if h.Addr() != testAddr("here") {
		t.Error(h.Addr())
	}
	one, other := net.Pipe()
	go h.Deliver(one)
	if got, err := h.Accept(); got != one || err != nil {
		t.Error(got, err)
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	h.Deliver(one)
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if _, err := h.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestReplayConnReturnsPendingBytesAndHalfCloses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	one, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	h := newStrictConn(one, []byte("begun"))
	write(t, other, " ended")
	_ = other.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(h); string(got) != "begun ended" || err != nil || h.NetConn() != one {
		t.Errorf("%q, %v", got, err)
	}
	if err := h.CloseWrite(); err != nil {
		t.Error(err)
	}
	_ = other.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	_, _ = one.Close(), other.Close()
}

// A failingListener fails a number of times with a temporary error, and then for good.
type failingListener struct {
	net.Listener
	fails int
}

type temporaryError struct{ error }

func (temporaryError) Temporary() bool { return true }

func (l *failingListener) Accept() (net.Conn, error) {
	if l.fails--; l.fails >= 0 {
		return nil, temporaryError{errors.New("too many open files")}
	}
	return nil, io.ErrClosedPipe
}

func TestServeRetriesTemporaryErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := new(Server).Serve(&failingListener{fails: 4}); !errors.Is(err, io.ErrClosedPipe) || time.Since(begun) != 75*time.Millisecond {
			t.Error(err, time.Since(begun))
		}
	})
}

func TestAServerLeavesNoGoroutines(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("served", func(t *testing.T) {
		ts := startServer(t, true, http.HandlerFunc(echoHandler))
		for i := range 30 {
			conn := ts.dial(t)
			write(t, conn, plainPost("hello", fmt.Sprintf("Pause: %dms", i)))
			switch i % 3 {
			case 0:
				_ = conn.Close()
			case 1:
				readBody(t, bufio.NewReader(conn))
				write(t, conn, getRequest)
			}
		}
	})
	goleak.VerifyNone(t, before)
}
