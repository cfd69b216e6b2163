package judging

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/job"
)

// A Kind is a kind of task. Its name is also the kind of the job and the beginning of its audit actions.
type Kind struct {
	Name   string
	Prefix string // of the ids
}

// A Task is background work that begins with a JSON request and ends with a JSON result: a scan, an improvement, a
// suggestion.
type Task struct {
	ID, CriterionID string // the criterion's id is "" for a suggestion
	Version         int64  // of the criterion
	Asked, Result   string // JSON; the result is "" until there is one
	CreatedBy       tenant.UserID
	job.Job
}

// A NewTask is a task to be started.
type NewTask struct {
	CriterionID string
	Version     int64
	Request     any
	Total       int64 // units of work
	Estimate    money.Nano
}

// Decode reads the request and, if there is one, the result.
func (t *Task) Decode(request, result any) error {
	if err := json.Unmarshal([]byte(t.Asked), request); err != nil {
		return fmt.Errorf("read the request of %s: %w", t.ID, err)
	}
	if t.Result == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(t.Result), result); err != nil {
		return fmt.Errorf("read the result of %s: %w", t.ID, err)
	}
	return nil
}
