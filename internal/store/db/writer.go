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

// A writerConnector opens SQLite's writing connection.
type writerConnector struct{ driver.Connector }

func newWriterConnector(dsn string) (driver.Connector, error) {
	plain, err := sqlite.NewConnector(dsn)
	return writerConnector{plain}, err
}

// Connect opens a connection that accepts a bulk.
func (c writerConnector) Connect(ctx context.Context) (driver.Conn, error) {
	plain, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, ok := plain.(sqliteConn)
	if !ok {
		return nil, fmt.Errorf("a connection of SQLite is a %T", plain)
	}
	return &writer{sqliteConn: conn, statements: map[string]sqliteStmt{}}, nil
}

// A sqliteConn is everything that database/sql uses of a connection of SQLite.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// A bulk is a set of rows for a table. A writer takes it as the single argument of a statement: database/sql would
// check and copy each value once more if they were passed one by one.
type bulk struct {
	table      string
	columns    []string
	rows       [][]any
	onConflict string // the ON CONFLICT clause, or empty
}

// A writer is a connection that caches its prepared INSERT statements: they are long, and the next batch needs the
// same ones.
type writer struct {
	sqliteConn
	statements map[string]sqliteStmt // prepared statements by their text
	args       []driver.NamedValue   // arguments of the last statement, reused
}

type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
}

// CheckNamedValue accepts a bulk, and leaves other values to database/sql.
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
	return w.sqliteConn.ExecContext(ctx, text, args)
}

// Close ends the connection, and first the statements that it keeps.
func (w *writer) Close() error {
	w.closeStatements()
	return w.sqliteConn.Close()
}

func (w *writer) closeStatements() {
	for _, stmt := range w.statements {
		_ = stmt.Close() // it repeats the error of its execution
	}
	clear(w.statements)
}

// insert uses statements of 64 rows, then of 8 and of 1 for the remainder. One statement of each size is cached; one
// of the exact size would have to be prepared each time. More than 64 rows per statement gain nothing.
func (w *writer) insert(ctx context.Context, b *bulk) error {
	defer func() { clear(w.args[:cap(w.args)]) }() // the values may be large
	uninterrupted := context.WithoutCancel(ctx)    // a cancellable statement takes a goroutine, and each is short
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

// maxStatements bounds the cache. There are few statements, unless each batch shares other columns than the one
// before.
const maxStatements = 32

func (w *writer) statement(ctx context.Context, text string) (sqliteStmt, error) {
	if stmt, ok := w.statements[text]; ok {
		return stmt, nil
	}
	plain, err := w.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	stmt, ok := plain.(sqliteStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a statement of SQLite is a %T", plain), plain.Close())
	}
	if len(w.statements) >= maxStatements {
		w.closeStatements()
	}
	w.statements[text] = stmt
	return stmt, nil
}

// shared reports which columns are bound once per statement. At least one is not: a row of VALUES needs a column.
func (b *bulk) shared() []bool {
	shared := sharedColumns(b.columns, b.rows)
	if !slices.Contains(shared, false) {
		shared[0] = false
	}
	return shared
}

// text returns the statement that inserts n rows: the shared values, joined to a VALUES list of the others. The
// parameters have no numbers, because SQLite searches the earlier ones for each numbered parameter.
func (b *bulk) text(shared []bool, n int) string {
	into := fmt.Sprintf("INSERT INTO %s (%s) ", b.table, strings.Join(b.columns, ", "))
	if n == 1 {
		return into + "VALUES " + marks(len(b.columns)) + b.onConflict
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
	// Without WHERE, SQLite would parse ON CONFLICT as a join constraint.
	return into + "SELECT " + strings.Join(from, ", ") + " FROM (VALUES " + list + ") WHERE true" + b.onConflict
}

func marks(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// bind sets the arguments to the values of rows, in the order of the text.
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

// bindRow appends a row's shared values, its own, or both.
func (w *writer) bindRow(row []any, shared []bool, same, own bool) error {
	for i, v := range row {
		if shared[i] && !same || !shared[i] && !own {
			continue
		}
		switch v.(type) {
		case string, int64, bool: // the common types
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
