package logbook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// A Bucket is the rows between two times.
type Bucket struct {
	From  clock.Time `json:"from"`
	To    clock.Time `json:"to" doc:"Exclusive"`
	Count *int64     `json:"count" doc:"null where there are too many rows to count by several filters"`
}

// A Histogram counts rows over time.
type Histogram struct {
	Object  string     `json:"object" enum:"histogram"`
	From    clock.Time `json:"from"`
	To      clock.Time `json:"to" doc:"Exclusive"`
	Step    int64      `json:"step_seconds" doc:"The length of a bucket; the first and the last may be shorter"`
	Buckets []Bucket   `json:"buckets" nullable:"false" doc:"Without gaps, the oldest first"`
	Total   int64      `json:"total" doc:"The sum of the counts"`
}

// steps are the lengths that a bucket can have. Buckets begin at multiples of their length, in UTC.
var steps = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
	30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
	28 * 24 * time.Hour, 364 * 24 * time.Hour,
}

// stepFor returns the shortest step that covers a range with at most so many buckets.
func stepFor(from, to clock.Time, buckets int) clock.Time {
	for _, s := range steps {
		step := clock.Time(s / time.Microsecond)
		if (to-1)/step-from/step < clock.Time(buckets) {
			return step
		}
	}
	return (to + hour - 1) / hour * hour // all in one
}

// maxCounted bounds the rows that a histogram counts one by one, about as many as an index yields in a tenth of a
// second. Whole hours are sums, of any number of rows.
const maxCounted = 200_000

// Histogram counts the rows of filters in at most so many buckets.
func (s *Store) Histogram(ctx context.Context, ws tenant.ID, f *Filters, buckets int) (h Histogram, err error) {
	err = s.db.SnapshotIn(ctx, ws, func(in db.Scoped) error {
		q, err := find(ctx, in, ws, f, clock.Now())
		if err != nil {
			return err
		}
		h, err = q.histogram(ctx, buckets)
		return err
	})
	return h, err
}

func (q *query) histogram(ctx context.Context, buckets int) (Histogram, error) {
	h := Histogram{Object: "histogram", Buckets: []Bucket{}}
	open := q.to == never
	if !q.span() {
		h.From, h.To = q.from, q.to
		return h, nil
	}
	step := stepFor(q.from, q.to, buckets)
	byHour := len(q.facets) <= 1 && (step%hour == 0 || sum(q.counts) > maxCounted)
	if byHour {
		step = max(step, hour)
	}
	first := q.from / step
	counts := make([]int64, int((q.to-1)/step-first)+1)
	counted := q.from // before it, rows are not counted
	var err error
	if byHour {
		err = q.sumHours(ctx, step, counts, open)
	} else {
		counted = q.countable()
		err = q.countSlots(ctx, counted, step, counts)
	}
	if err != nil {
		return h, err
	}
	h.From, h.To, h.Step = q.from, q.to, int64(step/clock.Time(time.Second/time.Microsecond))
	for i, n := range counts {
		at := (first + clock.Time(i)) * step
		b := Bucket{From: max(at, q.from), To: min(at+step, q.to)}
		if b.From >= counted {
			b.Count = &n
			h.Total += n
		}
		h.Buckets = append(h.Buckets, b)
	}
	return h, nil
}

// span replaces an open end of the query's range by the hours that have rows. It reports whether there are any.
func (q *query) span() bool {
	hours := slices.DeleteFunc(newestFirst(q.counts), func(at clock.Time) bool { return q.counts[at] == 0 })
	if len(hours) == 0 {
		if q.to == never {
			q.to = max(q.now, q.from)
		}
		return false
	}
	if q.to == never {
		q.to = max(hours[0]+1, min(hours[0]+hour, q.now))
	}
	if q.from == 0 {
		q.from = min(hours[len(hours)-1], q.to-1)
	}
	return true
}

// sumHours adds up the counts of whole hours, and counts the rows of hours that are partly in the range. The last hour
// of an open range is whole: nothing comes after it.
func (q *query) sumHours(ctx context.Context, step clock.Time, counts []int64, open bool) error {
	first := q.from / step
	for at, n := range q.counts {
		from, to := max(at, q.from), min(at+hour, q.to)
		if from >= to {
			continue
		}
		if from != at || to != at+hour && !open {
			part, err := q.countRows(ctx, from, to, false)
			if err != nil {
				return err
			}
			n = part
		}
		counts[from/step-first] += n
	}
	return q.subtractExpired(ctx, step, counts)
}

