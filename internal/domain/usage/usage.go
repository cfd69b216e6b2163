// Package usage adds up what a workspace's requests used and cost, by UTC day, model, key and tag, and draws series of
// it. The rows are written by the poster of the ledger, in the transaction of the usage rows that they sum up.
package usage

import (
	"strings"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
)

// Used is what some requests used and cost.
type Used struct {
	Requests int64      `json:"requests"`
	Errors   int64      `json:"errors" doc:"Requests that broke off after content; what delivered nothing costs nothing and is not counted"`
	Input    int64      `json:"input_tokens"`
	Cached   int64      `json:"cached_input_tokens" doc:"Of the input, from the provider's cache"`
	Output   int64      `json:"output_tokens"`
	Cost     money.Nano `json:"cost_usd"`
	Charged  money.Nano `json:"charged_usd" doc:"To the wallet"`
}

func (c *Used) add(other *Used) {
	c.Requests += other.Requests
	c.Errors += other.Errors
	c.Input += other.Input
	c.Cached += other.Cached
	c.Output += other.Output
	c.Cost += other.Cost
	c.Charged += other.Charged
}

const finished = string(outcome.Finished)

// failed lists the outcomes that count as errors.
var failed = map[string]bool{
	string(outcome.Died): true, string(outcome.Nothing): true, string(outcome.Broken): true,
	string(outcome.Killed): true,
}

// A Day counts the days since 1970, in UTC.
type Day int64

const dayLength = clock.Time(24 * time.Hour / time.Microsecond)

// DayOf returns the day of a time.
func DayOf(t clock.Time) Day { return Day(t / dayLength) }

func (d Day) start() clock.Time { return clock.Time(d) * dayLength }

const dateForm = "2006-01-02"

// String returns the date.
func (d Day) String() string { return d.start().Std().Format(dateForm) }

// MarshalText writes the date.
func (d Day) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// parseDay reads a date; an empty one is otherwise.
func parseDay(field, text string, otherwise Day) (Day, error) {
	if text == "" {
		return otherwise, nil
	}
	t, err := time.Parse(dateForm, text)
	if err != nil || t.Year() < 1970 {
		return 0, fault.Invalid(field, "must be a date, such as 2026-01-31")
	}
	return DayOf(clock.Of(t)), nil
}

// MaxDays bounds the days of a series: a leap year, and a month to compare with.
const MaxDays = 400

// usualDays is how many days a series has unless its range is given.
const usualDays = 30

// A Filter selects rows. What is empty selects everything.
type Filter struct {
	From, To        Day // both inclusive
	Model, Key, Tag string
}

// Selection is a Filter as a caller writes it.
type Selection struct {
	From  string `query:"from" doc:"The first day, such as 2026-01-31; 30 days before the last unless given"`
	To    string `query:"to" doc:"The last day; today in UTC unless given"`
	Model string `query:"model" maxLength:"200" doc:"The model that answered"`
	Key   string `query:"key" maxLength:"64" doc:"The id of the key, or of what of the product's own asked, such as cal_…"`
	Tag   string `query:"tag" maxLength:"64" doc:"The tag of X-Service-Tag"`
}

// filter reads s; today is where a series ends unless it says so.
func (s *Selection) filter(today Day) (Filter, error) {
	to, err := parseDay("to", s.To, today)
	if err != nil {
		return Filter{}, err
	}
	from, err := parseDay("from", s.From, to-usualDays+1)
	switch {
	case err != nil:
		return Filter{}, err
	case from > to:
		return Filter{}, fault.Invalid("to", "must not be before from")
	case to-from >= MaxDays:
		return Filter{}, fault.Invalid("from", "must be at most 400 days before to")
	}
	return Filter{From: from, To: to, Model: s.Model, Key: s.Key, Tag: s.Tag}, nil
}

// A dimension is what a series can be grouped and filtered by.
type dimension struct{ name, column string }

var dimensions = []dimension{{"model", "model"}, {"key", "key_id"}, {"tag", "tag"}}

// column returns the column of a dimension, or an empty text for none.
func column(by string) string {
	for _, d := range dimensions {
		if d.name == by {
			return d.column
		}
	}
	return "''"
}

// A cut is one way in which closed days are added up: by a dimension, for each value of another, or of two.
type cut struct {
	by    string
	picks [2]string // the dimensions of the filters, in the order of dimensions; empty for none
}

// cuts lists them all. A filter of the dimension that a series is grouped by needs none of its own. By tag, with
// filters of model and key, the rows of days are found by the key of their table.
var cuts = []cut{
	{by: "none"},
	{by: "model"},
	{by: "model", picks: [2]string{"key"}},
	{by: "model", picks: [2]string{"tag"}},
	{by: "model", picks: [2]string{"key", "tag"}},
	{by: "key"},
	{by: "key", picks: [2]string{"model"}},
	{by: "key", picks: [2]string{"tag"}},
	{by: "key", picks: [2]string{"model", "tag"}},
	{by: "tag"},
	{by: "tag", picks: [2]string{"model"}},
	{by: "tag", picks: [2]string{"key"}},
}

// String returns the name of c in the table: model, model/key, model/key+tag.
func (c cut) String() string {
	switch {
	case c.picks[0] == "":
		return c.by
	case c.picks[1] == "":
		return c.by + "/" + c.picks[0]
	}
	return c.by + "/" + c.picks[0] + "+" + c.picks[1]
}

// pickOf joins the values of two filters. Neither a model nor a key has a space in its name.
func pickOf(first, second string) string { return first + " " + second }

// values returns the pick and the group that a cell of a day has in c.
func (c cut) values(of *cell) (pick, group string) {
	pick = of.value(c.picks[0])
	if c.picks[1] != "" {
		pick = pickOf(pick, of.value(c.picks[1]))
	}
	return pick, of.value(c.by)
}

// pickColumn is the pick of a row of days, as SQL.
func (c cut) pickColumn() string {
	if c.picks[1] != "" {
		return column(c.picks[0]) + " || ' ' || " + column(c.picks[1])
	}
	return column(c.picks[0])
}

// cell says which rows of a day are added up together.
type cell struct {
	day             Day
	model, key, tag string
}

func (c *cell) value(dimension string) string {
	switch dimension {
	case "model":
		return c.model
	case "key":
		return c.key
	case "tag":
		return c.tag
	}
	return ""
}

// SafeCell returns a text as a cell of a spreadsheet that is not taken for a formula.
func SafeCell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}
