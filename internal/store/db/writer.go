package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"modernc.org/sqlite"
)

// A writerConnector opens SQLite's connection that writes.
type writerConnector struct{ driver.Connector }

func newWriterConnector(dsn string) (driver.Connector, error) {
	plain, err := sqlite.NewConnector(dsn)
	return writerConnector{plain}, err
}

// Connect opens a connection that takes a bulk.
func (c writerConnector) Connect(ctx context.Context) (driver.Conn, error) {
	plain, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, ok := plain.(liteConn)
	if !ok {
		return nil, fmt.Errorf("a connection of SQLite is a %T", plain)
	}
	return &writer{liteConn: conn, kept: map[string]liteStmt{}}, nil
}

// A liteConn is all that database/sql asks of a connection of SQLite.
type liteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// A bulk is rows for a table. A writer takes it as the one argument of a statement: passed one by one, each value is checked and
// copied once more by database/sql.
type bulk struct {
	table     string
	columns   []string
	rows      [][]any
	otherwise string // on conflict
}

// A writer is a connection that keeps the statements which insert: they are long, and the next batch needs the same again.
type writer struct {
	liteConn
	kept map[string]liteStmt // by their text
	args []driver.NamedValue // of the last statement, to be used again
}

type liteStmt interface {
	driver.Stmt
	driver.StmtExecContext
}

// CheckNamedValue lets a bulk pass; all else is database/sql's to check.
func (w *writer) CheckNamedValue(v *driver.NamedValue) error {
	if _, ok := v.Value.(*bulk); ok {
		return nil
	}
	return driver.ErrSkip
}

// ExecContext runs a statement, or inserts a bulk.
func (w *writer) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if len(args) == 1 {
		if b, ok := args[0].Value.(*bulk); ok {
			return driver.RowsAffected(len(b.rows)), w.insert(ctx, b)
		}
	}
	return w.liteConn.ExecContext(ctx, text, args)
}

// Close ends the connection, and first the statements that it keeps.
func (w *writer) Close() error {
	w.drop()
	return w.liteConn.Close()
}

func (w *writer) drop() {
	for _, stmt := range w.kept {
		_ = stmt.Close() // it says again what it said when it ran
	}
	clear(w.kept)
}

// insert inserts with statements of 64 rows, and the rest with smaller ones: of each size one is kept, where one that fits would
// have to be prepared anew each time. More than 64 rows gain nothing.
func (w *writer) insert(ctx context.Context, b *bulk) error {
	defer func() { clear(w.args[:cap(w.args)]) }() // they may be large
	uninterrupted := context.WithoutCancel(ctx)    // that they can be interrupted takes a goroutine each, and each is short
	shared, rows := b.shared(), b.rows
	for _, n := range [...]int{64, 8, 1} {
		if len(rows) < n {
			continue
		}
		stmt, err := w.statement(ctx, b.text(shared, n))
		if err != nil {
			return err
		}
		for ; len(rows) >= n; rows = rows[n:] {
			if err := errors.Join(ctx.Err(), w.bind(shared, rows[:n])); err != nil {
				return err
			}
			if _, err := stmt.ExecContext(uninterrupted, w.args); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxKept bounds the statements that are kept. There are few, unless each batch shares other columns than the one before.
const maxKept = 32

func (w *writer) statement(ctx context.Context, text string) (liteStmt, error) {
	if stmt, ok := w.kept[text]; ok {
		return stmt, nil
	}
	plain, err := w.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	stmt, ok := plain.(liteStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a statement of SQLite is a %T", plain), plain.Close())
	}
	if len(w.kept) >= maxKept {
		w.drop()
	}
	w.kept[text] = stmt
	return stmt, nil
}

// shared says which columns are bound once in a statement. At least one is not: a row needs a column of its own.
func (b *bulk) shared() []bool {
	shared := alike(b.columns, b.rows)
	if !slices.Contains(shared, false) {
		shared[0] = false
	}
	return shared
}

// text is the statement that inserts n rows: what they share, beside a list of what they do not. No parameter has a number, for
// SQLite looks for each numbered one among all that stand before it.
func (b *bulk) text(shared []bool, n int) string {
	into := fmt.Sprintf("INSERT INTO %s (%s) ", b.table, strings.Join(b.columns, ", "))
	if n == 1 {
		return into + "VALUES " + marks(len(b.columns)) + b.otherwise
	}
	from, own := make([]string, len(b.columns)), 0
	for i := range from {
		if from[i] = "?"; !shared[i] {
			own++
			from[i] = fmt.Sprint("column", own)
		}
	}
	row := marks(own)
	list := row + strings.Repeat(", "+row, n-1)
	return into + "SELECT " + strings.Join(from, ", ") + " FROM (VALUES " + list + ") WHERE true" + b.otherwise // or ON CONFLICT would be a join's
}

func marks(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// bind makes rows the arguments, in the order of the text.
func (w *writer) bind(shared []bool, rows [][]any) error {
	w.args = w.args[:0]
	if len(rows) == 1 {
		return w.bindRow(rows[0], shared, true, true)
	}
	if err := w.bindRow(rows[0], shared, true, false); err != nil {
		return err
	}
	for _, row := range rows {
		if err := w.bindRow(row, shared, false, true); err != nil {
			return err
		}
	}
	return nil
}

// bindRow adds of a row what it shares, what is its own, or both.
func (w *writer) bindRow(row []any, shared []bool, same, own bool) error {
	for i, v := range row {
		if shared[i] && !same || !shared[i] && !own {
			continue
		}
		switch v.(type) {
		case string, int64, bool: // most are
		default:
			var err error
			if v, err = driver.DefaultParameterConverter.ConvertValue(v); err != nil {
				return err
			}
		}
		w.args = append(w.args, driver.NamedValue{Ordinal: len(w.args) + 1, Value: v})
	}
	return nil
}
