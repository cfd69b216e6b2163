package wallet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A debt is what was taken back of a payment and the wallet could not give. Its id is that of the payment.
type debt struct {
	ID           string
	Amount, Paid money.Nano
}

func (d *debt) open() money.Nano { return d.Amount - d.Paid }

// Fund adds a payment to a wallet, in a transaction of the payment's own. It pays the wallet's debts first, audits what
// was credited before and after, and returns the id of the transfer.
func (s *Store) Fund(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, amount money.Nano, memo string,
) (string, error) {
	transferID := id.New("txn")
	before, after, err := fund(ctx, tx, ws, transferID, memo, amount)
	if err != nil {
		return "", err
	}
	tx.Touch(changedWallet, ws, "")
	return transferID, audit.Record(ctx, tx, ws, by, "wallet.topup", string(ws), credit{before}, credit{after})
}

// TakeBack takes an amount out of a wallet that a payment brought into it: what is free now, and the rest becomes a
// debt of that id. Nothing that a request or a named hold has set aside is taken, so no wallet falls below zero.
//
// What is taken is held in memory. The caller calls release when the change is in force or was rolled back; repeating
// it is a no-op.
func (s *Store) TakeBack(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, debtID, memo string, amount money.Nano,
) (release func(), err error) {
	taken, release := s.hold(ws, amount)
	defer func() {
		if err != nil {
			release()
		}
	}()
	before, free, err := s.books(ctx, tx, ws)
	if err != nil {
		return release, err
	}
	if e := s.escrow(); e != nil && free < amount && !e.gathered(payer{ws: ws}) {
		return release, &spread{e, payer{ws: ws}, amount}
	}
	taken = max(0, min(taken, free))
	if err := post(ctx, tx, refund(ws, memo, taken), before); err != nil {
		return release, err
	}
	if err := addDebt(ctx, tx.In(ws), debtID, amount-taken); err != nil {
		return release, err
	}
	tx.Touch(changedWallet, ws, "")
	was := -before[accountKey{ws, accountFunding}]
	return release, audit.Record(ctx, tx, ws, by, "wallet.refund", string(ws), credit{was},
		reversal{credit{was - taken}, amount - taken})
}

// A reversal is a wallet after money was taken out of it, as the audit log shows it.
type reversal struct {
	credit
	Owed money.Nano `json:"owed_usd"`
}

// GiveBack undoes TakeBack for an amount: what is still owed of the debt is forgiven first, and the rest is credited.
func (s *Store) GiveBack(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, debtID, memo string, amount money.Nano,
) error {
	owed, err := findDebt(ctx, tx.In(ws), debtID)
	if err != nil {
		return err
	}
	forgiven := min(owed.open(), amount)
	if err := addDebt(ctx, tx.In(ws), debtID, -forgiven); err != nil {
		return err
	}
	before, _, err := s.books(ctx, tx, ws)
	if err != nil {
		return err
	}
	if err := post(ctx, tx, refund(ws, memo, forgiven-amount), before); err != nil {
		return err
	}
	tx.Touch(changedWallet, ws, "")
	was := -before[accountKey{ws, accountFunding}]
	return audit.Record(ctx, tx, ws, by, "wallet.refund", string(ws), credit{was}, credit{was + amount - forgiven})
}

// refund is the transfer that takes an amount out of a wallet, or none for 0.
func refund(ws tenant.ID, memo string, amount money.Nano) []transfer {
	if amount == 0 {
		return nil
	}
	return []transfer{{
		ws: ws, id: id.New("txn"), kind: kindRefund, memo: memo,
		lines: []line{{accountWallet, -amount}, {accountFunding, amount}},
	}}
}

// spread reports that less is available in the ledger than is to be taken out, and that some may be in slices. It
// implements db.Again.
type spread struct {
	escrow *Escrow
	from   payer
	amount money.Nano
}

func (s *spread) Error() string { return "money of " + string(s.from.ws) + " is spread over servers" }

// Again gathers what there is.
func (s *spread) Again(ctx context.Context) error { return s.escrow.gather(ctx, s.from, s.amount) }

// escrow returns what is taken of wallets that are shared with other servers, or nil.
func (s *Store) escrow() *Escrow {
	e, _ := s.funds.Source().(*Escrow)
	return e
}

// hold sets aside what is free of an amount. In a shared wallet, the transaction itself takes only what nobody has.
func (s *Store) hold(ws tenant.ID, amount money.Nano) (money.Nano, func()) {
	if s.escrow() != nil {
		return amount, func() {}
	}
	for {
		var hold funds.Hold
		var free money.Nano
		var ok bool
		if hold, free, ok = s.funds.Hold(ws, amount); ok {
			return amount, hold.Release
		}
		if amount = min(amount, free); amount <= 0 {
			return 0, func() {}
		}
	}
}

// books reads the balances of a workspace, and what is free of its wallet by the ledger.
func (s *Store) books(
	ctx context.Context, tx *db.Tx, ws tenant.ID,
) (all map[accountKey]money.Nano, free money.Nano, err error) {
	across := tx.Across("the statements name the workspace")
	if all, err = balances(ctx, across, []tenant.ID{ws}); err != nil {
		return nil, 0, err
	}
	reserved, err := readReserved(ctx, across, []tenant.ID{ws})
	if err != nil {
		return nil, 0, err
	}
	sliced, err := readSliced(ctx, across, []tenant.ID{ws})
	return all, all[accountKey{ws, accountWallet}] - reserved[ws] - sliced[ws], err
}

