package wallet

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/meter"
	"sovereign/internal/store/db"
)

// Spent returns what the requests of each key of a workspace count for in budgets, in the UTC day and month of a time
// and before that time: what was charged, and the cost of abandoned requests that were excused. It posts the journal
// first, so that everything settled before the call counts.
func (p *Poster) Spent(ctx context.Context, ws tenant.ID, before clock.Time) (map[tenant.KeyID]meter.Spent, error) {
	if err := p.Drain(ctx); err != nil {
		return nil, err
	}
	type row struct {
		KeyID tenant.KeyID
		meter.Spent
	}
	day, month := meter.Starts(before.Std())
	rows, err := db.Query[row](ctx, p.db.In(ws), `
		SELECT key_id, CAST(SUM(CASE WHEN at >= $2 THEN spent ELSE 0 END) AS BIGINT) AS day, CAST(SUM(spent) AS BIGINT) AS month
		FROM (
			SELECT key_id, at, CASE WHEN outcome = $5 AND charged = 0 THEN cost ELSE charged END AS spent
			FROM usage_rows WHERE workspace_id = $1 AND at >= $3 AND at < $4
		) AS counted GROUP BY key_id`,
		clock.Of(day), clock.Of(month), before, string(outcome.Abandoned))
	if err != nil {
		return nil, fmt.Errorf("read what %s spent: %w", ws, err)
	}
	all := make(map[tenant.KeyID]meter.Spent, len(rows))
	for _, r := range rows {
		all[r.KeyID] = r.Spent
	}
	return all, nil
}
