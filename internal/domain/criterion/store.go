package criterion

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
)

// A Store keeps criteria. Every change is audited in its own transaction.
type Store struct {
	db         *db.DB
	dependents []Dependent
}

// NewStore returns a store on d.
func NewStore(d *db.DB) *Store { return &Store{db: d} }

// A Dependent is a package that stores data about criteria. The store calls it when a criterion changes. Every field
// may be nil.
type Dependent struct {
	// Running returns the id of work for the criterion that has not ended, or "".
	Running func(ctx context.Context, in db.Scoped, criterionID string) (string, error)
	// Changed is called in the transaction that makes a new version. The reason says what changed.
	Changed func(ctx context.Context, in db.Scoped, criterionID, reason string) error
	// Deleted is called in the transaction that deletes the criterion.
	Deleted func(ctx context.Context, in db.Scoped, criterionID string) error
	// Discard deletes the data of a criterion that was deleted before. It is called by Sweep, and may be called again.
	Discard func(ctx context.Context, ws tenant.ID, criterionID string) error
}

// Attach adds dependents. It must be called before the store is used.
func (s *Store) Attach(all ...Dependent) { s.dependents = append(s.dependents, all...) }

const object = "criterion"

// A Record is a criterion as the table has it, with its last certificate. Shots, Filters and Monitoring are JSON.
type Record struct {
	ID, Name, Rubric, JudgeModel  string
	Scale                         judge.Scale
	PassThreshold                 float64
	FewShot                       bool
	Shots, Filters                string
	Version                       int64
	Monitoring                    string
	CreatedAt, UpdatedAt          clock.Time
	CertificateID, CertifiedTrust string
	VoidedAt                      clock.Time
}

// The last certificate is joined, so that a page of criteria takes one query.
const columns = `c.id, c.name, c.rubric, c.judge_model, c.scale, c.pass_threshold, c.few_shot, c.shots, c.filters, c.version, c.monitoring, c.created_at,
	c.updated_at, COALESCE(f.id, '') AS certificate_id, COALESCE(f.trust, '') AS certified_trust, COALESCE(f.voided_at,
		0) AS voided_at` + withCertificate

const withCertificate = `
	FROM criteria c LEFT JOIN certificates f ON f.workspace_id = c.workspace_id AND f.id = (
		SELECT id FROM certificates WHERE certificates.workspace_id = c.workspace_id
			AND certificates.criterion_id = c.id
		ORDER BY issued_at DESC, id DESC LIMIT 1)
	WHERE c.workspace_id = $1`

