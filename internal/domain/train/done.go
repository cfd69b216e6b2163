package train

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// A Done is how a worker's attempt ended.
type Done struct {
	Outcome        string `json:"outcome" enum:"succeeded,failed,stopped" doc:"stopped: it saved a checkpoint and stopped, as it was told, or because the worker ends"`
	Step           int64  `json:"step" minimum:"0" doc:"The step of the last checkpoint"`
	Tokens         int64  `json:"tokens" minimum:"0"`
	ErrorCode      string `json:"error_code,omitempty" maxLength:"64"`
	ErrorMessage   string `json:"error_message,omitempty" maxLength:"4000"`
	Infrastructure bool   `json:"infrastructure,omitempty" doc:"It failed by the machine, not by what was asked of it: it is not billed, and another worker goes on"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Done) SchemaName() string { return "WorkerDone" }

// How an attempt ended, beside what a worker says.
const (
	succeeded = "succeeded"
	failed    = "failed"
	stopped   = "stopped"
	broken    = "broken" // by the machine
	lost      = "lost"   // its lease ran out
)

// The states of an attempt's charge.
const (
	chargeDue    = "due"
	chargePosted = "posted"
	chargeFree   = "free"
)

// maxLost is how many workers in a row may be lost without a new checkpoint, before the run fails.
const maxLost = 5

// Finish ends an attempt, once. To say the same again is a no-op. A model that it makes can be called when it returns.
func (s *Store) Finish(ctx context.Context, w Worker, h LeaseRef, d Done) error {
	outcome := d.Outcome
	if outcome == failed && d.Infrastructure {
		outcome = broken
	}
	return s.Feed.Change(ctx, func(tx *db.Tx) error {
		r, a, err := s.held(ctx, tx, w, h)
		switch {
		case err != nil:
			return err
		case a.EndedAt != 0 && a.Outcome == outcome:
			return nil
		case a.EndedAt != 0:
			return fault.StaleLease.New("the lease has ended: %s", a.Outcome)
		}
		if outcome == succeeded {
			last, err := s.checkpointAt(ctx, tx.In(r.Workspace), r.ID, d.Step)
			switch {
			case err != nil:
				return err
			case last == nil:
				return errNoCheckpoint(d.Step)
			}
		}
		if err := s.endAttempt(ctx, tx, a, outcome); err != nil {
			return err
		}
		return s.after(ctx, tx, r, outcome, d)
	})
}

// endAttempt ends an attempt, and says whether its time is charged: not when the machine ended it.
func (s *Store) endAttempt(ctx context.Context, tx *db.Tx, a *attempt, outcome string) error {
	charge := chargeDue
	if outcome == broken || outcome == lost || a.seconds() == 0 {
		charge = chargeFree
	}
	n, err := db.Exec(ctx, tx.In(a.Workspace), `
		UPDATE training_attempts SET ended_at = $4, outcome = $5, charge = $6
		WHERE workspace_id = $1 AND run_id = $2 AND attempt = $3 AND ended_at = 0`,
		a.RunID, a.Attempt, s.now(), outcome, charge)
	switch {
	case err != nil:
		return fmt.Errorf("end an attempt: %w", err)
	case n == 0:
		return fault.StaleLease.New("the lease has ended")
	}
	return nil
}

// after moves a run on when its attempt has ended.
func (s *Store) after(ctx context.Context, tx *db.Tx, r *Run, outcome string, d Done) error {
	switch {
	case outcome == succeeded:
		if _, err := db.Exec(ctx, tx.In(r.Workspace), `UPDATE training_runs SET step = $3, tokens = $4
			WHERE workspace_id = $1 AND id = $2`, r.ID, d.Step, d.Tokens); err != nil {
			return fmt.Errorf("save the end of a run: %w", err)
		}
		r.Step, r.Tokens = d.Step, d.Tokens
		return s.move(ctx, tx, r, Succeeded)
	case outcome == failed:
		message := redact.String(d.ErrorMessage)
		if err := s.tell(ctx, tx, r, "error", message); err != nil {
			return err
		}
		return s.fail(ctx, tx, r, d.ErrorCode, message)
	case r.Wanted == Cancel:
		return s.move(ctx, tx, r, Cancelled)
	case r.Wanted == Broke:
		return s.fail(ctx, tx, r, "budget_exhausted",
			cmp.Or(r.PausedReason, "the budget is spent")+"; the last checkpoint is kept")
	case r.Wanted == Pause:
		return s.move(ctx, tx, r, Paused)
	case outcome == stopped: // the worker ends, and another goes on
		return s.move(ctx, tx, r, Queued)
	}
	if err := s.tell(
		ctx, tx, r, "warn", fmt.Sprintf("attempt %d: the worker was lost; it is not billed", r.Attempt),
	); err != nil {
		return err
	}
	if r.Lost++; r.Lost >= maxLost {
		return s.fail(
			ctx, tx, r, "workers_lost", fmt.Sprintf("%d workers in a row were lost without a new checkpoint", r.Lost),
		)
	}
	return s.move(ctx, tx, r, Queued)
}

// loseExpired ends the attempts whose leases have run out.
func (s *Store) loseExpired(ctx context.Context) error {
	all, err := s.expired(ctx)
	if err != nil {
		return err
	}
	for _, a := range all {
		if err := s.lose(ctx, &a); err != nil {
			return err
		}
	}
	return nil
}

// expired returns the attempts whose leases have run out. A single server compares the times that it wrote with its
// clock. The clocks of several servers differ: the leading one ends an attempt when its heartbeat has not changed for
// the time of a lease, by its own monotonic clock. An attempt that it sees for the first time gets longer.
func (s *Store) expired(ctx context.Context) ([]attempt, error) {
	where, args := `ended_at = 0`, []any{}
	if s.Member.Single() {
		where, args = where+` AND lease_until < $1 ORDER BY lease_until LIMIT 100`, []any{s.now()}
	}
	all, err := db.Query[attempt](ctx, s.DB.Across(ofAll), `SELECT `+attemptColumns+` WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("find expired leases: %w", err)
	}
	if s.Member.Single() {
		return all, nil
	}
	return s.watch(all), nil
}

