package judgingtest

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
)

// Catalog is a catalog of four models.
type Catalog struct{}

// The models of the catalog: two that judge, and two that evals compare.
const (
	Model      = "sim/judge"
	OtherModel = "sim/other"
	Baseline   = "sim/base"
	Candidate  = "sim/candidate"
)

// Chats refuses every other model.
func (Catalog) Chats(_ tenant.ID, field, name string) error {
	if !slices.Contains([]string{Model, OtherModel, Baseline, Candidate}, name) {
		return fault.Invalid(field, "cannot be called: no such model")
	}
	return nil
}

// Upstream identifies what a catalog id stands for. Candidate is Baseline by another name.
func (Catalog) Upstream(_ tenant.ID, name string) string {
	if name == Candidate {
		return Baseline
	}
	return name
}

// The price of every answer, and the estimate of it.
const (
	Price    = money.Nano(1000) // what every answer costs
	Estimate = money.Nano(3000) // the estimate of every answer's cost
)

// Models is a fake of all models. It counts what it is asked.
type Models struct {
	mu       sync.Mutex
	answer   func(item int, r *infer.Request) (string, error)
	answered map[string]int // by the body
	calls    int
	unkept   int // answers that were not stored
	paid     money.Nano
	price    money.Nano // 0 for Price
	last     []byte
	pay      func(*infer.Request) (settle func(cost money.Nano), err error)
}

// Complete answers a question, as infer.Completer.
func (m *Models) Complete(ctx context.Context, r *infer.Request) (*infer.Answer, error) {
	m.mu.Lock()
	m.calls++
	name, reply, pay := fmt.Sprintf("req_%d", m.calls), m.answer, m.pay
	m.last = r.Body
	m.mu.Unlock()
	cost := money.Nano(0)
	if pay != nil {
		settle, err := pay(r)
		if err != nil {
			return nil, err
		}
		defer func() { settle(cost) }()
	}
	text := Assessment(judge.Pass, 0.9)
	if reply != nil {
		var err error
		if text, err = reply(itemOf(r.Body), r); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	body := fmt.Appendf(nil, `{"choices":[{"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, text)
	price := m.priceNow()
	answer := &infer.Answer{RequestID: name, Model: r.Model, Cost: price, Body: body}
	if r.Keep != nil {
		if err := r.Keep(answer); err != nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.unkept++
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered[string(r.Body)]++
	m.paid += price
	cost = price
	return answer, nil
}

// Estimate estimates a question, as infer.Completer.
func (m *Models) Estimate(*infer.Request, int64) (money.Nano, error) { return Estimate, nil }

// Pay sets what holds money for a question before it is asked, or refuses it. settle gets what the answer cost.
func (m *Models) Pay(pay func(*infer.Request) (settle func(cost money.Nano), err error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pay = pay
}

// Say sets the text that answers a question about an item. Without it every item passes.
func (m *Models) Say(reply func(item int) string) {
	m.Do(func(item int, _ *infer.Request) (string, error) { return reply(item), nil })
}

// Do sets what answers a question about an item: a text, or a refusal. nil lets every item pass.
func (m *Models) Do(reply func(item int, r *infer.Request) (string, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = reply
}

// SetPrice sets what every answer costs from now on.
func (m *Models) SetPrice(price money.Nano) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.price = price
}

func (m *Models) priceNow() money.Nano {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.price, Price)
}

// Answered counts the questions that were answered, and reports whether any was answered more than once.
func (m *Models) Answered() (n int, twice bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, times := range m.answered {
		n += times
		twice = twice || times > 1
	}
	return n, twice
}

// Unkept counts the answers that could not be stored, because the question had been answered before.
func (m *Models) Unkept() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unkept
}

// Calls counts the questions, answered or not.
func (m *Models) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// Paid sums up what the answers cost.
func (m *Models) Paid() money.Nano {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.paid
}

// Last is the body of the last question.
func (m *Models) Last() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Assessment is a judge's answer.
func Assessment(v judge.Verdict, grade float64) string {
	return fmt.Sprintf(`{"critique":"as I see it","grade":%v,"verdict":%q}`, grade, v)
}

// Items matches the numbers of the items that a question quotes.
var Items = regexp.MustCompile(`reply to item (\d+)`)

// itemOf returns the last item that a question quotes, which is the one that it asks about.
func itemOf(body []byte) int {
	all := Items.FindAllSubmatch(body, -1)
	if all == nil {
		return -1
	}
	n, _ := strconv.Atoi(string(all[len(all)-1][1]))
	return n
}

// Exchange is an exchange about an item.
func Exchange(item int) judge.Step {
	return judge.Step{
		Messages: fmt.Appendf(nil, `[{"role":"user","content":"question %d"}]`, item),
		Response: fmt.Appendf(nil, `{"role":"assistant","content":"reply to item %d"}`, item),
	}
}
