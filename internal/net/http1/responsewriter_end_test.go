package http1

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// After End the caller has the whole response while the handler still runs, and may send another request.
func TestEndCompletesTheResponseBeforeTheHandlerReturns(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, c := range map[string]struct {
		want string
		send func(w *responseWriter) error
	}{
		"at once":        {"hello", func(w *responseWriter) error { return w.End([]byte("hello")) }},
		"a long one":     {long, func(w *responseWriter) error { return w.End([]byte(long)) }},
		"nothing":        {"", func(w *responseWriter) error { return w.End(nil) }},
		"a stream":       {"hello", func(w *responseWriter) error { return errors.Join(w.Send([]byte("hel")), w.End([]byte("lo"))) }},
		"a long stream":  {"hel" + long, func(w *responseWriter) error { return errors.Join(w.Send([]byte("hel")), w.End([]byte(long))) }},
		"a stream's end": {"hello", func(w *responseWriter) error { return errors.Join(w.Send([]byte("hello")), w.End(nil)) }},
		"after a write":  {"hello", func(w *responseWriter) error { return errors.Join(writeString(w, "hel"), w.End([]byte("lo"))) }},
		"what has a length": {"hello", func(w *responseWriter) error {
			w.Header().Set("Content-Length", "5")
			return w.End([]byte("hello"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			read := make(chan struct{})
			ts := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				writer, _ := w.(*responseWriter)
				if err := c.send(writer); err != nil {
					t.Error(err)
				}
				<-read
			}))
			conn := ts.dial(t)
			in := bufio.NewReader(conn)
			for range 2 {
				write(t, conn, plainPost("hi"))
				response, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				if err != nil || string(body) != c.want {
					t.Errorf("%d bytes of %d: %v", len(body), len(c.want), err)
				}
				read <- struct{}{}
			}
		})
	}
}

// What a handler writes after End is not sent.
func TestWritesAfterEndFail(t *testing.T) {
	ts := startServer(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		writer, _ := w.(*responseWriter)
		if err := errors.Join(writer.Send([]byte("hel")), writer.End([]byte("lo"))); err != nil {
			t.Error(err)
		}
		for _, more := range []error{writeString(writer, "more"), writer.Send([]byte("more")), writer.End([]byte("more"))} {
			if !errors.Is(more, http.ErrContentLength) {
				t.Error(more)
			}
		}
	}))
	conn := ts.dial(t)
	write(t, conn, plainPost("hi")+plainPost("again"))
	all, err := io.ReadAll(conn)
	if err != nil || strings.Count(string(all), "HTTP/1.1") != 1 || !strings.HasSuffix(string(all), "\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n") {
		t.Errorf("%q %v", all, err)
	}
}

func writeString(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}
