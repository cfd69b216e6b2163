package meter

import (
	"sync"
	"time"

	"sovereign/internal/base/money"
)

// A Count is what a key or a workspace uses of its limits at one server, or at several together.
type Count struct {
	ID       string
	Requests int64 // of the last minute
	Tokens   int64 // of the last minute, and those that are reserved
	Running  int64
}

func (c *Count) none() bool { return c.Requests == 0 && c.Tokens == 0 && c.Running == 0 }

// elsewhere is what an account knows of the other servers. They tell each other of their counts in rounds. What a limit
// leaves at a round is divided: until the next one a server takes at most its share of it.
type elsewhere struct {
	count    Count // of the others, at the last round
	reported Count // of this server, at the last round
	next     Count // of this server, at the round that is going on
	told     bool  // the others know of more than nothing

	// requests and tokens that were taken since the last round, and since the one that is going on
	taken, nextTaken Count

	day, month period // what the others spent
}

// SetNodes has limits divided among as many servers as nodes returns, which is asked for each request with limits.
func (m *Meter) SetNodes(nodes func() int) { m.nodes = nodes }

func (m *Meter) shares() int64 {
	if m == nil || m.nodes == nil {
		return 1
	}
	return int64(max(1, m.nodes()))
}

// Report begins a round: it returns what every key and workspace uses here that the others must know of. Heard ends the
// round.
func (m *Meter) Report(now time.Time) (all []Count) {
	since := m.since(now)
	m.eachAccount(func(a *account) {
		c := Count{ID: a.id, Running: a.running, Tokens: a.reserved}
		if a.requests != nil {
			a.requests.forget(since)
			c.Requests = a.requests.sum
		}
		if a.tokens != nil {
			a.tokens.forget(since)
			c.Tokens += a.tokens.sum
		}
		e := &a.elsewhere
		if e.next, e.nextTaken = c, (Count{}); !c.none() || e.told {
			e.told = !c.none()
			all = append(all, c)
		}
	})
	return all
}

// Heard ends a round with what the other servers use, by id.
func (m *Meter) Heard(others map[string]Count) {
	for id := range others {
		m.account(id) // so that its first request here knows of it
	}
	m.eachAccount(func(a *account) {
		e := &a.elsewhere
		e.count, e.reported, e.taken = others[a.id], e.next, e.nextTaken
	})
}

func (m *Meter) eachAccount(f func(*account)) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.RLock()
		all := make([]*account, 0, len(s.accounts))
		for _, a := range s.accounts {
			all = append(all, a)
		}
		s.mu.RUnlock()
		for _, a := range all {
			locked(&a.mu, func() { f(a) })
		}
	}
}

func locked(mu *sync.Mutex, f func()) {
	mu.Lock()
	defer mu.Unlock()
	f()
}

// share returns what this server may still take until the next round, of what a limit left at the last one: an equal
// part, at least one.
func share(limit, used, taken, nodes int64) int64 {
	if nodes == 1 {
		return 1<<63 - 1
	}
	return max(1, (limit-used)/nodes) - taken
}

// soon is when another round will have told of what the other servers have left.
const soon = time.Second

// SpentElsewhere sets what the other servers have spent in the UTC day and month of a time.
func (m *Meter) SpentElsewhere(id string, now time.Time, s Spent) {
	a := m.account(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.elsewhere.day, a.elsewhere.month = period{dayOf(now), s.Day}, period{monthOf(now), s.Month}
}

// in returns what was spent in the period of that number.
func (p *period) in(number int64) money.Nano {
	if p.number != number {
		return 0
	}
	return p.spent
}
