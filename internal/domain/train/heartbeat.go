package train

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
)

// A Beat is a heartbeat. Number counts up within an attempt: one that is sent twice meters nothing the second time.
type Beat struct {
	Number     int64 `json:"number" minimum:"1"`
	Step       int64 `json:"step" minimum:"0"`
	TotalSteps int64 `json:"total_steps" minimum:"0"`
	Tokens     int64 `json:"tokens" minimum:"0" doc:"Trained so far, over all attempts"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Beat) SchemaName() string { return "WorkerHeartbeat" }

// An Order is the answer to a heartbeat.
type Order struct {
	Command Command `json:"command" enum:"continue,checkpoint_and_stop,stop"`
	Reason  string  `json:"reason" doc:"Why, in words; empty to continue"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Order) SchemaName() string { return "WorkerOrder" }

// Heartbeat accepts a heartbeat: it meters the time since the one before, extends the lease, and says what to do. The
// time before the first and after the last accepted heartbeat is not metered.
func (s *Store) Heartbeat(ctx context.Context, w Worker, h LeaseRef, b Beat) (Order, error) {
	var order Order
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		r, a, err := s.running(ctx, tx, w, h)
		if err != nil {
			return err
		}
		if b.Number > a.Beat {
			a.meter(s.now())
			a.Beat = b.Number
			if err := s.saveBeat(ctx, tx, r, a, b); err != nil {
				return err
			}
		}
		if err := s.decide(ctx, tx, r, a); err != nil {
			return err
		}
		if order = (Order{Command: commands[r.Wanted]}); r.Wanted != GoOn {
			order.Reason = reasons[r.Wanted]
		}
		if r.PausedReason != "" && r.Wanted == Pause {
			order.Reason = r.PausedReason
		}
		if r.Wanted != Broke {
			return nil
		}
		left, err := s.left(tx.Bind(ctx), r, a.cost())
		if a.cost() >= left {
			order.Command = Stop
		}
		return err
	})
	return order, err
}

var reasons = map[Wanted]string{
	Pause: "the run was paused", Cancel: "the run was cancelled", Broke: "the budget is spent",
}

// meter adds the time since the last heartbeat. Time beyond the lease is free: the worker was not known to train.
func (a *attempt) meter(now clock.Time) {
	if a.BeatAt != 0 && now > a.BeatAt {
		a.Metered += min(int64(now-a.BeatAt), leaseTime.Microseconds())
	}
	a.BeatAt = max(now, a.BeatAt)
	a.LeaseUntil = a.BeatAt.Add(leaseTime)
}

// seconds returns the whole seconds of all GPUs that were metered.
func (a *attempt) seconds() int64 { return a.Metered * a.GPUCount / 1_000_000 }

// cost returns what the metered time costs.
func (a *attempt) cost() money.Nano { return a.costOf(a.seconds()) }

func (a *attempt) costOf(seconds int64) money.Nano {
	return live.Rates{GPUSecond: a.Rate}.Of(live.Usage{GPUSeconds: seconds})
}

func (s *Store) saveBeat(ctx context.Context, tx *db.Tx, r *Run, a *attempt, b Beat) error {
	if _, err := db.Exec(ctx, tx.In(a.Workspace), `
		UPDATE training_attempts SET beat = $4, beat_at = $5, metered = $6, lease_until = $7
		WHERE workspace_id = $1 AND run_id = $2 AND attempt = $3`,
		a.RunID, a.Attempt, a.Beat, a.BeatAt, a.Metered, a.LeaseUntil); err != nil {
		return fmt.Errorf("save a heartbeat: %w", err)
	}
	if _, err := db.Exec(ctx, tx.In(r.Workspace), `
		UPDATE training_runs SET step = $3, total_steps = $4, tokens = $5 WHERE workspace_id = $1 AND id = $2`,
		r.ID, b.Step, max(b.TotalSteps, b.Step), b.Tokens); err != nil {
		return fmt.Errorf("save the progress of a run: %w", err)
	}
	return nil
}

// decide asks a run to stop whose budget is nearly spent, or which its domain holds. It stops while the heartbeats that
// it may take are still covered.
func (s *Store) decide(ctx context.Context, tx *db.Tx, r *Run, a *attempt) error {
	const margin = 2 // heartbeats
	reserve := a.costOf(margin * int64(beatEvery.Seconds()) * a.GPUCount)
	if r.Wanted != Cancel && r.Wanted != Broke {
		left, err := s.left(tx.Bind(ctx), r, a.cost()+reserve)
		if err != nil {
			return err
		}
		if a.cost()+reserve > left {
			return s.want(ctx, tx, r, Broke, "")
		}
	}
	hook := s.hooks[r.Kind].Look
	if r.Wanted != GoOn || hook == nil {
		return nil
	}
	wanted, reason, err := hook(ctx, *r)
	if err != nil || wanted == GoOn {
		return err
	}
	r.PausedReason = reason
	return s.want(ctx, tx, r, wanted, reason)
}

// left returns what is not spent of a run's budget. It may be less, but not less than enough because of what other
// servers have of it.
func (s *Store) left(ctx context.Context, r *Run, enough money.Nano) (money.Nano, error) {
	left, err := s.Holds.Left(ctx, r.Workspace, r.ID, enough)
	if err != nil {
		return 0, fmt.Errorf("read what is left of the budget of %s: %w", r.ID, err)
	}
	return left, nil
}
