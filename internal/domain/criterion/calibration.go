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
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// A Calibration is a run of a judge over its labels.
type Calibration struct {
	ID            string        `json:"id"`
	Object        string        `json:"object" enum:"calibration"`
	CriterionID   string        `json:"criterion_id"`
	Version       int64         `json:"criterion_version"`
	JudgeModel    string        `json:"judge_model"`
	Block         *trust.Block  `json:"block" doc:"What was measured; null until it is done"`
	CertificateID *string       `json:"certificate_id"`
	AlignedAt     *clock.Time   `json:"aligned_at" doc:"When it was measured"`
	CreatedBy     tenant.UserID `json:"created_by"`
	job.Job
}

// keptCalibration is a calibration as the tables have it.
type keptCalibration struct {
	ID, CriterionID string
	Version         int64
	JudgeModel      string
	Threshold       float64
	MaxCost         *money.Nano
	Fresh           bool
	Counts          string
	Enrolled, Last  string
	CreatedBy       tenant.UserID
	AlignedAt       clock.Time
	CertificateID   string
	job.Job
}

const calibrationColumns = `t.id, t.criterion_id, t.version, t.judge_model, t.threshold, t.max_cost, t.fresh, t.counts, t.enrolled, t.last, t.created_by, t.aligned_at,
	COALESCE((SELECT MAX(f.id) FROM certificates f WHERE f.workspace_id = $1 AND f.criterion_id = t.criterion_id AND f.calibration_id = t.id), '') AS certificate_id,
	` + job.Columns + ` FROM calibrations t JOIN jobs ON jobs.workspace_id = t.workspace_id AND jobs.id = t.id WHERE t.workspace_id = $1`

func (k *keptCalibration) calibration() (Calibration, error) {
	c := Calibration{
		ID: k.ID, Object: "calibration", CriterionID: k.CriterionID, Version: k.Version, JudgeModel: k.JudgeModel, CreatedBy: k.CreatedBy, Job: k.Job,
	}
	if k.CertificateID != "" {
		c.CertificateID = &k.CertificateID
	}
	if k.AlignedAt > 0 {
		halves, err := k.halves()
		if err != nil {
			return c, err
		}
		block := halves.Block()
		c.AlignedAt, c.Block = &k.AlignedAt, &block
	}
	return c, nil
}

func (k *keptCalibration) halves() (trust.Halves, error) {
	var h trust.Halves
	if err := json.Unmarshal([]byte(k.Counts), &h); err != nil {
		return h, fmt.Errorf("read the counts of %s: %w", k.ID, err)
	}
	return h, nil
}

