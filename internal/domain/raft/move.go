package raft

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
	"sovereign/internal/store/notice"
)

// The jobs of rounds, by the stage that they do. followKind begins the next round.
var workKinds = map[Stage]string{Scoring: "raft_scoring", Comparing: "raft_comparing"}

const followKind = "raft_next"

// workID is the id of the job that does a stage of a round.
func workID(stage Stage, roundID string) string {
	return "raft" + string(stage) + strings.TrimPrefix(roundID, "raft")
}

func followID(roundID string) string { return "raftnext" + strings.TrimPrefix(roundID, "raft") }

// roundID is the round of a job.
func roundID(jobID string) string { return "raft" + jobID[strings.IndexByte(jobID, '_'):] }

// advance moves a running round to its next stage, and queues the job of that stage, if it is one.
func (s *Store) advance(ctx context.Context, tx *db.Tx, r *record) error {
	from := r.Stage
	r.Stage = next[from]
	if err := s.save(ctx, tx, r, from); err != nil {
		return err
	}
	kind, ok := workKinds[r.Stage]
	if !ok {
		return nil
	}
	prompts := r.Data.v.Count
	if r.Stage == Comparing {
		prompts = r.Data.v.Held
	}
	return job.Queue(ctx, tx, r.Workspace, job.New{
		ID: workID(r.Stage, r.ID), Kind: kind, Total: prompts * r.Request.v.SamplesPerPrompt,
	})
}

// sampled is told of a sampling run that has ended.
func (s *Store) sampled(ctx context.Context, tx *db.Tx, run train.Run) error {
	if err := s.Artifacts.Release(ctx, tx, run.Workspace, run.ID); err != nil { // its inputs
		return err
	}
	for _, of := range []struct {
		name  string
		stage Stage
	}{{"sampling_id", Sampling}, {"measuring_id", Measuring}} {
		r, err := s.findBy(ctx, tx.In(run.Workspace), of.name, run.ID)
		if err != nil {
			return err
		}
		if r != nil && r.Status == Running {
			return s.ranTo(ctx, tx, r, of.stage, run, s.advance)
		}
	}
	return nil
}

// trained is told of a fine-tuning job that has ended.
func (s *Store) trained(ctx context.Context, tx *db.Tx, run train.Run, versionID string) error {
	r, err := s.findBy(ctx, tx.In(run.Workspace), "job_id", run.ID)
	if err != nil || r == nil || r.Status != Running {
		return err
	}
	return s.ranTo(ctx, tx, r, Training, run, func(ctx context.Context, tx *db.Tx, r *record) error {
		r.ModelVersionID = versionID
		return s.measureNext(ctx, tx, r)
	})
}

// ranTo goes on with a round whose run has ended: as the run did, if it did not succeed.
func (s *Store) ranTo(
	ctx context.Context, tx *db.Tx, r *record, stage Stage, run train.Run,
	then func(context.Context, *db.Tx, *record) error,
) error {
	switch {
	case run.Status == train.Succeeded && r.Stage == stage:
		return then(ctx, tx, r)
	case run.Status == train.Failed:
		return s.fail(ctx, tx, r, run.ErrorCode, fmt.Sprintf("%s: %s", stage, run.ErrorMessage))
	case run.Status == train.Cancelled:
		return s.end(ctx, tx, r, tenant.Gate, Cancelled)
	}
	return nil
}

// measureNext gives the run that samples the new model to the workers.
func (s *Store) measureNext(ctx context.Context, tx *db.Tx, r *record) error {
	start, err := s.Versions.Start(ctx, tx.In(r.Workspace), r.ModelVersionID)
	if err != nil {
		return err
	}
	if err := s.Versions.Refer(ctx, tx, r.Workspace, r.MeasuringID, start); err != nil {
		return err
	}
	if err := s.Artifacts.Refer(ctx, tx, r.Workspace, r.MeasuringID, r.Data.v.HeldOut); err != nil {
		return err
	}
	inputs := append([]train.Input{{Name: "prompts.jsonl", File: r.Data.v.HeldOut}}, start.Inputs...)
	told := newSpec(&r.Request.v, r.Round, inputs)
	if err := s.Train.Prepared(ctx, tx, r.Workspace, runKind, r.MeasuringID, told, r.Data.v.Held); err != nil {
		return err
	}
	return s.advance(ctx, tx, r)
}

// fail ends a round with a reason.
func (s *Store) fail(ctx context.Context, tx *db.Tx, r *record, code, message string) error {
	r.ErrorCode, r.ErrorMessage = code, message
	return s.end(ctx, tx, r, tenant.Gate, Failed)
}

// ends are what the audit trail calls the ends of rounds.
var ends = map[Status]string{Succeeded: "succeed", Failed: "fail", Cancelled: "cancel"}

