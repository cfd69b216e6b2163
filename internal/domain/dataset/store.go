package dataset

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// A Store keeps datasets. Making and deleting one is audited in its own transaction.
type Store struct {
	db   *db.DB
	logs *logbook.Store
	jobs *job.Runner
	open func(context.Context, tenant.ID) error // refuses a workspace whose logs cannot be read now
	most int                                    // exchanges that are looked at

	running chan struct{} // a slot for each build that runs
}

// NewStore keeps datasets in d. Jobs of r make them of logs, once r handles Jobs. open refuses a workspace whose logs
// cannot be read now.
func NewStore(d *db.DB, logs *logbook.Store, r *job.Runner, open func(context.Context, tenant.ID) error) *Store {
	return &Store{db: d, logs: logs, jobs: r, open: open, most: MaxScan, running: make(chan struct{}, maxRunning)}
}

// Jobs are the kinds of jobs that the store does.
func (s *Store) Jobs() map[string]job.Work { return map[string]job.Work{buildKind: s.build} }

const columns = `id, 'dataset' AS object, name, role, row_count, provenance, curation, holdout_id, holdout_of, created_at
	FROM datasets`

func find(ctx context.Context, scope db.Scoped, name string) (Dataset, error) {
	d, err := db.Maybe[Dataset](ctx, scope, `SELECT `+columns+` WHERE workspace_id = $1 AND id = $2`, name)
	switch {
	case err != nil:
		return Dataset{}, fmt.Errorf("find dataset: %w", err)
	case d == nil:
		return Dataset{}, fault.NotFound(object, name)
	}
	return *d, nil
}

// Get is the dataset of that id.
func (s *Store) Get(ctx context.Context, ws tenant.ID, id string) (Dataset, error) {
	return find(ctx, s.db.In(ws), id)
}

// List reads a workspace's datasets, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Dataset, error) {
	all, err := db.Query[Dataset](ctx, s.db.In(ws), `SELECT `+columns+`
		WHERE workspace_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list datasets: %w", err)
	}
	return all, nil
}

// batch is how many rows one statement and one transaction has: other writers wait for it.
const batch = 64

// hashes is the condition that finds a batch of examples; its text is always the same.
var hashes = func() string {
	places := make([]string, batch)
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+2)
	}
	return `workspace_id = $1 AND hash IN (` + strings.Join(places, ", ") + `)`
}()

// filled returns the arguments of that condition. The last is repeated to fill it.
func filled[T any](some []T, arg func(T) any) []any {
	args := make([]any, batch)
	for i := range args {
		args[i] = arg(some[min(i, len(some)-1)])
	}
	return args
}

// Any reports whether a workspace has a dataset.
func (s *Store) Any(ctx context.Context, ws tenant.ID) (bool, error) {
	n, err := db.One[int](ctx, s.db.In(ws), `
		SELECT COUNT(*) FROM (SELECT 1 AS one FROM datasets WHERE workspace_id = $1 LIMIT 1) any_of_them`)
	if err != nil {
		return false, fmt.Errorf("find a dataset: %w", err)
	}
	return n > 0, nil
}

// errDeleted ends an export whose dataset is deleted meanwhile: a part must not look like the whole.
var errDeleted = errors.New("the dataset was deleted while it was read")

// Export writes the examples of d, a line for each, in their order. It holds a few at a time.
func (s *Store) Export(ctx context.Context, ws tenant.ID, d *Dataset, to io.Writer) error {
	out := bufio.NewWriterSize(to, 64<<10)
	for r, err := range s.Lines(ctx, ws, d) {
		if err != nil {
			return err
		}
		if _, err := out.Write(append(r.Line, '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}

// A Line is an example of a dataset: a JSON object with messages, of which the last is the answer, and perhaps tools.
type Line struct {
	Position int64
	Line     []byte
}

// linePage is how many examples are read at a time.
const linePage = 16

// Lines reads the examples of d in their order. It holds a few of them, and no statement is open while they are used.
func (s *Store) Lines(ctx context.Context, ws tenant.ID, d *Dataset) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for read, after := int64(0), int64(-1); read < d.Rows; {
			page, err := db.Query[Line](ctx, s.db.In(ws), `
				SELECT position, line FROM (
					SELECT position, hash AS named FROM dataset_rows
					WHERE workspace_id = $1 AND dataset_id = $2 AND position > $3 ORDER BY position LIMIT $4
				) page JOIN dataset_examples ON workspace_id = $1 AND hash = named ORDER BY position`, d.ID, after, linePage)
			if err == nil && len(page) == 0 {
				err = errDeleted
			}
			if err != nil {
				yield(Line{}, fmt.Errorf("read dataset %s: %w", d.ID, err))
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			read, after = read+int64(len(page)), page[len(page)-1].Position
		}
	}
}

// Delete ends a dataset. Its holdout stays, and the examples that others have stay theirs.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, id string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := find(ctx, tx.In(ws), id)
		if err != nil {
			return err
		}
		for _, table := range []string{"datasets", "jobs"} {
			if _, err := db.Exec(
				ctx, tx.In(ws), `DELETE FROM `+table+` WHERE workspace_id = $1 AND id = $2`, id,
			); err != nil {
				return fmt.Errorf("delete dataset %s: %w", id, err)
			}
		}
		if err := loosen(ctx, tx, ws, id); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "dataset.delete", id, before, nil)
	})
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, discardTime)
	defer cancel()
	_ = s.discard(soon, ws, id) // it is gone already; the sweep takes what is left
	return nil
}

// discardTime is how long a deletion waits for its rows to go.
const discardTime = 2 * time.Second

// loosen marks the rows of a dataset as belonging to none.
func loosen(ctx context.Context, tx *db.Tx, ws tenant.ID, id string) error {
	_, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO dataset_loose (workspace_id, dataset_id, since) VALUES ($1, $2, $3)`, id, clock.Now())
	if err != nil {
		return fmt.Errorf("loosen the rows of dataset %s: %w", id, err)
	}
	return nil
}

