package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// startPipedServer serves a handler over net.Pipe, in a synctest bubble, until the end of the test.
func startPipedServer(t *testing.T, fast bool, h http.Handler, change ...func(*testServer)) (*testServer, func() net.Conn) {
	t.Helper()
	public, rest := NewHandover(testAddr("here")), NewHandover(testAddr("rest"))
	ts := &testServer{netHTTP: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute}, listener: public}
	if fast {
		ts.fast = &Server{Handler: h, Targets: testTargets, Fallback: rest.Deliver, HeaderTimeout: 10 * time.Second, BodyTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	}
	for _, f := range change {
		f(ts)
	}
	if fast {
		go func() { _ = ts.fast.Serve(public) }()
		go func() { _ = ts.netHTTP.Serve(rest) }()
	} else {
		go func() { _ = ts.netHTTP.Serve(Strict(public)) }()
	}
	t.Cleanup(func() {
		_ = public.Close()
		if fast {
			_ = ts.fast.Close()
		}
		_ = ts.netHTTP.Close()
		// net/http's server waits half a second before it closes a connection whose body it did not read to its end.
		time.Sleep(time.Second)
	})
	return ts, func() net.Conn {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		public.Deliver(server)
		return client
	}
}

// eachServerInBubble runs a test in a synctest bubble with a Server and with net/http's server alone.
func eachServerInBubble(t *testing.T, f func(t *testing.T, fast bool)) {
	t.Helper()
	eachServer(t, func(t *testing.T, fast bool) {
		synctest.Test(t, func(t *testing.T) { f(t, fast) })
	})
}

// readBody reads the next response and returns its body.
func readBody(t *testing.T, in *bufio.Reader) string {
	t.Helper()
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}

func write(t *testing.T, conn io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func TestADisconnectEndsTheRequestsContext(t *testing.T) {
	for _, streams := range []bool{true, false} {
		for _, body := range []string{"", "body"} {
			t.Run(fmt.Sprint(streams, len(body)), func(t *testing.T) {
				eachServerInBubble(t, func(t *testing.T, fast bool) {
					ended := make(chan time.Time, 1)
					_, dial := startPipedServer(t, fast, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.ReadAll(r.Body)
						if streams {
							_, _ = io.WriteString(w, "begun")
							_ = http.NewResponseController(w).Flush()
						}
						ctx := r.Context()
						if ctx.Err() != nil {
							t.Error("the context ends before the caller disconnects")
						}
						after := make(chan struct{})
						stop := context.AfterFunc(ctx, func() { close(after) })
						child, cancel := context.WithCancel(ctx)
						defer cancel()
						<-ctx.Done()
						<-child.Done()
						<-after
						if stop() || !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(child.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), context.Canceled) {
							t.Error(ctx.Err(), child.Err(), context.Cause(ctx))
						}
						ended <- time.Now()
					}))
					conn := dial()
					write(t, conn, plainPost(body))
					if streams {
						if _, err := io.ReadAtLeast(conn, make([]byte, 4096), 20); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Hour)
					left := time.Now()
					_ = conn.Close()
					if at := <-ended; at != left {
						t.Errorf("the context ended %v later", at.Sub(left))
					}
				})
			})
		}
	}
}

func TestAnEarlyDisconnectIsNoticedAfterTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time)
		_, dial := startPipedServer(t, true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
			ended <- time.Now()
		}))
		conn := dial()
		write(t, conn, plainPost("body"))
		begun := time.Now()
		_ = conn.Close()
		if at := <-ended; at.Sub(begun) != backgroundReadDelay {
			t.Error(at.Sub(begun))
		}
	})
}

// The timer of one request is used for the next.
func TestADisconnectDuringALaterRequestIsNoticedWithinTwoDelays(t *testing.T) {
	for _, pause := range []time.Duration{0, backgroundReadDelay / 2, backgroundReadDelay, 3 * backgroundReadDelay / 2, 5 * backgroundReadDelay} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan time.Time, 1)
			_, dial := startPipedServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); string(body) == "stay" {
					<-r.Context().Done()
					ended <- time.Now()
				}
			}))
			conn := dial()
			for range 3 {
				write(t, conn, plainPost("go on"))
				if _, err := io.ReadAtLeast(conn, make([]byte, 4096), 20); err != nil {
					t.Fatal(err)
				}
				time.Sleep(pause)
			}
			write(t, conn, plainPost("stay"))
			begun := time.Now()
			_ = conn.Close()
			if late := (<-ended).Sub(begun); late < backgroundReadDelay || late > 2*backgroundReadDelay {
				t.Errorf("%v after a pause of %v", late, pause)
			}
		})
	}
}

func TestAHalfCloseEndsTheContextLikeNetHTTP(t *testing.T) {
	eachServer(t, func(t *testing.T, fast bool) {
		ts := startServer(t, fast, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
			_, _ = io.WriteString(w, "still there?")
		}))
		conn := ts.dial(t)
		write(t, conn, plainPost("body"))
		_ = conn.(*net.TCPConn).CloseWrite()
		if wire, err := io.ReadAll(conn); err != nil || !bytes.HasSuffix(wire, []byte("still there?")) {
			t.Errorf("%q, %v", wire, err)
		}
	})
}

