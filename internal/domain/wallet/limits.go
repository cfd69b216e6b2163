package wallet

import (
	"context"
	"maps"
	"math"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
)

// limits are what the charges of a batch may take: what is in this server's slices. What an earlier process, or an
// earlier release, has left in the journal may also take what is available. nil is no limit.
type limits struct {
	sliced map[payer]money.Nano
	spare  map[payer]money.Nano // available besides
	from   map[payer]money.Nano // what was taken of sliced
	ended  map[payer]bool       // holds that have ended: what is available of the wallet pays for them
}

// readLimits reads the limits of a batch.
func (e *Escrow) readLimits(
	ctx context.Context, tx *db.Tx, batch map[tenant.ID][]*journal.Charge, spare bool,
) (l *limits, err error) {
	l = &limits{spare: map[payer]money.Nano{}, from: map[payer]money.Nano{}, ended: map[payer]bool{}}
	workspaces := make([]tenant.ID, 0, len(batch))
	for ws := range batch {
		workspaces = append(workspaces, ws)
	}
	if l.sliced, err = lockSlices(ctx, tx, e.node, workspaces); err != nil || !spare {
		return l, err
	}
	for ws, charges := range batch {
		for _, hold := range append(namedBy(charges), "") {
			p := payer{ws, hold}
			found, err := readPot(ctx, tx.In(ws), p, e.node)
			if err != nil {
				return nil, err
			}
			l.spare[p], l.ended[p] = max(0, found.available()), !found.Open
		}
	}
	return l, nil
}

// besides returns the payer whose available money pays for what is not in the slice.
func (l *limits) besides(p payer) payer {
	if l.ended[p] {
		return payer{ws: p.ws}
	}
	return p
}

// left returns what a payer can be charged. The wallet pays for a hold that has ended.
func (l *limits) left(p payer) money.Nano {
	if l == nil {
		return math.MaxInt64
	}
	left, fits := l.sliced[p].Add(l.spare[l.besides(p)])
	if !fits {
		return math.MaxInt64
	}
	return left
}

// use takes an amount of the slice first.
func (l *limits) use(p payer, amount money.Nano) {
	if l == nil {
		return
	}
	part := min(amount, l.sliced[p])
	l.sliced[p] -= part
	l.from[p] += part
	l.spare[l.besides(p)] -= amount - part
}

// mark returns the limits as they are, for reset.
func (l *limits) mark() *limits {
	if l == nil {
		return nil
	}
	return &limits{maps.Clone(l.sliced), maps.Clone(l.spare), maps.Clone(l.from), l.ended}
}

// reset undoes what was used since a mark.
func (l *limits) reset(to *limits) {
	if l != nil {
		*l = *to
	}
}
