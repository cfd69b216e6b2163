// Package serving runs engines: programs that serve a model by OpenAI's API, on this machine or in a cluster. Dedicated
// endpoints and the pool of trained models say what is to run; a backend makes it so.
package serving

import (
	"context"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
)

// A Spec is what is to run. A backend keeps as many replicas of it as it says. A spec with the name of another replaces
// it.
type Spec struct {
	Name      string    // unique on the server, a DNS label: lower-case letters, digits and dashes, at most 40
	Workspace tenant.ID // empty for what serves all of them
	Engine    string    // the name of a template
	BaseModel string
	Version   string // the id of a model version; empty for the base model
	Folder    string // where the version's files are, on the machine of the server; empty for the base model
	Model     string // the name that requests call it by
	GPUType   string
	GPUCount  int
	Adapters  int // how many further versions its engine is to hold beside the base model; 0 for none
	Replicas  int
}

// A Phase is how far a replica has come.
type Phase string

// The phases.
const (
	Starting Phase = "starting" // its engine loads
	Ready    Phase = "ready"    // its engine says that it is healthy
	Ended    Phase = "ended"    // its engine has exited, or was stopped
)

// A Replica is one life of an engine: a process, or the container of a pod. A restart is another replica.
type Replica struct {
	ID        string // unique for all time
	Phase     Phase
	BaseURL   string     // of its API; empty before it is known
	StartedAt clock.Time // when the engine began to run, by its own machine
	ReadyAt   clock.Time // 0 before
	EndedAt   clock.Time // 0 while it runs, and when nobody saw the end
	Asked     bool       // it was told to end
	Reason    string     // why it ended, for people
	Lines     []string   // the last lines that it wrote, at most 100, cleaned of control characters and credentials
}

// A Deployment is what runs of a spec.
type Deployment struct {
	Spec     Spec
	Replicas []Replica // that run, and those that ended since the last Forget
	Problem  string    // why replicas cannot be started, for people: no GPU is free, the image cannot be pulled
}

// A Backend runs engines. It survives a restart of the server: what it ran before, it lists and manages after.
type Backend interface {
	// Apply makes what runs what the spec says. It is idempotent, and returns before the replicas are ready. A replica
	// that ends by itself is replaced, after a pause that grows with the failures in a row. Replicas that are too many
	// are drained by their caller before: those that are not ready are ended first, and then those that started last. A
	// spec that differs in more than its number of replicas replaces all of them.
	Apply(ctx context.Context, s Spec) error
	// Remove ends the replicas of a name. It is idempotent. When nothing runs, and what ended is forgotten, the name is
	// not listed any more.
	Remove(ctx context.Context, name string) error
	// List returns everything that the backend runs, also what nobody asked for since the start.
	List(ctx context.Context) ([]Deployment, error)
	// Forget lets go of a replica that has ended, when its end is recorded.
	Forget(ctx context.Context, name, replica string) error
	// Changed is signalled when List may answer otherwise than before.
	Changed() <-chan struct{}
	// Close ends what the backend does in this process. Engines go on.
	Close()
}
