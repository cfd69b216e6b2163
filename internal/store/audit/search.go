package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// A Filter says which entries are searched for. What is empty does not matter.
type Filter struct {
	Action string // one action, or with a dot at its end all of a kind
	Actor  string // the user who acted
	Before string // the id of an entry: those before it
	After  string // the id of an entry: the next ones after it
}

// Search reads entries of a workspace, newest first, and whether there are more in the direction that was asked for.
// Its cost does not grow with how far back they are.
func Search(ctx context.Context, d *db.DB, ws tenant.ID, f Filter, limit int) (all []Entry, more bool, err error) {
	in := d.In(ws)
	kind := ""
	if strings.HasSuffix(f.Action, ".") {
		kind, f.Action = escaped.Replace(f.Action)+"%", ""
	}
	where, order := `TRUE`, `at DESC, id DESC`
	args := []any{f.Action, kind, f.Actor, limit + 1}
	if cursor := f.Before + f.After; cursor != "" {
		at, err := db.Maybe[clock.Time](
			ctx, in, `SELECT at FROM audit_entries WHERE workspace_id = $1 AND id = $2`, cursor,
		)
		if err != nil {
			return nil, false, fmt.Errorf("find an entry: %w", err)
		}
		if at == nil {
			return nil, false, fault.NotFound("audit entry", cursor)
		}
		args = append(args, *at, cursor)
		if where = `(at < $6 OR at = $6 AND id < $7)`; f.After != "" {
			where, order = `(at > $6 OR at = $6 AND id > $7)`, `at, id`
		}
	}
	all, err = read(ctx, in, `WHERE workspace_id = $1 AND ($2 = '' OR action = $2) AND ($3 = '' OR action LIKE $3 ESCAPE '\')
		AND ($4 = '' OR actor_user = $4) AND `+where+` ORDER BY `+order+` LIMIT $5`, args...)
	if more = len(all) > limit; more {
		all = all[:limit]
	}
	if f.After != "" {
		slices.Reverse(all)
	}
	return all, more, err
}

// escaped makes a text match itself alone in LIKE.
var escaped = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)
