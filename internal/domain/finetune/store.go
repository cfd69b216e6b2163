package finetune

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/job"
)

// kind is what the runs, holds and usage rows of jobs are called.
const kind = "fine_tuning_job"

// prepareKind is the job that writes the examples of a dataset or a session as files.
const prepareKind = "fine_tuning_data"

// Config is what a store needs.
type Config struct {
	DB        *db.DB
	Feed      *feed.Feed
	Train     *train.Store
	Versions  *modelversion.Store
	Artifacts *artifact.Store
	Datasets  Datasets
	Rewards   Rewards
	Release   string // of the server
}

// Datasets is what jobs need of datasets.
type Datasets interface {
	Get(ctx context.Context, ws tenant.ID, id string) (dataset.Dataset, error)
	Lines(ctx context.Context, ws tenant.ID, d *dataset.Dataset) iter.Seq2[dataset.Line, error]
}

// Rewards writes what a reward session scored, as examples of a method: sft or dpo.
type Rewards interface {
	Examples(ctx context.Context, ws tenant.ID, sessionID, method string, to io.Writer) error
}

// A Store keeps files and jobs.
type Store struct {
	Config
	tell func(context.Context, *db.Tx, train.Run, string) error // see Tell; may be nil
}

// NewStore returns a store, and says what is done with its runs.
func NewStore(c Config) *Store {
	s := &Store{Config: c}
	c.Train.Handle(kind, train.Hooks{Ended: s.ended})
	return s
}

// A record is a job as the tables have it.
type record struct {
	train.Run
	Request        string
	Estimate       int64
	ModelVersionID string
}

// An order is what a job was asked for, as it is stored: BaseModel is the base model of a version that was named.
type order struct {
	Request
	ParentID string  `json:"parentId,omitempty"`
	Origin   *Origin `json:"origin,omitempty"`
}

// An Origin is what a job is a part of. The model that it makes names it, and what goes with it.
type Origin struct {
	Source       string   `json:"source"` // its type
	ID           string   `json:"id"`
	DatasetID    string   `json:"datasetId"`
	Certificates []string `json:"certificates"`
}

func (r *record) request() (*order, error) {
	in := new(order)
	if err := json.Unmarshal([]byte(r.Request), in); err != nil {
		return nil, fmt.Errorf("read a fine-tuning job: %w", err)
	}
	return in, nil
}

// Create starts a job. Its data is prepared first, unless it is a file that was checked when it was uploaded.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, in Request) (Job, error) {
	in.defaults()
	if err := in.Check(); err != nil {
		return Job{}, err
	}
	start, err := s.Versions.Start(ctx, s.DB.In(ws), in.BaseModel)
	if err != nil {
		return Job{}, err
	}
	in.BaseModel = start.BaseModel
	if err := s.Train.CheckModel(ctx, ws, in.BaseModel, in.Method, in.GPUType); err != nil {
		return Job{}, err
	}
	if in.Seed == nil {
		seed := randomSeed()
		in.Seed = &seed
	}
	jobID := id.New("ftjob")
	err = s.Feed.Change(ctx, func(tx *db.Tx) error {
		n, rows, err := s.plan(ctx, tx, ws, jobID, &in, start)
		if err != nil {
			return err
		}
		estimate, err := s.estimate(ctx, ws, tx.In(ws), &in, rows)
		if err != nil {
			return err
		}
		if err := s.insert(ctx, tx, ws, by, n, start, order{in, start.ParentID, nil}, estimate.stored()); err != nil {
			return err
		}
		if n.Status == train.Validating {
			if err := job.Queue(ctx, tx, ws, job.New{ID: prepareID(jobID), Kind: prepareKind, Total: 1}); err != nil {
				return err
			}
		}
		return train.CheckRoom(ctx, tx.In(ws))
	})
	if err != nil {
		return Job{}, err
	}
	return s.Get(ctx, ws, jobID)
}

