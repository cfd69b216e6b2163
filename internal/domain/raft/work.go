package raft

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/reward"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// samplesFile is what a sampling run makes.
const samplesFile = "samples.jsonl"

// A batch of samples is scored in one call. Those without a grade are asked about in so many calls.
const (
	batchSize = 128
	maxAsks   = 3
)

// A work is a job of a stage, with what it reads.
type work struct {
	*Store
	run     *job.Run
	r       *record
	prompts artifact.File
	samples artifact.File
	marks   marks
}

// A refusal ends the round.
type refusal struct{ code, message string }

func (e *refusal) Error() string { return e.message }

// score is the job that scores the samples of the model as it is, and picks those to train on.
func (s *Store) score(ctx context.Context, run *job.Run) error {
	return s.do(ctx, run, Scoring, func(ctx context.Context, w *work) (func(*db.Tx) error, error) {
		in, d := &w.r.Request.v, &w.r.Data.v
		won, rejected := w.marks.pick(int(d.Held), *in.MinGrade)
		w.r.Result.v = result{Accepted: int64(len(won)), Rejected: rejected, Before: w.marks.means(int(d.Held))}
		if len(won) == 0 {
			return nil, &refusal{"no_winners", fmt.Sprintf("no sample has a grade of at least %g: %s", *in.MinGrade,
				w.marks.quantiles(int(d.Held)))}
		}
		stored, err := w.winners(ctx, won)
		if err != nil {
			return nil, err
		}
		return func(tx *db.Tx) error {
			err := s.Jobs.Supply(ctx, tx, run.Workspace, w.r.JobID, "winners of "+w.r.ID, stored, int64(len(won)))
			if err != nil {
				return err
			}
			return s.advance(ctx, tx, w.r)
		}, nil
	})
}

// compare is the job that scores the samples of the new model, ends the round, and decides whether another follows.
func (s *Store) compare(ctx context.Context, run *job.Run) error {
	return s.do(ctx, run, Comparing, func(ctx context.Context, w *work) (func(*db.Tx) error, error) {
		came := &w.r.Result.v
		came.After = w.marks.means(int(w.r.Data.v.Held))
		gain := improvement(came.Before, came.After)
		came.Improvement = &gain
		follows := w.r.Round < w.r.Request.v.Rounds
		if follows && gain.Lower <= 0 {
			follows = false
			w.r.StoppedReason = fmt.Sprintf("the improvement is not proven: its lower bound is %.3f", gain.Lower)
		}
		return func(tx *db.Tx) error {
			if err := s.end(ctx, tx, w.r, tenant.Gate, Succeeded); err != nil {
				return err
			}
			if !follows {
				return s.release(ctx, tx, w.r)
			}
			return job.Queue(ctx, tx, run.Workspace, job.New{ID: followID(w.r.ID), Kind: followKind, Total: 1})
		}, nil
	})
}

// do does the job of a stage: it scores all samples, and then ends the stage in the transaction that ends the job. A
// refusal ends the round instead. A second run of the job finds everything that was scored, and pays for nothing again.
func (s *Store) do(
	ctx context.Context, run *job.Run, stage Stage, then func(context.Context, *work) (func(*db.Tx) error, error),
) error {
	w := &work{Store: s, run: run}
	err := w.begin(ctx, stage)
	if err != nil {
		return err
	}
	var finish func(*db.Tx) error
	if err = w.scoreAll(ctx); err == nil {
		finish, err = then(ctx, w)
	}
	refused, err := refusalOf(err)
	if err != nil {
		return err // it is tried again
	}
	return run.Finish(ctx, func(tx *db.Tx, tally *job.Tally) error {
		tally.Done = tally.Total
		now, err := s.find(ctx, tx.In(run.Workspace), w.r.ID)
		if err != nil || now.Status != Running || now.Stage != stage {
			return err // it was cancelled
		}
		now.Result, now.StoppedReason = w.r.Result, w.r.StoppedReason
		w.r = now
		if refused != nil {
			return s.fail(ctx, tx, w.r, refused.code, refused.message)
		}
		return finish(tx)
	})
}

