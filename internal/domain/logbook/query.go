package logbook

import (
	"context"
	"fmt"
	"math"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// A query finds rows by filters, at one time.
//
// With one facet or none, rows are found along the facet's own index and counted by the hour, so that neither a total
// nor a deep page reads all rows. With several facets, rows are found and counted along the index of the rarest,
// which holds the other columns too.
type query struct {
	in      db.Scoped
	ws      tenant.ID
	now     clock.Time
	from    clock.Time           // inclusive
	to      clock.Time           // exclusive
	facets  []facet              // the first one selects the index, when indexed is set
	indexed bool                 // the first facet has an index of its own
	counts  map[clock.Time]int64 // rows of the first facet, or of all rows, by hour
}

// never is later than every time.
const never = clock.Time(math.MaxInt64)

// find prepares a query.
func find(ctx context.Context, in db.Scoped, ws tenant.ID, f *Filters, now clock.Time) (*query, error) {
	q := &query{in: in, ws: ws, now: now, from: f.Start, to: never, facets: f.facets()}
	if f.End != 0 {
		q.to = f.End
	}
	if len(q.facets) == 0 {
		return q, q.count(ctx, facet{name: everything})
	}
	var leading map[clock.Time]int64
	for i, one := range q.facets {
		if err := q.count(ctx, one); err != nil {
			return nil, err
		}
		indexed := one.indexed != ""
		if i == 0 || indexed && !q.indexed || indexed == q.indexed && sum(q.counts) < sum(leading) {
			leading, q.indexed = q.counts, indexed
			q.facets[0], q.facets[i] = q.facets[i], q.facets[0]
		}
	}
	q.counts = leading
	return q, nil
}

func sum(counts map[clock.Time]int64) (n int64) {
	for _, some := range counts {
		n += some
	}
	return n
}

// count reads how many rows a facet has in the hours of the query.
func (q *query) count(ctx context.Context, f facet) error {
	type hourly struct {
		Hour clock.Time
		N    int64
	}
	q.counts = map[clock.Time]int64{}
	for row, err := range db.Rows[hourly](ctx, q.in, `
		SELECT hour, n FROM log_counts WHERE workspace_id = $1 AND facet = $2 AND value = $3 AND hour > $4 AND hour < $5`,
		f.name, f.value, q.from-hour, q.to) {
		if err != nil {
			return fmt.Errorf("read the counts: %w", err)
		}
		q.counts[row.Hour] = row.N
	}
	return nil
}

// where returns the condition of rows between two times, and its arguments from $2 on. It does not check expires_at.
func (q *query) where(from, to clock.Time) (string, []any) {
	var text strings.Builder
	text.WriteString("workspace_id = $1")
	var args []any
	if from > 0 {
		args = append(args, from)
		fmt.Fprintf(&text, " AND at >= $%d", len(args)+1)
	}
	if to < never {
		args = append(args, to)
		fmt.Fprintf(&text, " AND at < $%d", len(args)+1)
	}
	for i := range q.facets {
		args = q.facets[i].where(&text, i == 0 && q.indexed, args, 2)
	}
	return text.String(), args
}

// total returns the number of matching rows.
func (q *query) total(ctx context.Context) (int64, error) {
	switch {
	case sum(q.counts) == 0:
		return 0, nil
	case len(q.facets) > 1:
		return q.countRows(ctx, q.from, q.to, true)
	}
	var n int64
	for at, some := range q.counts {
		switch from, to := max(at, q.from), min(at+hour, q.to); {
		case from == at && to == at+hour:
			n += some
		default: // part of an hour
			part, err := q.countRows(ctx, from, to, false)
			if err != nil {
				return 0, err
			}
			n += part
		}
	}
	expired, err := q.expired(ctx)
	return n - expired, err
}

// countRows counts the rows between two times; with visible only those that have not expired.
func (q *query) countRows(ctx context.Context, from, to clock.Time, visible bool) (int64, error) {
	condition, args := q.where(from, to)
	if visible {
		args = append(args, q.now)
		condition += fmt.Sprintf(" AND expires_at > $%d", len(args)+1)
	}
	n, err := db.One[int64](ctx, q.in, `SELECT COUNT(*) FROM log_rows WHERE `+condition, args...)
	if err != nil {
		return 0, fmt.Errorf("count logged rows: %w", err)
	}
	return n, nil
}

// expired counts the rows that have expired and are not deleted yet. There are few, because they are deleted
// continuously.
func (q *query) expired(ctx context.Context) (int64, error) {
	condition, args := q.expiredWhere()
	n, err := db.One[int64](ctx, q.in.Across("the index of expiry spans all workspaces"),
		`SELECT COUNT(*) FROM log_rows WHERE `+condition, args...)
	if err != nil {
		return 0, fmt.Errorf("count expired logged rows: %w", err)
	}
	return n, nil
}

// expiredWhere returns the condition of the rows that have expired, and its arguments from $1 on.
func (q *query) expiredWhere() (string, []any) {
	args := []any{q.now, q.ws, q.from, q.to}
	var condition strings.Builder
	condition.WriteString("expires_at <= $1 AND COALESCE(workspace_id, '') = $2 AND at + 0 >= $3 AND at + 0 < $4")
	for i := range q.facets {
		args = q.facets[i].where(&condition, false, args, 1)
	}
	return condition.String(), args
}

// page reads rows, newest first, until each returns false.
func (q *query) page(ctx context.Context, columns string, limit, offset int, each func(*logRow) bool) error {
	if sum(q.counts) == 0 {
		return nil
	}
	to := q.to
	if len(q.facets) <= 1 && offset > 0 {
		expired, err := q.expired(ctx)
		if err != nil {
			return err
		}
		if expired == 0 {
			if to, offset, err = q.skip(ctx, offset); err != nil {
				return err
			}
		}
	}
	return q.read(ctx, columns, to, limit, offset, each)
}

// A pickedRow is a row of a time that is on a page, which holds so many rows of that time: perhaps not all.
type pickedRow struct {
	logRow
	Picks int
}

// read reads the rows before a time, newest first, and by id where they share a time. The times of a page are found
// along an index, which does not hold the ids. Of the first and the last time, the page may hold a part of the rows.
func (q *query) read(
	ctx context.Context, columns string, to clock.Time, limit, offset int, each func(*logRow) bool,
) error {
	condition, args := q.where(q.from, to)
	args = append(args, q.now, limit, offset)
	n := len(args) + 1
	var matches strings.Builder
	for i := range q.facets {
		args = q.facets[i].where(&matches, false, args, 2)
	}
	text := fmt.Sprintf(`
		SELECT %s, picks FROM (
			SELECT picked, COUNT(*) AS picks FROM (
				SELECT at AS picked FROM log_rows WHERE %s AND expires_at > $%d ORDER BY at DESC LIMIT $%d OFFSET $%d) times
			GROUP BY picked ORDER BY picked DESC) page
		CROSS JOIN log_rows WHERE workspace_id = $1 AND at = picked%s AND expires_at > $%[3]d ORDER BY picked DESC, id DESC`,
		columns, condition, n-2, n-1, n, matches.String())
	var first []pickedRow // all rows of the first time, if an earlier page may hold some of them
	at, taken := never, 0
	for row, err := range db.Rows[pickedRow](ctx, q.in, text, args...) {
		switch {
		case err != nil:
			return fmt.Errorf("read logged rows: %w", err)
		case offset > 0 && (len(first) == 0 || row.At == first[0].At):
			first = append(first, row)
			continue
		case at == never && len(first) > 0 && !eachOf(first[len(first)-first[0].Picks:], each):
			return nil
		case row.At != at:
			at, taken = row.At, 0
		}
		if taken++; taken <= row.Picks && !each(&row.logRow) {
			return nil
		}
	}
	if at != never || len(first) == 0 {
		return nil
	}
	first, err := q.within(ctx, first, to, offset)
	eachOf(first, each)
	return err
}

func eachOf(rows []pickedRow, each func(*logRow) bool) bool {
	for i := range rows {
		if !each(&rows[i].logRow) {
			return false
		}
	}
	return true
}

// within returns those rows of a time that are on a page on which all rows have this time.
func (q *query) within(ctx context.Context, rows []pickedRow, to clock.Time, offset int) ([]pickedRow, error) {
	picks := rows[0].Picks
	if picks == len(rows) {
		return rows, nil
	}
	newer, err := q.countRows(ctx, rows[0].At+1, to, true)
	if err != nil {
		return nil, err
	}
	from := min(max(0, offset-int(newer)), len(rows)-picks)
	return rows[from : from+picks], nil
}

// skip skips whole hours by their counts. It returns the time before which the page begins, and how many rows are
// left to skip from there.
func (q *query) skip(ctx context.Context, offset int) (before clock.Time, left int, err error) {
	before, left = q.to, offset
	for _, at := range newestFirst(q.counts) {
		n := q.counts[at]
		if at+hour > before { // of the last hour only a part matches
			if n, err = q.countRows(ctx, at, before, false); err != nil {
				return 0, 0, err
			}
		}
		if at < q.from || n > int64(left) {
			break
		}
		before, left = at, left-int(n)
	}
	return before, left, nil
}
