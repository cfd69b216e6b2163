package endpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/train"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/live"
	"sovereign/internal/plane/engines"
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
	Holds     *wallet.Holds
	Till      *till.Till
	Drain     func(context.Context) error // posts what was settled before it is called
	Artifacts *artifact.Store
	Versions  *modelversion.Store
	Prices    train.Prices

	Own      *live.OwnModels
	Registry *engines.Registry
	Groups   *serving.Groups // of the registry; nil for the only server
	Backend  serving.Backend // nil on a server that runs no engines
	Engines  serving.Engines // of the server, for people who choose one
	// Choose returns the engine that serves a base model, and the GPU type when none was asked for.
	Choose  func(baseModel, gpuType string) (engine, gpu string, err error)
	Folders Folders
	Log     *slog.Logger
}

// A Store keeps dedicated endpoints, and looks after their engines.
type Store struct {
	Config
	now     func() clock.Time
	woken   chan struct{}
	charged map[string]bool // charges that the journal has, and perhaps not the ledger; of one loop
	term    serving.Term    // in which the loop leads
	files   files
}

// NewStore returns a store.
func NewStore(c Config) *Store {
	if c.Groups == nil {
		c.Groups = serving.NewGroups(serving.GroupsConfig{DB: c.DB, Registry: c.Registry, Log: c.Log})
	}
	return &Store{
		Config: c, now: clock.Now, woken: make(chan struct{}, 1), charged: map[string]bool{},
		files: files{all: map[string]*fetch{}},
	}
}

// topic is signalled when there is something to look at.
const topic = "dedicated endpoints"

// wakeAfter has the leading node look at all endpoints when a transaction has committed.
func (s *Store) wakeAfter(tx *db.Tx) {
	tx.Signal(topic)
	tx.OnEnd(func(o db.Outcome) {
		if o == db.InDoubt {
			s.wake()
		}
	})
}

// fenced runs a transaction of the loop. It fails when another node may lead since the loop began its round.
func (s *Store) fenced(ctx context.Context, fn func(*db.Tx) error) func(*db.Tx) error {
	return func(tx *db.Tx) error {
		if err := s.Groups.Fence(ctx, tx, s.term); err != nil {
			return err
		}
		return fn(tx)
	}
}

var notInKey = regexp.MustCompile(`[^a-z0-9]+`)

// newKey makes a routing key of a name: it says what it is, and cannot be guessed.
func newKey(name string) string {
	readable := strings.Trim(notInKey.ReplaceAllString(strings.ToLower(name), "-"), "-")
	readable = strings.Trim(readable[:min(len(readable), 30)], "-")
	if readable == "" {
		readable = "endpoint"
	}
	return readable + "-" + strings.ToLower(rand.Text()[:16])
}

// Create makes an endpoint and starts it. What an hour with all replicas costs is set aside from the wallet.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, in Request) (Endpoint, error) {
	if s.Backend == nil {
		return Endpoint{}, fault.Invalid("baseModel",
			"cannot be served: the operator has configured no engine (serving.engines of the server's configuration)")
	}
	in.defaults()
	if err := in.Check(); err != nil {
		return Endpoint{}, err
	}
	now := s.now()
	made := record{
		Workspace: ws, ID: id.New(idPrefix), Name: in.Name, RoutingKey: newKey(in.Name), Status: Pending,
		GPUType: in.GPUType, GPUCount: in.GPUCount, MinReplicas: in.MinReplicas, MaxReplicas: in.MaxReplicas,
		IdleTimeout: in.IdleTimeout, MaxHourly: in.MaxHourly, CreatedAt: now, StartedAt: now, Active: true, Revision: 1,
	}
	err := s.Feed.Change(ctx, func(tx *db.Tx) error {
		name := in.BaseModel
		if in.ModelVersionID != "" {
			name = in.ModelVersionID
		}
		start, err := s.Versions.Start(ctx, tx.In(ws), name)
		switch {
		case err != nil:
			return err
		case in.ModelVersionID != "" && start.ParentID == "":
			return fault.NotFound("model version", in.ModelVersionID)
		}
		made.BaseModel, made.ModelVersionID = start.BaseModel, start.ParentID
		if err := s.priced(&made, in.MaxHourly == 0); err != nil {
			return err
		}
		made.HoldID, made.Holds = "", 0 // the transaction may run again
		if err := s.openHold(ctx, tx, &made, made.most(holdFor)); err != nil {
			return err
		}
		if err := insert(ctx, tx.In(ws), by, &made); err != nil {
			return err
		}
		if err := s.Versions.Refer(ctx, tx, ws, made.ID, start); err != nil {
			return err
		}
		tx.Touch(changed, ws, made.ID)
		s.wakeAfter(tx)
		return audit.Record(ctx, tx, ws, by, object+".create", made.ID, nil, made.shown())
	})
	return made.shown(), err
}

