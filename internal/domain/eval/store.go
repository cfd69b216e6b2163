package eval

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/trust"
	"sovereign/internal/live"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
	"sovereign/internal/store/quota"
)

// A Config says what a Store needs.
type Config struct {
	DB        *db.DB
	Judges    *judging.Client
	Models    criterion.Models
	Endpoints *Endpoints // nil: there are none
	Logs      *logbook.Store
	Open      func(context.Context, tenant.ID) error // refuses a workspace whose logs may not be read now
	Datasets  *dataset.Store
	Labels    *label.Store
}

// Endpoints are customers' own servers, which evals call as endpoint/<id>. Their answers cost nothing.
type Endpoints struct {
	// Check refuses an endpoint that does not exist, with a 404.
	Check func(ctx context.Context, in db.Scoped, id string) error
	// Complete has an endpoint answer a chat completion. A 404 says that the endpoint was deleted.
	Complete func(ctx context.Context, ws tenant.ID, id string, body []byte) ([]byte, time.Duration, error)
}

// check is Check, also where there are no endpoints.
func (e *Endpoints) check(ctx context.Context, in db.Scoped, id string) error {
	if e == nil {
		return fault.NotFound("endpoint", id)
	}
	return e.Check(ctx, in, id)
}

// A Store keeps evals. Every change is audited in its own transaction.
type Store struct {
	Config
	recent recent
}

// NewStore returns a store.
func NewStore(c Config) *Store { return &Store{Config: c} }

const columns = `e.id, e.name, e.source, e.request, e.criterion_id, e.version, e.certificate_id, e.cases, e.left_out,
	e.result, e.created_by, ` + job.Columns + `
	FROM evals e JOIN jobs ON jobs.workspace_id = e.workspace_id AND jobs.id = e.id WHERE e.workspace_id = $1`

func find(ctx context.Context, in db.Scoped, name string) (*record, error) {
	r, err := db.Maybe[record](ctx, in, `SELECT `+columns+` AND e.id = $2`, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find eval: %w", err)
	case r == nil:
		return nil, fault.NotFound(object, name)
	}
	return r, r.decode()
}

// Get reads an eval. The figures of one that is not done are those of the cases that are, and may be behind by a
// hundredth of them.
func (s *Store) Get(ctx context.Context, ws tenant.ID, name string) (e Eval, err error) {
	in := s.DB.In(ws)
	r, err := find(ctx, in, name)
	if err != nil {
		return Eval{}, err
	}
	certificate, tier, err := r.certificate(ctx, in)
	if err != nil {
		return Eval{}, err
	}
	if e, err = r.eval(tier); err != nil || r.Result != "" {
		return e, err
	}
	var known bool
	if e.Figures, known = s.recent.find(r, certificate); known {
		return e, nil
	}
	if e.Figures, err = r.figures(ctx, in, certificate); err == nil {
		s.recent.keep(r, certificate, e.Figures)
	}
	return e, err
}

// certificate reads the judge's certificate, nil where none is valid for the version that the eval runs, and its tier.
func (r *record) certificate(ctx context.Context, in db.Scoped) (*calibration.Certificate, trust.Tier, error) {
	if r.CriterionID == "" {
		return nil, trust.None, nil
	}
	c, err := calibration.LastCertificate(ctx, in, r.CriterionID)
	if err != nil || c == nil || c.Voided || c.Version != r.Version {
		return nil, trust.None, err
	}
	return c, c.Trust, nil
}

