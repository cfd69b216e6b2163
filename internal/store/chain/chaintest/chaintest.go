// Package chaintest changes the rows that a chain covers in every way, one at a time, and requires that each change is
// found.
package chaintest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sovereign/internal/store/db"
)

// A Table is a table whose rows are changed. Its first columns, Key, tell its rows apart.
type Table struct {
	Name  string
	Key   []string
	Where string // which rows, as SQL; empty for all
}

// A Verifier returns the problems that it finds in s.
type Verifier func(t *testing.T, s db.Scoped) (problems []string)

// EveryChangeIsFound changes every value of every row, removes every row, and swaps every two neighbours, one at a
// time, and undoes each. It fails for every change that find does not report.
func EveryChangeIsFound(t *testing.T, d *db.DB, tables []Table, find Verifier) {
	t.Helper()
	Unchanged(t, d, find)
	for _, table := range tables {
		shape, rows := read(t, d, table)
		if len(rows) == 0 {
			t.Errorf("%s has no rows to change", table.Name)
		}
		tried, refused := 0, 0
		try := func(what string, statements ...Statement) {
			t.Helper()
			tried++
			if !Found(t, d, what, find, statements...) {
				refused++
			}
		}
		for i, row := range rows {
			is := table.is(row)
			for n, column := range shape.Columns {
				for _, value := range others(row[n], column.Kind) {
					try(fmt.Sprintf("%s.%s of %s is %v", table.Name, column.Name, is, value),
						Do(fmt.Sprintf("UPDATE %s SET %s = $1 WHERE %s", table.Name, column.Name, is), value))
				}
			}
			try(fmt.Sprintf("%s %s is gone", table.Name, is), Do("DELETE FROM "+table.Name+" WHERE "+is))
			if i > 0 {
				try(fmt.Sprintf("%s %s and the one before it are swapped", table.Name, is),
					table.swap(shape, rows[i-1], row)...)
			}
		}
		t.Logf(
			"%s: %d changes of %d rows, of which the database itself refuses %d", table.Name, tried, len(rows), refused,
		)
		if refused*2 > tried {
			t.Errorf("%s: the database refuses %d of %d changes, so that they show nothing", table.Name, refused, tried)
		}
	}
	Unchanged(t, d, find)
}

// Unchanged fails when find reports a problem of the database as it is.
func Unchanged(t *testing.T, d *db.DB, find Verifier) {
	t.Helper()
	if err := d.Snapshot(t.Context(), "test", func(s db.Scoped) error {
		if problems := find(t, s); len(problems) > 0 {
			t.Fatalf("nothing was changed, and it says %q", problems)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A Statement is SQL of an attacker.
type Statement struct {
	text string
	args []any
}

// Do returns a statement.
func Do(text string, args ...any) Statement { return Statement{text, args} }

var errUndo = errors.New("undo")

// Found runs statements, fails unless find reports a problem then, and undoes them. It returns false when the
// database refused a statement.
func Found(t *testing.T, d *db.DB, what string, find Verifier, statements ...Statement) (possible bool) {
	t.Helper()
	_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
		possible = false
		across := tx.Across("test")
		for _, s := range statements {
			if n, err := db.Exec(t.Context(), across, s.text, s.args...); err != nil || n == 0 {
				return errors.Join(errUndo, err)
			}
		}
		possible = true
		if problems := find(t, across); len(problems) == 0 {
			t.Errorf("%s, and it is not found", what)
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		t.Fatalf("%s: %v", what, err)
	}
	return possible
}

func read(t *testing.T, d *db.DB, table Table) (shape db.Table, rows [][]any) {
	t.Helper()
	tables, err := db.Tables(t.Context(), d.Across("test"))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range tables {
		if one.Name == table.Name {
			shape = one
		}
	}
	from := shape
	if table.Where != "" {
		from.Name += " WHERE " + table.Where
	}
	from.Name += " ORDER BY " + strings.Join(table.Key, ", ")
	for row, err := range db.Dump(t.Context(), d.Across("test"), from) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return table.keyFirst(shape, rows)
}

// keyFirst moves the key's columns to the front.
func (table Table) keyFirst(shape db.Table, rows [][]any) (db.Table, [][]any) {
	for place, key := range table.Key {
		for n := place; n < len(shape.Columns); n++ {
			if shape.Columns[n].Name != key {
				continue
			}
			shape.Columns[place], shape.Columns[n] = shape.Columns[n], shape.Columns[place]
			for _, row := range rows {
				row[place], row[n] = row[n], row[place]
			}
		}
	}
	return shape, rows
}

// is is the condition that selects one row.
func (table Table) is(row []any) string {
	parts := make([]string, len(table.Key))
	for i, key := range table.Key {
		switch v := row[i].(type) {
		case string:
			parts[i] = fmt.Sprintf("%s = '%s'", key, strings.ReplaceAll(v, "'", "''"))
		default:
			parts[i] = fmt.Sprintf("%s = %v", key, v)
		}
	}
	return strings.Join(parts, " AND ")
}

// swap exchanges everything but the keys of two rows.
func (table Table) swap(shape db.Table, a, b []any) []Statement {
	var set []string
	var one, other []any
	for n := len(table.Key); n < len(shape.Columns); n++ {
		one, other = append(one, a[n]), append(other, b[n])
		set = append(set, fmt.Sprintf("%s = $%d", shape.Columns[n].Name, len(one)))
	}
	to := "UPDATE " + table.Name + " SET " + strings.Join(set, ", ") + " WHERE "
	return []Statement{Do(to+table.is(b), one...), Do(to+table.is(a), other...)}
}

// others returns values that a column may have instead.
func others(value any, kind db.Kind) []any {
	switch v := value.(type) {
	case int64:
		return []any{v + 1, v - 1}
	case string:
		if v == "" {
			return []any{"x"}
		}
		return []any{v + "x", ""}
	case bool:
		return []any{!v}
	case []byte:
		flipped := append([]byte{}, v...)
		if len(flipped) > 0 {
			flipped[len(flipped)-1] ^= 1
		}
		return []any{flipped, append(append([]byte{}, v...), 0), nil}
	case nil:
		return []any{map[db.Kind]any{db.Integer: int64(1), db.Text: "x", db.Bytes: []byte{}, db.Boolean: true}[kind]}
	}
	return nil
}
