package review

import (
	"context"
	"fmt"
	"net/http"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
)

// QueueProgress is how far a queue is, and how far the labels of its criterion are. Who is no member of the workspace
// sees the counts, and nothing that tells how others grade.
type QueueProgress struct {
	Object                  string           `json:"object" enum:"review_progress"`
	QueueID                 string           `json:"queue_id"`
	Counts                  QueueCounts      `json:"counts"`
	Mine                    MyCounts         `json:"mine"`
	Graders                 []GraderProgress `json:"graders" nullable:"false" doc:"For members of the workspace; else yourself alone"`
	Pass                    *int64           `json:"pass" doc:"Items of the criterion that people pass, from wherever they were graded; null without a criterion, and for who is no member"`
	Fail                    *int64           `json:"fail"`
	Needed                  *LabelsNeeded    `json:"needed" doc:"About how many more items must be graded for each tier of trust"`
	EstimatedCalibrationUSD *money.Nano      `json:"estimated_calibration_usd" doc:"What a calibration would cost now; null where none can be started"`
}

// GraderProgress is how much a person has graded.
type GraderProgress struct {
	UserID  tenant.UserID `json:"user_id"`
	Email   string        `json:"email"`
	Graded  int64         `json:"graded"`
	Skipped int64         `json:"skipped"`
	Unsure  int64         `json:"unsure"`
}

// LabelsNeeded are the items of each class that are missing. A tier is measured on one half of the items, so that about
// twice as many must be graded as that half needs.
type LabelsNeeded struct {
	Measured   ClassesNeeded `json:"measured"`
	Calibrated ClassesNeeded `json:"calibrated"`
}

// ClassesNeeded are numbers of items.
type ClassesNeeded struct {
	Pass int64 `json:"pass"`
	Fail int64 `json:"fail"`
}

// needed returns what is missing for a tier. c are the items of the report half.
func needed(t trust.Tier, c label.Counts) ClassesNeeded {
	least := trust.Needed(t)
	return ClassesNeeded{Pass: 2 * max(0, least-c.Pass), Fail: 2 * max(0, least-c.Fail)}
}

// Progress reads how far a queue is.
func (s *Store) Progress(ctx context.Context, caller tenant.Caller, queueID string) (p QueueProgress, err error) {
	in := s.DB.In(caller.Workspace)
	q, a, err := enter(ctx, in, caller, queueID)
	if err != nil {
		return p, err
	}
	p = QueueProgress{Object: "review_progress", QueueID: queueID}
	if p.Counts, err = s.counts(ctx, in, queueID, a.manages); err != nil {
		return p, err
	}
	if p.Mine, err = s.mine(ctx, in, caller.User, queueID); err != nil {
		return p, err
	}
	if !a.grades {
		p.Mine.Waiting = 0
	}
	if p.Graders, err = db.Query[GraderProgress](ctx, in, `
		SELECT g.user_id, COALESCE(MAX(u.email), '') AS email, COUNT(CASE WHEN g.state = 'graded' THEN 1 END) AS graded,
			COUNT(CASE WHEN g.state = 'skipped' THEN 1 END) AS skipped,
			COUNT(CASE WHEN g.state = 'graded' AND g.unsure THEN 1 END) AS unsure
		FROM review_grades g LEFT JOIN users u ON u.id = g.user_id
		WHERE g.workspace_id = $1 AND g.queue_id = $2 AND ($3 OR g.user_id = $4)
		GROUP BY g.user_id ORDER BY 3 DESC, g.user_id LIMIT $5`, queueID, a.member, caller.User, maxGraders); err != nil {
		return p, fmt.Errorf("count what people graded: %w", err)
	}
	if q.CriterionID == "" || !a.member {
		return p, nil
	}
	return p, s.needs(ctx, caller.Workspace, q.CriterionID, &p)
}

// maxGraders bounds the people that are listed.
const maxGraders = 1000

