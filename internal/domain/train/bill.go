package train

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/db"
)

// An attempt is charged once, when it has ended. Its charge goes the way of every charge: through the journal into the
// ledger, where its row has the attempt's id. An attempt is marked as posted when the ledger has that row. After a
// crash in between, the start posts the journal before anything is charged; so an attempt without a row was never
// charged.
//
// Where several servers share a database, the charge is bound to the journal of one of them before it is written there.
// It stays with that journal, also when another server leads: until its ledger row is there, or the server has started
// again, has posted its journal, and hands back what that did not have, or the journal is forgotten.

// provider is what the usage rows of training name as the provider.
var provider = &live.Provider{Name: "training"}

// bill charges the attempts that have ended, and ends the holds of runs that are done.
func (s *Store) bill(ctx context.Context) error {
	due, err := db.Query[attempt](ctx, s.DB.Across(ofAll), `SELECT `+attemptColumns+` WHERE charge = 'due' AND (
			`+ours("charge_node", "$1")+` OR EXISTS (SELECT 1 FROM usage_rows u WHERE u.workspace_id = training_attempts.workspace_id
				AND u.hold_id = training_attempts.run_id AND u.hold_id <> ''
				AND u.request_id = training_attempts.run_id || '.' || CAST(training_attempts.attempt AS TEXT)))
		ORDER BY ended_at LIMIT 100`, s.node())
	if err != nil {
		return fmt.Errorf("find attempts to charge: %w", err)
	}
	var all []error
	for _, a := range due {
		all = append(all, s.charge(ctx, &a))
	}
	return errors.Join(append(all, s.settle(ctx))...)
}

// requestID names an attempt in the journal and the ledger.
func (a *attempt) requestID() string { return a.RunID + "." + strconv.FormatInt(a.Attempt, 10) }

// charge charges an attempt, unless the ledger has its charge already.
func (s *Store) charge(ctx context.Context, a *attempt) error {
	if posted, err := s.posted(ctx, a); err != nil || posted {
		return err
	}
	if !s.charged[a.requestID()] { // by this process, and not posted yet
		if bound, err := s.bind(ctx, a); err != nil || !bound {
			return err
		}
		if err := s.spend(ctx, a); err != nil {
			return err
		}
		s.charged[a.requestID()] = true
	}
	if err := s.Drain(ctx); err != nil {
		return fmt.Errorf("post the charge of %s: %w", a.requestID(), err)
	}
	_, err := s.posted(ctx, a)
	return err
}

// handBack gives up the charges that were bound to this node's journal and never came into it, and marks those that are
// posted. A node that does not lead does nothing else with charges.
func (s *Store) handBack(ctx context.Context) error {
	if s.node() == "" {
		return nil
	}
	mine, err := db.Query[attempt](ctx, s.DB.Across(ofAll), `SELECT `+attemptColumns+`
		WHERE charge = 'due' AND charge_node = $1 ORDER BY ended_at LIMIT 100`, s.node())
	if err != nil {
		return fmt.Errorf("find the charges of this node: %w", err)
	}
	var all []error
	for _, a := range mine {
		posted, err := s.posted(ctx, &a)
		if err == nil && !posted && !s.charged[a.requestID()] {
			err = s.rebind(ctx, &a, "", func(int64) {})
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// posted reports whether the ledger has the charge of an attempt, and marks the attempt if so.
func (s *Store) posted(ctx context.Context, a *attempt) (found bool, err error) {
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(a.Workspace)
		row, err := db.Maybe[int64](ctx, in, `SELECT 1 FROM usage_rows
			WHERE workspace_id = $1 AND hold_id = $2 AND hold_id <> '' AND request_id = $3`, a.RunID, a.requestID())
		if found = row != nil; err != nil || !found {
			return err
		}
		_, err = db.Exec(ctx, in, `UPDATE training_attempts SET charge = 'posted'
			WHERE workspace_id = $1 AND run_id = $2 AND attempt = $3`, a.RunID, a.Attempt)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for the charge of %s: %w", a.requestID(), err)
	}
	if found {
		delete(s.charged, a.requestID())
	}
	return found, nil
}

// spend records the charge of an attempt in the journal: at most what is left in the hold.
func (s *Store) spend(ctx context.Context, a *attempt) error {
	r, err := db.One[Run](
		ctx, s.DB.In(a.Workspace), `SELECT `+runColumns+` WHERE workspace_id = $1 AND id = $2`, a.RunID,
	)
	if err != nil {
		return fmt.Errorf("find the run of an attempt: %w", err)
	}
	left, err := s.left(ctx, &r, a.cost())
	if err != nil {
		return err
	}
	tab, err := s.Till.Open(ctx, journal.Charge{
		Request: a.requestID(), Workspace: a.Workspace, Key: tenant.KeyID(a.RunID), Route: r.Kind,
		Requested: r.BaseModel, Hold: a.RunID,
	}, min(a.cost(), left))
	if err != nil {
		return fmt.Errorf("charge %s: %w", a.requestID(), err)
	}
	tab.SetModel(
		&live.Model{ID: r.BaseModel, Provider: provider}, live.Price{Rates: live.Rates{GPUSecond: a.Rate}}, false,
	)
	err = tab.Settle(till.Settlement{ //nolint:contextcheck // a settlement outlives its request
		Outcome: outcome.Finished, Usage: live.Usage{GPUSeconds: a.seconds()}, Counted: true, Capped: true,
	})
	if err != nil {
		tab.Drop() //nolint:contextcheck // a settlement outlives its request
		return fmt.Errorf("charge %s: %w", a.requestID(), err)
	}
	return nil
}

// settle ends the holds of runs that have ended, when every attempt is charged.
func (s *Store) settle(ctx context.Context) error {
	ended, err := db.Query[Run](ctx, s.DB.Across(ofAll), `SELECT `+runColumns+`
		WHERE finished_at > 0 AND NOT settled AND NOT EXISTS (SELECT 1 FROM training_attempts a
			WHERE a.workspace_id = training_runs.workspace_id AND a.run_id = training_runs.id AND a.charge = 'due')
		ORDER BY finished_at LIMIT 100`)
	if err != nil {
		return fmt.Errorf("find runs to settle: %w", err)
	}
	for _, r := range ended {
		err := s.Feed.Change(ctx, func(tx *db.Tx) error {
			if _, err := db.Exec(ctx, tx.In(r.Workspace),
				`UPDATE training_runs SET settled = TRUE WHERE workspace_id = $1 AND id = $2`, r.ID); err != nil {
				return fmt.Errorf("settle a run: %w", err)
			}
			return s.Holds.End(ctx, tx, r.Workspace, r.ID)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
