package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/store/db"
)

// ErrNotEmpty reports that the target database has data, which a restore would mix with the backup's.
var ErrNotEmpty = errors.New("the database is not empty")

// maxPiece bounds the memory that one piece of a hostile file can use. A piece ends with the row that passes
// pieceSize, so it is that and one row.
const maxPiece = 64 << 20

// A Reader reads a backup.
type Reader struct {
	Header Header
	in     *bufio.Reader
	zip    *gzip.Reader
	tar    *tar.Reader
}

// NewReader opens a backup and reads its header.
func NewReader(in io.Reader) (*Reader, error) {
	buffered := bufio.NewReader(in)
	zip, err := gzip.NewReader(buffered)
	if errors.Is(err, ErrBroken) { // it does not decrypt
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	zip.Multistream(false)
	r := &Reader{in: buffered, zip: zip, tar: tar.NewReader(zip)}
	name, content, err := r.next()
	if err != nil || name != headerName || json.Unmarshal(content, &r.Header) != nil {
		return nil, fmt.Errorf("%w: it does not begin like one", ErrBroken)
	}
	if r.Header.Format != format {
		return nil, cmp.Or(r.drain(), fmt.Errorf("the backup has format %d, and this release reads %d", r.Header.Format,
			format))
	}
	return r, nil
}

func (r *Reader) next() (name string, content []byte, err error) {
	header, err := r.tar.Next()
	if err != nil {
		return "", nil, err
	}
	if header.Size > maxPiece {
		return "", nil, fmt.Errorf("%s is too large", header.Name)
	}
	content, err = io.ReadAll(r.tar)
	return header.Name, content, err
}

// Each calls take with every piece of rows, and returns ErrBroken unless the backup is complete. Before it has
// returned, the rows are not verified.
func (r *Reader) Each(take func(t db.Table, rows [][]any) error) (End, error) {
	tables := map[string]db.Table{}
	for _, t := range r.Header.Tables {
		tables[t.Name] = t
	}
	sum, counts := sha256.New(), map[string]int64{}
	var refused error // the error of take; a broken file explains it better
	for {
		name, content, err := r.next()
		if err != nil {
			return End{}, fmt.Errorf("%w: it breaks off", ErrBroken)
		}
		if name == endName {
			end, err := r.finish(content, hex.EncodeToString(sum.Sum(nil)), counts)
			return end, cmp.Or(err, refused)
		}
		parts := strings.Split(name, "/")
		t, known := tables[parts[min(1, len(parts)-1)]]
		if !known || parts[0] != rowsFolder {
			return End{}, fmt.Errorf("%w: it holds a strange file", ErrBroken)
		}
		sum.Write(content)
		rows, err := decode(t, content)
		if err != nil {
			return End{}, fmt.Errorf("%w: a row of %s is malformed", ErrBroken, t.Name)
		}
		counts[t.Name] += int64(len(rows))
		if refused == nil {
			refused = take(t, rows)
		}
	}
}

func (r *Reader) finish(content []byte, sum string, counts map[string]int64) (End, error) {
	var end End
	if err := json.Unmarshal(content, &end); err != nil || end.Sha256 != sum || !maps.Equal(end.Rows, counts) {
		return End{}, fmt.Errorf("%w: its rows do not add up", ErrBroken)
	}
	if _, _, err := r.next(); !errors.Is(err, io.EOF) {
		return End{}, fmt.Errorf("%w: it goes on after its end", ErrBroken)
	}
	return end, r.drain()
}

// drain reads to the end of the gzip stream, which verifies its checksum, and checks that nothing follows.
func (r *Reader) drain() error {
	if _, err := io.Copy(io.Discard, r.zip); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if _, err := r.in.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it goes on after its end", ErrBroken)
	}
	return nil
}