// insert stores a job and its run, and sets its budget aside.
func (s *Store) insert(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, n train.New, start modelversion.Start, in order,
	estimate int64,
) error {
	if _, err := s.Train.Create(ctx, tx, ws, by, n); err != nil {
		return err
	}
	if err := s.Versions.Refer(ctx, tx, ws, n.ID, start); err != nil {
		return err
	}
	text, err := json.Marshal(in, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("write a fine-tuning job: %w", err)
	}
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO fine_tuning_jobs (workspace_id, id, request, estimate, model_version_id) VALUES ($1, $2, $3, $4, '')`,
		n.ID, string(text), estimate); err != nil {
		return fmt.Errorf("insert a fine-tuning job: %w", err)
	}
	return audit.Record(ctx, tx, ws, by, kind+".create", n.ID, nil, in)
}

// prepareID is the id of the job that prepares the data of another.
func prepareID(jobID string) string { return "ftdata" + strings.TrimPrefix(jobID, "ftjob") }

func randomSeed() int64 {
	var raw [4]byte
	_, _ = rand.Read(raw[:]) // never fails
	return int64(binary.BigEndian.Uint32(raw[:]) >> 1)
}

// plan returns the run of a request, and how many examples it has: -1 while its data is not prepared.
func (s *Store) plan(
	ctx context.Context, tx *db.Tx, ws tenant.ID, jobID string, in *Request, start modelversion.Start,
) (n train.New, rows int64, err error) {
	n = newRun(jobID, in, start)
	if in.TrainingFile == "" {
		return n, -1, s.checkSource(ctx, ws, in)
	}
	var inputs []train.Input
	var first File
	for _, source := range []struct{ field, id, name string }{
		{"trainingFile", in.TrainingFile, trains}, {"validationFile", in.ValidationFile, validates},
	} {
		if source.id == "" {
			continue
		}
		f, err := s.File(ctx, tx.In(ws), source.id)
		if err != nil {
			return n, 0, err
		}
		if (f.Format == Preference) != (in.Method == "dpo") {
			return n, 0, fault.Invalid(
				source.field, fmt.Sprintf("has the format %s, which %s cannot train on", f.Format, in.Method),
			)
		}
		if len(inputs) == 0 {
			first = f
		} else if f.Format != first.Format {
			return n, 0, fault.Invalid(
				source.field, fmt.Sprintf("has the format %s, and the training file %s", f.Format, first.Format),
			)
		}
		stored := artifact.File{Digest: artifact.Digest(f.Digest), Bytes: f.Bytes}
		if err := s.Artifacts.Refer(ctx, tx, ws, jobID, stored); err != nil {
			return n, 0, err
		}
		inputs = append(inputs, train.Input{Name: source.name, File: stored})
	}
	inputs = append(inputs, start.Inputs...)
	n.Status, n.Spec, n.TotalSteps = train.Queued, newSpec(in, first.Format, inputs), in.Hyperparameters.steps(first.Rows)
	return n, first.Rows, nil
}

// newRun returns the run of a job whose data is not there yet. Its spec has the weights that it begins with.
func newRun(jobID string, in *Request, start modelversion.Start) train.New {
	return train.New{
		ID: jobID, Kind: kind, Method: in.Method, BaseModel: in.BaseModel, GPUType: in.GPUType, GPUCount: in.GPUCount,
		Budget: in.Budget, Status: train.Validating, Spec: train.Spec{Inputs: append([]train.Input{}, start.Inputs...)},
	}
}

// checkSource refuses a dataset that is not there. A session is looked at when its examples are written.
func (s *Store) checkSource(ctx context.Context, ws tenant.ID, in *Request) error {
	switch {
	case in.ValidationFile != "":
		return fault.Invalid("validationFile", "goes with trainingFile alone: a dataset is validated on its holdout")
	case in.DatasetID == "":
		return nil
	}
	_, err := s.Datasets.Get(ctx, ws, in.DatasetID)
	return err
}

const jobColumns = `r.workspace_id, r.id, r.kind, r.status, r.method, r.base_model, r.spec, r.gpu_type, r.gpu_count, r.budget,
	r.wanted, r.paused_reason, r.attempt, r.lost, r.step, r.total_steps, r.tokens, r.events, r.error_code, r.error_message,
	r.created_at, r.queued_at, r.started_at, r.finished_at, r.settled, j.request, j.estimate, j.model_version_id
	FROM training_runs r JOIN fine_tuning_jobs j ON j.workspace_id = r.workspace_id AND j.id = r.id
	WHERE r.workspace_id = $1`

func (s *Store) find(ctx context.Context, in db.Scoped, jobID string) (*record, error) {
	r, err := db.Maybe[record](ctx, in, `SELECT `+jobColumns+` AND r.id = $2`, jobID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find a fine-tuning job: %w", err)
	case r == nil:
		return nil, fault.NotFound("fine-tuning job", jobID)
	}
	return r, nil
}

// Get reads a job.
func (s *Store) Get(ctx context.Context, ws tenant.ID, jobID string) (Job, error) {
	r, err := s.find(ctx, s.DB.In(ws), jobID)
	if err != nil {
		return Job{}, err
	}
	return s.view(ctx, r)
}

// List reads jobs, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Job, error) {
	rows, err := db.Query[record](ctx, s.DB.In(ws), `SELECT `+jobColumns+` ORDER BY r.created_at DESC, r.id DESC LIMIT $2 OFFSET $3`,
		limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list fine-tuning jobs: %w", err)
	}
	all := make([]Job, len(rows))
	for i := range rows {
		if all[i], err = s.view(ctx, &rows[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// view returns a job as the API shows it.
func (s *Store) view(ctx context.Context, r *record) (Job, error) {
	in, err := r.request()
	if err != nil {
		return Job{}, err
	}
	metered, err := s.Train.Metered(ctx, &r.Run)
	if err != nil {
		return Job{}, err
	}
	v := Job{
		ID: r.ID, Object: "fine_tuning.job", Status: r.Status, BaseModel: r.BaseModel, ParentID: maybe(in.ParentID),
		Method: r.Method, Hyperparameters: in.Hyperparameters.shown(), TrainingFile: maybe(in.TrainingFile),
		ValidationFile: maybe(in.ValidationFile), DatasetID: maybe(in.DatasetID),
		RewardSessionID: maybe(in.RewardSessionID), Seed: *in.Seed, ModelVersionID: maybe(r.ModelVersionID),
		TrainedTokens: r.Tokens, Step: r.Step, TotalSteps: r.TotalSteps, GPUType: maybe(metered.GPUType),
		GPUCount: r.GPUCount, GPUSeconds: metered.Seconds, Budget: r.Budget, Spent: metered.Spent,
		Accrued: metered.Accrued, Attempt: r.Attempt, PausedReason: maybe(r.PausedReason), CreatedAt: r.CreatedAt,
		StartedAt: maybeTime(r.StartedAt), FinishedAt: maybeTime(r.FinishedAt), Progress: r.Progress(),
	}
	if r.Estimate >= 0 {
		estimate := money.Nano(r.Estimate)
		v.Estimate = &estimate
	}
	if r.ErrorCode != "" || r.Status == train.Failed {
		v.Error = &JobError{r.ErrorCode, r.ErrorMessage}
	}
	if r.ModelVersionID != "" {
		name := train.ModelName(in.BaseModel, in.Suffix, r.ID)
		v.OutputModel = &name
	}
	v.EstimatedFinish = finish(&r.Run, clock.Now())
	return v, nil
}

// finish extrapolates when a running run ends.
func finish(r *train.Run, now clock.Time) *clock.Time {
	if r.Status != train.Running || r.Step == 0 || r.TotalSteps <= r.Step || r.StartedAt == 0 {
		return nil
	}
	each := float64(now-r.StartedAt) / float64(r.Step)
	at := now.Add(time.Duration(each*float64(r.TotalSteps-r.Step)) * time.Microsecond)
	return &at
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

// shown returns hyperparameters as the API shows them.
func (h *Hyperparameters) shown() Shown {
	return Shown{
		Epochs: h.Epochs, MaxSteps: h.MaxSteps, BatchSize: h.BatchSize, GradientAccumulation: h.GradientAccumulation,
		LearningRate: h.LearningRate, WarmupRatio: h.WarmupRatio, WeightDecay: h.WeightDecay, MaxLength: h.MaxLength,
		LoRARank: *h.LoRARank, LoRAAlpha: h.LoRAAlpha, LoRADropout: h.LoRADropout, Beta: h.Beta,
		CheckpointEvery: h.CheckpointEvery, EarlyStoppingPatience: h.EarlyStoppingPatience,
	}
}