// end ends a running round, and what it has not used: runs, the fine-tuning job and the reward session with their
// holds.
func (s *Store) end(ctx context.Context, tx *db.Tx, r *record, by tenant.Actor, to Status) error {
	r.Status, r.FinishedAt = to, clock.Now()
	if err := s.save(ctx, tx, r, r.Stage); err != nil {
		return err
	}
	bound := tx.Bind(ctx)
	for _, runID := range []string{r.SamplingID, r.MeasuringID} {
		if err := notEnded(s.Train.Want(bound, r.Workspace, by, runKind, runID, train.Cancel, "")); err != nil {
			return err
		}
	}
	if err := notEnded(s.Jobs.Cancel(bound, r.Workspace, by, r.JobID)); err != nil {
		return err
	}
	finish := s.Rewards.Stop
	if to == Succeeded {
		finish = func(ctx context.Context, ws tenant.ID, by tenant.Actor, id string) (reward.Session, error) {
			done, err := s.Rewards.Complete(ctx, ws, by, id)
			if err == nil {
				return done, nil
			}
			if k := fault.From(err).Kind; k == fault.SessionNotActive || k == fault.SessionOverbudget {
				return done, nil // it has ended otherwise, when everything was scored
			}
			return done, err
		}
	}
	if _, err := finish(bound, r.Workspace, by, r.SessionID); err != nil {
		return err
	}
	if err := s.tell(ctx, tx, r); err != nil {
		return err
	}
	if to != Succeeded { // else the next round may need its prompts
		if err := s.release(ctx, tx, r); err != nil {
			return err
		}
	}
	return audit.Record(ctx, tx, r.Workspace, by, object+"."+ends[to], r.ID, nil, map[string]string{
		"stage": string(r.Stage), "code": r.ErrorCode, "message": r.ErrorMessage,
	})
}

// notEnded lets pass that a run has ended already.
func notEnded(err error) error {
	if err != nil && fault.From(err).Kind == fault.Conflicting {
		return nil
	}
	return err
}

// tell tells people that a round has ended by itself.
func (s *Store) tell(ctx context.Context, tx *db.Tx, r *record) error {
	n := notice.Notice{Kind: notice.JobEnded, Subject: r.ID, Link: "training/rounds/" + r.ID}
	switch r.Status {
	case Failed:
		n.Title = "A RAFT round has failed"
		n.Text = fmt.Sprintf("Round %s has failed while %s: %s", r.ID, r.Stage, r.ErrorMessage)
	case Succeeded:
		n.Title = "A RAFT round is done"
		n.Text = fmt.Sprintf("Round %s is done. The reward changed by %+.3f (at 95 %%: %+.3f to %+.3f).", r.ID,
			r.Result.v.Improvement.Mean, r.Result.v.Improvement.Lower, r.Result.v.Improvement.Upper)
	default:
		return nil
	}
	return notice.Add(ctx, tx, r.Workspace, n)
}

// Cancel ends a round. To cancel it again is a no-op.
func (s *Store) Cancel(ctx context.Context, ws tenant.ID, by tenant.Actor, roundID string) (Round, error) {
	err := s.Feed.Change(ctx, func(tx *db.Tx) error {
		r, err := s.find(ctx, tx.In(ws), roundID)
		switch {
		case err != nil:
			return err
		case r.Status == Cancelled:
			return nil
		case r.Status != Running:
			return fault.Conflict("the round is %s already", r.Status)
		}
		if err := s.end(ctx, tx, r, by, Cancelled); err != nil {
			return err
		}
		if _, working := workKinds[r.Stage]; !working {
			return nil
		}
		_, err = job.Cancel(ctx, tx, ws, by, workID(r.Stage, r.ID))
		return notEnded(err)
	})
	if err != nil {
		return Round{}, err
	}
	return s.Get(ctx, ws, roundID)
}

// release lets the prompts of a round go that no other round has.
func (s *Store) release(ctx context.Context, tx *db.Tx, r *record) error {
	return s.Artifacts.Release(ctx, tx, r.Workspace, r.ID)
}

// sweep fails rounds whose job has failed.
func (s *Store) sweep(ctx context.Context) error {
	stuck, err := db.Query[record](ctx, s.DB.Across("rounds of all workspaces are ended"), `
		SELECT `+columns+` WHERE finished_at = 0 AND stage IN ('scoring', 'comparing') AND EXISTS (SELECT 1 FROM jobs
			WHERE jobs.workspace_id = raft_rounds.workspace_id AND jobs.status = 'FAILED'
				AND jobs.id = 'raft' || raft_rounds.stage || SUBSTR(raft_rounds.id, 5)) ORDER BY created_at LIMIT 100`)
	if err != nil {
		return fmt.Errorf("find rounds whose jobs have failed: %w", err)
	}
	var failed error
	for _, r := range stuck {
		failed = errors.Join(failed, s.Feed.Change(ctx, func(tx *db.Tx) error {
			now, err := s.find(ctx, tx.In(r.Workspace), r.ID)
			if err != nil || now.Status != Running {
				return err
			}
			return s.fail(ctx, tx, now, "internal_error", "the job of the stage "+string(now.Stage)+" has failed")
		}))
	}
	return failed
}