func decode(t db.Table, content []byte) ([][]any, error) {
	var rows [][]any
	for line := range bytes.Lines(content) {
		var raw []jsontext.Value
		if err := json.Unmarshal(line, &raw); err != nil {
			return nil, err
		}
		if len(raw) != len(t.Columns) {
			return nil, ErrBroken
		}
		row := make([]any, len(raw))
		for i, value := range raw {
			var err error
			if row[i], err = read(t.Columns[i].Kind, value); err != nil {
				return nil, err
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func read(kind db.Kind, value jsontext.Value) (any, error) {
	if value.Kind() == 'n' {
		return nil, nil //nolint:nilnil // NULL is a value
	}
	switch kind {
	case db.Integer:
		return as[int64](value)
	case db.Text:
		return as[string](value)
	case db.Bytes:
		return as[[]byte](value)
	case db.Boolean:
		return as[bool](value)
	case db.Real:
		return as[float64](value)
	default:
		return nil, ErrBroken
	}
}

func as[T any](value jsontext.Value) (any, error) {
	var v T
	err := json.Unmarshal(value, &v)
	return v, err
}

// Restore reads the rest of the backup into an empty database of either engine, in one transaction: after a kill the
// database is still empty. It calls accept before the commit, with a context that sees the restored rows. An End with
// rows means that the restore is committed, even beside an error.
func (r *Reader) Restore(ctx context.Context, d *db.DB, accept func(context.Context) error) (End, error) {
	if err := empty(ctx, d, r.Header.Schema); err != nil {
		return End{}, cmp.Or(r.drain(), err)
	}
	if err := d.MigrateTo(ctx, r.Header.Schema); err != nil {
		return End{}, cmp.Or(r.drain(), err)
	}
	var end End
	_, err := d.Tx(ctx, func(tx *db.Tx) (err error) {
		across := tx.Across("a restore holds all workspaces")
		if err := matches(ctx, across, r.Header.Tables); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, across, `DELETE FROM feed_head`); err != nil {
			return fmt.Errorf("clear: %w", err)
		}
		if end, err = r.Each(func(t db.Table, rows [][]any) error {
			return db.Insert(ctx, across, t.Name, columns(t), rows)
		}); err != nil {
			return err
		}
		// none of the servers that the backup saw serves the restored database
		if _, knows := end.Rows["nodes"]; knows {
			if _, err := db.Exec(ctx, across, `UPDATE nodes SET ended = TRUE, serving = FALSE`); err != nil {
				return fmt.Errorf("end the memberships: %w", err)
			}
		}
		if err := accept(tx.Bind(ctx)); err != nil {
			return err
		}
		return clearServers(ctx, across, r.Header.Tables)
	})
	if err != nil {
		return End{}, err
	}
	if err := d.Migrate(ctx); err != nil {
		return end, fmt.Errorf("restored, but not brought up to this release: %w", err)
	}
	return end, nil
}

// ofServers are the tables of what running servers have taken, and tell each other. None runs on a database that was
// just restored.
var ofServers = []string{
	"wallet_slices", "wallet_recalls", "node_roles", "node_files", "engine_groups", "engine_uses", "engine_adapters",
	"engine_loading", "meter_counts",
}

func clearServers(ctx context.Context, across db.Scoped, tables []db.Table) error {
	for _, t := range tables {
		if !slices.Contains(ofServers, t.Name) {
			continue
		}
		if _, err := db.Exec(ctx, across, `DELETE FROM `+t.Name); err != nil {
			return fmt.Errorf("clear %s: %w", t.Name, err)
		}
	}
	return nil
}

// empty refuses a database that holds anything but what a fresh schema of the backup's version begins with.
func empty(ctx context.Context, d *db.DB, version int64) error {
	have, _, err := d.Schemas(ctx)
	if err != nil || have == 0 {
		return err
	}
	if have != version {
		return fmt.Errorf("%w: it has schema %d and the backup %d", ErrNotEmpty, have, version)
	}
	across := d.Across("a restore looks for any row")
	tables, err := db.Tables(ctx, across)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if t.Name == "feed_head" {
			continue
		}
		n, err := db.One[int64](ctx, across, "SELECT COUNT(*) FROM "+t.Name)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%w: %s has rows", ErrNotEmpty, t.Name)
		}
	}
	return nil
}

// matches refuses a header whose tables are not exactly the schema's: their names go into SQL, and a backup that
// lacks a table is not complete.
func matches(ctx context.Context, s db.Scoped, claimed []db.Table) error {
	tables, err := db.Tables(ctx, s)
	if err != nil {
		return err
	}
	same := func(a, b db.Table) bool {
		return a.Name == b.Name && slices.Equal(sorted(a.Columns), sorted(b.Columns))
	}
	byName := func(a, b db.Table) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(tables, byName)
	if !slices.EqualFunc(tables, slices.SortedFunc(slices.Values(claimed), byName), same) {
		return fmt.Errorf("%w: its tables are not those of its schema", ErrBroken)
	}
	return nil
}

func sorted(columns []db.Column) []db.Column {
	return slices.SortedFunc(slices.Values(columns), func(a, b db.Column) int {
		return strings.Compare(a.Name, b.Name)
	})
}

func columns(t db.Table) []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}
