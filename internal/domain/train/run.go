// Package train gives work to trainers. A run is trained by workers, one after another: a worker leases it, sends
// heartbeats, events and checkpoints, and says how it ended. A worker that is lost is replaced by another, which goes
// on from the last checkpoint. The time between accepted heartbeats is metered, and paid from the run's named hold.
//
// What is trained, and what becomes of it, is known by the domains whose runs these are: fine-tuning jobs, GRPO runs,
// RAFT rounds. They create runs, and are told of their checkpoints and their end (Hooks).
package train

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
)

// A Status is the state of a run.
type Status string

// The states.
const (
	Validating Status = "VALIDATING" // its data is being prepared
	Queued     Status = "QUEUED"     // waits for a worker
	Running    Status = "RUNNING"
	Paused     Status = "PAUSED" // has a checkpoint, and waits for somebody to let it go on
	Succeeded  Status = "SUCCEEDED"
	Failed     Status = "FAILED"
	Cancelled  Status = "CANCELLED"
)

// next lists the states that follow each state. A running run is queued again when its worker is lost.
var next = map[Status][]Status{
	Validating: {Queued, Failed, Cancelled},
	Queued:     {Running, Paused, Failed, Cancelled},
	Running:    {Queued, Paused, Succeeded, Failed, Cancelled},
	Paused:     {Queued, Failed, Cancelled},
	Succeeded:  {},
	Failed:     {},
	Cancelled:  {},
}

// May reports whether a run may move from one state to another.
func (s Status) May(to Status) bool { return slices.Contains(next[s], to) }

// Final reports whether nothing follows the state.
func (s Status) Final() bool { return len(next[s]) == 0 }

// A Wanted is what a running run shall do next, other than go on.
type Wanted string

// What may be wanted.
const (
	GoOn   Wanted = ""
	Pause  Wanted = "pause"  // save a checkpoint, and wait
	Cancel Wanted = "cancel" // end now
	Broke  Wanted = "broke"  // save a checkpoint, and end: the budget is spent
)

// A Command is the answer to a heartbeat.
type Command string

// The commands.
const (
	Continue          Command = "continue"
	CheckpointAndStop Command = "checkpoint_and_stop"
	Stop              Command = "stop"
)

// commands is what a worker is told when something is wanted of its run.
var commands = map[Wanted]Command{GoOn: Continue, Pause: CheckpointAndStop, Cancel: Stop, Broke: CheckpointAndStop}

// A Run is work for a worker.
type Run struct {
	Workspace    tenant.ID `db:"workspace_id"`
	ID           string
	Kind         string // of the domain that it belongs to
	Status       Status
	Method       string
	BaseModel    string
	Spec         string // what the worker is told, as JSON
	GPUType      string `db:"gpu_type"` // empty for any
	GPUCount     int64  `db:"gpu_count"`
	Budget       money.Nano
	Wanted       Wanted
	PausedReason string
	Attempt      int64 // 0 until a worker has leased it
	Lost         int64 // workers in a row that left no new checkpoint
	Step         int64
	TotalSteps   int64
	Tokens       int64
	Events       int64
	ErrorCode    string
	ErrorMessage string
	CreatedAt    clock.Time
	QueuedAt     clock.Time
	StartedAt    clock.Time // 0 until then
	FinishedAt   clock.Time // 0 until then
	Settled      bool       // everything is charged, and the hold has ended
}

// Progress returns how far a run is, from 0 to 1.
func (r *Run) Progress() float64 {
	if r.Status == Succeeded {
		return 1
	}
	return min(float64(r.Step)/float64(max(r.TotalSteps, 1)), 1)
}

// A New is a run to be created.
type New struct {
	ID         string
	Kind       string
	Method     string
	BaseModel  string
	Spec       any // as JSON
	GPUType    string
	GPUCount   int64
	Budget     money.Nano
	TotalSteps int64
	Status     Status // Validating or Queued
}

// A Spec is what every worker is told of a run; the spec of a kind embeds it.
type Spec struct {
	Inputs []Input `json:"inputs" nullable:"false" doc:"Files that the run reads"`
}

// An Input is a file that a run reads.
type Input struct {
	Name string `json:"name"`
	artifact.File
}

// ModelPrefix begins the names of inputs that are the files of a model version: the run begins with its weights.
const ModelPrefix = "model/"

// Inputs returns the files that a run reads.
func (r *Run) Inputs() ([]Input, error) {
	var spec Spec
	err := decodeLoosely([]byte(r.Spec), &spec)
	return spec.Inputs, err
}

// A Checkpoint is a state of a run from which another worker can go on.
type Checkpoint struct {
	ID        string
	RunID     string
	Step      int64
	Attempt   int64
	Files     Manifest
	Digest    artifact.Digest
	Bytes     int64
	Metrics   jsontext.Value
	CreatedAt clock.Time
}

// Hooks are what the domain of a kind does with its runs. Every field may be nil.
type Hooks struct {
	// Secrets returns what a worker needs to know beside the spec, such as a token to score with. It is not stored.
	Secrets func(ctx context.Context, r Run) (map[string]string, error)
	// Look returns what is wanted of a running run, and why.
	Look func(ctx context.Context, r Run) (w Wanted, reason string, err error)
	// Checkpointed is called in the transaction that commits a checkpoint.
	Checkpointed func(ctx context.Context, tx *db.Tx, r Run, c Checkpoint) error
	// Ended is called in the transaction in which a run reaches a final state.
	Ended func(ctx context.Context, tx *db.Tx, r Run) error
}
