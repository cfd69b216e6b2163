// Package review keeps review queues: items that people grade, one after another. A person needs no role in the
// workspace for that, but a grant on the queue. An item is claimed for a while, and then graded or skipped; each
// grade is a label.
package review

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/job"
	"sovereign/internal/text/redact"
)

// The kinds of sources.
const (
	fromLogs          = "logs"
	fromScan          = "scan"
	fromDisagreements = "disagreements"
	fromTraces        = "traces"
	fromUncertain     = "uncertain"
	fromIDs           = "ids"
)

// maxItems is how many items one source adds at most.
const maxItems = 5000

// A QueueSource says where the items of a queue come from.
type QueueSource struct {
	Kind       string              `json:"kind" enum:"logs,scan,disagreements,traces,uncertain,ids" doc:"logs: a sample of logged exchanges, spread over the families of prompts. scan: what a scan has judged, failures first. disagreements: what judge and people disagree on in the last calibration, the surest first. traces: whole runs. uncertain: what the judge was least sure of, in a scan or in monitored traffic. ids: these"`
	N          int                 `json:"n,omitempty" minimum:"1" maximum:"5000" doc:"How many items at most; 100 by default, and all of ids"`
	Filters    *logbook.Selection  `json:"filters,omitempty" doc:"Of logs"`
	Runs       *logbook.RunFilters `json:"runs,omitempty" doc:"Of traces"`
	ScanID     string              `json:"scan_id,omitempty" maxLength:"64" doc:"Of scan, and of uncertain: without it the monitored traffic"`
	Verdict    judge.Verdict       `json:"verdict,omitempty" enum:"pass,fail" doc:"Of scan: those with this verdict alone"`
	RequestIDs []string            `json:"request_ids,omitempty" maxItems:"5000" doc:"Of ids: logged exchanges"`
	TraceIDs   []string            `json:"trace_ids,omitempty" maxItems:"5000" doc:"Of ids: logged runs"`
}

// clean returns s with its defaults and without credentials, or the first rule that it breaks.
func (s QueueSource) clean(criterionID string) (QueueSource, error) {
	named := len(s.RequestIDs) + len(s.TraceIDs)
	for _, one := range []struct {
		field string
		given bool
		kinds []string
	}{
		{"filters", s.Filters != nil, []string{fromLogs}},
		{"runs", s.Runs != nil, []string{fromTraces}},
		{"scan_id", s.ScanID != "", []string{fromScan, fromUncertain}},
		{"verdict", s.Verdict != "", []string{fromScan}},
		{"request_ids", named > 0, []string{fromIDs}},
	} {
		if one.given && !strings.Contains(strings.Join(one.kinds, " "), s.Kind) {
			return s, fault.Invalid("source."+one.field, "is for "+strings.Join(one.kinds, " and "))
		}
	}
	switch {
	case s.Kind == fromScan && s.ScanID == "":
		return s, fault.Invalid("source.scan_id", "is required for scan")
	case s.Kind == fromIDs && (named == 0 || named > maxItems):
		return s, fault.Invalid("source.request_ids", fmt.Sprintf("and trace_ids must be 1 to %d together", maxItems))
	case criterionID == "" && (s.Kind == fromScan || s.Kind == fromDisagreements || s.Kind == fromUncertain):
		return s, fault.Invalid(
			"criterion_id", "is required for "+s.Kind+": it is what the judge of the criterion said",
		)
	}
	s.N = cmp.Or(s.N, 100)
	if s.Kind == fromIDs {
		s.N = named
	}
	if s.Filters != nil {
		filters := s.Filters.Clean()
		if s.Filters = &filters; filters.Check("source.filters.") != nil {
			return s, filters.Check("source.filters.")
		}
	}
	if s.Runs != nil {
		return s, s.Runs.Check("source.runs.")
	}
	return s, nil
}

// A NewQueue is a queue to be made.
type NewQueue struct {
	Name           string      `json:"name" doc:"1 to 100 characters that can be seen"`
	CriterionID    string      `json:"criterion_id,omitempty" maxLength:"64" doc:"The judge that the grades are for; its rubric is shown"`
	Instructions   string      `json:"instructions,omitempty" maxLength:"8000" doc:"What graders are told"`
	GradersPerItem int         `json:"graders_per_item,omitempty" minimum:"1" maximum:"5" doc:"How many people grade an item; 1 by default"`
	Blind          *bool       `json:"blind,omitempty" doc:"Graders do not see what the judge said; true by default"`
	LeaseMinutes   int         `json:"lease_minutes,omitempty" minimum:"1" maximum:"1440" doc:"How long a claimed item is kept for its grader; 15 by default"`
	Source         QueueSource `json:"source"`
}

