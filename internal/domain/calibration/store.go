package calibration

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// A Store keeps calibrations and certificates. Every change is audited in its own transaction.
type Store struct {
	db       *db.DB
	signer   Signer
	criteria *criterion.Store
	judges   *judging.Client
}

// NewStore returns a store on d that signs certificates with signer.
func NewStore(d *db.DB, signer Signer, criteria *criterion.Store, judges *judging.Client) *Store {
	return &Store{db: d, signer: signer, criteria: criteria, judges: judges}
}

const columns = `t.id, t.criterion_id, t.version, t.judge_model, t.threshold, t.max_cost, t.fresh, t.counts, t.ties, t.enrolled, t.last, t.created_by, t.aligned_at,
	COALESCE((SELECT MAX(f.id) FROM certificates f WHERE f.workspace_id = $1 AND f.criterion_id = t.criterion_id
		AND f.calibration_id = t.id), '') AS certificate_id,
	` + job.Columns + ` FROM calibrations t JOIN jobs ON jobs.workspace_id = t.workspace_id AND jobs.id = t.id WHERE t.workspace_id = $1`

// List reads the calibrations of a criterion, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, criterionID string, limit, offset int) ([]Calibration, error) {
	if _, err := criterion.Find(ctx, s.db.In(ws), criterionID); err != nil {
		return nil, err
	}
	rows, err := db.Query[record](ctx, s.db.In(ws), `SELECT `+columns+` AND t.criterion_id = $2 ORDER BY t.created_at DESC, t.id DESC LIMIT $3 OFFSET $4`,
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

func find(ctx context.Context, in db.Scoped, criterionID, name string) (*record, error) {
	r, err := db.Maybe[record](ctx, in, `SELECT `+columns+` AND t.criterion_id = $2 AND t.id = $3`, criterionID, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find calibration: %w", err)
	case r == nil:
		return nil, fault.NotFound("calibration", name)
	}
	return r, nil
}

// ofRun reads the calibration that a run is for.
func (s *Store) ofRun(ctx context.Context, run *job.Run) (*record, error) {
	r, err := db.One[record](ctx, s.db.In(run.Workspace), `SELECT `+columns+` AND t.id = $2`, run.ID)
	if err != nil {
		return nil, fmt.Errorf("read calibration %s: %w", run.ID, err)
	}
	return &r, nil
}

// last reads the last calibration of a criterion that is done.
func last(ctx context.Context, in db.Scoped, criterionID string) (*record, error) {
	r, err := db.Maybe[record](
		ctx, in, `SELECT `+columns+` AND t.criterion_id = $2 AND t.aligned_at > 0 ORDER BY t.aligned_at DESC LIMIT 1`,
		criterionID,
	)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the last calibration: %w", err)
	case r == nil:
		return nil, fault.Missing.New("the criterion was never calibrated: POST /v1/criteria/%s/calibrations",
			criterionID)
	}
	return r, nil
}

// Get reads a calibration.
func (s *Store) Get(ctx context.Context, ws tenant.ID, criterionID, name string) (Calibration, error) {
	r, err := find(ctx, s.db.In(ws), criterionID, name)
	if err != nil {
		return Calibration{}, err
	}
	return r.calibration()
}

// Rows reads what a judge said of each item in a calibration, in the order of the labels. Pending rows are left out. An
// empty verdict and a nil failed select all rows.
func (s *Store) Rows(ctx context.Context, ws tenant.ID, criterionID, name string, v judge.Verdict, failed *bool,
	limit, offset int,
) ([]JudgedLabel, error) {
	if _, err := find(ctx, s.db.In(ws), criterionID, name); err != nil {
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
			LabelID: r.LabelID, RequestID: judging.Optional(r.RequestID), InReportHalf: r.InReportHalf, Shown: r.Shown,
			Human:   judging.Optional(r.Human),
			Verdict: judging.Optional(r.Judge), Critique: r.Critique, Failure: judging.Optional(r.Failure),
		}
		if r.Judge != "" {
			all[i].Grade = &rows[i].Grade
		}
	}
	return all, nil
}

