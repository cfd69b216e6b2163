package app

import (
	"cmp"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/adoption"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/grpo"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/pool"
	"sovereign/internal/live"
	"sovereign/internal/store/module"
)

// poolIdle is how long an engine of the pool runs that nobody asks.
const poolIdle = 15 * time.Minute

// adoptions returns the module that points aliases at trained models.
func (d *domains) adoptions(i *instance, versions *modelversion.Store) module.Module {
	return adoption.Module(adoption.NewStore(adoption.Config{
		DB: i.storage.db, Feed: i.state.feed, Versions: versions, Aliases: d.aliases, Proofs: d.policies,
		Check: func(ws tenant.ID, a alias.Alias) error { return a.Check(i.callable(), ws) },
	}))
}

// pool returns the modules of the engines that serve trained models: none without a configured pool.
func (d *domains) pool(i *instance) []module.Module {
	c := &i.serving.Pool
	engine := i.templates.Find(c.Engine)
	if i.engines == nil || engine == nil {
		return nil
	}
	return []module.Module{pool.Module(pool.New(pool.Config{
		DB: i.storage.db, Own: i.state.own, Registry: i.plane.engines, Groups: i.groups,
		Backend: i.engines, Folders: i.folders, Engine: *engine,
		GPUType: cmp.Or(c.GPUType, engine.GPUTypes[0]), Slots: c.Slots, Price: c.price(), Context: c.ContextWindow,
		Wait: i.serving.ColdStart, Idle: poolIdle, Log: i.log,
	}), i.gate)}
}

// price returns what trained models cost.
func (p *Pool) price() live.Price {
	return live.Price{Rates: live.Flat(money.Rate(p.Input), money.Rate(p.Output))}
}

// evaluation returns what compares the candidates of GRPO with their base models.
func (d *domains) evaluation(i *instance) *grpo.Evaluation {
	return &grpo.Evaluation{
		Evals: d.evals, Verdict: d.policies.Verdict,
		Serves: func(ws tenant.ID, model string) error { return chatModels{i}.Chats(ws, "model", model) },
	}
}
