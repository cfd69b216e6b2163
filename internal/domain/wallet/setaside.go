package wallet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sovereign/internal/base/money"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
)

// A charge that the ledger cannot hold, because the database refuses its values or posting it panics, must not keep all
// later ones from being posted, nor the server from starting. It is set aside: kept in a file beside the journal, not
// taken from the wallet, logged, counted, and named by every proof of the ledger until an operator has settled it.

// maxSetAside is the most charges of one batch that are set aside. If more cannot be posted, it is not the charges that
// are wrong: then none is set aside, and the ledger falls behind.
const maxSetAside = 16

// isPoisonous reports whether charges themselves are what failed, so that no retry can succeed.
func isPoisonous(err error) bool { return db.IsDataError(err) || errors.As(err, new(*panics.Error)) }

// insertContained inserts charges. A panic is an error.
func (p *Poster) insertContained(
	ctx context.Context, tx *db.Tx, charges map[tenant.ID][]*journal.Charge,
) (paid map[payer]money.Nano, err error) {
	err = panics.Call(p.log, "posting charges", func() error {
		paid, err = p.insert(ctx, tx, charges)
		return err
	})
	return paid, err
}

// insertOneByOne inserts each charge of a batch under a savepoint, and sets aside those that cannot be posted.
func (p *Poster) insertOneByOne(ctx context.Context, tx *db.Tx, b *batch) (map[payer]money.Nano, error) {
	paid := make(map[payer]money.Nano, len(b.charges))
	b.aside = nil
	var before *limits
	for _, ws := range slices.Sorted(maps.Keys(b.charges)) {
		for _, c := range b.charges[ws] {
			one := map[tenant.ID][]*journal.Charge{ws: {c}}
			before = p.within.mark()
			_, err := p.db.Tx(tx.Bind(ctx), func(tx *db.Tx) error {
				took, err := p.insertContained(ctx, tx, one)
				for who, amount := range took {
					paid[who] += amount
				}
				return err
			})
			if err != nil {
				p.within.reset(before)
			}
			switch {
			case isPoisonous(err) && len(b.aside) == maxSetAside:
				return nil, fmt.Errorf("more than %d charges of a batch cannot be posted", maxSetAside)
			case isPoisonous(err):
				b.aside = append(b.aside, c)
			case err != nil:
				return nil, err
			}
		}
	}
	if len(b.aside) == 0 {
		return paid, nil
	}
	return paid, p.journal.SetAside(b.aside)
}

// reportAside logs and counts what a batch has set aside, once it has committed.
func (p *Poster) reportAside(b *batch) error {
	for _, c := range b.aside {
		p.log.Error("a charge is set aside: the ledger cannot hold it", "request_id", c.Request, "workspace", c.Workspace,
			"charged_usd", c.Charged.String(), "cost_usd", c.Cost.String())
	}
	return p.countSetAside()
}

// SetAside returns the charges that were set aside.
func (p *Poster) SetAside() ([]journal.Charge, error) { return p.journal.ReadSetAside() }

// SetAsideCount returns how many charges were set aside, as far as is known without reading the disk.
func (p *Poster) SetAsideCount() int64 { return p.asideCount.Load() }

// countSetAside counts the charges on the disk.
func (p *Poster) countSetAside() error {
	all, err := p.SetAside()
	if err == nil {
		p.asideCount.Store(int64(len(all)))
	}
	return err
}

// report adds the charges that were set aside to a proof. They are money that the ledger does not know.
func (proof *Proof) report(aside []journal.Charge) {
	for i := range aside {
		c := &aside[i]
		proof.Problems = append(proof.Problems, fmt.Sprintf("every settled charge is posted: not so for %s of %s, %s USD, "+
			"which was set aside in the journal's folder", c.Request, c.Workspace, c.Charged))
	}
	proof.OK = len(proof.Problems) == 0
}
