package usage

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

// A Handler serves the series of the dashboard.
type Handler struct {
	store *Store
	post  func(context.Context) error
}

// NewHandler returns a handler that reads s. Before a read, post posts what is still in the journal.
func NewHandler(s *Store, post func(context.Context) error) *Handler {
	return &Handler{store: s, post: post}
}

// Routes returns the operations of the dashboard.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.Get("/usage/series", api.SessionMember, h.series, "What was used and what it cost, by UTC day"),
		api.Get("/usage/export", api.SessionMember, h.export,
			"Download what was used by day, model, key and tag, as CSV", api.Produces(csvType), api.Long),
	}
}

const csvType = "text/csv; charset=utf-8"

// current posts the journal, so that answered requests are visible.
func (h *Handler) current(ctx context.Context) {
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = h.post(soon) // what is not posted now is posted later; the read itself reports a failure
}

type seriesQuery struct {
	Selection
	By  string `query:"by" enum:"none,model,key,tag" default:"none" doc:"What the points are grouped by"`
	Top int    `query:"top" default:"20" minimum:"1" maximum:"100" doc:"How many groups, by cost; the others are added up in one group whose rest is true"`
}

// A SeriesGroup is what one group used in all days of a series.
type SeriesGroup struct {
	Group string `json:"group"`
	Rest  bool   `json:"rest" doc:"All groups that are not among the first"`
	Used
}

// A SeriesPoint is what one group used on one day. A day on which it used nothing has no point.
type SeriesPoint struct {
	Point
	Rest bool `json:"rest" doc:"All groups that are not among the first"`
}

// A Series is what was used, by UTC day.
type Series struct {
	Object string        `json:"object" enum:"series"`
	By     string        `json:"by" enum:"none,model,key,tag"`
	Unit   string        `json:"unit" enum:"day"`
	From   Day           `json:"from" doc:"The first day"`
	To     Day           `json:"to" doc:"The last day"`
	Points []SeriesPoint `json:"points" nullable:"false" doc:"By day, then in the order of the groups"`
	Groups []SeriesGroup `json:"groups" nullable:"false" doc:"The dearest first"`
	Totals Used          `json:"totals"`

	KeyNames map[string]string `json:"key_names,omitempty" doc:"The names of its keys, by id: of those that the caller may list"`
}

func (h *Handler) series(ctx context.Context, caller tenant.Caller, in seriesQuery) (Series, error) {
	filter, err := in.filter(DayOf(h.store.now()))
	if err != nil {
		return Series{}, err
	}
	h.current(ctx)
	points, err := h.store.Series(ctx, caller.Workspace, filter, in.By)
	if err != nil {
		return Series{}, err
	}
	s := NewSeries(points, in.Top)
	s.By, s.From, s.To = in.By, filter.From, filter.To
	s.KeyNames, err = h.store.keyNames(ctx, caller, s.keys(filter))
	return s, err
}

// keys returns the ids of the keys that a series is grouped or filtered by.
func (s *Series) keys(f Filter) (ids []string) {
	if f.Key != "" {
		ids = append(ids, f.Key)
	}
	for _, g := range s.Groups {
		if s.By == "key" && g.Group != "" && g.Group != f.Key {
			ids = append(ids, g.Group)
		}
	}
	return ids
}

// NewSeries makes a series of points, with at most so many groups and one for the rest.
func NewSeries(points []Point, top int) Series {
	s := Series{Object: "series", Unit: "day", By: "none", Points: []SeriesPoint{}, Groups: []SeriesGroup{}}
	sums := map[string]*Used{}
	for i := range points {
		p := &points[i]
		if sums[p.Group] == nil {
			sums[p.Group] = &Used{}
		}
		sums[p.Group].add(&p.Used)
		s.Totals.add(&p.Used)
	}
	for group, sum := range sums {
		s.Groups = append(s.Groups, SeriesGroup{Group: group, Used: *sum})
	}
	slices.SortFunc(s.Groups, func(a, b SeriesGroup) int {
		return cmp.Or(
			cmp.Compare(b.Cost, a.Cost), cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Group, b.Group),
		)
	})
	if len(s.Groups) > top {
		rest := SeriesGroup{Rest: true}
		for i := range s.Groups[top:] {
			rest.add(&s.Groups[top+i].Used)
		}
		s.Groups = append(s.Groups[:top:top], rest)
	}
	s.Points = seriesPoints(points, s.Groups)
	return s
}

// seriesPoints orders points by day and group, and adds those of the rest up.
func seriesPoints(points []Point, groups []SeriesGroup) []SeriesPoint {
	place := make(map[string]int, len(groups))
	for i, g := range groups {
		if !g.Rest {
			place[g.Group] = i
		}
	}
	rest := map[Day]int{} // index of the point of the rest of a day
	all := make([]SeriesPoint, 0, len(points))
	placeOf := func(p *SeriesPoint) int {
		if p.Rest {
			return len(groups)
		}
		return place[p.Group]
	}
	for _, p := range points {
		if _, shown := place[p.Group]; shown {
			all = append(all, SeriesPoint{Point: p})
			continue
		}
		at, ok := rest[p.Day]
		if !ok {
			at = len(all)
			rest[p.Day] = at
			all = append(all, SeriesPoint{Point: Point{Day: p.Day}, Rest: true})
		}
		all[at].add(&p.Used)
	}
	slices.SortFunc(all, func(a, b SeriesPoint) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(placeOf(&a), placeOf(&b)))
	})
	return all
}

func (h *Handler) export(ctx context.Context, caller tenant.Caller, in Selection) (api.Stream, error) {
	filter, err := in.filter(DayOf(h.store.now()))
	if err != nil {
		return api.Stream{}, err
	}
	h.current(ctx)
	return api.Stream{
		ContentType: csvType, Filename: fmt.Sprintf("usage-%s-%s.csv", filter.From, filter.To),
		Write: func(w io.Writer) error { return h.store.writeCSV(ctx, caller.Workspace, filter, w) },
	}, nil
}

// writeCSV writes the rows of a filter, one on a line. It holds one row at a time.
func (s *Store) writeCSV(ctx context.Context, ws tenant.ID, f Filter, to io.Writer) error {
	out := csv.NewWriter(to)
	if err := out.Write([]string{
		"day", "model", "key_id", "tag", "requests", "errors", "input_tokens", "cached_input_tokens", "output_tokens",
		"cost_usd", "charged_usd",
	}); err != nil {
		return err
	}
	for row, err := range s.Rows(ctx, ws, f) {
		if err != nil {
			return fmt.Errorf("export the usage: %w", err)
		}
		line := []string{row.Day.String(), SafeCell(row.Model), SafeCell(row.KeyID), SafeCell(row.Tag)}
		for _, n := range []int64{row.Requests, row.Errors, row.Input, row.Cached, row.Output} {
			line = append(line, strconv.FormatInt(n, 10))
		}
		if err := out.Write(append(line, row.Cost.String(), row.Charged.String())); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