// refusalOf returns what ends the round; otherwise it returns err as it is, which may be nil.
func refusalOf(err error) (*refusal, error) {
	var wrong *invalid
	var refused *refusal
	var known *fault.Fault
	switch {
	case errors.As(err, &refused):
		return refused, nil
	case errors.As(err, &wrong):
		return &refusal{"invalid_samples", "the worker's samples cannot be used: " + wrong.why}, nil
	case !errors.As(err, &known) || known.Status >= 500 || known.RetryAfter > 0:
		return nil, err
	case known.Kind == fault.SessionOverbudget:
		return &refusal{"budget_exhausted", known.Message}, nil
	case known.Kind == fault.AnchorHeld:
		return &refusal{"judge_held", known.Message}, nil
	}
	return &refusal{"scoring_refused", known.Message}, nil
}

// begin finds the samples of a stage.
func (w *work) begin(ctx context.Context, stage Stage) (err error) {
	in := w.DB.In(w.run.Workspace)
	if w.r, err = w.find(ctx, in, roundID(w.run.ID)); err != nil {
		return err
	}
	w.marks.perPrompt = int(w.r.Request.v.SamplesPerPrompt)
	sampledBy := w.r.SamplingID
	if w.prompts = w.r.Data.v.Prompts; stage == Comparing {
		sampledBy, w.prompts = w.r.MeasuringID, w.r.Data.v.HeldOut
	}
	last, err := w.Train.LastBefore(ctx, in, sampledBy, -1)
	if err != nil || last == nil {
		return err
	}
	for _, f := range last.Files {
		if f.Name == samplesFile {
			w.samples = f.File
		}
	}
	return nil
}

// each calls f with every sample.
func (w *work) each(ctx context.Context, f func(sample) error) error {
	if w.samples.Digest == "" {
		return refuse("the last checkpoint has no file %s", samplesFile)
	}
	prompts, err := w.Artifacts.Open(ctx, w.run.Workspace, w.prompts.Digest)
	if err != nil {
		return fmt.Errorf("open prompts: %w", err)
	}
	defer func() { _ = prompts.Close() }() // it was read
	samples, err := w.Artifacts.Open(ctx, w.run.Workspace, w.samples.Digest)
	if err != nil {
		return fmt.Errorf("open samples: %w", err)
	}
	defer func() { _ = samples.Close() }() // it was read
	for one, err := range read(prompts, samples, w.marks.perPrompt) {
		if err != nil {
			return err
		}
		if err := f(one); err != nil {
			return err
		}
	}
	return nil
}

// scoreAll scores every sample that is not empty and not said before. Nothing is scored unless all samples are valid.
func (w *work) scoreAll(ctx context.Context) error {
	if err := w.each(ctx, func(one sample) error { w.marks.add(one); return nil }); err != nil {
		return err
	}
	for range maxAsks {
		missing := 0
		batch := batch{work: w}
		err := w.each(ctx, func(one sample) error {
			place := one.at*w.marks.perPrompt + one.index
			if m := w.marks.all[place]; m.why != "" || m.scored {
				return nil
			}
			missing++
			return batch.add(ctx, one, place)
		})
		if err == nil {
			err = batch.score(ctx)
		}
		if err != nil || missing == 0 {
			return err
		}
	}
	return nil
}

// A batch is samples that are scored in one call.
type batch struct {
	*work
	items  []reward.ScoreItem
	places []int
	bytes  int
}

func (b *batch) add(ctx context.Context, one sample, place int) error {
	content, err := json.Marshal(one.content)
	if err != nil {
		return refuse("sample %d of the prompt %s is not a text", one.index, one.ID)
	}
	item := reward.ScoreItem{
		ID: fmt.Sprintf("%s.%d", one.ID, one.index), Messages: one.Messages, Completion: jsontext.Value(content),
	}
	b.items, b.places = append(b.items, item), append(b.places, place)
	if b.bytes += len(content); len(b.items) < batchSize && b.bytes < 4<<20 {
		return nil
	}
	return b.score(ctx)
}

