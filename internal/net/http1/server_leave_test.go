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

// lanePiped serves a handler to callers in memory, within a bubble of synctest. It is closed at the end of it.
func startPipedServer(t *testing.T, laned bool, h http.Handler, change ...func(*testServer)) (*testServer, func() net.Conn) {
	t.Helper()
	public, rest := NewHandover(testAddr("here")), NewHandover(testAddr("rest"))
	house := &testServer{netHTTP: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute}, listener: public}
	if laned {
		house.fast = &Server{Handler: h, Targets: testTargets, Fallback: rest.Deliver, HeaderTimeout: 10 * time.Second, BodyTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	}
	for _, f := range change {
		f(house)
	}
	if laned {
		go func() { _ = house.fast.Serve(public) }()
		go func() { _ = house.netHTTP.Serve(rest) }()
	} else {
		go func() { _ = house.netHTTP.Serve(public) }()
	}
	t.Cleanup(func() {
		_ = public.Close()
		if laned {
			_ = house.fast.Close()
		}
		_ = house.netHTTP.Close()
		// net/http's server waits half a second before it lets go of a caller whose body it did not read to its end.
		time.Sleep(time.Second)
	})
	return house, func() net.Conn {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		public.Deliver(server)
		return client
	}
}

// laneBubble runs a test with the lane and without, on a clock of its own.
func eachServerInBubble(t *testing.T, f func(t *testing.T, laned bool)) {
	t.Helper()
	eachServer(t, func(t *testing.T, laned bool) {
		synctest.Test(t, func(t *testing.T) { f(t, laned) })
	})
}

// laneHear reads the next answer.
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

func TestACallerWhoLeavesEndsItsRequest(t *testing.T) {
	for _, streams := range []bool{true, false} {
		for _, body := range []string{"", "asked"} {
			t.Run(fmt.Sprint(streams, len(body)), func(t *testing.T) {
				eachServerInBubble(t, func(t *testing.T, laned bool) {
					ended := make(chan time.Time, 1)
					_, dial := startPipedServer(t, laned, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.ReadAll(r.Body)
						if streams {
							_, _ = io.WriteString(w, "begun")
							_ = http.NewResponseController(w).Flush()
						}
						ctx := r.Context()
						if ctx.Err() != nil {
							t.Error("it ends before its caller leaves")
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
						t.Errorf("it was told %v later", at.Sub(left))
					}
				})
			})
		}
	}
}

func TestACallerWhoLeavesAtOnceIsMissedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time)
		_, dial := startPipedServer(t, true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
			ended <- time.Now()
		}))
		conn := dial()
		write(t, conn, plainPost("asked"))
		begun := time.Now()
		_ = conn.Close()
		if at := <-ended; at.Sub(begun) != backgroundReadDelay {
			t.Error(at.Sub(begun))
		}
	})
}

// The timer of one request serves the next.
func TestACallerWhoLeavesWithALaterRequestIsMissedSoonToo(t *testing.T) {
	for _, pause := range []time.Duration{0, backgroundReadDelay / 2, backgroundReadDelay, 3 * backgroundReadDelay / 2, 5 * backgroundReadDelay} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan time.Time, 1)
			_, dial := startPipedServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked, _ := io.ReadAll(r.Body); string(asked) == "stay" {
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

func TestHalfACloseIsLeavingAsWithNetHTTP(t *testing.T) {
	eachServer(t, func(t *testing.T, laned bool) {
		house := startServer(t, laned, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
			_, _ = io.WriteString(w, "still there?")
		}))
		conn := house.dial(t)
		write(t, conn, plainPost("asked"))
		_ = conn.(*net.TCPConn).CloseWrite()
		if wire, err := io.ReadAll(conn); err != nil || !bytes.HasSuffix(wire, []byte("still there?")) {
			t.Errorf("%q, %v", wire, err)
		}
	})
}

func TestARequestThatComesEarlyIsNoReasonToEndAndIsServedNext(t *testing.T) {
	next := plainPost("second", "X: 2")
	for name, wire := range map[string]string{"plain": next, "other": strings.Replace(next, "Host", "Pragma: x\r\nHost", 1), "blank": "\r\n" + next} {
		for _, at := range []time.Duration{0, backgroundReadDelay / 2, 2 * backgroundReadDelay} { // before the watch, and in it
			for _, pieces := range []int{1, 3, len(wire)} {
				t.Run(fmt.Sprint(name, at, pieces), func(t *testing.T) {
					eachServerInBubble(t, func(t *testing.T, laned bool) {
						_, dial := startPipedServer(t, laned, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

func TestARequestEndsWithItsHandlerThoughItsBodyIsStillComing(t *testing.T) {
	eachServerInBubble(t, func(t *testing.T, laned bool) {
		returned, ended := make(chan struct{}), make(chan struct{})
		_, dial := startPipedServer(t, laned, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
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
			t.Error("it goes on")
		}
	})
}

func TestARequestKnowsWhatItsConnectionKnows(t *testing.T) {
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

// TestTheWatchIsOne holds when the timer of one request is late, and that of the next is not.
func TestTheWatchIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, conn := net.Pipe()
		v := newServerConn(&Server{}, conn)
		v.request = &handlerRequest{}
		v.startBackgroundRead()
		go v.backgroundRead()
		go v.backgroundRead()
		go func() { _, _ = io.WriteString(client, "POST") }()
		synctest.Wait()
		v.abortBackgroundRead()
		if got := string(v.buffer[v.start:v.end]); got != "P" {
			t.Errorf("%q was read", got)
		}
		_ = client.Close()
	})
}

// TestTheWatchBeginsAndEndsWhenItWill has handlers that end about when the watch begins.
func TestTheWatchBeginsAndEndsWhenItWill(t *testing.T) {
	house := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		time.Sleep(8*time.Millisecond + rand.N(4*time.Millisecond))
		_, _ = fmt.Fprintf(w, "%s %s %s %v %v", body, r.Method, r.Header.Get("X"), err, r.Context().Err())
	}))
	const callers, each = 48, 50
	var all sync.WaitGroup
	for caller := range callers {
		conn := house.dial(t)
		all.Go(func() {
			in, ahead := bufio.NewReader(conn), 1+caller%3
			for i := range each + ahead - 1 {
				if i < each {
					body := strings.Repeat("b", rand.N(20)*caller)
					_, _ = io.WriteString(conn, plainPost(fmt.Sprint(body, caller, ".", i), fmt.Sprint("X: ", i%4)))
				}
				if heard := i - ahead + 1; heard >= 0 {
					r, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Error(err)
						return
					}
					got, err := io.ReadAll(r.Body)
					if want := fmt.Sprintf("%d.%d POST %d <nil> <nil>", caller, heard, heard%4); err != nil || strings.TrimLeft(string(got), "b") != want {
						t.Errorf("%q, not %q: %v", got, want, err)
						return
					}
				}
			}
		})
	}
	all.Wait()
}
