package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
	"sovereign/internal/store/quota"
)

// MaxScan is how many exchanges a dataset is made of, at most: the newest that match.
const MaxScan = 100_000

// Bounds of builds. A running build holds some hundred bytes of every exchange that it reads.
const (
	maxRunning    = 4 // on this server
	maxUnfinished = 4 // of one workspace, waiting ones included
)

// buildKind is the kind of the jobs that build datasets.
const buildKind = "dataset_build"

// Start queues the job that makes a dataset of logged exchanges, and its holdout if one is asked for. It returns the id
// of the dataset, which is that of the job. The recipe has been checked. The names are taken at once; the dataset is
// not to be seen before it is whole.
func (s *Store) Start(ctx context.Context, ws tenant.ID, by tenant.Actor, r Recipe) (string, error) {
	recipe, err := text(r)
	if err != nil {
		return "", err
	}
	actor, err := text(by)
	if err != nil {
		return "", err
	}
	born := time.Now()
	train := id.At("ds", born)
	var holdoutID, holdoutName *string
	ids := []string{train}
	if r.Holdout > 0 {
		eval, name := id.At("ds", born.Add(-time.Microsecond)), r.Name+evalSuffix // its id is listed after the other
		holdoutID, holdoutName = &eval, &name
		ids = append(ids, eval)
	}
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := s.admit(ctx, tx, ws, r); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO dataset_builds (workspace_id, id, name, holdout_id, holdout_name, recipe, actor, request_id)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			train, r.Name, holdoutID, holdoutName, recipe, actor, audit.Request(ctx)); err != nil {
			return fmt.Errorf("start dataset %s: %w", r.Name, err)
		}
		for _, id := range ids {
			if err := loosen(ctx, tx, ws, id); err != nil {
				return err
			}
		}
		if err := job.Queue(ctx, tx, ws, job.New{ID: train, Kind: buildKind}); err != nil {
			return err
		}
		return quota.Check(ctx, tx.In(ws), quota.Datasets, len(ids))
	})
	return train, err
}

// unended is the condition on a build whose job, named jobs, has not ended.
const unended = `jobs.status IN ('QUEUED', 'RUNNING')`

// admit refuses a build when the workspace has enough of them, and names that are taken, by a dataset or by a build.
func (s *Store) admit(ctx context.Context, tx *db.Tx, ws tenant.ID, r Recipe) error {
	unfinished, err := db.One[int](ctx, tx.In(ws), `
		SELECT COUNT(*) FROM dataset_builds builds
		JOIN jobs ON jobs.workspace_id = $1 AND jobs.id = builds.id WHERE builds.workspace_id = $1 AND `+unended)
	if err != nil {
		return fmt.Errorf("count builds: %w", err)
	}
	if unfinished >= maxUnfinished {
		return fault.RateLimited.New(
			"the workspace has %d unfinished builds of datasets already", maxUnfinished,
		).In(time.Second)
	}
	names := []string{r.Name}
	if r.Holdout > 0 {
		names = append(names, r.Name+evalSuffix)
	}
	for _, name := range names {
		taken, err := db.One[int](ctx, tx.In(ws), `
			SELECT (SELECT COUNT(*) FROM datasets WHERE workspace_id = $1 AND name = $2) + (
				SELECT COUNT(*) FROM dataset_builds builds JOIN jobs ON jobs.workspace_id = $1 AND jobs.id = builds.id
				WHERE builds.workspace_id = $1 AND (builds.name = $2 OR builds.holdout_name = $2) AND `+unended+`)`, name)
		if err != nil {
			return fmt.Errorf("look a dataset's name up: %w", err)
		}
		if taken > 0 {
			return fault.Conflict("there is a dataset named %q already", name)
		}
	}
	return nil
}