// priced sets the engine and the price of an endpoint, and checks that its owner allows it.
func (s *Store) priced(r *record, bound bool) error {
	engine, gpu, err := s.Choose(r.BaseModel, r.GPUType)
	if err != nil {
		return err
	}
	price, ok := s.Prices[gpu]
	if !ok {
		return fault.Invalid("gpuType", fmt.Sprintf("%q has no price on this server", gpu))
	}
	r.Engine, r.GPUType, r.Price = engine, gpu, price
	if bound {
		r.MaxHourly = r.hourly() * money.Nano(r.MaxReplicas)
	}
	return r.checkPrice()
}

// Get reads an endpoint.
func (s *Store) Get(ctx context.Context, ws tenant.ID, endpointID string) (Endpoint, error) {
	in := s.DB.In(ws)
	r, err := find(ctx, in, endpointID)
	if err != nil {
		return Endpoint{}, err
	}
	shown, err := s.shownAll(ctx, in, []record{r})
	if err != nil {
		return Endpoint{}, err
	}
	return shown[0], nil
}

// List reads endpoints, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Endpoint, error) {
	all, err := list(ctx, s.DB.In(ws), limit, offset)
	if err != nil {
		return nil, err
	}
	return s.shownAll(ctx, s.DB.In(ws), all)
}

// Start starts an endpoint that has stopped or failed, at the present price. One that runs is left as it is.
func (s *Store) Start(ctx context.Context, ws tenant.ID, by tenant.Actor, endpointID string) (Endpoint, error) {
	return s.alter(ctx, ws, by, endpointID, "start", func(tx *db.Tx, r *record) error {
		switch {
		case r.Status.Serves():
			return errAsIs
		case r.Active:
			return fault.Conflict("the endpoint is %s, and its engines have not ended yet: try again", r.Status)
		case s.Backend == nil:
			return fault.Conflict("the operator has configured no engine")
		}
		if err := s.priced(r, false); err != nil {
			return err
		}
		r.Status, r.Active, r.StartedAt, r.Failures, r.FailedAt = Pending, true, s.now(), 0, 0
		r.problem("", "", nil)
		return s.openHold(ctx, tx, r, r.most(holdFor))
	})
}

// Stop ends an endpoint's engines, when they have answered what they are asked now. To stop it again is a no-op.
func (s *Store) Stop(ctx context.Context, ws tenant.ID, by tenant.Actor, endpointID string) (Endpoint, error) {
	return s.alter(ctx, ws, by, endpointID, "stop", func(_ *db.Tx, r *record) error {
		switch {
		case r.Status == Failed && !r.Active:
			r.Status = Stopped
		case !r.Status.Serves():
			return errAsIs
		default:
			r.Status = Stopping
		}
		return nil
	})
}

// Delete deletes an endpoint: its routing key is unknown at once, and its engines end.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, endpointID string) error {
	_, err := s.alter(ctx, ws, by, endpointID, "delete", func(_ *db.Tx, r *record) error {
		if r.Status.Serves() {
			r.Status = Stopping
		}
		r.DeletedAt, r.Active = s.now(), true // the loop removes the row when nothing runs
		return nil
	})
	return err
}

// errAsIs ends a change that has nothing to change.
var errAsIs = errors.New("nothing changes")

// alter changes an endpoint, audited, and is in force when it returns.
func (s *Store) alter(
	ctx context.Context, ws tenant.ID, by tenant.Actor, endpointID, action string, edit func(*db.Tx, *record) error,
) (Endpoint, error) {
	deleted := false
	err := s.Feed.Change(ctx, func(tx *db.Tx) error {
		before, err := find(ctx, tx.In(ws), endpointID)
		if err != nil {
			return err
		}
		after := before
		if err := edit(tx, &after); err != nil {
			return err
		}
		if err := update(ctx, tx, &before, &after); err != nil {
			return err
		}
		s.wakeAfter(tx)
		deleted = after.DeletedAt != 0
		return audit.Record(ctx, tx, ws, by, object+"."+action, endpointID, before.shown(), after.shown())
	})
	switch {
	case err != nil && !errors.Is(err, errAsIs):
		return Endpoint{}, err
	case deleted:
		return Endpoint{}, nil
	}
	return s.Get(ctx, ws, endpointID)
}

// ListAll reads the endpoints of all workspaces, the newest first.
func (s *Store) ListAll(ctx context.Context, limit, offset int) ([]Owned, error) {
	rows, err := listAll(ctx, s.DB, limit, offset)
	if err != nil {
		return nil, err
	}
	all := make([]Owned, len(rows))
	for i, r := range rows {
		shown, err := s.shownAll(ctx, s.DB.In(r.Workspace), []record{r})
		if err != nil {
			return nil, err
		}
		all[i] = Owned{r.Workspace, shown[0]}
	}
	return all, nil
}
