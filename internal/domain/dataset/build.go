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
)

// MaxScan is how many exchanges a dataset is made of, at most: the newest that match.
const MaxScan = 100_000

// FromLogs makes a dataset of logged exchanges, and its holdout if one is asked for. The recipe has been checked.
//
// Nobody sees anything of it before it is whole. Rows are written a few in each transaction, so that others get to write, and the last one
// makes them a dataset. In a transaction of the caller's all of it is one.
func (s *Store) FromLogs(ctx context.Context, ws tenant.ID, by tenant.Actor, r Recipe) (made Dataset, err error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return Dataset{}, fault.RateLimited.New("%d datasets are being built already", maxBuilds).In(time.Second)
	}
	born := time.Now()
	b := &build{Store: s, ws: ws, train: id.At("ds", born)}
	if r.Holdout > 0 {
		b.eval = id.At("ds", born.Add(-time.Microsecond)) // so that it is listed after the other
	}
	if err := s.vacant(ctx, s.db.In(ws), r); err != nil {
		return Dataset{}, err
	}
	if err := b.begin(ctx); err != nil {
		return Dataset{}, err
	}
	defer func() { b.end(ctx, err != nil) }()
	var c *curated
	err = s.logs.Scan(ctx, ws, r.Filters.Filters(), s.most, func(scan *logbook.Scan) (err error) {
		if c, err = curate(ctx, scan, r.Holdout, b.take(ctx)); err != nil {
			return err
		}
		c.Capped = scan.Capped
		return b.flush(ctx)
	})
	if err != nil {
		return Dataset{}, fmt.Errorf("make a dataset of logs: %w", err)
	}
	if err := b.holdOut(ctx, c.held); err != nil {
		return Dataset{}, err
	}
	return b.publish(ctx, by, r, c)
}

// vacant refuses names that are taken.
func (s *Store) vacant(ctx context.Context, in db.Scoped, r Recipe) error {
	names := []string{r.Name}
	if r.Holdout > 0 {
		names = append(names, r.Name+evalSuffix)
	}
	for _, name := range names {
		taken, err := db.One[int](ctx, in, `SELECT COUNT(*) FROM datasets WHERE workspace_id = $1 AND name = $2`, name)
		if err != nil {
			return fmt.Errorf("look a dataset's name up: %w", err)
		}
		if taken > 0 {
			return errTaken(name)
		}
	}
	return nil
}

func errTaken(name string) error { return fault.Conflict("there is a dataset named %q already", name) }

// A build is a dataset that is not one yet.
type build struct {
	*Store
	ws          tenant.ID
	train, eval string // eval is empty without a holdout

	pending []line
	size    int
	next    int64 // the position of the next row
}

type line struct {
	key  Key
	text []byte
}

func (b *build) ids() []string {
	if b.eval == "" {
		return []string{b.train}
	}
	return []string{b.train, b.eval}
}