// Calibrated reports whether any judge of a workspace was measured.
func (s *Store) Calibrated(ctx context.Context, ws tenant.ID) (bool, error) {
	n, err := db.One[int](ctx, s.db.In(ws),
		`SELECT COUNT(*) FROM (SELECT 1 AS one FROM calibrations WHERE workspace_id = $1 AND aligned_at > 0
			LIMIT 1) any_of_them`)
	if err != nil {
		return false, fmt.Errorf("find a calibration: %w", err)
	}
	return n > 0, nil
}

// Start begins a calibration. The examples that the judge is shown are chosen anew, which may make a new version of the
// criterion.
func (s *Store) Start(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID string, o Options,
) (Calibration, error) {
	estimate, total, err := s.Estimate(ctx, ws, criterionID, o.Fresh)
	if err != nil {
		return Calibration{}, err
	}
	if err := o.Allows(estimate); err != nil {
		return Calibration{}, err
	}
	var started Calibration
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		c, err := criterion.Find(ctx, in, criterionID)
		if err != nil {
			return err
		}
		if other, err := unaligned(ctx, in, criterionID); err != nil {
			return err
		} else if other != "" {
			return fault.Conflict("%s is calibrating this criterion already", other)
		}
		if err := s.criteria.ChooseExamples(ctx, tx, ws, by, c); err != nil {
			return err
		}
		name := id.New(judging.CalibrationPrefix)
		if err := insert(ctx, in, name, by, c, o); err != nil {
			return err
		}
		if err := job.Queue(ctx, tx, ws, job.New{ID: name, Kind: Kind, Total: total, Estimate: estimate}); err != nil {
			return err
		}
		r, err := find(ctx, in, criterionID, name)
		if err != nil {
			return err
		}
		if started, err = r.calibration(); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "calibration.start", name, nil, started)
	})
	return started, err
}

// insert adds a calibration of the items that are graded for a criterion now.
func insert(ctx context.Context, in db.Scoped, name string, by tenant.Actor, c *criterion.Record, o Options) error {
	last, err := db.One[string](ctx, in,
		`SELECT COALESCE(MAX(made_by), '') FROM label_consensus WHERE workspace_id = $1 AND criterion_id = $2`, c.ID)
	if err != nil {
		return fmt.Errorf("find the last item: %w", err)
	}
	if _, err := db.Exec(ctx, in, `
		INSERT INTO calibrations (workspace_id, id, criterion_id, version, judge_model, threshold, max_cost, fresh,
			counts, enrolled, last, created_by, created_at, aligned_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', '', $9, $10, $11, 0)`,
		name, c.ID, c.Version, c.JudgeModel, c.PassThreshold, o.MaxCostUSD, o.Fresh, last, by.User,
		clock.Now()); err != nil {
		return fmt.Errorf("insert a calibration: %w", err)
	}
	return nil
}

// unaligned returns the id of a running calibration that has no result yet, or "".
func unaligned(ctx context.Context, in db.Scoped, criterionID string) (string, error) {
	found, err := db.Maybe[string](ctx, in, `
		SELECT t.id FROM calibrations t JOIN jobs ON jobs.workspace_id = t.workspace_id AND jobs.id = t.id
		WHERE t.workspace_id = $1 AND t.criterion_id = $2 AND t.aligned_at = 0 AND jobs.status IN ('QUEUED', 'RUNNING')
			LIMIT 1`, criterionID)
	if err != nil || found == nil {
		return "", err
	}
	return *found, nil
}

// running returns the id of a calibration that has not ended, or "".
func running(ctx context.Context, in db.Scoped, criterionID string) (string, error) {
	found, err := db.Maybe[string](ctx, in, `
		SELECT j.id FROM calibrations t JOIN jobs j ON j.workspace_id = t.workspace_id AND j.id = t.id
		WHERE t.workspace_id = $1 AND t.criterion_id = $2 AND j.status IN ('QUEUED', 'RUNNING') LIMIT 1`, criterionID)
	if err != nil {
		return "", fmt.Errorf("find a running calibration: %w", err)
	}
	if found == nil {
		return "", nil
	}
	return *found, nil
}

