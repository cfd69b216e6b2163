package criterion

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/audit"
	"sovereign/internal/clock"
	"sovereign/internal/db"
	"sovereign/internal/fault"
	"sovereign/internal/id"
	"sovereign/internal/job"
	"sovereign/internal/judge"
	"sovereign/internal/label"
	"sovereign/internal/money"
	"sovereign/internal/tenant"
	"sovereign/internal/trust"
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
	items, err := db.Query[[]byte](ctx, in, `SELECT item FROM labels WHERE workspace_id = $1 AND criterion_id = $2 ORDER BY id DESC LIMIT $3`, k.ID, foreseen)
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
	cost, err := bench.foresee(ctx, ws, k.JudgeModel, told, subjects, total, fresh)
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
