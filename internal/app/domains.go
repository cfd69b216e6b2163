package app

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/dash/home"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/billing"
	"sovereign/internal/domain/catalog"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/domain/notify"
	"sovereign/internal/domain/policy"
	"sovereign/internal/domain/providerkey"
	"sovereign/internal/domain/review"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/train"
	"sovereign/internal/domain/usage"
	"sovereign/internal/domain/view"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
	"sovereign/internal/store/module"
)

// Jobs that run at once, of all workspaces and of one.
const (
	jobSlots         = 16
	jobsPerWorkspace = 4
)

// domains is what the API manages. What a domain does is in its module; the fields are what operators use beside it.
type domains struct {
	jobs    *job.Runner
	modules []module.Module

	workspaces *workspace.Store
	wallets    *wallet.Store
	judges     *judging.Client
	policies   *policy.Store
	rewards    *reward.Store
	evals      *eval.Store
	reviews    *review.Store
	aliases    *alias.Store
	trainer    *train.Store
}

// open makes the modules, fills the data plane from their publishers, and lets them start.
func (d *domains) open(ctx context.Context, i *instance) error {
	d.jobs = job.NewRunner(job.Config{
		DB: i.storage.db, Member: i.member, Log: i.log, Slots: jobSlots, PerWorkspace: jobsPerWorkspace,
	})
	i.state.recorder.Life = i.life
	d.workspaces = workspace.NewStore(i.storage.db, i.state.feed)
	d.workspaces.Counter = &workspace.Counter{Meter: i.state.meter, Spent: i.state.poster.Spent}
	if i.storage.db.Engine == db.Postgres {
		d.workspaces.Counter.Exchange = workspace.NewExchange(i.storage.db, i.state.meter, i.state.journal.ID,
			i.member, i.log)
	}
	d.wallets = wallet.NewStore(i.storage.db, i.state.feed, i.state.funds)
	d.policies = policy.NewStore(i.storage.db)
	d.modules = d.list(i)
	for _, m := range d.modules {
		i.state.feed.Register(m.Publishers)
		for kind, work := range m.Jobs {
			d.jobs.Handle(kind, work)
		}
	}
	if err := i.state.feed.Fill(ctx); err != nil {
		return err
	}
	for _, m := range d.modules {
		if m.Start == nil {
			continue
		}
		if err := m.Start(ctx); err != nil {
			return fmt.Errorf("start %s: %w", m.Name, err)
		}
	}
	return nil
}

// list is every module, in the order of their routes. A new domain is a line here.
func (d *domains) list(i *instance) []module.Module {
	on, s := &i.storage, &i.state
	logged := logbook.NewStore(on.logs)
	logs := logbook.NewHandler(logged, s.ingester, s.settings)
	sets := dataset.NewStore(on.db, logged, d.jobs, logs.Open)
	aliases := alias.NewStore(on.db, s.feed)
	d.aliases = aliases
	all := []module.Module{
		wallet.Module(d.wallets, s.poster, on.sealer, d.find),
		catalog.Module(i.callable, s.aliases),
		alias.Module(alias.Deps{DB: on.db, Store: aliases, Aliases: s.aliases, Models: i.callable}),
		providerkey.Module(providerkey.Deps{
			DB: on.db, Feed: s.feed, Vault: on.vault, Guard: i.models.guard, Catalog: i.models.catalog, Keys: s.keys,
			Find: d.find, Log: i.log,
		}),
		policy.Module(d.policies, d.find),
		logbook.Module(logs, s.ingester),
		dataset.Module(sets),
		usage.Module(usage.NewHandler(usage.NewStore(on.db), s.poster.Drain)),
		view.Module(view.NewStore(on.db)),
	}
	all = append(all, d.grading(i, logged, logs, sets, aliases)...)
	all = append(all, d.training(i, sets)...)
	notices := notify.NewStore(on.db, on.vault, i.models.guard, i.mail.Enabled())
	d.wallets.Low = notices.WalletLow
	all = append(all,
		billing.Module(billing.Deps{
			Store: billing.NewStore(on.db, s.feed, d.wallets), Config: i.payments, Drain: s.poster.Drain, Log: i.log,
		}),
		notify.Module(notify.Deps{
			Store: notices, Mail: i.mail, Site: i.site, Budgets: s.meter.Reached, Serving: i.gate, Log: i.log,
		}),
	)
	var steps []module.Step
	for _, m := range all {
		steps = append(steps, m.Setup...)
	}
	aliases.Obey(d.policies)
	workspaces := workspace.Module(workspace.Deps{
		DB: on.db, Store: d.workspaces, Directory: s.directory, Limits: s.limits, Settings: s.settings,
		Logged: s.recorder.Enabled, Steps: steps, Log: i.log,
		Hooks: workspace.Hooks{
			Uncached: i.plane.cache.Forget, Unlogged: s.recorder.Settle, Denied: i.plane.gateway.EndDenied,
		},
	})
	all = append(all, i.dash.modules(i)...)
	all = append([]module.Module{workspaces}, all...)
	return append(all, d.home(i, all, steps))
}

// home is the module of the dashboard's first page, composed of the others.
func (d *domains) home(i *instance, all []module.Module, steps []module.Step) module.Module {
	deps := home.Deps{
		Steps: steps, Balance: d.wallets.Show, Series: usage.NewStore(i.storage.db).Series, Post: i.state.poster.Drain,
		Jobs: func(ctx context.Context, ws tenant.ID, most int) ([]job.Listed, error) {
			return job.Latest(ctx, i.storage.db.In(ws), most)
		},
		Failed: func(ctx context.Context, ws tenant.ID, since clock.Time, most int) ([]job.Listed, error) {
			return job.FailedSince(ctx, i.storage.db.In(ws), since, most)
		},
		Subjects: func(ctx context.Context, ws tenant.ID, jobs []string) ([]home.Subject, error) {
			return home.Subjects(ctx, i.storage.db, ws, jobs)
		},
	}
	for _, m := range all {
		if m.Alarms != nil {
			deps.Alarms = append(deps.Alarms, m.Alarms)
		}
		if m.Waits != nil {
			deps.Waits = append(deps.Waits, m.Waits)
		}
	}
	return home.Module(deps)
}

// find returns the workspace of an id or a name.
func (d *domains) find(ctx context.Context, name string) (tenant.ID, error) {
	ws, err := d.workspaces.Find(ctx, name)
	return ws.ID, err
}
