package raft

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/finetune"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/job"
)

const (
	object  = "raft_round"    // what a round is called in the audit trail and in lineages
	runKind = "raft_sampling" // what its sampling runs, their holds and usage rows are called
	method  = "sample"
)

// Config is what a store needs.
type Config struct {
	DB        *db.DB
	Feed      *feed.Feed
	Train     *train.Store
	Jobs      *finetune.Store
	Versions  *modelversion.Store
	Rewards   *reward.Store
	Artifacts *artifact.Store
	Datasets  Datasets
}

// Datasets is what rounds need of datasets.
type Datasets interface {
	Get(ctx context.Context, ws tenant.ID, id string) (dataset.Dataset, error)
	Lines(ctx context.Context, ws tenant.ID, d *dataset.Dataset) iter.Seq2[dataset.Line, error]
}

// A Store keeps rounds.
type Store struct{ Config }

// NewStore returns a store, and says what is done when its runs and fine-tuning jobs end.
func NewStore(c Config) *Store {
	s := &Store{c}
	c.Train.Handle(runKind, train.Hooks{Ended: s.sampled})
	c.Jobs.Tell(s.trained)
	return s
}

// A result is what came of a round so far.
type result struct {
	Accepted    int64            `json:"accepted"`
	Rejected    map[string]int64 `json:"rejected,omitempty"`
	Before      []*float64       `json:"before,omitempty"` // of the held-out prompts
	After       []*float64       `json:"after,omitempty"`
	Improvement *Measure         `json:"improvement,omitempty"`
}

// A record is a round as the table has it.
type record struct {
	Workspace      tenant.ID `db:"workspace_id"`
	ID             string
	CampaignID     string
	Round          int64
	Status         Status
	Stage          Stage
	Request        column[Request]
	BaseModel      string
	ParentID       string
	Budget         money.Nano
	Data           column[data]
	Result         column[result]
	SessionID      string
	SamplingID     string
	JobID          string
	MeasuringID    string
	ModelVersionID string
	NextID         string
	StoppedReason  string
	ErrorCode      string
	ErrorMessage   string
	CreatedBy      tenant.UserID
	CreatedAt      clock.Time
	FinishedAt     clock.Time
}

// A column holds a value as JSON.
type column[T any] struct{ v T }

// Scan implements sql.Scanner.
func (c *column[T]) Scan(kept any) error {
	text, ok := kept.(string)
	if !ok {
		return fmt.Errorf("a column of a round is kept as text, not %T", kept)
	}
	return json.Unmarshal([]byte(text), &c.v)
}

func (c *column[T]) text() (string, error) {
	text, err := json.Marshal(c.v, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("write a round: %w", err)
	}
	return string(text), nil
}

const columns = `workspace_id, id, campaign_id, round, status, stage, request, base_model, parent_id, budget, data, result,
	session_id, sampling_id, job_id, measuring_id, model_version_id, next_id, stopped_reason, error_code, error_message,
	created_by, created_at, finished_at FROM raft_rounds`

func (s *Store) find(ctx context.Context, in db.Scoped, roundID string) (*record, error) {
	r, err := s.findBy(ctx, in, "id", roundID)
	if err == nil && r == nil {
		return nil, fault.NotFound("RAFT round", roundID)
	}
	return r, err
}

// findBy reads the round whose column has a value: nil, if there is none.
func (s *Store) findBy(ctx context.Context, in db.Scoped, name, value string) (*record, error) {
	r, err := db.Maybe[record](ctx, in, `SELECT `+columns+` WHERE workspace_id = $1 AND `+name+` = $2`, value)
	if err != nil {
		return nil, fmt.Errorf("find a RAFT round: %w", err)
	}
	return r, nil
}

