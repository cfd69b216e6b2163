package logbook

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
)

// A Store reads the log database.
type Store struct{ db *db.DB }

// NewStore returns a store that reads from d.
func NewStore(d *db.DB) *Store { return &Store{db: d} }

// newestFirst returns the counted hours, the latest first.
func newestFirst(counts map[clock.Time]int64) []clock.Time {
	all := slices.Sorted(maps.Keys(counts))
	slices.Reverse(all)
	return all
}

// A logRow is a row of the table log_rows.
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
		ID: s.ID, Object: "log", RequestID: s.RequestID, CreatedAt: s.At, Model: s.Model,
		RequestedModel: s.RequestedModel, Alias: nullable(s.Alias), Provider: s.Provider, Tag: nullable(s.Tag),
		TraceID: nullable(s.TraceID), Segment: s.Segment, SegmentExact: s.SegmentExact, Messages: s.Messages,
		Tools: jsonOrNull(s.Tools), Response: s.Response, FinishReason: s.FinishReason, PromptTokens: s.PromptTokens,
		CompletionTokens: s.CompletionTokens, TotalTokens: s.PromptTokens + s.CompletionTokens, CostUSD: s.Cost,
		LatencyMS: milliseconds(s.Latency), TimeToFirstTokenMS: milliseconds(s.FirstToken), Stream: s.Stream,
		Cached: s.Cached, FallbackFrom: nullable(s.FallbackFrom), ExpiresAt: s.ExpiresAt, KeyID: s.KeyID,
	}
}

func milliseconds(micros int64) float64 { return float64(micros) / 1000 }

// nullable returns nil for an empty text.
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

// pageBytes bounds a page. A page that it cuts has fewer rows than were asked for.
const pageBytes = 32 << 20

// List returns a page of rows, newest first, and the number of all matching rows, from one snapshot.
func (s *Store) List(
	ctx context.Context, ws tenant.ID, f *Filters, limit, offset int,
) (rows []Row, total int64, err error) {
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
		SELECT `+storedColumns+` FROM log_rows WHERE workspace_id = $1 AND at = $2 AND id = $3 AND expires_at > $4`,
		clock.Of(at), name, clock.Now())
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
			COALESCE(kept.first_at,
				(SELECT MIN(at) FROM log_rows WHERE workspace_id = $1 AND segment = counted.value)) AS first_at,
			COALESCE(kept.last_at,
				(SELECT MAX(at) FROM log_rows WHERE workspace_id = $1 AND segment = counted.value)) AS last_at
		FROM (
			SELECT value, CAST(SUM(n) AS BIGINT) AS n
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

// A Trace is one run of an agent.
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

// Traces lists runs, the last active first.
func (s *Store) Traces(ctx context.Context, ws tenant.ID, limit, offset int) ([]Trace, error) {
	all, err := db.Query[Trace](ctx, s.db.In(ws), `
		SELECT `+traceColumns+` FROM log_traces WHERE workspace_id = $1 AND steps > 0 ORDER BY last_at DESC, trace_id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read traces: %w", err)
	}
	return all, nil
}