// Calibrations lists those of a criterion, the newest first.
func (s *Store) Calibrations(ctx context.Context, ws tenant.ID, criterionID string, limit, offset int) ([]Calibration, error) {
	if _, err := find(ctx, s.db.In(ws), criterionID); err != nil {
		return nil, err
	}
	rows, err := db.Query[keptCalibration](ctx, s.db.In(ws), `SELECT `+calibrationColumns+` AND t.criterion_id = $2 ORDER BY t.created_at DESC, t.id DESC LIMIT $3 OFFSET $4`,
		criterionID, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list calibrations: %w", err)
	}
	all := make([]Calibration, len(rows))
	for i := range rows {
		if all[i], err = rows[i].calibration(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func findCalibration(ctx context.Context, in db.Scoped, criterionID, name string) (*keptCalibration, error) {
	k, err := db.Maybe[keptCalibration](ctx, in, `SELECT `+calibrationColumns+` AND t.criterion_id = $2 AND t.id = $3`, criterionID, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find calibration: %w", err)
	case k == nil:
		return nil, fault.NotFound("calibration", name)
	}
	return k, nil
}

// Calibration is the one of that id.
func (s *Store) Calibration(ctx context.Context, ws tenant.ID, criterionID, name string) (Calibration, error) {
	k, err := findCalibration(ctx, s.db.In(ws), criterionID, name)
	if err != nil {
		return Calibration{}, err
	}
	return k.calibration()
}

// A JudgedLabel is what a judge said of a label.
type JudgedLabel struct {
	LabelID      string         `json:"label_id"`
	RequestID    *string        `json:"request_id"`
	InReportHalf bool           `json:"in_report_half"`
	Shown        bool           `json:"shown" doc:"The judge is shown it as an example: nothing is measured by it"`
	Human        *judge.Verdict `json:"human_verdict" enum:"pass,fail" doc:"That it was held against; null for a label that was withdrawn"`
	Verdict      *judge.Verdict `json:"judge_verdict" enum:"pass,fail" doc:"null without one"`
	Grade        *float64       `json:"judge_grade"`
	Critique     string         `json:"critique"`
	Failure      *string        `json:"failure" doc:"Why there is no verdict"`
}

// Rows are what a judge said in a calibration, in the order of the labels. What is pending is not among them.
func (s *Store) Rows(ctx context.Context, ws tenant.ID, criterionID, name string, v judge.Verdict, failed *bool, limit, offset int) ([]JudgedLabel, error) {
	if _, err := findCalibration(ctx, s.db.In(ws), criterionID, name); err != nil {
		return nil, err
	}
	type row struct {
		LabelID, RequestID  string
		InReportHalf, Shown bool
		Human, Judge        judge.Verdict
		Grade               float64
		Critique, Failure   string
	}
	which := ""
	if failed != nil {
		which = map[bool]string{true: ` AND failure <> ''`, false: ` AND failure = ''`}[*failed]
	}
	rows, err := db.Query[row](ctx, s.db.In(ws), `
		SELECT label_id, request_id, in_report_half, shown, human, judge, grade, critique, failure FROM calibration_rows
		WHERE workspace_id = $1 AND calibration_id = $2 AND NOT pending AND ($3 = '' OR judge = $3)`+which+` ORDER BY label_id LIMIT $4 OFFSET $5`, name, v, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read the rows of %s: %w", name, err)
	}
	all := make([]JudgedLabel, len(rows))
	for i, r := range rows {
		all[i] = JudgedLabel{
			LabelID: r.LabelID, RequestID: given(r.RequestID), InReportHalf: r.InReportHalf, Shown: r.Shown, Human: given(r.Human), Verdict: given(r.Judge),
			Critique: r.Critique, Failure: given(r.Failure),
		}
		if r.Judge != "" {
			all[i].Grade = &rows[i].Grade
		}
	}
	return all, nil
}

// Calibrated reports whether any judge of a workspace was measured.
func (s *Store) Calibrated(ctx context.Context, ws tenant.ID) (bool, error) {
	n, err := db.One[int](ctx, s.db.In(ws), `SELECT COUNT(*) FROM (SELECT 1 AS one FROM calibrations WHERE workspace_id = $1 AND aligned_at > 0 LIMIT 1) any_of_them`)
	if err != nil {
		return false, fmt.Errorf("find a calibration: %w", err)
	}
	return n > 0, nil
}

// The kind of a calibration's job, and the prefix of its id.
const (
	calibrates  = "calibration"
	calibration = "cal"
)

// Calibrate begins to judge every label of a criterion. What the judge is shown is chosen anew, which may make a new version of it.
func (s *Store) Calibrate(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID string, how Effort, bench *Bench) (Calibration, error) {
	estimate, total, err := s.foresee(ctx, ws, criterionID, how.Fresh, bench)
	if err != nil {
		return Calibration{}, err
	}
	if err := how.covers(estimate); err != nil {
		return Calibration{}, err
	}
	var made Calibration
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		k, err := find(ctx, in, criterionID)
		if err != nil {
			return err
		}
		if running, err := busyWith(ctx, in, criterionID); err != nil {
			return err
		} else if running != "" {
			return fault.Conflict("%s is calibrating this criterion already", running)
		}
		if err := s.rechoose(ctx, tx, ws, by, k); err != nil {
			return err
		}
		last, err := db.One[string](ctx, in, `SELECT COALESCE(MAX(id), '') FROM labels WHERE workspace_id = $1 AND criterion_id = $2`, criterionID)
		if err != nil {
			return fmt.Errorf("find the last label: %w", err)
		}
		name := id.New(calibration)
		if _, err := db.Exec(ctx, in, `
			INSERT INTO calibrations (workspace_id, id, criterion_id, version, judge_model, threshold, max_cost, fresh, counts, enrolled, last, created_by, created_at, aligned_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', '', $9, $10, $11, 0)`,
			name, criterionID, k.Version, k.JudgeModel, k.PassThreshold, how.MaxCostUSD, how.Fresh, last, by.User, clock.Now()); err != nil {
			return fmt.Errorf("begin a calibration: %w", err)
		}
		if err := job.Queue(ctx, tx, ws, job.New{ID: name, Kind: calibrates, Total: total, Estimate: estimate}); err != nil {
			return err
		}
		begun, err := findCalibration(ctx, in, criterionID, name)
		if err != nil {
			return err
		}
		if made, err = begun.calibration(); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "calibration.start", name, nil, made)
	})
	return made, err
}

