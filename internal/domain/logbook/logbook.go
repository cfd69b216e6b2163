// Package logbook stores the chat exchanges of workspaces that have logging enabled. It ingests captured rows, counts
// them, lists and exports them, and deletes them when they expire.
package logbook

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/text/redact"
)

// A Row is a logged exchange as the API shows it.
type Row struct {
	ID                 string         `json:"id"`
	Object             string         `json:"object" enum:"log"`
	RequestID          string         `json:"request_id" doc:"The answer's x-request-id"`
	CreatedAt          clock.Time     `json:"created_at"`
	Model              string         `json:"model" doc:"The model that answered"`
	RequestedModel     string         `json:"requested_model" doc:"The model or alias that was asked for"`
	Alias              *string        `json:"alias"`
	Provider           string         `json:"provider"`
	Tag                *string        `json:"tag"`
	TraceID            *string        `json:"trace_id"`
	Segment            string         `json:"segment" doc:"The family of the system prompt; none where there is no system prompt"`
	SegmentExact       string         `json:"segment_exact" doc:"The exact system prompt"`
	Messages           jsontext.Value `json:"messages"`
	Tools              jsontext.Value `json:"tools" doc:"The tools that were offered, or null"`
	Response           jsontext.Value `json:"response" doc:"The assistant's message, tool calls included; of several choices the first"`
	FinishReason       string         `json:"finish_reason"`
	PromptTokens       int64          `json:"prompt_tokens"`
	CompletionTokens   int64          `json:"completion_tokens"`
	TotalTokens        int64          `json:"total_tokens"`
	CostUSD            money.Nano     `json:"cost_usd"`
	LatencyMS          float64        `json:"latency_ms"`
	TimeToFirstTokenMS float64        `json:"time_to_first_token_ms"`
	Stream             bool           `json:"stream"`
	Cached             bool           `json:"cached" doc:"The answer was given before, and remembered"`
	FallbackFrom       *string        `json:"fallback_from" doc:"The model that was to answer and could not"`
	ExpiresAt          clock.Time     `json:"expires_at" doc:"When the row is deleted"`
	KeyID              tenant.KeyID   `json:"key_id"`
}

// Filters select rows. They combine with AND; an empty one selects everything.
type Filters struct {
	Model        string     `query:"model" json:"model,omitempty" doc:"The model that answered"`
	Tag          string     `query:"tag" json:"tag,omitempty" doc:"The tag of X-Service-Tag"`
	Segment      string     `query:"segment" json:"segment,omitempty" doc:"The family of the system prompt; none for those without one"`
	FinishReason string     `query:"finish_reason" json:"finish_reason,omitempty" doc:"Such as stop or tool_calls"`
	CacheHit     *bool      `query:"cache_hit" json:"cache_hit,omitempty" doc:"Answers that were remembered, or those that were not"`
	Start        clock.Time `query:"start" json:"start,omitempty" doc:"From this time on, RFC 3339"`
	End          clock.Time `query:"end" json:"end,omitempty" doc:"Before this time, RFC 3339"`
}

// check refuses a time range that is empty by mistake.
func (f *Filters) check() error {
	if f.Start != 0 && f.End != 0 && f.End <= f.Start {
		return fault.Invalid("end", "must be after start")
	}
	return nil
}

// A Selection is Filters in a body. What is omitted selects everything.
type Selection struct {
	Model        string     `json:"model,omitempty" doc:"The model that answered"`
	Tag          string     `json:"tag,omitempty" doc:"The tag of X-Service-Tag"`
	Segment      string     `json:"segment,omitempty" doc:"The family of the system prompt; none for those without one"`
	FinishReason string     `json:"finish_reason,omitempty" doc:"Such as stop or tool_calls"`
	CacheHit     *bool      `json:"cache_hit,omitempty" doc:"Answers that were remembered, or those that were not"`
	Start        clock.Time `json:"start,omitzero" doc:"From this time on, RFC 3339"`
	End          clock.Time `json:"end,omitzero" doc:"Before this time, RFC 3339"`
}

// Filters returns s as Filters.
func (s Selection) Filters() *Filters {
	filters := Filters(s)
	return &filters
}

// Clean returns s without credentials, as the logs that it selects are kept.
func (s Selection) Clean() Selection {
	for _, text := range []*string{&s.Model, &s.Tag, &s.Segment, &s.FinishReason} {
		*text = redact.String(*text)
	}
	return s
}

// Check refuses a time range that is empty by mistake. at is the path of s in the body, such as "filters.".
func (s Selection) Check(at string) error {
	if s.Start != 0 && s.End != 0 && s.End <= s.Start {
		return fault.Invalid(at+"end", "must be after "+at+"start")
	}
	return nil
}

// A facet is a property that rows are counted by.
type facet struct {
	name  string // the name under which log_counts has it, with the value
	value string
	arg   any // argument of the conditions; nil where they need none
	// plain is the condition, with $? for the argument. It uses expressions, so that the planner uses no index for
	// it.
	plain   string
	indexed string // the same condition, written for the facet's own index; empty where there is none
}

// The names in log_counts that are no column.
const (
	everything = ""
	ordinary   = "ordinary" // finish_reason is stop and the answer was not cached
)

// facets returns the filters that name a value.
func (f *Filters) facets() (all []facet) {
	for _, one := range [...]struct{ column, value, common string }{
		{"model", f.Model, ""},
		{"tag", f.Tag, ""},
		{"segment", f.Segment, ""},
		{"finish_reason", f.FinishReason, "stop"},
	} {
		if one.value == "" {
			continue
		}
		next := facet{
			name: one.column, value: one.value, arg: one.value, plain: "COALESCE(" + one.column + ", '') = $?",
		}
		if one.value != one.common {
			next.indexed = one.column + " = $?"
		}
		// The facet's partial index omits the common value.
		if next.indexed != "" && (one.column == "tag" || one.column == "finish_reason") {
			next.indexed += " AND " + one.column + " <> '" + one.common + "'"
		}
		all = append(all, next)
	}
	switch {
	case f.CacheHit == nil:
	case *f.CacheHit:
		all = append(all, facet{
			name: "cached", value: "true", plain: "COALESCE(cached, FALSE)", indexed: "cached = TRUE AND cached",
		})
	default:
		all = append(all, facet{name: "cached", value: "false", plain: "NOT COALESCE(cached, FALSE)"})
	}
	// two facets that most rows have are counted as one
	if len(all) == 2 && all[0].indexed == "" && all[1].indexed == "" {
		return []facet{{name: ordinary, plain: "COALESCE(finish_reason, '') = 'stop' AND NOT COALESCE(cached, FALSE)"}}
	}
	return all
}

// where appends the facet's condition to a text, and its argument to args, the first of which is $first.
func (f *facet) where(text *strings.Builder, led bool, args []any, first int) []any {
	condition := f.plain
	if led {
		condition = f.indexed
	}
	if f.arg != nil {
		args = append(args, f.arg)
		condition = strings.ReplaceAll(condition, "$?", "$"+strconv.Itoa(len(args)+first-1))
	}
	text.WriteString(" AND ")
	text.WriteString(condition)
	return args
}

// errDisabled refuses to read the logs of a workspace that has logging disabled.
func errDisabled() error {
	return fault.LoggingDisabled.New("request logging is off for this workspace; the operator turns it on: sovereign admin logging on")
}