// plan checks a request and stores its prompts.
func (s *Store) plan(
	ctx context.Context, ws tenant.ID, in *Request,
) (p Plan, d data, start modelversion.Start, err error) {
	in.defaults()
	if err := in.Check(); err != nil {
		return p, d, start, err
	}
	if start, err = s.Versions.Start(ctx, s.DB.In(ws), in.BaseModel); err != nil {
		return p, d, start, err
	}
	in.BaseModel = start.BaseModel
	for _, m := range []string{method, "sft"} {
		if err := s.Train.CheckModel(ctx, ws, in.BaseModel, m, in.GPUType); err != nil {
			return p, d, start, err
		}
	}
	d, some, err := s.prepare(ctx, ws, in)
	if err != nil {
		return p, d, start, err
	}
	p = Plan{PromptCount: d.Count, HeldOutCount: d.Held, Samples: (d.Count + d.Held) * in.SamplesPerPrompt}
	var most money.Nano
	if p.Scoring, most, err = s.Rewards.Estimate(ctx, ws, in.CriterionID, some, p.Samples); err != nil {
		return p, d, start, err
	}
	return p, d, start, p.divide(in.budget(), in.Rounds, most)
}

// Plan says what a request will do and cost, without starting it.
func (s *Store) Plan(ctx context.Context, ws tenant.ID, in Request) (Plan, error) {
	if in.Budget == 0 { // none is asked for
		in.Budget = 1_000_000 * money.Dollar
	}
	p, _, _, err := s.plan(ctx, ws, &in)
	return p, err
}

// Create starts a round. The budgets of its stages are set aside, or nothing is.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, in Request) (Round, error) {
	p, d, start, err := s.plan(ctx, ws, &in)
	if err != nil {
		return Round{}, err
	}
	if in.Seed == nil {
		seed := randomSeed()
		in.Seed = &seed
	}
	var made *record
	err = s.Feed.Change(ctx, func(tx *db.Tx) (err error) {
		first := &record{ID: id.New("raft"), Round: 1, Request: column[Request]{in}, Data: column[data]{d}}
		first.CampaignID = first.ID
		made, err = s.begin(ctx, tx, ws, by, first, start, p.Rewards)
		return err
	})
	if err != nil {
		return Round{}, err
	}
	return s.Get(ctx, ws, made.ID)
}

func randomSeed() int64 {
	var raw [4]byte
	_, _ = rand.Read(raw[:]) // never fails
	return int64(binary.BigEndian.Uint32(raw[:]) >> 1)
}

// sessionDays is how long the reward session of a round may last: the most that there is.
const sessionDays = 30

// begin stores a round with everything that its stages need, each with a hold of its own, and queues the first.
func (s *Store) begin(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, r *record, start modelversion.Start,
	rewards money.Nano,
) (*record, error) {
	in, d := &r.Request.v, &r.Data.v
	r.Workspace, r.Status, r.Stage, r.Budget = ws, Running, Sampling, in.budget()
	r.BaseModel, r.ParentID, r.CreatedBy, r.CreatedAt = start.BaseModel, start.ParentID, by.User, clock.Now()
	sampling, training, measuring := shares(r.Budget - rewards)
	ordered := in.job(r.Round, training)
	if err := ordered.Fill(); err != nil {
		return nil, err
	}
	session, err := s.Rewards.Create(tx.Bind(ctx), ws, by, &reward.NewSession{
		Label: r.ID, Reward: reward.Rule{Mode: reward.Single, CriterionID: in.CriterionID}, Budget: rewards,
		ExpiresIn: sessionDays * 24 * 60 * 60,
	})
	if err != nil {
		return nil, err
	}
	r.SessionID, r.SamplingID, r.MeasuringID = session.ID, id.New("raftrun"), id.New("raftrun")
	origin := finetune.Origin{Source: object, ID: r.ID, DatasetID: in.DatasetID}
	for _, c := range session.Certificates {
		origin.Certificates = append(origin.Certificates, c.ID)
	}
	if r.JobID, err = s.Jobs.Reserve(ctx, tx, ws, by, ordered, start, origin); err != nil {
		return nil, err
	}
	inputs := append([]train.Input{{Name: "prompts.jsonl", File: d.Prompts}}, start.Inputs...)
	for _, n := range []train.New{
		{
			ID: r.SamplingID, Spec: newSpec(in, r.Round, inputs), Budget: sampling, TotalSteps: d.Count,
			Status: train.Queued,
		},
		{
			ID: r.MeasuringID, Spec: train.Spec{Inputs: []train.Input{}}, Budget: measuring, TotalSteps: d.Held,
			Status: train.Validating,
		},
	} {
		n.Kind, n.Method, n.BaseModel, n.GPUType, n.GPUCount = runKind, method, r.BaseModel, in.GPUType, in.GPUCount
		if _, err := s.Train.Create(ctx, tx, ws, by, n); err != nil {
			return nil, err
		}
	}
	if err := s.refer(ctx, tx, r, start); err != nil {
		return nil, err
	}
	if err := s.insert(ctx, tx, r); err != nil {
		return nil, err
	}
	if err := train.CheckRoom(ctx, tx.In(ws)); err != nil {
		return nil, err
	}
	return r, audit.Record(ctx, tx, ws, by, object+".create", r.ID, nil, in)
}

