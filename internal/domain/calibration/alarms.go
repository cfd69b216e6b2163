package calibration

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/module"
)

// mostAlarms bounds the void certificates that are listed.
const mostAlarms = 20

// Alarms returns the judges whose last certificate is void, the last voided first.
func (s *Store) Alarms(ctx context.Context, ws tenant.ID) ([]module.Notice, error) {
	type voided struct {
		ID, CriterionID, Name, VoidedReason string
		VoidedAt                            clock.Time
	}
	rows, err := db.Query[voided](ctx, s.db.In(ws), `
		SELECT c.id AS id, c.criterion_id AS criterion_id, j.name AS name, c.voided_reason AS voided_reason, c.voided_at AS voided_at
		FROM certificates c JOIN criteria j ON j.workspace_id = $1 AND j.id = c.criterion_id
		WHERE c.workspace_id = $1 AND c.voided_at > 0 AND NOT EXISTS (
			SELECT 1 FROM certificates later WHERE later.workspace_id = $1 AND later.criterion_id = c.criterion_id
				AND later.issued_at > c.issued_at
		) ORDER BY c.voided_at DESC, c.id LIMIT $2`, mostAlarms)
	if err != nil {
		return nil, fmt.Errorf("read the void certificates: %w", err)
	}
	all := make([]module.Notice, len(rows))
	for i, r := range rows {
		all[i] = module.Notice{
			Kind: "certificate.voided", Subject: r.ID, Title: fmt.Sprintf("The certificate of %s is void", r.Name),
			Detail: r.VoidedReason, At: r.VoidedAt, Link: module.Link{Page: "judges/" + r.CriterionID},
		}
	}
	return all, nil
}
