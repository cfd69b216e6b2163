// Package judging asks judge models. An answer is stored under the digest of its question before it is charged, so that
// no question is paid for twice, whatever crashes. The package also holds what calibrations, scans, monitors and drafts
// share: spending limits, cost estimates, and tasks, which are background work with a JSON request and a JSON result.
package judging

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
)

// A Question asks a judge model about one subject.
type Question struct {
	CriterionID  string
	Origin       string // the id of the calibration, scan or criterion that asks; charges name it
	Hold         string // the named hold that pays; empty for the wallet
	Model        string
	Instructions *judge.Instructions
	Subject      *judge.Subject
	ExpiresAt    clock.Time // when the stored answer is deleted; 0 for never
	Fresh        bool       // ignore answers that were stored for other origins
	Answered     func()     // called when the model has answered, before the answer is stored; may be nil
}

// An Answer is what a judge model said: an assessment, or a failure that says why there is none.
type Answer struct {
	judge.Assessment
	Failure   string
	Cost      money.Nano // 0 for a stored answer
	RequestID string

	stored bool // it was read from the database; the model was not asked
}

// CalibrationPrefix begins the ids of calibrations. A failed answer is shared among them, see Client.Ask.
const CalibrationPrefix = "cal"

// unreachable begins the failure of a judge model that did not answer at all.
const unreachable = "unreachable"

// IsUnreachable reports whether a failure says that a model did not answer at all.
func IsUnreachable(failure string) bool { return strings.HasPrefix(failure, unreachable) }

// UnreachableBecause returns the failure of a model that could not be asked.
func UnreachableBecause(why string) string { return unreachable + ": " + why }

// Unreachable is a LIKE pattern that matches the failures of a judge model that did not answer at all.
const Unreachable = unreachable + "%"

// MaxUnreachable is how many consecutive questions may go unanswered before a run gives up: then the model is down.
const MaxUnreachable = 24

// An OutageCounter counts the consecutive questions that a judge model did not answer at all.
type OutageCounter int

// Add counts more answers, and reports whether the run should give up. Stored answers say nothing about the model now.
func (c *OutageCounter) Add(answers map[string]Answer) (giveUp bool) {
	for _, a := range answers {
		switch {
		case a.stored:
		case IsUnreachable(a.Failure):
			*c++
		default:
			*c = 0
			return false
		}
	}
	return *c >= MaxUnreachable
}

// Reached reports whether a judge model has answered one of some questions now.
func Reached(answers map[string]Answer) bool {
	for _, a := range answers {
		if a.RequestID != "" && !a.stored {
			return true
		}
	}
	return false
}

// Spending is the part of a request body that every operation has which starts to spend money.
type Spending struct {
	MaxCostUSD *money.Nano `json:"max_cost_usd,omitempty" minimum:"0" doc:"Start nothing that would cost more, as far as one can tell before, and stop where it would all the same"`
}

// Allows refuses an estimate that is above the limit.
func (s Spending) Allows(estimate money.Nano) error {
	if s.MaxCostUSD != nil && estimate > *s.MaxCostUSD {
		return fault.Invalid("max_cost_usd", fmt.Sprintf("is less than this would cost, about $%s", estimate))
	}
	return nil
}

// A Budget counts what a run has spent against its limit. It is safe for concurrent use.
type Budget struct {
	limit *money.Nano // nil for none
	spent atomic.Int64
}

// NewBudget returns a budget with a limit, which may be nil, of which some is spent.
func NewBudget(limit *money.Nano, spent money.Nano) *Budget {
	b := &Budget{limit: limit}
	b.spent.Store(int64(spent))
	return b
}

// Check refuses to spend more when the limit is reached.
func (b *Budget) Check() error {
	if b.limit != nil && money.Nano(b.spent.Load()) >= *b.limit {
		return fault.Precondition.New("max_cost_usd is spent: what was answered is kept, and another run goes on from it")
	}
	return nil
}

// Add counts a cost.
func (b *Budget) Add(cost money.Nano) { b.spent.Add(int64(cost)) }

// Spent returns what was spent.
func (b *Budget) Spent() money.Nano { return money.Nano(b.spent.Load()) }

// An EstimateRequest names work whose cost is to be estimated.
type EstimateRequest struct {
	Kind        string             `json:"kind" enum:"calibration,scan,improvement,suggestion"`
	CriterionID string             `json:"criterion_id,omitempty" doc:"For all but a suggestion"`
	Model       string             `json:"model,omitempty" doc:"That drafts"`
	SampleSize  int                `json:"sample_size,omitempty" minimum:"1" maximum:"5000" doc:"Of a scan, or of a suggestion, which has at most 200"`
	Fresh       bool               `json:"fresh,omitempty" doc:"Of a calibration: ask again what was answered before"`
	Filters     *logbook.Selection `json:"filters,omitempty" doc:"Of a scan or a suggestion"`
}

// SchemaName is the type's name in the OpenAPI document.
func (EstimateRequest) SchemaName() string { return "Inquiry" }

// An Estimate is what work would cost.
type Estimate struct {
	Object  string     `json:"object" enum:"estimate"`
	Kind    string     `json:"kind"`
	Calls   int64      `json:"calls" doc:"Questions to models, at most: what was answered before is not asked again"`
	CostUSD money.Nano `json:"cost_usd" doc:"About"`
}

// An Estimator estimates the cost of one kind of work. It starts nothing.
type Estimator func(ctx context.Context, ws tenant.ID, r *EstimateRequest) (calls int64, cost money.Nano, err error)

// Storable replaces the characters of a text that one of the database engines cannot store.
func Storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, string(utf8.RuneError)), "\x00", string(utf8.RuneError))
}

// Optional returns a pointer to text, or nil when it is empty.
func Optional[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return &text
}
