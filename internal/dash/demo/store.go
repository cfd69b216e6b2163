package demo

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// people is why a statement is not of one workspace.
const people = "a person may belong to several workspaces"

// Create makes a demo for a person who owns a workspace, and queues the job that fills it. A person who has one gets
// that one.
func (s *Store) Create(ctx context.Context, by tenant.Actor, user tenant.UserID) (made Demo, err error) {
	err = s.Feed.Change(ctx, func(tx *db.Tx) error {
		email, err := s.mayHave(ctx, tx, user)
		if err != nil {
			return err
		}
		before, err := db.Maybe[tenant.ID](ctx, tx.Across(people),
			`SELECT workspace_id FROM demos WHERE user_id = $1 AND deletion = ''`, user)
		if err != nil {
			return fmt.Errorf("find a demo: %w", err)
		}
		if before != nil {
			made, err = find(ctx, tx.In(*before))
			return err
		}
		if err := mayMakeMore(ctx, tx, user); err != nil {
			return err
		}
		made, err = s.create(ctx, tx, by, user, email)
		return err
	})
	return made, err
}

// mayHave returns the address of a person, and refuses one who owns no workspace but demos.
func (s *Store) mayHave(ctx context.Context, tx *db.Tx, user tenant.UserID) (email string, err error) {
	found, err := db.Maybe[string](ctx, tx.Across(people), `
		SELECT u.email FROM users u WHERE u.id = $1 AND EXISTS (
			SELECT 1 FROM members m JOIN workspaces w ON w.workspace_id = m.workspace_id
			WHERE m.user_id = u.id AND m.role = 'owner' AND NOT w.demo)`, user)
	if err != nil {
		return "", fmt.Errorf("find an owner: %w", err)
	}
	if found == nil {
		return "", fault.Precondition.New("a demo is for owners of a workspace: ask one of yours")
	}
	return *found, nil
}

// mayMakeMore refuses a person who has made too many demos in the last day.
func mayMakeMore(ctx context.Context, tx *db.Tx, user tenant.UserID) error {
	made, err := db.Query[clock.Time](ctx, tx.Across(people), `
		SELECT created_at FROM demos WHERE user_id = $1 AND created_at > $2 ORDER BY created_at LIMIT $3`,
		user, clock.Now().Add(-day), mostADay)
	if err != nil {
		return fmt.Errorf("count demos: %w", err)
	}
	if len(made) < mostADay {
		return nil
	}
	return errTooMany(made[0].Add(day))
}

// create makes the workspace with its credit, and queues the job. The server is the author of the credit: nobody
// credits a wallet of their own.
func (s *Store) create(
	ctx context.Context, tx *db.Tx, by tenant.Actor, user tenant.UserID, email string,
) (Demo, error) {
	bound := tx.Bind(ctx)
	ws, _, err := s.Workspaces.CreateDemo(bound, by, Name, email)
	if err != nil {
		return Demo{}, err
	}
	if _, err := s.Wallets.TopUp(bound, ws.ID, tenant.Operator, credit, memo); err != nil {
		return Demo{}, err
	}
	days := int64(retentionDays)
	if _, err := s.Workspaces.Set(bound, ws.ID, by, workspace.SettingsChange{LogRetentionDays: &days}); err != nil {
		return Demo{}, err
	}
	demoID := id.New("demo")
	if _, err := db.Exec(ctx, tx.In(ws.ID),
		`INSERT INTO demos (workspace_id, id, user_id, state, created_at) VALUES ($1, $2, $3, '', $4)`,
		demoID, user, clock.Now()); err != nil {
		return Demo{}, fmt.Errorf("create demo: %w", err)
	}
	if err := job.Queue(ctx, tx, ws.ID, job.New{ID: demoID, Kind: filling, Total: int64(units())}); err != nil {
		return Demo{}, err
	}
	made, err := find(ctx, tx.In(ws.ID))
	if err != nil {
		return Demo{}, err
	}
	return made, audit.Record(ctx, tx, ws.ID, by, "demo.create", demoID, nil, ws)
}

// Get reads the demo of a workspace.
func (s *Store) Get(ctx context.Context, ws tenant.ID) (Demo, error) { return find(ctx, s.DB.In(ws)) }

func find(ctx context.Context, in db.Scoped) (Demo, error) {
	found, err := db.Maybe[Demo](ctx, in, `
		SELECT 'demo' AS object, demos.id, demos.workspace_id, w.name, demos.user_id, demos.state, `+job.Columns+`
		FROM demos JOIN workspaces w ON w.workspace_id = demos.workspace_id
		JOIN jobs ON jobs.workspace_id = $1 AND jobs.id = demos.id
		WHERE demos.workspace_id = $1 AND demos.deletion = ''`)
	if err != nil {
		return Demo{}, fmt.Errorf("read demo: %w", err)
	}
	if found == nil {
		return Demo{}, fault.Missing.New("this workspace is no demo")
	}
	return *found, found.show()
}

// Cancel ends the job that fills a demo. What it has made stays.
func (s *Store) Cancel(ctx context.Context, ws tenant.ID, by tenant.Actor) (after Demo, err error) {
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		before, err := find(ctx, tx.In(ws))
		if err != nil {
			return err
		}
		if _, err := job.Cancel(ctx, tx, ws, by, before.ID); err != nil {
			return err
		}
		after, err = find(ctx, tx.In(ws))
		return err
	})
	return after, err
}

// OwnerOf returns an owner of the oldest workspace that is no demo, or "" when there is none.
func (s *Store) OwnerOf(ctx context.Context) (tenant.UserID, error) {
	user, err := db.Maybe[tenant.UserID](ctx, s.DB.Across("the first start has one workspace"), `
		SELECT m.user_id FROM members m JOIN workspaces w ON w.workspace_id = m.workspace_id
		WHERE m.role = 'owner' AND NOT w.demo AND w.deleted_at = 0 ORDER BY w.created_at, w.workspace_id, m.created_at, m.user_id LIMIT 1`)
	if err != nil || user == nil {
		return "", err
	}
	return *user, nil
}
