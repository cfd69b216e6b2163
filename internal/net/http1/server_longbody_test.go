package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The low-water mark does not delay the end of a truncated body.
func TestATruncatedLongBodyFailsAtOnce(t *testing.T) {
	const length = 300_000
	for _, sent := range []int{0, 1, 5000, 100_000, length - 1} {
		for name, disconnect := range map[string]func(*net.TCPConn){
			"closes":      func(c *net.TCPConn) { _ = c.Close() },
			"half closes": func(c *net.TCPConn) { _ = c.CloseWrite() },
			"resets":      func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		} {
			for _, before := range []bool{true, false} { // before the body is read, or during that
				t.Run(fmt.Sprint(name, " ", sent, " ", before), func(t *testing.T) {
					t.Parallel()
					begun, left, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
					ts := startServer(t, true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						close(begun)
						if before {
							<-left
						}
						_, err := io.ReadFull(r.Body, make([]byte, length))
						failed <- err
					}), func(h *testServer) { h.fast.BodyTimeout = 5 * time.Second })
					conn := ts.dial(t)
					write(t, conn, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", postHead, length, strings.Repeat("b", sent)))
					<-begun
					time.Sleep(20 * time.Millisecond) // so that what was sent has arrived
					disconnect(conn.(*net.TCPConn))
					time.Sleep(20 * time.Millisecond)
					close(left)
					if err := <-failed; !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) {
						t.Error(err)
					}
				})
			}
		}
	}
}

// The low-water mark works with bodies that exceed the receive buffer, and with bodies that trickle.
func TestALongBodyIsReadInAnyPieces(t *testing.T) {
	ts := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := make([]byte, r.ContentLength)
		n, err := io.ReadFull(r.Body, all)
		_, _ = fmt.Fprint(w, n, err, strings.Count(string(all), "b"))
	}))
	for _, length := range []int{20_000, 70_000, 1 << 20, 1<<20 + 1, 6 << 20} {
		for _, piece := range []int{1 << 10, 9_999, 1 << 16, 8 << 20} {
			t.Run(fmt.Sprint(length, " ", piece), func(t *testing.T) {
				t.Parallel()
				conn := ts.dial(t)
				in := bufio.NewReader(conn)
				for range 2 {
					write(t, conn, fmt.Sprintf("%sContent-Length: %d\r\n\r\n", postHead, length))
					for left := length; left > 0; left -= piece {
						write(t, conn, strings.Repeat("b", min(piece, left)))
					}
					if got, want := readBody(t, in), fmt.Sprint(length, nil, length); got != want {
						t.Errorf("%q, not %q", got, want)
					}
				}
			})
		}
	}
}

// A long body that arrives slowly, but fast enough, is read although less arrives than the low-water mark asks for.
func TestASlowLongBodyKeepsItsRateBelowTheLowWaterMark(t *testing.T) {
	t.Parallel()
	const length, first = 400_000, 50_000
	some := make(chan int, 1)
	ts := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := make([]byte, length)
		n, _ := io.ReadAtLeast(r.Body, all, 1) // waits for all of it, and after a window takes what there is
		if n < first {
			more, _ := r.Body.Read(all[n:])
			n += more
		}
		some <- n
		rest, err := io.ReadFull(r.Body, all[n:])
		_, _ = fmt.Fprint(w, n+rest, err)
	}), func(h *testServer) { h.fast.BodyTimeout, h.fast.BodyRate = 5*time.Minute, 1000 })
	conn := ts.dial(t)
	write(t, conn, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", postHead, length, strings.Repeat("b", first)))
	if n := <-some; n != first {
		t.Errorf("%d bytes were read, not %d", n, first)
	}
	write(t, conn, strings.Repeat("b", length-first))
	if got, want := readBody(t, bufio.NewReader(conn)), fmt.Sprint(length, nil); got != want {
		t.Errorf("%q, not %q", got, want)
	}
}
