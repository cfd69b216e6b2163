// Package window counts starts in fixed windows, over all servers of a database. On SQLite there is one server, which
// counts in memory. On PostgreSQL the windows are rows, and the database's clock is the one that they follow: servers
// whose clocks differ agree on when a window ends.
package window

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sovereign/internal/base/limit"
	"sovereign/internal/store/db"
)

// Windows grants each name a number of starts in a fixed window, which begins with its first start. A refusal does not
// extend it, so the wait that a refusal returns is exact.
type Windows struct {
	kind string
	most int
	per  time.Duration
	db   *db.DB
	own  *limit.Windows[string] // counts where there is one server; nil elsewhere

	mu     sync.Mutex
	full   map[string]time.Time // windows in which nothing is left, with their ends by this process's clock
	swept  time.Time
	pruned time.Time // when rows of windows that are over were last deleted
}

// New returns windows that grant most starts in each window of length per. Windows of the same kind share their counts.
// A router that only describes itself has no database.
func New(d *db.DB, kind string, most int, per time.Duration) *Windows {
	w := &Windows{kind: kind, most: most, per: per, db: d, full: map[string]time.Time{}}
	if d == nil || d.Engine == db.SQLite {
		w.own = limit.NewWindows[string](most, per)
	}
	return w
}

// Allow counts one start. When it is one too many, wait says how long until the next is granted. The count stands
// whatever becomes of the transaction that ctx may belong to.
func (w *Windows) Allow(ctx context.Context, name string) (wait time.Duration, ok bool, _ error) {
	now := time.Now()
	if w.own != nil {
		wait, ok := w.own.Allow(name, now)
		return wait, ok, nil
	}
	if wait := w.refused(name, now); wait > 0 {
		return wait, false, nil
	}
	ctx = db.Unbound(ctx)
	if w.pruneDue(now) {
		if err := w.prune(ctx); err != nil {
			return 0, false, err
		}
	}
	for {
		wait, ok, err := w.count(ctx, name)
		if err == nil && !ok && wait == 0 {
			continue // the window has just ended
		}
		if err == nil && !ok {
			w.refuse(name, time.Now().Add(wait))
		}
		return wait, ok, err
	}
}

// clock is the database's time in microseconds, at the moment when it is read.
const clock = `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)`

// count adds a start to the row of a name, in one statement, which locks the row while it compares.
func (w *Windows) count(ctx context.Context, name string) (wait time.Duration, ok bool, _ error) {
	across := w.db.Across("starts are counted by kind and name")
	per := w.per.Microseconds()
	// A window is over at its end, and also when it seems to last twice its length: then the clock was set back.
	const over = `w.ends_at <= excluded.ends_at - $3 OR w.ends_at > excluded.ends_at + $3`
	granted, err := db.Maybe[int64](ctx, across, `
		INSERT INTO guard_windows AS w (kind, name, ends_at, used) VALUES ($1, $2, `+clock+` + $3, 1)
		ON CONFLICT (kind, name) DO UPDATE SET
			used = CASE WHEN `+over+` THEN 1 ELSE w.used + 1 END,
			ends_at = CASE WHEN `+over+` THEN excluded.ends_at ELSE w.ends_at END
		WHERE w.used < $4 OR `+over+`
		RETURNING used`, w.kind, name, per, w.most)
	if err != nil {
		return 0, false, fmt.Errorf("count a start: %w", err)
	}
	if granted != nil {
		return 0, true, nil
	}
	left, err := db.Maybe[int64](ctx, across,
		`SELECT ends_at - `+clock+` FROM guard_windows WHERE kind = $1 AND name = $2`, w.kind, name)
	if err != nil {
		return 0, false, fmt.Errorf("read a window: %w", err)
	}
	if left == nil { // it has just ended, and was deleted
		return 0, false, nil
	}
	return min(w.per, max(0, time.Duration(*left)*time.Microsecond)), false, nil
}

// refused returns how long a window in which nothing is left lasts. Whoever goes on asking costs the database nothing.
func (w *Windows) refused(name string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.full[name].Sub(now)
}

func (w *Windows) refuse(name string, ends time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(w.swept) >= w.per {
		w.swept = now
		for name, ends := range w.full {
			if !now.Before(ends) {
				delete(w.full, name)
			}
		}
	}
	w.full[name] = ends
}

func (w *Windows) pruneDue(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.pruned) < w.per {
		return false
	}
	w.pruned = now
	return true
}

// prune deletes the rows of windows that are over, so that there are as many as names in the last two windows.
func (w *Windows) prune(ctx context.Context) error {
	if _, err := db.Exec(ctx, w.db.Across("windows that are over"),
		`DELETE FROM guard_windows WHERE kind = $1 AND ends_at < `+clock, w.kind); err != nil {
		return fmt.Errorf("delete windows that are over: %w", err)
	}
	return nil
}