// refer notes that a round and its first run need their files.
func (s *Store) refer(ctx context.Context, tx *db.Tx, r *record, start modelversion.Start) error {
	if err := s.Artifacts.Refer(ctx, tx, r.Workspace, r.ID, r.Data.v.Prompts, r.Data.v.HeldOut); err != nil {
		return err
	}
	if err := s.Artifacts.Refer(ctx, tx, r.Workspace, r.SamplingID, r.Data.v.Prompts); err != nil {
		return err
	}
	return s.Versions.Refer(ctx, tx, r.Workspace, r.SamplingID, start)
}

func (s *Store) insert(ctx context.Context, tx *db.Tx, r *record) error {
	request, err := r.Request.text()
	if err != nil {
		return err
	}
	files, err := r.Data.text()
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, tx.In(r.Workspace), `
		INSERT INTO raft_rounds (workspace_id, id, campaign_id, round, status, stage, request, base_model, parent_id, budget,
			data, result, session_id, sampling_id, job_id, measuring_id, model_version_id, next_id, stopped_reason, error_code,
			error_message, created_by, created_at, finished_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, '{}', $12, $13, $14, $15, '', '', '', '', '', $16, $17, 0)`,
		r.ID, r.CampaignID, r.Round, r.Status, r.Stage, request, r.BaseModel, r.ParentID, r.Budget, files, r.SessionID,
		r.SamplingID, r.JobID, r.MeasuringID, r.CreatedBy, r.CreatedAt); err != nil {
		return fmt.Errorf("insert a RAFT round: %w", err)
	}
	return nil
}

// save stores what changes of a round, if nothing else has moved it meanwhile.
func (s *Store) save(ctx context.Context, tx *db.Tx, r *record, from Stage) error {
	text, err := r.Result.text()
	if err != nil {
		return err
	}
	n, err := db.Exec(ctx, tx.In(r.Workspace), `
		UPDATE raft_rounds SET status = $4, stage = $5, result = $6, model_version_id = $7, next_id = $8, stopped_reason = $9,
			error_code = $10, error_message = $11, finished_at = $12
		WHERE workspace_id = $1 AND id = $2 AND stage = $3 AND (status = 'RUNNING' OR status = $4)`,
		r.ID, from, r.Status, r.Stage, text, r.ModelVersionID, r.NextID, r.StoppedReason, r.ErrorCode, r.ErrorMessage,
		r.FinishedAt)
	switch {
	case err != nil:
		return fmt.Errorf("save a RAFT round: %w", err)
	case n == 0:
		return fault.Conflict("the round has changed meanwhile: try again")
	}
	return nil
}

