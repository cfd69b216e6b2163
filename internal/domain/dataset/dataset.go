// Package dataset makes sets of examples for training and evaluation of logged exchanges. They are curated, split
// without leaks, and stay when the logs have expired.
package dataset

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
)

// A Dataset is a snapshot of examples. Nothing of it ever changes: after its partner is deleted, holdout_id or
// holdout_of still says which one it was.
type Dataset struct {
	ID         string     `json:"id"`
	Object     string     `json:"object" enum:"dataset"`
	Name       string     `json:"name"`
	Role       Role       `json:"role" enum:"train,eval"`
	Rows       int64      `json:"rows" db:"row_count" doc:"Examples"`
	Provenance Provenance `json:"provenance"`
	HoldoutID  *string    `json:"holdout_id" doc:"The dataset that was held out of this one; it may have been deleted since"`
	HoldoutOf  *string    `json:"holdout_of" doc:"The dataset that this one was held out of; it may have been deleted since"`
	Curation   Curation   `json:"curation"`
	CreatedAt  clock.Time `json:"created_at"`
}

// A Role is what a dataset is for.
type Role string

// The roles.
const (
	Train Role = "train"
	Eval  Role = "eval" // held out of another
)

// evalSuffix makes the name of a holdout.
const evalSuffix = "-eval"

// Provenance is where a dataset comes from. A dataset and its holdout share it.
type Provenance struct {
	Source    string        `json:"source" enum:"logs"`
	Filters   Filters       `json:"filters"`
	Segment   *string       `json:"segment" doc:"The family of system prompts that all examples are of; null where there are several"`
	FirstAt   *clock.Time   `json:"first_at" doc:"The oldest exchange that was not dropped"`
	LastAt    *clock.Time   `json:"last_at" doc:"The newest exchange that was not dropped"`
	CreatedBy tenant.UserID `json:"created_by"`
}

// fromLogs is the source of a dataset that is made of logs.
const fromLogs = "logs"

// Filters are those of the logs, shown as they were given.
type Filters = logbook.Selection

// A Curation tells what became of the exchanges that were looked at: scanned is kept, dropped and folded_turns
// together. A dataset and its holdout share it, so that the rows of both are what was kept.
type Curation struct {
	Scanned             int     `json:"scanned" doc:"Exchanges that were looked at, the newest that match"`
	Kept                int     `json:"kept" doc:"Exchanges that are examples, here or in the other dataset of the split"`
	Dropped             Dropped `json:"dropped"`
	FoldedConversations int     `json:"folded_conversations" doc:"Examples that other exchanges are earlier turns of"`
	FoldedTurns         int     `json:"folded_turns" doc:"Exchanges that are earlier turns of examples, and none of their own"`
	Capped              bool    `json:"capped" doc:"More exchanges match than are looked at"`
}

// Dropped counts exchanges that are in no example, by the first reason that there is.
type Dropped struct {
	Errored   int `json:"errored" doc:"Stopped by a content filter, refused by the model, or not to be read"`
	Truncated int `json:"truncated" doc:"Cut off by a limit of length"`
	Empty     int `json:"empty" doc:"Answered with neither text nor a tool call"`
	Duplicate int `json:"duplicate" doc:"The same messages and response as another"`
}

// A Recipe is what a dataset is to be made of. Builds are kept with it as JSON.
type Recipe struct {
	Name    string  `json:"name"`
	Holdout float64 `json:"holdout_pct"`
	Filters Filters `json:"filters"`
}

// The bounds of a recipe.
const (
	maxName    = 64
	maxHoldout = 50
)

// Check reports a rule that r breaks, naming the field.
func (r Recipe) Check() error {
	switch n := utf8.RuneCountInString(r.Name); {
	case n < 1 || n > maxName:
		return fault.Invalid("name", "must be 1 to 64 characters")
	case strings.ContainsFunc(r.Name, func(c rune) bool { return !unicode.IsGraphic(c) }):
		return fault.Invalid("name", "must not contain control characters or others that cannot be seen")
	case strings.TrimSpace(r.Name) != r.Name:
		return fault.Invalid("name", "must not begin or end with a space")
	case !(r.Holdout >= 0 && r.Holdout <= maxHoldout):
		return fault.Invalid("holdout_pct", "must be 0 to 50")
	}
	return r.Filters.Check("filters.")
}

// object is what a dataset is called on the wire and in the audit trail.
const object = "dataset"

// text is v as JSON, for a column.
func text(v any) (string, error) {
	kept, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("write %T: %w", v, err)
	}
	return string(kept), nil
}

var errKept = errors.New("is kept as text")

// Scan implements sql.Scanner.
func (p *Provenance) Scan(kept any) error { return scan(kept, p) }

// Scan implements sql.Scanner.
func (c *Curation) Scan(kept any) error { return scan(kept, c) }

func scan(kept, into any) error {
	text, ok := kept.(string)
	if !ok {
		return fmt.Errorf("%T %w, not %T", into, errKept, kept)
	}
	return json.Unmarshal([]byte(text), into)
}