// begin says that rows will be written, so that they are found if nobody comes back for them.
func (b *build) begin(ctx context.Context) error {
	b.mu.Lock()
	for _, id := range b.ids() {
		b.building[id] = true
	}
	b.mu.Unlock()
	_, err := b.db.Tx(ctx, func(tx *db.Tx) error {
		for _, id := range b.ids() {
			if err := loosen(ctx, tx, b.ws, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.end(ctx, false)
	}
	return err
}

// end gives up what is not a dataset by now. A transaction of the caller's takes its rows back by itself.
func (b *build) end(ctx context.Context, failed bool) {
	b.mu.Lock()
	for _, id := range b.ids() {
		delete(b.building, id)
	}
	b.mu.Unlock()
	if !failed || db.Bound(ctx) {
		return
	}
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	for _, id := range b.ids() {
		_ = b.discard(soon, b.ws, id) // the sweep takes what is left
	}
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

// errSwept ends a build whose rows another server took away: it held this one for dead.
var errSwept = errors.New("the rows of a dataset were taken away while it was built")

// ours makes sure that the rows of a build are still kept for it.
func (b *build) ours(ctx context.Context, in db.Scoped) error {
	loose, err := isLoose(ctx, in, b.train)
	if err == nil && !loose {
		err = errSwept
	}
	return err
}

// flush writes what was taken. A line that the workspace has is not written again.
func (b *build) flush(ctx context.Context) error {
	if len(b.pending) == 0 {
		return nil
	}
	_, err := b.db.Tx(ctx, func(tx *db.Tx) error {
		if err := b.ours(ctx, tx.In(b.ws)); err != nil {
			return err
		}
		stored, err := db.Query[[]byte](ctx, tx.In(b.ws), `SELECT hash FROM dataset_examples WHERE `+hashes,
			filled(b.pending, func(l line) any { return l.key[:] })...)
		if err != nil {
			return err
		}
		var examples, rows [][]any
		for i, l := range b.pending {
			if !slices.ContainsFunc(stored, func(hash []byte) bool { return bytes.Equal(hash, l.key[:]) }) {
				examples = append(examples, []any{b.ws, l.key[:], l.text})
			}
			rows = append(rows, []any{b.ws, b.train, b.next + int64(i), l.key[:]})
		}
		across := tx.Across("rows name their workspace")
		if err := db.Insert(ctx, across, "dataset_examples", []string{"workspace_id", "hash", "line"}, examples); err != nil {
			return err
		}
		return db.Insert(ctx, across, "dataset_rows", []string{"workspace_id", "dataset_id", "position", "hash"}, rows)
	})
	if err != nil {
		return fmt.Errorf("write examples: %w", err)
	}
	b.next += int64(len(b.pending))
	b.pending, b.size = b.pending[:0], 0
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
		_, err := b.db.Tx(ctx, func(tx *db.Tx) error {
			if err := b.ours(ctx, tx.In(b.ws)); err != nil {
				return err
			}
			for _, position := range some {
				if _, err := db.Exec(ctx, tx.In(b.ws), `
					UPDATE dataset_rows SET dataset_id = $4 WHERE workspace_id = $1 AND dataset_id = $2 AND position = $3`, b.train, position, b.eval); err != nil {
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

// publish makes the rows a dataset, and a holdout.
func (b *build) publish(ctx context.Context, by tenant.Actor, r Recipe, c *curated) (Dataset, error) {
	held := int64(0)
	for _, out := range c.held {
		if out {
			held++
		}
	}
	train := Dataset{
		ID: b.train, Object: object, Name: r.Name, Role: Train, Rows: int64(len(c.held)) - held,
		Provenance: Provenance{Source: fromLogs, Filters: r.Filters, CreatedBy: by.User}, Curation: c.Curation, CreatedAt: clock.Now(),
	}
	if segment := c.segment; segment != "" {
		train.Provenance.Segment = &segment
	}
	if c.first != 0 {
		train.Provenance.FirstAt, train.Provenance.LastAt = &c.first, &c.last
	}
	all := []Dataset{train}
	if b.eval != "" {
		eval := train
		eval.ID, eval.Name, eval.Role, eval.Rows, eval.HoldoutOf = b.eval, r.Name+evalSuffix, Eval, held, &b.train
		all[0].HoldoutID = &b.eval
		all = append(all, eval)
	}
	_, err := b.db.Tx(ctx, func(tx *db.Tx) error {
		if err := b.ours(ctx, tx.In(b.ws)); err != nil {
			return err
		}
		if err := b.vacant(ctx, tx.In(b.ws), r); err != nil {
			return err
		}
		for _, d := range all {
			if err := enter(ctx, tx, b.ws, by, &d); err != nil {
				return err
			}
		}
		return nil
	})
	if db.Duplicate(err) {
		err = errTaken(r.Name)
	}
	return all[0], err
}

func enter(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, d *Dataset) error {
	provenance, err := text(d.Provenance)
	if err != nil {
		return err
	}
	curation, err := text(d.Curation)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO datasets (workspace_id, id, name, role, row_count, provenance, curation, holdout_id, holdout_of, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		d.ID, d.Name, d.Role, d.Rows, provenance, curation, d.HoldoutID, d.HoldoutOf, d.CreatedAt); err != nil {
		return fmt.Errorf("enter dataset %s: %w", d.Name, err)
	}
	if _, err := db.Exec(ctx, tx.In(ws), `DELETE FROM dataset_loose WHERE workspace_id = $1 AND dataset_id = $2`, d.ID); err != nil {
		return fmt.Errorf("keep the rows of dataset %s: %w", d.Name, err)
	}
	return audit.Record(ctx, tx, ws, by, "dataset.create", d.ID, nil, *d)
}
