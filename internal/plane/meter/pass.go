package meter

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

// A Pass is what one request takes of the limits of its key and its workspace. The zero Pass has no limits. It belongs
// to one goroutine.
type Pass struct {
	meter   *Meter
	of      [2]use // of the key, and of the workspace
	entered bool
	tokens  int64      // that are reserved
	amount  money.Nano // that is held
}

// A use is a key or a workspace with limits. Its account is nil without any.
type use struct {
	*account
	limits *live.Limits
	whose  string
}

// Enter counts a request against the limits of requests per minute and of requests at once. Leave must be called when
// the request has ended. A refused request is not counted.
func (m *Meter) Enter(c *tenant.Caller, now time.Time) (Pass, error) {
	p := m.pass(c)
	if p.limited() {
		return p, p.enter(m.since(now))
	}
	return p, nil
}

// Internal returns the pass of a request of the product itself. Of its workspace's limits it keeps the budgets and the
// models.
func (m *Meter) Internal(c *tenant.Caller) Pass {
	p := m.pass(c)
	p.of[0] = use{}
	if l := p.of[1].limits; l != nil {
		p.of[1].limits = &live.Limits{BudgetPerDay: l.BudgetPerDay, BudgetPerMonth: l.BudgetPerMonth, Models: l.Models}
	}
	return p
}

func (m *Meter) pass(c *tenant.Caller) Pass {
	p := Pass{meter: m}
	if m == nil {
		return p
	}
	key, workspace := m.limits.Of(c)
	if key != nil {
		p.of[0] = use{m.account(string(c.Key)), key, "key"}
	}
	if workspace != nil {
		p.of[1] = use{m.account(string(c.Workspace)), workspace, "workspace"}
	}
	return p
}

// limited reports whether there are limits.
func (p *Pass) limited() bool { return p.of[0].limits != nil || p.of[1].limits != nil }

// lock locks the accounts, always the key's first.
func (p *Pass) lock() {
	for i := range p.of {
		if u := &p.of[i]; u.limits != nil {
			u.mu.Lock()
		}
	}
}

func (p *Pass) unlock() {
	for i := range p.of {
		if u := &p.of[i]; u.limits != nil {
			u.mu.Unlock()
		}
	}
}

