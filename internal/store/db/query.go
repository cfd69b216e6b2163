package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
)

// A Scoped runs statements within one workspace, or across all of them on purpose. There is no other way to run one,
// so that a query cannot forget whose rows it reads.
type Scoped struct {
	db     *DB
	tx     *Tx
	ws     tenant.ID
	across string
}

// In scopes statements to a workspace. Its id is bound as $1, further arguments start at $2, and a statement that
// does not say workspace_id = $1 (or insert it as its first column) is refused.
func (d *DB) In(ws tenant.ID) Scoped { return Scoped{db: d, ws: ws} }

// Across lets statements cross workspaces; the reason is for the reader.
func (d *DB) Across(reason string) Scoped { return Scoped{db: d, across: reason} }

// In is like DB.In, within the transaction.
func (t *Tx) In(ws tenant.ID) Scoped { return Scoped{db: t.db, tx: t, ws: ws} }

// Across is like DB.Across, within the transaction.
func (t *Tx) Across(reason string) Scoped { return Scoped{db: t.db, tx: t, across: reason} }

// Across is s beyond its workspace, in the same transaction; the reason is for the reader.
func (s Scoped) Across(reason string) Scoped { return Scoped{db: s.db, tx: s.tx, across: reason} }

// ErrScope says that a statement was about to run without its workspace. It is a mistake in our code.
var ErrScope = errors.New("statement is not scoped to its workspace")

// ErrNone says that One found no row.
var ErrNone = errors.New("no row")

// Query reads every row as a T: a struct whose fields, and those of structs in it that have no name, are the columns (by db
// tag, else the field's name in snake case), or a single value.
func Query[T any](ctx context.Context, s Scoped, text string, args ...any) ([]T, error) {
	var all []T
	for row, err := range Rows[T](ctx, s, text, args...) {
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, nil
}

// Maybe reads one row, or nil when there is none.
func Maybe[T any](ctx context.Context, s Scoped, text string, args ...any) (*T, error) {
	var first *T
	for row, err := range Rows[T](ctx, s, text, args...) { // to the end: a lost race may only show there
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = &row
		}
	}
	return first, nil
}

// One reads one row; no row is ErrNone.
func One[T any](ctx context.Context, s Scoped, text string, args ...any) (T, error) {
	row, err := Maybe[T](ctx, s, text, args...)
	if err == nil && row == nil {
		err = ErrNone
	}
	if err != nil {
		var none T
		return none, err
	}
	return *row, nil
}

// Rows reads row by row, holding one at a time.
func Rows[T any](ctx context.Context, s Scoped, text string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		bindings, err := s.bind(text, args)
		if err != nil {
			yield(none, err)
			return
		}
		rows, err := s.runner(ctx, false).QueryContext(ctx, text, bindings...)
		if err != nil {
			yield(none, wrap(err))
			return
		}
		defer func() { _ = rows.Close() }()
		scan, err := scanner[T](rows)
		if err != nil {
			yield(none, err)
			return
		}
		for rows.Next() {
			row, err := scan()
			if !yield(row, wrap(err)) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(none, wrap(err))
		}
	}
}

// Exec runs a statement and returns how many rows it changed.
func Exec(ctx context.Context, s Scoped, text string, args ...any) (int64, error) {
	bindings, err := s.bind(text, args)
	if err != nil {
		return 0, err
	}
	result, err := s.runner(ctx, true).ExecContext(ctx, text, bindings...)
	if err != nil {
		return 0, wrap(err)
	}
	return result.RowsAffected()
}

type runner interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
}

func (s Scoped) runner(ctx context.Context, writes bool) runner {
	switch outer := bound(ctx, s.db); {
	case s.tx != nil:
		return s.tx.tx
	case outer != nil:
		return outer.tx
	case writes:
		return s.db.write
	default:
		return s.db.read
	}
}

// bind checks the scope and turns arguments into what both drivers take alike.
func (s Scoped) bind(text string, args []any) ([]any, error) {
	if s.across == "" {
		if s.ws == "" || !scoped(text) {
			return nil, fmt.Errorf("%w: %s", ErrScope, strings.Join(strings.Fields(text), " "))
		}
		args = append([]any{s.ws}, args...)
	}
	bindings := make([]any, len(args))
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, fmt.Errorf("argument $%d: %w", i+1, err)
		}
		if text, ok := value.(string); ok && (strings.IndexByte(text, 0) >= 0 || !utf8.ValidString(text)) {
			return nil, fault.InvalidParameter.New("text must be UTF-8 without NUL characters") // PostgreSQL could not keep it
		}
		bindings[i] = value
	}
	return bindings, nil
}

var (
	filtered = regexp.MustCompile(`\bworkspace_id\s*=\s*\$1\b`)
	inserted = regexp.MustCompile(`(?is)^\s*INSERT\s+INTO\s+\w+\s*\(\s*workspace_id\b[^)]*\)\s*VALUES\s*\(\s*\$1\b`)
	verdicts sync.Map // statement → bool: the texts are constants, so there are few
)

func scoped(text string) bool {
	if verdict, ok := verdicts.Load(text); ok {
		return verdict.(bool)
	}
	verdict := filtered.MatchString(text) || inserted.MatchString(text)
	verdicts.Store(text, verdict)
	return verdict
}
