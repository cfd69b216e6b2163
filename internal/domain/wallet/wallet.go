// Package wallet keeps the ledger of prepaid money: double entry, append-only, in integers. Its Poster moves charges
// from the journal to the ledger exactly once.
package wallet

import (
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/store/chain"
)

// The accounts of a workspace. Their balances sum to zero: funding is what came in, wallet what is left of it, usage
// what was used, and overage what was used beyond the wallet, which the operator pays.
const (
	accountWallet  = "wallet"
	accountFunding = "funding"
	accountUsage   = "usage"
	accountOverage = "overage"
)

// The kinds of transfer.
const (
	kindTopUp  = "topup"
	kindUsage  = "usage"
	kindRefund = "refund" // money that a payment brought, and that went back; negative when it comes again
)

// A line of a transfer moves an amount into an account, or out of it when negative.
type line struct {
	account string
	amount  money.Nano
}

// The limits of one top-up: more is a typing error.
const (
	minTopUp = money.Nano(1)
	maxTopUp = 1_000_000 * money.Dollar
)

func checkTopUp(amount money.Nano) error {
	if amount < minTopUp || amount > maxTopUp {
		return fault.Invalid("amount_usd", fmt.Sprintf("must be above 0 and at most %s", maxTopUp))
	}
	return nil
}

// A Proof is the result of checking the ledger against itself and its chain.
type Proof struct {
	OK       bool        `json:"ok"`
	Entries  int64       `json:"entries"`
	Sum      money.Nano  `json:"sum" doc:"Of all entries; 0 when the ledger is whole"`
	Head     *chain.Head `json:"head" doc:"The signed end of the ledger's chain"`
	Problems []string    `json:"problems" nullable:"false" doc:"Every broken invariant, and what was changed, removed or added, in words"`
}
