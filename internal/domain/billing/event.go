package billing

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/money"
)

// An event is what Stripe tells, as far as it is read.
type event struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data struct {
		Object jsontext.Value `json:"object"`
	} `json:"data"`
}

// A paidSession is a session of Checkout, as an event shows it.
type paidSession struct {
	ID            string `json:"id"`
	Reference     string `json:"client_reference_id"`
	Amount        int64  `json:"amount_total"`
	Currency      string `json:"currency"`
	Status        string `json:"payment_status"`
	PaymentIntent string `json:"payment_intent"`
}

// A charge is a payment, as the event of its refund shows it. What was refunded is the sum so far.
type charge struct {
	ID            string `json:"id"`
	PaymentIntent string `json:"payment_intent"`
	Refunded      int64  `json:"amount_refunded"`
	Currency      string `json:"currency"`
}

// A refund is one that was asked for. It may fail after it was told of as done.
type refund struct {
	ID            string `json:"id"`
	PaymentIntent string `json:"payment_intent"`
	Amount        int64  `json:"amount"`
	Currency      string `json:"currency"`
	Status        string `json:"status"`
}

// A dispute is a payment that the payer's bank asks back.
type dispute struct {
	ID            string `json:"id"`
	PaymentIntent string `json:"payment_intent"`
	Amount        int64  `json:"amount"`
	Currency      string `json:"currency"`
	Status        string `json:"status"`
}

// A reversal is what a refund or a dispute takes back of a payment. A final one is not changed by what is not final: it
// was told of earlier, and arrived later.
type reversal struct {
	intent, source string
	kind           reversalKind
	amount         money.Nano
	final, grows   bool // grows: of two amounts the larger is the newer
}

// A reversalKind is what an amount of a reversal means.
type reversalKind string

// The kinds.
const (
	ofCharge  reversalKind = "charge"  // all refunds of a charge together
	ofRefund  reversalKind = "refund"  // one refund
	ofFailure reversalKind = "failure" // one refund that failed: it gives back
	ofDispute reversalKind = "dispute"
)

// A change is what an event asks for: a session that moves to a state, or a reversal. Both may be nil.
type change struct {
	session *paidSession
	to      State
	back    *reversal
}

// handlers says what each type of event asks for. Others ask for nothing.
var handlers = map[string]func(jsontext.Value) (change, error){
	"checkout.session.completed":               sessionTo(settled),
	"checkout.session.async_payment_succeeded": sessionTo(settled),
	"checkout.session.async_payment_failed":    sessionTo(func(string) State { return Failed }),
	"checkout.session.expired":                 sessionTo(func(string) State { return Expired }),
	"charge.refunded":                          chargeRefunded,
	"charge.refund.updated":                    refunded,
	"refund.created":                           refunded,
	"refund.updated":                           refunded,
	"refund.failed":                            refunded,
	"charge.dispute.created":                   disputed,
	"charge.dispute.updated":                   disputed,
	"charge.dispute.closed":                    disputed,
}

// settled is the state of a session that was completed: only what is paid is credited.
func settled(status string) State {
	if status == "paid" {
		return Paid
	}
	return Processing
}

func sessionTo(state func(status string) State) func(jsontext.Value) (change, error) {
	return func(object jsontext.Value) (change, error) {
		var s paidSession
		err := json.Unmarshal(object, &s)
		return change{session: &s, to: state(s.Status)}, err
	}
}

func chargeRefunded(object jsontext.Value) (change, error) {
	var c charge
	if err := json.Unmarshal(object, &c); err != nil || c.PaymentIntent == "" || !isDollars(c.Currency) {
		return change{}, err
	}
	return change{back: &reversal{
		intent: c.PaymentIntent, source: c.ID, kind: ofCharge, amount: dollars(c.Refunded), grows: true,
	}}, nil
}

// refunded takes the amount of a refund back until it has failed or was cancelled. Both are final.
func refunded(object jsontext.Value) (change, error) {
	var f refund
	if err := json.Unmarshal(object, &f); err != nil || f.PaymentIntent == "" || !isDollars(f.Currency) {
		return change{}, err
	}
	back := reversal{intent: f.PaymentIntent, source: f.ID, kind: ofRefund, amount: dollars(f.Amount)}
	if f.Status == "failed" || f.Status == "canceled" {
		back.kind, back.final = ofFailure, true
	}
	return change{back: &back}, nil
}

// disputed takes a disputed amount back until the dispute is won. An inquiry (warning_…) takes nothing, and may become
// a dispute.
func disputed(object jsontext.Value) (change, error) {
	var d dispute
	if err := json.Unmarshal(object, &d); err != nil || d.PaymentIntent == "" || !isDollars(d.Currency) {
		return change{}, err
	}
	back := reversal{intent: d.PaymentIntent, source: d.ID, kind: ofDispute, amount: dollars(d.Amount)}
	switch {
	case d.Status == "won" || d.Status == "prevented":
		back.amount, back.final = 0, true
	case d.Status == "lost":
		back.final = true
	case strings.HasPrefix(d.Status, "warning_"):
		back.amount, back.grows = 0, true
	}
	return change{back: &back}, nil
}

func isDollars(currency string) bool { return strings.EqualFold(currency, Currency) }

// maxCents bounds an amount that an event may name, so that it can be counted in nano-dollars.
const maxCents = int64(1<<62) / int64(cent)

func dollars(n int64) money.Nano { return money.Nano(min(max(n, 0), maxCents)) * cent }

// read returns what the event of a body asks for.
func read(body []byte) (e event, asked change, err error) {
	if err := json.Unmarshal(body, &e); err != nil {
		return e, asked, err
	}
	handler, known := handlers[e.Type]
	if !known {
		return e, asked, nil
	}
	asked, err = handler(e.Data.Object)
	return e, asked, err
}
