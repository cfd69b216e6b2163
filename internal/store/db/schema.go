package db

import (
	"context"
	"fmt"
	"iter"
	"strings"
)

// A Kind is the type of a column, the same on both engines.
type Kind string

// The column types that migrations may use.
const (
	Integer Kind = "integer"
	Text    Kind = "text"
	Bytes   Kind = "bytes"
	Boolean Kind = "boolean"
	Real    Kind = "real"
)

// A Column of a table.
type Column struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
}

// A Table is one of our tables, with its columns.
type Table struct {
	Name    string   `json:"name"`
	Columns []Column `json:"columns"`
}

// Tables lists our tables in the order of their creation, so that a table comes after those it refers to. The
// migrations' own table and generated columns are not listed.
func Tables(ctx context.Context, s Scoped) ([]Table, error) {
	columns := `SELECT m.name AS of_table, p.name, p.type AS kind FROM sqlite_master m, pragma_table_info(m.name) p
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND m.name <> 'goose_db_version' ORDER BY m.rowid, p.cid`
	if s.db.Engine == Postgres {
		columns = `SELECT CAST(c.relname AS TEXT) AS of_table, CAST(a.attname AS TEXT) AS name,
				format_type(a.atttypid, a.atttypmod) AS kind
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
			WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND c.relname <> 'goose_db_version'
				AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
			ORDER BY c.oid, a.attnum`
	}
	type column struct{ OfTable, Name, Kind string }
	found, err := Query[column](ctx, s, columns)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	var all []Table
	for _, c := range found {
		kind, ok := kinds[strings.ToLower(c.Kind)]
		if !ok {
			return nil, fmt.Errorf(
				"column %s.%s has the type %s, which is not one of both engines", c.OfTable, c.Name, c.Kind,
			)
		}
		if len(all) == 0 || all[len(all)-1].Name != c.OfTable {
			all = append(all, Table{Name: c.OfTable})
		}
		last := &all[len(all)-1]
		last.Columns = append(last.Columns, Column{c.Name, kind})
	}
	return all, nil
}

var kinds = map[string]Kind{
	"bigint": Integer, "text": Text, "bytea": Bytes, "boolean": Boolean, "double precision": Real,
}

// Dump reads a whole table row by row, each value as int64, float64, string, []byte, bool or nil.
func Dump(ctx context.Context, s Scoped, t Table) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		names := make([]string, len(t.Columns))
		targets := make([]any, len(t.Columns))
		for i, c := range t.Columns {
			names[i] = c.Name
			switch c.Kind {
			case Integer:
				targets[i] = new(*int64)
			case Text:
				targets[i] = new(*string)
			case Bytes:
				targets[i] = new(any) // SQLite hands empty bytes over as a nil []byte: in an any it is still not NULL
			case Boolean:
				targets[i] = new(*bool)
			case Real:
				targets[i] = new(*float64)
			}
		}
		rows, err := s.executor(ctx, false).QueryContext(ctx, "SELECT "+strings.Join(names, ", ")+" FROM "+t.Name)
		if err != nil {
			yield(nil, wrapUnavailable(err))
			return
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			err := rows.Scan(targets...)
			if !yield(values(targets), wrapUnavailable(err)) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, wrapUnavailable(err))
		}
	}
}

func values(targets []any) []any {
	row := make([]any, len(targets))
	for i, target := range targets {
		switch v := target.(type) {
		case **int64:
			if *v != nil {
				row[i] = **v
			}
		case **string:
			if *v != nil {
				row[i] = **v
			}
		case **bool:
			if *v != nil {
				row[i] = **v
			}
		case **float64:
			if *v != nil {
				row[i] = **v
			}
		case *any:
			if b, ok := (*v).([]byte); ok {
				row[i] = append([]byte{}, b...)
			}
		}
	}
	return row
}
