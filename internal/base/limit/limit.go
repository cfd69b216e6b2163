// Package limit implements rate limits with fixed windows, and budgets of held quantities.
package limit

import (
	"sync"
	"time"
)

// Windows grants each name a number of starts in a fixed window. A window begins with its first start. A refusal does
// not extend it, so that the wait that a refusal returns is exact.
type Windows[Name comparable] struct {
	most int
	per  time.Duration

	mu    sync.Mutex
	open  map[Name]window
	swept time.Time
}

type window struct {
	ends time.Time
	used int
}

// NewWindows returns Windows that grant most starts in each window of length per.
func NewWindows[Name comparable](most int, per time.Duration) *Windows[Name] {
	return &Windows[Name]{most: most, per: per, open: map[Name]window{}}
}

// Allow counts one start at now. When it is one too many, wait says how long until the next is granted.
func (w *Windows[Name]) Allow(name Name, now time.Time) (wait time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep(now)
	current := w.open[name]
	// the window is over, or the clock was set back by more than concurrent callers can differ
	if !now.Before(current.ends) || current.ends.Sub(now) > 2*w.per {
		current = window{ends: now.Add(w.per)}
	}
	if current.used >= w.most {
		return current.ends.Sub(now), false
	}
	current.used++
	w.open[name] = current
	return 0, true
}

// sweep deletes ended windows once per window, so that memory depends on the active names only.
func (w *Windows[Name]) sweep(now time.Time) {
	if since := now.Sub(w.swept); since >= 0 && since < w.per {
		return
	}
	w.swept = now
	for name, current := range w.open {
		if !now.Before(current.ends) {
			delete(w.open, name)
		}
	}
}
