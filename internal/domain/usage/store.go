package usage

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// A Store reads what was used, and closes days that are over.
type Store struct {
	db  *db.DB
	now func() clock.Time
}

// NewStore returns a store of the rows in d.
func NewStore(d *db.DB) *Store { return &Store{db: d, now: clock.Now} }

// A Point is what one group used on one day.
type Point struct {
	Day   Day    `json:"day"`
	Group string `json:"group" db:"grp" doc:"The model, key id or tag; empty for none"`
	Used
}

// summed selects the counts of rows that are grouped.
var summed = func() string {
	all := make([]string, len(countColumns))
	for i, name := range countColumns {
		all[i] = "CAST(SUM(" + name + ") AS BIGINT) AS " + name
	}
	return strings.Join(all, ", ")
}()

// closedBefore returns the day before which the days of a workspace are closed.
func closedBefore(ctx context.Context, in db.Scoped) (Day, error) {
	before, err := db.Maybe[Day](ctx, in, `SELECT before FROM usage_closed WHERE workspace_id = $1`)
	if err != nil {
		return 0, fmt.Errorf("read the closed days: %w", err)
	}
	if before == nil {
		return 0, nil
	}
	return *before, nil
}

// Series returns the points of the days of a filter, ordered by day and group. by is a dimension, or "none".
func (s *Store) Series(ctx context.Context, ws tenant.ID, f Filter, by string) (all []Point, err error) {
	err = s.db.SnapshotIn(ctx, ws, func(in db.Scoped) error {
		before, err := closedBefore(ctx, in)
		if err != nil {
			return err
		}
		closed, open := f, f
		closed.To, open.From = min(f.To, before-1), max(f.From, before)
		if closed.From <= closed.To {
			if all, err = closedPoints(ctx, in, closed, by); err != nil {
				return err
			}
		}
		if open.From > open.To {
			return nil
		}
		more, err := openPoints(ctx, in, open, by)
		all = append(all, more...)
		return err
	})
	return all, err
}

// openPoints adds up the rows of days.
func openPoints(ctx context.Context, in db.Scoped, f Filter, by string) ([]Point, error) {
	where, args := f.where()
	points, err := db.Query[Point](ctx, in, `
		SELECT day, `+column(by)+` AS grp, `+summed+` FROM usage_days WHERE `+where+`
		GROUP BY day, grp ORDER BY day, grp`, args...)
	if err != nil {
		return nil, fmt.Errorf("read the usage of days: %w", err)
	}
	return points, nil
}

// keyNames returns the names of keys, by id. A member learns those of their own keys alone, as in the list of keys.
func (s *Store) keyNames(ctx context.Context, caller tenant.Caller, ids []string) (map[string]string, error) {
	if len(ids) == 0 {
		return map[string]string{}, nil
	}
	owner := caller.User
	if caller.Role.Manages() {
		owner = ""
	}
	args, places := []any{owner}, make([]string, len(ids))
	for i, id := range ids {
		args, places[i] = append(args, id), fmt.Sprintf("$%d", i+3)
	}
	keys, err := db.Query[struct{ ID, Name string }](ctx, s.db.In(caller.Workspace), `
		SELECT id, name FROM api_keys
		WHERE workspace_id = $1 AND ($2 = '' OR user_id = $2) AND id IN (`+strings.Join(places, ", ")+`)`, args...)
	if err != nil {
		return nil, fmt.Errorf("read the names of keys: %w", err)
	}
	names := make(map[string]string, len(keys))
	for _, key := range keys {
		names[key.ID] = key.Name
	}
	return names, nil
}

// where returns the condition of a filter, and its arguments from $2 on.
func (f Filter) where() (string, []any) {
	var text strings.Builder
	text.WriteString("workspace_id = $1 AND day >= $2 AND day <= $3")
	args := []any{f.From, f.To}
	for _, d := range dimensions {
		if value := f.value(d.name); value != "" {
			args = append(args, value)
			fmt.Fprintf(&text, " AND %s = $%d", d.column, len(args)+1)
		}
	}
	return text.String(), args
}

func (f Filter) value(dimension string) string {
	return (&cell{model: f.Model, key: f.Key, tag: f.Tag}).value(dimension)
}

// closedPoints reads the sums of closed days.
func closedPoints(ctx context.Context, in db.Scoped, f Filter, by string) ([]Point, error) {
	var picks []string // the filters of other dimensions
	for _, d := range dimensions {
		if d.name != by && f.value(d.name) != "" {
			picks = append(picks, d.name)
		}
	}
	group := f.value(by)
	if by == "none" && len(picks) > 0 { // one group of a cut is the same as no group
		by, group, picks = picks[0], f.value(picks[0]), picks[1:]
		points, err := cutPoints(ctx, in, f, by, group, picks)
		for i := range points {
			points[i].Group = ""
		}
		return points, err
	}
	return cutPoints(ctx, in, f, by, group, picks)
}

