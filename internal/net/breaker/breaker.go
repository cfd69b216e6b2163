// Package breaker has a circuit breaker for each upstream. A circuit opens after a number of failures in a row: then no
// request is sent to the upstream. After a pause it is half open: one request, the probe, is allowed, and decides
// whether the circuit closes or stays open for a longer pause. Callers pass the time.
package breaker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Settings say when a circuit opens, and for how long.
type Settings struct {
	Failures int           // failures in a row that open a circuit; 0 turns the breaker off
	Pause    time.Duration // the first pause, and the timeout of a probe
	Longest  time.Duration // the longest pause: it doubles with every probe that fails
}

// A State is the state of a circuit.
type State string

// The states.
const (
	Closed   State = "closed"    // all requests are allowed
	Open     State = "open"      // none is allowed
	HalfOpen State = "half_open" // one is allowed: the probe
)

// An event changes the state of a circuit.
type event string

const (
	succeeded event = "succeeded"
	failed    event = "failed" // in a closed circuit: the last of Settings.Failures
	probed    event = "probed" // a request was allowed after the pause, or after the probe's timeout
	cancelled event = "cancelled"
)

// next is the state after an event. A closed circuit without failures is not stored. Requests that were allowed before
// a circuit opened may end while it is open: their failures change nothing, a success closes the circuit.
var next = map[State]map[event]State{
	Closed:   {succeeded: Closed, failed: Open, probed: Closed, cancelled: Closed},
	Open:     {succeeded: Closed, failed: Open, probed: HalfOpen, cancelled: Open},
	HalfOpen: {succeeded: Closed, failed: Open, probed: HalfOpen, cancelled: Open},
}

// A Breaker has the circuits of upstreams with failures. For all others it costs one lookup. It is safe for concurrent
// use.
type Breaker struct {
	settings atomic.Pointer[Settings]
	circuits sync.Map // *circuit by key, for upstreams with failures
}

// A circuit is the circuit of one upstream. Once removed it is not used any more: another may have its key.
type circuit struct {
	mu       sync.Mutex
	removed  bool
	state    State
	failures int           // in a row, while closed
	pause    time.Duration // the current one
	until    time.Time     // the end of the pause, or of the probe's timeout
	since    time.Time     // when the probe was allowed
}

// New returns a breaker with all circuits closed.
func New(s Settings) *Breaker {
	b := &Breaker{}
	b.Apply(s)
	return b
}

// Apply changes the settings. Circuits keep their state, unless the breaker is turned off: that removes all.
func (b *Breaker) Apply(s Settings) {
	s.Longest = max(s.Longest, s.Pause)
	b.settings.Store(&s)
	if s.Failures <= 0 {
		b.circuits.Range(func(key, c any) bool {
			c.(*circuit).with(func(c *circuit) { b.remove(key.(string), c) })
			return true
		})
	}
}

// Allow reports whether a request may be sent to an upstream. The caller must call Done or Cancel for one that is
// allowed.
func (b *Breaker) Allow(key string, now time.Time) (ok bool) {
	c, found := b.circuits.Load(key)
	s := b.settings.Load()
	if !found || s.Failures <= 0 {
		return true
	}
	ok = true
	c.(*circuit).with(func(c *circuit) {
		if c.state == Closed {
			return
		}
		if ok = c.due(now, s); ok {
			c.state, c.since, c.until = next[c.state][probed], now, now.Add(s.Pause)
		}
	})
	return ok
}

// Done reports the end of a request that was allowed at since. Only a failure that is the upstream's fault is one here.
// A failure of a request that was sent before the probe does not end the probe. Done returns whether the circuit
// opened.
func (b *Breaker) Done(key string, since, now time.Time, ok bool) (opened bool) {
	s := b.settings.Load()
	stored, found := b.circuits.Load(key)
	switch {
	case s.Failures <= 0 || ok && !found:
		return false
	case ok:
		stored.(*circuit).with(func(c *circuit) { b.remove(key, c) })
		return false
	}
	for recorded := false; !recorded; {
		stored, _ = b.circuits.LoadOrStore(key, &circuit{state: Closed})
		recorded = stored.(*circuit).with(func(c *circuit) { opened = c.fail(since, now, s) })
	}
	return opened
}

// Cancel ends a request that was allowed at since and has no result, because the caller has disconnected. If it was the
// probe, another is allowed at once. The probe is recognised by its time.
func (b *Breaker) Cancel(key string, since time.Time) {
	if c, found := b.circuits.Load(key); found {
		c.(*circuit).with(func(c *circuit) {
			if c.state == HalfOpen && c.since.Equal(since) {
				c.state, c.until = next[c.state][cancelled], time.Time{}
			}
		})
	}
}

// State returns the state of an upstream's circuit: half open from the end of the pause, with a probe or without.
func (b *Breaker) State(key string, now time.Time) (state State) {
	state = Closed
	if c, found := b.circuits.Load(key); found {
		s := b.settings.Load()
		c.(*circuit).with(func(c *circuit) {
			if state = c.state; state == Open && c.due(now, s) {
				state = next[Open][probed]
			}
		})
	}
	return state
}

// Open returns the keys of the circuits that are not closed, sorted.
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

// with calls do with the circuit locked. It returns false if the circuit was removed.
func (c *circuit) with(do func(*circuit)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return false
	}
	do(c)
	return true
}

// remove closes a circuit and removes it. The caller has it locked.
func (b *Breaker) remove(key string, c *circuit) {
	c.removed, c.state = true, next[c.state][succeeded]
	b.circuits.CompareAndDelete(key, c)
}

// due reports whether the pause, or the probe's timeout, is over. One that would last more than twice the longest pause
// is over too: the clock was set back, or the settings have changed.
func (c *circuit) due(now time.Time, s *Settings) bool {
	left := c.until.Sub(now)
	return left <= 0 || left/2 > s.Longest
}

// fail counts a failure. It opens the circuit at the last of Settings.Failures, and when the probe fails.
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