// subtractExpired subtracts the rows that have expired and are not deleted yet.
func (q *query) subtractExpired(ctx context.Context, step clock.Time, counts []int64) error {
	condition, args := q.expiredWhere()
	args = append(args, step)
	type slot struct{ Slot, N int64 }
	for row, err := range db.Rows[slot](ctx, q.in.Across("the index of expiry spans all workspaces"), fmt.Sprintf(`
		SELECT at / $%d AS slot, COUNT(*) AS n FROM log_rows WHERE %s GROUP BY slot`, len(args), condition), args...) {
		if err != nil {
			return fmt.Errorf("count expired logged rows: %w", err)
		}
		if i := row.Slot - int64(q.from/step); i >= 0 && i < int64(len(counts)) {
			counts[i] -= row.N
		}
	}
	return nil
}

// countable returns the time from which rows can be counted one by one: so that there are at most maxCounted, or those
// of an hour.
func (q *query) countable() clock.Time {
	var n int64
	for i, at := range newestFirst(q.counts) {
		if n += q.counts[at]; n > maxCounted && i > 0 {
			return max(q.from, at+hour)
		}
	}
	return q.from
}

// countSlots counts the rows from a time on, by step.
func (q *query) countSlots(ctx context.Context, from, step clock.Time, counts []int64) error {
	condition, args := q.where(from, q.to)
	args = append(args, q.now, step)
	type slot struct{ Slot, N int64 }
	for row, err := range db.Rows[slot](ctx, q.in, fmt.Sprintf(`
		SELECT at / $%d AS slot, COUNT(*) AS n FROM log_rows WHERE %s AND expires_at > $%d GROUP BY slot`,
		len(args)+1, condition, len(args)), args...) {
		if err != nil {
			return fmt.Errorf("count logged rows: %w", err)
		}
		counts[row.Slot-int64(q.from/step)] += row.N
	}
	return nil
}

// A FacetValue is a value of a facet, and how many rows have it.
type FacetValue struct {
	Value string `json:"value"`
	Count int64  `json:"count"`
}

// Facets are the most common values by which logs can be filtered.
type Facets struct {
	Object   string       `json:"object" enum:"facets"`
	Models   []FacetValue `json:"models" nullable:"false" doc:"Those with most rows first, as in the other lists"`
	Tags     []FacetValue `json:"tags" nullable:"false"`
	Segments []FacetValue `json:"segments" nullable:"false"`
	Finishes []FacetValue `json:"finish_reasons" nullable:"false"`
	Cached   []FacetValue `json:"cached" nullable:"false" doc:"true and false"`
}

// wholeDays returns the days of which every hour is in a range of whole hours: from the first up to rest, the day that
// the range ends in.
func wholeDays(from, to clock.Time) (first, rest clock.Time) {
	if from >= hour {
		first = ((from-hour)/day + 1) * day
	}
	if to == never {
		return first, never
	}
	return first, max(0, (to+hour-1)/day*day)
}

// maxFacetValues is how many values of a facet are listed.
const maxFacetValues = 50

// Facets returns the most common values in a time range, by whole hours.
func (s *Store) Facets(ctx context.Context, ws tenant.ID, from, until clock.Time) (Facets, error) {
	if until == 0 {
		until = never
	}
	firstWhole, rest := wholeDays(from, until)
	all := Facets{Object: "facets"}
	err := s.db.SnapshotIn(ctx, ws, func(in db.Scoped) (err error) {
		for i, to := range [len(counted)]*[]FacetValue{
			&all.Models, &all.Tags, &all.Segments, &all.Finishes, &all.Cached,
		} {
			f := &counted[i]
			if *to, err = db.Query[FacetValue](ctx, in, `
				SELECT value, CAST(SUM(n) AS BIGINT) AS count FROM (
					SELECT value, n FROM log_counts WHERE workspace_id = $1 AND facet = $2 AND hour >= $4 AND hour < $5
					UNION ALL
					SELECT h.value, h.n FROM log_counts d CROSS JOIN log_counts h
					WHERE d.workspace_id = $1 AND d.facet = $2 AND (d.hour = $6 OR d.hour = $5)
						AND h.workspace_id = $1 AND h.facet = $3 AND h.value = d.value
						AND h.hour >= d.hour AND h.hour < d.hour + $7 AND h.hour > $8 AND h.hour < $9
				) counted
				GROUP BY value HAVING SUM(n) > 0 ORDER BY 2 DESC, 1 LIMIT $10`,
				f.daily, f.hourly, firstWhole, rest, firstWhole-day, day, from-hour, until, maxFacetValues); err != nil {
				return fmt.Errorf("read the values of %s: %w", f.hourly, err)
			}
		}
		return nil
	})
	return all, err
}