func cutPoints(ctx context.Context, in db.Scoped, f Filter, by, group string, picks []string) ([]Point, error) {
	c, value := cut{by: by}, ""
	copy(c.picks[:], picks)
	switch len(picks) {
	case 1:
		value = f.value(picks[0])
	case 2:
		value = pickOf(f.value(picks[0]), f.value(picks[1]))
	}
	if !slices.Contains(cuts, c) {
		return finePoints(ctx, in, f, by)
	}
	args := []any{c.String(), value, f.From, f.To}
	condition := ""
	if group != "" {
		condition, args = " AND grp = $6", append(args, group)
	}
	points, err := db.Query[Point](ctx, in, `
		SELECT day, grp, `+strings.Join(countColumns, ", ")+` FROM usage_sums
		WHERE workspace_id = $1 AND cut = $2 AND pick = $3 AND day >= $4 AND day <= $5`+condition+`
		ORDER BY day, grp`, args...)
	if err != nil {
		return nil, fmt.Errorf("read the usage of closed days: %w", err)
	}
	return points, nil
}

// finePoints reads the rows of days by the filters of model and key, with which the key of the table begins. It looks
// each day up, instead of reading all rows of the days.
func finePoints(ctx context.Context, in db.Scoped, f Filter, by string) ([]Point, error) {
	args := []any{f.From, f.To}
	var condition strings.Builder
	for _, d := range dimensions {
		if value := f.value(d.name); value != "" {
			args = append(args, value)
			fmt.Fprintf(&condition, " AND d.%s = $%d", d.column, len(args)+1)
		}
	}
	points, err := db.Query[Point](ctx, in, `
		SELECT d.day AS day, d.`+column(by)+` AS grp, `+summed2+`
		FROM usage_sums s CROSS JOIN usage_days d
		WHERE s.workspace_id = $1 AND s.cut = 'none' AND s.pick = '' AND s.day >= $2 AND s.day <= $3
			AND d.workspace_id = $1 AND d.day = s.day`+condition.String()+`
		GROUP BY d.day, d.`+column(by)+` ORDER BY d.day, d.`+column(by), args...)
	if err != nil {
		return nil, fmt.Errorf("read the usage of closed days: %w", err)
	}
	return points, nil
}

// summed2 is summed of the rows d.
var summed2 = strings.ReplaceAll(summed, "SUM(", "SUM(d.")

// A Row is what the requests of one model, key and tag used on one day.
type Row struct {
	Day   Day
	Model string
	KeyID string
	Tag   string
	Used
}

// Rows yields the rows of a filter in the order of their days.
func (s *Store) Rows(ctx context.Context, ws tenant.ID, f Filter) iter.Seq2[Row, error] {
	where, args := f.where()
	return db.Rows[Row](ctx, s.db.In(ws), `
		SELECT day, model, key_id, tag, `+strings.Join(countColumns, ", ")+` FROM usage_days WHERE `+where+`
		ORDER BY day, model, key_id, tag`, args...)
}

// closeAtOnce is how many days of a workspace one transaction closes.
const closeAtOnce = 31

// CloseDays adds up the days before yesterday that are not closed. Charges of a closed day that are posted later are
// added to its sums by Days.Write.
func (s *Store) CloseDays(ctx context.Context) error {
	before := DayOf(s.now()) - 1
	type unclosed struct {
		WorkspaceID tenant.ID
		First       Day
	}
	for {
		all, err := db.Query[unclosed](ctx, s.db.Across("days are closed for all workspaces"), `
			SELECT w.workspace_id AS workspace_id, (
				SELECT MIN(d.day) FROM usage_days d
				WHERE d.workspace_id = w.workspace_id AND d.day >= COALESCE(c.before, 0) AND d.day < $1
			) AS first
			FROM workspaces w LEFT JOIN usage_closed c ON c.workspace_id = w.workspace_id
			WHERE COALESCE(c.before, 0) < $1 AND EXISTS (
				SELECT 1 FROM usage_days d
				WHERE d.workspace_id = w.workspace_id AND d.day >= COALESCE(c.before, 0) AND d.day < $1
			)`, before)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, one := range all {
			if err := s.closeDays(ctx, one.WorkspaceID, min(before, one.First+closeAtOnce)); err != nil {
				return fmt.Errorf("close the days of %s: %w", one.WorkspaceID, err)
			}
		}
	}
}

// closeDays adds up the days of a workspace before one.
func (s *Store) closeDays(ctx context.Context, ws tenant.ID, before Day) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		from, err := closedBefore(ctx, in)
		if err != nil || from >= before {
			return err
		}
		for _, c := range cuts {
			if _, err := db.Exec(ctx, in, `
				INSERT INTO usage_sums (`+strings.Join(sumColumns, ", ")+`)
				SELECT workspace_id, '`+c.String()+`', `+c.pickColumn()+`, day, `+column(c.by)+`, `+summed+`
				FROM usage_days WHERE workspace_id = $1 AND day >= $2 AND day < $3
				GROUP BY 1, 2, 3, 4, 5`, from, before); err != nil {
				return err
			}
		}
		_, err = db.Exec(ctx, in, `
			INSERT INTO usage_closed (workspace_id, before) VALUES ($1, $2)
			ON CONFLICT (workspace_id) DO UPDATE SET before = excluded.before`, before)
		return err
	})
	return err
}
