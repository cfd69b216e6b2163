package grpo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// prepareKind is the job that writes the prompts of a run as a file.
const prepareKind = "grpo_data"

func prepareID(runID string) string { return "grpodata" + strings.TrimPrefix(runID, "grpo") }

const (
	promptFile = "prompts.jsonl"
	maxPrompts = 512 << 20 // bytes of all prompts
)

// prepare is the job that writes the prompts of a run, and gives it to the workers. What it writes is named by its
// content, so that a second run writes the same.
func (s *Store) prepare(ctx context.Context, run *job.Run) error {
	runID := "grpo" + strings.TrimPrefix(run.ID, "grpodata")
	r, err := s.find(ctx, s.DB.In(run.Workspace), runID)
	if err != nil {
		return err
	}
	in, err := r.request()
	if err != nil {
		return err
	}
	weights, err := r.Inputs()
	if err != nil {
		return err
	}
	stored, err := s.prompts(ctx, run.Workspace, &in.Request)
	refused := fault.From(err)
	if err != nil && refused.Status >= 500 {
		return err // it is tried again
	}
	return run.Finish(ctx, func(tx *db.Tx, tally *job.Tally) error {
		tally.Done = 1
		if err != nil {
			return s.Train.Fail(ctx, tx, run.Workspace, kind, runID, "invalid_data", refused.Message)
		}
		tools, err := s.tools(ctx, tx.In(run.Workspace), &in.Request)
		if err != nil {
			return s.Train.Fail(ctx, tx, run.Workspace, kind, runID, "invalid_data", fault.From(err).Message)
		}
		if err := s.Artifacts.Refer(ctx, tx, run.Workspace, runID, stored); err != nil {
			return err
		}
		inputs := slices.Concat(weights, []train.Input{{Name: promptFile, File: stored}})
		return s.Train.Prepared(ctx, tx, run.Workspace, kind, runID, newSpec(&in.Request, tools, inputs), in.MaxSteps)
	})
}

// prompts stores the prompts of a run: the conversations of its dataset without their last answers.
func (s *Store) prompts(ctx context.Context, ws tenant.ID, in *Request) (artifact.File, error) {
	d, err := s.Datasets.Get(ctx, ws, in.DatasetID)
	if err != nil {
		return artifact.File{}, err
	}
	wanted := in.PromptCount
	if wanted == 0 || wanted > d.Rows {
		wanted = d.Rows
	}
	read, write := io.Pipe()
	go func() {
		n, at := int64(0), int64(0)
		for line, err := range s.Datasets.Lines(ctx, ws, &d) {
			if err != nil {
				_ = write.CloseWithError(err)
				return
			}
			if at++; n*d.Rows/max(wanted, 1) > at-1 { // evenly spread over the dataset
				continue
			}
			text, err := prompt(line.Line)
			if err == nil {
				_, err = write.Write(text)
			}
			if err != nil && !errors.Is(err, errNoPrompt) {
				_ = write.CloseWithError(err)
				return
			}
			n++
		}
		_ = write.Close()
	}()
	stored, err := s.Artifacts.Add(ctx, ws, read, maxPrompts)
	_ = read.CloseWithError(err)
	if err == nil && stored.Bytes == 0 {
		err = fault.InvalidParameter.New("the dataset %s has no conversation with a prompt", in.DatasetID)
	}
	return stored, err
}

// errNoPrompt says that an example has nothing before its answer.
var errNoPrompt = errors.New("no prompt")

// prompt returns an example without its last answer, as a line.
func prompt(line []byte) ([]byte, error) {
	var example struct {
		Messages []jsontext.Value `json:"messages"`
	}
	if err := json.Unmarshal(line, &example); err != nil {
		return nil, fmt.Errorf("read an example: %w", err)
	}
	if len(example.Messages) < 2 {
		return nil, errNoPrompt
	}
	example.Messages = example.Messages[:len(example.Messages)-1]
	text, err := json.Marshal(example)
	return append(text, '\n'), err
}

// heldPrefix begins the reason of a run that its anchor holds.
const heldPrefix = "held: "

// look holds a run whose reward session is held, and ends one whose session has ended.
func (s *Store) look(ctx context.Context, r train.Run) (train.Wanted, string, error) {
	sessionID, err := db.Maybe[string](ctx, s.DB.In(r.Workspace),
		`SELECT session_id FROM grpo_runs WHERE workspace_id = $1 AND id = $2`, r.ID)
	if err != nil || sessionID == nil {
		return train.GoOn, "", err
	}
	session, err := s.Rewards.Get(ctx, r.Workspace, *sessionID)
	switch {
	case err != nil:
		return train.GoOn, "", err
	case session.Anchor.Held:
		reason := "the reward diverged from the anchor"
		if session.Anchor.HeldReason != nil {
			reason = *session.Anchor.HeldReason
		}
		return train.Pause, heldPrefix + reason, nil
	case session.Status == reward.Overbudget:
		return train.Broke, "the budget for rewards is spent", nil
	case session.Status != reward.Active:
		return train.Broke, "the reward session is " + string(session.Status), nil
	}
	return train.GoOn, "", nil
}

