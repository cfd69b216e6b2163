package reward

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
)

// openQuestions are the questions of one session, in this process, while the session has calls.
type openQuestions struct {
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
	waking  bool                      // one of them is queued again after a pause
	pause   time.Duration             // the last one; 0 when a question was settled since
}

// openQuestions returns those of a session, which close gives back. They are taken before the session is read, so that
// the end of the session is not missed.
func (s *Store) openQuestions(ws tenant.ID, id string) *openQuestions {
	s.scorer.mu.Lock()
	defer s.scorer.mu.Unlock()
	name := ref{ws, id}
	o := s.scorer.open[name]
	if o == nil {
		o = &openQuestions{store: s, ws: ws, session: id, open: map[questionKey]*question{}}
		o.ctx, o.leave = s.running.enter(s.scorer.life, ws, id)
		s.scorer.open[name] = o
	}
	o.calls++
	return o
}

func (o *openQuestions) close() {
	o.store.scorer.mu.Lock()
	defer o.store.scorer.mu.Unlock()
	if o.calls--; o.calls == 0 {
		delete(o.store.scorer.open, ref{o.ws, o.session})
		o.leave()
	}
}

// askNoMore gives up the questions of a session that are not being asked.
func (s *scorer) askNoMore(at ref) {
	s.mu.Lock()
	o := s.open[at]
	s.mu.Unlock()
	if o != nil {
		o.drop(nil, errEnded)
	}
}

// question returns the key of the question that a judge is asked about an item.
func (i *scored) question(judge int) questionKey {
	pinned := &i.call.session.Judges[judge]
	return questionKey{pinned.CriterionID, pinned.Version, i.prompt, i.completion}
}

// attach makes an item wait for a judge's answer. It returns the question if it is still to be asked.
func (o *openQuestions) attach(i *scored, judge int) *question {
	key := i.question(judge)
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.open[key]
	if q == nil {
		q = &question{questions: o, key: key, call: i.call, about: &i.item, judge: judge}
		o.open[key] = q
	}
	q.waits = append(q.waits, waiter{i, judge})
	if q.state != queued {
		return nil
	}
	return q
}

// settle ends a question that was asked, and returns the items that wait for its answer by now. What it held of the
// budget and did not cost may cover another question.
func (o *openQuestions) settle(q *question) (waits []waiter) {
	o.mu.Lock()
	q.state, waits, q.waits = answered, q.waits, nil
	delete(o.open, q.key)
	o.asking--
	o.settled++
	o.pause = 0
	again := o.resume()
	o.mu.Unlock()
	o.queue(again)
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

// refused decides about a question that the budget could not cover. busy says that questions which other servers ask
// hold money of it: the question is then asked again after a pause, since their end is not heard of here.
func (o *openQuestions) refused(q *question, busy bool) retry {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ctx.Err() != nil:
		return halted
	case q.began != o.settled:
		q.began = o.settled
		return now
	case o.asking == 1 && !busy:
		return never
	}
	o.asking--
	q.state = short
	o.short = append(o.short, q)
	if busy {
		o.wakeLater()
	}
	return later
}

// wakeLater queues a question that is short of money after a pause, and so on until none is. o.mu is held.
func (o *openQuestions) wakeLater() {
	if o.waking {
		return
	}
	o.waking, o.pause = true, longer(o.pause)
	time.AfterFunc(o.pause, func() {
		o.mu.Lock()
		o.waking = false
		again := o.resume()
		if len(o.short) > 0 {
			o.wakeLater()
		}
		o.mu.Unlock()
		o.queue(again)
	})
}

// resume takes the first question that is short of money, and makes it a queued one. o.mu is held.
func (o *openQuestions) resume() *question {
	for len(o.short) > 0 {
		first := o.short[0]
		o.short[0], o.short = nil, o.short[1:]
		if first.state == short { // else it was dropped
			first.state = queued
			return first
		}
	}
	return nil
}

// queue queues questions for the calls that wait for them.
func (o *openQuestions) queue(questions ...*question) {
	for _, q := range questions {
		if q == nil {
			continue
		}
		o.mu.Lock()
		at, waited := place{}, len(q.waits) > 0
		if waited {
			at = q.waits[0].item.call.place
		}
		o.mu.Unlock()
		if waited {
			o.store.scorer.slots.add(at, q)
		}
	}
}

// drop lets the items of a call, or of all calls if it is nil, wait no longer for questions that are not being asked.
// Those that other calls wait for too are queued for them.
func (o *openQuestions) drop(c *scoreCall, why error) {
	var gone []waiter
	var others []*question
	o.mu.Lock()
	for _, q := range o.waitedBy(c) {
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
			delete(o.open, q.key)
		case len(q.waits) < before && q.state == queued:
			others = append(others, q)
		}
	}
	if o.asking == 0 {
		others = append(others, o.resume())
	}
	o.mu.Unlock()
	o.queue(others...)
	o.store.deliver(gone, judging.Answer{}, why)
}

// waitedBy returns the open questions that the items of a call may wait for, or all if it is nil. It does not look at
// those of other calls: a session may have many. o.mu is held.
func (o *openQuestions) waitedBy(c *scoreCall) (all []*question) {
	if c == nil {
		return slices.Collect(maps.Values(o.open))
	}
	for _, i := range c.items {
		for judge := range c.told {
			if q := o.open[i.question(judge)]; q != nil {
				all = append(all, q)
			}
		}
	}
	return all
}
