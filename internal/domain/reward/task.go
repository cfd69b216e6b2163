package reward

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// cleanTasks checks tasks, and leaves credentials out of them.
func cleanTasks(all []jsontext.Value) error {
	for i, task := range all {
		if task.Kind() != '{' {
			return fault.Invalid(fmt.Sprintf("tasks[%d]", i), "must be an object")
		}
		all[i], _ = redact.JSON(task)
	}
	return nil
}

// sizeOf returns how many bytes tasks have.
func sizeOf(all []jsontext.Value) (n int64) {
	for _, task := range all {
		n += int64(len(task))
	}
	return n
}

func insertTasks(ctx context.Context, tx *db.Tx, ws tenant.ID, id string, all []jsontext.Value) error {
	rows := make([][]any, len(all))
	for i, task := range all {
		rows[i] = []any{string(ws), id, int64(i), string(task)}
	}
	return db.Insert(ctx, tx.Across("the rows name their workspace"), "reward_tasks",
		[]string{"workspace_id", "session_id", "position", "task"}, rows)
}

// Tasks reads tasks of a session, in their order.
func (s *Store) Tasks(ctx context.Context, ws tenant.ID, id string, limit, offset int) ([]jsontext.Value, error) {
	r, err := s.find(ctx, s.DB.In(ws), id)
	if err == nil {
		err = r.kept()
	}
	if err != nil {
		return nil, err
	}
	rows, err := db.Query[string](ctx, s.DB.In(ws), `
		SELECT task FROM reward_tasks WHERE workspace_id = $1 AND session_id = $2 AND position >= $3
		ORDER BY position LIMIT $4`, id, offset, limit)
	if err != nil {
		return nil, fmt.Errorf("read the tasks of %s: %w", id, err)
	}
	all := make([]jsontext.Value, len(rows))
	for i, text := range rows {
		all[i] = jsontext.Value(text)
	}
	return all, nil
}
