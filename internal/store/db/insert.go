package db

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// Insert inserts rows, many per statement.
func Insert(ctx context.Context, s Scoped, table string, columns []string, rows [][]any) error {
	return Upsert(ctx, s, table, columns, 0, rows)
}

// Upsert inserts rows, or updates existing ones. The first key columns are the key, the others are set. No two rows
// have the same key.
func Upsert(ctx context.Context, s Scoped, table string, columns []string, key int, rows [][]any) error {
	set := make([]string, 0, len(columns))
	for _, column := range columns[key:] {
		set = append(set, column+" = excluded."+column)
	}
	return Merge(ctx, s, table, columns, key, strings.Join(set, ", "), rows)
}

// Merge is Upsert with an explicit SET list, such as n = counts.n + excluded.n.
func Merge(ctx context.Context, s Scoped, table string, columns []string, key int, set string, rows [][]any) error {
	if s.across == "" {
		return fmt.Errorf("insert into %s: %w", table, ErrScope)
	}
	otherwise := ""
	if key > 0 {
		otherwise = fmt.Sprintf(" ON CONFLICT (%s) DO UPDATE SET %s", strings.Join(columns[:key], ", "), set)
	}
	if err := s.insert(ctx, table, columns, rows, otherwise); err != nil {
		return fmt.Errorf("insert into %s: %w", table, wrapUnavailable(err))
	}
	return nil
}

// maxArgs bounds the parameters of one statement: PostgreSQL permits 65535, and each statement costs a round trip.
const maxArgs = 30_000

func (s Scoped) insert(ctx context.Context, table string, columns []string, rows [][]any, otherwise string) error {
	for _, row := range rows {
		if len(row) != len(columns) {
			return fmt.Errorf("a row of %d values for %d columns", len(row), len(columns))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if s.db.Engine == SQLite {
		return s.insertBulk(ctx, &bulk{table, columns, rows, otherwise})
	}
	to, batch := s.executor(ctx, true), max(1, maxArgs/max(1, len(columns)))
	shared := sharedColumns(columns, rows)
	var whole *sql.Stmt // prepared statement of a full batch
	var args []any
	for len(rows) > 0 {
		n := min(batch, len(rows))
		args = arguments(args[:0], shared, rows[:n])
		if whole == nil && len(rows) >= 2*batch {
			var err error
			if whole, err = to.PrepareContext(
				ctx, insertStatement(table, columns, shared, batch)+otherwise,
			); err != nil {
				return err
			}
			defer func() { _ = whole.Close() }()
		}
		var err error
		if whole != nil && n == batch {
			_, err = whole.ExecContext(ctx, args...)
		} else {
			_, err = to.ExecContext(ctx, insertStatement(table, columns, shared, n)+otherwise, args...)
		}
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insertBulk passes a bulk to SQLite's writer, in a transaction: it takes more than one statement.
func (s Scoped) insertBulk(ctx context.Context, b *bulk) error {
	if s.tx == nil && bound(ctx, s.db) == nil {
		_, err := s.db.Tx(ctx, func(tx *Tx) error { return tx.Across(s.across).insertBulk(ctx, b) })
		return err
	}
	_, err := s.executor(ctx, true).ExecContext(ctx, "INSERT INTO "+b.table, b)
	return err
}

// sharedColumns reports which columns hold one value in all rows. Of many rows, most columns do. Such a value is
// bound with the first row of a statement only: binding costs more than referring to a parameter again.
func sharedColumns(columns []string, rows [][]any) []bool {
	shared := make([]bool, len(columns))
	for i := range shared {
		shared[i] = true
		for _, row := range rows {
			if !equalValues(row[i], rows[0][i]) {
				shared[i] = false
				break
			}
		}
	}
	return shared
}

// equalValues compares the common types; values of other types count as different.
func equalValues(a, b any) bool {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && a == b
	case int64:
		b, ok := b.(int64)
		return ok && a == b
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	}
	return false
}

// arguments returns the values of the first row, and of the others those that they do not share with it.
func arguments(args []any, shared []bool, rows [][]any) []any {
	args = append(args, rows[0]...)
	for _, row := range rows[1:] {
		for i, value := range row {
			if !shared[i] {
				args = append(args, value)
			}
		}
	}
	return args
}

// insertStatement returns the statement that inserts n rows, with numbered parameters.
func insertStatement(table string, columns []string, shared []bool, n int) string {
	var text strings.Builder
	fmt.Fprintf(&text, "INSERT INTO %s (%s) VALUES ", table, strings.Join(columns, ", "))
	last := 0
	for row := range n {
		open := ", ("
		if row == 0 {
			open = "("
		}
		for i := range columns {
			at := i + 1
			if row == 0 || !shared[i] {
				last++
				at = last
			}
			text.WriteString(open + "$" + strconv.Itoa(at))
			open = ", "
		}
		text.WriteString(")")
	}
	return text.String()
}