// rechoose chooses what the judge is shown. The same labels give the same choice.
func (s *Store) rechoose(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, k *kept) error {
	if !k.FewShot {
		return nil
	}
	shots, err := choose(ctx, tx.In(ws), k.ID)
	if err != nil {
		return err
	}
	was := *k
	if k.Shots = shotsText(shots); k.Shots == was.Shots {
		return nil
	}
	if err := s.put(ctx, tx, ws, &was, k); err != nil {
		return err
	}
	before, err := parseShots(was.Shots)
	if err != nil {
		return fmt.Errorf("read the shots of %s: %w", k.ID, err)
	}
	return audit.Record(ctx, tx, ws, by, "criterion.examples", k.ID, examples{was.Version, shotLabels(before)}, examples{k.Version, shotLabels(shots)})
}

// examples are what the audit trail tells of what a judge is shown.
type examples struct {
	Version int64    `json:"version"`
	Labels  []string `json:"few_shot_labels"`
}

// foreseen is how many labels an estimate is made of.
const foreseen = 32

// foresee says what a calibration would cost, about, and how many labels it would judge.
func (s *Store) foresee(ctx context.Context, ws tenant.ID, criterionID string, fresh bool, bench *Bench) (money.Nano, int64, error) {
	in := s.db.In(ws)
	k, err := find(ctx, in, criterionID)
	if err != nil {
		return 0, 0, err
	}
	was := k.Shots
	if k.FewShot { // as it would be chosen
		shots, err := choose(ctx, in, k.ID)
		if err != nil {
			return 0, 0, err
		}
		k.Shots = shotsText(shots)
	}
	labels, err := label.Count(ctx, in, k.ID)
	if err != nil {
		return 0, 0, err
	}
	total := labels.Pass + labels.Fail
	if total == 0 {
		return 0, 0, fault.Precondition.New("the criterion has no labels: POST /v1/labels with its criterion_id")
	}
	told, err := brief(ctx, in, k)
	if err != nil {
		return 0, 0, err
	}
	answered := k.Version
	if fresh || k.Shots != was {
		answered = 0 // of no version
	}
	const open = `FROM labels l WHERE l.workspace_id = $1 AND l.criterion_id = $2 AND NOT l.straddles AND l.kind <> 'ambiguous' AND NOT EXISTS (
		SELECT 1 FROM calibration_rows r JOIN calibrations t ON t.workspace_id = r.workspace_id AND t.id = r.calibration_id
		WHERE r.workspace_id = $1 AND r.label_id = l.id AND NOT r.pending AND t.version = $3)`
	unanswered, err := db.One[int64](ctx, in, `SELECT COUNT(*) `+open, k.ID, answered)
	if err != nil {
		return 0, 0, fmt.Errorf("count what is to be asked: %w", err)
	}
	items, err := db.Query[[]byte](ctx, in, `SELECT l.item `+open+` ORDER BY l.item LIMIT $4`, k.ID, answered, foreseen) // a hash: they are as good as drawn
	if err != nil {
		return 0, 0, fmt.Errorf("read labels: %w", err)
	}
	subjects := make([]judge.Subject, 0, len(items))
	for _, item := range items {
		subject, err := label.Item(ctx, in, item)
		if label.Gone(err) { // deleted meanwhile
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		subjects = append(subjects, subject)
	}
	cost, err := bench.foresee(ctx, ws, k.JudgeModel, told, subjects, unanswered, fresh)
	return cost, total, err
}

// busyWith is the calibration of a criterion that is not finished, "" for none.
func busyWith(ctx context.Context, in db.Scoped, criterionID string) (string, error) {
	found, err := db.Maybe[string](ctx, in, `
		SELECT t.id FROM calibrations t JOIN jobs ON jobs.workspace_id = t.workspace_id AND jobs.id = t.id
		WHERE t.workspace_id = $1 AND t.criterion_id = $2 AND t.aligned_at = 0 AND jobs.status IN ('QUEUED', 'RUNNING') LIMIT 1`, criterionID)
	if err != nil || found == nil {
		return "", err
	}
	return *found, nil
}
