// Package backup writes a consistent snapshot of the whole database to a file that either engine can restore.
//
// A backup is a gzipped tar: a header, the rows of every table in pieces, and an end record with their counts and a
// checksum, so that a truncated file cannot pass for a complete one. The root key is not in it. Encrypt and Decrypt
// make and read the file in which it is kept.
package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/store/db"
)

// format is the version of the file format.
const format = 1

const (
	headerName = "sovereign-backup.json"
	endName    = "end.json"
	rowsFolder = "rows"
	pieceSize  = 1 << 20
)

// A Header describes the contents of a backup.
type Header struct {
	Format    int        `json:"format"`
	Schema    int64      `json:"schema"`
	CreatedAt clock.Time `json:"created_at"`
	Tables    []db.Table `json:"tables"`
}

// An End holds the number of rows of each table, and the checksum of all rows.
type End struct {
	Rows   map[string]int64 `json:"rows"`
	Sha256 string           `json:"sha256"`
}

// Total returns the number of all rows.
func (e End) Total() (rows int64) {
	for _, n := range e.Rows {
		rows += n
	}
	return rows
}

// ErrBroken reports that a file is not a complete backup.
var ErrBroken = errors.New("this is not a whole backup")

// Write writes a backup of d to out, from one consistent snapshot, while the server runs.
func Write(ctx context.Context, d *db.DB, out io.Writer) error {
	schema, _, err := d.Schemas(ctx)
	if err != nil {
		return err
	}
	return d.Snapshot(ctx, "a backup holds all workspaces", func(all db.Scoped) error {
		tables, err := db.Tables(ctx, all)
		if err != nil {
			return err
		}
		w := newWriter(out)
		if err := w.document(headerName,
			Header{Format: format, Schema: schema, CreatedAt: clock.Now(), Tables: tables}); err != nil {
			return err
		}
		for _, t := range tables {
			if err := w.table(ctx, all, t); err != nil {
				return fmt.Errorf("back up %s: %w", t.Name, err)
			}
		}
		return w.close()
	})
}

type writer struct {
	zip  *gzip.Writer
	tar  *tar.Writer
	end  End
	sum  hash.Hash
	rows bytes.Buffer
}

func newWriter(out io.Writer) *writer {
	zip, _ := gzip.NewWriterLevel(out, gzip.BestSpeed) // the level is a constant that exists
	return &writer{zip: zip, tar: tar.NewWriter(zip), end: End{Rows: map[string]int64{}}, sum: sha256.New()}
}

func (w *writer) table(ctx context.Context, all db.Scoped, t db.Table) error {
	piece := 0
	flush := func() error {
		piece++
		w.sum.Write(w.rows.Bytes())
		err := w.file(path.Join(rowsFolder, t.Name, fmt.Sprintf("%06d.jsonl", piece)), w.rows.Bytes())
		w.rows.Reset()
		return err
	}
	for row, err := range db.Dump(ctx, all, t) {
		if err != nil {
			return err
		}
		line, err := json.Marshal(row)
		if err != nil {
			return err
		}
		w.rows.Write(append(line, '\n'))
		w.end.Rows[t.Name]++
		if w.rows.Len() >= pieceSize {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if w.rows.Len() > 0 {
		return flush()
	}
	return nil
}

func (w *writer) document(name string, v any) error {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err
	}
	return w.file(name, text)
}

func (w *writer) file(name string, content []byte) error {
	if err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.tar.Write(content)
	return err
}

func (w *writer) close() error {
	w.end.Sha256 = hex.EncodeToString(w.sum.Sum(nil))
	if err := w.document(endName, w.end); err != nil {
		return err
	}
	return errors.Join(w.tar.Close(), w.zip.Close())
}
