// Package meter counts what keys and workspaces use against their limits: requests and tokens per minute, requests that
// run at once, and money per day and per month. It counts in memory, and only for those that have limits. Money that
// was spent before the process began, and what other servers count, is told to it.
package meter

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

// A Meter counts for all keys and workspaces. A nil Meter limits nothing.
type Meter struct {
	limits  *live.AllLimits
	started time.Time
	spends  atomic.Bool // some account counts money
	nodes   func() int  // servers that share the limits; nil for one

	seed   maphash.Seed
	shards [64]shard

	reachedMu  sync.Mutex
	reachedNow []Reached
}

type shard struct {
	mu       sync.RWMutex
	accounts map[string]*account // by the id of a key or a workspace
}

// New returns a meter for limits, which may change.
func New(limits *live.AllLimits) *Meter {
	m := &Meter{limits: limits, started: time.Now(), seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].accounts = map[string]*account{}
	}
	return m
}

// since returns the time since the meter's start.
func (m *Meter) since(now time.Time) time.Duration { return max(0, now.Sub(m.started)) }

// find returns the account of an id, or nil.
func (m *Meter) find(id string) *account {
	s := &m.shards[maphash.String(m.seed, id)%uint64(len(m.shards))]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.accounts[id]
}

// account returns the account of an id. It is kept as long as the process runs.
func (m *Meter) account(id string) *account {
	if a := m.find(id); a != nil {
		return a
	}
	s := &m.shards[maphash.String(m.seed, id)%uint64(len(m.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[id]
	if a == nil {
		a = &account{id: id}
		s.accounts[id] = a
	}
	return a
}

// An account is what one key or workspace uses.
type account struct {
	mu       sync.Mutex
	requests *minute // nil until there is a limit of requests
	tokens   *minute // nil until there is a limit of tokens
	reserved int64   // tokens of running requests
	running  int64   // requests

	counts     bool // money is counted
	day, month period
	held       money.Nano // for running requests

	elsewhere elsewhere

	id                 string    // of the key or the workspace
	toldDay, toldMonth time.Time // the end of the period in which a budget was last reached
}

// A period is a UTC day or month, and what was spent in it.
type period struct {
	number int64
	spent  money.Nano
}

// at moves a period on when the next one has begun.
func (p *period) at(number int64) {
	if number > p.number {
		*p = period{number: number}
	}
}

// turn moves the account's day and month on.
func (a *account) turn(now time.Time) {
	if day := dayOf(now); day > a.day.number { // a month begins with a day
		a.day.at(day)
		a.month.at(monthOf(now))
	}
}

const secondsPerDay = 24 * 60 * 60

func dayOf(t time.Time) int64 { return t.Unix() / secondsPerDay }

func monthOf(t time.Time) int64 {
	year, month, _ := t.UTC().Date()
	return int64(year)*12 + int64(month) - 1
}

// Starts returns when the UTC day and the UTC month of a time began.
func Starts(t time.Time) (day, month time.Time) {
	year, number, of := t.UTC().Date()
	return time.Date(year, number, of, 0, 0, 0, 0, time.UTC), time.Date(year, number, 1, 0, 0, 0, 0, time.UTC)
}

// Spent is what was spent in a UTC day and in its month.
type Spent struct{ Day, Month money.Nano }

// Expiring reports whether a key or a workspace may expire.
func (m *Meter) Expiring() bool { return m != nil && m.limits.Expiring() }

// Expired reports whether a key or its workspace has expired.
func (m *Meter) Expired(c *tenant.Caller, now time.Time) bool {
	if !m.Expiring() {
		return false
	}
	key, workspace := m.limits.Of(c)
	at := clock.Of(now)
	return key != nil && key.Expired(at) || workspace != nil && workspace.Expired(at)
}

// Counts reports whether the money of a key or a workspace is counted.
func (m *Meter) Counts(id string) bool {
	a := m.find(id)
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

// Begin counts the money that a key or a workspace spends from now on. What was spent before, in the day and the month
// of since, is for Add. It begins anew where money is counted already.
func (m *Meter) Begin(id string, now time.Time) (since clock.Time) {
	a := m.account(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts, a.day, a.month = true, period{number: dayOf(now)}, period{number: monthOf(now)}
	m.spends.Store(true)
	return clock.Of(now)
}

// Add adds what was spent before since, which Begin returned.
func (m *Meter) Add(id string, since clock.Time, before Spent) {
	a := m.account(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.day.add(dayOf(since.Std()), before.Day)
	a.month.add(monthOf(since.Std()), before.Month)
}

// add adds what was spent in the period of that number, unless it is over.
func (p *period) add(number int64, spent money.Nano) {
	if number == p.number {
		p.spent = sum(p.spent, spent)
	}
}

// Forget counts no money any more, after Begin could not be followed by Add.
func (m *Meter) Forget(id string) {
	a := m.account(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts = false
}

// sum returns a + b, or the largest amount when that overflows: a provider may report any usage.
func sum(a, b money.Nano) money.Nano {
	if total, fits := a.Add(b); fits {
		return total
	}
	return 1<<63 - 1
}
