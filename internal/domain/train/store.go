package train

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// Config is what a store needs.
type Config struct {
	DB        *db.DB
	Feed      *feed.Feed
	Holds     *wallet.Holds // the hold of a run has its id
	Till      *till.Till
	Drain     func(context.Context) error // posts what was settled before it is called
	Artifacts *artifact.Store
	Bounds    *edge.Bounds
	Prices    Prices
	Offers    []Info     // what can be trained by workers that are started when there is work
	Member    Membership // this node among others; nil where there is none
	Log       *slog.Logger
}

// Prices are what an hour of a GPU costs, by its type. A type without a price is not leased to.
type Prices map[string]money.Nano

// Rate returns the price of a million seconds, of that of an hour.
func Rate(hour money.Nano) money.Rate { return money.Rate(hour) * 1_000_000 / 3600 }

// rate returns the price of a million seconds of a GPU.
func (p Prices) rate(gpuType string) (money.Rate, bool) {
	hour, ok := p[gpuType]
	return Rate(hour), ok
}

// A Store keeps runs, and gives them to workers.
type Store struct {
	Config
	hooks map[string]Hooks // by kind
	now   func() clock.Time
	// elapsed is the clock of this process that nobody sets: it alone decides that a worker of another node is lost.
	elapsed func() time.Time

	mu     sync.Mutex
	queued chan struct{} // closed when a run is queued, and replaced

	charged map[string]bool    // attempts whose charges the journal has, and perhaps not the ledger; of one loop
	watched map[string]watched // attempts that run, as this node has seen them while it led; of one loop
}

// NewStore returns a store.
func NewStore(c Config) *Store {
	if c.Member == nil {
		c.Member = alone{}
	}
	s := &Store{
		Config: c, hooks: map[string]Hooks{}, now: clock.Now, elapsed: time.Now, queued: make(chan struct{}),
		charged: map[string]bool{}, watched: map[string]watched{},
	}
	s.DB.Listen(topic, s.tellWaiting)
	return s
}

// Handle sets what is done with the runs of a kind. It is called before the store serves.
func (s *Store) Handle(kind string, h Hooks) { s.hooks[kind] = h }

// waiting returns a channel that is closed when a run is queued.
func (s *Store) waiting() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queued
}

// topic is signalled when a run is queued.
const topic = "training runs"

// wake ends the waiting of workers at all nodes, when the transaction has committed.
func (s *Store) wake(tx *db.Tx) {
	tx.Signal(topic)
	tx.OnEnd(func(o db.Outcome) {
		if o == db.InDoubt {
			s.tellWaiting()
		}
	})
}

func (s *Store) tellWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.queued)
	s.queued = make(chan struct{})
}

const runColumns = `workspace_id, id, kind, status, method, base_model, spec, gpu_type, gpu_count, budget, wanted,
	paused_reason, attempt, lost, step, total_steps, tokens, events, error_code, error_message, created_at, queued_at,
	started_at, finished_at, settled FROM training_runs`

// Find reads a run of a kind.
func (s *Store) Find(ctx context.Context, in db.Scoped, kind, runID string) (Run, error) {
	r, err := db.Maybe[Run](
		ctx, in, `SELECT `+runColumns+` WHERE workspace_id = $1 AND id = $2 AND kind = $3`, runID, kind,
	)
	switch {
	case err != nil:
		return Run{}, fmt.Errorf("find a training run: %w", err)
	case r == nil:
		return Run{}, fault.NotFound("training run", runID)
	}
	return *r, nil
}

// List reads runs of a kind, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, kind string, limit, offset int) ([]Run, error) {
	all, err := db.Query[Run](ctx, s.DB.In(ws), `SELECT `+runColumns+` WHERE workspace_id = $1 AND kind = $2
		ORDER BY created_at DESC, id DESC LIMIT $3 OFFSET $4`, kind, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list training runs: %w", err)
	}
	return all, nil
}

