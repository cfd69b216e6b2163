package wallet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/db"
)

// changedHold is the kind of change under which the feed announces a named hold that was opened or has ended.
const changedHold = "hold"

// Holds opens and ends named holds: money of a wallet that is set aside for a thing, such as a reward session, which
// many requests spend at once. A domain calls it in the transaction that creates or ends the thing.
//
// Memory and rows agree, whichever process or connection dies when: money is reserved in memory before the row commits,
// and becomes free again when the row is known to be missing or to have ended. A start restores what is open from the
// rows.
type Holds struct {
	db     *db.DB
	funds  *funds.Funds
	log    *slog.Logger
	escrow *Escrow                        // nil on SQLite
	onEnd  func(*db.Tx, func(db.Outcome)) // (*db.Tx).OnEnd, except in tests

	mu      sync.Mutex
	opening map[payer]bool // reserved, and their transactions have not ended; true when they are in doubt
	wake    chan struct{}  // wakes Run: a transaction is in doubt
}

// A payer is a named hold or, when hold is empty, a wallet.
type payer struct {
	ws   tenant.ID
	hold string
}

func newHolds(d *db.DB, f *funds.Funds, log *slog.Logger) *Holds {
	return &Holds{
		db: d, funds: f, log: log, onEnd: (*db.Tx).OnEnd, opening: map[payer]bool{}, wake: make(chan struct{}, 1),
	}
}

// Open sets an amount of the wallet aside as a hold of a kind, such as "reward". It can be spent when the transaction
// has committed; if it is rolled back, the money is free again. A wallet that cannot cover the amount is refused with
// 402. The id must be new: it is that of the thing.
func (h *Holds) Open(ctx context.Context, tx *db.Tx, ws tenant.ID, id, kind string, amount money.Nano) error {
	if amount <= 0 {
		return fault.Invalid("amount", "must be above 0")
	}
	if h.escrow != nil {
		return h.openShared(ctx, tx, ws, id, kind, amount)
	}
	key := payer{ws, id}
	if !h.begin(key) {
		return fault.Conflict("there is a hold of %q already", id)
	}
	free, ok := h.funds.Reserve(ws, id, amount)
	if !ok {
		h.forget(key)
		if _, known := h.funds.SpentOf(ws, id); known {
			return fault.Conflict("there is a hold of %q already", id)
		}
		return fault.InsufficientBalance.New("the wallet has $%s free, and $%s are to be set aside", free, amount)
	}
	h.onEnd(tx, func(o db.Outcome) { h.opened(key, o) })
	if err := insertHold(ctx, tx.In(ws), id, kind, amount); err != nil {
		h.opened(key, db.RolledBack) // also if the caller commits all the same
		return err
	}
	tx.Touch(changedHold, ws, id)
	return nil
}

// openShared opens a hold in a wallet that is shared with other servers. Money that they, or this one, have taken and
// do not use is gathered while the transaction is rolled back; then it runs again.
func (h *Holds) openShared(ctx context.Context, tx *db.Tx, ws tenant.ID, id, kind string, amount money.Nano) error {
	there, err := findHold(ctx, tx.In(ws), id)
	if err != nil {
		return err
	}
	if there != nil {
		return fault.Conflict("there is a hold of %q already", id)
	}
	p := payer{ws: ws}
	found, err := readPot(ctx, tx.In(ws), p, h.escrow.node)
	if err != nil {
		return err
	}
	if found.available() < amount {
		return &lacking{h.escrow, p, amount, fault.InsufficientBalance.New(
			"the wallet has $%s free, and $%s are to be set aside", max(0, found.available()), amount)}
	}
	if err := insertHold(ctx, tx.In(ws), id, kind, amount); err != nil {
		return err
	}
	tx.Touch(changedHold, ws, id)
	return nil
}

// lacking reports that a transaction lacks money that may be in slices. It implements db.Again.
type lacking struct {
	escrow *Escrow
	payer  payer
	amount money.Nano
	error  // the refusal, if nothing can be gathered
}

func (l *lacking) Unwrap() error { return l.error }

// Again gathers the money.
func (l *lacking) Again(ctx context.Context) error {
	err := l.escrow.Gather(ctx, l.payer, l.amount)
	if short := (*funds.Short)(nil); errors.As(err, &short) {
		return fault.InsufficientBalance.New(
			"the wallet has $%s free, and $%s are to be set aside", short.Free, l.amount,
		)
	}
	return err
}

// begin notes that a hold is being opened, unless it is already.
func (h *Holds) begin(key payer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.opening[key]; there {
		return false
	}
	h.opening[key] = false
	return true
}

func (h *Holds) forget(key payer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.opening, key)
}

// isOpening reports whether it is not known yet whether the row of a reserved hold has committed.
func (h *Holds) isOpening(key payer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, opening := h.opening[key]
	return opening
}

// opened is called with what became of the transaction that opens a hold. A second call is a no-op.
func (h *Holds) opened(key payer, o db.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, opening := h.opening[key]; !opening {
		return
	}
	if o == db.InDoubt {
		h.opening[key] = true
		select {
		case h.wake <- struct{}{}:
		default: // Run is already awake
		}
		return
	}
	delete(h.opening, key)
	if o == db.RolledBack {
		h.funds.End(key.ws, key.hold)
	}
}

