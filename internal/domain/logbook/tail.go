package logbook

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/api"
)

// The bounds of the live tail: listeners, what waits for each, and how many rows each gets in a second and at once:
// more than a person reads, and so few that the gateway does not pay for its readers. What does not fit is dropped, and
// the listener is told how much.
const (
	tailsPerWorkspace = 10
	tailsInAll        = 100
	tailRows          = 500
	tailBytes         = 4 << 20
	tailPerSecond     = 200
)

// A Tail passes ingested rows on to listeners, in this process: those of its own ingester at once, and those of other
// servers within about a second. Without listeners a batch costs one atomic load.
type Tail struct {
	n      atomic.Int64 // listeners
	shared bool         // other servers may ingest into the same database

	mu   sync.Mutex
	all  map[tenant.ID]map[*Listener]struct{}
	seen seenRows // what was passed on, where shared: this server's rows are found among those of others again
}

// A tailed row is an ingested row with its segment. It is rendered once, by the first listener that sends it.
type tailed struct {
	row     *capture.Row
	segment string
	stored  *logRow                      // of another server's row, as it was read from the table
	unread  bool                         // another server's row, of which only what filters select by was read
	render  func() (api.Rendered, error) // nil until a listener has it
}

// A Listener receives the rows of a workspace that its filters select.
type Listener struct {
	tail    *Tail
	ws      tenant.ID
	filters Filters
	since   clock.Time
	open    func() bool // reports whether the logs may still be read
	wake    chan struct{}

	mu      sync.Mutex
	rows    []tailed
	bytes   int
	dropped int64
	room    int       // rows that it may still get, at most tailPerSecond
	filled  time.Time // when room was last added to
}

// listening reports whether there is a listener.
func (t *Tail) listening() bool { return t.n.Load() > 0 }

// Listen returns a listener, which must be closed.
func (t *Tail) Listen(ws tenant.ID, f Filters, open func() bool) (*Listener, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n.Load() >= tailsInAll || len(t.all[ws]) >= tailsPerWorkspace {
		return nil, fault.RateLimited.New("too many live tails are open at once: close one").In(10 * time.Second)
	}
	l := &Listener{
		tail: t, ws: ws, filters: f, since: clock.Now(), open: open, wake: make(chan struct{}, 1), room: tailPerSecond,
	}
	if t.all == nil {
		t.all = map[tenant.ID]map[*Listener]struct{}{}
	}
	if t.all[ws] == nil {
		t.all[ws] = map[*Listener]struct{}{}
	}
	t.all[ws][l] = struct{}{}
	t.n.Add(1)
	return l, nil
}

// Close ends the listening. Repeating it is a no-op.
func (l *Listener) Close() {
	l.tail.mu.Lock()
	defer l.tail.mu.Unlock()
	if _, listens := l.tail.all[l.ws][l]; !listens {
		return
	}
	if delete(l.tail.all[l.ws], l); len(l.tail.all[l.ws]) == 0 {
		delete(l.tail.all, l.ws)
	}
	l.tail.n.Add(-1)
}

// publish passes rows on that were ingested now, each once where servers share a database. It never waits for a
// listener.
func (t *Tail) publish(rows []tailed, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shared {
		rows = t.unseen(rows, now)
	}
	for ws, listeners := range t.all {
		for l := range listeners {
			l.put(ws, rows, now)
		}
	}
}

// unseen removes the rows that were passed on already, and remembers the others as far as somebody listens.
func (t *Tail) unseen(rows []tailed, now time.Time) []tailed {
	return slices.DeleteFunc(rows, func(r tailed) bool {
		if t.seen.has(r.row.ID) {
			return true
		}
		if len(t.all[r.row.Workspace]) > 0 {
			t.seen.add(r.row.ID, now)
		}
		return false
	})
}

// size returns the bytes of a row's texts.
func (r *tailed) size() int { return len(r.row.Messages) + len(r.row.Response) + len(r.row.Tools) }

// put adds the rows of a workspace that the filters select, as far as there is room.
func (l *Listener) put(ws tenant.ID, rows []tailed, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refill(now)
	news := false
	for i := range rows {
		r := &rows[i]
		if r.row.Workspace != ws || !l.filters.match(r) {
			continue
		}
		news = true
		size := r.size()
		if r.unread || l.room == 0 || len(l.rows) >= tailRows || l.bytes+size > tailBytes && len(l.rows) > 0 {
			l.dropped++
			continue
		}
		if r.render == nil { // the listeners are served one after another, and get a copy
			r.render = sync.OnceValues(func() (api.Rendered, error) { return api.Render(r.shown()) })
		}
		l.rows, l.bytes, l.room = append(l.rows, *r), l.bytes+size, l.room-1
	}
	if !news {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default: // it will wake anyway
	}
}

