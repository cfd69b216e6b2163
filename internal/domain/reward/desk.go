package reward

import (
	"context"
	"maps"
	"slices"
	"sync"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
)

// A desk has the questions of one session, in this process, while the session has calls.
type desk struct {
	store   *Store
	ws      tenant.ID
	session string
	ctx     context.Context // ends with the session
	leave   func()
	calls   int // that use it; guarded by scorer.mu

	mu      sync.Mutex
	open    map[questionKey]*question // that have no answer yet
	asking  int                       // questions that are being asked
	settled uint64                    // questions that were asked to their end
	short   []*question               // that the budget could not cover while others were being asked
}

// desk returns the desk of a session, which close gives back. It is taken before the session is read, so that the end
// of the session is not missed.
func (s *Store) desk(ws tenant.ID, id string) *desk {
	s.scorer.mu.Lock()
	defer s.scorer.mu.Unlock()
	name := ref{ws, id}
	d := s.scorer.desks[name]
	if d == nil {
		d = &desk{store: s, ws: ws, session: id, open: map[questionKey]*question{}}
		d.ctx, d.leave = s.running.enter(s.scorer.life, ws, id)
		s.scorer.desks[name] = d
	}
	d.calls++
	return d
}

func (d *desk) close() {
	d.store.scorer.mu.Lock()
	defer d.store.scorer.mu.Unlock()
	if d.calls--; d.calls == 0 {
		delete(d.store.scorer.desks, ref{d.ws, d.session})
		d.leave()
	}
}

// askNoMore gives up the questions of a session that are not being asked.
func (s *scorer) askNoMore(at ref) {
	s.mu.Lock()
	d := s.desks[at]
	s.mu.Unlock()
	if d != nil {
		d.drop(nil, errEnded)
	}
}

// question returns the key of the question that a judge is asked about an item.
func (i *scored) question(judge int) questionKey {
	pinned := &i.call.session.Judges[judge]
	return questionKey{pinned.CriterionID, pinned.Version, i.prompt, i.completion}
}

// attach makes an item wait for a judge's answer. It returns the question if it is still to be asked.
func (d *desk) attach(i *scored, judge int) *question {
	key := i.question(judge)
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.open[key]
	if q == nil {
		q = &question{desk: d, key: key, call: i.call, about: &i.item, judge: judge}
		d.open[key] = q
	}
	q.waits = append(q.waits, waiter{i, judge})
	if q.state != queued {
		return nil
	}
	return q
}

// settle ends a question that was asked, and returns the items that wait for its answer by now. What it held of the
// budget and did not cost may cover another question.
func (d *desk) settle(q *question) (waits []waiter) {
	d.mu.Lock()
	q.state, waits, q.waits = answered, q.waits, nil
	delete(d.open, q.key)
	d.asking--
	d.settled++
	again := d.resume()
	d.mu.Unlock()
	d.queue(again)
	return waits
}

// What becomes of a question that the budget could not cover.
type retry int

const (
	now    retry = iota // another one was settled since it was asked: it may fit
	later               // others are being asked: it is short
	never               // it is alone, and does not fit
	halted              // its session is not scored here any more: whether it fits is not decided
)

// refused decides about a question that the budget could not cover.
func (d *desk) refused(q *question) retry {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ctx.Err() != nil:
		return halted
	case q.began != d.settled:
		q.began = d.settled
		return now
	case d.asking == 1:
		return never
	}
	d.asking--
	q.state = short
	d.short = append(d.short, q)
	return later
}

// resume takes the first question that is short of money, and makes it a queued one. d.mu is held.
func (d *desk) resume() *question {
	for len(d.short) > 0 {
		first := d.short[0]
		d.short[0], d.short = nil, d.short[1:]
		if first.state == short { // else it was dropped
			first.state = queued
			return first
		}
	}
	return nil
}

// queue queues questions for the calls that wait for them.
func (d *desk) queue(questions ...*question) {
	for _, q := range questions {
		if q == nil {
			continue
		}
		d.mu.Lock()
		at, waited := place{}, len(q.waits) > 0
		if waited {
			at = q.waits[0].item.call.place
		}
		d.mu.Unlock()
		if waited {
			d.store.scorer.slots.add(at, q)
		}
	}
}

// drop lets the items of a call, or of all calls if it is nil, wait no longer for questions that are not being asked.
// Those that other calls wait for too are queued for them.
func (d *desk) drop(c *scoreCall, why error) {
	var gone []waiter
	var others []*question
	d.mu.Lock()
	for _, q := range d.waitedBy(c) {
		if q.state == asked || q.state == answered {
			continue
		}
		before := len(q.waits)
		q.waits = slices.DeleteFunc(q.waits, func(w waiter) bool {
			if c != nil && w.item.call != c {
				return false
			}
			gone = append(gone, w)
			return true
		})
		switch {
		case len(q.waits) == 0:
			q.state = answered
			delete(d.open, q.key)
		case len(q.waits) < before && q.state == queued:
			others = append(others, q)
		}
	}
	if d.asking == 0 {
		others = append(others, d.resume())
	}
	d.mu.Unlock()
	d.queue(others...)
	d.store.deliver(gone, judging.Answer{}, why)
}

// waitedBy returns the open questions that the items of a call may wait for, or all if it is nil. It does not look at
// those of other calls: a session may have many. d.mu is held.
func (d *desk) waitedBy(c *scoreCall) (all []*question) {
	if c == nil {
		return slices.Collect(maps.Values(d.open))
	}
	for _, i := range c.items {
		for judge := range c.told {
			if q := d.open[i.question(judge)]; q != nil {
				all = append(all, q)
			}
		}
	}
	return all
}
