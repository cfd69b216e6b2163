package usage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// now is when the tests take place.
var now = clock.Of(time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC))

const today = Day(20522)

func on(day Day) clock.Time { return day.start() + 1000 }

func chargeOf(ws tenant.ID, day Day, model, key, tag string, cost money.Nano) *journal.Charge {
	return &journal.Charge{
		Workspace: ws, At: on(day), Model: model, Key: tenant.KeyID(key), Tag: tag, Outcome: "finished", Cost: cost,
		Usage: live.Usage{Input: 10, Cached: 3, Output: 5},
	}
}

func newDays() *Days {
	d := NewDays()
	d.now = func() clock.Time { return now }
	return d
}

func newStore(d *db.DB) *Store {
	s := NewStore(d)
	s.now = func() clock.Time { return now }
	return s
}

func write(t dbtest.T, d *db.DB, days *Days, charges ...*journal.Charge) {
	t.Helper()
	b := NewBatch()
	for _, c := range charges {
		b.Add(c, c.Cost/2)
	}
	if _, err := d.Tx(t.Context(), func(tx *db.Tx) error { return days.Write(t.Context(), tx, b) }); err != nil {
		t.Fatal(err)
	}
}

func TestADayIsWrittenAsItsDate(t *testing.T) {
	if got := DayOf(now); got != today || got.String() != "2026-03-10" {
		t.Errorf("%d %s", got, got)
	}
}

// Whatever was posted when, and whatever is closed, a series is the sum of its charges.
func TestASeriesIsTheSumOfItsCharges(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		random, days, store := rand.New(rand.NewPCG(1, 2)), newDays(), newStore(d)
		var all []*journal.Charge
		for round := range 4 {
			var some []*journal.Charge
			for range 60 {
				ws := []tenant.ID{dbtest.Mine, dbtest.Theirs}[random.IntN(2)]
				c := chargeOf(ws, today-Day(random.IntN(6)), fmt.Sprint("m", random.IntN(3)), fmt.Sprint("k", random.IntN(3)),
					[]string{"", "a", "b"}[random.IntN(3)], money.Nano(random.IntN(100)))
				if random.IntN(5) == 0 {
					c.Outcome = "died"
				}
				some = append(some, c)
			}
			write(t, d, days, some...)
			all = append(all, some...)
			if round == 1 { // what is posted afterwards is late for most days
				if err := store.CloseDays(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, by := range []string{"none", "model", "key", "tag"} {
			for n := range 8 {
				f := Filter{From: today - 4, To: today}
				if n&1 != 0 {
					f.Model = "m1"
				}
				if n&2 != 0 {
					f.Key = "k1"
				}
				if n&4 != 0 {
					f.Tag = "a"
				}
				got, err := store.Series(t.Context(), dbtest.Mine, f, by)
				if err != nil {
					t.Fatal(err)
				}
				if want := summedUp(all, f, by); !reflect.DeepEqual(asMap(got), want) {
					t.Errorf("by %s, %+v:\n%v\nwant\n%v", by, f, asMap(got), want)
				}
			}
		}
	})
}

type dayGroup struct {
	day   Day
	group string
}

func asMap(points []Point) map[dayGroup]Used {
	all := map[dayGroup]Used{}
	for _, p := range points {
		all[dayGroup{p.Day, p.Group}] = p.Used
	}
	return all
}

// summedUp adds the charges of the workspace Mine up, by a second way.
func summedUp(charges []*journal.Charge, f Filter, by string) map[dayGroup]Used {
	all := map[dayGroup]Used{}
	for _, c := range charges {
		day := DayOf(c.At)
		if c.Workspace != dbtest.Mine || day < f.From || day > f.To || f.Model != "" && c.Model != f.Model ||
			f.Key != "" && string(c.Key) != f.Key || f.Tag != "" && c.Tag != f.Tag {
			continue
		}
		at := dayGroup{day, map[string]string{"model": c.Model, "key": string(c.Key), "tag": c.Tag}[by]}
		sum := all[at]
		sum.Requests++
		if c.Outcome == "died" {
			sum.Errors++
		}
		sum.Input += 10
		sum.Cached += 3
		sum.Output += 5
		sum.Cost += c.Cost
		sum.Charged += c.Cost / 2
		all[at] = sum
	}
	return all
}

func TestATagForEveryRequestIsCountedAsOther(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine)
		days := newDays()
		for from := 0; from < MaxTags+200; from += 300 {
			var some []*journal.Charge
			for i := range 300 {
				some = append(some, chargeOf(dbtest.Mine, today, "m", "k", fmt.Sprint("tag-", from+i), 1))
			}
			if from == 600 { // a process that has just started knows no tags
				days = newDays()
			}
			write(t, d, days, some...)
		}
		rows := dbtest.Count(t, d, "usage_days")
		others, err := db.One[int64](t.Context(), d.In(dbtest.Mine),
			`SELECT requests FROM usage_days WHERE workspace_id = $1 AND tag = $2`, OtherTag)
		if err != nil || rows != MaxTags+1 || others != 200 {
			t.Errorf("%d rows, %d requests of other tags, %v", rows, others, err)
		}
	})
}

