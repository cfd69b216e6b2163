package train

import (
	"context"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/module"
)

// Deps is what the module of a store needs.
type Deps struct {
	Find    func(ctx context.Context, workspace string) (tenant.ID, error) // the workspace of an id or a name
	Serving func() error                                                   // refuses while another server may own the data
}

// tickEvery is the interval between two looks for lost workers and ended attempts.
const tickEvery = time.Second

// Module serves workers, replaces lost ones, and charges what they did.
func Module(s *Store, d Deps) module.Module {
	o := &operator{s, d.Find}
	return module.Module{
		Name: "training", Routes: append(s.workerRoutes(), o.routes()...), Start: s.extendLeases, Sweep: s.Artifacts.Sweep,
		Alarms: s.Alarms,
		Background: []module.Loop{
			{Name: "training runs", Run: func(ctx context.Context) { s.loop(ctx, d) }},
			{Name: "training files", Run: func(ctx context.Context) { s.watchFiles(ctx) }},
			{Name: "shared training files", Run: func(ctx context.Context) { s.compareFiles(ctx, d) }},
		},
	}
}

// loop loses workers whose leases ran out, and charges ended attempts, until ctx ends.
func (s *Store) loop(ctx context.Context, d Deps) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if d.Serving() != nil {
			continue
		}
		for what, do := range s.round(ctx) {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				s.Log.Warn("cannot "+what+"; it is tried again", "err", err)
			}
		}
	}
}

// round returns what this node does now: one looks after all runs, and the others give up what they have begun of that.
func (s *Store) round(ctx context.Context) map[string]func(context.Context) error {
	leads, err := s.Leads(ctx)
	if err != nil {
		return map[string]func(context.Context) error{"learn who leads the training": func(context.Context) error { return err }}
	}
	if leads {
		return map[string]func(context.Context) error{"replace lost workers": s.loseExpired, "charge training": s.bill}
	}
	clear(s.watched) // what is seen after a pause may have been away meanwhile
	return map[string]func(context.Context) error{"hand charges back": s.handBack}
}

// watchFiles tries a store of files that does not answer until it does, and says so once, until ctx ends.
func (s *Store) watchFiles(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	ready := true
	for {
		if err := s.Artifacts.Ready(ctx); (err == nil) != ready && ctx.Err() == nil {
			if ready = err == nil; ready {
				s.Log.Info("the store of training files answers")
			} else {
				s.Log.Warn("the store of training files does not answer: workers get no work until it does", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
