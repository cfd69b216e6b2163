// Package app puts the house together and runs it: configuration, storage, routers, listeners, signals, and the
// command line. It is the one place that knows every room.
package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/catalog"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/domain/providerkey"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/live"
	"sovereign/internal/net/breaker"
	"sovereign/internal/net/netguard"
	"sovereign/internal/net/poller"
	"sovereign/internal/plane/cache"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/gateway"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/spool"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/api"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
	"sovereign/internal/store/vault"
	"sovereign/internal/text/tokenizer"
	"sovereign/internal/wire/upstream"
)

// A house is everything that stands on one storage: locked, migrated, filled, with its routers. The server serves
// it on sockets; an admin command without a server uses the same house, in its own process.
type house struct {
	log                                   *slog.Logger
	storage                               Storage
	folder                                *db.FolderLock
	db                                    *db.DB
	madeFolder, madeDatabase, madeJournal bool // by this process, so that a failed start can take them back

	lease *db.Lease
	vault *vault.Vault
	dir   *live.Directory
	feed  *feed.Feed
	pub   *workspace.Publisher

	workspaces *workspace.Store
	wallets    *wallet.Store

	fleet   atomic.Pointer[upstream.Fleet]
	aliases *live.Aliases
	keys    *live.Keyring
	guard   *netguard.Guard
	cache   *cache.Cache
	breaker *breaker.Breaker
	setting *live.AllSettings
	funds   *funds.Funds
	journal *journal.Journal
	teller  *wallet.Poster
	till    *till.Till
	gateway *gateway.Gateway

	logs     *db.DB
	spool    *spool.Spool
	recorder *capture.Recorder
	clerk    *logbook.Ingester
	datasets *dataset.Store

	jobs         *job.Runner
	calibrations *calibration.Store
	judges       *judging.Client
	modules      []module.Module

	bounds    *edge.Bounds
	metrics   *prometheus.Registry
	routes    []api.Route // everything that is served, on the network and on the socket
	public    http.Handler
	operators http.Handler

	fenced   atomic.Pointer[string] // why nothing is served, or nil
	draining atomic.Bool            // stopping: served, but not ready for more

	stop context.CancelFunc
	work sync.WaitGroup

	retire context.CancelFunc // ends what asks models by itself, before what keeps its money ends
	labour sync.WaitGroup
}

// A purpose says whether a house may be opened where there is none yet.
type purpose bool

const (
	toMake purpose = true  // a server, or a bootstrap: what is missing is made
	toUse  purpose = false // an admin command: a mistyped place must not become an installation
)

// open takes the data and makes it ready. It either returns a house or leaves everything as it was, so that a start
// that cannot succeed changes nothing.
func open(ctx context.Context, c *Config, why purpose, log *slog.Logger, tracer trace.Tracer) (h *house, err error) {
	s := c.Storage
	allowed, err := prefixes("guard_allow", c.GuardAllow)
	if err != nil {
		return h, err
	}
	h = &house{
		log: log, storage: s, dir: live.NewDirectory(), bounds: edge.NewBounds(), funds: funds.New(),
		aliases: live.NewAliases(), setting: live.NewSettings(), keys: live.NewKeyring(),
		guard: netguard.New(allowed), cache: cache.New(int64(c.Limits.Cache), cacheLife), breaker: breaker.New(breaker.Settings{}),
	}
	h.apply(c)
	defer func() {
		if err != nil {
			h.vacate()
		}
	}()
	if err := h.occupy(ctx, why); err != nil {
		return h, err
	}
	if h.vault, err = unlock(ctx, h.db, s, why, log); err != nil {
		return h, err
	}
	if err := s.rememberEngine(); err != nil {
		return h, err
	}
	if err := h.stock(c); err != nil {
		return h, err
	}
	if warning := catalog.Old(time.Now()); warning != "" {
		log.Warn(warning)
	}
	if err := h.recover(ctx); err != nil {
		return h, err
	}
	if err := h.openLogs(ctx, int64(c.Limits.LogSpool)); err != nil {
		return h, err
	}
	return h, h.furnish(ctx, c, tracer)
}

// openLogs opens the database of logged exchanges, and the spool before it.
func (h *house) openLogs(ctx context.Context, budget int64) (err error) {
	if h.logs, err = db.OpenLogs(ctx, h.storage.DataDir, h.storage.DatabaseURL); err != nil {
		return err
	}
	if err := h.logs.Migrate(ctx); err != nil {
		return fmt.Errorf("the database of logs: %w", err)
	}
	disk, err := journal.Folder(filepath.Join(h.storage.DataDir, spoolFolder))
	if err != nil {
		return folderError(h.storage.DataDir, err)
	}
	at, err := logbook.Position(ctx, h.logs, h.journal.ID)
	if err != nil {
		return err
	}
	if h.spool, err = spool.Open(disk, at, budget); err != nil {
		return err
	}
	h.recorder = capture.NewRecorder(h.setting, h.spool)
	h.clerk = logbook.NewIngester(h.logs, h.spool, h.journal.ID, h.log)
	newest, err := h.clerk.Newest(ctx)
	if err == nil {
		h.recorder.After(newest)
	}
	return err
}

