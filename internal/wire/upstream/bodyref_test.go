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

// overwrittenBuffer overwrites its bytes when the last reference is released, as a reused buffer would.
type overwrittenBuffer struct {
	users    atomic.Int32
	retained atomic.Int32
	bytes    []byte
	done     chan struct{}
	once     sync.Once
}

func (p *overwrittenBuffer) Retain() {
	p.retained.Add(1)
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

// A provider may answer before it has read the request. The transport may then still send the request's bytes, but
// never what the buffer holds after its release.
func TestABodyIsNotReadAfterItsRelease(t *testing.T) {
	eachTransport(t, func(t *testing.T, via live.Transport) {
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
		s, m := newSender(t, via, &live.Provider{BaseURL: url})
		body := bytes.Repeat([]byte("a"), size)
		ref := &overwrittenBuffer{bytes: body, done: make(chan struct{})}
		ref.Retain()
		r := newRequest(m)
		r.Body, r.BodyRef = [][]byte{body}, ref
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // one transport waits for the request to be written
		defer cancel()
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
		if via == live.Standard && ref.retained.Load() < 2 {
			t.Error("the transport, which reads on goroutines of its own, has not taken what it reads")
		}
	})
}
