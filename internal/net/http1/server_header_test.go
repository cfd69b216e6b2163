package http1

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fieldNames and fieldValues are few, so that consecutive heads share lines.
var (
	fieldNames  = []string{"Authorization", "X-Request-Id", "Content-Type", "x-a", "X-B", "Accept"}
	fieldValues = []string{"", "1", "Bearer one", "Bearer two", "application/json"}
)

// A header that is reused is right, whatever the handlers do to it.
func TestHandlersSeeEveryRequestAsItWasSent(t *testing.T) {
	var seen []string
	listener := NewHandover(testAddr("here"))
	t.Cleanup(func() { _ = listener.Close() })
	server := &Server{
		Targets: testTargets, Fallback: func(conn net.Conn) { t.Error("a plain request went to the fallback"); _ = conn.Close() },
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			seen = append(seen, describe(r, body, err))
			seen[len(seen)-1] += mutateRequest(r)
		}),
	}
	go func() { _ = server.Serve(listener) }()
	rapid.Check(t, func(t *rapid.T) {
		var wire bytes.Buffer
		var want []string
		for range rapid.IntRange(1, 6).Draw(t, "requests") {
			in := &http.Request{Method: http.MethodPost, Proto: "HTTP/1.1", Host: rapid.SampledFrom([]string{"a.test", "b.test:80"}).Draw(t, "host"), Header: http.Header{}}
			target := rapid.SampledFrom(testTargets).Draw(t, "target")
			body := strings.Repeat("b", rapid.IntRange(0, 9).Draw(t, "body"))
			lines := []string{"Host: " + in.Host, fmt.Sprint("content-length: ", len(body))}
			in.Header["Content-Length"] = []string{strconv.Itoa(len(body))}
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(fieldNames), 0, -1, rapid.ID).Draw(t, "names") {
				value := rapid.SampledFrom(fieldValues).Draw(t, "value")
				lines = append(lines, name+":"+strings.Repeat(" ", rapid.IntRange(0, 2).Draw(t, "spaces"))+value)
				in.Header.Set(name, value)
			}
			lines = rapid.Permutation(lines).Draw(t, "order")
			fmt.Fprintf(&wire, "POST %s HTTP/1.1\r\n%s\r\n\r\n%s", target, strings.Join(lines, "\r\n"), body)
			if in.Body = http.NoBody; body != "" {
				in.Body = nil
			}
			in.URL, in.RequestURI, in.ContentLength = &url.URL{Path: target}, target, int64(len(body))
			want = append(want, describe(in, []byte(body), nil))
		}
		seen = nil
		conn := newScriptedConn("192.0.2.1:1", wire.Bytes(), rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "cuts"))
		listener.Deliver(conn)
		<-conn.done
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("%q: sent is -, seen is +\n%s", wire.Bytes(), diff)
		}
	})
}

// mutateRequest changes a request in the ways that a handler may. It describes a change that affects another field.
func mutateRequest(r *http.Request) string {
	before, handed := r.Header.Clone(), maps.Clone(r.Header)
	for name := range r.Header {
		r.Header.Add(name, "more")
	}
	for name, values := range before {
		if r.Header[name][0] != values[0] {
			return name + " was changed together with another field"
		}
	}
	for name, values := range handed {
		values[0] = "spoiled"
		r.Header.Add(name, "still more")
	}
	r.Header.Del("Accept")
	r.Header.Set("X-Request-Id", "spoiled")
	r.Header.Set("X-Left", "behind")
	r.URL.Path, r.URL.RawQuery, r.Host, r.RequestURI = "/spoiled", "spoiled", "spoiled", "spoiled"
	return ""
}
