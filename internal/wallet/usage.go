package wallet

import (
	"context"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"sovereign/internal/db"
	"sovereign/internal/id"
	"sovereign/internal/journal"
	"sovereign/internal/live"
	"sovereign/internal/money"
	"sovereign/internal/tenant"
)

// usageColumns are in the order of usageRows, texts first.
var usageColumns = []string{
	"workspace_id", "request_id", "transfer_id", "key_id", "route", "model", "requested", "alias", "provider", "outcome", "price",
	"counted", "own_key", "at", "input", "cached", "written", "audio_input", "output", "reasoning", "audio_output", "searches", "cost", "charged",
}

// postUsage writes the rows of a batch and, for each workspace, the transfer that they sum to. It returns what the wallets paid.
func postUsage(ctx context.Context, tx *db.Tx, batch map[tenant.ID][]*journal.Charge) (map[tenant.ID]money.Nano, error) {
	workspaces := slices.Sorted(maps.Keys(batch))
	across := tx.Across("the rows name their workspaces")
	held, err := balances(ctx, across, workspaces)
	if err != nil {
		return nil, err
	}
	took := make(map[tenant.ID]money.Nano, len(batch))
	transfers := make([]transfer, 0, len(batch))
	var rows [][]any
	for _, ws := range workspaces {
		each, charged, cost := fit(batch[ws], held[holding{ws, accountWallet}])
		t := transfer{ws: ws, id: id.New("txn"), kind: kindUsage, lines: []line{{accountWallet, -charged}, {accountUsage, cost}}}
		if over := cost - charged; over > 0 {
			t.lines = append(t.lines, line{accountOverage, -over})
		}
		more, err := usageRows(ws, t.id, batch[ws], each)
		if err != nil {
			return nil, err
		}
		took[ws], transfers, rows = charged, append(transfers, t), append(rows, more...)
	}
	if err := db.Insert(ctx, across, "usage_rows", usageColumns, rows); err != nil {
		return nil, err
	}
	return took, post(ctx, tx, transfers, held)
}

// usageRows are the values of a batch, of which each was charged an amount. A text that the row before has too is taken
// from there: one request is much like the next.
func usageRows(ws tenant.ID, transfer string, batch []*journal.Charge, charged []money.Nano) ([][]any, error) {
	width := len(usageColumns)
	rows, values, last := make([][]any, len(batch)), make([]any, len(batch)*width), make([]any, width)
	prices := map[live.Rates]string{} // few models serve many requests
	for i, c := range batch {
		u := &c.Usage
		price, ok := prices[c.Price]
		if !ok {
			text, err := json.Marshal(c.Price)
			if err != nil {
				return nil, err
			}
			price = string(text)
			prices[c.Price] = price
		}
		row := values[i*width : i*width : (i+1)*width]
		for k, text := range [...]string{
			string(ws), c.Request, transfer, string(c.Key), c.Route, c.Model, c.Requested, c.Alias, c.Provider, c.Outcome, price,
		} {
			if last[k] != text {
				last[k] = text
			}
			row = append(row, last[k])
		}
		rows[i] = append(row, c.Counted, c.Own, int64(c.At), u.Input, u.Cached, u.Written, u.AudioInput,
			u.Output, u.Reasoning, u.AudioOutput, u.Searches, int64(c.Cost), int64(charged[i]))
	}
	return rows, nil
}

// fit is what each is charged, lowered until the wallet can pay it. The holds have seen to that already, unless two
// servers spent from one wallet.
func fit(batch []*journal.Charge, left money.Nano) (each []money.Nano, charged, cost money.Nano) {
	each = make([]money.Nano, len(batch))
	for i, c := range batch {
		each[i] = min(c.Charged, left)
		left -= each[i]
		charged += each[i]
		cost += c.Cost
	}
	return each, charged, cost
}