// resumeReleased lets runs go on whose sessions were released.
func (s *Store) resumeReleased(ctx context.Context) error {
	paused, err := db.Query[train.Run](ctx, s.DB.Across("runs of all workspaces are resumed"), `
		SELECT workspace_id, id FROM training_runs WHERE kind = 'grpo_run' AND status = 'PAUSED' AND paused_reason LIKE 'held: %'
		LIMIT 100`)
	if err != nil {
		return fmt.Errorf("find held runs: %w", err)
	}
	for _, r := range paused {
		wanted, _, err := s.look(ctx, r)
		if err != nil {
			return err
		}
		switch wanted {
		case train.GoOn:
			err = s.Train.Resume(ctx, r.Workspace, tenant.Gate, kind, r.ID)
		case train.Broke:
			err = s.Train.Want(ctx, r.Workspace, tenant.Gate, kind, r.ID, train.Cancel, "")
		default:
		}
		if err != nil && fault.From(err).Kind != fault.Conflicting {
			return err
		}
	}
	return nil
}

// watch resumes released runs, and evaluates candidates, until ctx ends. One node does it for all.
func (s *Store) watch(ctx context.Context, serving func() error) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if serving() != nil {
			continue
		}
		if leads, err := s.Train.Leads(ctx); err != nil || !leads {
			continue
		}
		if err := s.resumeReleased(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("cannot resume released GRPO runs; it is tried again", "err", err)
		}
		if err := s.evaluate(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("cannot evaluate candidates of GRPO runs; it is tried again", "err", err)
		}
	}
}

// ended ends the reward session of a run, and makes a candidate of its last checkpoint: of a held run, the last one
// that passed a check of the anchor.
func (s *Store) ended(ctx context.Context, tx *db.Tx, run train.Run) error {
	if err := s.Artifacts.Release(ctx, tx, run.Workspace, run.ID); err != nil {
		return err
	}
	r, err := s.find(ctx, tx.In(run.Workspace), run.ID)
	if err != nil {
		return err
	}
	in, err := r.request()
	if err != nil {
		return err
	}
	session, err := s.Rewards.Get(ctx, run.Workspace, r.SessionID)
	if err != nil {
		return err
	}
	if session.Status == reward.Active {
		if _, err := s.Rewards.Complete(tx.Bind(ctx), run.Workspace, tenant.Gate, r.SessionID); err != nil {
			return err
		}
	}
	last, err := s.Train.LastBefore(ctx, tx.In(run.Workspace), run.ID, limit(&session))
	if err != nil || last == nil {
		return err
	}
	return s.addCandidate(ctx, tx, &run, in, &session, last)
}

// limit returns the last step that a candidate may be of: -1 for any.
func limit(session *reward.Session) int64 {
	if !session.Anchor.Held {
		return -1
	}
	if session.Anchor.PinnedStep == nil {
		return 0
	}
	step, err := strconv.ParseInt(*session.Anchor.PinnedStep, 10, 64)
	if err != nil {
		return 0
	}
	return step
}

func (s *Store) addCandidate(
	ctx context.Context, tx *db.Tx, run *train.Run, in *order, session *reward.Session, c *train.Checkpoint,
) error {
	info, err := s.Train.WorkerOf(ctx, tx.In(run.Workspace), run.ID, run.Attempt)
	if err != nil {
		return err
	}
	inputs, err := run.Inputs()
	if err != nil {
		return err
	}
	shown, err := json.Marshal(newSpec(&in.Request, nil, nil).Hyperparameters)
	if err != nil {
		return fmt.Errorf("write hyperparameters: %w", err)
	}
	proof := modelversion.Proof{
		Name: train.ModelName(in.BaseModel, in.Suffix, run.ID), BaseModel: run.BaseModel, Method: run.Method,
		Seed: *in.Seed, ParentID: maybe(in.ParentID), DatasetID: maybe(in.DatasetID),
		Source: modelversion.Source{Type: kind, ID: run.ID, Step: c.Step}, Hyperparams: shown, Certificates: []string{},
		Data: []modelversion.Data{},
		Code: map[string]string{"server": s.Release, "worker": info.Release, "engine": info.Engine},
	}
	for _, certificate := range session.Certificates {
		proof.Certificates = append(proof.Certificates, certificate.ID)
	}
	for _, f := range inputs {
		if f.Name == promptFile {
			proof.Data = append(proof.Data, modelversion.Data{Name: f.Name, ID: in.DatasetID, SHA256: f.Digest})
		}
	}
	made, err := s.Versions.Create(ctx, tx, run.Workspace, tenant.Gate, modelversion.New{Proof: proof, Files: c.Files})
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, tx.In(run.Workspace), `
		INSERT INTO grpo_candidates (workspace_id, id, run_id, step, model_version_id, eval_id, gate, created_at)
		VALUES ($1, $2, $3, $4, $5, '', '', $6)`, id.New("cand"), run.ID, c.Step, made.ID, clock.Now()); err != nil {
		return fmt.Errorf("insert a candidate: %w", err)
	}
	return nil
}