// clean returns n with its defaults and without credentials, or the first rule that it breaks.
func (n NewQueue) clean() (_ NewQueue, err error) {
	n.Name, n.Instructions = redact.String(n.Name), redact.String(n.Instructions)
	if err := checkName(n.Name); err != nil {
		return n, err
	}
	n.GradersPerItem, n.LeaseMinutes = cmp.Or(n.GradersPerItem, 1), cmp.Or(n.LeaseMinutes, 15)
	if n.Blind == nil {
		blind := true
		n.Blind = &blind
	}
	n.Source, err = n.Source.clean(n.CriterionID)
	return n, err
}

func checkName(name string) error {
	if n := utf8.RuneCountInString(name); n < 1 || n > 100 || strings.TrimSpace(name) == "" ||
		strings.ContainsFunc(name, unicode.IsControl) {
		return fault.Invalid("name", "must be 1 to 100 characters that can be seen")
	}
	return nil
}

// A QueueChange changes a queue. What is omitted stays.
type QueueChange struct {
	Name           *string `json:"name,omitempty"`
	Instructions   *string `json:"instructions,omitempty" maxLength:"8000"`
	GradersPerItem *int    `json:"graders_per_item,omitempty" minimum:"1" maximum:"5" doc:"Items with enough grades are done, others are open again"`
	Blind          *bool   `json:"blind,omitempty"`
	LeaseMinutes   *int    `json:"lease_minutes,omitempty" minimum:"1" maximum:"1440" doc:"Of the claims from now on"`
	Closed         *bool   `json:"closed,omitempty" doc:"false opens a closed queue again"`
}

// A Queue is a review queue as a person sees it.
type Queue struct {
	ID             string        `json:"id"`
	Object         string        `json:"object" enum:"review_queue"`
	Name           string        `json:"name"`
	CriterionID    *string       `json:"criterion_id"`
	Criterion      *QueueRubric  `json:"criterion" doc:"What makes an item pass; null without a criterion, and in lists"`
	Instructions   string        `json:"instructions"`
	GradersPerItem int64         `json:"graders_per_item"`
	Blind          bool          `json:"blind"`
	LeaseMinutes   int64         `json:"lease_minutes"`
	Source         *QueueSource  `json:"source" doc:"null for reviewers who are not members, and without ids in lists"`
	CreatedBy      tenant.UserID `json:"created_by"`
	CreatedAt      clock.Time    `json:"created_at"`
	ClosedAt       *clock.Time   `json:"closed_at" doc:"null while it is open"`
	Fill           *QueueFill    `json:"fill" doc:"The last time that items were added"`
	Counts         QueueCounts   `json:"counts"`
	Mine           MyCounts      `json:"mine"`
	MayGrade       bool          `json:"may_grade" doc:"Whether you may grade in it"`
	MayManage      bool          `json:"may_manage" doc:"Whether you may change it"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Queue) SchemaName() string { return "ReviewQueue" }

// A QueueRubric is what graders are told of a criterion.
type QueueRubric struct {
	Name          string      `json:"name"`
	Rubric        string      `json:"rubric"`
	Scale         judge.Scale `json:"scale" enum:"binary,graded"`
	PassThreshold float64     `json:"pass_threshold"`
}

// A QueueFill is how items were added.
type QueueFill struct {
	ID      string     `json:"id"`
	Status  job.Status `json:"status" enum:"QUEUED,RUNNING,DONE,FAILED,CANCELLED"`
	Added   int64      `json:"added" doc:"Items that were not in the queue before"`
	Missing int64      `json:"missing" doc:"Named items that are not logged"`
	Error   *string    `json:"error" db:"failure"`
}

// QueueCounts count the items of a queue.
type QueueCounts struct {
	Items     int64 `json:"items"`
	Open      int64 `json:"open" doc:"That need more grades"`
	Claimed   int64 `json:"claimed" doc:"Claims that are held now"`
	Done      int64 `json:"done"`
	Conflicts int64 `json:"conflicts" doc:"Items whose grades differ; those that are done, for whoever may see no more"`
	Expired   int64 `json:"expired" doc:"Items that are not logged any more"`
}

// MyCounts count the items of a queue for one person.
type MyCounts struct {
	Waiting int64 `json:"waiting" doc:"That may be offered to you"`
	Claimed int64 `json:"claimed"`
	Graded  int64 `json:"graded"`
	Skipped int64 `json:"skipped"`
}
