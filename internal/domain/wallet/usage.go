package wallet

import (
	"context"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
)

// usageColumns are all of the table's, in its order: SQLite then takes a row as it comes.
var usageColumns = []string{
	"workspace_id", "at", "request_id", "transfer_id", "key_id", "route", "model", "requested", "alias", "provider", "outcome", "counted", "own_key",
	"input", "cached", "written", "audio_input", "output", "reasoning", "audio_output", "searches", "price", "cost", "charged",
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
	rows := newSheet(batch)
	for _, ws := range workspaces {
		each, charged, cost := fit(batch[ws], held[holding{ws, accountWallet}])
		t := transfer{ws: ws, id: id.New("txn"), kind: kindUsage, lines: []line{{accountWallet, -charged}, {accountUsage, cost}}}
		if over := cost - charged; over > 0 {
			t.lines = append(t.lines, line{accountOverage, -over})
		}
		for i, c := range batch[ws] {
			if err := rows.add(&t, c, each[i]); err != nil {
				return nil, err
			}
		}
		took[ws], transfers = charged, append(transfers, t)
	}
	if err := db.Insert(ctx, across, "usage_rows", usageColumns, rows.rows); err != nil {
		return nil, err
	}
	return took, post(ctx, tx, transfers, held)
}

// A sheet is the rows of a batch. One request is much like the next: a text that the row before has too is taken from there.
type sheet struct {
	rows   [][]any
	values []any // of the rows that are still to come
	last   []any
	prices map[live.Rates]string // few models serve many requests
}

func newSheet(batch map[tenant.ID][]*journal.Charge) *sheet {
	n, width := 0, len(usageColumns)
	for _, charges := range batch {
		n += len(charges)
	}
	return &sheet{rows: make([][]any, 0, n), values: make([]any, n*width), last: make([]any, width), prices: map[live.Rates]string{}}
}

// add puts down a request of a transfer, which was charged an amount.
func (s *sheet) add(t *transfer, c *journal.Charge, charged money.Nano) error {
	price, err := s.price(c.Price)
	if err != nil {
		return err
	}
	u, width := &c.Usage, len(usageColumns)
	row := s.text(s.values[:0:width], string(t.ws))
	row = append(row, int64(c.At), c.Request)
	for _, text := range [...]string{t.id, string(c.Key), c.Route, c.Model, c.Requested, c.Alias, c.Provider, c.Outcome} {
		row = s.text(row, text)
	}
	row = append(row, c.Counted, c.Own, u.Input, u.Cached, u.Written, u.AudioInput, u.Output, u.Reasoning, u.AudioOutput, u.Searches)
	row = append(s.text(row, price), int64(c.Cost), int64(charged))
	s.rows, s.last, s.values = append(s.rows, row), row, s.values[width:]
	return nil
}

func (s *sheet) text(row []any, text string) []any {
	if before := s.last[len(row)]; before == text {
		return append(row, before)
	}
	return append(row, text)
}

func (s *sheet) price(of live.Rates) (string, error) {
	price, ok := s.prices[of]
	if !ok {
		text, err := json.Marshal(of)
		if err != nil {
			return "", err
		}
		price = string(text)
		s.prices[of] = price
	}
	return price, nil
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