// Await returns a dataset when its job has ended, or says why there is none. A caller who leaves does not stop the job.
func (s *Store) Await(ctx context.Context, ws tenant.ID, id string) (Dataset, error) {
	j, err := s.jobs.Wait(ctx, ws, id)
	switch missing, _ := errors.AsType[*fault.Fault](err); {
	case errors.Is(err, job.ErrRetrying):
		const message = "the dataset cannot be built now; the build is tried again, and its name is taken until it ends"
		return Dataset{}, fault.Unavailable.Because(err, message).In(time.Second)
	case errors.Is(err, job.ErrStopping), errors.Is(err, job.ErrLost):
		const message = "the server stops or has lost its database; it builds the dataset when it serves again"
		return Dataset{}, fault.Unavailable.Because(err, message).In(time.Second)
	case missing != nil && missing.Kind == fault.Missing: // the dataset was deleted, or its build failed long ago
		return s.Get(ctx, ws, id)
	case err != nil:
		return Dataset{}, err
	}
	if j.Status == job.Done {
		return s.Get(ctx, ws, id)
	}
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	_ = s.discardBuild(soon, ws, id) // the sweep takes what is left
	if j.Status == job.Cancelled {
		return Dataset{}, fault.Conflict("the build of the dataset was cancelled")
	}
	if err := s.open(ctx, ws); err != nil { // logging was turned off before the logs were read
		return Dataset{}, err
	}
	reason := "internal error"
	if j.Error != nil {
		reason = *j.Error
	}
	return Dataset{}, fault.Internal.New("the dataset was not built: %s", reason)
}

// A build is one run of the job that makes a dataset.
type build struct {
	run    *job.Run
	recipe Recipe
	actor  tenant.Actor
	train  string
	eval   *string // nil without a holdout

	pending []line
	size    int
	next    int64 // the position of the next row
}

type line struct {
	key  Key
	text []byte
}

// build does the job: it reads the logs, writes the rows a few in each transaction, so that others get to write, and
// the last transaction makes them a dataset. A run that comes after another begins anew: a dataset is what the logs are
// at one time.
func (s *Store) build(ctx context.Context, run *job.Run) error {
	kept, err := db.Maybe[struct {
		HoldoutID                *string
		Recipe, Actor, RequestID string
	}](ctx, s.db.In(run.Workspace), `
		SELECT holdout_id, recipe, actor, request_id FROM dataset_builds WHERE workspace_id = $1 AND id = $2`, run.ID)
	switch {
	case err != nil:
		return fmt.Errorf("read a build: %w", err)
	case kept == nil:
		return fmt.Errorf("job %s has no build", run.ID)
	}
	b := &build{run: run, train: run.ID, eval: kept.HoldoutID}
	if err := errors.Join(scan(kept.Recipe, &b.recipe), scan(kept.Actor, &b.actor)); err != nil {
		return fmt.Errorf("read a build: %w", err)
	}
	if err := s.open(ctx, run.Workspace); err != nil { // the build may have waited since it was admitted
		return err
	}
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx = audit.WithRequest(ctx, kept.RequestID)
	if err := b.restart(ctx); err != nil {
		return err
	}
	var c *curated
	err = s.logs.Scan(ctx, run.Workspace, b.recipe.Filters.Filters(), s.most, func(scan *logbook.Scan) (err error) {
		if c, err = curate(ctx, scan, b.recipe.Holdout, b.take(ctx)); err != nil {
			return err
		}
		c.Capped = scan.Capped
		return b.flush(ctx)
	})
	if err != nil {
		return fmt.Errorf("make a dataset of logs: %w", err)
	}
	if err := b.holdOut(ctx, c.held); err != nil {
		return err
	}
	return b.publish(ctx, c)
}

// restart takes away the rows of an earlier run.
func (b *build) restart(ctx context.Context) error {
	ids := []string{b.train}
	if b.eval != nil {
		ids = append(ids, *b.eval)
	}
	for _, id := range ids {
		for more := true; more; {
			err := b.run.Tx(ctx, func(tx *db.Tx, _ *job.Tally) (err error) {
				more, err = discardSome(ctx, tx.In(b.run.Workspace), id)
				return err
			})
			if err != nil {
				return fmt.Errorf("begin dataset %s anew: %w", b.train, err)
			}
		}
	}
	return nil
}

// batchBytes bounds the text that is written by one transaction.
const batchBytes = 1 << 20

// take writes examples as they come.
func (b *build) take(ctx context.Context) writer {
	return func(key Key, text []byte) error {
		b.pending = append(b.pending, line{key, bytes.Clone(text)})
		if b.size += len(text); len(b.pending) < batch && b.size < batchBytes {
			return nil
		}
		return b.flush(ctx)
	}
}

