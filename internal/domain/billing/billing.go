// Package billing lets people pay into a workspace's wallet by Stripe Checkout, and gives monthly statements. Money is
// credited by Stripe's signed events alone, once, and only for what this server asked for: the row of a top-up stands
// before Stripe hears of it, and a paid session must match it.
package billing

import (
	"fmt"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
)

// A State is how far a top-up is.
type State string

// The states.
const (
	Pending    State = "pending"    // nothing was paid yet
	Processing State = "processing" // the payment method takes time; nothing is credited
	Paid       State = "paid"       // credited
	Failed     State = "failed"
	Expired    State = "expired"
)

// transitions lists every permitted change of state. Whatever was said before, a payment is credited: it may be told of
// after its session has expired, or after an earlier attempt has failed.
var transitions = map[State][]State{
	Pending:    {Processing, Paid, Failed, Expired},
	Processing: {Paid, Failed},
	Failed:     {Paid},
	Expired:    {Paid},
	Paid:       {},
}

// may reports whether a top-up of state s may become to.
func (s State) may(to State) bool { return slices.Contains(transitions[s], to) }

// Currency is the one that wallets are kept in.
const Currency = "usd"

// A Topup is a payment into the wallet.
type Topup struct {
	ID        string      `json:"id"`
	Object    string      `json:"object" enum:"topup"`
	Amount    money.Nano  `json:"amount_usd"`
	Currency  string      `json:"currency" enum:"usd"`
	State     State       `json:"state" enum:"pending,processing,paid,failed,expired"`
	Taken     money.Nano  `json:"taken_back_usd" doc:"Of what was credited: refunded or disputed"`
	URL       string      `json:"url,omitempty" doc:"Where to pay, while it is pending"`
	Failure   string      `json:"error,omitempty"`
	CreatedBy string      `json:"created_by" doc:"The person who began it"`
	CreatedAt clock.Time  `json:"created_at"`
	UpdatedAt clock.Time  `json:"updated_at"`
	PaidAt    *clock.Time `json:"paid_at"`
}

// A record is a top-up with what Stripe knows it by.
type record struct {
	WorkspaceID   string
	SessionID     string
	PaymentIntent string
	TransferID    string
	Topup
}

// shown is a top-up as people see it: a page to pay at only while that makes sense.
func (t Topup) shown() Topup {
	if t.State != Pending {
		t.URL = ""
	}
	return t
}

// cent is the unit in which Stripe counts dollars.
const cent = money.Dollar / 100

func cents(amount money.Nano) int64 { return int64(amount / cent) }

// Bounds are the least and the most that one top-up may be.
type Bounds struct{ Min, Max money.Nano }

// check refuses an amount that is out of bounds, or no whole cents.
func (b Bounds) check(amount money.Nano) error {
	if amount < b.Min || amount > b.Max || amount%cent != 0 {
		return fault.Invalid("amount_usd", fmt.Sprintf("must be from %s to %s, in whole cents", b.Min, b.Max))
	}
	return nil
}

// An amount is what a reversal says of a payment.
type amount struct {
	Kind   reversalKind
	Amount money.Nano
}

// reversed returns what refunds and disputes take back of a payment: never more than it brought. A refund is told of by
// itself, by the sum of its charge, or by both, and it may fail: the larger of the refunds that stand, and of the sum
// without those that failed.
func reversed(paid money.Nano, all []amount) money.Nano {
	sums := map[reversalKind]money.Nano{}
	for _, a := range all {
		sums[a.Kind] = min(sums[a.Kind]+min(max(a.Amount, 0), paid), 2*paid)
	}
	refunds := max(sums[ofRefund], sums[ofCharge]-sums[ofFailure])
	return min(refunds+sums[ofDispute], paid)
}