// needs fills in what the criterion of a queue has and needs.
func (s *Store) needs(ctx context.Context, ws tenant.ID, criterionID string, p *QueueProgress) error {
	in := s.DB.In(ws)
	all, err := label.Count(ctx, in, criterionID)
	if err != nil {
		return err
	}
	half, err := label.CountReport(ctx, in, criterionID)
	if err != nil {
		return err
	}
	p.Pass, p.Fail = &all.Pass, &all.Fail
	p.Needed = &LabelsNeeded{Measured: needed(trust.Measured, half), Calibrated: needed(trust.Calibrated, half)}
	cost, _, err := s.Reports.Estimate(ctx, ws, criterionID, false)
	switch {
	case err == nil:
		p.EstimatedCalibrationUSD = &cost
	case fault.From(err).Status < http.StatusInternalServerError: // no labels, a model that left the catalog
		err = nil
	}
	return err
}

// Agreement reads how far the graders of a queue agree, on items that are done.
func (s *Store) Agreement(ctx context.Context, caller tenant.Caller, queueID string) (label.Agreement, error) {
	in := s.DB.In(caller.Workspace)
	if _, _, err := enter(ctx, in, caller, queueID); err != nil {
		return label.Agreement{}, err
	}
	const shared = `FROM review_grades g
		JOIN review_items i ON i.workspace_id = g.workspace_id AND i.queue_id = g.queue_id AND i.id = g.item_id
		WHERE g.workspace_id = $1 AND g.queue_id = $2 AND g.state = 'graded' AND i.state = 'done'`
	rows, err := db.Query[label.Tally](ctx, in, `
		SELECT COUNT(CASE WHEN g.verdict = 'pass' THEN 1 END) AS passes,
			COUNT(CASE WHEN g.verdict = 'fail' THEN 1 END) AS fails
		`+shared+` GROUP BY g.item_id HAVING COUNT(*) > 1`, queueID)
	if err != nil {
		return label.Agreement{}, fmt.Errorf("read the grades of %s: %w", queueID, err)
	}
	graders, err := db.One[int64](ctx, in, `
		SELECT COUNT(DISTINCT g.user_id) `+shared+` AND EXISTS (
			SELECT 1 FROM review_grades o WHERE o.workspace_id = $1 AND o.queue_id = $2 AND o.item_id = g.item_id
				AND o.user_id <> g.user_id AND o.state = 'graded')`, queueID)
	if err != nil {
		return label.Agreement{}, fmt.Errorf("count the graders of %s: %w", queueID, err)
	}
	items := label.Tallies{}
	for _, one := range rows {
		items[one]++
	}
	return label.NewAgreement(items, graders), nil
}

// Items lists the items of a queue in their order, without their content, for owners and admins.
func (s *Store) Items(ctx context.Context, caller tenant.Caller, queueID, state string, conflict *bool, limit,
	offset int,
) ([]QueueItem, error) {
	in := s.DB.In(caller.Workspace)
	q, a, err := enter(ctx, in, caller, queueID)
	if err != nil {
		return nil, err
	}
	which := ""
	if conflict != nil {
		which = map[bool]string{true: ` AND conflict`, false: ` AND NOT conflict`}[*conflict]
	}
	page := ` FROM review_items WHERE workspace_id = $1 AND queue_id = $2 AND ($3 = '' OR state = $3)` + which +
		` ORDER BY position, id LIMIT $4 OFFSET $5`
	items, err := db.Query[itemRecord](ctx, in, `SELECT `+itemColumns+page, queueID, state, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list items: %w", err)
	}
	rows, err := db.Query[gradeRecord](ctx, in, `
		SELECT `+gradeColumns+` FROM review_grades
		WHERE workspace_id = $1 AND queue_id = $2 AND item_id IN (SELECT id`+page+`)
		ORDER BY at, user_id`, queueID, state, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list grades: %w", err)
	}
	assigned, err := db.Query[struct{ ItemID, UserID string }](ctx, in, `
		SELECT item_id, user_id FROM review_assignments
		WHERE workspace_id = $1 AND queue_id = $2 AND item_id IN (SELECT id`+page+`) ORDER BY user_id`,
		queueID, state, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list assignments: %w", err)
	}
	grades, people := map[string][]gradeRecord{}, map[string][]string{}
	for _, g := range rows {
		grades[g.ItemID] = append(grades[g.ItemID], g)
	}
	for _, one := range assigned {
		people[one.ItemID] = append(people[one.ItemID], one.UserID)
	}
	all := make([]QueueItem, len(items))
	for i := range items {
		all[i] = items[i].view(q, a, caller.User, grades[items[i].ID])
		all[i].Assignees = append(all[i].Assignees, people[items[i].ID]...)
	}
	return all, nil
}