// recover posts what the last process left in the journal, before anything can be spent.
func (h *house) recover(ctx context.Context) error {
	_, absent := os.Stat(filepath.Join(h.storage.DataDir, journalFolder))
	h.madeJournal = errors.Is(absent, fs.ErrNotExist)
	disk, err := journal.Folder(filepath.Join(h.storage.DataDir, journalFolder))
	if err != nil {
		return folderError(h.storage.DataDir, err)
	}
	if h.journal, err = journal.Open(disk); err != nil {
		return err
	}
	h.teller = wallet.NewPoster(h.db, h.journal, h.funds, h.log)
	found, err := h.teller.Recover(ctx)
	if err != nil {
		return fmt.Errorf("recover the money journal: %w", err)
	}
	if found.Orphans > 0 || found.Torn > 0 {
		h.log.Info("recovered the money journal", "unfinished", found.Orphans, "charged_usd", found.Charged.String(), "torn_bytes", found.Torn)
	}
	return nil
}

// occupy takes the folder, the database and the right to serve it, and makes what may be made.
func (h *house) occupy(ctx context.Context, why purpose) (err error) {
	s := h.storage
	if s.engine() == db.Postgres { // a server that is not there is found before a folder is made
		if h.db, err = db.Open(ctx, s.DataDir, s.DatabaseURL); err != nil {
			return err
		}
	}
	if h.madeFolder, err = takeFolder(s.DataDir, why, h.log); err != nil {
		return err
	}
	if h.folder, err = db.LockFolder(s.DataDir); err != nil {
		return folderError(s.DataDir, err)
	}
	if err := s.sameEngine(why); err != nil {
		return err
	}
	if s.engine() == db.SQLite {
		if _, err := os.Stat(filepath.Join(s.DataDir, db.CoreFile)); errors.Is(err, fs.ErrNotExist) {
			if err := s.noJournal(); err != nil {
				return err
			}
			if _, err := s.root(true, h.log); err != nil { // before there is a database that it must open
				return err
			}
			h.madeDatabase = true
		}
		if h.db, err = db.Open(ctx, s.DataDir, s.DatabaseURL); err != nil {
			return err
		}
	}
	h.lease, err = h.db.Lease(ctx)
	return err
}

// keep says that what was made is an installation now: nothing takes it back any more.
func (h *house) keep() { h.madeFolder, h.madeDatabase, h.madeJournal = false, false, false }

// vacate closes what was opened and takes back what was made on the way.
func (h *house) vacate() {
	h.leave()
	if h.madeDatabase {
		for _, name := range []string{db.CoreFile, db.LogsFile} {
			for _, file := range []string{"", "-wal", "-shm"} {
				_ = os.Remove(filepath.Join(h.storage.DataDir, name+file))
			}
		}
	}
	if h.madeJournal { // it is empty: nothing was served
		_ = os.RemoveAll(filepath.Join(h.storage.DataDir, journalFolder))
		_ = os.RemoveAll(filepath.Join(h.storage.DataDir, spoolFolder))
	}
	if h.madeFolder && h.folder != nil {
		_ = os.Remove(filepath.Join(h.storage.DataDir, db.LockFile)) // while it is ours
	}
	h.close()
	if h.madeFolder {
		_ = os.Remove(h.storage.DataDir) // goes only if nothing is in it
	}
}

