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

// A Scoped runs statements within one workspace, or deliberately across all of them. There is no other way to run
// one, so that a query cannot omit whose rows it reads.
type Scoped struct {
	db     *DB
	tx     *Tx
	ws     tenant.ID
	across string
}

// In scopes statements to a workspace. Its id is bound as $1, and further arguments start at $2. A statement that
// does not say workspace_id = $1, or insert it as its first column, is refused.
func (d *DB) In(ws tenant.ID) Scoped { return Scoped{db: d, ws: ws} }

// Across permits statements across workspaces. The reason is documentation.
func (d *DB) Across(reason string) Scoped { return Scoped{db: d, across: reason} }

// In is like DB.In, within the transaction.
func (t *Tx) In(ws tenant.ID) Scoped { return Scoped{db: t.db, tx: t, ws: ws} }

// Across is like DB.Across, within the transaction.
func (t *Tx) Across(reason string) Scoped { return Scoped{db: t.db, tx: t, across: reason} }

// Across returns s without its workspace, in the same transaction. The reason is documentation.
func (s Scoped) Across(reason string) Scoped { return Scoped{db: s.db, tx: s.tx, across: reason} }

// ErrScope reports a statement without its workspace. It is a bug in the calling code.
var ErrScope = errors.New("statement is not scoped to its workspace")

// ErrNone reports that One found no row.
var ErrNone = errors.New("no row")

// Query reads every row as a T: a single value, or a struct whose fields are the columns. Fields of embedded structs
// count. A column belongs to the field with its name in the db tag, else to the field whose name in snake case it is.
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
	for row, err := range Rows[T](ctx, s, text, args...) { // to the end: a serialization failure may only show there
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
		rows, err := s.executor(ctx, false).QueryContext(ctx, text, bindings...)
		if err != nil {
			yield(none, wrapUnavailable(err))
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
			if !yield(row, wrapUnavailable(err)) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(none, wrapUnavailable(err))
		}
	}
}

// Exec runs a statement and returns how many rows it changed.
func Exec(ctx context.Context, s Scoped, text string, args ...any) (int64, error) {
	bindings, err := s.bind(text, args)
	if err != nil {
		return 0, err
	}
	result, err := s.executor(ctx, true).ExecContext(ctx, text, bindings...)
	if err != nil {
		return 0, wrapUnavailable(err)
	}
	return result.RowsAffected()
}

type executor interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
}

func (s Scoped) executor(ctx context.Context, writes bool) executor {
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

// bind checks the scope, and converts the arguments to types that both drivers accept.
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
			// PostgreSQL could not keep it
			return nil, fault.InvalidParameter.New("text must be UTF-8 without NUL characters")
		}
		bindings[i] = value
	}
	return bindings, nil
}

var (
	filtered    = regexp.MustCompile(`\bworkspace_id\s*=\s*\$1\b`)
	inserted    = regexp.MustCompile(`(?is)^\s*INSERT\s+INTO\s+\w+\s*\(\s*workspace_id\b[^)]*\)\s*VALUES\s*\(\s*\$1\b`)
	scopeChecks sync.Map // statement → bool; the statements are constants, so there are few
)

func scoped(text string) bool {
	if passed, ok := scopeChecks.Load(text); ok {
		return passed.(bool)
	}
	passed := filtered.MatchString(text) || inserted.MatchString(text)
	scopeChecks.Store(text, passed)
	return passed
}
