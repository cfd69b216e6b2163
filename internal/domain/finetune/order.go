package finetune

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// Jobs that other domains order: they are reserved with their budget first, and supplied with their examples later. Who
// ordered them is told of their end.

// Tell sets what is called in the transaction that ends a job with an Origin, with the model version that it made, if
// any. It is called before the store serves.
func (s *Store) Tell(f func(ctx context.Context, tx *db.Tx, r train.Run, versionID string) error) {
	s.tell = f
}

// Fill fills in what was not given of a job that is to be reserved, and reports the first rule that it breaks.
func (r *Request) Fill() error {
	r.defaults()
	return r.checkTraining()
}

// Reserve stores a job without examples, which waits until it is supplied. Its budget is set aside. in was filled, and
// has a seed.
func (s *Store) Reserve(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, in Request, start modelversion.Start, from Origin,
) (jobID string, err error) {
	jobID = id.New("ftjob")
	in.BaseModel = start.BaseModel
	return jobID, s.insert(ctx, tx, ws, by, newRun(jobID, &in, start), start, order{in, start.ParentID, &from}, -1)
}

// Supply gives a reserved job its examples, which are stored as a training file, and the job to the workers.
func (s *Store) Supply(
	ctx context.Context, tx *db.Tx, ws tenant.ID, jobID, name string, stored artifact.File, rows int64,
) error {
	scope := tx.In(ws)
	r, err := s.find(ctx, scope, jobID)
	if err != nil {
		return err
	}
	if r.Status != train.Validating {
		return fault.Conflict("the job is %s, and does not wait for examples", r.Status)
	}
	in, err := r.request()
	if err != nil {
		return err
	}
	f := File{
		ID: id.New("file"), Object: "file", Name: name, Purpose: "fine-tune", Format: Chat, Bytes: stored.Bytes,
		Rows: rows, Digest: string(stored.Digest), CreatedAt: clock.Now(),
	}
	if err := s.insertFile(ctx, tx, ws, tenant.Gate, f, stored); err != nil {
		return err
	}
	in.TrainingFile = f.ID
	text, err := json.Marshal(in, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("write a fine-tuning job: %w", err)
	}
	if _, err := db.Exec(ctx, scope, `UPDATE fine_tuning_jobs SET request = $3 WHERE workspace_id = $1 AND id = $2`,
		jobID, string(text)); err != nil {
		return fmt.Errorf("supply a fine-tuning job: %w", err)
	}
	if err := s.Artifacts.Refer(ctx, tx, ws, jobID, stored); err != nil {
		return err
	}
	weights, err := r.Inputs()
	if err != nil {
		return err
	}
	inputs := append([]train.Input{{Name: trains, File: stored}}, weights...)
	return s.Train.Prepared(
		ctx, tx, ws, kind, jobID, newSpec(&in.Request, Chat, inputs), in.Hyperparameters.steps(rows),
	)
}

// insertFile stores a file whose bytes are there.
func (s *Store) insertFile(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, f File, stored artifact.File,
) error {
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO training_files (workspace_id, id, name, format, digest, bytes, row_count, created_by, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		f.ID, f.Name, f.Format, f.Digest, f.Bytes, f.Rows, by.User, f.CreatedAt); err != nil {
		return fmt.Errorf("insert a training file: %w", err)
	}
	if err := s.Artifacts.Refer(ctx, tx, ws, f.ID, stored); err != nil {
		return err
	}
	return audit.Record(ctx, tx, ws, by, "training_file.create", f.ID, nil, f)
}

// Progress returns how far a job is, from 0 to 1.
func (s *Store) Progress(ctx context.Context, in db.Scoped, jobID string) (float64, error) {
	r, err := s.Train.Find(ctx, in, kind, jobID)
	return r.Progress(), err
}

// Cancel ends a job, if it has not ended.
func (s *Store) Cancel(ctx context.Context, ws tenant.ID, by tenant.Actor, jobID string) error {
	return s.Train.Want(ctx, ws, by, kind, jobID, train.Cancel, "")
}
