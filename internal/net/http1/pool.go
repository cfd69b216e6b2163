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
	links []*link // the one that was used last at the end
	timer *time.Timer
}

// get takes a connection that is open still and over whose last answer nothing came, as far as is known, or nil.
func (p *pool) get() *link {
	for {
		p.mutex.Lock()
		last := len(p.links) - 1
		if last < 0 {
			p.mutex.Unlock()
			return nil
		}
		l := p.links[last]
		p.links[last] = nil
		p.links = p.links[:last]
		p.mutex.Unlock()
		if l.from == l.to && (l.expires.IsZero() || time.Now().Before(l.expires)) {
			return l
		}
		l.close()
	}
}

// put keeps a connection, for no longer than the peer says that it would.
func (p *pool) put(l *link, patience time.Duration) {
	l.idle, l.kept = time.Now(), true
	if l.expires = (time.Time{}); patience > 0 {
		l.expires = l.idle.Add(patience)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.links) >= p.most {
		l.close()
		return
	}
	p.links = append(p.links, l)
	if p.timer == nil {
		p.timer = time.AfterFunc(p.patience, p.age)
	}
}

// age closes what has not been used for long, and looks again as long as there is something.
func (p *pool) age() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	now, old := time.Now(), 0
	for old < len(p.links) && now.Sub(p.links[old].idle) >= p.patience {
		p.links[old].close()
		old++
	}
	p.links = slices.Delete(p.links, 0, old)
	if p.timer = nil; len(p.links) > 0 {
		p.timer = time.AfterFunc(p.patience-now.Sub(p.links[0].idle), p.age)
	}
}

func (p *pool) close() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, l := range p.links {
		l.close()
	}
	p.links = nil
}