// Trace reads a run with its steps, in order.
func (s *Store) Trace(
	ctx context.Context, ws tenant.ID, id string, limit, offset int,
) (run Trace, steps []Row, err error) {
	in := s.db.In(ws)
	found, err := db.Maybe[Trace](ctx, in,
		`SELECT `+traceColumns+` FROM log_traces WHERE workspace_id = $1 AND trace_id = $2 AND steps > 0`, id)
	switch {
	case err != nil:
		return run, nil, fmt.Errorf("read trace %s: %w", id, err)
	case found == nil:
		return run, nil, fault.NotFound("trace", id)
	}
	size := 0
	for row, err := range db.Rows[logRow](ctx, in, `
		SELECT `+storedColumns+` FROM log_rows
		WHERE workspace_id = $1 AND trace_id = $2 AND trace_id <> '' AND expires_at > $3 ORDER BY at, id LIMIT $4 OFFSET $5`,
		id, clock.Now(), limit, offset) {
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

// cursor returns how far a spool was ingested, and the newest time of its rows.
func cursor(ctx context.Context, across db.Scoped, source string) (spool.Position, clock.Time, error) {
	type row struct {
		Segment, Position int64
		At                clock.Time
	}
	at, err := db.Maybe[row](ctx, across, `SELECT segment, position, at FROM log_cursors WHERE source = $1`, source)
	if err != nil || at == nil {
		return spool.Position{}, 0, err
	}
	return spool.Position{Segment: at.Segment, Offset: at.Position}, at.At, nil
}

// write applies the delta to the tables. Counts of zero are deleted by deleteExpiredRows.
func (t *countDelta) write(ctx context.Context, across db.Scoped) error {
	counts := make([][]any, 0, len(t.counts))
	for _, c := range slices.SortedFunc(maps.Keys(t.counts), countKey.compare) {
		counts = append(counts, []any{c.ws, c.facet, c.value, c.hour, t.counts[c]})
	}
	if err := db.Merge(ctx, across, "log_counts", []string{"workspace_id", "facet", "value", "hour", "n"}, 4,
		"n = log_counts.n + excluded.n", counts); err != nil {
		return err
	}
	runs := make([][]any, 0, len(t.traces))
	for key, r := range t.traces {
		runs = append(runs, []any{key.ws, key.id, r.first, r.last, r.steps, r.prompt, r.completion, r.cost})
	}
	return db.Merge(ctx, across, "log_traces", []string{"workspace_id", "trace_id", "first_at", "last_at", "steps", "prompt_tokens", "completion_tokens", "cost"}, 2, `
		first_at = CASE WHEN excluded.first_at < log_traces.first_at THEN excluded.first_at ELSE log_traces.first_at END,
		last_at = CASE WHEN excluded.last_at > log_traces.last_at THEN excluded.last_at ELSE log_traces.last_at END,
		steps = log_traces.steps + excluded.steps, prompt_tokens = log_traces.prompt_tokens + excluded.prompt_tokens,
		completion_tokens = log_traces.completion_tokens + excluded.completion_tokens, cost = log_traces.cost + excluded.cost`, runs)
}

// compare orders counts by the table's primary key, the fastest order to insert them in.
func (c countKey) compare(d countKey) int {
	return cmp.Or(cmp.Compare(c.ws, d.ws), cmp.Compare(c.facet, d.facet), cmp.Compare(c.value, d.value),
		cmp.Compare(c.hour, d.hour))
}

// savePrompts stores prompts and families, or extends their expiry.
func savePrompts(ctx context.Context, across db.Scoped, prompts []*prompt) error {
	variants, kept := make([][]any, len(prompts)), map[[2]string][]any{}
	for i, p := range prompts {
		sample := []byte{}
		if p.fresh {
			sample = []byte(sampleOf(capture.System(p.first.Messages)))
		}
		variants[i] = []any{p.ws, p.exact, p.segment, sample, p.first.At, p.last, p.expires}
		key := [2]string{string(p.ws), p.segment}
		family := kept[key]
		if family == nil {
			family = []any{p.ws, p.segment, []byte{}, p.expires}
			kept[key] = family
		}
		if p.print != nil {
			family[2] = p.print.Bytes()
		}
		if expires, _ := family[3].(clock.Time); p.expires > expires {
			family[3] = p.expires
		}
	}
	err := db.Merge(ctx, across, "log_variants", []string{"workspace_id", "segment_exact", "segment", "prompt", "first_at", "last_at", "expires_at"}, 2, `
		last_at = CASE WHEN excluded.last_at > log_variants.last_at THEN excluded.last_at ELSE log_variants.last_at END,
		expires_at = CASE WHEN excluded.expires_at > log_variants.expires_at THEN excluded.expires_at ELSE log_variants.expires_at END`, variants)
	if err != nil {
		return err
	}
	families := make([][]any, 0, len(kept))
	for _, family := range kept {
		families = append(families, family)
	}
	return db.Merge(ctx, across, "log_families", []string{"workspace_id", "segment", "print", "expires_at"}, 2, `
		expires_at = CASE WHEN excluded.expires_at > log_families.expires_at THEN excluded.expires_at ELSE log_families.expires_at END`, families)
}

// deleteExpiredRows deletes rows and subtracts them from the counts.
func deleteExpiredRows(ctx context.Context, across db.Scoped, from, until clock.Time) (int, error) {
	gone, err := db.Query[facts](ctx, across, `
		DELETE FROM log_rows WHERE expires_at > $1 AND expires_at <= $2
		RETURNING workspace_id AS workspace, at, model, tag, segment, finish_reason, cached, trace_id, prompt_tokens, completion_tokens, cost`, from, until)
	if err != nil || len(gone) == 0 {
		return 0, err
	}
	var changed countDelta
	for i := range gone {
		changed.add(&gone[i], -1)
	}
	if err := changed.write(ctx, across); err != nil {
		return 0, err
	}
	for _, none := range []string{`DELETE FROM log_counts WHERE n = 0`, `DELETE FROM log_traces WHERE steps = 0`} {
		if _, err := db.Exec(ctx, across, none); err != nil {
			return 0, err
		}
	}
	return len(gone), nil
}

// firstExpiry returns the earliest expiry of all rows.
func firstExpiry(ctx context.Context, d *db.DB) (clock.Time, error) {
	over, err := db.One[clock.Time](ctx, d.Across("rows of all workspaces expire"), `
		SELECT MIN(over) FROM (
			SELECT MIN(expires_at) AS over FROM log_rows
			UNION ALL SELECT MIN(expires_at) FROM log_variants
			UNION ALL SELECT MIN(expires_at) FROM log_families
			UNION ALL SELECT MIN(expires_at) FROM canary_draws
			UNION ALL SELECT CAST($1 AS BIGINT)) AS all_of_them`, int64(math.MaxInt64))
	if err != nil {
		return 0, fmt.Errorf("read the first expiry of logged rows: %w", err)
	}
	return over, nil
}

// A family is a row of log_families.
type family struct {
	Segment string
	Print   []byte
}

// readFamilies reads a workspace's families of prompts.
func readFamilies(ctx context.Context, in db.Scoped) iter.Seq2[family, error] {
	return db.Rows[family](ctx, in, `SELECT segment, print FROM log_families WHERE workspace_id = $1`)
}

// familyNames lists a workspace's families.
func familyNames(ctx context.Context, in db.Scoped) ([]string, error) {
	all, err := db.Query[string](ctx, in, `SELECT segment FROM log_families WHERE workspace_id = $1`)
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	return all, nil
}

// familyStored reports whether a family is in the table.
func familyStored(ctx context.Context, in db.Scoped, name string) (bool, error) {
	found, err := db.Maybe[string](ctx, in,
		`SELECT segment FROM log_families WHERE workspace_id = $1 AND segment = $2`, name)
	if err != nil {
		return false, fmt.Errorf("find segment %s: %w", name, err)
	}
	return found != nil, nil
}

// readNamedFamilies reads some of a workspace's families.
func readNamedFamilies(ctx context.Context, in db.Scoped, names []string) iter.Seq2[family, error] {
	text := `SELECT segment, print FROM log_families WHERE workspace_id = $1 AND segment IN (` + scanPlaces + `)`
	return func(yield func(family, error) bool) {
		for batch := range slices.Chunk(names, scanBatch) {
			args := make([]any, scanBatch)
			for i := range args {
				args[i] = batch[min(i, len(batch)-1)]
			}
			for r, err := range db.Rows[family](ctx, in, text, args...) {
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

// readSegment returns the family of an exact prompt, or nil when it is not stored.
func readSegment(ctx context.Context, in db.Scoped, exact string) (*string, error) {
	found, err := db.Maybe[string](ctx, in, `
		SELECT segment FROM log_variants WHERE workspace_id = $1 AND segment_exact = $2`, exact)
	if err != nil {
		return nil, fmt.Errorf("read a prompt's segment: %w", err)
	}
	return found, nil
}
