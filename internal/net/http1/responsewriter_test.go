package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A testServer serves a handler on the loopback: with a Server in front of net/http's, or with net/http's alone.
type testServer struct {
	address  string
	fast     *Server // nil when there is none
	netHTTP  *http.Server
	listener net.Listener
}

func startServer(t testing.TB, fast bool, h http.Handler, change ...func(*testServer)) *testServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ts := &testServer{
		address: l.Addr().String(), listener: l,
		netHTTP: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, IdleTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)},
	}
	rest := NewHandover(l.Addr())
	if fast {
		ts.fast = &Server{
			Handler: h, Targets: testTargets, Fallback: rest.Deliver, Log: slog.New(slog.DiscardHandler),
			HeaderTimeout: time.Minute, BodyTimeout: time.Minute, IdleTimeout: time.Minute,
		}
	}
	for _, f := range change {
		f(ts)
	}
	var all sync.WaitGroup
	if fast {
		all.Go(func() { _ = ts.fast.Serve(l) })
		all.Go(func() { _ = ts.netHTTP.Serve(rest) })
	} else {
		all.Go(func() { _ = ts.netHTTP.Serve(l) })
	}
	t.Cleanup(func() {
		_ = l.Close()
		if fast {
			_ = ts.fast.Close()
		}
		_ = ts.netHTTP.Close()
		all.Wait()
	})
	return ts
}

// eachServer runs a test with a Server and with net/http's server alone.
func eachServer(t *testing.T, f func(t *testing.T, fast bool)) {
	t.Helper()
	t.Run("Server", func(t *testing.T) { f(t, true) })
	t.Run("net/http", func(t *testing.T) { f(t, false) })
}

func (h *testServer) dial(t testing.TB) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	return conn
}

// lastRequest asks for the end of the connection. It is answered if the connection can be used after the request before
// it.
var lastRequest = strings.Replace(plainPost("last", "Connection: close"), "chat/completions", "embeddings", 1)

