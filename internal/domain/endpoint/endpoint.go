// Package endpoint serves a model on engines that are one workspace's alone: dedicated endpoints. An endpoint has as
// many replicas as its use needs, down to none. What its engines run is paid by the second, from named holds of the
// endpoint.
package endpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/train"
	"sovereign/internal/live"
)

// object is what an endpoint is called on the wire, in the audit trail, and as the kind of its holds and usage rows.
const object = "dedicated_endpoint"

// A Status is the state of an endpoint.
type Status string

// The states.
const (
	Pending  Status = "PENDING"  // asked for; nothing runs
	Starting Status = "STARTING" // its first engine loads
	Running  Status = "RUNNING"  // an engine was ready; it may have scaled to zero since
	Stopping Status = "STOPPING" // its engines end
	Stopped  Status = "STOPPED"
	Failed   Status = "FAILED" // its engines cannot be started
)

// next lists the states that follow each state.
var next = map[Status][]Status{
	Pending:  {Starting, Stopping, Failed},
	Starting: {Running, Stopping, Failed},
	Running:  {Stopping, Failed},
	Stopping: {Stopped},
	Stopped:  {Pending},
	Failed:   {Pending, Stopped},
}

// May reports whether an endpoint may move from one state to another.
func (s Status) May(to Status) bool { return slices.Contains(next[s], to) }

// Serves reports whether engines run in the state, or are started when a request comes.
func (s Status) Serves() bool { return s == Pending || s == Starting || s == Running }

// The codes of an endpoint's error.
const (
	codeEngine  = "engine_failed"
	codeWaits   = "engine_waits"
	codeBalance = "insufficient_balance"
)