// unsettled reports whether a run of a round still holds money, which is free when the run is charged.
func (s *Store) unsettled(ctx context.Context, r *record) (bool, error) {
	n, err := db.One[int64](ctx, s.DB.In(r.Workspace), `
		SELECT COUNT(*) FROM training_runs WHERE workspace_id = $1 AND id IN ($2, $3, $4) AND NOT settled`,
		r.SamplingID, r.JobID, r.MeasuringID)
	if err != nil {
		return false, fmt.Errorf("look for runs that are not charged: %w", err)
	}
	return n > 0, nil
}

// Get reads a round.
func (s *Store) Get(ctx context.Context, ws tenant.ID, roundID string) (Round, error) {
	r, err := s.find(ctx, s.DB.In(ws), roundID)
	if err != nil {
		return Round{}, err
	}
	return s.view(ctx, r)
}

// List reads rounds, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Round, error) {
	rows, err := db.Query[record](ctx, s.DB.In(ws), `SELECT `+columns+` WHERE workspace_id = $1
		ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list RAFT rounds: %w", err)
	}
	all := make([]Round, len(rows))
	for i := range rows {
		if all[i], err = s.view(ctx, &rows[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// view returns a round as the API shows it.
func (s *Store) view(ctx context.Context, r *record) (Round, error) {
	in, d, came := &r.Request.v, &r.Data.v, &r.Result.v
	v := Round{
		ID: r.ID, Object: "raft.round", CampaignID: r.CampaignID, Round: r.Round, Rounds: in.Rounds, Status: r.Status,
		Stage: r.Stage, BaseModel: r.BaseModel, ParentID: maybe(r.ParentID), DatasetID: in.DatasetID,
		CriterionID: in.CriterionID, PromptCount: d.Count, HeldOutCount: d.Held, SamplesPerPrompt: in.SamplesPerPrompt,
		MinGrade: *in.MinGrade, Seed: in.seed(r.Round), Accepted: came.Accepted, Rejected: came.Rejected,
		Improvement: came.Improvement, RewardSessionID: r.SessionID, FineTuningJobID: r.JobID,
		SamplingRunID: r.SamplingID, MeasuringRunID: r.MeasuringID, ModelVersionID: maybe(r.ModelVersionID),
		NextRoundID: maybe(r.NextID), StoppedReason: maybe(r.StoppedReason), Budget: r.Budget, CreatedAt: r.CreatedAt,
	}
	if v.Rejected == nil {
		v.Rejected = map[string]int64{}
	}
	if came.Before != nil {
		before := measure(came.Before)
		v.RewardBefore = &before
	}
	if came.After != nil {
		after := measure(came.After)
		v.RewardAfter = &after
	}
	if r.Status == Failed {
		v.Error = &RoundError{r.ErrorCode, r.ErrorMessage}
	}
	if r.FinishedAt > 0 {
		v.FinishedAt = &r.FinishedAt
	}
	for _, hold := range []string{r.SessionID, r.SamplingID, r.JobID, r.MeasuringID} {
		spent, err := s.Train.Holds.Spent(ctx, r.Workspace, hold)
		if err != nil {
			return Round{}, err
		}
		v.Spent += spent
	}
	var err error
	v.Progress, err = s.progress(ctx, r)
	return v, err
}

// progress returns how far a round is: each stage is an equal part.
func (s *Store) progress(ctx context.Context, r *record) (float64, error) {
	if r.Status == Succeeded {
		return 1, nil
	}
	in := s.DB.In(r.Workspace)
	var part float64
	var err error
	switch r.Stage {
	case Sampling, Measuring:
		var run train.Run
		run, err = s.Train.Find(ctx, in, runKind, map[Stage]string{
			Sampling: r.SamplingID, Measuring: r.MeasuringID,
		}[r.Stage])
		part = run.Progress()
	case Training:
		part, err = s.Jobs.Progress(ctx, in, r.JobID)
	default:
		var work job.Job
		work, err = job.Get(ctx, in, workID(r.Stage, r.ID))
		part = float64(work.Done) / float64(max(work.Total, 1))
	}
	return (float64(slices.Index(stages, r.Stage)) + min(part, 1)) / float64(len(stages)), err
}

func maybe(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