// handlers are handlers that return the results of the calls they make.
var handlers = map[string]func(w http.ResponseWriter, r *http.Request) any{
	"nothing": func(http.ResponseWriter, *http.Request) any { return nil },
	"a write": func(w http.ResponseWriter, _ *http.Request) any { return result(w.Write([]byte("hello"))) },
	"a status twice": func(w http.ResponseWriter, _ *http.Request) any {
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusNotFound)
		return result(w.Write([]byte("hello")))
	},
	"a status after a write": func(w http.ResponseWriter, _ *http.Request) any {
		got := result(w.Write([]byte("hello")))
		w.WriteHeader(http.StatusNotFound)
		return got
	},
	"an unusual status": func(w http.ResponseWriter, _ *http.Request) any {
		w.WriteHeader(http.StatusTeapot)
		return nil
	},
	"no status":      func(w http.ResponseWriter, _ *http.Request) any { w.WriteHeader(0); return nil },
	"a large status": func(w http.ResponseWriter, _ *http.Request) any { w.WriteHeader(1000); return nil },
	"a length": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Content-Length", "5")
		return result(w.Write([]byte("hello")))
	},
	"a length in pieces": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Content-Length", "5")
		return []any{result(w.Write([]byte("hel"))), http.NewResponseController(w).Flush(), result(w.Write([]byte("lo")))}
	},
	"a length of nothing": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Content-Length", "0")
		return result(w.Write([]byte("hello")))
	},
	"a length that is short of it": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Content-Length", "5")
		return []any{result(w.Write([]byte("hello"))), result(w.Write([]byte("more")))}
	},
	"a length that is too long": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Content-Length", "50")
		return result(w.Write([]byte("hello")))
	},
	"a length without a body": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Content-Length", "50")
		return nil
	},
	"204": func(w http.ResponseWriter, _ *http.Request) any {
		w.WriteHeader(http.StatusNoContent)
		return []any{result(w.Write([]byte("hello"))), result(w.Write(nil))}
	},
	"204 with a length and a flush": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(http.StatusNoContent)
		return http.NewResponseController(w).Flush()
	},
	"304": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Etag", `"x"`)
		w.WriteHeader(http.StatusNotModified)
		return result(w.Write([]byte("hello")))
	},
	"a flush before": func(w http.ResponseWriter, _ *http.Request) any {
		return []any{http.NewResponseController(w).Flush(), result(w.Write([]byte("hello")))}
	},
	"a flush after": func(w http.ResponseWriter, _ *http.Request) any {
		return []any{result(w.Write([]byte("hello"))), http.NewResponseController(w).Flush(), http.NewResponseController(w).Flush()}
	},
	"flushes between": func(w http.ResponseWriter, _ *http.Request) any {
		for i := range 50 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
		}
		return nil
	},
	"small writes": func(w http.ResponseWriter, _ *http.Request) any {
		for i := range 2000 {
			_, _ = fmt.Fprintln(w, i)
		}
		return nil
	},
	"as much as is held back": func(w http.ResponseWriter, _ *http.Request) any {
		return result(w.Write(bytes.Repeat([]byte("x"), 2048)))
	},
	"a byte more": func(w http.ResponseWriter, _ *http.Request) any {
		return result(w.Write(bytes.Repeat([]byte("x"), 2049)))
	},
	"a large write": func(w http.ResponseWriter, _ *http.Request) any {
		return result(w.Write(bytes.Repeat([]byte("0123456789abcdef"), 1<<16)))
	},
	"a large write of known length": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Content-Length", "1048576")
		return result(w.Write(bytes.Repeat([]byte("0123456789abcdef"), 1<<16)))
	},
	"a small write and a large one": func(w http.ResponseWriter, _ *http.Request) any {
		return []any{result(w.Write([]byte("<htm"))), result(w.Write(bytes.Repeat([]byte("l>"), 5000)))}
	},
	"HTML":  func(w http.ResponseWriter, _ *http.Request) any { return result(w.Write([]byte("<html>"))) },
	"bytes": func(w http.ResponseWriter, _ *http.Request) any { return result(w.Write([]byte{0, 1, 2, 0xff})) },
	"what is encoded": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Content-Encoding", "gzip")
		return result(w.Write([]byte("<html>")))
	},
	"a type that is left out": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header()["Content-Type"] = nil
		return result(w.Write([]byte("<html>")))
	},
	"names without values": func(w http.ResponseWriter, _ *http.Request) any {
		for _, name := range []string{"Connection", "Transfer-Encoding", "X", "Date"} {
			w.Header()[name] = []string{}
		}
		return result(w.Write([]byte("hello")))
	},
	"names that are none": func(w http.ResponseWriter, _ *http.Request) any {
		for _, name := range []string{"", "A\r\nInjected", "B:", "C d", "É"} {
			w.Header()[name] = []string{"1"}
		}
		return nil
	},
	"values that break out": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header()["A"] = []string{"1\r\nInjected: 1", "2\nInjected: 2", "3\r", "\n4"}
		w.Header().Set("Content-Type", "text/plain\r\n\r\nbody")
		return result(w.Write([]byte("hello")))
	},
	"many values": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header()["A"] = []string{"1", "2", ""}
		return nil
	},
	"a name after the status": func(w http.ResponseWriter, _ *http.Request) any {
		w.WriteHeader(http.StatusOK)
		w.Header().Set("Content-Type", "text/late")
		w.Header().Set("Late", "1")
		return result(w.Write([]byte("<html>")))
	},
	"a date of its own": func(w http.ResponseWriter, _ *http.Request) any { w.Header().Set("Date", "never"); return nil },
	"its end":           func(w http.ResponseWriter, _ *http.Request) any { w.Header().Set("Connection", "close"); return nil },
	"its end, streamed": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Connection", "close")
		w.(http.Flusher).Flush()
		return result(w.Write([]byte("hello")))
	},
	"a panic":               func(http.ResponseWriter, *http.Request) any { panic("in a test") },
	"an abort":              func(http.ResponseWriter, *http.Request) any { panic(http.ErrAbortHandler) },
	"a panic after a write": func(w http.ResponseWriter, _ *http.Request) any { _, _ = w.Write([]byte("x")); panic("in a test") },
	"an abort after a flush": func(w http.ResponseWriter, _ *http.Request) any {
		_, _ = w.Write([]byte("x"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
	"an abort after a length": func(w http.ResponseWriter, _ *http.Request) any {
		w.Header().Set("Content-Length", "3")
		_, _ = w.Write([]byte("x"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
	"a deadline": func(w http.ResponseWriter, _ *http.Request) any {
		return http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
	},
	"a deadline that passes for the next": func(w http.ResponseWriter, _ *http.Request) any {
		_, _ = w.Write([]byte("hello"))
		err := http.NewResponseController(w).Flush()
		return []any{err, http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))}
	},
	"all of the body": func(w http.ResponseWriter, r *http.Request) any {
		body, err := io.ReadAll(r.Body)
		again, end := r.Body.Read(make([]byte, 1))
		return []any{string(body), err, again, end, result(w.Write(body))}
	},
	"half of the body": func(w http.ResponseWriter, r *http.Request) any {
		half := make([]byte, 2)
		n, err := io.ReadFull(r.Body, half)
		return []any{n, err, result(w.Write(half))}
	},
	"a closed body": func(_ http.ResponseWriter, r *http.Request) any { return r.Body.Close() },
}

func result(n int, err error) string { return fmt.Sprint(n, " ", err) }

func TestTheHandlersTransferEncodingIsIgnored(t *testing.T) {
	for _, coding := range []string{"chunked", "identity", "gzip, chunked"} {
		ts := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Transfer-Encoding", coding)
			_, _ = io.WriteString(w, "hello")
		}))
		conn := ts.dial(t)
		write(t, conn, plainPost("")+lastRequest)
		wire, err := io.ReadAll(conn)
		if got := parseResponses(wire, nil); err != nil || len(got) != 2 || got[0].Length != 5 || got[0].Coding != nil || got[0].Body != "hello" {
			t.Error(coding, got, err)
		}
	}
}

