package criterion

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A Store keeps criteria with their calibrations and certificates. Every change is audited in its own transaction.
type Store struct {
	db     *db.DB
	signer Signer
}

// NewStore keeps criteria in d, and signs certificates with s.
func NewStore(d *db.DB, s Signer) *Store { return &Store{db: d, signer: s} }

const object = "criterion"

// kept is a criterion as the table has it, with its last certificate.
type kept struct {
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

const columns = `c.id, c.name, c.rubric, c.judge_model, c.scale, c.pass_threshold, c.few_shot, c.shots, c.filters, c.version, c.monitoring, c.created_at,
	c.updated_at, COALESCE(f.id, '') AS certificate_id, COALESCE(f.trust, '') AS certified_trust, COALESCE(f.voided_at, 0) AS voided_at
	FROM criteria c LEFT JOIN certificates f ON f.workspace_id = c.workspace_id AND f.id = (
		SELECT id FROM certificates WHERE certificates.workspace_id = c.workspace_id AND certificates.criterion_id = c.id
		ORDER BY issued_at DESC, id DESC LIMIT 1)
	WHERE c.workspace_id = $1`

func (k *kept) criterion() (Criterion, error) {
	c := Criterion{
		ID: k.ID, Object: object, Name: k.Name, Rubric: k.Rubric, JudgeModel: k.JudgeModel, Scale: k.Scale, PassThreshold: k.PassThreshold,
		FewShot: k.FewShot, Version: k.Version, Trust: trust.None, CreatedAt: k.CreatedAt, UpdatedAt: k.UpdatedAt,
	}
	shots, err := parseShots(k.Shots)
	if err != nil {
		return c, fmt.Errorf("read the shots of %s: %w", k.ID, err)
	}
	c.Shots = shotLabels(shots)
	if err := json.Unmarshal([]byte(k.Filters), &c.Filters); err != nil {
		return c, fmt.Errorf("read the filters of %s: %w", k.ID, err)
	}
	if k.Monitoring != "" {
		c.Monitoring = new(Watch)
		if err := json.Unmarshal([]byte(k.Monitoring), c.Monitoring); err != nil {
			return c, fmt.Errorf("read the monitoring of %s: %w", k.ID, err)
		}
	}
	if k.CertificateID != "" {
		c.CertificateID = &k.CertificateID
		if k.VoidedAt == 0 {
			c.Trust = trust.Tier(k.CertifiedTrust)
		}
	}
	return c, nil
}

func find(ctx context.Context, in db.Scoped, name string) (*kept, error) {
	k, err := db.Maybe[kept](ctx, in, `SELECT `+columns+` AND c.id = $2`, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find criterion: %w", err)
	case k == nil:
		return nil, fault.NotFound(object, name)
	}
	return k, nil
}

// show is k with the labels that it has.
func show(ctx context.Context, in db.Scoped, k *kept) (Criterion, error) {
	c, err := k.criterion()
	if err != nil {
		return c, err
	}
	c.Labels, err = label.Count(ctx, in, k.ID)
	return c, err
}

// Get is the criterion of that id.
func (s *Store) Get(ctx context.Context, ws tenant.ID, name string) (Criterion, error) {
	k, err := find(ctx, s.db.In(ws), name)
	if err != nil {
		return Criterion{}, err
	}
	return show(ctx, s.db.In(ws), k)
}

// List reads a workspace's criteria, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Criterion, error) {
	rows, err := db.Query[kept](ctx, s.db.In(ws), `SELECT `+columns+` ORDER BY c.created_at DESC, c.id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list criteria: %w", err)
	}
	all := make([]Criterion, len(rows))
	for i := range rows {
		if all[i], err = show(ctx, s.db.In(ws), &rows[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Create makes a judge. It is trusted with nothing until it is calibrated.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, d *Definition, models Models) (Criterion, error) {
	c := Criterion{Object: object, Scale: judge.Binary, PassThreshold: 0.5, Trust: trust.None, Version: 1}
	d.apply(&c)
	if err := c.fits(ws, models); err != nil {
		return Criterion{}, err
	}
	filters, err := json.Marshal(c.Filters)
	if err != nil {
		return Criterion{}, fmt.Errorf("write filters: %w", err)
	}
	c.ID, c.Shots, c.CreatedAt = id.New("crit"), []string{}, clock.Now()
	c.UpdatedAt = c.CreatedAt
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO criteria (workspace_id, id, name, rubric, judge_model, scale, pass_threshold, few_shot, shots, filters, version, monitoring, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '[]', $9, 1, '', $10, $10)`,
			c.ID, c.Name, c.Rubric, c.JudgeModel, c.Scale, c.PassThreshold, c.FewShot, string(filters), c.CreatedAt); err != nil {
			return fmt.Errorf("keep criterion: %w", err)
		}
		return audit.Record(ctx, tx, ws, by, "criterion.create", c.ID, nil, c)
	})
	return c, err
}

