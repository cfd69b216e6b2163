package plan

import (
	"cmp"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/meter"
	"sovereign/internal/text/token"
)

// Hold returns the money to hold for a request: the worst case of the dearest model that may run. maxTokens is the
// default bound of the output, or 0; free returns what the wallet has.
//
// Measuring a prompt takes time, for a long one more than sending it. It is skipped where the wallet has plenty: then
// one token is assumed for every byte, which is an upper bound except for media.
func (p *Plan) Hold(q *request.Request, maxTokens int64, free func() money.Nano) money.Nano {
	if q.Endpoint.Kind != live.Rerank && !q.HasMedia() {
		if rough := p.worst(q, maxTokens, token.Most(len(q.Body))); rough <= free()/plentyFactor {
			return rough
		}
	}
	return p.worst(q, maxTokens, q.Tokens().High)
}

// plentyFactor is how many such requests a wallet with plenty could pay for.
const plentyFactor = 100

// worst returns the most that any model of the plan can cost, for a prompt of at most prompt tokens.
func (p *Plan) worst(q *request.Request, maxTokens, prompt int64) (worst money.Nano) {
	for i := range p.Priced {
		c := &p.Priced[i]
		worst = max(
			worst, c.Price.Worst(q.MaxInput(c.Model, prompt), maxOutput(q, c.Model, maxTokens), q.MaxSearches()),
		)
	}
	return worst
}

// MaxOutput returns the most tokens that can come back, of any model of the plan.
func (p *Plan) MaxOutput(q *request.Request, maxTokens int64) (most int64) {
	for i := range p.Priced {
		most = max(most, maxOutput(q, p.Priced[i].Model, maxTokens))
	}
	return most
}

// maxOutput returns the most tokens that can come back.
func maxOutput(q *request.Request, m *live.Model, maxTokens int64) int64 {
	return q.Choices * min(cmp.Or(q.MaxTokens, maxTokens, m.MaxOutput), m.MaxOutput)
}

// Insufficient refuses a request that the wallet cannot cover. It names a max_tokens that the wallet could cover.
func (p *Plan) Insufficient(q *request.Request, worst, free money.Nano) error {
	return fault.InsufficientBalance.New(
		"the wallet has $%s free, and this request could cost $%s%s", free, worst, p.hint(q, free),
	)
}

// OverBudget refuses a request that a budget cannot cover, like Insufficient.
func (p *Plan) OverBudget(q *request.Request, worst money.Nano, over *meter.OverBudget) error {
	return fault.BudgetExceeded.New("%s, and this request could cost $%s%s", over, worst, p.hint(q, over.Free))
}

// hint names a maximum of the output that free could cover, if there is one.
func (p *Plan) hint(q *request.Request, free money.Nano) string {
	maxTokens := int64(-1)
	for i := range p.Priced {
		c := &p.Priced[i]
		input := q.MaxInput(c.Model, q.Tokens().High)
		if q.MaxTokens == 0 {
			input += memberTokens
		}
		fits := affordable(c.Price, input, q.Choices, c.MaxOutput, free)
		if maxTokens < 0 || fits < maxTokens {
			maxTokens = fits
		}
	}
	if maxTokens <= 0 {
		return ""
	}
	return fmt.Sprintf("; with %s of at most %d it would fit", q.Endpoint.MaxTokensMember(p.Order[0].Model), maxTokens)
}

// memberTokens bounds the tokens by which a body grows when it names a maximum.
const memberTokens = 32

// affordable returns the largest output per choice, up to limit, whose worst case costs at most free.
func affordable(p live.Price, input, choices, limit int64, free money.Nano) int64 {
	low, high := int64(0), limit
	for low < high {
		middle := low + (high-low+1)/2
		if p.Worst(input, choices*middle, 0) <= free {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}
