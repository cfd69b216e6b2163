package billing

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/quota"
)

// A Store keeps top-ups, and credits what was paid.
type Store struct {
	db      *db.DB
	feed    *feed.Feed
	wallets *wallet.Store
}

// NewStore keeps top-ups in d, and credits them to wallets.
func NewStore(d *db.DB, changes *feed.Feed, wallets *wallet.Store) *Store {
	return &Store{db: d, feed: changes, wallets: wallets}
}

const columns = `workspace_id, id, 'topup' AS object, amount, currency, state, session_id, url, payment_intent,
	transfer_id, taken, failure, created_by, created_at, updated_at, paid_at`

// demo reports whether a workspace is a demo.
func demo(ctx context.Context, in db.Scoped) (bool, error) {
	is, err := db.One[bool](ctx, in, `SELECT demo FROM workspaces WHERE workspace_id = $1`)
	if err != nil {
		return false, fmt.Errorf("read whether it is a demo: %w", err)
	}
	return is, nil
}

// Create stores a top-up that nobody has paid yet. A demo takes none: its credit is simulated, and so are its models.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, amount money.Nano) (made Topup, err error) {
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		now, in := clock.Now(), tx.In(ws)
		if simulated, err := demo(ctx, in); err != nil {
			return err
		} else if simulated {
			return fault.Conflict("this workspace is a demo: its credit is simulated, and no money can be paid into it")
		}
		made = Topup{
			ID: id.New("topup"), Object: "topup", Amount: amount, Currency: Currency, State: Pending,
			CreatedBy: string(by.User), CreatedAt: now, UpdatedAt: now,
		}
		if _, err := db.Exec(ctx, in, `
			INSERT INTO topups (workspace_id, id, amount, currency, state, session_id, url, payment_intent, transfer_id,
				taken, failure, created_by, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, '', '', '', '', 0, '', $6, $7, $7)`,
			made.ID, amount, Currency, Pending, made.CreatedBy, now); err != nil {
			return fmt.Errorf("create a top-up: %w", err)
		}
		if err := quota.Check(ctx, in, quota.Topups, 1); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "topup.create", made.ID, nil, made)
	})
	return made, err
}

// open stores the page at which a top-up is paid. The first one stands.
func (s *Store) open(ctx context.Context, ws tenant.ID, topupID string, at session) (Topup, error) {
	if _, err := db.Exec(ctx, s.db.In(ws), `
		UPDATE topups SET session_id = $3, url = $4, updated_at = $5
		WHERE workspace_id = $1 AND id = $2 AND session_id = ''`, topupID, at.ID, at.URL, clock.Now()); err != nil {
		return Topup{}, fmt.Errorf("store the page of %s: %w", topupID, err)
	}
	return s.Get(ctx, ws, topupID)
}

// fail ends a top-up for which there is no page to pay at.
func (s *Store) fail(ctx context.Context, ws tenant.ID, topupID, why string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := find(ctx, tx.In(ws), `workspace_id = $1 AND id = $2`, topupID)
		if err != nil || r == nil || r.SessionID != "" || !r.State.may(Failed) {
			return err
		}
		r.Failure = why
		return s.move(ctx, tx, r, Failed)
	})
	return err
}

// Get returns a top-up.
func (s *Store) Get(ctx context.Context, ws tenant.ID, topupID string) (Topup, error) {
	r, err := find(ctx, s.db.In(ws), `workspace_id = $1 AND id = $2`, topupID)
	switch {
	case err != nil:
		return Topup{}, err
	case r == nil:
		return Topup{}, fault.NotFound("topup", topupID)
	}
	return r.shown(), nil
}

