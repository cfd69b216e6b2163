// Package breaker leaves an upstream alone that fails again and again, and tries it with one request at a time until it
// works. It has no clock of its own.
package breaker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Settings say when an upstream is left alone, and for how long.
type Settings struct {
	Failures int           // in a row, that open a circuit; 0 is never
	Pause    time.Duration // the first time, and how long a probe may take
	Longest  time.Duration // that a pause becomes, doubling with every probe that fails
}

// A State is how a circuit stands.
type State string

// The states.
const (
	Closed   State = "closed"    // all requests are let through
	Open     State = "open"      // none is
	HalfOpen State = "half_open" // one is: the probe
)

// An event is what happens to a circuit.
type event string

const (
	succeeded event = "succeeded"
	failed    event = "failed" // once too often, where the circuit is closed
	asked     event = "asked"  // when the pause, or the time of the probe, is over
	cancelled event = "cancelled"
)

// next is what a circuit becomes. A closed one is forgotten. Requests from before it opened end when they end: that they
// fail is no news to an open circuit, that one succeeds is.
var next = map[State]map[event]State{
	Closed:   {succeeded: Closed, failed: Open, asked: Closed, cancelled: Closed},
	Open:     {succeeded: Closed, failed: Open, asked: HalfOpen, cancelled: Open},
	HalfOpen: {succeeded: Closed, failed: Open, asked: HalfOpen, cancelled: Open},
}

// A Breaker holds the circuits of upstreams that have trouble; for the others it costs a look. Many may use it at once.
type Breaker struct {
	settings atomic.Pointer[Settings]
	circuits sync.Map // of *circuit by key: those with failures
}

// A circuit is one upstream's. Once gone it is nobody's: another may stand in its place.
type circuit struct {
	mu       sync.Mutex
	gone     bool
	state    State
	failures int           // in a row, while closed
	pause    time.Duration // the present one
	until    time.Time     // when it ends, or the probe is given up
	since    time.Time     // when the probe was allowed
}

// New is a breaker without trouble.
func New(s Settings) *Breaker {
	b := &Breaker{}
	b.Apply(s)
	return b
}

// Apply puts settings in force. Circuits keep their state, except that none outlives 0 failures.
func (b *Breaker) Apply(s Settings) {
	s.Longest = max(s.Longest, s.Pause)
	b.settings.Store(&s)
	if s.Failures <= 0 {
		b.circuits.Range(func(key, c any) bool {
			c.(*circuit).with(func(c *circuit) { b.forget(key.(string), c) })
			return true
		})
	}
}

// Allow reports whether a request may be sent to an upstream. What was allowed ends with Done or Cancel.
func (b *Breaker) Allow(key string, now time.Time) (ok bool) {
	c, trouble := b.circuits.Load(key)
	s := b.settings.Load()
	if !trouble || s.Failures <= 0 {
		return true
	}
	ok = true
	c.(*circuit).with(func(c *circuit) {
		if c.state == Closed {
			return
		}
		if ok = c.due(now, s); ok {
			c.state, c.since, c.until = next[c.state][asked], now, now.Add(s.Pause)
		}
	})
	return ok
}

// Done tells how a request ended that was allowed at since. Only what is the upstream's fault is a failure, and one of
// before a probe was sent says nothing of the probe. It reports whether the circuit opened by it.
func (b *Breaker) Done(key string, since, now time.Time, ok bool) (opened bool) {
	s := b.settings.Load()
	found, trouble := b.circuits.Load(key)
	switch {
	case s.Failures <= 0 || ok && !trouble:
		return false
	case ok:
		found.(*circuit).with(func(c *circuit) { b.forget(key, c) })
		return false
	}
	for recorded := false; !recorded; {
		found, _ = b.circuits.LoadOrStore(key, &circuit{state: Closed})
		recorded = found.(*circuit).with(func(c *circuit) { opened = c.fail(since, now, s) })
	}
	return opened
}

// Cancel gives back what was allowed at since and has no result: the caller left. If it was the probe, another may be sent at
// once; the time tells the probe from other requests.
func (b *Breaker) Cancel(key string, since time.Time) {
	if c, trouble := b.circuits.Load(key); trouble {
		c.(*circuit).with(func(c *circuit) {
			if c.state == HalfOpen && c.since.Equal(since) {
				c.state, c.until = next[c.state][cancelled], time.Time{}
			}
		})
	}
}

// State is how an upstream's circuit stands: half open from the end of the pause, be there a probe or not.
func (b *Breaker) State(key string, now time.Time) (state State) {
	state = Closed
	if c, trouble := b.circuits.Load(key); trouble {
		s := b.settings.Load()
		c.(*circuit).with(func(c *circuit) {
			if state = c.state; state == Open && c.due(now, s) {
				state = next[Open][asked]
			}
		})
	}
	return state
}

// Open lists the upstreams whose circuits are not closed.
func (b *Breaker) Open() (keys []string) {
	b.circuits.Range(func(key, c any) bool {
		c.(*circuit).with(func(c *circuit) {
			if c.state != Closed {
				keys = append(keys, key.(string))
			}
		})
		return true
	})
	slices.Sort(keys)
	return keys
}

// with does something to a circuit, and reports whether it was there.
func (c *circuit) with(do func(*circuit)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	do(c)
	return true
}

func (b *Breaker) forget(key string, c *circuit) {
	c.gone, c.state = true, next[c.state][succeeded]
	b.circuits.CompareAndDelete(key, c)
}

// due reports whether the time of a pause or of a probe is over. A wait far longer than any can be is over too: the
// clock was set back, or the settings are new.
func (c *circuit) due(now time.Time, s *Settings) bool {
	left := c.until.Sub(now)
	return left <= 0 || left/2 > s.Longest
}

// fail counts a failure, and opens the circuit for it when it is the last straw, or the probe's.
func (c *circuit) fail(since, now time.Time, s *Settings) (opened bool) {
	switch c.state {
	case Closed:
		if c.failures++; c.failures < s.Failures {
			return false
		}
		c.pause = s.Pause
	case HalfOpen:
		if since.Before(c.since) {
			return false
		}
		c.pause += min(c.pause, max(0, s.Longest-c.pause))
	case Open:
		return false
	}
	c.state, c.until = next[c.state][failed], now.Add(c.pause)
	return true
}
