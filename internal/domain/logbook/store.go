package logbook

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// A Store reads what was logged.
type Store struct{ db *db.DB }

// NewStore reads from d.
func NewStore(d *db.DB) *Store { return &Store{db: d} }

// newest are the hours that are counted, the latest first.
func newestFirst(counts map[clock.Time]int64) []clock.Time {
	all := slices.Sorted(maps.Keys(counts))
	slices.Reverse(all)
	return all
}

// stored is a row as the table has it.
type logRow struct {
	At               clock.Time
	ID               string
	ExpiresAt        clock.Time
	Model            string
	Tag              string
	Segment          string
	FinishReason     string
	Cached           bool
	SegmentExact     string
	TraceID          string
	RequestID        string
	KeyID            tenant.KeyID
	RequestedModel   string
	Alias            string
	Provider         string
	FallbackFrom     string
	Stream           bool
	PromptTokens     int64
	CompletionTokens int64
	Cost             money.Nano
	Latency          int64
	FirstToken       int64
	Chain            []byte
	Response         []byte
	Tools            []byte
	Messages         []byte
}

const storedColumns = `at, id, expires_at, model, tag, segment, finish_reason, cached, segment_exact, trace_id, request_id, key_id, requested_model,
	alias, provider, fallback_from, stream, prompt_tokens, completion_tokens, cost, latency, first_token, response, tools, messages`

func (s *logRow) row() Row {
	return Row{
		ID: s.ID, Object: "log", RequestID: s.RequestID, CreatedAt: s.At, Model: s.Model, RequestedModel: s.RequestedModel, Alias: nullable(s.Alias),
		Provider: s.Provider, Tag: nullable(s.Tag), TraceID: nullable(s.TraceID), Segment: s.Segment, SegmentExact: s.SegmentExact,
		Messages: s.Messages, Tools: jsonOrNull(s.Tools), Response: s.Response, FinishReason: s.FinishReason,
		PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, TotalTokens: s.PromptTokens + s.CompletionTokens, CostUSD: s.Cost,
		LatencyMS: milliseconds(s.Latency), TimeToFirstTokenMS: milliseconds(s.FirstToken), Stream: s.Stream, Cached: s.Cached,
		FallbackFrom: nullable(s.FallbackFrom), ExpiresAt: s.ExpiresAt, KeyID: s.KeyID,
	}
}

func milliseconds(micros int64) float64 { return float64(micros) / 1000 }