func TestATagIsCountedWithoutCredentials(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine)
		const sent = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
		write(t, d, newDays(), chargeOf(dbtest.Mine, today, "m", "k", sent, 1), chargeOf(dbtest.Mine, today, "m", "k", sent, 1))
		if n := dbtest.Count(t, d, "usage_days WHERE tag LIKE '%0123456789%'"); n != 0 {
			t.Error("the tag is stored as it was sent")
		}
	})
}

func TestClosingTwiceChangesNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine)
		store := newStore(d)
		for i := range 100 {
			write(t, d, newDays(), chargeOf(dbtest.Mine, today-Day(i), "m", "k", "a", 1))
		}
		for range 2 {
			if err := store.CloseDays(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := dbtest.Count(t, d, "usage_sums WHERE cut = 'tag/model'"); n != 98 {
				t.Errorf("%d days are closed, want all before yesterday", n)
			}
		}
	})
}

// An earlier release has closed days without the sums by two filters.
func TestDaysThatAnEarlierReleaseClosedCanBeFilteredByTwo(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, folder string, url secret.Text) {
		d := dbtest.Open(t, folder, url)
		if err := d.MigrateTo(t.Context(), 25); err != nil {
			t.Fatal(err)
		}
		dbtest.AddWorkspaces(t, d, dbtest.Mine)
		var all []*journal.Charge
		for i := range 40 {
			all = append(all, chargeOf(dbtest.Mine, today-Day(i%5), fmt.Sprint("m", i%3), fmt.Sprint("k", i%2), "a", 1))
		}
		write(t, d, newDays(), all...)
		store := newStore(d)
		if err := store.CloseDays(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), d.Across("a test"), `DELETE FROM usage_sums WHERE cut LIKE '%+%'`); err != nil {
			t.Fatal(err)
		}
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for by, f := range map[string]Filter{"model": {Key: "k1", Tag: "a"}, "key": {Model: "m1", Tag: "a"}} {
			f.From, f.To = today-10, today
			got, err := store.Series(t.Context(), dbtest.Mine, f, by)
			if err != nil {
				t.Fatal(err)
			}
			if want := summedUp(all, f, by); !reflect.DeepEqual(asMap(got), want) {
				t.Errorf("by %s: %v, want %v", by, asMap(got), want)
			}
		}
	})
}

func TestMoreGroupsThanAskedForAreTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []Point
		var sum Used
		for day := range rapid.IntRange(1, 4).Draw(t, "days") {
			for group := range rapid.IntRange(0, 8).Draw(t, "groups") {
				c := Used{Requests: 1, Cost: rapid.Map(rapid.Int64Range(0, 9), func(n int64) money.Nano { return money.Nano(n) }).Draw(t, "cost")}
				points = append(points, Point{Day: Day(day), Group: strconv.Itoa(group), Used: c})
				sum.add(&c)
			}
		}
		top := rapid.IntRange(1, 5).Draw(t, "top")
		s := NewSeries(points, top)
		var ofGroups, ofPoints Used
		for i := range s.Groups {
			ofGroups.add(&s.Groups[i].Used)
		}
		for i := range s.Points {
			ofPoints.add(&s.Points[i].Used)
		}
		if len(s.Groups) > top+1 || ofGroups != sum || ofPoints != sum || s.Totals != sum {
			t.Errorf("%d groups, %+v, %+v, %+v, want %+v", len(s.Groups), ofGroups, ofPoints, s.Totals, sum)
		}
	})
}

