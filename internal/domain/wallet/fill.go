package wallet

import (
	"context"

	"sovereign/internal/plane/funds"
	"sovereign/internal/store/db"
)

// Fill loads every wallet and every open hold from the ledger into memory.
func (p *Poster) Fill(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A batch in doubt that the ledger already holds would otherwise be applied to memory twice.
	if err := p.resolveInDoubt(ctx); err != nil {
		return err
	}
	if p.Escrow != nil {
		if err := p.Escrow.reload(ctx); err != nil {
			return err
		}
		return p.fillOthers(ctx, nil)
	}
	all, err := readAccounts(ctx, p.db)
	if err != nil {
		return err
	}
	p.funds.Fill(all)
	return p.fillOthers(ctx, all)
}

// fillOthers loads the named holds in memory that are not among the open ones of all.
func (p *Poster) fillOthers(ctx context.Context, all []funds.Account) error {
	open := map[payer]bool{}
	for _, account := range all {
		for _, one := range account.Open {
			open[payer{account.Workspace, one.ID}] = true
		}
	}
	for ws, ids := range p.funds.Names() {
		for _, id := range ids {
			key := payer{ws, id}
			if open[key] || p.Holds.isOpening(key) {
				continue
			}
			row, err := findHold(ctx, p.db.In(ws), id)
			if err != nil {
				return err
			}
			switch {
			case row == nil || row.EndedAt != 0 && p.Escrow != nil: // it was opened, and the database has lost that commit
				p.funds.End(ws, id)
			case p.Escrow == nil:
				p.funds.Put(ws, row.named())
			}
		}
	}
	return nil
}

// Apply loads what was credited to a wallet, or that a named hold was opened or has ended, into memory.
func (p *Poster) Apply(ctx context.Context, c db.Change) error {
	if c.Kind == changedHold {
		return p.applyHold(ctx, payer{c.Workspace, c.Subject})
	}
	if p.Escrow != nil {
		return nil // slices are of this server alone
	}
	amount, err := credited(ctx, p.db.In(c.Workspace))
	if err != nil {
		return err
	}
	p.funds.Credit(c.Workspace, amount)
	return nil
}

// applyHold ends a hold that has ended, and adds an open one that is missing: a process that died may have opened it.
func (p *Poster) applyHold(ctx context.Context, key payer) error {
	row, err := findHold(ctx, p.db.In(key.ws), key.hold)
	if err != nil || row == nil {
		return err
	}
	if row.EndedAt != 0 {
		p.funds.End(key.ws, key.hold)
		select {
		case p.freed <- struct{}{}:
		default: // debts are about to be collected
		}
		return nil
	}
	if _, known := p.funds.SpentOf(key.ws, key.hold); known || p.Escrow != nil {
		return nil
	}
	p.mu.Lock() // nothing is posted between reading and adding
	defer p.mu.Unlock()
	if row, err = findHold(ctx, p.db.In(key.ws), key.hold); err == nil && row != nil {
		p.funds.Put(key.ws, row.named())
	}
	return err
}
