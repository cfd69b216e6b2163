package criterion

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

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

// Spending is what every operation takes that starts spending.
type Spending struct {
	MaxCostUSD *money.Nano `json:"max_cost_usd,omitempty" minimum:"0" doc:"Start nothing that would cost more, as far as one can tell before, and stop where it would all the same"`
}

// Effort is how a calibration goes about it.
type Effort struct {
	Spending
	Fresh bool `json:"fresh,omitempty" doc:"Ask again what the judge answered in earlier runs, and pay for it: models change"`
}

// covers refuses what would cost more than the caller is ready to pay.
func (s Spending) covers(estimate money.Nano) error {
	if s.MaxCostUSD != nil && estimate > *s.MaxCostUSD {
		return fault.Invalid("max_cost_usd", fmt.Sprintf("is less than this would cost, about $%s", estimate))
	}
	return nil
}

// A purse is what a run may spend, and has.
type purse struct {
	most  *money.Nano
	spent atomic.Int64
}

// open refuses to spend more.
func (p *purse) open() error {
	if p.most != nil && money.Nano(p.spent.Load()) >= *p.most {
		return fault.Precondition.New("max_cost_usd is spent: what was answered is kept, and another run goes on from it")
	}
	return nil
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

// calibrate is the work of a calibration: a row for each label, an answer for each row, and what they come to.
func (s *Store) calibrate(bench *Bench) job.Work {
	return func(ctx context.Context, run *job.Run) error {
		in := s.db.In(run.Workspace)
		k, err := db.One[keptCalibration](ctx, in, `SELECT `+calibrationColumns+` AND t.id = $2`, run.ID)
		if err != nil {
			return fmt.Errorf("read calibration %s: %w", run.ID, err)
		}
		c, err := find(ctx, in, k.CriterionID)
		if err != nil {
			return err
		}
		if err := k.current(c); err != nil {
			return err
		}
		if err := s.enrol(ctx, run, &k, c); err != nil {
			return err
		}
		purse := purse{most: k.MaxCost}
		if err := bench.catchUp(ctx, run, k.CriterionID, &purse); err != nil {
			return err
		}
		told, err := brief(ctx, in, c)
		if err != nil {
			return err
		}
		if err := s.judgeRows(ctx, run, &k, told, bench, &purse); err != nil {
			return err
		}
		return s.align(ctx, run, &k)
	}
}

// current refuses to measure a judge that is told something else meanwhile.
func (k *keptCalibration) current(c *kept) error {
	if k.Version != c.Version {
		return fault.Conflict("the criterion has changed while it was calibrated: version %d is now %d", k.Version, c.Version)
	}
	return nil
}

// stillCurrent is current, of the criterion as it is now.
func (k *keptCalibration) stillCurrent(ctx context.Context, in db.Scoped) error {
	c, err := find(ctx, in, k.CriterionID)
	if err != nil {
		return err
	}
	return k.current(c)
}

// enrolAtOnce is how many labels get their rows in one transaction.
const enrolAtOnce = 256

// enrol gives every label that stands, and in one half, a row.
func (s *Store) enrol(ctx context.Context, run *job.Run, k *keptCalibration, c *kept) error {
	type row struct {
		ID, RequestID string
		Item          []byte
		InReportHalf  bool
		Straddles     bool
		Standing      judge.Verdict
		Kind          label.Kind
	}
	shots, err := parseShots(c.Shots)
	if err != nil {
		return fmt.Errorf("read the shots of %s: %w", c.ID, err)
	}
	shown := shotLabels(shots)
	for more := k.Enrolled < k.Last; more; {
		err := run.Tx(ctx, func(tx *db.Tx, tally *job.Tally) error {
			in := tx.In(run.Workspace)
			from, err := db.One[string](ctx, in, `SELECT enrolled FROM calibrations WHERE workspace_id = $1 AND id = $2`, k.ID)
			if err != nil {
				return err
			}
			labels, err := db.Query[row](ctx, in, `
				SELECT id, request_id, item, in_report_half, straddles, CASE WHEN kind = '' THEN verdict ELSE adjudicated END AS standing, kind
				FROM labels WHERE workspace_id = $1 AND criterion_id = $2 AND id > $3 AND id <= $4 ORDER BY id LIMIT $5`, k.CriterionID, from, k.Last, enrolAtOnce)
			if err != nil {
				return err
			}
			rows := make([][]any, 0, len(labels))
			to := k.Last
			for _, l := range labels {
				if l.Standing != "" && !l.Straddles {
					rows = append(rows, []any{
						run.Workspace, k.ID, l.ID, l.RequestID, l.Item, l.InReportHalf, slices.Contains(shown, l.ID), string(l.Standing), string(l.Standing),
						string(l.Kind), draw(k.ID, l.ID), true, "", 0.0, "", "",
					})
				}
			}
			if more = len(labels) == enrolAtOnce; more {
				to = labels[len(labels)-1].ID
			}
			if err := db.Insert(ctx, tx.Across("the rows name their workspace"), "calibration_rows", []string{
				"workspace_id", "calibration_id", "label_id", "request_id", "item", "in_report_half", "shown", "human", "standing",
				"ruling", "draw", "pending", "judge", "grade", "critique", "failure",
			}, rows); err != nil {
				return err
			}
			_, err = db.Exec(ctx, in, `UPDATE calibrations SET enrolled = $3 WHERE workspace_id = $1 AND id = $2`, k.ID, to)
			if !more && err == nil {
				tally.Total, err = db.One[int64](ctx, in, `SELECT COUNT(*) FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2`, k.ID)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("enrol labels: %w", err)
		}
	}
	return nil
}

// draw is a row's place in the blind sample of a calibration.
func draw(calibrationID, labelID string) int64 {
	sum := sha256.Sum256([]byte("blind sample\n" + calibrationID + "\n" + labelID))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 1)
}

// pendingAtOnce is how many rows are taken up together, and written together when they are judged.
const pendingAtOnce = 64

// hopeless is how many rows in a row a judge may leave unanswered before it is given up: it is not the rows, then.
const hopeless = 24

// judgeRows judges the rows that are pending.
func (s *Store) judgeRows(ctx context.Context, run *job.Run, k *keptCalibration, told *judge.Brief, bench *Bench, purse *purse) error {
	type row struct {
		LabelID string
		Item    []byte
	}
	lost := 0
	for {
		rows, err := db.Query[row](ctx, s.db.In(run.Workspace), `
			SELECT label_id, item FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2 AND pending ORDER BY label_id LIMIT $3`, k.ID, pendingAtOnce)
		if err != nil || len(rows) == 0 {
			return err
		}
		var mu sync.Mutex
		found := make(map[string]finding, len(rows))
		asking := each(ctx, bench.atOnce.Load(), rows, func(ctx context.Context, r row) error {
			if err := purse.open(); err != nil {
				return err
			}
			subject, err := label.Item(ctx, s.db.In(run.Workspace), r.Item)
			f := finding{Failure: "gone: the label was deleted"}
			if err == nil {
				f, err = bench.ask(ctx, run.Workspace, &question{criterionID: k.CriterionID, origin: k.ID, model: k.JudgeModel, brief: told, subject: &subject, fresh: k.Fresh})
			}
			if err != nil && !label.Gone(err) {
				return err
			}
			purse.spent.Add(int64(f.Cost))
			mu.Lock()
			defer mu.Unlock()
			found[r.LabelID] = f
			return nil
		})
		if lost = stillLost(lost, found); asking == nil && lost >= hopeless {
			return k.silent()
		}
		saving := context.WithoutCancel(ctx) // what was answered is kept, whatever ends
		if err := run.Save(saving, func(tx *db.Tx, tally *job.Tally) error { return record(saving, tx, run.Workspace, k.ID, found, tally) }); err != nil {
			return err
		}
		if err := k.stillCurrent(ctx, s.db.In(run.Workspace)); err != nil {
			return err
		}
		if asking != nil {
			return asking
		}
	}
}

// silent refuses to measure a judge that said nothing at all.
func (k *keptCalibration) silent() error {
	return fault.Precondition.New("the judge model %s gives no answers: the calibration can be started again when it does", k.JudgeModel)
}

// record writes down what judges said of some rows.
func record(ctx context.Context, tx *db.Tx, ws tenant.ID, calibrationID string, found map[string]finding, tally *job.Tally) error {
	for labelID, f := range found {
		n, err := db.Exec(ctx, tx.In(ws), `
			UPDATE calibration_rows SET pending = FALSE, judge = $4, grade = $5, critique = $6, failure = $7
			WHERE workspace_id = $1 AND calibration_id = $2 AND label_id = $3 AND pending`,
			calibrationID, labelID, f.Verdict, f.Grade, storable(f.Critique), storable(f.Failure))
		if err != nil {
			return fmt.Errorf("keep what the judge said of %s: %w", labelID, err)
		}
		tally.Done += n
		tally.Cost += f.Cost
	}
	return nil
}

// storable is a text that both engines can keep.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, string(utf8.RuneError)), "\x00", string(utf8.RuneError))
}

// align holds the answers against what stands now, and signs what comes of it.
func (s *Store) align(ctx context.Context, run *job.Run, k *keptCalibration) error {
	return run.Finish(ctx, func(tx *db.Tx, _ *job.Tally) error {
		in := tx.In(run.Workspace)
		c, err := find(ctx, in, k.CriterionID)
		if err != nil {
			return err
		}
		if err := k.current(c); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, in, `UPDATE calibration_rows SET human = standing WHERE workspace_id = $1 AND calibration_id = $2 AND changed`, k.ID); err != nil {
			return fmt.Errorf("align the rows of %s: %w", k.ID, err)
		}
		answered, err := db.One[int64](ctx, in, `SELECT COUNT(*) FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2 AND failure NOT LIKE $3`, k.ID, unreachable+"%")
		if err != nil {
			return fmt.Errorf("count the answers of %s: %w", k.ID, err)
		}
		if answered == 0 {
			return k.silent()
		}
		halves, err := count(ctx, in, k.ID)
		if err != nil {
			return err
		}
		text, err := json.Marshal(halves)
		if err != nil {
			return fmt.Errorf("write counts: %w", err)
		}
		last, err := db.One[clock.Time](ctx, in, `SELECT COALESCE(MAX(aligned_at), 0) FROM calibrations WHERE workspace_id = $1 AND criterion_id = $2`, k.CriterionID)
		if err != nil {
			return fmt.Errorf("find the last calibration: %w", err)
		}
		now := max(clock.Now(), last+1) // what is measured later is later, wherever the clock stands
		if _, err := db.Exec(ctx, in, `UPDATE calibrations SET counts = $3, aligned_at = $4 WHERE workspace_id = $1 AND id = $2`, k.ID, string(text), now); err != nil {
			return fmt.Errorf("keep the counts of %s: %w", k.ID, err)
		}
		return s.certify(tx.Bind(ctx), tx, run.Workspace, c, k, &halves, now)
	})
}

// count counts the rows of a calibration, but for what the judge was shown.
func count(ctx context.Context, in db.Scoped, calibrationID string) (trust.Halves, error) {
	type cell struct {
		InReportHalf bool
		Human, Judge judge.Verdict
		N            int64
	}
	cells, err := db.Query[cell](ctx, in, `
		SELECT in_report_half, human, judge, COUNT(*) AS n FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2 AND NOT shown GROUP BY in_report_half, human, judge`,
		calibrationID)
	if err != nil {
		return trust.Halves{}, fmt.Errorf("count the rows of %s: %w", calibrationID, err)
	}
	var h trust.Halves
	for _, c := range cells {
		h.Half(c.InReportHalf).Add(c.Human, c.Judge, c.N)
	}
	return h, nil
}