// score scores what was added. What is pending after the time of a call is asked for again.
func (b *batch) score(ctx context.Context) error {
	for len(b.items) > 0 {
		scores, err := b.Rewards.Score(ctx, b.run.Workspace, b.r.SessionID, string(b.r.Stage), b.items)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch scores.Status {
		case reward.Active:
		case reward.Overbudget:
			return &refusal{"budget_exhausted", "the budget for judges is spent"}
		default:
			return &refusal{"scoring_refused", fmt.Sprintf("the reward session %s is %s", b.r.SessionID, scores.Status)}
		}
		items, places := b.items, b.places
		b.items, b.places, b.bytes = nil, nil, 0
		for i, got := range scores.Data {
			switch place := places[i]; {
			case got.Reward != nil:
				b.marks.all[place].scored, b.marks.all[place].grade = true, *got.Reward
			case slices.Contains(got.Flags, reward.FlagPending):
				b.items, b.places = append(b.items, items[i]), append(b.places, place)
			}
		}
		if err := b.run.Tx(ctx, func(_ *db.Tx, tally *job.Tally) error {
			tally.Done = b.marks.done()
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// winners stores the samples to train on, with their prompts, as a training file.
func (w *work) winners(ctx context.Context, won map[int]bool) (artifact.File, error) {
	from, to := io.Pipe()
	go func() {
		err := w.each(ctx, func(one sample) error {
			if !won[one.at*w.marks.perPrompt+one.index] {
				return nil
			}
			answer, err := json.Marshal(map[string]string{
				"role": "assistant", "content": one.content,
			}, json.Deterministic(true))
			if err != nil {
				return fmt.Errorf("write a winner: %w", err)
			}
			return writeLine(to, map[string]any{"messages": append(one.Messages, answer)})
		})
		_ = to.CloseWithError(err)
	}()
	stored, err := w.Artifacts.Add(ctx, w.run.Workspace, from, maxWinners)
	_ = from.CloseWithError(err)
	return stored, err
}

// maxWinners bounds the bytes of the samples that are trained on.
const maxWinners = 512 << 20

// follow is the job that begins the next round of a campaign, from the model that the last one made.
func (s *Store) follow(ctx context.Context, run *job.Run) error {
	r, err := s.find(ctx, s.DB.In(run.Workspace), roundID(run.ID))
	if err != nil {
		return err
	}
	err = run.Finish(ctx, func(tx *db.Tx, tally *job.Tally) error {
		tally.Done = 1
		return s.beginNext(ctx, tx, r.ID, run.Workspace)
	})
	if err == nil || errors.Is(err, job.ErrLost) || errors.Is(err, job.ErrCancelled) || ctx.Err() != nil {
		return err
	}
	var known *fault.Fault
	if !errors.As(err, &known) || known.Status >= 500 || known.RetryAfter > 0 {
		return err
	}
	if known.Kind == fault.InsufficientBalance {
		if open, err := s.unsettled(ctx, r); err != nil || open {
			return errors.Join(err, fault.Unavailable.New("the last round is not charged yet").In(time.Second))
		}
	}
	return run.Finish(ctx, func(tx *db.Tx, tally *job.Tally) error {
		tally.Done = 1
		r, err := s.find(ctx, tx.In(run.Workspace), roundID(run.ID))
		if err != nil {
			return err
		}
		r.StoppedReason = "the next round could not begin: " + known.Message
		if err := s.save(ctx, tx, r, r.Stage); err != nil {
			return err
		}
		return s.release(ctx, tx, r)
	})
}

// beginNext begins the round after one that has ended.
func (s *Store) beginNext(ctx context.Context, tx *db.Tx, lastID string, ws tenant.ID) error {
	last, err := s.find(ctx, tx.In(ws), lastID)
	if err != nil || last.NextID != "" {
		return err
	}
	start, err := s.Versions.Start(ctx, tx.In(ws), last.ModelVersionID)
	if err != nil {
		return err
	}
	session, err := s.Rewards.Get(tx.Bind(ctx), ws, last.SessionID)
	if err != nil {
		return err
	}
	by := tenant.Gate
	by.User = last.CreatedBy
	following := &record{
		ID: id.New("raft"), CampaignID: last.CampaignID, Round: last.Round + 1, Request: last.Request, Data: last.Data,
	}
	if following, err = s.begin(ctx, tx, ws, by, following, start, session.Budget); err != nil {
		return err
	}
	last.NextID = following.ID
	if err := s.save(ctx, tx, last, last.Stage); err != nil {
		return err
	}
	return s.release(ctx, tx, last)
}
