package finetune

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// prepare is the job that writes the data of a fine-tuning job, and gives it to the workers. What it writes is named by
// its content, so that a second run writes the same.
func (s *Store) prepare(ctx context.Context, run *job.Run) error {
	jobID := "ftjob" + strings.TrimPrefix(run.ID, "ftdata")
	r, err := s.find(ctx, s.DB.In(run.Workspace), jobID)
	if err != nil {
		return err
	}
	in, err := r.request()
	if err != nil {
		return err
	}
	inputs, err := r.Inputs() // the weights that it begins with
	if err != nil {
		return err
	}
	var first Summary
	sources, err := s.sources(ctx, run.Workspace, &in.Request)
	if err == nil {
		for i, from := range sources {
			stored, sum, failed := s.write(ctx, run.Workspace, from)
			if err = failed; err != nil {
				break
			}
			if i == 0 {
				first = sum
			}
			inputs = append(inputs, train.Input{Name: [...]string{trains, validates}[i], File: stored})
		}
	}
	refused := fault.From(err)
	if err != nil && refused.Status >= 500 {
		return err // it is tried again
	}
	return run.Finish(ctx, func(tx *db.Tx, tally *job.Tally) error {
		tally.Done = 1
		if err != nil {
			return s.Train.Fail(ctx, tx, run.Workspace, kind, jobID, "invalid_data", refused.Message)
		}
		for _, f := range inputs {
			if err := s.Artifacts.Refer(ctx, tx, run.Workspace, jobID, f.File); err != nil {
				return err
			}
		}
		return s.Train.Prepared(ctx, tx, run.Workspace, kind, jobID, newSpec(&in.Request, first.Format, inputs),
			in.Hyperparameters.steps(first.Rows))
	})
}

// A source writes examples.
type source func(ctx context.Context, to io.Writer) error

// sources returns what writes the examples of a request: those that train, and perhaps those that validate.
func (s *Store) sources(ctx context.Context, ws tenant.ID, in *Request) ([]source, error) {
	if in.RewardSessionID != "" {
		return []source{func(ctx context.Context, to io.Writer) error {
			return s.Rewards.Examples(ctx, ws, in.RewardSessionID, in.Method, to)
		}}, nil
	}
	d, err := s.Datasets.Get(ctx, ws, in.DatasetID)
	if err != nil {
		return nil, err
	}
	all := []source{s.linesOf(ws, d)}
	if d.HoldoutID != nil {
		held, err := s.Datasets.Get(ctx, ws, *d.HoldoutID)
		switch {
		case err == nil && held.Rows > 0:
			all = append(all, s.linesOf(ws, held))
		case err != nil && fault.From(err).Kind != fault.Missing: // it may have been deleted
			return nil, err
		}
	}
	return all, nil
}

func (s *Store) linesOf(ws tenant.ID, d dataset.Dataset) source {
	return func(ctx context.Context, to io.Writer) error {
		for line, err := range s.Datasets.Lines(ctx, ws, &d) {
			if err != nil {
				return err
			}
			if _, err := to.Write(append(line.Line, '\n')); err != nil {
				return err
			}
		}
		return nil
	}
}

// write stores what a source writes, and checks it like an uploaded file.
func (s *Store) write(ctx context.Context, ws tenant.ID, from source) (artifact.File, Summary, error) {
	read, write := io.Pipe()
	written := make(chan error, 1)
	go func() {
		out := bufio.NewWriterSize(write, 64<<10)
		err := from(ctx, out)
		if err == nil {
			err = out.Flush()
		}
		_ = write.CloseWithError(err)
		written <- err
	}()
	stored, sum, err := s.stage(ctx, ws, read)
	_ = read.CloseWithError(err)
	if failed := <-written; failed != nil && err == nil {
		err = failed
	}
	return stored, sum, err
}

// ended makes a model version of a job that succeeded, in the transaction that ends it, and tells what it is a part of.
func (s *Store) ended(ctx context.Context, tx *db.Tx, run train.Run) error {
	if err := s.Artifacts.Release(ctx, tx, run.Workspace, run.ID); err != nil { // its inputs
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
	versionID := ""
	if run.Status == train.Succeeded {
		if versionID, err = s.version(ctx, tx, &run, in); err != nil {
			return err
		}
	}
	if in.Origin == nil || s.tell == nil {
		return nil
	}
	return s.tell(ctx, tx, run, versionID)
}

// version makes the model version of a job: of the checkpoint with the lowest validation loss, or of the last one
// without validation.
func (s *Store) version(ctx context.Context, tx *db.Tx, run *train.Run, in *order) (string, error) {
	best, err := s.Train.Best(ctx, tx.In(run.Workspace), run.ID, "eval_loss")
	if err != nil {
		return "", err
	}
	info, err := s.Train.WorkerOf(ctx, tx.In(run.Workspace), run.ID, run.Attempt)
	if err != nil {
		return "", err
	}
	inputs, err := run.Inputs()
	if err != nil {
		return "", err
	}
	shown, err := json.Marshal(in.Hyperparameters.shown())
	if err != nil {
		return "", fmt.Errorf("write hyperparameters: %w", err)
	}
	proof := modelversion.Proof{
		Name: train.ModelName(in.BaseModel, in.Suffix, run.ID), BaseModel: run.BaseModel, Method: run.Method,
		Seed: *in.Seed, DatasetID: maybe(in.DatasetID), ParentID: maybe(in.ParentID),
		Source: modelversion.Source{Type: kind, ID: run.ID, Step: best.Step}, Certificates: []string{},
		Data: []modelversion.Data{}, Hyperparams: shown,
		Code: map[string]string{"server": s.Release, "worker": info.Release, "engine": info.Engine},
	}
	sources := map[string]string{
		trains: in.TrainingFile + in.DatasetID + in.RewardSessionID, validates: in.ValidationFile,
	}
	for _, f := range inputs {
		if from, ok := sources[f.Name]; ok {
			proof.Data = append(proof.Data, modelversion.Data{Name: f.Name, ID: from, SHA256: f.Digest})
		}
	}
	if from := in.Origin; from != nil {
		proof.Source.Type, proof.Source.ID, proof.DatasetID = from.Source, from.ID, maybe(from.DatasetID)
		proof.Certificates = append(proof.Certificates, from.Certificates...)
	}
	made, err := s.Versions.Create(ctx, tx, run.Workspace, tenant.Operator, modelversion.New{
		Proof: proof, Files: best.Files,
	})
	if err != nil {
		return "", err
	}
	if _, err := db.Exec(ctx, tx.In(run.Workspace), `UPDATE fine_tuning_jobs SET model_version_id = $3
		WHERE workspace_id = $1 AND id = $2`, run.ID, made.ID); err != nil {
		return "", fmt.Errorf("name the model version of a job: %w", err)
	}
	return made.ID, nil
}