// Estimate estimates what a calibration would cost, and counts the items that it would judge.
func (s *Store) Estimate(ctx context.Context, ws tenant.ID, criterionID string, fresh bool,
) (cost money.Nano, total int64, err error) {
	in := s.db.In(ws)
	c, err := criterion.Find(ctx, in, criterionID)
	if err != nil {
		return 0, 0, err
	}
	otherExamples, err := c.PreviewExamples(ctx, in)
	if err != nil {
		return 0, 0, err
	}
	labels, err := label.Count(ctx, in, c.ID)
	if err != nil {
		return 0, 0, err
	}
	if total = labels.Pass + labels.Fail; total == 0 {
		return 0, 0, fault.Precondition.New("the criterion has no labels: POST /v1/labels with its criterion_id")
	}
	told, err := c.Instructions(ctx, in)
	if err != nil {
		return 0, 0, err
	}
	answered := c.Version
	if fresh || otherExamples {
		answered = 0 // there is no such version: no stored answer counts
	}
	subjects, unanswered, err := unansweredItems(ctx, in, c.ID, answered)
	if err != nil {
		return 0, 0, err
	}
	cost, err = s.judges.EstimateAll(ctx, ws, c.JudgeModel, told, subjects, unanswered, fresh)
	return cost, total, err
}

// unansweredItems counts the items that no calibration of a version has an answer for, and reads some of them.
func unansweredItems(ctx context.Context, in db.Scoped, criterionID string, version int64,
) (some []judge.Subject, total int64, err error) {
	const open = `FROM label_consensus l WHERE l.workspace_id = $1 AND l.criterion_id = $2 AND NOT l.straddles AND l.verdict <> '' AND NOT EXISTS (
		SELECT 1 FROM calibration_rows r JOIN calibrations t ON t.workspace_id = r.workspace_id
			AND t.id = r.calibration_id
		WHERE r.workspace_id = $1 AND r.item = l.item AND NOT r.pending AND t.criterion_id = $2 AND t.version = $3)`
	total, err = db.One[int64](ctx, in, `SELECT COUNT(*) `+open, criterionID, version)
	if err != nil {
		return nil, 0, fmt.Errorf("count what is to be asked: %w", err)
	}
	// An item is a hash, so that the first ones are a random sample.
	items, err := db.Query[[]byte](
		ctx, in, `SELECT l.item `+open+` ORDER BY l.item LIMIT $4`, criterionID, version, judging.EstimateSamples,
	)
	if err != nil {
		return nil, 0, fmt.Errorf("read items: %w", err)
	}
	for _, item := range items {
		subject, err := label.Item(ctx, in, item)
		if label.IsDeleted(err) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		some = append(some, subject)
	}
	return some, total, nil
}

// enrolBatch is how many items get their rows in one transaction.
const enrolBatch = 256

