package wallet

import (
	"context"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A loss is what a server that is gone for good may have spent of a workspace, as the audit log shows it.
type loss struct {
	Node   string     `json:"node"`
	Hold   string     `json:"hold_id,omitempty"`
	Amount money.Nano `json:"at_most_usd"`
}

// Forget gives back the slices of a server whose membership is over and whose journal will never be read again. It
// notes how much may have been spent there and was not posted: at most what the slices were, which it returns. What the
// server posts all the same is the operator's overage.
func Forget(ctx context.Context, tx *db.Tx, by tenant.Actor, node string) (atMost money.Nano, err error) {
	live, err := db.One[int64](
		ctx, tx.Across(acrossSlices), `SELECT COUNT(*) FROM nodes WHERE id = $1 AND NOT ended`, node,
	)
	if err != nil {
		return 0, err
	}
	if live > 0 {
		return 0, fault.Conflict("the server %s is a member: it has the money that it has taken", node)
	}
	lost, err := loseSlices(ctx, tx, node)
	if err != nil {
		return 0, err
	}
	for _, r := range lost {
		if r.Amount == 0 {
			continue
		}
		atMost += r.Amount
		if err := audit.Record(ctx, tx, r.WorkspaceID, by, "wallet.forget", node, nil, loss{
			node, r.HoldID, r.Amount,
		}); err != nil {
			return 0, err
		}
	}
	return atMost, dropSlices(ctx, tx, node)
}