// furnish builds the rooms on an unlocked database.
func (h *house) furnish(ctx context.Context, c *Config, tracer trace.Tracer) error {
	h.pub = workspace.NewPublisher(h.db, h.dir)
	sources := map[string]feed.Source{}
	for _, some := range []map[string]feed.Source{
		h.pub.Sources(), h.teller.Sources(), alias.NewPublisher(h.db, h.aliases).Sources(), workspace.NewSettingsPublisher(h.db, h.setting, workspace.Hooks{Uncached: h.cache.Forget, Unlogged: h.recorder.Settle}).Sources(),
		providerkey.NewPublisher(h.db, h.vault, h.keys, h.log).Sources(),
	} {
		maps.Copy(sources, some)
	}
	h.feed = feed.New(h.db, h.log, sources)
	if err := h.feed.Fill(ctx); err != nil {
		return err
	}
	h.workspaces = workspace.NewStore(h.db, h.feed)
	h.wallets = wallet.NewStore(h.db, h.feed, h.funds)
	h.metrics = prometheus.NewRegistry()
	h.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	h.metrics.MustRegister(h.gauges()...)
	watch := gateway.NewMetrics(h.metrics)
	h.till = till.New(h.funds, h.journal, h.log, watch.Excess, watch.Overage)
	h.gateway = gateway.New(gateway.Config{
		Fleet: h.fleet.Load, Aliases: h.aliases, Keys: h.keys, Workspaces: h.setting, Till: h.till, Bounds: h.bounds, Log: h.log,
		Count: tokenizer.Count, Metrics: watch, Random: rand.Float64, Cache: h.cache, Breaker: h.breaker, Recorder: h.recorder,
		Poller: poller.New(runtime.GOMAXPROCS(0)),
	})

	frame := api.Config{DB: h.db, Feed: h.feed, Log: h.log, Bounds: h.bounds}
	before := edge.Config{Directory: h.dir, Log: h.log, Metrics: h.metrics, Tracer: tracer, Gate: h.gate, Closing: h.draining.Load, Bounds: h.bounds}
	var routes []api.Route
	routes = append(routes, h.publicRoutes()...)
	routes = append(routes, workspace.NewHandler(h.recorder.Enabled, h.setupSteps()...).Routes()...)
	routes = append(routes, workspace.NewOperator(h.db, h.workspaces).Routes()...)
	routes = append(routes, wallet.NewOperator(h.wallets, h.teller, h.find).Routes()...)
	routes = append(routes, catalog.NewHandler(h.catalog, h.keys).Routes()...)
	routes = append(routes, alias.NewHandler(alias.NewStore(h.db, h.feed), h.catalog, h.keys).Routes()...)
	routes = append(routes, providerkey.NewHandler(providerkey.NewStore(h.db, h.feed, h.vault, h.guard, h.catalog), h.find).Routes()...)
	logged := logbook.NewStore(h.logs)
	logs := logbook.NewHandler(logged, h.clerk, h.setting)
	routes = append(routes, logs.Routes()...)
	h.datasets = dataset.NewStore(h.db, logged)
	routes = append(routes, dataset.NewHandler(h.datasets, logs.Open).Routes()...)
	routes = append(routes, h.judgeRoutes(logged, logs)...)
	if err := h.calibrations.VoidOtherEditions(ctx); err != nil {
		return err
	}
	h.apply(c)
	routes = append(routes, h.inferenceRoutes()...)
	routes = append(routes, h.operatorRoutes()...)
	public, err := api.NewRouter(frame, routes)
	if err != nil {
		return err
	}
	operators, err := api.NewOperatorRouter(frame, routes)
	if err != nil {
		return err
	}
	h.routes = slices.Concat(public.Routes(), operators.Routes())
	h.public = edge.New(before, public)
	before.Metrics, before.Candid = nil, true // the network's requests are counted, the operator's own are explained
	h.operators = edge.New(before, operators)
	return nil
}

// setupSteps are what a new workspace has before it, in order. Each room adds its own.
func (h *house) setupSteps() []workspace.Step {
	return []workspace.Step{
		{ID: "create_key", Action: "mint a key", Done: func(context.Context, tenant.ID) (bool, error) { return true, nil }},
		{ID: "add_credit", Action: "ask the operator to top the wallet up: sovereign admin wallet topup", Done: h.wallets.Funded},
		{ID: "send_request", Action: "send a chat completion: POST /v1/chat/completions with the model sim/chat, or one of GET /v1/models", Done: h.wallets.Used},
		{ID: "calibrate_judge", Action: "make a judge, grade what models said, and calibrate it: POST /v1/criteria, POST /v1/labels, POST /v1/criteria/{id}/calibrations", Done: h.calibrated},
	}
}

func (h *house) find(ctx context.Context, name string) (tenant.ID, error) {
	ws, err := h.workspaces.Find(ctx, name)
	return ws.ID, err
}

// start runs what goes on in the background until close.
func (h *house) start() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.work.Go(func() { h.feed.Run(ctx) })
	h.work.Go(func() { h.pub.RecordUses(ctx, h.log) })
	h.work.Go(func() { h.tidy(ctx) })
	h.work.Go(func() { h.lease.Watch(ctx, leaseEvery, h.lost, h.regained) })
	h.work.Go(func() { h.teller.Sync(ctx) })
	h.work.Go(func() { h.teller.Run(ctx) })
	h.work.Go(func() { h.clerk.Run(ctx) })
	labouring, retire := context.WithCancel(ctx)
	h.retire = retire
	h.labour.Go(func() { h.jobs.Run(labouring) })
	for _, m := range h.modules {
		for _, loop := range m.Background { // all of them call models
			h.labour.Go(func() { loop.Run(labouring) })
		}
	}
	h.work.Go(func() {
		if err := h.till.Run(ctx); err != nil {
			h.log.Error("stopping with charges that the journal could not take", "err", err)
		}
	})
}

