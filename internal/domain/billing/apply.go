package billing

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// An outcome is what became of an event.
type outcome string

// The outcomes.
const (
	applied    outcome = "applied"
	unchanged  outcome = "unchanged"  // it was told before, or says nothing new
	unknown    outcome = "unknown"    // it is about nothing of this server's
	mismatched outcome = "mismatched" // it names a top-up, and does not fit it
)

// apply does what an event asks for, in one transaction with the ledger's transfers. Repeating it, in whatever order
// with others, changes nothing more.
func (s *Store) apply(ctx context.Context, asked change) (done outcome, err error) {
	release := func() {}
	defer func() { release() }()
	err = s.feed.Change(ctx, func(tx *db.Tx) (err error) {
		release() // of an attempt that was rolled back
		release, done = func() {}, unknown
		take := func(r *record) (err error) {
			release, err = s.reconcile(ctx, tx, r)
			return err
		}
		switch {
		case asked.session != nil:
			done, err = s.applySession(ctx, tx, asked.session, asked.to, take)
		case asked.back != nil:
			done, err = s.applyReversal(ctx, tx, asked.back, take)
		}
		return err
	})
	return done, err
}

// applySession moves the top-up of a session.
func (s *Store) applySession(
	ctx context.Context, tx *db.Tx, of *paidSession, to State, reconcile func(*record) error,
) (outcome, error) {
	r, err := find(ctx, tx.Across("an event names a top-up, not its workspace"), `id = $1`, of.Reference)
	switch {
	case err != nil || r == nil:
		return unknown, err
	case r.SessionID == "":
		return unknown, fault.Conflict("the page of %s is not stored yet: tell it again", r.ID)
	case !of.fits(r, to):
		return mismatched, nil
	case !r.State.may(to):
		return unchanged, nil
	}
	r.PaymentIntent = of.PaymentIntent
	if to != Paid {
		return applied, s.move(ctx, tx, r, to)
	}
	ws := tenant.ID(r.WorkspaceID)
	if r.TransferID, err = s.wallets.Fund(ctx, tx, ws, stripe, r.Amount, "card payment "+r.ID); err != nil {
		return applied, err
	}
	r.Failure = ""
	if err := s.move(ctx, tx, r, Paid); err != nil {
		return applied, err
	}
	return applied, reconcile(r)
}

// fits reports whether a session is the one that was made for a top-up, and what was paid is what was asked for.
func (p *paidSession) fits(r *record, to State) bool {
	if p.ID != r.SessionID {
		return false
	}
	if to == Failed || to == Expired {
		return true
	}
	return p.Amount == cents(r.Amount) && isDollars(p.Currency)
}

// applyReversal stores what was refunded or disputed of a payment, and takes it back if the payment was credited. If it
// was not yet, that is done when it is.
func (s *Store) applyReversal(
	ctx context.Context, tx *db.Tx, back *reversal, reconcile func(*record) error,
) (outcome, error) {
	changed, err := saveReversal(ctx, tx.In(tenant.Server), back)
	if err != nil {
		return unknown, err
	}
	r, err := find(ctx, tx.Across("an event names a payment, not its workspace"), `payment_intent = $1`, back.intent)
	switch {
	case err != nil || r == nil:
		return unknown, err
	case !changed:
		return unchanged, nil
	case r.State != Paid:
		return applied, nil
	}
	return applied, reconcile(r)
}

// reconcile makes what was taken back of a paid top-up equal to what its reversals say.
func (s *Store) reconcile(ctx context.Context, tx *db.Tx, r *record) (release func(), err error) {
	release = func() {}
	all, err := db.Query[amount](ctx, tx.In(tenant.Server), `
		SELECT kind, amount FROM payment_reversals WHERE workspace_id = $1 AND payment_intent = $2`, r.PaymentIntent)
	if err != nil {
		return release, fmt.Errorf("read the reversals of %s: %w", r.ID, err)
	}
	ws, want := tenant.ID(r.WorkspaceID), reversed(r.Amount, all)
	switch more := want - r.Taken; {
	case more > 0:
		release, err = s.wallets.TakeBack(ctx, tx, ws, stripe, r.ID, "refunded or disputed "+r.ID, more)
	case more < 0:
		err = s.wallets.GiveBack(ctx, tx, ws, stripe, r.ID, "refund failed or dispute won "+r.ID, -more)
	default:
		return release, nil
	}
	if err != nil {
		return release, err
	}
	before := audited{r.State, r.Amount, r.Taken}
	r.Taken = want
	return release, s.save(ctx, tx, ws, r, before)
}

// saveReversal stores a reversal, and reports whether it says something new.
func saveReversal(ctx context.Context, in db.Scoped, back *reversal) (bool, error) {
	type row struct {
		amount
		Final bool
	}
	was, err := db.Maybe[row](ctx, in, `
		SELECT kind, amount, final FROM payment_reversals
		WHERE workspace_id = $1 AND payment_intent = $2 AND source = $3`, back.intent, back.source)
	if err != nil {
		return false, fmt.Errorf("read a reversal: %w", err)
	}
	is := row{amount{back.kind, back.amount}, back.final}
	if was != nil {
		if was.Final && !is.Final || back.grows && was.Amount > is.Amount {
			is = *was
		}
		if is == *was {
			return false, nil
		}
	}
	_, err = db.Exec(ctx, in, `
		INSERT INTO payment_reversals (workspace_id, payment_intent, source, kind, amount, final, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (workspace_id, payment_intent, source) DO UPDATE SET kind = excluded.kind, amount = excluded.amount,
			final = excluded.final, updated_at = excluded.updated_at`,
		back.intent, back.source, is.Kind, is.Amount, is.Final, clock.Now())
	if err != nil {
		return false, fmt.Errorf("store a reversal: %w", err)
	}
	return true, nil
}
