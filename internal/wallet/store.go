package wallet

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/audit"
	"sovereign/internal/clock"
	"sovereign/internal/db"
	"sovereign/internal/fault"
	"sovereign/internal/feed"
	"sovereign/internal/funds"
	"sovereign/internal/id"
	"sovereign/internal/money"
	"sovereign/internal/tenant"
)

// A Store keeps the ledger.
type Store struct {
	db    *db.DB
	feed  *feed.Feed
	funds *funds.Funds
}

// NewStore keeps the ledger in d. What it adds to a wallet is in f when it has answered.
func NewStore(d *db.DB, changes *feed.Feed, f *funds.Funds) *Store {
	return &Store{db: d, feed: changes, funds: f}
}

// A credit is how much came into a wallet in all, for the audit.
type credit struct {
	Credited money.Nano `json:"credited_usd"`
}

// TopUp adds money to a workspace's wallet, and audits what came in, before and after. When it returns, the money can be
// spent.
func (s *Store) TopUp(ctx context.Context, ws tenant.ID, by tenant.Actor, amount money.Nano, memo string) (funds.Balance, error) {
	if err := checkTopUp(amount); err != nil {
		return funds.Balance{}, err
	}
	err := s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := credited(ctx, tx.In(ws))
		if err != nil {
			return err
		}
		if err := post(ctx, tx, ws, id.New("txn"), kindTopUp, memo, []line{{accountWallet, amount}, {accountFunding, -amount}}); err != nil {
			return err
		}
		tx.Touch(changedWallet, ws, "")
		return audit.Record(ctx, tx, ws, by, "wallet.topup", string(ws), credit{before}, credit{before + amount})
	})
	if err != nil {
		return funds.Balance{}, err
	}
	after := s.funds.Balance(ws)
	if db.Bound(ctx) { // memory hears of it when the outer transaction has committed
		after.Balance += amount
	}
	return after, nil
}

// credited is what came into a wallet in all.
func credited(ctx context.Context, s db.Scoped) (money.Nano, error) {
	funding, err := balance(ctx, s, accountFunding)
	return -funding, err
}

// post writes a transfer whose lines sum to zero, and moves the balances with it.
func post(ctx context.Context, tx *db.Tx, ws tenant.ID, transfer, kind, memo string, lines []line) error {
	var sum money.Nano
	now := clock.Now()
	for i, l := range lines {
		sum += l.amount
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO ledger_entries (workspace_id, transfer_id, line, account, amount, kind, memo, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, transfer, i, l.account, l.amount, kind, memo, now); err != nil {
			return fmt.Errorf("post %s: %w", kind, err)
		}
		total, err := balance(ctx, tx.In(ws), l.account)
		if err != nil {
			return err
		}
		next, fits := total.Add(l.amount)
		if !fits {
			return fault.Conflict("the balance would be more than can be counted")
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO ledger_balances (workspace_id, account, amount) VALUES ($1, $2, $3)
			ON CONFLICT (workspace_id, account) DO UPDATE SET amount = excluded.amount`, l.account, next); err != nil {
			return fmt.Errorf("post %s: %w", kind, err)
		}
	}
	if sum != 0 {
		return fmt.Errorf("transfer %s sums to %s", kind, sum)
	}
	return nil
}

func balance(ctx context.Context, s db.Scoped, account string) (money.Nano, error) {
	amount, err := db.Maybe[money.Nano](ctx, s, `SELECT amount FROM ledger_balances WHERE workspace_id = $1 AND account = $2`, account)
	if err != nil {
		return 0, fmt.Errorf("read balance: %w", err)
	}
	if amount == nil {
		return 0, nil
	}
	return *amount, nil
}

// Show is a workspace's money now, with what running requests hold of it.
func (s *Store) Show(ws tenant.ID) funds.Balance { return s.funds.Balance(ws) }

// Funded reports whether money ever came into the wallet.
func (s *Store) Funded(ctx context.Context, ws tenant.ID) (bool, error) {
	amount, err := credited(ctx, s.db.In(ws))
	return amount > 0, err
}

// Used reports whether a request of the workspace was ever charged.
func (s *Store) Used(ctx context.Context, ws tenant.ID) (bool, error) {
	if s.funds.Balance(ws).Spent > 0 {
		return true, nil
	}
	row, err := db.Maybe[int64](ctx, s.db.In(ws), `SELECT 1 FROM usage_rows WHERE workspace_id = $1 LIMIT 1`)
	return row != nil, err
}

// A UsageRow is what one request used and cost.
type UsageRow struct {
	RequestID string         `json:"request_id"`
	At        clock.Time     `json:"at"`
	KeyID     tenant.KeyID   `json:"key_id"`
	Route     string         `json:"endpoint"`
	Model     string         `json:"model" doc:"That answered"`
	Requested string         `json:"requested_model" doc:"As the caller named it"`
	Alias     string         `json:"alias,omitempty"`
	Provider  string         `json:"provider"`
	Outcome   string         `json:"outcome"`
	Counted   bool           `json:"counted" doc:"By us: the provider reported no usage"`
	Input     int64          `json:"input_tokens"`
	Cached    int64          `json:"cached_input_tokens"`
	Written   int64          `json:"written_input_tokens" doc:"Into the provider's cache"`
	AudioIn   int64          `json:"audio_input_tokens" db:"audio_input"`
	Output    int64          `json:"output_tokens"`
	Reasoning int64          `json:"reasoning_tokens"`
	AudioOut  int64          `json:"audio_output_tokens" db:"audio_output"`
	Searches  int64          `json:"searches"`
	OwnKey    bool           `json:"own_key" doc:"It ran with the workspace's own key at the provider"`
	Price     string         `json:"-"`
	Prices    jsontext.Value `json:"price" db:"-" doc:"Of the model on that day"`
	Cost      money.Nano     `json:"cost_usd"`
	Charged   money.Nano     `json:"charged_usd" doc:"To the wallet; what is missing to the cost is the operator's overage"`
}

// Usage lists what a workspace's requests used and cost, newest first.
func (s *Store) Usage(ctx context.Context, ws tenant.ID, limit, offset int) ([]UsageRow, error) {
	rows, err := db.Query[UsageRow](ctx, s.db.In(ws), `
		SELECT request_id, at, key_id, route, model, requested, alias, provider, outcome, counted, input, cached, written, audio_input, output,
			reasoning, audio_output, searches, own_key, price, cost, charged
		FROM usage_rows WHERE workspace_id = $1 ORDER BY at DESC, request_id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read the usage: %w", err)
	}
	for i := range rows {
		rows[i].Prices = jsontext.Value(rows[i].Price)
	}
	return rows, nil
}