// enrol adds the rows of the next items of a calibration, and reports whether there are more. Items that have no
// verdict now, or are in both halves, get none. shown are the items that the judge is shown as examples.
func enrol(ctx context.Context, tx *db.Tx, ws tenant.ID, r *record, shown map[string]bool, tally *job.Tally,
) (more bool, err error) {
	type row struct {
		MadeBy, LabelID, RequestID string
		Item                       []byte
		InReportHalf               bool
		InBothHalves               bool
		Verdict                    judge.Verdict
		Ruling                     label.Kind
	}
	in := tx.In(ws)
	from, err := db.One[string](ctx, in, `SELECT enrolled FROM calibrations WHERE workspace_id = $1 AND id = $2`, r.ID)
	if err != nil {
		return false, err
	}
	items, err := db.Query[row](ctx, in, `
		SELECT c.made_by, c.label_id, l.request_id, c.item, c.in_report_half, c.straddles AS in_both_halves, c.verdict,
			c.ruling
		FROM label_consensus c JOIN labels l ON l.workspace_id = c.workspace_id AND l.id = c.label_id
		WHERE c.workspace_id = $1 AND c.criterion_id = $2 AND c.made_by > $3 AND c.made_by <= $4
			ORDER BY c.made_by LIMIT $5`, r.CriterionID, from, r.Last, enrolBatch)
	if err != nil {
		return false, err
	}
	rows := make([][]any, 0, len(items))
	for _, l := range items {
		if l.Verdict != "" && !l.InBothHalves {
			rows = append(rows, []any{
				ws, r.ID, l.Item, l.LabelID, l.RequestID, l.InReportHalf, shown[string(l.Item)], string(l.Verdict),
				string(l.Verdict),
				string(l.Ruling), samplePosition(r.CriterionID, l.MadeBy), true, "", 0.0, "", "",
			})
		}
	}
	to := r.Last
	if more = len(items) == enrolBatch; more {
		to = items[len(items)-1].MadeBy
	}
	if err := db.Insert(ctx, tx.Across("the rows name their workspace"), "calibration_rows", []string{
		"workspace_id", "calibration_id", "item", "label_id", "request_id", "in_report_half", "shown", "human",
		"standing",
		"ruling", "draw", "pending", "judge", "grade", "critique", "failure",
	}, rows); err != nil {
		return false, err
	}
	if _, err := db.Exec(ctx, in,
		`UPDATE calibrations SET enrolled = $3 WHERE workspace_id = $1 AND id = $2`, r.ID, to); err != nil {
		return false, err
	}
	if !more {
		tally.Total, err = db.One[int64](ctx, in,
			`SELECT COUNT(*) FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2`, r.ID)
	}
	return more, err
}

// pendingItems reads the next items that have no answer.
func (s *Store) pendingItems(ctx context.Context, ws tenant.ID, calibrationID string, limit int64) ([]string, error) {
	rows, err := db.Query[[]byte](ctx, s.db.In(ws), `
		SELECT item FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2 AND pending
			ORDER BY label_id LIMIT $3`, calibrationID, limit)
	items := make([]string, len(rows))
	for i := range rows {
		items[i] = string(rows[i])
	}
	return items, err
}

// saveAnswers writes the answers about some items.
func saveAnswers(ctx context.Context, in db.Scoped, calibrationID string, answers map[string]judging.Answer,
	tally *job.Tally,
) error {
	for item, a := range answers {
		n, err := db.Exec(ctx, in, `
			UPDATE calibration_rows SET pending = FALSE, judge = $4, grade = $5, critique = $6, failure = $7
			WHERE workspace_id = $1 AND calibration_id = $2 AND item = $3 AND pending`,
			calibrationID, []byte(item), a.Verdict, a.Grade, judging.Storable(a.Critique), judging.Storable(a.Failure))
		if err != nil {
			return fmt.Errorf("store the answer about item %x: %w", item, err)
		}
		tally.Done += n
		tally.Cost += a.Cost
	}
	return nil
}

// align compares the answers with what people say now, counts, and signs the result.
func (s *Store) align(ctx context.Context, tx *db.Tx, ws tenant.ID, r *record) error {
	in := tx.In(ws)
	c, err := criterion.Find(ctx, in, r.CriterionID)
	if err != nil {
		return err
	}
	if err := r.checkVersion(c.Version); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, in,
		`UPDATE calibration_rows SET human = standing WHERE workspace_id = $1 AND calibration_id = $2 AND changed`,
		r.ID); err != nil {
		return fmt.Errorf("align the rows of %s: %w", r.ID, err)
	}
	answered, err := db.One[int64](ctx, in, `
		SELECT COUNT(*) FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2 AND failure NOT LIKE $3`,
		r.ID, judging.Unreachable)
	if err != nil {
		return fmt.Errorf("count the answers of %s: %w", r.ID, err)
	}
	if answered == 0 {
		return r.noAnswers()
	}
	halves, err := count(ctx, in, r.ID)
	if err != nil {
		return err
	}
	text, err := json.Marshal(halves)
	if err != nil {
		return fmt.Errorf("write counts: %w", err)
	}
	last, err := db.One[clock.Time](ctx, in,
		`SELECT COALESCE(MAX(aligned_at), 0) FROM calibrations WHERE workspace_id = $1 AND criterion_id = $2`,
		r.CriterionID)
	if err != nil {
		return fmt.Errorf("find the last calibration: %w", err)
	}
	now := max(clock.Now(), last+1) // the later calibration has the later time, also when the clock was set back
	if r.Ties, err = ties(ctx, in, r); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, in,
		`UPDATE calibrations SET counts = $3, aligned_at = $4, ties = $5 WHERE workspace_id = $1 AND id = $2`,
		r.ID, string(text), now, r.Ties); err != nil {
		return fmt.Errorf("store the counts of %s: %w", r.ID, err)
	}
	return s.certify(tx.Bind(ctx), tx, ws, r, newProof(r, c.Rubric, &halves, now))
}

