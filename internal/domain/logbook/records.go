package logbook

import (
	"context"
	"errors"
	"iter"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/panics"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/db"
)

// records are what a batch of the spool holds.
type records struct {
	rows  []*capture.Row
	draws []drawRecord
}

func (r records) len() int { return len(r.rows) + len(r.draws) }

// each yields the records one by one, with the request that each belongs to.
func (r records) each() iter.Seq2[string, records] {
	return func(yield func(string, records) bool) {
		for i, row := range r.rows {
			if !yield(row.Request, records{rows: r.rows[i : i+1]}) {
				return
			}
		}
		for i, draw := range r.draws {
			if !yield(draw.Request, records{draws: r.draws[i : i+1]}) {
				return
			}
		}
	}
}

// times returns the time of the newest record, and the first expiry.
func (r records) times() (newest, expires clock.Time) {
	expires = never
	for _, row := range r.rows {
		newest, expires = max(newest, row.At), min(expires, row.Expires)
	}
	for _, draw := range r.draws {
		newest, expires = max(newest, draw.At), min(expires, draw.Expires)
	}
	return newest, expires
}

// parse parses a record and appends it to r. A panic is an error: one record must not block all that follow it.
func (c *Ingester) parse(record []byte, r *records) error {
	return panics.Call(c.log, "parsing a logged record", func() error {
		if capture.IsDraw(record) {
			draw, err := capture.ParseDraw(record)
			if err == nil {
				r.draws = append(r.draws, drawRecord{draw, record})
			}
			return err
		}
		row, err := c.read(record)
		if err == nil {
			r.rows = append(r.rows, row)
		}
		return err
	})
}

// parseAll parses the records of a batch, and sets aside those that cannot be parsed.
func (c *Ingester) parseAll(batch [][]byte) (r records) {
	r.rows = slices.Grow(r.rows, len(batch))
	for _, record := range batch {
		if err := c.parse(record, &r); err != nil {
			c.setAside.Add(1)
			c.log.Error("a logged record is set aside: it cannot be read", "err", err)
		}
	}
	return r
}

// isPoisonous reports whether records themselves are what failed, so that no retry can succeed.
func isPoisonous(err error) bool { return db.IsDataError(err) || errors.As(err, new(*panics.Error)) }

// insert inserts records.
func (c *Ingester) insert(ctx context.Context, tx *db.Tx, r records) error {
	if err := c.insertRows(ctx, tx, r.rows); err != nil {
		return err
	}
	return insertDraws(ctx, tx.Across("the spool holds all workspaces' draws"), r.draws)
}

// insertOneByOne inserts records one by one, each under a savepoint, and sets aside those that cannot be stored.
func (c *Ingester) insertOneByOne(ctx context.Context, tx *db.Tx, r records) error {
	for request, one := range r.each() {
		_, err := c.db.Tx(tx.Bind(ctx), func(tx *db.Tx) error {
			return panics.Call(c.log, "storing a logged record", func() error { return c.insert(ctx, tx, one) })
		})
		if isPoisonous(err) {
			clear(c.families)
			c.setAside.Add(1)
			c.log.Error("a logged record is set aside: it cannot be stored", "request_id", request, "err", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