// End ends a hold. When the transaction has committed and the feed has published it, what is free in the hold is free
// in the wallet, and what its running requests hold follows as they end. Ending a hold again is a no-op.
func (h *Holds) End(ctx context.Context, tx *db.Tx, ws tenant.ID, id string) error {
	ended, err := endHold(ctx, tx.In(ws), id)
	if err == nil && ended {
		tx.Touch(changedHold, ws, id)
	}
	return err
}

// Spent returns what was spent from a hold: the ledger's figure, and what is settled but not yet posted. It never
// falls, and is never more than the hold's amount.
func (h *Holds) Spent(ctx context.Context, ws tenant.ID, id string) (money.Nano, error) {
	if h.escrow != nil {
		defer whileNothingIsPosted(ctx, h.funds)()
	} else if spent, known := h.funds.SpentOf(ws, id); known {
		return spent, nil
	}
	row, err := findHold(ctx, h.db.In(ws), id)
	if err == nil && row == nil {
		err = fault.NotFound("hold", id)
	}
	if err != nil {
		return 0, err
	}
	return row.Spent + h.unposted(ws, id), nil
}

// unposted returns what this server has settled of a hold of a shared wallet and not posted.
func (h *Holds) unposted(ws tenant.ID, id string) money.Nano {
	if h.escrow == nil {
		return 0
	}
	return h.funds.Unposted(funds.Payer{Workspace: ws, Hold: id})
}

// Left returns what is free in a hold now: 0 when it has ended. It may miss what other servers have, unless that makes
// it less than enough.
func (h *Holds) Left(ctx context.Context, ws tenant.ID, id string, enough money.Nano) (money.Nano, error) {
	if h.escrow == nil {
		return h.funds.Left(ws, id), nil
	}
	p := payer{ws, id}
	for gathered := false; ; gathered = true {
		found, err := readPot(ctx, h.db.In(ws), p, h.escrow.node)
		if err != nil || !found.Open {
			return 0, err
		}
		mine := h.funds.Look(p.funds())
		left := found.available() + max(0, mine.Free) + mine.Idle
		if left >= enough || found.Elsewhere == 0 || gathered {
			return left, nil
		}
		if db.Bound(ctx) { // others take transactions to give back
			if h.escrow.gathered(p) {
				return left, nil
			}
			return 0, &spread{h.escrow, p, enough}
		}
		if err := h.escrow.Gather(ctx, p, enough); err != nil && !errors.As(err, new(*funds.Short)) {
			return 0, err
		}
	}
}

// An OpenHold is a hold that has not ended, as an operator sees it.
type OpenHold struct {
	ID     string     `json:"id" doc:"That of what it is for, such as rs_…"`
	Kind   string     `json:"kind"`
	Amount money.Nano `json:"amount_usd"`
	Spent  money.Nano `json:"spent_usd"`
	Left   money.Nano `json:"left_usd" db:"-" doc:"Not spent; what its running requests hold is a part of it"`
}

// List returns the open holds of a workspace, the oldest first.
func (h *Holds) List(ctx context.Context, ws tenant.ID) ([]OpenHold, error) {
	if h.escrow != nil {
		defer whileNothingIsPosted(ctx, h.funds)()
	}
	all, err := listHolds(ctx, h.db.In(ws))
	for i := range all {
		if h.escrow != nil {
			all[i].Spent += h.unposted(ws, all[i].ID)
		} else if spent, known := h.funds.SpentOf(ws, all[i].ID); known {
			all[i].Spent = spent
		}
		all[i].Left = all[i].Amount - all[i].Spent
	}
	return all, err
}

// errProbe rolls a probe back.
var errProbe = errors.New("the row was a probe")

// Resolve finds out whether the holds in doubt were opened, and frees the money of those that were not. It probes: it
// inserts the same row and rolls it back. An insertion waits for a transaction that has inserted the row and not ended,
// so it fails if that one has committed, and succeeds only when it never will.
func (h *Holds) Resolve(ctx context.Context) error {
	var failed error
	for _, key := range h.inDoubt() {
		_, err := h.db.Tx(ctx, func(tx *db.Tx) error {
			if err := insertHold(ctx, tx.In(key.ws), key.hold, "probe", 1); err != nil {
				return err
			}
			return errProbe
		})
		switch {
		case db.Duplicate(err):
			h.opened(key, db.Committed)
		case errors.Is(err, errProbe):
			h.opened(key, db.RolledBack)
		default:
			failed = errors.Join(failed, fmt.Errorf("resolve the hold %s: %w", key.hold, err))
		}
	}
	return failed
}

func (h *Holds) inDoubt() (all []payer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, doubt := range h.opening {
		if doubt {
			all = append(all, key)
		}
	}
	return all
}

const (
	// resolveEvery is the interval between two attempts to resolve holds in doubt; resolveTimeout bounds one.
	resolveEvery   = time.Second
	resolveTimeout = 5 * time.Second
)

// Run resolves holds in doubt until ctx ends. It sleeps while there are none.
func (h *Holds) Run(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-again:
		}
		bounded, cancel := context.WithTimeout(ctx, resolveTimeout)
		err := h.Resolve(bounded)
		cancel()
		if again = nil; err != nil {
			again = time.After(resolveEvery)
			h.log.Warn("it is not known whether a hold was opened; its money stays set aside", "err", err)
		}
	}
}