// refill adds the room of the time since the last rows.
func (l *Listener) refill(now time.Time) {
	const each = time.Second / tailPerSecond
	since := now.Sub(l.filled)
	if since >= time.Second {
		l.room, l.filled = tailPerSecond, now
		return
	}
	more := int(max(0, since) / each)
	l.room, l.filled = min(tailPerSecond, l.room+more), l.filled.Add(time.Duration(more)*each)
}

// match reports whether f selects a row.
func (f *Filters) match(r *tailed) bool {
	at, row := r.row.At, r.row
	switch {
	case f.Model != "" && f.Model != row.Model,
		f.Tag != "" && f.Tag != row.Tag,
		f.Segment != "" && f.Segment != r.segment,
		f.FinishReason != "" && f.FinishReason != row.Finish,
		f.CacheHit != nil && *f.CacheHit != row.Cached,
		f.Start != 0 && at < f.Start,
		f.End != 0 && at >= f.End:
		return false
	}
	return true
}

// Wake receives a value when there may be something to take.
func (l *Listener) Wake() <-chan struct{} { return l.wake }

// A Dropped says how many rows the reader was too slow for.
type Dropped struct {
	Count int64 `json:"count"`
}

// Take returns what waits: a log event for each row, and a dropped event for what did not fit.
func (l *Listener) Take() []api.Event {
	l.mu.Lock()
	rows, dropped := l.rows, l.dropped
	l.rows, l.bytes, l.dropped = nil, 0, 0
	l.mu.Unlock()
	events := make([]api.Event, 0, len(rows)+1)
	for _, r := range rows {
		if text, err := r.render(); err == nil {
			events = append(events, api.Event{Name: "log", ID: r.row.ID, Data: text})
		} else {
			dropped++
		}
	}
	if dropped > 0 {
		events = append(events, api.Event{Name: "dropped", Data: Dropped{dropped}})
	}
	return events
}

// Over returns why the stream ends by itself, or an empty text.
func (l *Listener) Over() string {
	if !l.open() {
		return "logging_disabled"
	}
	return ""
}

// shown returns the row as the API lists it.
func (r *tailed) shown() Row {
	if r.stored != nil {
		return r.stored.row()
	}
	c := r.row
	row := logRow{
		At: c.At, ID: c.ID, ExpiresAt: c.Expires, Model: c.Model, Tag: c.Tag, Segment: r.segment,
		FinishReason: c.Finish, Cached: c.Cached, SegmentExact: exactOrNone(c.Exact), TraceID: c.Trace,
		RequestID: c.Request, KeyID: c.Key, RequestedModel: c.Requested, Alias: c.Alias, Provider: c.Provider,
		FallbackFrom: c.FallbackFrom, Stream: c.Stream, PromptTokens: c.Prompt, CompletionTokens: c.Completion,
		Cost: c.Cost, Latency: c.Latency, FirstToken: c.First, Response: c.Response, Tools: c.Tools,
		Messages: c.Messages,
	}
	return row.row()
}

// dashboard returns the operations of the dashboard.
func (h *Handler) dashboard() []api.Route {
	return []api.Route{
		api.Get("/logs/histogram", api.SessionMember, h.histogram, "Count logged exchanges over time"),
		api.Get("/logs/facets", api.SessionMember, h.facets,
			"List the most common models, tags, segments and finish reasons of a time range"),
		api.Get("/logs/tail", api.SessionMember, h.tail,
			"Receive logged exchanges as they are stored: events log, dropped, and end with the reason; at most "+
				strconv.Itoa(tailsPerWorkspace)+" at once", api.Long, api.Produces(api.EventStreamType)),
	}
}

type histogramQuery struct {
	Filters
	Buckets int `query:"buckets" default:"60" minimum:"1" maximum:"500" doc:"How many, at most"`
}

func (h *Handler) histogram(ctx context.Context, caller tenant.Caller, in histogramQuery) (Histogram, error) {
	if err := h.Open(ctx, caller.Workspace); err != nil {
		return Histogram{}, err
	}
	if err := in.check(); err != nil {
		return Histogram{}, err
	}
	return h.store.Histogram(ctx, caller.Workspace, &in.Filters, in.Buckets)
}

func (h *Handler) facets(ctx context.Context, caller tenant.Caller, in Filters) (Facets, error) {
	if err := h.Open(ctx, caller.Workspace); err != nil {
		return Facets{}, err
	}
	if err := in.check(); err != nil {
		return Facets{}, err
	}
	return h.store.Facets(ctx, caller.Workspace, in.Start, in.End)
}

func (h *Handler) tail(_ context.Context, caller tenant.Caller, in Filters) (api.EventStream, error) {
	ws := caller.Workspace
	if !h.enabled(ws) {
		return api.EventStream{}, errDisabled()
	}
	if err := in.check(); err != nil {
		return api.EventStream{}, err
	}
	l, err := h.ingester.Tail.Listen(ws, in, func() bool { return h.enabled(ws) })
	if err != nil {
		return api.EventStream{}, err
	}
	return api.EventStream{Source: l}, nil
}
