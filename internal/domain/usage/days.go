package usage

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// MaxTags bounds the tags of a workspace and day that are counted by themselves; the requests of further ones count as
// OtherTag. A caller that sends a tag of its own with every request would otherwise get a row for each.
const (
	MaxTags  = 1000
	OtherTag = "other"
)

// maxKnown bounds the tags that a Days keeps in memory.
const maxKnown = 200_000

// A Days adds charges to the rows of their days. It is for one goroutine at a time: the poster's.
type Days struct {
	now   func() clock.Time
	tags  map[tagDay]map[string]string // as sent → as counted
	known int                          // tags in tags
}

type tagDay struct {
	ws  tenant.ID
	day Day
}

// NewDays returns a writer of the rows of days.
func NewDays() *Days { return &Days{now: clock.Now, tags: map[tagDay]map[string]string{}} }

// A Batch is what one transaction adds.
type Batch map[tenant.ID]map[cell]*Counts

// Add adds a charge, of which the wallet paid an amount.
func (b Batch) Add(c *journal.Charge, charged money.Nano) {
	of := b[c.Workspace]
	if of == nil {
		of = map[cell]*Counts{}
		b[c.Workspace] = of
	}
	at := cell{DayOf(c.At), c.Model, string(c.Key), c.Tag}
	sum := of[at]
	if sum == nil {
		sum = &Counts{}
		of[at] = sum
	}
	one := Counts{
		Requests: 1, Input: c.Usage.Input, Cached: c.Usage.Cached, Output: c.Usage.Output, Cost: c.Cost, Charged: charged,
	}
	if failed[c.Outcome] {
		one.Errors = 1
	}
	sum.add(&one)
}

// countColumns are the columns of Counts, in the order of its fields.
var countColumns = []string{"requests", "errors", "input", "cached", "output", "cost", "charged"}

func (c *Counts) values() []any {
	return []any{c.Requests, c.Errors, c.Input, c.Cached, c.Output, int64(c.Cost), int64(c.Charged)}
}

var (
	dayColumns = append([]string{"workspace_id", "day", "model", "key_id", "tag"}, countColumns...)
	sumColumns = append([]string{"workspace_id", "cut", "pick", "day", "grp"}, countColumns...)
)

// adding is the SET list that adds a row to the one that a table has.
func adding(table string) string {
	set := make([]string, len(countColumns))
	for i, name := range countColumns {
		set[i] = name + " = " + table + "." + name + " + excluded." + name
	}
	return strings.Join(set, ", ")
}

var addDay, addSum = adding("usage_days"), adding("usage_sums")

// Write adds a batch to the rows of its days, one upsert for each that it has.
func (d *Days) Write(ctx context.Context, tx *db.Tx, batch Batch) error {
	var rows, sums [][]any
	today := DayOf(d.now())
	for _, ws := range slices.Sorted(maps.Keys(batch)) {
		cells, err := d.bounded(ctx, tx, ws, batch[ws])
		if err != nil {
			return err
		}
		var late []cell
		for _, at := range slices.SortedFunc(maps.Keys(cells), compareCells) {
			key := []any{string(ws), int64(at.day), at.model, at.key, at.tag}
			rows = append(rows, append(key, cells[at].values()...))
			if at.day < today {
				late = append(late, at)
			}
		}
		more, err := lateSums(ctx, tx, ws, late, cells)
		if err != nil {
			return err
		}
		sums = append(sums, more...)
	}
	across := tx.Across("the rows name their workspaces")
	if err := db.Merge(ctx, across, "usage_days", dayColumns, 5, addDay, rows); err != nil {
		return err
	}
	return db.Merge(ctx, across, "usage_sums", sumColumns, 5, addSum, sums)
}

func compareCells(a, b cell) int {
	return cmp.Or(cmp.Compare(a.day, b.day), strings.Compare(a.model, b.model), strings.Compare(a.key, b.key),
		strings.Compare(a.tag, b.tag))
}

// lateSums returns what must be added to the sums of days that are closed already: of charges that were posted late.
func lateSums(ctx context.Context, tx *db.Tx, ws tenant.ID, late []cell, cells map[cell]*Counts) ([][]any, error) {
	if len(late) == 0 {
		return nil, nil
	}
	before, err := closedBefore(ctx, tx.In(ws))
	if err != nil {
		return nil, err
	}
	type place struct {
		cut, pick string
		day       Day
		group     string
	}
	all := map[place]*Counts{}
	for _, at := range late {
		if at.day >= before {
			continue
		}
		for _, c := range cuts {
			pick, group := c.values(&at)
			in := place{c.String(), pick, at.day, group}
			if all[in] == nil {
				all[in] = &Counts{}
			}
			all[in].add(cells[at])
		}
	}
	rows := make([][]any, 0, len(all))
	for in, sum := range all {
		rows = append(rows, append([]any{string(ws), in.cut, in.pick, int64(in.day), in.group}, sum.values()...))
	}
	return rows, nil
}

// bounded returns cells with their tags as they are counted: without credentials, and bounded in number.
func (d *Days) bounded(ctx context.Context, tx *db.Tx, ws tenant.ID, cells map[cell]*Counts) (map[cell]*Counts, error) {
	plain := true
	for at := range cells {
		plain = plain && at.tag == ""
	}
	if plain {
		return cells, nil
	}
	all := make(map[cell]*Counts, len(cells))
	for _, at := range slices.SortedFunc(maps.Keys(cells), compareCells) {
		sum := cells[at]
		if at.tag != "" {
			counted, err := d.tag(ctx, tx, tagDay{ws, at.day}, at.tag)
			if err != nil {
				return nil, err
			}
			at.tag = counted
		}
		if all[at] == nil {
			all[at] = &Counts{}
		}
		all[at].add(sum)
	}
	return all, nil
}

// tag returns the tag under which a request counts. What a transaction that is rolled back has added stays known: the
// bound is reached a little sooner then.
func (d *Days) tag(ctx context.Context, tx *db.Tx, in tagDay, sent string) (string, error) {
	known, ok := d.tags[in]
	if !ok {
		d.forget(in.day)
		stored, err := db.Query[string](ctx, tx.In(in.ws),
			`SELECT DISTINCT tag FROM usage_days WHERE workspace_id = $1 AND day = $2 AND tag <> ''`, in.day)
		if err != nil {
			return "", err
		}
		known = make(map[string]string, len(stored))
		for _, tag := range stored {
			known[tag] = tag
		}
		d.tags[in] = known
		d.known += len(known)
	}
	if counted, ok := known[sent]; ok {
		return counted, nil
	}
	if len(known) >= MaxTags {
		return OtherTag, nil
	}
	counted := redact.String(sent)
	known[sent] = counted
	d.known++
	return counted, nil
}

// forget drops the tags of days before the last one, and all of them when they are many.
func (d *Days) forget(day Day) {
	for in, tags := range d.tags {
		if in.day < day-1 || d.known > maxKnown {
			delete(d.tags, in)
			d.known -= len(tags)
		}
	}
}
