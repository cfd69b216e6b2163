package cluster

import (
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/store/db"
)

// The times of a membership.
const (
	leaseTime = 2 * time.Second        // how long a renewal lasts, from before it was sent
	beatEvery = 500 * time.Millisecond // between renewals
	// silentTime is how long a node's row stays as it is before others end its life: a lease, and a tenth of it for
	// clocks that do not run at the same speed.
	silentTime = leaseTime + leaseTime/10
)

// A lease is what this process knows of its own membership. It decides whether requests may be served. Times are
// readings of a clock that runs while the machine is suspended.
type lease struct {
	until atomic.Int64 // the gate is open before this time; 0 while it is closed

	mu      sync.Mutex
	life    Life
	over    bool          // the life is over
	ends    time.Duration // when the lease runs out
	beat    int64         // the newest beat that the database has acknowledged
	serving bool          // the row says that we serve
	open    bool          // the gate is open, unless the lease has run out since
	need    db.Version    // what must be in force before the gate opens; unknown for not known yet
}

const unknown db.Version = -1

// join begins a life. The renewal that made it was sent at a time.
func (l *lease) join(life Life, beat int64, sent time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life, l.over, l.beat, l.ends = life, false, beat, sent+leaseTime
	l.serving, l.open, l.need = false, false, unknown
	l.until.Store(0)
}

// end notes that the life is over, and refuses requests from then on. It reports whether it was over before.
func (l *lease) end() (before bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.over
	l.over, l.open = true, false
	l.until.Store(0)
	return before
}

// served notes that the row says that we serve, and what must be in force before the gate opens.
func (l *lease) served(life Life, need db.Version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life == life && !l.over {
		l.serving, l.need = true, need
	}
}

// renewed notes a renewal that was sent at a time and is acknowledged now, and opens the gate when what is applied
// allows it. It returns false when the database has lost changes that are in force here: then the life must end.
func (l *lease) renewed(life Life, sent, now time.Duration, beat int64, head, applied db.Version) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life != life || l.over {
		return true // the answer to an earlier life
	}
	if head < applied && applied != everything {
		return false
	}
	l.lapse(now)
	l.beat, l.ends = beat, sent+leaseTime
	if l.serving && !l.open && l.need == unknown {
		l.need = head
	}
	l.admit(applied)
	return true
}

// applied opens the gate if it only waited for this version.
func (l *lease) applied(version db.Version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admit(version)
}

// admit opens the gate if it may be open. The caller holds mu.
func (l *lease) admit(applied db.Version) {
	if l.serving && !l.over && !l.open && l.need != unknown && applied >= l.need {
		l.open = true
	}
	if l.open {
		l.until.Store(int64(l.ends))
	}
}

// lapse notes when the lease has run out: it takes another renewal to know what must be in force before the gate opens
// again. The caller holds mu.
func (l *lease) lapse(now time.Duration) {
	if now >= l.ends {
		l.open, l.need = false, unknown
		l.until.Store(0)
	}
}

// at reports the state at a time: the present life, whether the gate is open, and when the lease ends.
func (l *lease) at(now time.Duration) (life Life, open bool, ends time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lapse(now)
	return l.life, l.open, l.ends
}

// held reports whether a life is the present one and its lease has not run out.
func (l *lease) held(life Life, now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.life == life && !l.over && now < l.ends
}

// A row is what a look at the database shows of a live node.
type row struct {
	ID      string
	Epoch   int64
	Beat    int64
	Applied db.Version
	Serving bool

	Release, Settings string
}

// A watch finds nodes that have gone silent: their row did not change for longer than a lease, since it was first seen.
type watch struct {
	mu    sync.Mutex
	since map[string]sighting
}

type sighting struct {
	epoch, beat int64
	at          time.Duration // after the answer that showed it: the node had sent that beat before
}

// see notes what was read. now is a time after the answer.
func (w *watch) see(rows []row, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := make(map[string]sighting, len(rows))
	for _, r := range rows {
		s, known := w.since[r.ID]
		if !known || s.epoch != r.Epoch || s.beat != r.Beat {
			s = sighting{r.Epoch, r.Beat, now}
		}
		next[r.ID] = s
	}
	w.since = next
}

// silent reports whether a node has not changed since it was first seen so for longer than a lease.
func (w *watch) silent(r row, now time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, known := w.since[r.ID]
	return known && s.epoch == r.Epoch && s.beat == r.Beat && now-s.at >= silentTime
}
