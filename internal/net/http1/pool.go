package http1

import (
	"slices"
	"sync"
	"time"
)

// A pool keeps connections that are not in use. The one that was used last is used next, so that those that a quiet hour
// does not need grow old together.
type pool struct {
	most     int
	patience time.Duration

	mutex sync.Mutex
	conns []*clientConn // the one that was used last at the end
	timer *time.Timer
}

// get takes a connection that is open still and over whose last answer nothing came, as far as is known, or nil.
func (p *pool) get() *clientConn {
	for {
		p.mutex.Lock()
		last := len(p.conns) - 1
		if last < 0 {
			p.mutex.Unlock()
			return nil
		}
		l := p.conns[last]
		p.conns[last] = nil
		p.conns = p.conns[:last]
		p.mutex.Unlock()
		if l.start == l.end && (l.expires.IsZero() || time.Now().Before(l.expires)) {
			return l
		}
		l.close()
	}
}

// put keeps a connection, for no longer than the peer says that it would.
func (p *pool) put(l *clientConn, patience time.Duration) {
	l.idle, l.reused = time.Now(), true
	if l.expires = (time.Time{}); patience > 0 {
		l.expires = l.idle.Add(patience)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.conns) >= p.most {
		l.close()
		return
	}
	p.conns = append(p.conns, l)
	if p.timer == nil {
		p.timer = time.AfterFunc(p.patience, p.age)
	}
}

// age closes what has not been used for long, and looks again as long as there is something.
func (p *pool) age() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	now, old := time.Now(), 0
	for old < len(p.conns) && now.Sub(p.conns[old].idle) >= p.patience {
		p.conns[old].close()
		old++
	}
	p.conns = slices.Delete(p.conns, 0, old)
	if p.timer = nil; len(p.conns) > 0 {
		p.timer = time.AfterFunc(p.patience-now.Sub(p.conns[0].idle), p.age)
	}
}

func (p *pool) close() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, l := range p.conns {
		l.close()
	}
	p.conns = nil
}