// fits reports the first rule that c breaks.
func (c *Criterion) fits(ws tenant.ID, models Models) error {
	if err := c.check(); err != nil {
		return err
	}
	return models.Chats(ws, "judge_model", c.JudgeModel)
}

// Update changes a judge. What changes what it is told is a new version, and voids its certificate.
func (s *Store) Update(ctx context.Context, ws tenant.ID, by tenant.Actor, name string, d *Definition, models Models) (Criterion, error) {
	var after Criterion
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		k, err := find(ctx, in, name)
		if err != nil {
			return err
		}
		before, err := k.criterion()
		if err != nil {
			return err
		}
		next := before
		d.apply(&next)
		if d.JudgeModel != nil {
			err = next.fits(ws, models)
		} else {
			err = next.check() // the model may have left the catalog since
		}
		if err != nil {
			return err
		}
		filters, err := json.Marshal(next.Filters)
		if err != nil {
			return fmt.Errorf("write filters: %w", err)
		}
		was := *k
		k.Name, k.Rubric, k.JudgeModel, k.Scale, k.PassThreshold, k.FewShot = next.Name, next.Rubric, next.JudgeModel, next.Scale, next.PassThreshold, next.FewShot
		k.Filters = string(filters)
		if !k.FewShot {
			k.Shots = "[]"
		}
		if *k == was { // it is said again
			after, err = show(ctx, in, k)
			return err
		}
		if err := s.put(ctx, tx, ws, &was, k); err != nil {
			return err
		}
		if k, err = find(ctx, in, name); err != nil {
			return err
		}
		if after, err = show(ctx, in, k); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "criterion.update", name, before, after)
	})
	return after, err
}

// put writes what has become of a criterion. When the judge is told something else it is a new version.
func (s *Store) put(ctx context.Context, tx *db.Tx, ws tenant.ID, was, k *kept) error {
	if reason := k.told().unlike(was.told()); reason != "" {
		k.Version = was.Version + 1
		if err := void(ctx, tx.In(ws), k.ID, fmt.Sprintf("%s changed: version %d is now %d", reason, was.Version, k.Version)); err != nil {
			return err
		}
	}
	k.UpdatedAt = clock.Now()
	_, err := db.Exec(ctx, tx.In(ws), `
		UPDATE criteria SET name = $3, rubric = $4, judge_model = $5, scale = $6, pass_threshold = $7, few_shot = $8, shots = $9, filters = $10, version = $11,
			updated_at = $12 WHERE workspace_id = $1 AND id = $2`,
		k.ID, k.Name, k.Rubric, k.JudgeModel, k.Scale, k.PassThreshold, k.FewShot, k.Shots, k.Filters, k.Version, k.UpdatedAt)
	if err != nil {
		return fmt.Errorf("change criterion %s: %w", k.ID, err)
	}
	return nil
}

