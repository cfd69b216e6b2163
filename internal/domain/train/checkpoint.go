package train

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
)

// An Upload is where a worker sends a file to. Without a URL it posts the file to the server.
type Upload struct {
	artifact.File
	Stored bool `json:"stored" doc:"It is there already"`
	artifact.Transfer
}

// SchemaName is the type's name in the OpenAPI document.
func (Upload) SchemaName() string { return "WorkerUpload" }

// Offer returns where a worker sends the files of a checkpoint to.
func (s *Store) Offer(ctx context.Context, w Worker, h LeaseRef, files []artifact.File) ([]Upload, error) {
	ws, err := s.workspaceOf(ctx, w, h)
	if err != nil {
		return nil, err
	}
	all := make([]Upload, len(files))
	for i, f := range files {
		to, err := s.Artifacts.Offer(ctx, ws, f)
		if err != nil {
			return nil, err
		}
		if all[i] = (Upload{File: f, Stored: to == nil}); to != nil {
			all[i].Transfer = *to
		}
	}
	return all, nil
}

// workspaceOf returns the workspace of a lease that has not ended.
func (s *Store) workspaceOf(ctx context.Context, w Worker, h LeaseRef) (tenant.ID, error) {
	r, _, err := s.running(ctx, s.DB, w, h)
	if err != nil {
		return "", err
	}
	return r.Workspace, nil
}

// A Saved is a checkpoint whose files a worker has sent.
type Saved struct {
	Step    int64              `json:"step" minimum:"0"`
	Files   []Member           `json:"files" minItems:"1" maxItems:"2000"`
	Metrics map[string]float64 `json:"metrics,omitempty" maxProperties:"100"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Saved) SchemaName() string { return "WorkerCheckpoint" }

// Save commits a checkpoint: every file of its manifest is stored by then. The same checkpoint again is a no-op;
// another one of the same step, which a resumed attempt makes, replaces it.
func (s *Store) Save(ctx context.Context, w Worker, h LeaseRef, in Saved) (Checkpoint, error) {
	m, err := newManifest(in.Files)
	if err != nil {
		return Checkpoint{}, err
	}
	ws, err := s.workspaceOf(ctx, w, h)
	if err != nil {
		return Checkpoint{}, err
	}
	for _, f := range m {
		if err := s.Artifacts.Stored(ctx, ws, f.File); err != nil {
			return Checkpoint{}, err
		}
	}
	c := Checkpoint{ID: id.New("ckpt"), RunID: h.RunID, Step: in.Step, Attempt: h.Attempt, Files: m, Bytes: m.Bytes()}
	if c.Digest, err = m.Digest(); err != nil {
		return Checkpoint{}, err
	}
	text, err := metrics(in.Metrics)
	if err != nil {
		return Checkpoint{}, err
	}
	c.Metrics = jsontext.Value(text)
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		r, _, err := s.running(ctx, tx, w, h)
		if err != nil {
			return err
		}
		before, err := s.checkpointAt(ctx, tx.In(ws), r.ID, in.Step)
		switch {
		case err != nil:
			return err
		case before != nil && before.Digest == c.Digest:
			c = *before
			return nil
		}
		return s.commit(ctx, tx, r, before, &c)
	})
	return c, err
}

// commit stores a checkpoint in place of the one before.
func (s *Store) commit(ctx context.Context, tx *db.Tx, r *Run, before, c *Checkpoint) error {
	in := tx.In(r.Workspace)
	if before != nil {
		if _, err := db.Exec(ctx, in, `DELETE FROM training_checkpoints WHERE workspace_id = $1 AND run_id = $2 AND step = $3`,
			r.ID, c.Step); err != nil {
			return fmt.Errorf("replace a checkpoint: %w", err)
		}
		if err := s.Artifacts.Release(ctx, tx, r.Workspace, before.ID); err != nil {
			return err
		}
	}
	files, err := c.Files.Text()
	if err != nil {
		return err
	}
	c.CreatedAt = s.now()
	if _, err := db.Exec(ctx, in, `
		INSERT INTO training_checkpoints (workspace_id, run_id, step, id, attempt, files, digest, bytes, metrics, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		r.ID, c.Step, c.ID, c.Attempt, files, c.Digest, c.Bytes, string(c.Metrics), c.CreatedAt); err != nil {
		return fmt.Errorf("insert a checkpoint: %w", err)
	}
	if err := s.Artifacts.Refer(ctx, tx, r.Workspace, c.ID, c.Files.Files()...); err != nil {
		return err
	}
	if _, err := db.Exec(
		ctx, in, `UPDATE training_runs SET lost = 0 WHERE workspace_id = $1 AND id = $2`, r.ID,
	); err != nil {
		return fmt.Errorf("note progress: %w", err)
	}
	if hook := s.hooks[r.Kind].Checkpointed; hook != nil {
		return hook(ctx, tx, *r, *c)
	}
	return nil
}

// A checkpointRow is a checkpoint as the table has it.
type checkpointRow struct {
	ID, RunID     string
	Step, Attempt int64
	Files         Manifest
	Digest        artifact.Digest
	Bytes         int64
	Metrics       string
	CreatedAt     clock.Time
}

func (r *checkpointRow) checkpoint() Checkpoint {
	c := Checkpoint{
		ID: r.ID, RunID: r.RunID, Step: r.Step, Attempt: r.Attempt, Files: r.Files, Digest: r.Digest, Bytes: r.Bytes,
		Metrics: jsontext.Value(r.Metrics), CreatedAt: r.CreatedAt,
	}
	if r.Metrics == "" {
		c.Metrics = jsontext.Value("null")
	}
	return c
}

const checkpointColumns = `id, run_id, step, attempt, files, digest, bytes, metrics, created_at FROM training_checkpoints
	WHERE workspace_id = $1 AND run_id = $2`

func (s *Store) lastCheckpoint(ctx context.Context, in db.Scoped, runID string) (*Checkpoint, error) {
	return maybeCheckpoint(ctx, in, ` ORDER BY step DESC LIMIT 1`, runID)
}

func (s *Store) checkpointAt(ctx context.Context, in db.Scoped, runID string, step int64) (*Checkpoint, error) {
	return maybeCheckpoint(ctx, in, ` AND step = $3`, runID, step)
}

func maybeCheckpoint(ctx context.Context, in db.Scoped, where string, args ...any) (*Checkpoint, error) {
	c, err := db.Maybe[checkpointRow](ctx, in, `SELECT `+checkpointColumns+where, args...)
	if err != nil {
		return nil, fmt.Errorf("find a checkpoint: %w", err)
	}
	if c == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	found := c.checkpoint()
	return &found, nil
}

// Checkpoints lists the checkpoints of a run, the newest step first.
func (s *Store) Checkpoints(ctx context.Context, ws tenant.ID, runID string) ([]Checkpoint, error) {
	rows, err := db.Query[checkpointRow](ctx, s.DB.In(ws), `SELECT `+checkpointColumns+` ORDER BY step DESC`, runID)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	all := make([]Checkpoint, len(rows))
	for i := range rows {
		all[i] = rows[i].checkpoint()
	}
	return all, nil
}

// jsonText returns a value as deterministic JSON.
func jsonText(v any) (string, error) {
	text, err := json.Marshal(v, json.Deterministic(true))
	return string(text), err
}

// errNoCheckpoint refuses an end without what it ended with.
func errNoCheckpoint(step int64) error {
	return fault.Conflict("there is no checkpoint of step %d: save it before the run is done", step)
}