func TestAPipelinedRequestIsServedNext(t *testing.T) {
	next := plainPost("second", "X: 2")
	for name, wire := range map[string]string{"plain": next, "other": strings.Replace(next, "Host", "Pragma: x\r\nHost", 1), "blank": "\r\n" + next} {
		for _, at := range []time.Duration{0, backgroundReadDelay / 2, 2 * backgroundReadDelay} { // before the background read, and during it
			for _, pieces := range []int{1, 3, len(wire)} {
				t.Run(fmt.Sprint(name, at, pieces), func(t *testing.T) {
					eachServerInBubble(t, func(t *testing.T, fast bool) {
						_, dial := startPipedServer(t, fast, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							body, _ := io.ReadAll(r.Body)
							time.Sleep(time.Second)
							_, _ = fmt.Fprintf(w, "%s %s %s %v", r.Method, body, r.Header.Get("X"), r.Context().Err())
						}))
						conn := dial()
						write(t, conn, plainPost("first", "X: 1"))
						time.Sleep(at)
						go func() {
							for i := range pieces {
								_, _ = io.WriteString(conn, wire[i*len(wire)/pieces:(i+1)*len(wire)/pieces])
							}
						}()
						in := bufio.NewReader(conn)
						for _, want := range []string{"POST first 1 <nil>", "POST second 2 <nil>"} {
							if got := readBody(t, in); got != want {
								t.Errorf("%q, not %q", got, want)
							}
						}
					})
				})
			}
		}
	}
}

func TestTheContextEndsWhenTheHandlerReturns(t *testing.T) {
	eachServerInBubble(t, func(t *testing.T, fast bool) {
		returned, ended := make(chan struct{}), make(chan struct{})
		_, dial := startPipedServer(t, fast, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			context.AfterFunc(r.Context(), func() { close(ended) })
			close(returned)
		}))
		conn := dial()
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		write(t, conn, postHead+"Content-Length: 5\r\n\r\nhel")
		<-returned
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the context goes on")
		}
	})
}

func TestTheContextHasTheValuesOfConnContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		_, dial := startPipedServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			child, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			_, limited := r.Context().Deadline()
			<-child.Done()
			_, _ = fmt.Fprint(w, child.Value(key{}), " ", r.Context().Value("none"), limited, r.Context().Err(), child.Err())
		}), func(h *testServer) {
			h.fast.ConnContext = func(conn net.Conn) context.Context {
				return context.WithValue(context.Background(), key{}, conn.RemoteAddr().String())
			}
		})
		conn := dial()
		write(t, conn, plainPost(""))
		if got, want := readBody(t, bufio.NewReader(conn)), "pipe <nil> false <nil> context deadline exceeded"; got != want {
			t.Errorf("%q", got)
		}
	})
}

// The timer of one request may be late, and fire together with that of the next.
func TestThereIsOneBackgroundRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, conn := net.Pipe()
		sc := newServerConn(&Server{}, conn)
		sc.request = &handlerRequest{}
		sc.startBackgroundRead()
		go sc.backgroundRead()
		go sc.backgroundRead()
		go func() { _, _ = io.WriteString(client, "POST") }()
		synctest.Wait()
		sc.abortBackgroundRead()
		if got := string(sc.buffer[sc.start:sc.end]); got != "P" {
			t.Errorf("%q was read", got)
		}
		_ = client.Close()
	})
}

// Handlers return about when the background read starts.
func TestTheBackgroundReadRacesWithTheEndOfTheHandler(t *testing.T) {
	ts := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		time.Sleep(8*time.Millisecond + rand.N(4*time.Millisecond))
		_, _ = fmt.Fprintf(w, "%s %s %s %v %v", body, r.Method, r.Header.Get("X"), err, r.Context().Err())
	}))
	const callers, each = 48, 50
	var all sync.WaitGroup
	for caller := range callers {
		conn := ts.dial(t)
		all.Go(func() {
			in, ahead := bufio.NewReader(conn), 1+caller%3
			for i := range each + ahead - 1 {
				if i < each {
					body := strings.Repeat("b", rand.N(20)*caller)
					_, _ = io.WriteString(conn, plainPost(fmt.Sprint(body, caller, ".", i), fmt.Sprint("X: ", i%4)))
				}
				if number := i - ahead + 1; number >= 0 {
					r, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Error(err)
						return
					}
					got, err := io.ReadAll(r.Body)
					if want := fmt.Sprintf("%d.%d POST %d <nil> <nil>", caller, number, number%4); err != nil || strings.TrimLeft(string(got), "b") != want {
						t.Errorf("%q, not %q: %v", got, want, err)
						return
					}
				}
			}
		})
	}
	all.Wait()
}