// watched is an attempt as it was when its heartbeat was last seen to change.
type watched struct {
	beat   int64
	expiry clock.Time
	lost   time.Time // when the worker is lost, unless it changes before
}

// watch compares the attempts that run with what was seen of them before, and returns those of lost workers.
func (s *Store) watch(all []attempt) (silent []attempt) {
	now, seen := s.elapsed(), make(map[string]watched, len(all))
	for _, a := range all {
		before, known := s.watched[a.requestID()]
		w := watched{a.Beat, a.LeaseUntil, before.lost}
		switch {
		case !known:
			w.lost = now.Add(graceTime)
		case before.beat != w.beat || before.expiry != w.expiry:
			w.lost = now.Add(leaseTime)
		}
		if seen[a.requestID()] = w; a.LeaseUntil == revoked || !now.Before(w.lost) {
			silent = append(silent, a)
		}
	}
	s.watched = seen
	return silent
}

// lose ends an attempt, unless it was renewed meanwhile.
func (s *Store) lose(ctx context.Context, a *attempt) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		now, err := db.Maybe[attempt](ctx, tx.In(a.Workspace), `SELECT `+attemptColumns+`
			WHERE workspace_id = $1 AND run_id = $2 AND attempt = $3 AND ended_at = 0 AND beat = $4 AND lease_until = $5`,
			a.RunID, a.Attempt, a.Beat, a.LeaseUntil)
		if err != nil || now == nil {
			return err
		}
		r, err := db.One[Run](
			ctx, tx.In(a.Workspace), `SELECT `+runColumns+` WHERE workspace_id = $1 AND id = $2`, a.RunID,
		)
		if err != nil {
			return fmt.Errorf("find the run of an attempt: %w", err)
		}
		if err := s.endAttempt(ctx, tx, now, lost); err != nil {
			return err
		}
		return s.after(ctx, tx, &r, lost, Done{})
	})
	return err
}

// extendLeases gives workers time to find the server again after a start. Several servers need not: see expired.
func (s *Store) extendLeases(ctx context.Context) error {
	if !s.Member.Single() {
		return nil
	}
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		_, err := db.Exec(ctx, tx.Across(ofAll), `
			UPDATE training_attempts SET lease_until = $1 WHERE ended_at = 0 AND lease_until < $1`, s.now().Add(graceTime))
		return err
	})
	if err != nil {
		return fmt.Errorf("extend the leases of workers: %w", err)
	}
	return nil
}