// ties counts the items that a calibration leaves out, because people are evenly split over them.
func ties(ctx context.Context, in db.Scoped, r *record) (int64, error) {
	n, err := db.One[int64](ctx, in, `
		SELECT COUNT(*) FROM label_consensus
		WHERE workspace_id = $1 AND criterion_id = $2 AND tied AND NOT straddles AND made_by <= $3`,
		r.CriterionID, r.Last)
	if err != nil {
		return 0, fmt.Errorf("count ties: %w", err)
	}
	return n, nil
}

// count counts the rows of a calibration. Examples that the judge was shown are not counted.
func count(ctx context.Context, in db.Scoped, calibrationID string) (trust.Halves, error) {
	type cell struct {
		InReportHalf bool
		Human, Judge judge.Verdict
		N            int64
	}
	cells, err := db.Query[cell](ctx, in, `
		SELECT in_report_half, human, judge, COUNT(*) AS n FROM calibration_rows
		WHERE workspace_id = $1 AND calibration_id = $2 AND NOT shown GROUP BY in_report_half, human, judge`,
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

// Disagreements reads, of the last calibration of a version, the rows of the tuning half where the judge disagrees with
// the label as it is now. They are in random order.
func Disagreements(ctx context.Context, in db.Scoped, criterionID string, version int64, limit int,
) ([]judge.Case, error) {
	type row struct {
		Item          []byte
		Human, Judge  judge.Verdict
		Grade         float64
		Critique      string
		HumanCritique string
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT r.item, r.standing AS human, r.judge, r.grade, r.critique,
			CASE WHEN l.kind = '' OR l.note = '' THEN l.critique ELSE l.note END AS human_critique
		FROM calibration_rows r JOIN labels l ON l.workspace_id = r.workspace_id AND l.id = r.label_id
		WHERE r.workspace_id = $1 AND NOT r.in_report_half AND NOT l.in_report_half AND r.judge <> ''
			AND r.standing <> '' AND r.judge <> r.standing
			AND r.calibration_id = (
				SELECT t.id FROM calibrations t WHERE t.workspace_id = $1 AND t.criterion_id = $2 AND t.version = $3
					AND t.aligned_at > 0 ORDER BY t.aligned_at DESC LIMIT 1)
		ORDER BY r.draw LIMIT $4`, criterionID, version, limit)
	if err != nil {
		return nil, fmt.Errorf("read the disagreements: %w", err)
	}
	cases := make([]judge.Case, 0, len(rows))
	for _, r := range rows {
		subject, err := label.Item(ctx, in, r.Item)
		if err != nil {
			return nil, err
		}
		cases = append(cases, judge.Case{
			Subject: subject, Human: r.Human, HumanCritique: r.HumanCritique,
			Judge: judge.Assessment{Grade: r.Grade, Verdict: r.Judge, Critique: r.Critique},
		})
	}
	return cases, nil
}

// discard deletes the calibrations of a criterion. Certificates stay.
func (s *Store) discard(ctx context.Context, ws tenant.ID, criterionID string) error {
	if err := judging.DeleteRows(ctx, s.db, ws, "calibration_rows", "calibration_id, item",
		"calibration_id IN (SELECT t.id FROM calibrations t WHERE t.workspace_id = $1 AND t.criterion_id = $2)",
		criterionID); err != nil {
		return err
	}
	return judging.DeleteRows(ctx, s.db, ws, "calibrations", "id", "criterion_id = $2", criterionID)
}