// A Need is a run that waits for a worker or has one, and the attempt that this is.
type Need struct {
	ID        string
	Attempt   int64
	Queued    bool
	BaseModel string
	GPUType   string // empty for any
	GPUCount  int64
}

// Unfinished lists what needs workers, of all workspaces, those that wait longest first.
func (s *Store) Unfinished(ctx context.Context) ([]Need, error) {
	all, err := db.Query[Run](ctx, s.DB.Across(ofAll), `SELECT `+runColumns+`
		WHERE status IN ('QUEUED', 'RUNNING') ORDER BY queued_at, id LIMIT $1`, maxNeeds)
	if err != nil {
		return nil, fmt.Errorf("list what needs workers: %w", err)
	}
	needs := make([]Need, len(all))
	for i, r := range all {
		n := Need{
			ID: r.ID, Attempt: r.Attempt, Queued: r.Status == Queued, BaseModel: r.BaseModel, GPUType: r.GPUType,
			GPUCount: r.GPUCount,
		}
		if n.Queued {
			n.Attempt++
		}
		needs[i] = n
	}
	return needs, nil
}

// maxNeeds bounds the runs that workers are started for.
const maxNeeds = 1000

// Create stores a run, and sets its budget aside, in the transaction that creates what it is for.
func (s *Store) Create(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, n New) (Run, error) {
	spec, err := json.Marshal(n.Spec, json.Deterministic(true))
	if err != nil {
		return Run{}, fmt.Errorf("write the spec of a run: %w", err)
	}
	now := s.now()
	r := Run{
		Workspace: ws, ID: n.ID, Kind: n.Kind, Status: n.Status, Method: n.Method, BaseModel: n.BaseModel,
		Spec: string(spec), GPUType: n.GPUType, GPUCount: n.GPUCount, Budget: n.Budget, TotalSteps: n.TotalSteps,
		CreatedAt: now, QueuedAt: now,
	}
	if err := s.Holds.Open(ctx, tx, ws, r.ID, "training", n.Budget); err != nil {
		return Run{}, err
	}
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO training_runs (workspace_id, id, kind, status, method, base_model, spec, gpu_type, gpu_count, budget,
			wanted, paused_reason, attempt, lost, step, total_steps, tokens, events, error_code, error_message, created_by,
			created_at, queued_at, started_at, finished_at, settled)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '', '', 0, 0, 0, $11, 0, 0, '', '', $12, $13, $13, 0, 0, FALSE)`,
		r.ID, r.Kind, r.Status, r.Method, r.BaseModel, r.Spec, r.GPUType, r.GPUCount, r.Budget, r.TotalSteps, by.User,
		now,
	); err != nil {
		return Run{}, fmt.Errorf("insert a training run: %w", err)
	}
	s.wake(tx)
	return r, nil
}

// Prepared gives a run whose data is ready to the workers: with its final spec and number of steps.
func (s *Store) Prepared(
	ctx context.Context, tx *db.Tx, ws tenant.ID, kind, runID string, spec any, totalSteps int64,
) error {
	r, err := s.Find(ctx, tx.In(ws), kind, runID)
	if err != nil || r.Status != Validating {
		return err
	}
	text, err := json.Marshal(spec, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("write the spec of a run: %w", err)
	}
	if _, err := db.Exec(ctx, tx.In(ws), `UPDATE training_runs SET spec = $3, total_steps = $4
		WHERE workspace_id = $1 AND id = $2`, runID, string(text), totalSteps); err != nil {
		return fmt.Errorf("prepare a training run: %w", err)
	}
	return s.move(ctx, tx, &r, Queued)
}

// move changes the state of a run, and its columns that go with it.
func (s *Store) move(ctx context.Context, tx *db.Tx, r *Run, to Status) error {
	if !r.Status.May(to) {
		return fault.Conflict("the run is %s, and cannot become %s", r.Status, to)
	}
	from, now := r.Status, s.now()
	r.Status = to
	switch {
	case to == Running && r.StartedAt == 0:
		r.StartedAt = now
	case to == Queued:
		r.QueuedAt = now
		s.wake(tx)
	case to.Final():
		r.FinishedAt = now
	}
	if to != Running {
		r.Wanted = GoOn
	}
	if to != Paused {
		r.PausedReason = ""
	}
	n, err := db.Exec(ctx, tx.In(r.Workspace), `
		UPDATE training_runs SET status = $4, wanted = $5, paused_reason = $6, attempt = $7, lost = $8, error_code = $9,
			error_message = $10, queued_at = $11, started_at = $12, finished_at = $13
		WHERE workspace_id = $1 AND id = $2 AND status = $3`,
		r.ID, from, to, r.Wanted, r.PausedReason, r.Attempt, r.Lost, r.ErrorCode, r.ErrorMessage, r.QueuedAt,
		r.StartedAt,
		r.FinishedAt)
	switch {
	case err != nil:
		return fmt.Errorf("change the state of a run: %w", err)
	case n == 0:
		return fault.Conflict("the run has changed meanwhile: try again")
	}
	if hook := s.hooks[r.Kind].Ended; to.Final() && hook != nil {
		return hook(ctx, tx, *r)
	}
	return nil
}

// fail ends a run with a reason.
func (s *Store) fail(ctx context.Context, tx *db.Tx, r *Run, code, message string) error {
	r.ErrorCode, r.ErrorMessage = code, message
	return s.move(ctx, tx, r, Failed)
}

// Want asks a run to pause or to end. A run without a worker does so at once; a running one when its worker has heard
// of it. To ask again is a no-op.
func (s *Store) Want(
	ctx context.Context, ws tenant.ID, by tenant.Actor, kind, runID string, w Wanted, reason string,
) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		r, err := s.Find(ctx, tx.In(ws), kind, runID)
		if err != nil {
			return err
		}
		if err := s.want(ctx, tx, &r, w, reason); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, kind+"."+string(w), runID, nil, map[string]string{"reason": reason})
	})
	return err
}

func (s *Store) want(ctx context.Context, tx *db.Tx, r *Run, w Wanted, reason string) error {
	switch {
	case r.Status == Cancelled && w == Cancel || r.Status == Paused && w == Pause || r.Status == Running &&
		r.Wanted == w:
		return nil
	case r.Status.Final():
		return fault.Conflict("the run is %s already", r.Status)
	case r.Status != Running && w == Cancel:
		return s.move(ctx, tx, r, Cancelled)
	case r.Status != Running:
		r.PausedReason = reason
		return s.move(ctx, tx, r, Paused)
	case r.Wanted == Cancel:
		return nil // it ends already
	}
	r.Wanted = w
	if _, err := db.Exec(ctx, tx.In(r.Workspace), `UPDATE training_runs SET wanted = $3, paused_reason = $4
		WHERE workspace_id = $1 AND id = $2`, r.ID, w, reason); err != nil {
		return fmt.Errorf("ask a run to stop: %w", err)
	}
	return nil
}

// Resume lets a paused run go on from its last checkpoint.
func (s *Store) Resume(ctx context.Context, ws tenant.ID, by tenant.Actor, kind, runID string) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		r, err := s.Find(ctx, tx.In(ws), kind, runID)
		if err != nil {
			return err
		}
		if r.Status != Paused {
			return fault.Conflict("the run is %s, not paused", r.Status)
		}
		if err := s.move(ctx, tx, &r, Queued); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, kind+".resume", runID, nil, nil)
	})
	return err
}

// Times of the protocol.
const (
	beatEvery = 5 * time.Second  // between two heartbeats
	leaseTime = 30 * time.Second // without a heartbeat; then the worker is lost
	graceTime = 60 * time.Second // after a start: workers could not reach the server before it
	pollTime  = 30 * time.Second // of a request for work, at most
)