// flush writes what was taken. A line that the workspace has is not written again.
func (b *build) flush(ctx context.Context) error {
	if len(b.pending) == 0 {
		return nil
	}
	ws, written := b.run.Workspace, b.next+int64(len(b.pending))
	err := b.run.Tx(ctx, func(tx *db.Tx, tally *job.Tally) error {
		stored, err := db.Query[[]byte](ctx, tx.In(ws), `SELECT hash FROM dataset_examples WHERE `+hashes,
			filled(b.pending, func(l line) any { return l.key[:] })...)
		if err != nil {
			return err
		}
		var examples, rows [][]any
		for i, l := range b.pending {
			if !slices.ContainsFunc(stored, func(hash []byte) bool { return bytes.Equal(hash, l.key[:]) }) {
				examples = append(examples, []any{ws, l.key[:], l.text})
			}
			rows = append(rows, []any{ws, b.train, b.next + int64(i), l.key[:]})
		}
		tally.Done = max(tally.Done, written) // progress is what no earlier run has reached
		across := tx.Across("rows name their workspace")
		columns := []string{"workspace_id", "hash", "line"}
		if err := db.Insert(ctx, across, "dataset_examples", columns, examples); err != nil {
			return err
		}
		columns = []string{"workspace_id", "dataset_id", "position", "hash"}
		return db.Insert(ctx, across, "dataset_rows", columns, rows)
	})
	if err != nil {
		return fmt.Errorf("write examples: %w", err)
	}
	b.next, b.pending, b.size = written, b.pending[:0], 0
	return nil
}

// holdOut moves the examples that are held out to the other dataset.
func (b *build) holdOut(ctx context.Context, held []bool) error {
	var positions []int64
	for i, out := range held {
		if out {
			positions = append(positions, int64(i))
		}
	}
	for some := range slices.Chunk(positions, batch) {
		err := b.run.Tx(ctx, func(tx *db.Tx, _ *job.Tally) error {
			for _, position := range some {
				if _, err := db.Exec(ctx, tx.In(b.run.Workspace), `
					UPDATE dataset_rows SET dataset_id = $4 WHERE workspace_id = $1 AND dataset_id = $2 AND position = $3`,
					b.train, position, *b.eval); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("hold examples out: %w", err)
		}
	}
	return nil
}

// publish makes the rows a dataset, and a holdout. The job is done in the same transaction.
func (b *build) publish(ctx context.Context, c *curated) error {
	all := b.datasets(c)
	return b.run.Finish(ctx, func(tx *db.Tx, _ *job.Tally) error {
		now := clock.Now() // of both, so that the holdout is listed after the other
		for i := range all {
			all[i].CreatedAt = now
			if err := insert(ctx, tx, b.run.Workspace, b.actor, &all[i]); err != nil {
				return err
			}
		}
		_, err := db.Exec(ctx, tx.In(b.run.Workspace), `
			DELETE FROM dataset_builds WHERE workspace_id = $1 AND id = $2`, b.train)
		return err
	})
}

// datasets are the dataset that was built, and its holdout.
func (b *build) datasets(c *curated) []Dataset {
	held := int64(0)
	for _, out := range c.held {
		if out {
			held++
		}
	}
	train := Dataset{
		ID: b.train, Object: object, Name: b.recipe.Name, Role: Train, Rows: int64(len(c.held)) - held,
		Provenance: Provenance{Source: fromLogs, Filters: b.recipe.Filters, CreatedBy: b.actor.User},
		Curation:   c.Curation,
	}
	if segment := c.segment; segment != "" {
		train.Provenance.Segment = &segment
	}
	if c.first != 0 {
		train.Provenance.FirstAt, train.Provenance.LastAt = &c.first, &c.last
	}
	if b.eval == nil {
		return []Dataset{train}
	}
	eval := train
	eval.ID, eval.Name, eval.Role, eval.Rows, eval.HoldoutOf = *b.eval, b.recipe.Name+evalSuffix, Eval, held, &b.train
	train.HoldoutID = b.eval
	return []Dataset{train, eval}
}

func insert(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, d *Dataset) error {
	provenance, err := text(d.Provenance)
	if err != nil {
		return err
	}
	curation, err := text(d.Curation)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO datasets (
			workspace_id, id, name, role, row_count, provenance, curation, holdout_id, holdout_of, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		d.ID, d.Name, d.Role, d.Rows, provenance, curation, d.HoldoutID, d.HoldoutOf, d.CreatedAt); err != nil {
		return fmt.Errorf("insert dataset %s: %w", d.Name, err)
	}
	if _, err := db.Exec(ctx, tx.In(ws), `
		DELETE FROM dataset_loose WHERE workspace_id = $1 AND dataset_id = $2`, d.ID); err != nil {
		return fmt.Errorf("keep the rows of dataset %s: %w", d.Name, err)
	}
	return audit.Record(ctx, tx, ws, by, "dataset.create", d.ID, nil, *d)
}
