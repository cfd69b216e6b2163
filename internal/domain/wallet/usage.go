package wallet

import (
	"context"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/live"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
)

// usageColumns are all columns of the table, in its order: SQLite then inserts a row without rearranging it.
var usageColumns = []string{
	"workspace_id", "at", "request_id", "transfer_id", "key_id", "route", "model", "requested", "alias", "provider",
	"outcome", "counted", "own_key",
	"input", "cached", "written", "audio_input", "output", "reasoning", "audio_output", "searches", "price", "cost",
	"charged", "hold_id", "gpu_seconds",
}

// usageLayout is how usage rows are hashed.
var usageLayout = chain.NewLayout("usage_rows", usageColumns)

// postUsage inserts the usage rows of a batch and, for each workspace, the transfer that they sum to. It adds them to
// the rows of their days, and what the named holds paid to what they have spent. It returns what the wallets and the
// holds paid.
func postUsage(
	ctx context.Context, tx *db.Tx, days *usage.Days, batch map[tenant.ID][]*journal.Charge, within *limits,
) (map[payer]money.Nano, error) {
	workspaces := slices.Sorted(maps.Keys(batch))
	across := tx.Across("the rows name their workspaces")
	held, err := balances(ctx, across, workspaces)
	if err != nil {
		return nil, err
	}
	reserved, err := readReserved(ctx, across, workspaces)
	if err != nil {
		return nil, err
	}
	paid := make(map[payer]money.Nano, len(batch))
	transfers := make([]transfer, 0, len(batch))
	rows, sums := newUsageBatch(batch), usage.NewBatch()
	for _, ws := range workspaces {
		has := available{ws: ws, wallet: held[accountKey{ws, accountWallet}], reserved: reserved[ws], within: within}
		if has.holds, err = readHolds(ctx, tx.In(ws), namedBy(batch[ws])); err != nil {
			return nil, err
		}
		each, charged, cost := has.pay(batch[ws])
		t := transfer{
			ws: ws, id: id.New("txn"), kind: kindUsage, lines: []line{{accountWallet, -charged}, {accountUsage, cost}},
		}
		if over := cost - charged; over > 0 {
			t.lines = append(t.lines, line{accountOverage, -over})
		}
		for i, c := range batch[ws] {
			if err := rows.add(&t, c, each[i]); err != nil {
				return nil, err
			}
			paid[payer{ws, c.Hold}] += each[i]
			sums.Add(c, each[i])
		}
		transfers = append(transfers, t)
	}
	if err := chargeHolds(ctx, tx, paid); err != nil {
		return nil, err
	}
	if err := db.Insert(ctx, across, "usage_rows", usageColumns, rows.rows); err != nil {
		return nil, err
	}
	if err := days.Write(ctx, tx, sums); err != nil {
		return nil, err
	}
	return paid, post(ctx, tx, transfers, held)
}

// A usageBatch builds the usage rows of a batch. Consecutive requests are similar: a value that equals the previous
// row's is shared with it, which saves an allocation.
type usageBatch struct {
	rows   [][]any
	values []any // backing array of the rows still to be added
	last   []any
	prices map[live.Rates]string // few models serve many requests
}

func newUsageBatch(batch map[tenant.ID][]*journal.Charge) *usageBatch {
	n, width := 0, len(usageColumns)
	for _, charges := range batch {
		n += len(charges)
	}
	return &usageBatch{
		rows: make([][]any, 0, n), values: make([]any, n*width), last: make([]any, width),
		prices: map[live.Rates]string{},
	}
}

// add appends the row of a request that was charged an amount by a transfer, and its hash to the transfer.
func (s *usageBatch) add(t *transfer, c *journal.Charge, charged money.Nano) error {
	price, err := s.price(c.Price)
	if err != nil {
		return err
	}
	u, width := &c.Usage, len(usageColumns)
	row := s.text(s.values[:0:width], string(t.ws))
	row = append(row, int64(c.At), c.Request)
	for _, text := range [...]string{
		t.id, string(c.Key), c.Route, c.Model, c.Requested, c.Alias, c.Provider, c.Outcome,
	} {
		row = s.text(row, text)
	}
	row = append(row, c.Counted, c.Own, u.Input, u.Cached, u.Written, u.AudioInput, u.Output, u.Reasoning, u.AudioOutput,
		u.Searches)
	row = append(s.text(row, price), int64(c.Cost), int64(charged))
	row = append(s.text(row, c.Hold), u.GPUSeconds)
	s.rows, s.last, s.values = append(s.rows, row), row, s.values[width:]
	hash, err := usageLayout.Hash(row)
	t.usage = append(t.usage, hash)
	return err
}

func (s *usageBatch) text(row []any, text string) []any {
	if before := s.last[len(row)]; before == text {
		return append(row, before)
	}
	return append(row, text)
}

func (s *usageBatch) price(of live.Rates) (string, error) {
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

// available is what the charges of a workspace can be paid from, according to the ledger.
type available struct {
	ws       tenant.ID
	wallet   money.Nano
	reserved money.Nano          // what the open holds have left of the wallet
	holds    map[string]*holdRow // that the charges name
	within   *limits             // where the wallet is shared with other servers; else nil
}

// pay returns what each request is charged, reduced to what its hold or the wallet can pay. The holds in memory have
// ensured that already.
func (a *available) pay(batch []*journal.Charge) (each []money.Nano, charged, cost money.Nano) {
	each = make([]money.Nano, len(batch))
	for i, c := range batch {
		each[i] = a.take(c.Hold, c.Charged)
		charged += each[i]
		cost += c.Cost
	}
	return each, charged, cost
}

// take takes an amount from a hold, or from the wallet without what is reserved, as far as it goes. A hold that the
// ledger does not have pays nothing.
func (a *available) take(hold string, amount money.Nano) money.Nano {
	h, free := a.holds[hold], a.wallet-a.reserved
	amount = min(amount, a.within.left(payer{a.ws, hold}))
	switch {
	case hold == "":
		amount = min(amount, free)
	case h == nil:
		amount = 0
	case h.EndedAt != 0:
		amount = min(amount, h.Amount-h.Spent, free)
	default:
		amount = min(amount, h.Amount-h.Spent, a.wallet)
	}
	amount = max(amount, 0)
	a.within.use(payer{a.ws, hold}, amount)
	a.wallet -= amount
	if h != nil {
		h.Spent += amount
		if h.EndedAt == 0 {
			a.reserved -= amount
		}
	}
	return amount
}

// namedBy returns the named holds of charges, each once.
func namedBy(batch []*journal.Charge) (ids []string) {
	for _, c := range batch {
		if c.Hold != "" {
			ids = append(ids, c.Hold)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// chargeHolds adds what named holds paid to what they have spent.
func chargeHolds(ctx context.Context, tx *db.Tx, paid map[payer]money.Nano) error {
	for who, amount := range paid {
		if who.hold == "" || amount == 0 {
			continue
		}
		if err := addSpent(ctx, tx.In(who.ws), who.hold, amount); err != nil {
			return err
		}
	}
	return nil
}
