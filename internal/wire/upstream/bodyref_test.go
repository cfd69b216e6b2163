package upstream_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/live"
)

// A overwrittenBuffer ref writes over the bytes when nobody has taken them any more, as another request's would.
type overwrittenBuffer struct {
	users atomic.Int32
	taken atomic.Int32
	bytes []byte
	done  chan struct{}
	once  sync.Once
}

func (p *overwrittenBuffer) Retain() {
	p.taken.Add(1)
	p.users.Add(1)
}

func (p *overwrittenBuffer) Release() {
	if p.users.Add(-1) == 0 {
		for i := range p.bytes {
			p.bytes[i] = 'X'
		}
		p.once.Do(func() { close(p.done) })
	}
}

// A provider may answer before it has read the request. What the transport still sends then is the request's, or nothing: never
// what was put into its memory since.
func TestABodyIsNotReadAfterItWasReleased(t *testing.T) {
	each(t, func(t *testing.T, via live.Transport) {
		const size = 8 << 20 // more than the sockets hold
		got, goOn := make(chan []byte, 1), make(chan struct{})
		url := serve(t, func(conn net.Conn) {
			r := bufio.NewReader(conn)
			for {
				line, err := r.ReadString('\n')
				if err != nil || line == "\r\n" {
					break
				}
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\n{}")
			<-goOn
			all, _ := io.ReadAll(io.LimitReader(r, size))
			got <- all
		})
		s, m := to(t, via, &live.Provider{BaseURL: url})
		body := bytes.Repeat([]byte("a"), size)
		ref := &overwrittenBuffer{bytes: body, done: make(chan struct{})}
		ref.Retain()
		r := ask(m)
		r.Body, r.BodyRef = [][]byte{body}, ref
		ctx, leave := context.WithTimeout(t.Context(), time.Second) // one transport waits for the request to be written
		defer leave()
		if response, err := s.Send(ctx, r); err == nil {
			_, _ = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		ref.Release()
		close(goOn)
		if all := <-got; bytes.IndexByte(all, 'X') >= 0 {
			t.Errorf("of %d bytes some were another's", len(all))
		}
		<-ref.done
		if via == live.Standard && ref.taken.Load() < 2 {
			t.Error("the transport, which reads on goroutines of its own, has not taken what it reads")
		}
	})
}
