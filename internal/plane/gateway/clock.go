package gateway

import "time"

// A stopwatch separates the gateway's own time from the time that it waits for others: the provider, and a caller that
// reads slowly. It reads the clock once per step, since that costs as much as the other work for a piece of a stream.
type stopwatch struct {
	started time.Time
	now     time.Time     // when the clock was last read
	waited  time.Duration // for others
}

func startStopwatch() stopwatch {
	now := time.Now()
	return stopwatch{started: now, now: now}
}

// worked reads the clock and counts the time since the last reading as the gateway's own.
func (s *stopwatch) worked() { s.now = time.Now() }

// waitedForOthers reads the clock and counts the time since the last reading as waiting.
func (s *stopwatch) waitedForOthers() {
	now := time.Now()
	s.waited += now.Sub(s.now)
	s.now = now
}

// elapsed returns the time from the start to the last reading.
func (s *stopwatch) elapsed() time.Duration { return s.now.Sub(s.started) }
