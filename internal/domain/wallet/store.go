package wallet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/text/redact"
)

// A Store reads and changes the ledger.
type Store struct {
	db    *db.DB
	feed  *feed.Feed
	funds *funds.Funds

	// Low returns the free money below which a wallet is low; 0 for never. It is set before the store serves.
	Low func(ctx context.Context, ws tenant.ID) (money.Nano, error)
}

// NewStore returns a store of the ledger in d. What it adds to a wallet is in f when the call returns.
func NewStore(d *db.DB, changes *feed.Feed, f *funds.Funds) *Store {
	return &Store{db: d, feed: changes, funds: f}
}

// A credit is how much came into a wallet in all, as the audit log shows it.
type credit struct {
	Credited money.Nano `json:"credited_usd"`
}

// TopUp adds money to a workspace's wallet and audits the amounts credited before and after. When it returns, the
// money can be spent.
func (s *Store) TopUp(
	ctx context.Context, ws tenant.ID, by tenant.Actor, amount money.Nano, memo string,
) (funds.Balance, error) {
	if err := checkTopUp(amount); err != nil {
		return funds.Balance{}, err
	}
	var before, now money.Nano
	err := s.feed.Change(ctx, func(tx *db.Tx) (err error) {
		before, now, err = fund(ctx, tx, ws, id.New("txn"), redact.String(memo), amount)
		if err != nil {
			return err
		}
		tx.Touch(changedWallet, ws, "")
		return audit.Record(ctx, tx, ws, by, "wallet.topup", string(ws), credit{before}, credit{now})
	})
	if err != nil {
		return funds.Balance{}, err
	}
	after, err := s.Show(ctx, ws)
	if err != nil {
		return funds.Balance{}, err
	}
	if db.Bound(ctx) && s.escrow() == nil { // the feed updates memory when the outer transaction has committed
		after.Balance += now - before
	}
	return after, nil
}

// fund posts a top-up, pays the debts of the wallet from it, and returns what was credited before and after.
func fund(
	ctx context.Context, tx *db.Tx, ws tenant.ID, transferID, memo string, amount money.Nano,
) (before, after money.Nano, err error) {
	held, err := balances(ctx, tx.Across("the statement names the workspace"), []tenant.ID{ws})
	if err != nil {
		return 0, 0, err
	}
	before = -held[accountKey{ws, accountFunding}]
	t := transfer{
		ws: ws, id: transferID, kind: kindTopUp, memo: memo,
		lines: []line{{accountWallet, amount}, {accountFunding, -amount}},
	}
	if err := post(ctx, tx, []transfer{t}, held); err != nil {
		return 0, 0, err
	}
	paid, err := payDebts(ctx, tx, ws, amount)
	return before, before + amount - paid, err
}

// credited returns what came into a wallet in all.
func credited(ctx context.Context, s db.Scoped) (money.Nano, error) {
	funding, err := balance(ctx, s, accountFunding)
	return -funding, err
}

// A transfer moves money between the accounts of a workspace. Its lines sum to zero.
type transfer struct {
	ws       tenant.ID
	id, kind string
	memo     string
	lines    []line
	usage    []chain.Hash // of the usage rows that it sums up
}

// An accountKey names one account of a workspace.
type accountKey struct {
	ws      tenant.ID
	account string
}

// entryColumns are all columns of the ledger's entries.
var entryColumns = []string{"workspace_id", "transfer_id", "line", "account", "amount", "kind", "memo", "at"}

// entryLayout is how the ledger's entries are hashed.
var entryLayout = chain.NewLayout("ledger_entries", entryColumns)

// post inserts transfers, at most one per workspace, and links them to the ledger's chain. It updates the balances,
// whose present values are passed in, and the sums of the day. No transfer has two lines of one account.
func post(ctx context.Context, tx *db.Tx, transfers []transfer, balances map[accountKey]money.Nano) error {
	now := clock.Now()
	var entries, after, days [][]any
	links := make([]chain.Link, len(transfers))
	for n, t := range transfers {
		var sum money.Nano
		hashes := t.usage
		for i, l := range t.lines {
			sum += l.amount
			entry := []any{string(t.ws), t.id, int64(i), l.account, int64(l.amount), t.kind, t.memo, int64(now)}
			hash, err := entryLayout.Hash(entry)
			if err != nil {
				return err
			}
			entries, hashes = append(entries, entry), append(hashes, hash)
			at := accountKey{t.ws, l.account}
			next, fits := balances[at].Add(l.amount)
			if !fits {
				return fault.Conflict("the balance would be more than can be counted")
			}
			after = append(after, []any{string(at.ws), at.account, int64(next)})
			days = append(days, []any{string(t.ws), dayOf(now), t.kind, l.account, int64(l.amount)})
		}
		if sum != 0 {
			return fmt.Errorf("transfer %s sums to %s", t.kind, sum)
		}
		links[n] = chain.NewLink(t.id, hashes...)
	}
	across := tx.Across("the rows name their workspaces")
	err := db.Insert(ctx, across, "ledger_entries", entryColumns, entries)
	if err == nil {
		err = chain.Add(ctx, tx, chain.Ledger, links...)
	}
	if err == nil {
		err = db.Upsert(ctx, across, "ledger_balances", []string{"workspace_id", "account", "amount"}, 2, after)
	}
	if err == nil {
		err = db.Merge(ctx, across, "ledger_days", dayColumns, 4, "amount = ledger_days.amount + excluded.amount", days)
	}
	if err != nil {
		return fmt.Errorf("post: %w", err)
	}
	return nil
}

