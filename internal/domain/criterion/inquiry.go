package criterion

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// An inquiry is background work that is asked for with some words and ends with others: a scan, an improvement, a suggestion.
type inquiry struct {
	kind   string // of its job and in the table
	prefix string // of its id
}

var (
	scans        = inquiry{"scan", "scan"}
	improvements = inquiry{"improvement", "imp"}
	suggestions  = inquiry{"suggestion", "sug"}
)

// keptInquiry is one as the tables have it.
type keptInquiry struct {
	ID, CriterionID string
	Version         int64
	Asked, Result   string
	CreatedBy       tenant.UserID
	job.Job
}

const inquiryColumns = `t.id, t.criterion_id, t.version, t.asked, t.result, t.created_by, ` + job.Columns + `
	FROM inquiries t JOIN jobs ON jobs.workspace_id = t.workspace_id AND jobs.id = t.id WHERE t.workspace_id = $1`

// read fills in what was asked and, if there is one, the result.
func (k *keptInquiry) read(asked, result any) error {
	if err := json.Unmarshal([]byte(k.Asked), asked); err != nil {
		return fmt.Errorf("read what %s was asked: %w", k.ID, err)
	}
	if k.Result == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(k.Result), result); err != nil {
		return fmt.Errorf("read the result of %s: %w", k.ID, err)
	}
	return nil
}

// begin keeps an inquiry and queues its job. A criterion may be none.
func (i inquiry) begin(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, c *kept, asked any, total int64, estimate money.Nano) (*keptInquiry, error) {
	text, err := json.Marshal(asked)
	if err != nil {
		return nil, fmt.Errorf("write what is asked: %w", err)
	}
	name, criterionID, version := id.New(i.prefix), "", int64(0)
	if c != nil {
		criterionID, version = c.ID, c.Version
	}
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO inquiries (workspace_id, id, kind, criterion_id, version, asked, result, created_by, created_at) VALUES ($1, $2, $3, $4, $5, $6, '', $7, $8)`,
		name, i.kind, criterionID, version, string(text), by.User, clock.Now()); err != nil {
		return nil, fmt.Errorf("begin a %s: %w", i.kind, err)
	}
	if err := job.Queue(ctx, tx, ws, job.New{ID: name, Kind: i.kind, Total: total, Estimate: estimate}); err != nil {
		return nil, err
	}
	if err := audit.Record(ctx, tx, ws, by, i.kind+".start", name, nil, asked); err != nil {
		return nil, err
	}
	return i.find(ctx, tx.In(ws), criterionID, name)
}

func (i inquiry) find(ctx context.Context, in db.Scoped, criterionID, name string) (*keptInquiry, error) {
	k, err := db.Maybe[keptInquiry](ctx, in, `SELECT `+inquiryColumns+` AND t.kind = $2 AND t.criterion_id = $3 AND t.id = $4`, i.kind, criterionID, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find a %s: %w", i.kind, err)
	case k == nil:
		return nil, fault.NotFound(i.kind, name)
	}
	return k, nil
}

// list reads those of a criterion, the newest first.
func (i inquiry) list(ctx context.Context, in db.Scoped, criterionID string, limit, offset int) ([]keptInquiry, error) {
	if criterionID != "" {
		if _, err := find(ctx, in, criterionID); err != nil {
			return nil, err
		}
	}
	all, err := db.Query[keptInquiry](ctx, in, `SELECT `+inquiryColumns+` AND t.kind = $2 AND t.criterion_id = $3 ORDER BY t.created_at DESC, t.id DESC LIMIT $4 OFFSET $5`,
		i.kind, criterionID, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", i.kind, err)
	}
	return all, nil
}

// of is the inquiry of a run.
func (i inquiry) of(ctx context.Context, d *db.DB, run *job.Run) (*keptInquiry, error) {
	k, err := db.One[keptInquiry](ctx, d.In(run.Workspace), `SELECT `+inquiryColumns+` AND t.kind = $2 AND t.id = $3`, i.kind, run.ID)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", run.ID, err)
	}
	return &k, nil
}

// conclude writes a result.
func conclude(ctx context.Context, in db.Scoped, name string, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("write the result of %s: %w", name, err)
	}
	if _, err := db.Exec(ctx, in, `UPDATE inquiries SET result = $3 WHERE workspace_id = $1 AND id = $2`, name, string(text)); err != nil {
		return fmt.Errorf("keep the result of %s: %w", name, err)
	}
	return nil
}
