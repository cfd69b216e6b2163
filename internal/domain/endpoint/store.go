package endpoint

import (
	"context"
	"fmt"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
)

// ofAll is why the loop reads the endpoints of all workspaces.
const ofAll = "engines run for all workspaces"

const columns = `workspace_id, id, name, routing_key, status, base_model, model_version_id, engine, gpu_type, gpu_count,
	min_replicas, max_replicas, idle_timeout, max_hourly, price, wanted, failures, failed_at, quiet_at, hold_id, holds,
	error_code, error_message, error_lines, last_used_at, created_at, started_at, deleted_at, active, revision
	FROM dedicated_endpoints`

// find reads an endpoint that is not deleted.
func find(ctx context.Context, in db.Scoped, endpointID string) (record, error) {
	r, err := db.Maybe[record](ctx, in,
		`SELECT `+columns+` WHERE workspace_id = $1 AND id = $2 AND deleted_at = 0`, endpointID)
	switch {
	case err != nil:
		return record{}, fmt.Errorf("find a dedicated endpoint: %w", err)
	case r == nil:
		return record{}, fault.NotFound("dedicated endpoint", endpointID)
	}
	return *r, nil
}

func list(ctx context.Context, in db.Scoped, limit, offset int) ([]record, error) {
	all, err := db.Query[record](ctx, in, `SELECT `+columns+` WHERE workspace_id = $1 AND deleted_at = 0
		ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list dedicated endpoints: %w", err)
	}
	return all, nil
}

// listAll reads the endpoints of all workspaces, the newest first.
func listAll(ctx context.Context, d *db.DB, limit, offset int) ([]record, error) {
	all, err := db.Query[record](ctx, d.Across("an operator sees all endpoints"), `SELECT `+columns+` WHERE deleted_at = 0
		ORDER BY created_at DESC, id DESC LIMIT $1 OFFSET $2`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list dedicated endpoints: %w", err)
	}
	return all, nil
}

// workspaceOf returns whose an endpoint is.
func (s *Store) workspaceOf(ctx context.Context, endpointID string) (tenant.ID, error) {
	ws, err := db.Maybe[tenant.ID](ctx, s.DB.Across("an operator names endpoints by their ids"),
		`SELECT workspace_id FROM dedicated_endpoints WHERE id = $1 AND deleted_at = 0`, endpointID)
	switch {
	case err != nil:
		return "", fmt.Errorf("find a dedicated endpoint: %w", err)
	case ws == nil:
		return "", fault.NotFound("dedicated endpoint", endpointID)
	}
	return *ws, nil
}

func insert(ctx context.Context, in db.Scoped, by tenant.Actor, r *record) error {
	if _, err := db.Exec(ctx, in, `
		INSERT INTO dedicated_endpoints (workspace_id, id, name, routing_key, status, base_model, model_version_id, engine,
			gpu_type, gpu_count, min_replicas, max_replicas, idle_timeout, max_hourly, price, wanted, failures, failed_at,
			quiet_at, hold_id, holds, error_code, error_message, error_lines, last_used_at, created_by, created_at, started_at,
			deleted_at, active, revision)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 0, 0, 0, 0, $16, $17, '', '', '', 0, $18,
			$19, $20, 0, TRUE, 1)`,
		r.ID, r.Name, r.RoutingKey, r.Status, r.BaseModel, r.ModelVersionID, r.Engine, r.GPUType, r.GPUCount,
		r.MinReplicas,
		r.MaxReplicas, r.IdleTimeout, r.MaxHourly, r.Price, r.HoldID, r.Holds, by.User, r.CreatedAt, r.StartedAt); err != nil {
		return fmt.Errorf("insert a dedicated endpoint: %w", err)
	}
	return quota.Check(ctx, in, quota.DedicatedEndpoints, 1)
}

// update stores what has changed of an endpoint since it was read. It is refused when somebody else has changed it
// since, and when its state may not follow the one before.
func update(ctx context.Context, tx *db.Tx, before, r *record) error {
	if before.Status != r.Status && !before.Status.May(r.Status) {
		return fault.Conflict("the endpoint is %s, and cannot become %s", before.Status, r.Status)
	}
	n, err := db.Exec(ctx, tx.In(r.Workspace), `
		UPDATE dedicated_endpoints SET status = $4, price = $5, wanted = $6, failures = $7, failed_at = $8, quiet_at = $9,
			hold_id = $10, holds = $11, error_code = $12, error_message = $13, error_lines = $14, last_used_at = $15,
			started_at = $16, deleted_at = $17, active = $18, engine = $19, revision = revision + 1
		WHERE workspace_id = $1 AND id = $2 AND revision = $3`,
		r.ID, before.Revision, r.Status, r.Price, r.Wanted, r.Failures, r.FailedAt, r.QuietAt, r.HoldID, r.Holds,
		r.ErrorCode,
		r.ErrorMessage, r.ErrorLines, r.LastUsedAt, r.StartedAt, r.DeletedAt, r.Active, r.Engine)
	switch {
	case err != nil:
		return fmt.Errorf("change a dedicated endpoint: %w", err)
	case n == 0:
		return fault.Conflict("the endpoint has changed meanwhile: try again")
	}
	if before.Status != r.Status || before.DeletedAt != r.DeletedAt || before.ErrorMessage != r.ErrorMessage {
		tx.Touch(changed, r.Workspace, r.ID)
	}
	return nil
}

// remove deletes an endpoint of which nothing runs, with what is known of its engines. The ledger keeps what it cost.
func (s *Store) remove(ctx context.Context, tx *db.Tx, r *record) error {
	in := tx.In(r.Workspace)
	n, err := db.Exec(ctx, in, `DELETE FROM dedicated_endpoints WHERE workspace_id = $1 AND id = $2 AND revision = $3`,
		r.ID, r.Revision)
	switch {
	case err != nil:
		return fmt.Errorf("delete a dedicated endpoint: %w", err)
	case n == 0:
		return fault.Conflict("the endpoint has changed meanwhile: try again")
	}
	for _, table := range []string{"endpoint_replicas", "endpoint_holds"} {
		if _, err := db.Exec(
			ctx, in, `DELETE FROM `+table+` WHERE workspace_id = $1 AND endpoint_id = $2`, r.ID,
		); err != nil {
			return fmt.Errorf("delete the engines of an endpoint: %w", err)
		}
	}
	tx.Touch(changed, r.Workspace, r.ID)
	return s.Artifacts.Release(ctx, tx, r.Workspace, r.ID)
}

// readActive reads the endpoints of which something runs, or is not charged.
func readActive(ctx context.Context, d *db.DB) ([]record, error) {
	all, err := db.Query[record](ctx, d.Across(ofAll), `SELECT `+columns+` WHERE active ORDER BY created_at, id`)
	if err != nil {
		return nil, fmt.Errorf("read dedicated endpoints: %w", err)
	}
	return all, nil
}

const lifeColumns = `workspace_id, endpoint_id, id, started_at, ready_at, seen_at, drain_at, ended_at, billed, charges, due,
	due_hold, due_node, settled FROM endpoint_replicas`

// readLives reads the lives of an endpoint's engines, the oldest first.
func readLives(ctx context.Context, in db.Scoped, endpointID string) ([]life, error) {
	all, err := db.Query[life](ctx, in, `SELECT `+lifeColumns+` WHERE workspace_id = $1 AND endpoint_id = $2
		ORDER BY started_at, id`, endpointID)
	if err != nil {
		return nil, fmt.Errorf("read the engines of an endpoint: %w", err)
	}
	return all, nil
}

func writeLives(ctx context.Context, in db.Scoped, all []life) error {
	rows := make([][]any, len(all))
	for i, l := range all {
		rows[i] = []any{
			l.Workspace, l.EndpointID, l.ID, l.StartedAt, l.ReadyAt, l.SeenAt, l.DrainAt, l.EndedAt, l.Billed,
			l.Charges, l.Due, l.DueHold, l.DueNode, l.Settled,
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := db.Upsert(ctx, in.Across("rows name their workspace"), "endpoint_replicas", []string{
		"workspace_id", "endpoint_id", "id", "started_at", "ready_at", "seen_at", "drain_at", "ended_at", "billed",
		"charges", "due", "due_hold", "due_node", "settled",
	}, 3, rows); err != nil {
		return fmt.Errorf("write the engines of an endpoint: %w", err)
	}
	return nil
}

// deleteLife deletes a life that is charged.
func deleteLife(ctx context.Context, in db.Scoped, l life) error {
	if _, err := db.Exec(ctx, in, `DELETE FROM endpoint_replicas
		WHERE workspace_id = $1 AND endpoint_id = $2 AND id = $3 AND settled`, l.EndpointID, l.ID); err != nil {
		return fmt.Errorf("forget an engine: %w", err)
	}
	return nil
}

// figures are what an endpoint has running and spent.
type figures struct {
	ID       string
	Replicas int64
	Spent    money.Nano
}

// readFigures reads what the endpoints of a workspace have running and spent.
func readFigures(ctx context.Context, in db.Scoped, all []record) (map[string]figures, error) {
	found := map[string]figures{}
	rows, err := db.Query[figures](ctx, in, `
		SELECT e.id, (SELECT COUNT(*) FROM endpoint_replicas r WHERE r.workspace_id = e.workspace_id AND r.endpoint_id = e.id
				AND r.ready_at > 0 AND r.ended_at = 0) AS replicas,
			(SELECT CAST(COALESCE(SUM(h.spent), 0) AS BIGINT) FROM endpoint_holds o JOIN named_holds h
				ON h.workspace_id = o.workspace_id AND h.id = o.hold_id
				WHERE o.workspace_id = e.workspace_id AND o.endpoint_id = e.id) AS spent
		FROM dedicated_endpoints e WHERE e.workspace_id = $1 AND e.deleted_at = 0`)
	if err != nil {
		return nil, fmt.Errorf("read what endpoints have spent: %w", err)
	}
	for _, f := range rows {
		if slices.ContainsFunc(all, func(r record) bool { return r.ID == f.ID }) {
			found[f.ID] = f
		}
	}
	return found, nil
}

// shownAll returns endpoints as the API shows them.
func (s *Store) shownAll(ctx context.Context, in db.Scoped, all []record) ([]Endpoint, error) {
	known, err := readFigures(ctx, in, all)
	if err != nil {
		return nil, err
	}
	shown := make([]Endpoint, len(all))
	for i := range all {
		r := &all[i]
		if g := s.Registry.Find(r.deployment()); g != nil {
			r.LastUsedAt = max(r.LastUsedAt, g.Use().LastUsed)
		}
		shown[i] = r.shown()
		shown[i].Replicas, shown[i].Spent = known[r.ID].Replicas, known[r.ID].Spent
	}
	return shown, nil
}