// balances reads the balances of all accounts of some workspaces.
func balances(ctx context.Context, s db.Scoped, of []tenant.ID) (map[accountKey]money.Nano, error) {
	type row struct {
		WorkspaceID tenant.ID
		Account     string
		Amount      money.Nano
	}
	all := make(map[accountKey]money.Nano, 3*len(of))
	for some := range slices.Chunk(of, balanceBatch) {
		args, marks := parameters(some, 1)
		rows, err := db.Query[row](ctx, s, `
			SELECT workspace_id, account, amount FROM ledger_balances
			WHERE workspace_id IN (`+marks+`)`, args...)
		if err != nil {
			return nil, fmt.Errorf("read balances: %w", err)
		}
		for _, r := range rows {
			all[accountKey{r.WorkspaceID, r.Account}] = r.Amount
		}
	}
	return all, nil
}

// balanceBatch bounds the parameters of one statement: SQLite searches the earlier ones for each numbered parameter.
const balanceBatch = 100

func balance(ctx context.Context, s db.Scoped, account string) (money.Nano, error) {
	amount, err := db.Maybe[money.Nano](ctx, s,
		`SELECT amount FROM ledger_balances WHERE workspace_id = $1 AND account = $2`, account)
	if err != nil {
		return 0, fmt.Errorf("read balance: %w", err)
	}
	if amount == nil {
		return 0, nil
	}
	return *amount, nil
}

// readAccounts reads what every workspace was credited and has spent, and its open holds.
func readAccounts(ctx context.Context, d *db.DB) ([]funds.Account, error) {
	all, err := db.Query[funds.Account](ctx, d.Across("money is held for all workspaces"), `
		SELECT workspace_id AS workspace,
			CAST(-SUM(CASE WHEN account = 'funding' THEN amount ELSE 0 END) AS BIGINT) AS credited,
			CAST(-SUM(amount) AS BIGINT) AS spent
		FROM ledger_balances WHERE account IN ('funding', 'wallet') GROUP BY workspace_id`)
	if err != nil {
		return nil, fmt.Errorf("read the wallets: %w", err)
	}
	open, err := readOpenHolds(ctx, d)
	for i := range all { // a hold is of a wallet with money
		all[i].Open = open[all[i].Workspace]
	}
	return all, err
}

// readRecent reads what every workspace has paid since a time, and what it was excused from, by the hour.
func readRecent(ctx context.Context, d *db.DB, since clock.Time) (map[tenant.ID][]funds.Recent, error) {
	type row struct {
		Workspace tenant.ID
		funds.Recent
	}
	rows, err := db.Query[row](ctx, d.Across("money is held for all workspaces"), `
		SELECT b.workspace_id AS workspace, MAX(u.at) AS at, CAST(SUM(u.charged) AS BIGINT) AS paid,
			CAST(SUM(CASE WHEN u.outcome = $2 AND u.charged = 0 THEN u.cost ELSE 0 END) AS BIGINT) AS excused
		FROM ledger_balances b JOIN usage_rows u ON u.workspace_id = b.workspace_id AND u.at >= $1
		WHERE b.account = 'wallet' GROUP BY b.workspace_id, u.at / 3600000000`, since, string(outcome.Abandoned))
	if err != nil {
		return nil, fmt.Errorf("read the usage of the last day: %w", err)
	}
	all := map[tenant.ID][]funds.Recent{}
	for _, r := range rows {
		all[r.Workspace] = append(all[r.Workspace], r.Recent)
	}
	return all, nil
}

// cursorScope is why cursors are read across workspaces.
const cursorScope = "a journal is the server's"

// readCursor returns the position up to which a journal is posted, or the zero position when the journal is unknown.
func readCursor(ctx context.Context, d *db.DB, journalID string) (journal.Position, error) {
	type row struct{ Segment, Position int64 }
	at, err := db.Maybe[row](ctx, d.Across(cursorScope), `
		SELECT segment, position FROM journal_cursors WHERE journal_id = $1`, journalID)
	if err != nil || at == nil {
		return journal.Position{}, err
	}
	return journal.Position{Segment: at.Segment, Offset: at.Position}, nil
}

// insertCursor registers a journal.
func insertCursor(ctx context.Context, tx *db.Tx, journalID string, at journal.Position) error {
	_, err := db.Exec(ctx, tx.Across(cursorScope), `
		INSERT INTO journal_cursors (journal_id, segment, position, at) VALUES ($1, $2, $3, $4)`,
		journalID, at.Segment, at.Offset, clock.Now())
	return err
}

