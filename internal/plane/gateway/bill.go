package gateway

import (
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/plan"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/till"
	"sovereign/internal/text/token"
)

// A bill is the money of one request: its hold, what was used so far, and how it was settled.
type bill struct {
	gateway *Gateway
	request *request.Request
	tab     till.Tab
	model   *plan.Candidate // the model of the current attempt, whose price is charged

	reported  *live.Usage // by the provider so far; nil if it has reported none, which is not 0
	complete  bool        // the provider has ended its answer: what is reported is all
	delivered []byte      // text of the answer that was put out for the caller
	recorded  time.Time   // when progress was last recorded

	outcome outcome.Outcome // empty until the request is settled
	used    live.Usage      // that was charged
}

// beginAttempt begins an attempt at a model. What an earlier attempt used is forgotten: it delivered nothing.
func (b *bill) beginAttempt(c *plan.Candidate) {
	b.model, b.reported, b.complete, b.delivered, b.recorded = c, nil, false, b.delivered[:0], time.Time{}
	b.tab.SetModel(c.Model, c.Price, c.Own != nil)
}

// recordCharge ends a request's money: the only place where the outcome of a caller's request becomes a charge, as
// package outcome lists it. Requests of the product are charged by keepAnswer instead, after the answer was kept.
//
// When it returns no error, the journal holds the charge, or a lower bound of it. Call finish after the last byte was
// sent: it counts and charges what was left open. An error says that nothing could be recorded. If something was
// delivered all the same, finish must be called too, and the charge is owed.
func (b *bill) recordCharge(o outcome.Outcome) (finish func(), err error) {
	none := func() {}
	basis := o.Basis()
	switch {
	case basis == outcome.None && b.tab.Journaled(): // recorded, and not delivered after all
		b.settleOrOwe(o, live.Usage{}, true)
		return none, nil
	case basis == outcome.None:
		b.tab.Drop()
		return none, nil
	case b.reported != nil && (basis == outcome.Answer || basis == outcome.Delivered && b.complete):
		s := b.settlement(o, *b.reported, false)
		err := b.tab.Settle(s)
		if err == nil {
			b.settled(o, *b.reported)
			return none, nil
		}
		return func() {
			b.tab.Owe(s)
			b.settled(o, *b.reported)
		}, err
	}
	err = b.tab.RecordUsage(b.atLeast())
	return func() { b.charge(o, b.withReported(b.count()), true) }, err
}

// abandon charges a whole answer whose caller has left before it came.
func (b *bill) abandon() {
	used, counted := b.usage()
	b.charge(outcome.Abandoned, used, counted)
}

// charge settles what an answer used, and owes it if it cannot be recorded.
func (b *bill) charge(o outcome.Outcome, used live.Usage, counted bool) {
	b.settleOrOwe(o, used, counted)
	b.settled(o, used)
}

func (b *bill) settleOrOwe(o outcome.Outcome, used live.Usage, counted bool) {
	if s := b.settlement(o, used, counted); b.tab.Settle(s) != nil {
		b.tab.Owe(s)
	}
}

// settlement says how a usage is charged. The hold is the most that is charged for an answer that the caller did not
// receive whole, and for a usage that the request cannot have had.
func (b *bill) settlement(o outcome.Outcome, used live.Usage, counted bool) till.Settlement {
	s := till.Settlement{Outcome: o, Usage: used, Counted: counted, Capped: o.Basis() != outcome.Answer}
	if !b.plausible(used) {
		s.Usage, s.Capped = b.clip(used), true
		b.gateway.Log.Warn("a provider reports more than its model can have used: it is charged at most the hold",
			"request_id", b.request.ID, "model", b.model.ID, "input_tokens", used.Input, "output_tokens", used.Output,
			"searches", used.Searches)
	}
	return s
}