func isLoose(ctx context.Context, in db.Scoped, id string) (bool, error) {
	n, err := db.One[int](ctx, in, `SELECT COUNT(*) FROM dataset_loose WHERE workspace_id = $1 AND dataset_id = $2`, id)
	return n > 0, err
}

// discard takes loose rows away, a few in each transaction. Rows that have become a dataset's meanwhile stay.
func (s *Store) discard(ctx context.Context, ws tenant.ID, id string) error {
	for more := true; more; {
		_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
			in := tx.In(ws)
			if loose, err := isLoose(ctx, in, id); err != nil || !loose {
				more = false
				return err
			}
			var err error
			if more, err = discardSome(ctx, in, id); err != nil || more {
				return err
			}
			_, err = db.Exec(ctx, in, `DELETE FROM dataset_loose WHERE workspace_id = $1 AND dataset_id = $2`, id)
			return err
		})
		if err != nil {
			return fmt.Errorf("discard dataset %s: %w", id, err)
		}
	}
	return nil
}

// discardSome takes a batch of the rows of a dataset away, and the examples that no other row names. It reports whether
// there were any.
func discardSome(ctx context.Context, in db.Scoped, id string) (some bool, err error) {
	type row struct {
		Position int64
		Hash     []byte
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT position, hash FROM dataset_rows
		WHERE workspace_id = $1 AND dataset_id = $2 ORDER BY position LIMIT $3`, id, batch)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	if _, err := db.Exec(ctx, in, `
		DELETE FROM dataset_rows WHERE workspace_id = $1 AND dataset_id = $2 AND position <= $3`,
		id, rows[len(rows)-1].Position); err != nil {
		return false, err
	}
	_, err = db.Exec(ctx, in, `
		DELETE FROM dataset_examples WHERE `+hashes+` AND NOT EXISTS (
			SELECT 1 FROM dataset_rows
			WHERE dataset_rows.workspace_id = $1 AND dataset_rows.hash = dataset_examples.hash)`,
		filled(rows, func(r row) any { return r.Hash })...)
	return true, err
}

// discardBuild takes away the rows of a build whose job has ended without a dataset.
func (s *Store) discardBuild(ctx context.Context, ws tenant.ID, id string) error {
	holdout, err := db.Maybe[*string](ctx, s.db.In(ws), `
		SELECT holdout_id FROM dataset_builds WHERE workspace_id = $1 AND id = $2`, id)
	if err != nil {
		return fmt.Errorf("find build %s: %w", id, err)
	}
	if holdout != nil && *holdout != nil {
		if err := s.discard(ctx, ws, **holdout); err != nil {
			return err
		}
	}
	return s.discard(ctx, ws, id)
}

// failedFor is how long a build that failed can still be read by a caller who waits for it.
const failedFor = time.Hour

// Sweep takes away what builds that failed and deletions that were cut short have left. The process that holds the data
// calls it when it starts, and now and then.
func (s *Store) Sweep(ctx context.Context) error {
	type row struct {
		WorkspaceID tenant.ID
		DatasetID   string
	}
	all, err := db.Query[row](ctx, s.db.Across("what is loose is the server's to clear"), `
		SELECT workspace_id, dataset_id FROM dataset_loose loose WHERE NOT EXISTS (
			SELECT 1 FROM dataset_builds builds
			JOIN jobs ON jobs.workspace_id = builds.workspace_id AND jobs.id = builds.id
			WHERE builds.workspace_id = loose.workspace_id
				AND (builds.id = loose.dataset_id OR builds.holdout_id = loose.dataset_id) AND `+unended+`)
		ORDER BY since`)
	if err != nil {
		return fmt.Errorf("find loose rows: %w", err)
	}
	for _, r := range all {
		if err := s.discard(ctx, r.WorkspaceID, r.DatasetID); err != nil {
			return err
		}
	}
	return s.forgetFailed(ctx, clock.Now().Add(-failedFor))
}

// forgetFailed deletes builds, and their jobs, that ended before a time without a dataset.
func (s *Store) forgetFailed(ctx context.Context, before clock.Time) error {
	type row struct {
		WorkspaceID tenant.ID
		ID          string
	}
	all, err := db.Query[row](ctx, s.db.Across("what is loose is the server's to clear"), `
		SELECT builds.workspace_id, builds.id FROM dataset_builds builds
		JOIN jobs ON jobs.workspace_id = builds.workspace_id AND jobs.id = builds.id WHERE jobs.finished_at < $1`, before)
	if err != nil {
		return fmt.Errorf("find failed builds: %w", err)
	}
	for _, r := range all {
		_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
			for _, table := range []string{"dataset_builds", "jobs"} {
				statement := `DELETE FROM ` + table + ` WHERE workspace_id = $1 AND id = $2`
				if _, err := db.Exec(ctx, tx.In(r.WorkspaceID), statement, r.ID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("forget build %s: %w", r.ID, err)
		}
	}
	return nil
}