// Criterion decodes r. The counts of labels are left out.
func (r *Record) Criterion() (Criterion, error) {
	c := Criterion{
		ID: r.ID, Object: object, Name: r.Name, Rubric: r.Rubric, JudgeModel: r.JudgeModel, Scale: r.Scale,
		PassThreshold: r.PassThreshold,
		FewShot:       r.FewShot, Version: r.Version, Trust: trust.None, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	var err error
	if c.Examples, err = r.ExampleLabels(); err != nil {
		return c, err
	}
	if err := json.Unmarshal([]byte(r.Filters), &c.Filters); err != nil {
		return c, fmt.Errorf("read the filters of %s: %w", r.ID, err)
	}
	if r.Monitoring != "" {
		c.Monitoring = new(MonitorSettings)
		if err := json.Unmarshal([]byte(r.Monitoring), c.Monitoring); err != nil {
			return c, fmt.Errorf("read the monitoring of %s: %w", r.ID, err)
		}
	}
	if r.CertificateID != "" {
		c.CertificateID = &r.CertificateID
		if r.VoidedAt == 0 {
			c.Trust = trust.Tier(r.CertifiedTrust)
		}
	}
	return c, nil
}

// ExampleLabels returns the ids of the labels that the judge is shown, sorted.
func (r *Record) ExampleLabels() ([]string, error) {
	all, err := decodeExamples(r.Shots)
	if err != nil {
		return nil, fmt.Errorf("read the examples of %s: %w", r.ID, err)
	}
	return exampleLabels(all), nil
}

// ExampleItems returns the items that the judge is shown.
func (r *Record) ExampleItems() (map[string]bool, error) {
	all, err := decodeExamples(r.Shots)
	if err != nil {
		return nil, fmt.Errorf("read the examples of %s: %w", r.ID, err)
	}
	items := make(map[string]bool, len(all))
	for _, e := range all {
		items[string(e.Item)] = true
	}
	return items, nil
}

// Instructions returns what the judge is told, with its examples.
func (r *Record) Instructions(ctx context.Context, in db.Scoped) (*judge.Instructions, error) {
	all, err := decodeExamples(r.Shots)
	if err != nil {
		return nil, fmt.Errorf("read the examples of %s: %w", r.ID, err)
	}
	told := &judge.Instructions{Rubric: r.Rubric, Scale: r.Scale, Threshold: r.PassThreshold}
	for _, e := range all {
		subject, err := label.Item(ctx, in, e.Item)
		if err != nil {
			return nil, err
		}
		told.Examples = append(told.Examples, judge.Example{
			Subject: subject, Verdict: e.Verdict, Grade: e.Grade,
			Critique: e.Critique,
		})
	}
	return told, nil
}

// Find reads a criterion.
func Find(ctx context.Context, in db.Scoped, criterionID string) (*Record, error) {
	r, err := maybe(ctx, in, criterionID)
	if err == nil && r == nil {
		err = fault.NotFound(object, criterionID)
	}
	return r, err
}

// maybe reads a criterion, or returns nil.
func maybe(ctx context.Context, in db.Scoped, criterionID string) (*Record, error) {
	r, err := db.Maybe[Record](ctx, in, `SELECT `+columns+` AND c.id = $2`, criterionID)
	if err != nil {
		return nil, fmt.Errorf("find criterion: %w", err)
	}
	return r, nil
}

// Trusted returns the id of the criterion that was certified last, of those with a valid certificate of that tier at
// least. It is empty if there is none.
func Trusted(ctx context.Context, in db.Scoped, least trust.Tier) (string, error) {
	type row struct {
		ID, Trust string
	}
	rows, err := db.Query[row](
		ctx, in, `SELECT c.id, f.trust`+withCertificate+` AND f.voided_at = 0 ORDER BY f.issued_at DESC, f.id DESC`,
	)
	if err != nil {
		return "", fmt.Errorf("find a trusted criterion: %w", err)
	}
	for _, r := range rows {
		if trust.Tier(r.Trust).AtLeast(least) {
			return r.ID, nil
		}
	}
	return "", nil
}

// WithLabels decodes r and counts its labels.
func (r *Record) WithLabels(ctx context.Context, in db.Scoped) (Criterion, error) {
	c, err := r.Criterion()
	if err != nil {
		return c, err
	}
	c.Labels, err = label.Count(ctx, in, r.ID)
	return c, err
}

// Get reads a criterion.
func (s *Store) Get(ctx context.Context, ws tenant.ID, criterionID string) (Criterion, error) {
	r, err := Find(ctx, s.db.In(ws), criterionID)
	if err != nil {
		return Criterion{}, err
	}
	return r.WithLabels(ctx, s.db.In(ws))
}

// List reads a workspace's criteria, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Criterion, error) {
	rows, err := db.Query[Record](
		ctx, s.db.In(ws), `SELECT `+columns+` ORDER BY c.created_at DESC, c.id DESC LIMIT $2 OFFSET $3`, limit, offset,
	)
	if err != nil {
		return nil, fmt.Errorf("list criteria: %w", err)
	}
	all := make([]Criterion, len(rows))
	for i := range rows {
		if all[i], err = rows[i].WithLabels(ctx, s.db.In(ws)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// A Ref names a criterion of a workspace.
type Ref struct {
	WorkspaceID tenant.ID
	ID          string
}

// ListMonitored returns the criteria of all workspaces that have monitoring settings.
func ListMonitored(ctx context.Context, d *db.DB) ([]Ref, error) {
	return db.Query[Ref](ctx, d.Across("the judges of all workspaces monitor traffic"),
		`SELECT workspace_id, id FROM criteria WHERE monitoring <> '' ORDER BY workspace_id, id`)
}

// SetMonitoring stores monitoring settings, which are no part of what the judge is told.
func SetMonitoring(ctx context.Context, in db.Scoped, criterionID string, m *MonitorSettings) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write monitoring settings: %w", err)
	}
	if _, err := db.Exec(ctx, in,
		`UPDATE criteria SET monitoring = $3 WHERE workspace_id = $1 AND id = $2`,
		criterionID, string(text)); err != nil {
		return fmt.Errorf("set the monitoring of %s: %w", criterionID, err)
	}
	return nil
}

// Create makes a criterion. Its trust is none until it is calibrated.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, d *Definition, models Models,
) (Criterion, error) {
	c := Criterion{Object: object, Scale: judge.Binary, PassThreshold: 0.5, Trust: trust.None, Version: 1}
	d.apply(&c)
	if err := c.checkWithModel(ws, models); err != nil {
		return Criterion{}, err
	}
	filters, err := json.Marshal(c.Filters)
	if err != nil {
		return Criterion{}, fmt.Errorf("write filters: %w", err)
	}
	c.ID, c.Examples, c.CreatedAt = id.New("crit"), []string{}, clock.Now()
	c.UpdatedAt = c.CreatedAt
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO criteria (workspace_id, id, name, rubric, judge_model, scale, pass_threshold, few_shot, shots,
				filters, version, monitoring, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '[]', $9, 1, '', $10, $10)`,
			c.ID, c.Name, c.Rubric, c.JudgeModel, c.Scale, c.PassThreshold, c.FewShot, string(filters),
			c.CreatedAt); err != nil {
			return fmt.Errorf("insert criterion: %w", err)
		}
		if err := quota.Check(ctx, tx.In(ws), quota.Criteria, 1); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "criterion.create", c.ID, nil, c)
	})
	return c, err
}

// Update changes a criterion. A change of what the judge is told makes a new version, and voids its certificate.
func (s *Store) Update(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID string, d *Definition,
	models Models,
) (Criterion, error) {
	var after Criterion
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		was, err := Find(ctx, in, criterionID)
		if err != nil {
			return err
		}
		before, err := was.Criterion()
		if err != nil {
			return err
		}
		r, err := was.with(ws, before, d, models)
		if err != nil {
			return err
		}
		if *r == *was { // nothing changes
			after, err = r.WithLabels(ctx, in)
			return err
		}
		if err := s.save(ctx, in, was, r); err != nil {
			return err
		}
		if r, err = Find(ctx, in, criterionID); err != nil {
			return err
		}
		if after, err = r.WithLabels(ctx, in); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "criterion.update", criterionID, before, after)
	})
	return after, err
}

// with returns r with the fields that d sets. c is r, decoded. A judge model that is not set is not checked: it may
// have left the catalog.
func (r *Record) with(ws tenant.ID, c Criterion, d *Definition, models Models) (*Record, error) {
	d.apply(&c)
	err := c.check()
	if d.JudgeModel != nil {
		err = c.checkWithModel(ws, models)
	}
	if err != nil {
		return nil, err
	}
	filters, err := json.Marshal(c.Filters)
	if err != nil {
		return nil, fmt.Errorf("write filters: %w", err)
	}
	changed := *r
	changed.Name, changed.Rubric, changed.JudgeModel, changed.Scale = c.Name, c.Rubric, c.JudgeModel, c.Scale
	changed.PassThreshold, changed.FewShot, changed.Filters = c.PassThreshold, c.FewShot, string(filters)
	if !changed.FewShot {
		changed.Shots = noExamples
	}
	return &changed, nil
}

// save writes a changed criterion. If the judge is told something else, it is a new version.
func (s *Store) save(ctx context.Context, in db.Scoped, was, r *Record) error {
	if what := difference(r, was); what != "" {
		r.Version = was.Version + 1
		reason := fmt.Sprintf("%s changed: version %d is now %d", what, was.Version, r.Version)
		for _, d := range s.dependents {
			if d.Changed == nil {
				continue
			}
			if err := d.Changed(ctx, in, r.ID, reason); err != nil {
				return err
			}
		}
	}
	r.UpdatedAt = clock.Now()
	_, err := db.Exec(ctx, in, `
		UPDATE criteria
			SET name = $3, rubric = $4, judge_model = $5, scale = $6, pass_threshold = $7, few_shot = $8, shots = $9,
			filters = $10, version = $11,
			updated_at = $12 WHERE workspace_id = $1 AND id = $2`,
		r.ID, r.Name, r.Rubric, r.JudgeModel, r.Scale, r.PassThreshold, r.FewShot, r.Shots, r.Filters, r.Version,
		r.UpdatedAt)
	if err != nil {
		return fmt.Errorf("change criterion %s: %w", r.ID, err)
	}
	return nil
}

// Delete deletes a criterion. Its certificates become void and can still be read, and its labels stay. Sweep deletes
// its other data.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		r, err := Find(ctx, in, criterionID)
		if err != nil {
			return err
		}
		before, err := r.Criterion()
		if err != nil {
			return err
		}
		if running, err := s.running(ctx, in, criterionID); err != nil {
			return err
		} else if running != "" {
			return fault.Conflict("%s runs for this criterion: cancel it, or wait for its end", running)
		}
		for _, d := range s.dependents {
			if d.Deleted == nil {
				continue
			}
			if err := d.Deleted(ctx, in, criterionID); err != nil {
				return err
			}
		}
		if _, err := db.Exec(ctx, in,
			`DELETE FROM criteria WHERE workspace_id = $1 AND id = $2`, criterionID); err != nil {
			return fmt.Errorf("delete criterion %s: %w", criterionID, err)
		}
		if _, err := db.Exec(ctx, in,
			`INSERT INTO criteria_deleted (workspace_id, id, since) VALUES ($1, $2, $3)`,
			criterionID, clock.Now()); err != nil {
			return fmt.Errorf("delete criterion %s: %w", criterionID, err)
		}
		return audit.Record(ctx, tx, ws, by, "criterion.delete", criterionID, before, nil)
	})
	return err
}

// running returns the id of work for a criterion that has not ended, or "".
func (s *Store) running(ctx context.Context, in db.Scoped, criterionID string) (string, error) {
	for _, d := range s.dependents {
		if d.Running == nil {
			continue
		}
		if id, err := d.Running(ctx, in, criterionID); err != nil || id != "" {
			return id, err
		}
	}
	return judging.RunningTask(ctx, in, criterionID)
}

// Sweep deletes the data of criteria that were deleted.
func (s *Store) Sweep(ctx context.Context) error {
	all, err := db.Query[Ref](ctx, s.db.Across("the data of deleted criteria is deleted"),
		`SELECT workspace_id, id FROM criteria_deleted ORDER BY since`)
	if err != nil {
		return fmt.Errorf("find deleted criteria: %w", err)
	}
	for _, c := range all {
		if err := s.discard(ctx, c.WorkspaceID, c.ID); err != nil {
			return fmt.Errorf("sweep criterion %s: %w", c.ID, err)
		}
	}
	return nil
}

// discard deletes the data of a criterion, in an order in which what is left can always be found. Tasks come after the
// dependents, whose rows name them, and the row that says what was deleted comes last.
func (s *Store) discard(ctx context.Context, ws tenant.ID, criterionID string) error {
	if err := judging.DeleteAnswers(ctx, s.db, ws, criterionID); err != nil {
		return err
	}
	for _, d := range s.dependents {
		if d.Discard == nil {
			continue
		}
		if err := d.Discard(ctx, ws, criterionID); err != nil {
			return err
		}
	}
	if err := judging.DeleteTasks(ctx, s.db, ws, criterionID); err != nil {
		return err
	}
	return judging.DeleteRows(ctx, s.db, ws, "criteria_deleted", "id", "id = $2", criterionID)
}

// choose picks the labels that a judge is shown: some of either verdict, of the tuning half, the oldest that say why.
// Labels that are added later do not change the choice.
func choose(ctx context.Context, in db.Scoped, criterionID string) ([]example, error) {
	all := []example{}
	for _, v := range []judge.Verdict{judge.Pass, judge.Fail} {
		some, err := label.Examples(ctx, in, criterionID, v, ExamplesPerVerdict)
		if err != nil {
			return nil, err
		}
		for _, e := range some {
			all = append(all, example{
				LabelID: e.ID, Item: e.Item, Verdict: e.Verdict, Grade: e.Grade,
				Critique: e.Critique,
			})
		}
	}
	return all, nil
}

// PreviewExamples gives r the examples that ChooseExamples would choose, and reports whether they differ from those
// that it has.
func (r *Record) PreviewExamples(ctx context.Context, in db.Scoped) (changed bool, err error) {
	if !r.FewShot {
		return false, nil
	}
	all, err := choose(ctx, in, r.ID)
	if err != nil {
		return false, err
	}
	text := encodeExamples(all)
	changed = text != r.Shots
	r.Shots = text
	return changed, nil
}

// ChooseExamples chooses anew what the judge is shown. If that changes anything, the criterion gets a new version.
func (s *Store) ChooseExamples(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, r *Record) error {
	was := *r
	changed, err := r.PreviewExamples(ctx, tx.In(ws))
	if err != nil || !changed {
		return err
	}
	if err := s.save(ctx, tx.In(ws), &was, r); err != nil {
		return err
	}
	before, err := was.ExampleLabels()
	if err != nil {
		return err
	}
	after, err := r.ExampleLabels()
	if err != nil {
		return err
	}
	return audit.Record(ctx, tx, ws, by, "criterion.examples", r.ID, auditedExamples{was.Version, before},
		auditedExamples{r.Version, after})
}

// auditedExamples are what the audit trail has about a judge's examples.
type auditedExamples struct {
	Version int64    `json:"version"`
	Labels  []string `json:"few_shot_labels"`
}

// LabelChanged chooses other examples for a judge that is shown an item of which people say something else now. The
// criterion may have been deleted.
func (s *Store) LabelChanged(ctx context.Context, tx *db.Tx, ws tenant.ID, c label.Change) error {
	r, err := maybe(ctx, tx.In(ws), c.CriterionID)
	if err != nil || r == nil {
		return err
	}
	shown, err := r.ExampleItems()
	if err != nil || !shown[string(c.Item)] {
		return err
	}
	return s.ChooseExamples(ctx, tx, ws, c.By, r)
}

// History reads every change of a criterion, newest first. It stays when the criterion is deleted.
func (s *Store) History(ctx context.Context, ws tenant.ID, criterionID string, limit, offset int,
) ([]audit.Entry, error) {
	entries, err := audit.History(ctx, s.db, ws, object, criterionID, limit, offset)
	if err != nil || len(entries) > 0 {
		return entries, err
	}
	if first, err := audit.History(ctx, s.db, ws, object, criterionID, 1, 0); err != nil || len(first) > 0 {
		return nil, err // the page is behind the end
	}
	return nil, fault.NotFound(object, criterionID)
}