// Delete ends a judge: its calibrations, scans and what it answered. Its certificates are void, and stay to be read; so do the labels that
// it was measured by.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, name string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		k, err := find(ctx, in, name)
		if err != nil {
			return err
		}
		before, err := k.criterion()
		if err != nil {
			return err
		}
		if busy, err := busy(ctx, in, name); err != nil {
			return err
		} else if busy != "" {
			return fault.Conflict("%s runs for this criterion: cancel it, or wait for its end", busy)
		}
		if err := voidBy(ctx, in, name, "deletion", "the criterion was deleted"); err != nil {
			return err
		}
		for _, text := range []string{
			`DELETE FROM monitors WHERE workspace_id = $1 AND criterion_id = $2`,
			`DELETE FROM criteria WHERE workspace_id = $1 AND id = $2`,
		} {
			if _, err := db.Exec(ctx, in, text, name); err != nil {
				return fmt.Errorf("delete criterion %s: %w", name, err)
			}
		}
		if _, err := db.Exec(ctx, in, `INSERT INTO criteria_deleted (workspace_id, id, since) VALUES ($1, $2, $3)`, name, clock.Now()); err != nil {
			return fmt.Errorf("delete criterion %s: %w", name, err)
		}
		return audit.Record(ctx, tx, ws, by, "criterion.delete", name, before, nil)
	})
	return err // what is left of it, the sweep takes away
}

// busy is the calibration or inquiry of a criterion that is not finished, "" for none.
func busy(ctx context.Context, in db.Scoped, criterionID string) (string, error) {
	for _, table := range []string{"calibrations", "inquiries"} {
		found, err := db.Maybe[string](ctx, in, `
			SELECT j.id FROM `+table+` t JOIN jobs j ON j.workspace_id = t.workspace_id AND j.id = t.id
			WHERE t.workspace_id = $1 AND t.criterion_id = $2 AND j.status IN ('QUEUED', 'RUNNING') LIMIT 1`, criterionID)
		if err != nil {
			return "", fmt.Errorf("find what runs: %w", err)
		}
		if found != nil {
			return *found, nil
		}
	}
	return "", nil
}

// choose picks the labels that a judge is shown: some of either verdict, of the tuning half, the oldest that say why. The same
// labels give the same choice, so that more of them change nothing.
func choose(ctx context.Context, in db.Scoped, criterionID string) ([]shot, error) {
	all := []shot{}
	for _, v := range []judge.Verdict{judge.Pass, judge.Fail} {
		some, err := label.Examples(ctx, in, criterionID, v, eachClass)
		if err != nil {
			return nil, err
		}
		for _, one := range some {
			all = append(all, shot{LabelID: one.ID, Item: one.Item, Verdict: one.Verdict, Grade: one.Grade, Critique: one.Critique})
		}
	}
	return all, nil
}

// brief is what a judge is told, its shots as they are kept.
func brief(ctx context.Context, in db.Scoped, k *kept) (*judge.Brief, error) {
	shots, err := parseShots(k.Shots)
	if err != nil {
		return nil, fmt.Errorf("read the shots of %s: %w", k.ID, err)
	}
	b := &judge.Brief{Rubric: k.Rubric, Scale: k.Scale, Threshold: k.PassThreshold}
	for _, one := range shots {
		subject, err := label.Item(ctx, in, one.Item)
		if err != nil {
			return nil, err
		}
		b.Shots = append(b.Shots, judge.Shot{Subject: subject, Verdict: one.Verdict, Grade: one.Grade, Critique: one.Critique})
	}
	return b, nil
}

// History reads every change of a criterion, newest first. It stays when the criterion is gone.
func (s *Store) History(ctx context.Context, ws tenant.ID, name string, limit, offset int) ([]audit.Entry, error) {
	entries, err := audit.History(ctx, s.db, ws, object, name, limit, offset)
	if err != nil || len(entries) > 0 {
		return entries, err
	}
	if first, err := audit.History(ctx, s.db, ws, object, name, 1, 0); err != nil || len(first) > 0 {
		return nil, err // the page is behind the end
	}
	return nil, fault.NotFound(object, name)
}
