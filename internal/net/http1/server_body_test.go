package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The caller sends all of its request before it reads the response. A body up to maxDiscard is read to its end; a
// longer one ends the connection after the response.
func TestAnUnreadBodyIsDiscardedOrEndsTheConnection(t *testing.T) {
	for _, size := range []int{1, 5000, maxDiscard - 1000, maxDiscard, maxDiscard + 1, 4 << 20} {
		for _, read := range []int{0, 1, 700} {
			t.Run(fmt.Sprint(size, " ", read), func(t *testing.T) {
				t.Parallel()
				ts := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.CopyN(io.Discard, r.Body, int64(read))
					_, _ = fmt.Fprintf(w, "no, thanks: %d", r.ContentLength)
				}))
				conn := ts.dial(t)
				if _, err := io.WriteString(conn, plainPost(strings.Repeat("b", size))); err != nil {
					t.Errorf("the caller's write failed: %v", err)
				}
				in := bufio.NewReader(conn)
				r, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(r.Body); err != nil || string(got) != fmt.Sprint("no, thanks: ", size) {
					t.Errorf("%q, %v", got, err)
				}
				if kept := size-read <= maxDiscard; r.Close == kept {
					t.Errorf("closed: %v", r.Close)
				} else if kept {
					write(t, conn, plainPost("", "X: again"))
					if got := readBody(t, in); got != "no, thanks: 0" {
						t.Error(got)
					}
				} else if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
					t.Error(err)
				}
			})
		}
	}
}

func TestAnEndlessBodyIsCutOffAfterTheLingerTimeout(t *testing.T) {
	ts := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) }))
	conn := ts.dial(t)
	write(t, conn, postHead+"Content-Length: 1000000000000\r\n\r\n")
	begun, piece := time.Now(), make([]byte, 64<<10)
	for {
		if _, err := conn.Write(piece); err != nil {
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Error(err)
			}
			break
		}
	}
	if passed := time.Since(begun); passed > lingerTimeout+time.Minute {
		t.Error(passed)
	}
}

func TestABodyCannotBeReadAfterItsHandlerHasReturned(t *testing.T) {
	kept := make(chan io.Reader, 2)
	ts := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(kept) == 0 {
			kept <- r.Body
			return
		}
		if n, err := (<-kept).Read(make([]byte, 9)); n > 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Error(n, err)
		}
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprint(w, string(body), err)
	}))
	conn := ts.dial(t)
	in := bufio.NewReader(conn)
	write(t, conn, plainPost("first"))
	readBody(t, in)
	write(t, conn, plainPost("second"))
	if got := readBody(t, in); got != "second<nil>" {
		t.Error(got)
	}
}