// each calls f for the key and the workspace, as far as they have limits, until f returns an error.
func (p *Pass) each(f func(*use) error) error {
	for i := range p.of {
		if u := &p.of[i]; u.limits != nil {
			if err := f(u); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Pass) enter(now time.Duration) error {
	p.lock()
	defer p.unlock()
	nodes := p.meter.shares()
	if err := p.each(func(u *use) error { return u.admit(now, nodes) }); err != nil {
		return err
	}
	p.entered = true
	return p.each(func(u *use) error {
		if u.running++; u.limits.RequestsPerMinute > 0 {
			u.requests.add(1)
			u.elsewhere.taken.Requests++
			u.elsewhere.nextTaken.Requests++
		}
		return nil
	})
}

// admit refuses a request that is one too many.
func (u *use) admit(now time.Duration, nodes int64) error {
	l, e := u.limits, &u.elsewhere
	if l.RequestsPerMinute > 0 {
		if u.requests == nil {
			u.requests = new(minute)
		}
		u.requests.forget(now)
		others := e.count.Requests
		full := u.requests.sum+others >= l.RequestsPerMinute
		if full || share(l.RequestsPerMinute, e.reported.Requests+others, e.taken.Requests, nodes) < 1 {
			wait := time.Duration(0)
			if full {
				wait = u.requests.wait(now, max(0, l.RequestsPerMinute-1-others))
			}
			return fault.RateLimitExceeded.New(
				"the limit of the %s is %d requests per minute", u.whose, l.RequestsPerMinute,
			).
				In(atLeast(wait, nodes))
		}
	}
	if l.Concurrency > 0 {
		here, others := e.reported.Running, e.count.Running
		if u.running+others >= l.Concurrency ||
			share(l.Concurrency, here+others, max(0, u.running-here), nodes) < 1 {
			return fault.RateLimitExceeded.New(
				"the limit of the %s is %d requests at once", u.whose, l.Concurrency,
			).In(time.Second)
		}
	}
	return nil
}

// atLeast is a wait that is not shorter than the time until this server hears again of the others, where there are any.
func atLeast(wait time.Duration, nodes int64) time.Duration {
	if nodes > 1 {
		return max(wait, soon)
	}
	return wait
}

// Leave ends what Enter began. Repeating it is a no-op.
func (p *Pass) Leave() {
	if !p.entered {
		return
	}
	p.entered = false
	p.lock()
	defer p.unlock()
	_ = p.each(func(u *use) error { u.running--; return nil })
}

// TokenLimit returns the lowest limit of tokens per minute, or 0 without one.
func (p *Pass) TokenLimit() (lowest int64) {
	_ = p.each(func(u *use) error {
		if n := u.limits.TokensPerMinute; n > 0 && (lowest == 0 || n < lowest) {
			lowest = n
		}
		return nil
	})
	return lowest
}

// Free returns what the budgets leave for another request.
func (p *Pass) Free(now time.Time) money.Nano {
	free := money.Nano(math.MaxInt64)
	if !p.limited() {
		return free
	}
	p.lock()
	defer p.unlock()
	_ = p.each(func(u *use) error {
		free = min(free, u.freeOfDay(now), u.freeOfMonth(now))
		return nil
	})
	return free
}

// OverBudget reports that a budget cannot cover a request.
type OverBudget struct {
	Whose  string // key or workspace
	Budget money.Nano
	Period string // day or month
	Free   money.Nano
	Renews time.Time
}

// Error implements error.
func (o *OverBudget) Error() string {
	return fmt.Sprintf("the %s's budget of $%s per %s has $%s left until %s",
		o.Whose, o.Budget, o.Period, o.Free, o.Renews.Format(time.RFC3339))
}

// freeOfDay returns what the budget of the day leaves.
func (u *use) freeOfDay(now time.Time) money.Nano {
	return u.free(u.limits.BudgetPerDay, &u.day, &u.elsewhere.day, now)
}

// freeOfMonth returns what the budget of the month leaves.
func (u *use) freeOfMonth(now time.Time) money.Nano {
	return u.free(u.limits.BudgetPerMonth, &u.month, &u.elsewhere.month, now)
}

func (u *use) free(budget money.Nano, in, elsewhere *period, now time.Time) money.Nano {
	if budget == 0 {
		return math.MaxInt64
	}
	u.turn(now)
	return max(0, budget-sum(sum(in.spent, elsewhere.in(in.number)), u.held))
}

// checkMoney returns an OverBudget for an amount that does not fit, or nil.
func (u *use) checkMoney(now time.Time, amount money.Nano) *OverBudget {
	if free := u.freeOfDay(now); amount > free {
		day, _ := Starts(now)
		return &OverBudget{u.whose, u.limits.BudgetPerDay, "day", free, day.AddDate(0, 0, 1)}
	}
	if free := u.freeOfMonth(now); amount > free {
		_, month := Starts(now)
		return &OverBudget{u.whose, u.limits.BudgetPerMonth, "month", free, month.AddDate(0, 1, 0)}
	}
	return nil
}

// Reserve sets tokens and money aside for a request, until Settle. Tokens beyond a limit are a refusal; money beyond a
// budget is an OverBudget.
func (p *Pass) Reserve(now time.Time, tokens int64, amount money.Nano) error {
	if !p.limited() {
		return nil
	}
	since, nodes := p.meter.since(now), p.meter.shares()
	p.lock()
	defer p.unlock()
	err := p.each(func(u *use) error {
		if over := u.checkMoney(now, amount); over != nil {
			u.reached(p.meter, over)
			return over
		}
		return u.checkTokens(since, tokens, nodes)
	})
	if err != nil {
		return err
	}
	p.tokens, p.amount = tokens, amount
	return p.each(func(u *use) error {
		u.reserved += tokens
		u.elsewhere.taken.Tokens += tokens
		u.elsewhere.nextTaken.Tokens += tokens
		u.held += amount
		return nil
	})
}

// checkTokens refuses tokens that do not fit.
func (u *use) checkTokens(now time.Duration, tokens, nodes int64) error {
	most := u.limits.TokensPerMinute
	if most == 0 {
		return nil
	}
	if u.tokens == nil {
		u.tokens = new(minute)
	}
	u.tokens.forget(now)
	e := &u.elsewhere
	others := e.count.Tokens
	used := u.tokens.sum + u.reserved + others
	// The first request of a round may take all that is left: it may need more than an equal part of it.
	late := e.taken.Tokens > 0 && tokens > share(most, e.reported.Tokens+others, e.taken.Tokens, nodes)
	if tokens > most-used || late {
		f := fault.RateLimitExceeded.New("the limit of the %s is %d tokens per minute: %d are used, and the request may use %d",
			u.whose, most, used, tokens)
		return f.In(max(time.Second, u.tokens.wait(now, max(0, most-u.reserved-others-tokens))))
	}
	return nil
}

// Settle ends what Reserve set aside, and counts what the request used and cost. It also counts for a key or a
// workspace that got a budget while the request ran.
func (p *Pass) Settle(c *tenant.Caller, now time.Time, tokens int64, cost money.Nano) {
	if p.meter == nil || !p.limited() && !p.meter.spends.Load() {
		return
	}
	since := p.meter.since(now)
	for i, id := range [...]string{string(c.Key), string(c.Workspace)} {
		a, reserved := p.of[i].account, true
		if a == nil {
			a, reserved = p.meter.find(id), false
		}
		if a == nil {
			continue
		}
		a.mu.Lock()
		if reserved {
			a.reserved -= p.tokens
			a.held -= p.amount
		}
		if limits := p.of[i].limits; a.tokens != nil && tokens > 0 && (limits == nil || limits.TokensPerMinute > 0) {
			a.tokens.forget(since)
			a.tokens.add(min(tokens, math.MaxInt32))
		}
		if a.counts && cost > 0 {
			a.turn(now)
			a.day.spent, a.month.spent = sum(a.day.spent, cost), sum(a.month.spent, cost)
		}
		a.mu.Unlock()
	}
	p.tokens, p.amount = 0, 0
}

// AllowModel reports whether the limits allow a name.
func (p *Pass) AllowModel(name string) bool {
	return p.each(func(u *use) error {
		if !u.limits.Models.Allow(name) {
			return errNotAllowed
		}
		return nil
	}) == nil
}

var errNotAllowed = fault.ModelNotAllowed.New("not allowed")

// Show sets the headers with which the SDKs of OpenAI learn of limits. Where the key and the workspace have the same
// limit, those of the one that leaves less.
func (p *Pass) Show(header http.Header, now time.Time) {
	if !p.limited() {
		return
	}
	since := p.meter.since(now)
	var requests, tokens state
	p.lock()
	for i := range p.of {
		if u := &p.of[i]; u.limits != nil {
			others := &u.elsewhere.count
			requests.tighten(u.limits.RequestsPerMinute, u.requests, others.Requests, since)
			tokens.tighten(u.limits.TokensPerMinute, u.tokens, u.reserved+others.Tokens, since)
		}
	}
	p.unlock()
	show(header, &requests, &tokens)
}

// A state is a limit per minute, what it leaves, and when all of it is free again.
type state struct {
	limit, remaining int64
	reset            time.Duration
}

// tighten takes the state of another limit over if that leaves less. reserved is what is used beside the minute.
func (s *state) tighten(limit int64, used *minute, reserved int64, now time.Duration) {
	if limit == 0 {
		return
	}
	other := state{limit: limit, remaining: max(0, limit-reserved)}
	if used != nil {
		used.forget(now)
		other.remaining, other.reset = max(0, limit-used.sum-reserved), used.reset(now)
	}
	if s.limit == 0 || other.remaining < s.remaining {
		*s = other
	}
}

// headerNames are the headers of requests, and then those of tokens, in canonical form.
var headerNames = [...]string{
	"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
	"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens",
}

// show sets the headers of the limits that there are. Their texts share their memory, since this is done for every
// request of a limited key.
func show(header http.Header, states ...*state) {
	var buffer [160]byte
	var ends [len(headerNames)]int
	text := buffer[:0]
	for i, s := range states {
		text = strconv.AppendInt(text, s.limit, 10)
		ends[3*i] = len(text)
		text = strconv.AppendInt(text, s.remaining, 10)
		ends[3*i+1] = len(text)
		text = appendSeconds(text, s.reset)
		ends[3*i+2] = len(text)
	}
	all, from, values := string(text), 0, new([len(headerNames)]string)
	for i, end := range ends {
		if values[i], from = all[from:end], end; states[i/3].limit > 0 {
			header[headerNames[i]] = values[i : i+1 : i+1]
		}
	}
}

// appendSeconds appends a duration in seconds and milliseconds, such as 59.5s.
func appendSeconds(to []byte, d time.Duration) []byte {
	d = d.Round(time.Millisecond)
	to = strconv.AppendInt(to, int64(d/time.Second), 10)
	if rest := int64(d % time.Second / time.Millisecond); rest > 0 {
		to = append(to, '.', byte('0'+rest/100))
		if rest %= 100; rest > 0 {
			to = append(to, byte('0'+rest/10))
		}
		if rest %= 10; rest > 0 {
			to = append(to, byte('0'+rest))
		}
	}
	return append(to, 's')
}