// List reads a workspace's evals, the newest first. Those that are not done have no figures.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Eval, error) {
	in := s.DB.In(ws)
	rows, err := db.Query[record](ctx, in, `
		SELECT `+columns+` ORDER BY e.created_at DESC, e.id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list evals: %w", err)
	}
	type judged struct {
		criterionID string
		version     int64
	}
	all, tiers := make([]Eval, len(rows)), map[judged]trust.Tier{}
	for i := range rows {
		r := &rows[i]
		if err := r.decode(); err != nil {
			return nil, err
		}
		by := judged{r.CriterionID, r.Version}
		if _, known := tiers[by]; !known {
			if _, tiers[by], err = r.certificate(ctx, in); err != nil {
				return nil, err
			}
		}
		if all[i], err = r.eval(tiers[by]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// prepare checks what was asked for, and fills in the defaults.
func (s *Store) prepare(ctx context.Context, ws tenant.ID, n *NewEval) (*criterion.Record, error) {
	n.clean()
	if err := n.check(); err != nil {
		return nil, err
	}
	if n.Seed == nil {
		seed := int64(clock.Now())
		n.Seed = &seed
	}
	if n.source() == fromLogs {
		n.SampleCount = cmp.Or(n.SampleCount, defaultSample)
	}
	for i, model := range n.models() {
		field := "baseline_model"
		if i > 0 {
			field = fmt.Sprintf("candidate_models[%d]", i-1)
		}
		if err := s.checkModel(ctx, s.DB.In(ws), ws, field, model); err != nil {
			return nil, err
		}
	}
	if n.pairwise() {
		return nil, s.Models.Chats(ws, "judge_model", n.JudgeModel)
	}
	c, err := criterion.Find(ctx, s.DB.In(ws), n.CriterionID)
	if err != nil {
		return nil, err
	}
	n.JudgeModel = c.JudgeModel
	if n.source() == fromLogs && n.SampleFilters == nil {
		decoded, err := c.Criterion()
		if err != nil {
			return nil, err
		}
		n.SampleFilters = &decoded.Filters
	}
	return c, s.Models.Chats(ws, "judge_model", c.JudgeModel)
}

// checkModel refuses a model that cannot be evaluated. Models of the catalog, the workspace's trained models and
// endpoints can, and no alias.
func (s *Store) checkModel(ctx context.Context, in db.Scoped, ws tenant.ID, field, model string) error {
	if endpoint, ok := strings.CutPrefix(model, live.EndpointPrefix); ok {
		return s.Endpoints.check(ctx, in, endpoint)
	}
	return s.Models.Chats(ws, field, model)
}

// withSource calls fn with what the cases are drawn from.
func (s *Store) withSource(ctx context.Context, ws tenant.ID, n *NewEval, fn func(source) error) error {
	switch n.source() {
	case inline:
		cases, err := newInlineSource(n.Cases)
		if err != nil {
			return err
		}
		return fn(cases)
	case fromDataset:
		set, err := s.Datasets.Get(ctx, ws, n.DatasetID)
		if err != nil {
			return err
		}
		return fn(datasetSource{s.Datasets, ws, &set})
	}
	if err := s.Open(ctx, ws); err != nil {
		return err
	}
	filters := logbook.Filters{}
	if n.SampleFilters != nil {
		filters = *n.SampleFilters.Filters()
	}
	return s.Logs.Scan(ctx, ws, &filters, logbook.MaxPool, func(scan *logbook.Scan) error {
		return fn(logSource{scan})
	})
}

// seed returns what the cases of an eval are drawn with. Each workspace has a secret, from its first eval on.
func (s *Store) seed(ctx context.Context, ws tenant.ID, n *NewEval) (seed, error) {
	const read = `SELECT secret FROM eval_secrets WHERE workspace_id = $1`
	secret, err := db.Maybe[[]byte](ctx, s.DB.In(ws), read)
	if err == nil && secret == nil {
		_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
			fresh := make([]byte, sha256.Size)
			_, _ = rand.Read(fresh) // never fails
			if _, err := db.Exec(ctx, tx.In(ws), `
				INSERT INTO eval_secrets (workspace_id, secret) VALUES ($1, $2) ON CONFLICT DO NOTHING`, fresh); err != nil {
				return err
			}
			secret, err = db.Maybe[[]byte](ctx, tx.In(ws), read)
			return err
		})
	}
	if err != nil {
		return seed{}, fmt.Errorf("read the secret of samples: %w", err)
	}
	return newSeed(*secret, *n.Seed), nil
}

// Create makes an eval with its cases, and queues the job that runs it.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, n NewEval) (made Eval, err error) {
	c, err := s.prepare(ctx, ws, &n)
	if err != nil {
		return Eval{}, err
	}
	with, err := s.seed(ctx, ws, &n)
	if err != nil {
		return Eval{}, err
	}
	err = s.withSource(ctx, ws, &n, func(from source) error {
		drawn, err := draw(ctx, &n, from, with)
		if err != nil {
			return err
		}
		_, cost, err := s.estimate(ctx, ws, &n, c, drawn)
		if err != nil {
			return err
		}
		if err := n.Allows(cost); err != nil {
			return err
		}
		_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
			made, err = s.insert(ctx, tx, ws, by, &n, drawn, cost)
			return err
		})
		return err
	})
	return made, err
}

// insert writes an eval, its cases and its job.
func (s *Store) insert(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, n *NewEval, drawn *sample,
	estimate money.Nano,
) (Eval, error) {
	in := tx.In(ws)
	r := &record{
		ID: id.New("eval"), Name: n.Name, Source: n.source(), CriterionID: n.CriterionID, CreatedBy: by.User, asked: *n,
	}
	if err := s.fix(ctx, in, ws, r); err != nil {
		return Eval{}, err
	}
	asked := *n
	asked.Cases = nil
	request, err := encode(asked)
	if err != nil {
		return Eval{}, err
	}
	now := clock.Now()
	if _, err := db.Exec(ctx, in, `
		INSERT INTO evals (workspace_id, id, name, source, request, criterion_id, version, certificate_id, cases,
			left_out, result, created_by, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '', $11, $12)`,
		r.ID, r.Name, r.Source, request, r.CriterionID, r.Version, r.CertificateID, len(drawn.which), drawn.leftOut,
		r.CreatedBy, now); err != nil {
		return Eval{}, fmt.Errorf("create an eval: %w", err)
	}
	if err := insertPairs(ctx, tx, ws, r.ID, n, now); err != nil {
		return Eval{}, err
	}
	if err := insertCases(ctx, tx, ws, r.ID, drawn); err != nil {
		return Eval{}, err
	}
	if err := quota.Check(ctx, in, quota.Evals, 1); err != nil {
		return Eval{}, err
	}
	if err := quota.Check(ctx, in, quota.EvalCases, len(drawn.which)); err != nil {
		return Eval{}, err
	}
	if err := job.Queue(ctx, tx, ws, job.New{
		ID: r.ID, Kind: object, Total: int64(len(drawn.which)), Estimate: estimate,
	}); err != nil {
		return Eval{}, err
	}
	if err := audit.Record(ctx, tx, ws, by, "eval.create", r.ID, nil, jsontext.Value(request)); err != nil {
		return Eval{}, err
	}
	if r, err = find(ctx, in, r.ID); err != nil {
		return Eval{}, err
	}
	_, tier, err := r.certificate(ctx, in)
	if err != nil {
		return Eval{}, err
	}
	return r.eval(tier)
}

// fix fixes the version and the certificate of the judge, and checks that the endpoints are there: they may have been
// deleted since they were checked.
func (s *Store) fix(ctx context.Context, in db.Scoped, ws tenant.ID, r *record) error {
	for _, model := range r.asked.models() {
		if strings.HasPrefix(model, live.EndpointPrefix) {
			if err := s.checkModel(ctx, in, ws, "", model); err != nil {
				return err
			}
		}
	}
	if r.CriterionID == "" {
		return nil
	}
	c, err := criterion.Find(ctx, in, r.CriterionID)
	if err != nil {
		return err
	}
	r.Version, r.CertificateID = c.Version, c.CertificateID
	return nil
}

func insertPairs(ctx context.Context, tx *db.Tx, ws tenant.ID, evalID string, n *NewEval, now clock.Time) error {
	rows := make([][]any, len(n.CandidateModels))
	for i, candidate := range n.CandidateModels {
		rows[i] = []any{ws, evalID, i + 1, n.BaselineModel, candidate, "", now}
	}
	return db.Insert(ctx, tx.Across("the rows name their workspace"), "eval_pairs", []string{
		"workspace_id", "eval_id", "model", "baseline", "candidate", "failure", "created_at",
	}, rows)
}

// How much is inserted at once, and how much an eval may copy.
const (
	insertBatch = 64
	insertBytes = 4 << 20
	maxTexts    = 256 << 20
)

var caseColumns = []string{
	"workspace_id", "eval_id", "position", "case_id", "pending", "request_id", "segment", "messages", "tools", "logged",
	"logged_model", "logged_cost", "logged_latency", "baseline", "expires_at",
}

// insertCases copies the cases of an eval, a few at a time.
func insertCases(ctx context.Context, tx *db.Tx, ws tenant.ID, evalID string, drawn *sample) error {
	var rows [][]any
	size, total := 0, 0
	flush := func() error {
		err := db.Insert(ctx, tx.Across("the rows name their workspace"), "eval_cases", caseColumns, rows)
		rows, size = nil, 0
		return err
	}
	for c, err := range drawn.read(ctx, len(drawn.which)) {
		if err != nil {
			return fmt.Errorf("read the cases of %s: %w", evalID, err)
		}
		rows = append(rows, []any{
			ws, evalID, c.Position, c.ID, true, c.RequestID, c.Segment, bytesOf(c.Messages), bytesOf(c.Tools),
			bytesOf(c.Logged), c.LoggedModel, c.LoggedCost, c.LoggedLatency, "", c.ExpiresAt,
		})
		size, total = size+c.size(), total+c.size()
		if total > maxTexts {
			return fault.Invalid("sample_count", "is too high: the cases are longer than 256 MiB together")
		}
		if len(rows) == insertBatch || size >= insertBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// bytesOf returns text, or an empty one in place of nil, which is NULL in SQL.
func bytesOf(text []byte) []byte {
	if text == nil {
		return []byte{}
	}
	return text
}