// List reads the top-ups of a workspace, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Topup, error) {
	rows, err := db.Query[record](ctx, s.db.In(ws), `SELECT `+columns+` FROM topups WHERE workspace_id = $1
		ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list top-ups: %w", err)
	}
	all := make([]Topup, len(rows))
	for i := range rows {
		all[i] = rows[i].shown()
	}
	return all, nil
}

// find returns the top-up that fits a condition, or nil.
func find(ctx context.Context, in db.Scoped, which string, args ...any) (*record, error) {
	r, err := db.Maybe[record](ctx, in, `SELECT `+columns+` FROM topups WHERE `+which, args...)
	if err != nil {
		return nil, fmt.Errorf("find a top-up: %w", err)
	}
	return r, nil
}

// stripe is the actor of what Stripe's events change.
var stripe = tenant.Actor{Kind: tenant.ActorOperator, User: "stripe"}

// An audited is a top-up in the audit log.
type audited struct {
	State  State      `json:"state"`
	Amount money.Nano `json:"amount_usd"`
	Taken  money.Nano `json:"taken_back_usd"`
}

// move changes the state of a top-up, and stores what else has changed of it.
func (s *Store) move(ctx context.Context, tx *db.Tx, r *record, to State) error {
	before := audited{r.State, r.Amount, r.Taken}
	if r.State != to && !r.State.may(to) {
		return fmt.Errorf("a top-up that is %s cannot become %s", r.State, to)
	}
	ws, now := tenant.ID(r.WorkspaceID), clock.Now()
	if r.State != to && to == Paid {
		r.PaidAt = &now
	}
	r.State = to
	return s.save(ctx, tx, ws, r, before)
}

// save stores a top-up that was changed.
func (s *Store) save(ctx context.Context, tx *db.Tx, ws tenant.ID, r *record, before audited) error {
	if _, err := db.Exec(ctx, tx.In(ws), `
		UPDATE topups SET state = $3, payment_intent = $4, transfer_id = $5, taken = $6, failure = $7, paid_at = $8,
			updated_at = $9
		WHERE workspace_id = $1 AND id = $2`,
		r.ID, r.State, r.PaymentIntent, r.TransferID, r.Taken, r.Failure, r.PaidAt, clock.Now()); err != nil {
		return fmt.Errorf("store top-up %s: %w", r.ID, err)
	}
	return audit.Record(ctx, tx, ws, stripe, "topup."+string(r.State), r.ID, before, audited{
		r.State, r.Amount, r.Taken,
	})
}

// Times after which what is left over is closed or deleted.
const (
	// pageLife is longer than a page of Stripe's lives, which is a day.
	pageLife = 48 * time.Hour
	// orphanLife is how long a reversal of a payment that is not ours is kept: its payment may still be told of.
	orphanLife = 180 * 24 * time.Hour
)

// Sweep expires top-ups whose page is gone, deletes reversals of other payments, and collects debts.
func (s *Store) Sweep(ctx context.Context) error {
	const why = "what is left over of all workspaces"
	now := clock.Now()
	old, err := db.Query[record](ctx, s.db.Across(why), `SELECT `+columns+` FROM topups
		WHERE state = 'pending' AND created_at < $1 ORDER BY created_at LIMIT 1000`, now.Add(-pageLife))
	if err != nil {
		return fmt.Errorf("find top-ups that nobody paid: %w", err)
	}
	for i := range old {
		if _, err := s.db.Tx(ctx, func(tx *db.Tx) error {
			ws := tenant.ID(old[i].WorkspaceID)
			r, err := find(ctx, tx.In(ws), `workspace_id = $1 AND id = $2`, old[i].ID)
			if err != nil || r == nil || r.State != Pending {
				return err
			}
			return s.move(ctx, tx, r, Expired)
		}); err != nil {
			return err
		}
	}
	if _, err := db.Exec(ctx, s.db.Across(why), `
		DELETE FROM payment_reversals WHERE updated_at < $1 AND NOT EXISTS (
			SELECT 1 FROM topups WHERE topups.payment_intent = payment_reversals.payment_intent
				AND topups.payment_intent <> '')`, now.Add(-orphanLife)); err != nil {
		return fmt.Errorf("delete reversals of other payments: %w", err)
	}
	return s.wallets.Collect(ctx)
}