// given is a text, or nil where there is none.
func nullable(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func jsonOrNull(text []byte) jsontext.Value {
	if len(text) == 0 {
		return jsontext.Value("null")
	}
	return text
}

// pageBytes bounds a page, whatever its rows are: one that is cut short has fewer rows than were asked for.
const pageBytes = 32 << 20

// List is a page of rows, newest first, and how many there are, both at one time.
func (s *Store) List(ctx context.Context, ws tenant.ID, f *Filters, limit, offset int) (rows []Row, total int64, err error) {
	err = s.db.SnapshotIn(ctx, ws, func(in db.Scoped) error {
		q, err := find(ctx, in, ws, f, clock.Now())
		if err != nil {
			return err
		}
		if total, err = q.total(ctx); err != nil || total <= int64(offset) {
			return err
		}
		size := 0
		return q.page(ctx, storedColumns, limit, offset, func(r *logRow) bool {
			rows = append(rows, r.row())
			size += len(r.Messages) + len(r.Response) + len(r.Tools)
			return size < pageBytes
		})
	})
	return rows, total, err
}

// Get reads one row.
func (s *Store) Get(ctx context.Context, ws tenant.ID, name string) (Row, error) {
	at, ok := id.Born("log", name)
	if !ok {
		return Row{}, fault.NotFound("log", name)
	}
	row, err := db.Maybe[logRow](ctx, s.db.In(ws), `
		SELECT `+storedColumns+` FROM log_rows WHERE workspace_id = $1 AND at = $2 AND id = $3 AND expires_at > $4`, clock.Of(at), name, clock.Now())
	switch {
	case err != nil:
		return Row{}, fmt.Errorf("read logged row %s: %w", name, err)
	case row == nil:
		return Row{}, fault.NotFound("log", name)
	}
	return row.row(), nil
}

// A Segment is a family of system prompts.
type Segment struct {
	ID       string     `json:"id"`
	Object   string     `json:"object" enum:"segment"`
	Count    int64      `json:"count" doc:"Logged exchanges"`
	Variants int64      `json:"variants" doc:"Exact prompts"`
	Sample   string     `json:"sample" doc:"The beginning of one of them"`
	FirstAt  clock.Time `json:"first_at"`
	LastAt   clock.Time `json:"last_at"`
}

// Segments lists the families that have rows, the largest first.
func (s *Store) Segments(ctx context.Context, ws tenant.ID, limit, offset int) ([]Segment, error) {
	all, err := db.Query[Segment](ctx, s.db.In(ws), `
		SELECT counted.value AS id, 'segment' AS object, counted.n AS count, COALESCE(kept.variants, 0) AS variants, '' AS sample,
			COALESCE(kept.first_at, counted.first_hour) AS first_at, COALESCE(kept.last_at, counted.last_hour) AS last_at
		FROM (
			SELECT value, CAST(SUM(n) AS BIGINT) AS n, MIN(hour) AS first_hour, MAX(hour) AS last_hour
			FROM log_counts WHERE workspace_id = $1 AND facet = 'segment' AND n > 0 GROUP BY value
		) counted LEFT JOIN (
			SELECT segment, COUNT(*) AS variants, MIN(first_at) AS first_at, MAX(last_at) AS last_at
			FROM log_variants WHERE workspace_id = $1 GROUP BY segment
		) kept ON kept.segment = counted.value
		ORDER BY counted.n DESC, counted.value LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read segments: %w", err)
	}
	for i := range all {
		prompt, err := db.Maybe[[]byte](ctx, s.db.In(ws), `
			SELECT prompt FROM log_variants WHERE workspace_id = $1 AND segment = $2 ORDER BY last_at DESC LIMIT 1`, all[i].ID)
		if err != nil {
			return nil, fmt.Errorf("read a prompt of %s: %w", all[i].ID, err)
		}
		if prompt != nil {
			all[i].Sample = string(*prompt)
		}
	}
	return all, nil
}

// A Trace is the run of an agent.
type Trace struct {
	ID               string     `json:"id"`
	Object           string     `json:"object" enum:"trace"`
	Steps            int64      `json:"steps" doc:"Logged exchanges"`
	PromptTokens     int64      `json:"prompt_tokens"`
	CompletionTokens int64      `json:"completion_tokens"`
	CostUSD          money.Nano `json:"cost_usd" db:"cost"`
	FirstAt          clock.Time `json:"first_at"`
	LastAt           clock.Time `json:"last_at"`
}

const traceColumns = `trace_id AS id, 'trace' AS object, steps, prompt_tokens, completion_tokens, cost, first_at, last_at`

// Traces lists runs, the one that went on last first.
func (s *Store) Traces(ctx context.Context, ws tenant.ID, limit, offset int) ([]Trace, error) {
	all, err := db.Query[Trace](ctx, s.db.In(ws), `
		SELECT `+traceColumns+` FROM log_traces WHERE workspace_id = $1 AND steps > 0 ORDER BY last_at DESC, trace_id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read traces: %w", err)
	}
	return all, nil
}

// Trace reads a run with its steps, the first of them first.
func (s *Store) Trace(ctx context.Context, ws tenant.ID, id string, limit, offset int) (run Trace, steps []Row, err error) {
	in := s.db.In(ws)
	found, err := db.Maybe[Trace](ctx, in, `SELECT `+traceColumns+` FROM log_traces WHERE workspace_id = $1 AND trace_id = $2 AND steps > 0`, id)
	switch {
	case err != nil:
		return run, nil, fmt.Errorf("read trace %s: %w", id, err)
	case found == nil:
		return run, nil, fault.NotFound("trace", id)
	}
	size := 0
	for row, err := range db.Rows[logRow](ctx, in, `
		SELECT `+storedColumns+` FROM log_rows
		WHERE workspace_id = $1 AND trace_id = $2 AND trace_id <> '' AND expires_at > $3 ORDER BY at LIMIT $4 OFFSET $5`, id, clock.Now(), limit, offset) {
		if err != nil {
			return run, nil, fmt.Errorf("read the steps of trace %s: %w", id, err)
		}
		steps = append(steps, row.row())
		if size += len(row.Messages) + len(row.Response) + len(row.Tools); size > pageBytes {
			break
		}
	}
	return *found, steps, nil
}