const (
	leaseEvery = 500 * time.Millisecond
	tidyEvery  = 10 * time.Minute
)

func (h *house) tidy(ctx context.Context) {
	h.sweep(ctx) // what the last process left behind
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			bounded, cancel := context.WithTimeout(ctx, time.Minute)
			if err := api.Forget(bounded, h.db); err != nil && ctx.Err() == nil {
				h.log.Warn("cannot forget old Idempotency-Keys", "err", err)
			}
			cancel()
			h.sweep(ctx)
		}
	}
}

func (h *house) sweep(ctx context.Context) {
	if h.gate() != nil {
		return // what looks left behind may be another server's work
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := h.datasets.Sweep(bounded); err != nil && ctx.Err() == nil {
		h.log.Warn("cannot sweep what is left of datasets; it is tried again", "err", err)
	}
	for _, m := range h.modules {
		if m.Sweep == nil {
			continue
		}
		if err := m.Sweep(bounded); err != nil && ctx.Err() == nil {
			h.log.Warn("cannot delete what is left over; it is tried again", "module", m.Name, "err", err)
		}
	}
}

// lost ends serving at once: another server may hold the data now.
func (h *house) lost(err error) {
	reason := "the serving lock on PostgreSQL was lost"
	h.fenced.Store(&reason)
	h.jobs.Pause(err)
	h.log.Error(reason+"; refusing requests until it is regained", "err", err)
}

// regained refills everything that is in memory before serving again: others may have changed it.
func (h *house) regained(ctx context.Context) error {
	if err := h.feed.Fill(ctx); err != nil {
		return err
	}
	h.fenced.Store(nil)
	h.jobs.Resume()
	h.log.Info("the serving lock on PostgreSQL is regained; serving again")
	return nil
}

// gate refuses every request while the data is not ours.
func (h *house) gate() error {
	if reason := h.fenced.Load(); reason != nil {
		return fault.Unavailable.New("not serving: %s", *reason).In(time.Second)
	}
	return nil
}

// cacheLife is how long an answer is remembered; longestPause how long a failing model is left alone, at most.
const (
	cacheLife    = time.Hour
	longestPause = time.Minute
)

// apply puts limits in force that may change while running.
func (h *house) apply(c *Config) {
	l := c.Limits
	h.cache.Resize(int64(l.Cache))
	h.breaker.Apply(breaker.Settings{Failures: l.BreakerFailures, Pause: l.BreakerPause, Longest: longestPause})
	h.bounds.Body.Store(int64(l.Body))
	h.bounds.Buffered.Set(int64(l.BufferedMemory))
	h.bounds.Operations.Set(l.Operations)
	h.bounds.Timeout.Store(int64(l.OperationTimeout))
	if h.gateway != nil {
		h.gateway.Apply(gateway.Settings{
			Retries: l.Retries, TryTimeout: l.TryTimeout, StallTimeout: l.StallTimeout, RequestTimeout: l.RequestTimeout, DefaultMaxTokens: l.DefaultMaxTokens,
			OwnKeyFee: int64(c.OwnKeyFeePercent),
		})
	}
	if h.judges != nil {
		h.judges.SetConcurrency(l.JudgeCalls)
	}
}

// rest ends the work in the background that asks models; it goes on after the next start. Repeating it is a no-op.
func (h *house) rest() {
	if h.retire != nil {
		h.retire()
		h.labour.Wait()
	}
}

func (h *house) close() {
	h.rest()
	if h.stop != nil {
		h.stop()
		h.work.Wait()
	}
	if h.guard != nil {
		h.guard.Close()
	}
	if h.gateway != nil {
		h.gateway.Poller.Close()
	}
	if h.journal != nil {
		if err := h.journal.Close(); err != nil {
			h.log.Error("closing the journal", "err", err)
		}
	}
	if h.spool != nil {
		if err := h.spool.Close(); err != nil {
			h.log.Error("closing the spool", "err", err)
		}
	}
	h.leave()
	if h.folder != nil {
		_ = h.folder.Release()
	}
}

// leave gives the database free. Repeating it is a no-op.
func (h *house) leave() {
	if h.lease != nil {
		h.lease.Release()
	}
	for _, d := range []*db.DB{h.db, h.logs} {
		if d == nil {
			continue
		}
		if err := d.Close(); err != nil {
			h.log.Warn("closing the database", "err", err)
		}
	}
	h.lease, h.db, h.logs = nil, nil, nil
}
