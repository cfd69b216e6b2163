// Package pool serves trained models (ft/…) with engines of the operator. Versions of one base model share an engine,
// which loads them on demand; a version with whole weights, or of an engine that loads none, gets an engine of its own.
// Engines start with the first request and stop when nobody asks.
package pool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/train"
	"sovereign/internal/live"
	"sovereign/internal/plane/engines"
	"sovereign/internal/store/db"
)

// Config is what a pool needs.
type Config struct {
	DB       *db.DB
	Own      *live.OwnModels
	Registry *engines.Registry
	Groups   *serving.Groups // of the registry; nil for the only server
	Backend  serving.Backend
	Folders  Folders
	Engine   serving.Engine // the template
	GPUType  string
	Slots    int // versions that an engine holds at once; and engines of one version that run at once
	Price    live.Price
	Context  int64         // tokens of a request with its answer
	Wait     time.Duration // how long a request waits for an engine
	Idle     time.Duration // after which an engine is stopped
	Log      *slog.Logger
}

// Folders brings the files of versions to where engines read them.
type Folders interface {
	// Get returns the folder of a version's files. It is kept until release is called.
	Get(ctx context.Context, ws tenant.ID, versionID string) (folder string, release func(), err error)
}

// A Pool is the engines that serve trained models. Its publisher says which models there are.
type Pool struct {
	Config
	woken chan struct{} // something is to be done

	mu       sync.Mutex
	versions map[string]*version           // by id
	models   map[tenant.ID]map[string]bool // the ids that are published
	units    map[string]*unit              // by name
	now      func() time.Time
	pins     *pins // where several nodes share engines; nil for the only server
}

// New returns a pool without models.
func New(c Config) *Pool {
	if c.Groups == nil {
		c.Groups = serving.NewGroups(serving.GroupsConfig{DB: c.DB, Registry: c.Registry, Log: c.Log})
	}
	p := &Pool{
		Config: c, woken: make(chan struct{}, 1), versions: map[string]*version{}, models: map[tenant.ID]map[string]bool{},
		units: map[string]*unit{}, now: time.Now,
	}
	if c.Groups.Node() != "" {
		p.pins = newPins(p)
	}
	return p
}

// A version is a trained model as the table has it.
type version struct {
	WorkspaceID tenant.ID
	ID, Name    string
	BaseModel   string
	Files       train.Manifest
	CreatedAt   clock.Time
}

// whole reports whether the version has whole weights, which no running engine loads. The models of the engine small
// have neither, and are loaded.
func (v *version) whole() bool {
	weights := false
	for _, f := range v.Files {
		if f.Name == "adapter_config.json" {
			return false
		}
		weights = weights || strings.HasSuffix(f.Name, ".safetensors")
	}
	return weights
}

// A unit is an engine of the pool: of a base model with the versions that it loads, or of one version.
type unit struct {
	name    string // of its deployment and its group
	base    string
	version *version // nil for an engine that loads versions
	group   *engines.Group

	wanted bool // a request waits; under the lock of the pool

	// What the loop alone knows.
	failures int       // engines that ended before they were ready, in a row
	failed   time.Time // when it was given up; zero while it may be started
	failure  error     // why its requests are refused; nil if there may be an engine soon
	leaving  bool      // it makes room for another
	since    time.Time // the engine is ready since
	folder   string    // of the version
	release  func()    // lets go of it; nil while nothing runs

	mu     sync.Mutex
	loaded map[string]*adapterCache // by replica
}

// prefix begins the names of the pool's deployments.
const prefix = "pool-"

// unitName names the deployment of a base model or a version: a DNS label that is the same after a restart.
func unitName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return prefix + hex.EncodeToString(sum[:12])
}

// unit returns the engine that serves a version, or a base model where v is nil. The caller holds the lock.
func (p *Pool) unit(base string, v *version) *unit {
	of, own := "base "+base, v
	if v != nil && p.Engine.Adapters == serving.AdaptersLoad && !v.whole() {
		own = nil
	}
	if own != nil {
		of = "version " + v.ID
	}
	name := unitName(of)
	u := p.units[name]
	if u == nil {
		u = &unit{name: name, base: base, version: own, loaded: map[string]*adapterCache{}}
		config := engines.GroupConfig{Name: name, Wait: p.Wait, Wake: func() { p.wake(u) }}
		if own == nil && p.Engine.Adapters == serving.AdaptersLoad {
			config.Prepare = func(ctx context.Context, r engines.Replica, model string) (func(), error) {
				return p.prepare(ctx, u, r, model)
			}
		}
		u.group = p.Registry.Open(config)
		p.units[name] = u
	}
	return u
}

// wake asks for an engine. It does not block.
func (p *Pool) wake(u *unit) {
	p.mu.Lock()
	u.wanted = true
	p.mu.Unlock()
	p.look()
	p.Groups.Wake()
}

// look has the loop look at all engines.
func (p *Pool) look() {
	select {
	case p.woken <- struct{}{}:
	default: // it is about to
	}
}

// spec returns what runs of a unit.
func (p *Pool) spec(u *unit) serving.Spec {
	s := serving.Spec{
		Name: u.name, Engine: p.Engine.Name, BaseModel: u.base, Model: u.base, GPUType: p.GPUType, Replicas: 1,
		Folder: u.folder,
	}
	if p.GPUType != serving.CPU {
		s.GPUCount = 1
	}
	switch {
	case u.version != nil:
		s.Workspace, s.Version, s.Model = u.version.WorkspaceID, u.version.ID, u.version.ID
	case p.Engine.Adapters == serving.AdaptersLoad:
		s.Adapters = p.Slots
	}
	return s
}
