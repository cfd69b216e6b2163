package monitor

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/store/db"
	"sovereign/internal/store/notice"
)

// tellFailing adds a notice of a judge that cannot monitor traffic, once a day.
func (s *Store) tellFailing(ctx context.Context, c criterion.Ref, why error) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		mark := fmt.Sprintf("%s/%s/%s", notice.JudgeFailing, c.ID, clock.Now().Std().Format("2006-01-02"))
		return notice.Once(ctx, tx, c.WorkspaceID, mark, notice.Notice{
			Kind: notice.JudgeFailing, Subject: c.ID, Link: "judges/" + c.ID, Title: "A judge cannot monitor traffic",
			Text: fmt.Sprintf("The judge %s is tried again every minute: %s", c.ID, fault.From(why).Message),
		})
	})
	if err != nil {
		return fmt.Errorf("tell of a judge that fails: %w", err)
	}
	return nil
}
