// Package pace bounds how slowly a body may arrive. Both HTTP servers use it, each with its own read deadlines.
package pace

import "time"

// A Limit says how long a body may take, and how fast it must arrive.
type Limit struct {
	Timeout time.Duration // for the whole body
	Rate    int64         // the fewest bytes per second, on average over any Window; 0 for no such bound
}

// Window is the time over which the rate is measured. A sender may pause for nearly as long.
const Window = 10 * time.Second

// A Meter measures the arrival of one body. It belongs to one goroutine.
type Meter struct {
	Limit
	end     time.Time // of Timeout
	arrived int64     // in this window
}

// Add counts bytes that have arrived. It reports whether they are enough for this window, so that the next may begin.
// Without a rate there is one window, and none after it.
func (m *Meter) Add(n int) (enough bool) {
	m.arrived += int64(n)
	return m.Rate > 0 && m.arrived >= m.Rate*int64(Window/time.Second)
}

// Next begins the first window, or the one after a window with enough bytes, and returns the time by which it ends. It
// returns false when the body is too slow, or its time is over.
func (m *Meter) Next(now time.Time) (deadline time.Time, ok bool) {
	switch {
	case m.end.IsZero():
		m.end = now.Add(m.Timeout)
	case !now.Before(m.end) || !m.Add(0):
		return time.Time{}, false
	}
	m.arrived = 0
	if window := now.Add(Window); m.Rate > 0 && window.Before(m.end) {
		return window, true
	}
	return m.end, true
}
