package grpo

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"iter"
	"log/slog"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/envtool"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/job"
)

// Config is what a store needs.
type Config struct {
	DB        *db.DB
	Feed      *feed.Feed
	Train     *train.Store
	Versions  *modelversion.Store
	Rewards   *reward.Store
	Tools     *envtool.Store
	Artifacts *artifact.Store
	Datasets  Datasets
	Release   string // of the server
	Log       *slog.Logger

	Evaluation *Evaluation // nil: candidates wait
}

// Datasets is what runs need of datasets.
type Datasets interface {
	Get(ctx context.Context, ws tenant.ID, id string) (dataset.Dataset, error)
	Lines(ctx context.Context, ws tenant.ID, d *dataset.Dataset) iter.Seq2[dataset.Line, error]
}

// A Store keeps runs.
type Store struct{ Config }

// NewStore returns a store, and says what is done with its runs.
func NewStore(c Config) *Store {
	s := &Store{c}
	c.Train.Handle(kind, train.Hooks{Look: s.look, Ended: s.ended})
	return s
}

// sessionDays is how long the reward session of a run may last: the most that there is.
const sessionDays = 30

// Create starts a run, with a reward session of its own. Both budgets are set aside, or nothing is.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, in Request) (Run, error) {
	in.defaults()
	if err := in.Check(); err != nil {
		return Run{}, err
	}
	start, err := s.Versions.Start(ctx, s.DB.In(ws), in.BaseModel)
	if err != nil {
		return Run{}, err
	}
	in.BaseModel = start.BaseModel
	if err := s.Train.CheckModel(ctx, ws, in.BaseModel, "grpo", in.GPUType); err != nil {
		return Run{}, err
	}
	if _, err := s.Datasets.Get(ctx, ws, in.DatasetID); err != nil {
		return Run{}, err
	}
	if in.Seed == nil {
		seed := randomSeed()
		in.Seed = &seed
	}
	runID := id.New("grpo")
	err = s.Feed.Change(ctx, func(tx *db.Tx) error {
		if _, err := s.tools(ctx, tx.In(ws), &in); err != nil {
			return err
		}
		session, err := s.Rewards.Create(tx.Bind(ctx), ws, by, s.session(runID, &in))
		if err != nil {
			return err
		}
		if _, err := s.Train.Create(ctx, tx, ws, by, train.New{
			ID: runID, Kind: kind, Method: "grpo", BaseModel: in.BaseModel,
			Spec:    train.Spec{Inputs: append([]train.Input{}, start.Inputs...)}, // the weights that it begins with
			GPUType: in.GPUType, GPUCount: in.GPUCount, Budget: in.Budget - in.RewardBudget, TotalSteps: in.MaxSteps,
			Status: train.Validating,
		}); err != nil {
			return err
		}
		if err := s.Versions.Refer(ctx, tx, ws, runID, start); err != nil {
			return err
		}
		if err := insert(ctx, tx.In(ws), runID, order{in, start.ParentID}, session.ID); err != nil {
			return err
		}
		if err := job.Queue(ctx, tx, ws, job.New{ID: prepareID(runID), Kind: prepareKind, Total: 1}); err != nil {
			return err
		}
		if err := train.CheckRoom(ctx, tx.In(ws)); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, kind+".create", runID, nil, in)
	})
	if err != nil {
		return Run{}, err
	}
	return s.Get(ctx, ws, runID)
}

func insert(ctx context.Context, in db.Scoped, runID string, o order, sessionID string) error {
	text, err := json.Marshal(o, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("write a GRPO run: %w", err)
	}
	if _, err := db.Exec(ctx, in, `INSERT INTO grpo_runs (workspace_id, id, request, session_id)
		VALUES ($1, $2, $3, $4)`, runID, string(text), sessionID); err != nil {
		return fmt.Errorf("insert a GRPO run: %w", err)
	}
	return nil
}

func randomSeed() int64 {
	var raw [4]byte
	_, _ = rand.Read(raw[:]) // never fails
	return int64(binary.BigEndian.Uint32(raw[:]) >> 1)
}

// session returns the reward session of a run.
func (s *Store) session(runID string, in *Request) *reward.NewSession {
	n := &reward.NewSession{
		Label: runID, Reward: reward.Rule{Mode: reward.Single, CriterionID: in.CriterionID}, Budget: in.RewardBudget,
		ExpiresIn: sessionDays * 24 * 60 * 60, Agentic: len(in.EnvironmentTools) > 0,
	}
	if in.AnchorCriterionID != "" {
		n.Anchor = &reward.NewAnchor{CriterionID: in.AnchorCriterionID}
	}
	return n
}

// tools returns the tools of a run as its model is told of them.
func (s *Store) tools(ctx context.Context, scope db.Scoped, in *Request) ([]tool, error) {
	all := []tool{}
	for _, toolID := range in.EnvironmentTools {
		t, err := s.Tools.Get(ctx, scope, toolID)
		if err != nil {
			return nil, err
		}
		all = append(all, tool{t.ID, t.Name, t.Description, t.Parameters})
	}
	return all, nil
}

// A record is a run as the tables have it.
type record struct {
	train.Run
	Request   string
	SessionID string
}

// An order is what a run was asked for, as it is stored: BaseModel is the base model of a version that was named.
type order struct {
	Request
	ParentID string `json:"parentId,omitempty"`
}

func (r *record) request() (*order, error) {
	in := new(order)
	if err := json.Unmarshal([]byte(r.Request), in); err != nil {
		return nil, fmt.Errorf("read a GRPO run: %w", err)
	}
	return in, nil
}

