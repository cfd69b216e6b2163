//go:build linux

// Package poller serves many connections with a few goroutines. A goroutine waits for all of its connections with one
// epoll instance and calls back for each that has become readable.
//
// It is for streams of language models, which bring a few words at a time. A goroutine for each stream that is woken
// for every event, and blocks again, spends more time on that than on passing the event on.
//
// The package builds on Linux only.
package poller

import "sync"

// A Poller has up to a maximum of goroutines, and starts them as connections are registered. A nil Poller has none, and
// accepts no registration.
type Poller struct {
	mutex    sync.Mutex
	loops    []*loop
	maxLoops int
}

// registrationsPerLoop is how many registrations one goroutine has before the next one is started.
const registrationsPerLoop = 256

// New returns a Poller of at most maxLoops goroutines.
func New(maxLoops int) *Poller { return &Poller{maxLoops: maxLoops} }

// Close ends the goroutines. No Wait may be under way.
func (p *Poller) Close() {
	if p == nil {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, l := range p.loops {
		_ = l.file.Close()
	}
	p.loops, p.maxLoops = nil, 0
}

// pick returns the loop for a new registration: the first that is not full, else a new one, else the one with the
// fewest registrations. It returns nil if there is none.
func (p *Poller) pick() *loop {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var best *loop
	for _, l := range p.loops {
		if n := l.count.Load(); n < registrationsPerLoop {
			return l
		} else if best == nil || n < best.count.Load() {
			best = l
		}
	}
	if len(p.loops) < p.maxLoops {
		if l, err := newLoop(); err == nil {
			p.loops = append(p.loops, l)
			return l
		}
	}
	return best
}