func TestNoCellOfAnExportIsAFormula(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		write(t, d, newDays(), chargeOf(dbtest.Mine, today, "m", "k", `=HYPERLINK("x")`, 1_500_000_000),
			chargeOf(dbtest.Mine, today, "m", "k", "+1", 1), chargeOf(dbtest.Theirs, today, "m", "k", "", 1))
		var out bytes.Buffer
		if err := newStore(d).writeCSV(t.Context(), dbtest.Mine, Filter{From: today, To: today}, &out); err != nil {
			t.Fatal(err)
		}
		want := "day,model,key_id,tag,requests,errors,input_tokens,cached_input_tokens,output_tokens,cost_usd,charged_usd\n" +
			"2026-03-10,m,k,'+1,1,0,10,3,5,0.000000001,0\n" +
			"2026-03-10,m,k,\"'=HYPERLINK(\"\"x\"\")\",1,0,10,3,5,1.5,0.75\n"
		if out.String() != want {
			t.Errorf("%s\nwant\n%s", out.String(), want)
		}
	})
}

func TestARangeMustBeOneOfDays(t *testing.T) {
	for from, to := range map[string]string{"2026-01-02": "2026-01-01", "yesterday": "", "2020-01-01": "2026-01-01", "0001-01-01": ""} {
		s := Selection{From: from, To: to}
		if _, err := s.filter(today); err == nil {
			t.Errorf("%s to %s is accepted", from, to)
		} else {
			dbtest.Refused(t, err, 400)
		}
	}
	s := Selection{}
	if f, err := s.filter(today); err != nil || f.To != today || f.From != today-29 {
		t.Errorf("%+v, %v", f, err)
	}
	for _, first := range "=+-@\t\r\n" {
		if cell := SafeCell(string(first) + "x"); !strings.HasPrefix(cell, "'") {
			t.Errorf("%q is a formula", cell)
		}
	}
	if SafeCell("x@") != "x@" || SafeCell("") != "" {
		t.Error("cells")
	}
}

// A year of 20 models, 50 keys and 20 tags: each key uses four models and five tags every day, and one key all of them.
// The mark is 50 ms:
//
//	go test ./internal/domain/usage -run '^$' -bench Series -benchtime 20x
func BenchmarkSeries(b *testing.B) {
	for _, engine := range []db.Engine{db.SQLite, db.Postgres} {
		b.Run(string(engine), func(b *testing.B) {
			d := dbtest.Migrated(b, engine)
			dbtest.AddWorkspaces(b, d, dbtest.Mine)
			store, days := newStore(d), newDays()
			fillYear(b, d, days)
			if err := store.CloseDays(b.Context()); err != nil {
				b.Fatal(err)
			}
			if engine == db.Postgres {
				if _, err := db.Exec(b.Context(), d.Across("a benchmark"), `VACUUM ANALYZE`); err != nil {
					b.Fatal(err)
				}
			}
			for _, q := range yearQueries {
				b.Run(fmt.Sprintf("by %s model=%s key=%s tag=%s", q.by, q.f.Model, q.f.Key, q.f.Tag), func(b *testing.B) {
					f := q.f
					f.From, f.To = today-364, today
					before := cpuTime(b)
					for b.Loop() {
						if points, err := store.Series(b.Context(), dbtest.Mine, f, q.by); err != nil || len(points) < 365 {
							b.Fatal(len(points), err)
						}
					}
					b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
				})
			}
		})
	}
}

// yearQueries are the series that are measured. The key k0 uses every model and tag.
var yearQueries = []struct {
	by string
	f  Filter
}{
	{"none", Filter{}},
	{"model", Filter{}},
	{"key", Filter{}},
	{"tag", Filter{}},
	{"tag", Filter{Model: "m1"}},
	{"model", Filter{Tag: "t1"}},
	{"key", Filter{Tag: "t1"}},
	{"key", Filter{Model: "m1", Tag: "t1"}},
	{"model", Filter{Key: "k0", Tag: "t1"}},
	{"model", Filter{Key: "k1", Tag: "t1"}},
	{"tag", Filter{Key: "k0", Model: "m1"}},
	{"none", Filter{Key: "k0", Model: "m1", Tag: "t1"}},
}

func fillYear(b *testing.B, d *db.DB, days *Days) {
	b.Helper()
	for day := range Day(365) {
		var some []*journal.Charge
		add := func(model, key, tag int) {
			some = append(some, chargeOf(dbtest.Mine, today-day, fmt.Sprint("m", model), fmt.Sprint("k", key), fmt.Sprint("t", tag), 5))
		}
		for i := range 400 {
			add(i%20, 0, i/20)
		}
		for key := 1; key < 50; key++ {
			for i := range 20 {
				add((key+i%4)%20, key, (key+i/4)%20)
			}
		}
		write(b, d, days, some...)
	}
}

// cpuTime returns the CPU time of this process. Other work on the machine disturbs it less than it does the clock.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
