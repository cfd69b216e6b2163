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
	node  string                       // the id of the journal that is posted; empty where there is one server
	tags  map[tagDay]map[string]string // as sent → as counted
	known int                          // tags in tags
}

type tagDay struct {
	ws  tenant.ID
	day Day
}

// NewDays returns a writer of the rows of days.
func NewDays() *Days { return &Days{now: clock.Now, tags: map[tagDay]map[string]string{}} }

// Of has d write what keys spend of their budgets too, for the other servers on the database. node is the id of the
// journal that is posted.
func (d *Days) Of(node string) *Days {
	d.node = node
	return d
}

// A Batch is what one transaction adds.
type Batch struct {
	sums   map[place]*Used
	spent  map[spender]money.Nano
	tagged bool // some charge has a tag

	last    place // of the charge before, and its sum: consecutive charges are similar
	lastSum *Used
}

// A place is a cell of a workspace.
type place struct {
	ws tenant.ID
	cell
}

// NewBatch returns an empty batch.
func NewBatch() *Batch { return &Batch{sums: map[place]*Used{}, spent: map[spender]money.Nano{}} }

// Add adds a charge, of which the wallet paid an amount.
func (b *Batch) Add(c *journal.Charge, charged money.Nano) {
	at := place{c.Workspace, cell{DayOf(c.At), c.Model, string(c.Key), c.Tag}}
	if b.lastSum == nil || at != b.last {
		b.last, b.lastSum, b.tagged = at, sumAt(b.sums, at), b.tagged || c.Tag != ""
	}
	if spent := spentOf(c, charged); spent > 0 {
		b.spent[spender{at.ws, c.Key, at.day}] += spent
	}
	one := Used{
		Requests: 1, Input: c.Usage.Input, Cached: c.Usage.Cached, Output: c.Usage.Output, Cost: c.Cost,
		Charged: charged,
	}
	if c.Outcome != finished && failed[c.Outcome] {
		one.Errors = 1
	}
	b.lastSum.add(&one)
}

// sumAt returns the sum at a place, which is added if it is not there.
func sumAt[K comparable](sums map[K]*Used, at K) *Used {
	sum := sums[at]
	if sum == nil {
		sum = &Used{}
		sums[at] = sum
	}
	return sum
}

// countColumns are the columns of Used, in the order of its fields.
var countColumns = []string{"requests", "errors", "input", "cached", "output", "cost", "charged"}

// appendTo appends the values of countColumns to a row.
func (c *Used) appendTo(row []any) []any {
	return append(row, c.Requests, c.Errors, c.Input, c.Cached, c.Output, int64(c.Cost), int64(c.Charged))
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
func (d *Days) Write(ctx context.Context, tx *db.Tx, batch *Batch) error {
	sums, err := d.bounded(ctx, tx, batch)
	if err != nil {
		return err
	}
	if d.node != "" {
		if err := d.writeBudgets(ctx, tx, batch.spent); err != nil {
			return err
		}
	}
	today := DayOf(d.now())
	rows, late := make([][]any, 0, len(sums)), map[tenant.ID][]cell{}
	for _, at := range slices.SortedFunc(maps.Keys(sums), comparePlaces) {
		row := append(make([]any, 0, len(dayColumns)), string(at.ws), int64(at.day), at.model, at.key, at.tag)
		rows = append(rows, sums[at].appendTo(row))
		if at.day < today {
			late[at.ws] = append(late[at.ws], at.cell)
		}
	}
	across := tx.Across("the rows name their workspaces")
	if err := db.Merge(ctx, across, "usage_days", dayColumns, 5, addDay, rows); err != nil {
		return err
	}
	for _, ws := range slices.Sorted(maps.Keys(late)) {
		more, err := lateSums(ctx, tx, ws, late[ws], sums)
		if err != nil {
			return err
		}
		if err := db.Merge(ctx, across, "usage_sums", sumColumns, 5, addSum, more); err != nil {
			return err
		}
	}
	return nil
}

func comparePlaces(a, b place) int {
	return cmp.Or(
		strings.Compare(string(a.ws), string(b.ws)), cmp.Compare(a.day, b.day), strings.Compare(a.model, b.model),
		strings.Compare(a.key, b.key), strings.Compare(a.tag, b.tag))
}

// lateSums returns what must be added to the sums of days that are closed already: of charges that were posted late.
func lateSums(ctx context.Context, tx *db.Tx, ws tenant.ID, late []cell, of map[place]*Used) ([][]any, error) {
	before, err := closedBefore(ctx, tx.In(ws))
	if err != nil {
		return nil, err
	}
	type sum struct {
		cut, pick string
		day       Day
		group     string
	}
	all := map[sum]*Used{}
	for _, at := range late {
		if at.day >= before {
			continue
		}
		for _, c := range cuts {
			pick, group := c.values(&at)
			sumAt(all, sum{c.String(), pick, at.day, group}).add(of[place{ws, at}])
		}
	}
	rows := make([][]any, 0, len(all))
	for in, sum := range all {
		rows = append(rows, sum.appendTo([]any{string(ws), in.cut, in.pick, int64(in.day), in.group}))
	}
	return rows, nil
}

// bounded returns the sums of a batch with their tags as they are counted: without credentials, and bounded in number.
func (d *Days) bounded(ctx context.Context, tx *db.Tx, batch *Batch) (map[place]*Used, error) {
	if !batch.tagged {
		return batch.sums, nil
	}
	all := make(map[place]*Used, len(batch.sums))
	read := map[tagDay]bool{}
	for _, at := range slices.SortedFunc(maps.Keys(batch.sums), comparePlaces) {
		sum := batch.sums[at]
		if at.tag != "" {
			counted, err := d.tag(ctx, tx, tagDay{at.ws, at.day}, at.tag, read)
			if err != nil {
				return nil, err
			}
			at.tag = counted
		}
		sumAt(all, at).add(sum)
	}
	return all, nil
}

// tag returns the tag under which a request counts. What a transaction that is rolled back has added stays known: the
// bound is reached a little sooner then. Where other servers post to the same day, a tag that is not known has the
// stored ones read again, once in a transaction: read has the days that were. Postings at once may pass the bound by
// what they add.
func (d *Days) tag(ctx context.Context, tx *db.Tx, in tagDay, sent string, read map[tagDay]bool) (string, error) {
	known, ok := d.tags[in]
	if _, counted := known[sent]; !ok || d.node != "" && !counted && len(known) < MaxTags && !read[in] {
		if read[in] = true; !ok {
			d.forget(in.day)
			known = map[string]string{}
			d.tags[in] = known
		}
		stored, err := db.Query[string](ctx, tx.In(in.ws),
			`SELECT DISTINCT tag FROM usage_days WHERE workspace_id = $1 AND day = $2 AND tag <> ''`, in.day)
		if err != nil {
			return "", err
		}
		d.known -= len(known)
		for _, tag := range stored {
			known[tag] = tag
		}
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
