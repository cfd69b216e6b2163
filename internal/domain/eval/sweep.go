package eval

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/store/db"
)

// sweep deletes the texts of cases whose log rows have expired: what was asked, what models answered, and what the
// judge wrote about it. Outcomes and figures stay.
func (s *Store) sweep(ctx context.Context) error {
	type row struct {
		WorkspaceID tenant.ID
		EvalID      string
		Position    int64
	}
	err := judging.DeleteInBatches(func() (int64, error) {
		var expired []row
		_, err := s.DB.Tx(ctx, func(tx *db.Tx) (err error) {
			expired, err = db.Query[row](ctx, tx.Across("texts of all workspaces expire"), `
				SELECT workspace_id, eval_id, position FROM eval_cases WHERE expires_at > 0 AND expires_at <= $1
					ORDER BY expires_at LIMIT $2`, clock.Now(), judging.DeleteBatch)
			if err != nil {
				return err
			}
			for _, r := range expired {
				if err := deleteTexts(ctx, tx.In(r.WorkspaceID), r.EvalID, r.Position); err != nil {
					return err
				}
			}
			return nil
		})
		return int64(len(expired)), err
	})
	if err != nil {
		return fmt.Errorf("delete the texts of cases: %w", err)
	}
	return nil
}

// deleteTexts deletes the texts of a case.
func deleteTexts(ctx context.Context, in db.Scoped, evalID string, position int64) error {
	for _, change := range []struct {
		table, set string
		args       []any
	}{
		{"eval_cases", "messages = $4, tools = $4, logged = $4, expires_at = -1", []any{[]byte{}}},
		{"eval_answers", "answer = $4", []any{[]byte{}}},
		{"eval_verdicts", "critique = ''", nil},
	} {
		if _, err := db.Exec(ctx, in, `UPDATE `+change.table+` SET `+change.set+`
			WHERE workspace_id = $1 AND eval_id = $2 AND position = $3`,
			append([]any{evalID, position}, change.args...)...); err != nil {
			return fmt.Errorf("%s: %w", change.table, err)
		}
	}
	return nil
}