// clip returns a usage without what the model cannot have used, so that no report can fill the books with amounts that
// nobody owes.
func (b *bill) clip(u live.Usage) live.Usage {
	q, m := b.request, b.model.Model
	u.Input, u.Output = min(u.Input, q.InputLimit(m)), min(u.Output, q.Choices*m.MaxOutput)
	u.Searches = min(u.Searches, q.MaxSearches())
	u.Cached = min(u.Cached, u.Input)
	u.Written = min(u.Written, u.Input-u.Cached)
	u.AudioInput = min(u.AudioInput, u.Input-u.Cached-u.Written)
	u.Reasoning = min(u.Reasoning, u.Output)
	u.AudioOutput = min(u.AudioOutput, u.Output-u.Reasoning)
	return u
}

// plausible reports whether the model can have used this much for the request.
func (b *bill) plausible(u live.Usage) bool {
	q, m := b.request, b.model.Model
	return u.Input <= q.InputLimit(m) && u.Output <= q.Choices*m.MaxOutput &&
		(u.Searches == 0 || u.Searches <= q.MaxSearches())
}

// settled notes what was charged.
func (b *bill) settled(o outcome.Outcome, used live.Usage) {
	b.outcome, b.used = o, used
	b.gateway.Metrics.charged(b.model.Model, used, b.cost(used))
}

// cost returns what the model takes for a usage.
func (b *bill) cost(u live.Usage) money.Nano { return b.model.Price.At(u.Input).Of(u) }

// usage returns what a finished answer used: as the provider reports, or else as counted.
func (b *bill) usage() (used live.Usage, counted bool) {
	if b.reported != nil {
		return *b.reported, false
	}
	return b.count(), true
}

// atLeast returns a lower bound of what was used so far.
func (b *bill) atLeast() live.Usage {
	return b.withReported(live.Usage{
		Input: b.request.Tokens().Low, Output: token.Text(b.delivered).Low, Searches: b.searches(),
	})
}

// withReported returns the greater of what was counted and what the provider has reported so far. A reported input
// replaces the counted one: the provider's tokenizer is the right one.
func (b *bill) withReported(counted live.Usage) live.Usage {
	if b.reported == nil {
		return counted
	}
	used := *b.reported
	if used.Input == 0 {
		used.Input = counted.Input
	}
	used.Output, used.Searches = max(used.Output, counted.Output), max(used.Searches, counted.Searches)
	return used
}

// searches returns how many searches were made at least, if the model is priced by them.
func (b *bill) searches() int64 {
	if b.model.Price.Search == 0 {
		return 0
	}
	return b.request.MinSearches()
}

// maxCounted bounds the body that a tokenizer counts. A longer one is charged by its lower bound.
const maxCounted = 8 << 20

// count counts what was used with a tokenizer. It takes milliseconds for a long prompt, so only a few count at once.
func (b *bill) count() live.Usage {
	if len(b.request.Body) > maxCounted {
		used := b.atLeast()
		used.Input += b.request.MediaTokens()
		return used
	}
	b.gateway.counters <- struct{}{}
	defer func() { <-b.gateway.counters }()
	count := b.gateway.Count
	return live.Usage{Input: b.request.CountInput(count), Output: count(string(b.delivered)), Searches: b.searches()}
}

// maxDelivered bounds the delivered text that is kept for counting.
const maxDelivered = 4 << 20

// deliver keeps text that a model wrote, for counting.
func (b *bill) deliver(text []byte) {
	if cap(b.delivered) == 0 {
		b.delivered = make([]byte, 0, firstBuffer)
	}
	if len(b.delivered) < maxDelivered {
		b.delivered = append(b.delivered, text...)
	}
}

// firstBuffer is the first size of a stream's buffers: enough for one event at a time.
const firstBuffer = 1 << 10

// progressInterval is how often a stream's progress is recorded, and so how much of it a killed process may lose.
const progressInterval = time.Second

// progressDue reports whether the next content must be recorded.
func (b *bill) progressDue(now time.Time) bool { return now.Sub(b.recorded) >= progressInterval }

// recordProgress records a stream's first content, and then about once a second what it has delivered. What could not
// be recorded is recorded with the next.
func (b *bill) recordProgress(now time.Time) error {
	if !b.progressDue(now) {
		return nil
	}
	b.recorded = now
	return b.tab.RecordUsage(b.atLeast())
}