// payDebts pays the debts of a workspace from its wallet, the oldest first, with an amount that was just credited. It
// returns what they took.
func payDebts(ctx context.Context, tx *db.Tx, ws tenant.ID, amount money.Nano) (paid money.Nano, err error) {
	open, err := openDebts(ctx, tx.In(ws))
	if err != nil || len(open) == 0 {
		return 0, err
	}
	for _, d := range open {
		part := min(d.open(), amount-paid)
		if err := payDebt(ctx, tx.In(ws), d.ID, part); err != nil {
			return 0, err
		}
		paid += part
	}
	held, err := balances(ctx, tx.Across("the statement names the workspace"), []tenant.ID{ws})
	if err != nil {
		return 0, err
	}
	return paid, post(ctx, tx, refund(ws, "paid what was owed", paid), held)
}

// Owed returns the debt of a wallet.
func (s *Store) Owed(ctx context.Context, ws tenant.ID) (money.Nano, error) {
	owed, err := db.One[money.Nano](ctx, s.db.In(ws), `
		SELECT CAST(COALESCE(SUM(amount - paid), 0) AS BIGINT) FROM wallet_debts WHERE workspace_id = $1 AND paid < amount`)
	if err != nil {
		return 0, fmt.Errorf("read what is owed: %w", err)
	}
	return owed, nil
}

// Collect pays debts from what is free by now: money was set aside when it was taken back. Every debt is tried.
func (s *Store) Collect(ctx context.Context) error {
	all, err := db.Query[tenant.ID](ctx, s.db.Across("debts are collected for all workspaces"),
		`SELECT DISTINCT workspace_id FROM wallet_debts WHERE paid < amount`)
	if err != nil {
		return fmt.Errorf("find debts: %w", err)
	}
	var failed error
	for _, ws := range all {
		failed = errors.Join(failed, s.collect(ctx, ws))
	}
	return failed
}

// collectTimeout bounds one collection after a hold has ended. What it misses is collected by the next sweep.
const collectTimeout = time.Minute

// CollectLoop collects debts whenever a named hold has ended, until ctx ends: what was set aside is free then.
func (s *Store) CollectLoop(ctx context.Context, p *Poster) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.freed:
		}
		bounded, cancel := context.WithTimeout(ctx, collectTimeout)
		err := s.Collect(bounded)
		cancel()
		if err != nil && ctx.Err() == nil {
			p.log.Warn("debts could not be collected; they are tried again", "err", err)
		}
	}
}

func (s *Store) collect(ctx context.Context, ws tenant.ID) error {
	owed, err := s.Owed(ctx, ws)
	if err != nil || owed == 0 {
		return err
	}
	if e := s.escrow(); e != nil {
		if err := e.gather(ctx, payer{ws: ws}, owed); err != nil {
			return err
		}
	}
	taken, release := s.hold(ws, owed)
	defer release()
	if taken == 0 {
		return nil
	}
	return s.feed.Change(ctx, func(tx *db.Tx) error {
		before, free, err := s.books(ctx, tx, ws)
		if err != nil {
			return err
		}
		paid, err := payDebts(ctx, tx, ws, max(0, min(taken, free)))
		if err != nil || paid == 0 {
			return err
		}
		tx.Touch(changedWallet, ws, "")
		was := -before[accountKey{ws, accountFunding}]
		return audit.Record(ctx, tx, ws, tenant.Operator, "wallet.refund", string(ws), credit{was}, credit{was - paid})
	})
}

// addDebt adds to a debt, or takes from it.
func addDebt(ctx context.Context, in db.Scoped, debtID string, amount money.Nano) error {
	if amount == 0 {
		return nil
	}
	_, err := db.Exec(ctx, in, `
		INSERT INTO wallet_debts (workspace_id, id, amount, paid, created_at, updated_at) VALUES ($1, $2, $3, 0, $4, $4)
		ON CONFLICT (workspace_id, id) DO UPDATE SET amount = wallet_debts.amount + excluded.amount,
			updated_at = excluded.updated_at`, debtID, amount, clock.Now())
	if err != nil {
		return fmt.Errorf("write a debt: %w", err)
	}
	return nil
}

func payDebt(ctx context.Context, in db.Scoped, debtID string, amount money.Nano) error {
	_, err := db.Exec(ctx, in, `
		UPDATE wallet_debts SET paid = paid + $3, updated_at = $4 WHERE workspace_id = $1 AND id = $2`,
		debtID, amount, clock.Now())
	if err != nil {
		return fmt.Errorf("pay a debt: %w", err)
	}
	return nil
}

func openDebts(ctx context.Context, in db.Scoped) ([]debt, error) {
	all, err := db.Query[debt](ctx, in, `
		SELECT id, amount, paid FROM wallet_debts WHERE workspace_id = $1 AND paid < amount ORDER BY created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("read debts: %w", err)
	}
	return all, nil
}

func findDebt(ctx context.Context, in db.Scoped, debtID string) (debt, error) {
	d, err := db.Maybe[debt](ctx, in,
		`SELECT id, amount, paid FROM wallet_debts WHERE workspace_id = $1 AND id = $2`, debtID)
	if err != nil {
		return debt{}, fmt.Errorf("read a debt: %w", err)
	}
	if d == nil {
		return debt{}, nil
	}
	return *d, nil
}