func TestAnInterimStatusIsNotTheResponse(t *testing.T) {
	ts := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusContinue)
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "tea")
	}))
	conn := ts.dial(t)
	write(t, conn, lastRequest)
	wire, err := io.ReadAll(conn)
	if got := parseResponses(wire, nil); err != nil || len(got) != 1 || got[0].Status != "418 I'm a teapot" || got[0].Body != "tea" {
		t.Error(got, err)
	}
}

func TestResponsesAreLikeNetHTTPs(t *testing.T) {
	for name, write := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers, calls := map[bool][]parsedResponse{}, map[bool]any{}
			for _, fast := range []bool{true, false} {
				got := make(chan any, 1)
				ts := startServer(t, fast, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/v1/embeddings" {
						body, _ := io.ReadAll(r.Body)
						_, _ = fmt.Fprintf(w, "%s after all", body)
						return
					}
					if _, ok := w.(*responseWriter); ok != fast {
						t.Error("the request was served by the other server")
					}
					if w.Header().Get("Content-Type") != "" || len(w.Header()) > 0 {
						t.Error("the header of the previous response is left")
					}
					defer func() {
						if p := recover(); p != nil {
							got <- "panic"
							panic(p)
						}
					}()
					got <- write(w, r)
				}))
				conn := ts.dial(t)
				if _, err := io.WriteString(conn, plainPost("asked")+lastRequest); err != nil {
					t.Fatal(err)
				}
				wire, err := io.ReadAll(conn)
				if err != nil && !errors.Is(err, io.EOF) {
					wire = append(wire, err.Error()...)
				}
				if strings.Contains(string(wire), "\nInjected") {
					t.Errorf("%q", wire)
				}
				answers[fast], calls[fast] = parseResponses(wire, nil), <-got
			}
			if diff := cmp.Diff(fmt.Sprint(calls[false]), fmt.Sprint(calls[true])); diff != "" {
				t.Errorf("calls: net/http is -, the Server is +\n%s", diff)
			}
			if diff := cmp.Diff(answers[false], answers[true]); diff != "" {
				t.Errorf("answers: net/http is -, the Server is +\n%s", diff)
			}
		})
	}
}
