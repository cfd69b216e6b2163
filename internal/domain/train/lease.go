package train

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
)

// A Lease is work that a worker was given. Fence is its secret: it is stale when the worker was lost.
type Lease struct {
	Run        string            `json:"run"`
	Attempt    int64             `json:"attempt"`
	Fence      string            `json:"fence"`
	Method     string            `json:"method"`
	BaseModel  string            `json:"base_model"`
	TotalSteps int64             `json:"total_steps"`
	Spec       jsontext.Value    `json:"spec"`
	Secrets    map[string]string `json:"secrets,omitempty"`
	Inputs     []Source          `json:"inputs" nullable:"false"`
	ResumeFrom *ResumePoint      `json:"resume_from" doc:"The last checkpoint; null to begin"`
	BeatEvery  float64           `json:"heartbeat_seconds"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Lease) SchemaName() string { return "WorkerLease" }

// A ResumePoint is a checkpoint from which a worker goes on.
type ResumePoint struct {
	Step  int64    `json:"step"`
	Files []Source `json:"files" nullable:"false"`
}

// A Source is a file that a worker fetches. Without a URL it asks the server for its sha256.
type Source struct {
	Name string `json:"name"`
	artifact.File
	artifact.Transfer
}

// SchemaName is the type's name in the OpenAPI document.
func (Source) SchemaName() string { return "WorkerFile" }

// An attempt is a worker's turn at a run.
type attempt struct {
	Workspace  tenant.ID `db:"workspace_id"`
	RunID      string
	Attempt    int64
	WorkerID   string
	Fence      string
	GPUType    string `db:"gpu_type"`
	GPUCount   int64  `db:"gpu_count"`
	Rate       money.Rate
	LeaseUntil clock.Time
	Beat       int64
	BeatAt     clock.Time // 0 before the first
	Metered    int64      // microseconds
	StartedAt  clock.Time
	EndedAt    clock.Time // 0 while it runs
	Outcome    string
	Charge     string
	ChargeNode string // whose journal may have the charge, while it is due; empty for none
}

const attemptColumns = `workspace_id, run_id, attempt, worker_id, fence, gpu_type, gpu_count, rate, lease_until, beat, beat_at,
	metered, started_at, ended_at, outcome, charge, charge_node FROM training_attempts`

// Await returns work for a worker, or nil when there is none for 30 seconds.
func (s *Store) Await(ctx context.Context, w Worker, info Info) (*Lease, error) {
	if err := s.seen(ctx, w, info); err != nil {
		return nil, err
	}
	if err := s.Artifacts.Ready(ctx); err != nil { // it could not fetch its data, nor save what it trains
		return nil, err
	}
	until := time.NewTimer(pollTime)
	defer until.Stop()
	again := time.NewTicker(time.Second) // another server may have queued a run
	defer again.Stop()
	for {
		queued := s.waiting()
		if err := s.stillNeeded(ctx, info); err != nil {
			return nil, err
		}
		lease, err := s.lease(ctx, w, info)
		if lease != nil || err != nil {
			return lease, err
		}
		select {
		case <-queued:
		case <-again.C:
		case <-until.C:
			return nil, nil //nolint:nilnil // there is no work
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// stillNeeded refuses a worker that was started for an attempt that will not come: it ends.
func (s *Store) stillNeeded(ctx context.Context, info Info) error {
	if info.Run == "" {
		return nil
	}
	all, err := s.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, n := range all {
		if n.ID == info.Run && n.Queued && n.Attempt == info.Attempt {
			return nil
		}
	}
	return fault.StaleLease.New("the run %q does not wait for the attempt %d", info.Run, info.Attempt)
}

// seen notes what a worker says of itself. A worker whose GPUs have no price is refused: its time could not be charged.
func (s *Store) seen(ctx context.Context, w Worker, info Info) error {
	if _, ok := s.Prices.rate(info.GPUType); !ok {
		return fault.Conflict(
			"there is no price for the GPU type %q: set training.prices in the configuration", info.GPUType,
		)
	}
	info.Run, info.Attempt = "", 0 // others of its kind can do the same
	text, err := json.Marshal(info, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("write the info of a worker: %w", err)
	}
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		_, err := db.Exec(ctx, tx.Across(ofAll), `UPDATE workers SET info = $2, seen_at = $3 WHERE id = $1`,
			w.ID, string(text), s.now())
		return err
	})
	if err != nil {
		return fmt.Errorf("note a worker: %w", err)
	}
	return nil
}

// leaseCandidates bounds the queued runs that are looked at for one lease.
const leaseCandidates = 200

// lease gives a worker the queued run that has waited longest of the workspaces that have the fewest running.
func (s *Store) lease(ctx context.Context, w Worker, info Info) (*Lease, error) {
	waiting, err := s.choose(ctx, s.DB, w, info) // workers that wait take no transaction
	if err != nil || waiting == nil {
		return nil, err
	}
	var won *Run
	var fence string
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		won = nil
		r, err := s.choose(ctx, tx, w, info)
		if err != nil || r == nil {
			return err
		}
		r.Attempt++
		if err := s.move(ctx, tx, r, Running); err != nil {
			return err
		}
		rate, _ := s.Prices.rate(info.GPUType)
		fence = rand.Text()
		now := s.now()
		if _, err := db.Exec(ctx, tx.In(r.Workspace), `
			INSERT INTO training_attempts (workspace_id, run_id, attempt, worker_id, fence, gpu_type, gpu_count, rate,
				lease_until, beat, beat_at, metered, started_at, ended_at, outcome, charge)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, 0, $10, 0, '', '')`,
			r.ID, r.Attempt, w.ID, fence, info.GPUType, r.GPUCount, int64(rate), now.Add(leaseTime), now); err != nil {
			return fmt.Errorf("insert an attempt: %w", err)
		}
		won = r
		return s.tell(ctx, tx, r, "info", fmt.Sprintf("attempt %d began on %s", r.Attempt, w.Name))
	})
	if err != nil || won == nil {
		return nil, err
	}
	return s.describe(ctx, won, fence)
}

// choose returns the run that a worker should train next, or nil.
func (s *Store) choose(ctx context.Context, from scopes, w Worker, info Info) (*Run, error) {
	type candidate struct {
		Run
		Running int64
	}
	all, err := db.Query[candidate](ctx, from.Across(ofAll), `
		SELECT (SELECT COUNT(*) FROM training_attempts a WHERE a.workspace_id = training_runs.workspace_id AND a.ended_at = 0)
			AS running, `+runColumns+`
		WHERE status = 'QUEUED' AND ($1 = '' OR workspace_id = $1) ORDER BY queued_at LIMIT $2`, w.Workspace, leaseCandidates)
	if err != nil {
		return nil, fmt.Errorf("find queued runs: %w", err)
	}
	all = slices.DeleteFunc(all, func(c candidate) bool { return !info.can(&c.Run) })
	if len(all) == 0 {
		return nil, nil //nolint:nilnil // there is no work
	}
	best := slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.Running, b.Running), cmp.Compare(a.QueuedAt, b.QueuedAt), cmp.Compare(a.ID, b.ID))
	})
	return &best.Run, nil
}

// describe returns what the worker of a run is told.
func (s *Store) describe(ctx context.Context, r *Run, fence string) (*Lease, error) {
	lease := &Lease{
		Run: r.ID, Attempt: r.Attempt, Fence: fence, Method: r.Method, BaseModel: r.BaseModel, TotalSteps: r.TotalSteps,
		Spec: jsontext.Value(r.Spec), BeatEvery: beatEvery.Seconds(), Inputs: []Source{},
	}
	inputs, err := r.Inputs()
	if err != nil {
		return nil, fmt.Errorf("read the spec of a run: %w", err)
	}
	for _, in := range inputs {
		from, err := s.Artifacts.Download(ctx, r.Workspace, in.File)
		if err != nil {
			return nil, err
		}
		lease.Inputs = append(lease.Inputs, Source{in.Name, in.File, from})
	}
	last, err := s.lastCheckpoint(ctx, s.DB.In(r.Workspace), r.ID)
	if err != nil {
		return nil, err
	}
	if last != nil {
		point := &ResumePoint{Step: last.Step}
		for _, f := range last.Files {
			from, err := s.Artifacts.Download(ctx, r.Workspace, f.File)
			if err != nil {
				return nil, err
			}
			point.Files = append(point.Files, Source{f.Name, f.File, from})
		}
		lease.ResumeFrom = point
	}
	if hook := s.hooks[r.Kind].Secrets; hook != nil {
		if lease.Secrets, err = hook(ctx, *r); err != nil {
			return nil, err
		}
	}
	return lease, nil
}

// A LeaseRef identifies a lease by its run, attempt and fence.
type LeaseRef struct {
	RunID   string `path:"id"`
	Attempt int64  `query:"attempt" minimum:"1"`
	Fence   string `query:"fence" maxLength:"64"`
}

// scopes is a database or a transaction.
type scopes interface {
	In(ws tenant.ID) db.Scoped
	Across(reason string) db.Scoped
}

// held returns the attempt and the run of a lease. A lease that was lost or has ended is refused with 409: the worker
// stops, since another one may train the run by now.
func (s *Store) held(ctx context.Context, from scopes, w Worker, h LeaseRef) (*Run, *attempt, error) {
	a, err := db.Maybe[attempt](ctx, from.Across(ofAll), `SELECT `+attemptColumns+`
		WHERE run_id = $1 AND attempt = $2 AND worker_id = $3 AND fence = $4`, h.RunID, h.Attempt, w.ID, h.Fence)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("find an attempt: %w", err)
	case a == nil:
		return nil, nil, fault.StaleLease.New("this worker has no lease of %q with that attempt and fence", h.RunID)
	}
	r, err := db.One[Run](
		ctx, from.In(a.Workspace), `SELECT `+runColumns+` WHERE workspace_id = $1 AND id = $2`, a.RunID,
	)
	if err != nil {
		return nil, nil, fmt.Errorf("find the run of an attempt: %w", err)
	}
	return &r, a, nil
}

// running is held, of a lease that has not ended.
func (s *Store) running(ctx context.Context, from scopes, w Worker, h LeaseRef) (*Run, *attempt, error) {
	r, a, err := s.held(ctx, from, w, h)
	if err == nil && a.EndedAt != 0 {
		return nil, nil, fault.StaleLease.New("the lease has ended: %s", a.Outcome)
	}
	return r, a, err
}