// A Request is what an endpoint is asked for.
type Request struct {
	Name           string     `json:"name" doc:"For people; the routing key begins with it"`
	BaseModel      string     `json:"baseModel,omitempty" doc:"A base model that an engine of the server serves"`
	ModelVersionID string     `json:"modelVersionId,omitempty" doc:"A trained version, instead of a base model"`
	GPUType        string     `json:"gpuType,omitempty" doc:"One of the prices of the server; by default the engine's first"`
	GPUCount       int64      `json:"gpuCount,omitempty" default:"1" minimum:"1" maximum:"64" doc:"Of one replica"`
	MinReplicas    int64      `json:"minReplicas,omitempty" default:"0" minimum:"0" maximum:"64" doc:"0 scales to zero when idle"`
	MaxReplicas    int64      `json:"maxReplicas,omitempty" default:"1" minimum:"1" maximum:"64"`
	IdleTimeout    int64      `json:"idleTimeoutSeconds,omitempty" default:"300" minimum:"1" maximum:"604800" doc:"Without a request, before it scales to zero"`
	MaxHourly      money.Nano `json:"maxHourlyUsd,omitempty" doc:"What an hour may cost with all replicas; by default what it costs now"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Request) SchemaName() string { return "DedicatedEndpointRequest" }

// defaults fills in what was not given.
func (r *Request) defaults() {
	r.GPUCount = cmp.Or(r.GPUCount, 1)
	r.MaxReplicas = cmp.Or(r.MaxReplicas, max(r.MinReplicas, 1))
	r.IdleTimeout = cmp.Or(r.IdleTimeout, 300)
}

// Check reports the first rule that a request breaks, naming the field.
func (r *Request) Check() error {
	switch {
	case strings.TrimSpace(r.Name) == "" || len([]rune(r.Name)) > 64:
		return fault.Invalid("name", "must be 1 to 64 characters")
	case (r.BaseModel == "") == (r.ModelVersionID == ""):
		return fault.Invalid("baseModel", "or modelVersionId must be given, and not both")
	case r.MaxHourly < 0:
		return fault.Invalid("maxHourlyUsd", "must be 0 or more")
	}
	if err := train.CheckBounds(
		train.Within("gpuCount", float64(r.GPUCount), 1, 64),
		train.Within("minReplicas", float64(r.MinReplicas), 0, 64),
		train.Within("maxReplicas", float64(r.MaxReplicas), 1, 64),
		train.Within("idleTimeoutSeconds", float64(r.IdleTimeout), 1, 604800),
	); err != nil {
		return err
	}
	if r.MinReplicas > r.MaxReplicas {
		return fault.Invalid("minReplicas", "must be at most maxReplicas")
	}
	return nil
}

// An Endpoint is a dedicated endpoint as the API shows it.
type Endpoint struct {
	ID             string      `json:"id"`
	Object         string      `json:"object" enum:"dedicated_endpoint"`
	Name           string      `json:"name"`
	RoutingKey     string      `json:"routing_key"`
	Model          string      `json:"model" doc:"What requests name as their model: dedicated/ and the routing key"`
	Status         Status      `json:"status" enum:"PENDING,STARTING,RUNNING,STOPPING,STOPPED,FAILED"`
	BaseModel      string      `json:"base_model"`
	ModelVersionID *string     `json:"model_version_id"`
	GPUType        string      `json:"gpu_type"`
	GPUCount       int64       `json:"gpu_count" doc:"Of one replica"`
	Replicas       int64       `json:"replicas" doc:"That are ready now; 0 while it is idle"`
	MinReplicas    int64       `json:"min_replicas"`
	MaxReplicas    int64       `json:"max_replicas"`
	IdleTimeout    int64       `json:"idle_timeout_seconds"`
	Hourly         money.Nano  `json:"hourly_usd" doc:"What an hour of one replica costs"`
	MaxHourly      money.Nano  `json:"max_hourly_usd" doc:"What an hour may cost with all replicas"`
	Spent          money.Nano  `json:"spent_usd" doc:"As the ledger says"`
	LastUsedAt     *clock.Time `json:"last_used_at"`
	Error          *Problem    `json:"error"`
	CreatedAt      clock.Time  `json:"created_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Endpoint) SchemaName() string { return "DedicatedEndpoint" }

// A Problem is why an endpoint has stopped, failed, or waits.
type Problem struct {
	Code    string   `json:"code" enum:"engine_failed,engine_waits,insufficient_balance"`
	Message string   `json:"message"`
	Lines   []string `json:"lines" nullable:"false" doc:"The last lines that the engine wrote, at most 100"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Problem) SchemaName() string { return "DedicatedEndpointProblem" }

// A record is an endpoint as the table has it.
type record struct {
	Workspace      tenant.ID `db:"workspace_id"`
	ID             string
	Name           string
	RoutingKey     string
	Status         Status
	BaseModel      string
	ModelVersionID string `db:"model_version_id"`
	Engine         string
	GPUType        string `db:"gpu_type"`
	GPUCount       int64  `db:"gpu_count"`
	MinReplicas    int64
	MaxReplicas    int64
	IdleTimeout    int64      // seconds
	MaxHourly      money.Nano // the most that all replicas together may cost
	Price          money.Nano // of an hour of one GPU, when it was started
	Wanted         int64      // replicas that shall run
	Failures       int64      // lives that ended by themselves, since one lasted
	FailedAt       clock.Time // when the last of them did
	QuietAt        clock.Time // since when fewer replicas would do; 0 while they are needed
	HoldID         string     // that its engines are paid from; empty for none
	Holds          int64      // that it has had
	ErrorCode      string
	ErrorMessage   string
	ErrorLines     string
	LastUsedAt     clock.Time
	CreatedAt      clock.Time
	StartedAt      clock.Time // when it was last told to start
	DeletedAt      clock.Time // 0 until then
	Active         bool       // something runs, or is not charged yet
	Revision       int64      // counts the changes of the row
}

// deployment is the name of what runs of an endpoint.
func (r *record) deployment() string {
	return prefix + strings.ToLower(strings.TrimPrefix(r.ID, idPrefix+"_"))
}

const (
	idPrefix = "dep"
	prefix   = "ep-" // of the names of what endpoints run
)

// model is the id that requests name.
func (r *record) model() string { return live.DedicatedPrefix + r.RoutingKey }

// cost returns what one replica costs in so many seconds.
func (r *record) cost(seconds int64) money.Nano {
	return live.Rates{GPUSecond: train.Rate(r.Price)}.Of(live.Usage{GPUSeconds: seconds * r.GPUCount})
}

// most returns what all replicas can cost in a time.
func (r *record) most(d time.Duration) money.Nano {
	return r.cost(int64(d.Seconds())) * money.Nano(r.MaxReplicas)
}

// hourly returns what an hour of one replica costs.
func (r *record) hourly() money.Nano { return r.Price * money.Nano(r.GPUCount) }

// checkPrice refuses an endpoint whose replicas may cost more than its owner allows.
func (r *record) checkPrice() error {
	if all := r.hourly() * money.Nano(r.MaxReplicas); all > r.MaxHourly {
		return fault.Invalid("maxHourlyUsd", fmt.Sprintf("is %s, and %d replicas with %d %s each cost $%s an hour",
			r.MaxHourly, r.MaxReplicas, r.GPUCount, r.GPUType, all))
	}
	return nil
}

// problem sets why an endpoint does not serve.
func (r *record) problem(code, message string, lines []string) {
	r.ErrorCode, r.ErrorMessage, r.ErrorLines = code, message, strings.Join(lines, "\n")
}

// shown returns an endpoint as the API shows it.
func (r *record) shown() Endpoint {
	e := Endpoint{
		ID: r.ID, Object: object, Name: r.Name, RoutingKey: r.RoutingKey, Model: r.model(), Status: r.Status,
		BaseModel: r.BaseModel, GPUType: r.GPUType, GPUCount: r.GPUCount, MinReplicas: r.MinReplicas,
		MaxReplicas: r.MaxReplicas, IdleTimeout: r.IdleTimeout, Hourly: r.hourly(), MaxHourly: r.MaxHourly,
		CreatedAt: r.CreatedAt,
	}
	if r.ModelVersionID != "" {
		e.ModelVersionID = &r.ModelVersionID
	}
	if r.LastUsedAt != 0 {
		e.LastUsedAt = &r.LastUsedAt
	}
	if r.ErrorCode != "" {
		e.Error = &Problem{Code: r.ErrorCode, Message: r.ErrorMessage, Lines: []string{}}
		if r.ErrorLines != "" {
			e.Error.Lines = strings.Split(r.ErrorLines, "\n")
		}
	}
	return e
}
