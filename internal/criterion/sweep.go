package criterion

import (
	"context"
	"fmt"

	"sovereign/internal/clock"
	"sovereign/internal/db"
)

// sweptAtOnce is how many rows one transaction takes away: whoever writes meanwhile waits for it.
const sweptAtOnce = 200

// Sweep takes away what judges said of exchanges whose time is over. It is called now and then.
func (s *Store) Sweep(ctx context.Context) error {
	across := s.db.Across("what is over is the server's to clear")
	for table, key := range map[string]string{"judged_logs": "workspace_id, run_id, log_id", "judge_answers": "workspace_id, question"} {
		for {
			n, err := db.Exec(ctx, across, `
				DELETE FROM `+table+` WHERE (`+key+`) IN (SELECT `+key+` FROM `+table+` WHERE expires_at > 0 AND expires_at <= $1 ORDER BY expires_at LIMIT $2)`,
				clock.Now(), sweptAtOnce)
			if err != nil {
				return fmt.Errorf("sweep %s: %w", table, err)
			}
			if n < sweptAtOnce {
				break
			}
		}
	}
	return nil
}