// advanceCursor moves a journal's cursor, or fails with errCursorMoved when it is not where this process left it.
func advanceCursor(ctx context.Context, tx *db.Tx, journalID string, from, to journal.Position) error {
	moved, err := db.Exec(ctx, tx.Across(cursorScope), `
		UPDATE journal_cursors SET segment = $4, position = $5, at = $6
		WHERE journal_id = $1 AND segment = $2 AND position = $3`,
		journalID, from.Segment, from.Offset, to.Segment, to.Offset, clock.Now())
	if err == nil && moved != 1 {
		err = errCursorMoved
	}
	return err
}

// awaitTurn waits until no other server posts that takes turns. It must come first in a transaction: what is read
// afterwards is what the others have committed. A server that is stopped meanwhile loses its turn with its transaction,
// which PostgreSQL ends when it is idle for too long.
func awaitTurn(ctx context.Context, tx *db.Tx) error {
	_, err := db.Exec(ctx, tx.Across("the ledger is of all workspaces"), `LOCK TABLE posting_turn IN EXCLUSIVE MODE`)
	if err != nil {
		return fmt.Errorf("await the turn to post: %w", err)
	}
	return nil
}

// whileNothingIsPosted waits until nothing is being posted, so that the ledger and what is not posted can be read
// together, and lets nothing be posted until release is called, or two seconds have passed. It waits only briefly, and
// not at all in a transaction, for which the posting may wait: then a figure may count what is just being posted twice.
func whileNothingIsPosted(ctx context.Context, f *funds.Funds) (release func()) {
	if db.Bound(ctx) {
		return func() {}
	}
	for range 100 {
		if f.Ledger.TryRLock() {
			unlock := sync.OnceFunc(f.Ledger.RUnlock)
			latest := time.AfterFunc(2*time.Second, unlock) // a database that does not answer must not hold up posting
			return func() { latest.Stop(); unlock() }
		}
		time.Sleep(2 * time.Millisecond)
	}
	return func() {}
}

// Show returns a workspace's money now, with what running requests hold of it. Where the wallet is shared, it has what
// the ledger has and what this server has not posted; what other servers have settled, or hold, counts when they post.
func (s *Store) Show(ctx context.Context, ws tenant.ID) (funds.Balance, error) {
	b, e := s.funds.Balance(ws), s.escrow()
	if e == nil {
		return b, nil
	}
	defer whileNothingIsPosted(ctx, s.funds)()
	p, err := readPot(ctx, s.db.In(ws), payer{ws: ws}, e.node)
	if err != nil {
		return b, err
	}
	type row struct{ Balance, Credited, Reserved money.Nano }
	is, err := db.One[row](ctx, s.db.In(ws), `
		SELECT COALESCE((SELECT amount FROM ledger_balances WHERE workspace_id = $1 AND account = 'wallet'), 0) AS balance,
			COALESCE((SELECT -amount FROM ledger_balances WHERE workspace_id = $1 AND account = 'funding'), 0) AS credited,
			CAST(COALESCE((SELECT SUM(amount - spent) FROM named_holds WHERE workspace_id = $1 AND ended_at = 0), 0) AS BIGINT)
				AS reserved`)
	if err != nil {
		return b, fmt.Errorf("read a wallet: %w", err)
	}
	held, unposted, named := s.funds.Shared(ws)
	b.Balance = is.Balance - unposted - named
	b.Spent = is.Credited - b.Balance
	b.Held = min(is.Reserved-named+held+p.Held, b.Balance)
	return b, nil
}

// Funded reports whether the wallet was ever topped up.
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
	KeyID     tenant.KeyID   `json:"key_id" doc:"The key that asked, or what of the product's own did, such as cal_…"`
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
	GPU       int64          `json:"gpu_seconds" db:"gpu_seconds"`
	OwnKey    bool           `json:"own_key" doc:"It ran with the workspace's own key at the provider"`
	Price     string         `json:"-"`
	Prices    jsontext.Value `json:"price" db:"-" doc:"Of the model on that day"`
	Cost      money.Nano     `json:"cost_usd"`
	Charged   money.Nano     `json:"charged_usd" doc:"To the wallet; what is missing to the cost is the operator's overage"`
	Hold      string         `json:"hold_id,omitempty" db:"hold_id" doc:"The named hold of the wallet that paid"`
}

// Usage lists what a workspace's requests used and cost, newest first.
func (s *Store) Usage(ctx context.Context, ws tenant.ID, limit, offset int) ([]UsageRow, error) {
	rows, err := db.Query[UsageRow](ctx, s.db.In(ws), `
		SELECT request_id, at, key_id, route, model, requested, alias, provider, outcome, counted, input, cached,
			written, audio_input, output, reasoning, audio_output, searches, own_key, price, cost, charged, hold_id,
			gpu_seconds
		FROM usage_rows WHERE workspace_id = $1 ORDER BY at DESC, request_id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read the usage: %w", err)
	}
	for i := range rows {
		rows[i].Prices = jsontext.Value(rows[i].Price)
	}
	return rows, nil
}
