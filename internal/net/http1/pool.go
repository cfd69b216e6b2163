package http1

import (
	"slices"
	"sync"
	"time"

	"sovereign/internal/base/panics"
)

// A pool keeps idle connections. It is last in, first out: when traffic falls, the connections that are no longer
// needed age together and are closed.
type pool struct {
	maxIdle int
	timeout time.Duration // after which an idle connection is closed

	mutex sync.Mutex
	conns []*clientConn // the most recently used at the end
	timer *time.Timer   // runs closeExpired; nil when there are no connections
}

// get removes and returns the most recently used connection, or nil. It skips connections that hold unread bytes or
// that the server has announced to close by now. The connection may still be stale: send checks that.
func (p *pool) get() *clientConn {
	for {
		p.mutex.Lock()
		last := len(p.conns) - 1
		if last < 0 {
			p.mutex.Unlock()
			return nil
		}
		cc := p.conns[last]
		p.conns[last] = nil
		p.conns = p.conns[:last]
		p.mutex.Unlock()
		if cc.start == cc.end && (cc.expires.IsZero() || time.Now().Before(cc.expires)) {
			return cc
		}
		cc.close()
	}
}

// put keeps a connection for reuse, or closes it if the pool is full. keepAliveTimeout is what the server announced; 0
// if nothing.
func (p *pool) put(cc *clientConn, keepAliveTimeout time.Duration) {
	cc.idleSince, cc.reused = time.Now(), true
	if cc.expires = (time.Time{}); keepAliveTimeout > 0 {
		cc.expires = cc.idleSince.Add(keepAliveTimeout)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.conns) >= p.maxIdle {
		cc.close()
		return
	}
	p.conns = append(p.conns, cc)
	if p.timer == nil {
		p.timer = time.AfterFunc(p.timeout, p.closeExpired)
	}
}

// closeExpired closes the connections that have been idle for the timeout, and sets the timer for the next.
func (p *pool) closeExpired() {
	defer panics.Contain(nil, "closing idle connections")
	p.mutex.Lock()
	defer p.mutex.Unlock()
	now, expired := time.Now(), 0
	for expired < len(p.conns) && now.Sub(p.conns[expired].idleSince) >= p.timeout {
		p.conns[expired].close()
		expired++
	}
	p.conns = slices.Delete(p.conns, 0, expired)
	if p.timer = nil; len(p.conns) > 0 {
		p.timer = time.AfterFunc(p.timeout-now.Sub(p.conns[0].idleSince), p.closeExpired)
	}
}

// close closes all idle connections.
func (p *pool) close() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, cc := range p.conns {
		cc.close()
	}
	p.conns = nil
}