const columns = `r.workspace_id, r.id, r.kind, r.status, r.method, r.base_model, r.spec, r.gpu_type, r.gpu_count, r.budget,
	r.wanted, r.paused_reason, r.attempt, r.lost, r.step, r.total_steps, r.tokens, r.events, r.error_code, r.error_message,
	r.created_at, r.queued_at, r.started_at, r.finished_at, r.settled, g.request, g.session_id
	FROM training_runs r JOIN grpo_runs g ON g.workspace_id = r.workspace_id AND g.id = r.id WHERE r.workspace_id = $1`

func (s *Store) find(ctx context.Context, in db.Scoped, runID string) (*record, error) {
	r, err := db.Maybe[record](ctx, in, `SELECT `+columns+` AND r.id = $2`, runID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find a GRPO run: %w", err)
	case r == nil:
		return nil, fault.NotFound("GRPO run", runID)
	}
	return r, nil
}

// Get reads a run.
func (s *Store) Get(ctx context.Context, ws tenant.ID, runID string) (Run, error) {
	r, err := s.find(ctx, s.DB.In(ws), runID)
	if err != nil {
		return Run{}, err
	}
	return s.view(ctx, r)
}

// List reads runs, the newest first, and what waits.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) (Runs, error) {
	in := s.DB.In(ws)
	rows, err := db.Query[record](ctx, in, `SELECT `+columns+` ORDER BY r.created_at DESC, r.id DESC LIMIT $2 OFFSET $3`,
		limit+1, offset)
	if err != nil {
		return Runs{}, fmt.Errorf("list GRPO runs: %w", err)
	}
	all := Runs{Runs: []Run{}, HasMore: len(rows) > limit}
	for i := range rows[:min(len(rows), limit)] {
		one, err := s.view(ctx, &rows[i])
		if err != nil {
			return Runs{}, err
		}
		all.Runs = append(all.Runs, one)
		all.Spent += one.Spent
	}
	if all.Waiting, err = waiting(ctx, in); err != nil {
		return Runs{}, err
	}
	all.Active, err = db.One[int64](ctx, in, `SELECT COUNT(*) FROM training_runs
		WHERE workspace_id = $1 AND kind = 'grpo_run' AND finished_at = 0`)
	if err != nil {
		return Runs{}, fmt.Errorf("count GRPO runs: %w", err)
	}
	return all, nil
}

// view returns a run as the API shows it.
func (s *Store) view(ctx context.Context, r *record) (Run, error) {
	in, err := r.request()
	if err != nil {
		return Run{}, err
	}
	metered, err := s.Train.Metered(ctx, &r.Run)
	if err != nil {
		return Run{}, err
	}
	session, err := s.Rewards.Get(ctx, r.Workspace, r.SessionID)
	if err != nil {
		return Run{}, err
	}
	told, err := s.Train.LastMetrics(ctx, s.DB.In(r.Workspace), r.ID)
	if err != nil {
		return Run{}, err
	}
	v := Run{
		ID: r.ID, Object: "grpo.run", Status: r.Status, BaseModel: r.BaseModel, ParentID: maybe(in.ParentID),
		DatasetID: in.DatasetID, CriterionID: in.CriterionID, AnchorID: maybe(in.AnchorCriterionID),
		Tools: append([]string{}, in.EnvironmentTools...), GroupSize: in.GroupSize, KLBeta: *in.KLBeta, Seed: *in.Seed,
		Step: r.Step, MaxSteps: in.MaxSteps, RewardMean: metric(told, "reward"), RewardStd: metric(told, "reward_std"),
		KL: metric(told, "kl"), RewardSessionID: r.SessionID, Held: session.Anchor.Held,
		HeldReason: session.Anchor.HeldReason, TrainedTokens: r.Tokens, GPUType: maybe(metered.GPUType),
		GPUCount: r.GPUCount, GPUSeconds: metered.Seconds, Budget: in.Budget, Spent: metered.Spent + session.Spent,
		RewardSpent: session.Spent, Accrued: metered.Accrued, Attempt: r.Attempt, PausedReason: maybe(r.PausedReason),
		CreatedAt: r.CreatedAt, StartedAt: maybeTime(r.StartedAt), FinishedAt: maybeTime(r.FinishedAt),
		Progress: r.Progress(),
	}
	if r.Status == train.Failed {
		v.Error = &RunError{r.ErrorCode, r.ErrorMessage}
	}
	found, err := s.candidates(ctx, s.DB.In(r.Workspace), ` AND run_id = $2 ORDER BY step DESC LIMIT 1`, r.ID)
	if len(found) > 0 {
		v.Candidate = &found[0]
	}
	return v, err
}

func metric(of map[string]float64, name string) *float64 {
	if value, ok := of[name]; ok {
		return &value
	}
	return nil
}

func maybe(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func maybeTime(t clock.Time) *clock.Time {
	if t == 0 {
		return nil
	}
	return &t
}

// candidateRow is a candidate as the table has it.
type candidateRow struct {
	ID, RunID      string
	Step           int64
	ModelVersionID string
	EvalID, Gate   string
	GateReason     string
	CreatedAt      clock.Time
}

func (s *Store) candidates(ctx context.Context, in db.Scoped, where string, args ...any) ([]Candidate, error) {
	rows, err := db.Query[candidateRow](ctx, in, `SELECT id, run_id, step, model_version_id, eval_id, gate, gate_reason, created_at
		FROM grpo_candidates WHERE workspace_id = $1`+where, args...)
	if err != nil {
		return nil, fmt.Errorf("list candidates: %w", err)
	}
	all := make([]Candidate, len(rows))
	for i, r := range rows {
		all[i] = Candidate{
			r.ID, r.RunID, r.Step, r.ModelVersionID, maybe(r.EvalID), maybe(r.Gate), maybe(r.GateReason), r.CreatedAt,
		}
	}
	return all, nil
}
