// Package app wires the server together and runs it: configuration, storage, routers, listeners, signals, and the
// command line. It is the one package that imports all others.
package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"sovereign/internal/domain/billing"
	"sovereign/internal/domain/catalog"
	"sovereign/internal/domain/notify"
	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/serving/kube"
	"sovereign/internal/domain/train"
	"sovereign/internal/live"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/cluster"
)

// An instance is everything that stands on one storage: locked, migrated, filled, with its routers. The server serves
// it on sockets; an admin command without a server uses the same instance, in its own process.
//
// Its parts are opened in the order in which they stand here. Each uses those before it.
type instance struct {
	log *slog.Logger

	payments billing.Config
	mail     notify.Mail
	site     string // where people reach the server; empty for unknown

	gpuPrices train.Prices
	offers    []train.Info       // what workers can train that are started when there is work
	trainer   *kube.Trainer      // starts them in a cluster; nil for none
	bucket    *artifact.S3Config // nil to keep artifacts in the data folder
	artifacts *artifact.Store

	serving   Serving
	templates serving.Engines
	engines   serving.Backend  // nil without a configured engine
	groups    *serving.Groups  // of engines, which the data planes of all nodes use
	folders   *serving.Folders // the files of versions that engines serve

	storage storage
	models  models
	state   state
	plane   plane
	dash    dash
	domains domains
	routers routers

	member     *cluster.Member // this process among the servers of its database
	failed     chan error      // why the server must stop
	leaving    chan struct{}   // an operator has asked it to stop
	draining   atomic.Bool     // stopping: served, but not ready for more
	background background
}

// open takes the data and makes it ready. It either returns an instance or leaves everything as it was, so that a start
// that cannot succeed changes nothing.
func open(
	ctx context.Context, c *Config, mode openMode, log *slog.Logger, tracer trace.Tracer,
) (i *instance, err error) {
	allowed, err := prefixes("guard_allow", c.GuardAllow)
	if err != nil {
		return nil, err
	}
	i = &instance{
		log: log, failed: make(chan error, 1), leaving: make(chan struct{}, 1),
		storage: storage{config: c.Storage, log: log}, models: models{guard: netguard.New(allowed)},
	}
	i.payments, i.mail, i.site, i.serving = c.payments(), c.mail(), c.site(), c.Serving
	if i.gpuPrices, err = c.Training.prices(); err != nil {
		return nil, err
	}
	if i.bucket, err = c.Training.bucket(); err != nil {
		return nil, err
	}
	i.offers = c.Kubernetes.offers()
	needs := func(ctx context.Context) ([]train.Need, error) { return i.domains.trainer.Unfinished(ctx) }
	if i.trainer, err = c.Kubernetes.trainer(needs, i.leadsTraining, log); err != nil {
		return nil, err
	}
	if i.templates, err = c.Serving.templates(); err != nil {
		return nil, err
	}
	defer func() { //nolint:contextcheck // what is given back does not depend on the caller
		if err != nil {
			i.takeBack()
		}
	}()
	if err := i.storage.open(ctx, mode); err != nil {
		return i, err
	}
	if err := i.models.load(c); err != nil {
		return i, err
	}
	if warning := catalog.Old(time.Now()); warning != "" {
		log.Warn(warning)
	}
	if err := i.state.prepare(&i.storage); err != nil {
		return i, err
	}
	if err := i.join(ctx, c); err != nil {
		return i, err
	}
	if err := i.state.open(ctx, &i.storage, i.member, int64(c.Limits.LogSpool)); err != nil {
		return i, err
	}
	i.plane.open(c, &i.models, &i.state, log)
	i.plane.metrics.MustRegister(i.gauges()...)
	i.groups = serving.NewGroups(serving.GroupsConfig{
		DB: i.storage.db, Member: i.member, Registry: i.plane.engines, Log: log,
	})
	i.dash.open(c)
	if err := i.openArtifacts(); err != nil {
		return i, err
	}
	if err := i.openEngines(c); err != nil { //nolint:contextcheck // engines are watched longer than the start takes
		return i, err
	}
	if err := i.domains.open(ctx, i); err != nil {
		return i, err
	}
	i.apply(c)
	if err := i.routers.open(i, tracer); err != nil {
		return i, err
	}
	return i, i.member.Serve(ctx)
}

// callable returns the models in force.
func (i *instance) callable() live.Models {
	return live.Models{Catalog: i.models.catalog(), Own: i.state.own, Keys: i.state.keys}
}

// apply puts limits in force that may change while running.
func (i *instance) apply(c *Config) {
	i.plane.apply(c)
	i.dash.apply(c)
	i.domains.judges.SetConcurrency(c.Limits.JudgeCalls)
	i.domains.rewards.SetCalls(c.Limits.RewardCalls)
	i.domains.rewards.SetRetention(c.Limits.RewardRetention)
}

// takeBack closes what was opened and removes what was created on the way.
func (i *instance) takeBack() {
	i.leave()
	i.storage.release()
	i.storage.removeCreated()
	i.close()
	i.storage.removeFolder()
}

// close stops the background work and closes everything. What is not open is passed over.
func (i *instance) close() {
	i.background.stopAll()
	if i.engines != nil {
		i.engines.Close()
	}
	i.models.guard.Close()
	i.plane.close()
	i.leave() // while the journal is open: what is left in it may still be posted
	i.state.close()
	i.storage.close()
}

// leave lets the other servers go on without this one.
func (i *instance) leave() {
	if i.member != nil {
		i.member.Leave()
	}
}
