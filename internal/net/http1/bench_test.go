package http1

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// benchResponses are typical responses of a provider.
var benchResponses = map[string]string{
	"small":  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nServer: x\r\nX-Request-Id: 0123456789\r\nContent-Length: 300\r\n\r\n" + strings.Repeat("x", 300),
	"stream": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("40\r\n"+strings.Repeat("y", 64)+"\r\n", 100) + "0\r\n\r\n",
}

// newBenchOrigin starts a server that does next to nothing: it looks for the end of each request and sends a fixed
// response.
func newBenchOrigin(b *testing.B, answer string) string {
	b.Helper()
	text := []byte(answer)
	return newOrigin(b, nil, func(oc *originConn) {
		buffer, held := make([]byte, 4096), 0
		for {
			n, err := oc.Conn.Read(buffer[held:])
			if err != nil {
				return
			}
			if held += n; held < 2 || string(buffer[held-2:held]) != "{}" {
				continue
			}
			held = 0
			if _, err := oc.Conn.Write(text); err != nil {
				return
			}
		}
	}).url
}

func BenchmarkExchange(b *testing.B) {
	for name, answer := range benchResponses {
		base := newBenchOrigin(b, answer)
		b.Run(name+"/ours", func(b *testing.B) {
			c := newClient(b, base)
			fields := []Field{{"Content-Type", "application/json"}, {"Accept", "application/json"}, {"Authorization", "Bearer key"}}
			body := [][]byte{[]byte("{}")}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				response, err := c.Do(ctx, &Request{Method: "POST", Target: "/v1/x", Fields: fields, Body: body})
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = response.Body.Next()
				}
				_ = response.Body.Close()
			}
		})
		b.Run(name+"/net-http", func(b *testing.B) {
			transport := &http.Transport{DisableCompression: true}
			defer transport.CloseIdleConnections()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			buffer := make([]byte, maxBuffer)
			b.ReportAllocs()
			for b.Loop() {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/x", strings.NewReader("{}"))
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json")
				r.Header.Set("Authorization", "Bearer key")
				response, err := transport.RoundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{response.Body}, buffer)
				_ = response.Body.Close()
			}
		})
	}
}

// BenchmarkReading measures the parsing alone, without a socket.
func BenchmarkReading(b *testing.B) {
	for name, answer := range benchResponses {
		b.Run(name, func(b *testing.B) {
			c := newClient(b, "http://origin.test")
			r, text := getRoot(), []byte(answer)
			conn := &fakeConn{}
			cc := newFakeClientConn(conn, initialBuffer)
			ctx := context.Background()
			b.ReportAllocs()
			b.SetBytes(int64(len(answer)))
			for b.Loop() {
				conn.wire = text
				response, err := c.exchange(ctx, cc, r)
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = response.Body.Next()
				}
				_ = response.Body.Close()
				cc = c.idle.get()
			}
		})
	}
}
