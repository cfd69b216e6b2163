package app

import (
	"context"
	"sync"
	"time"

	"sovereign/internal/store/api"
	"sovereign/internal/store/module"
)

const (
	leaseEvery = 500 * time.Millisecond
	sweepEvery = 10 * time.Minute
)

// background is the work that goes on beside requests. What calls models ends first, and then the rest, which records
// what those calls cost.
type background struct {
	stop context.CancelFunc
	work sync.WaitGroup

	stopCalls context.CancelFunc
	calls     sync.WaitGroup
}

// start runs the background work until close.
func (i *instance) start() {
	b := &i.background
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	calling, stopCalls := context.WithCancel(ctx)
	b.stopCalls = stopCalls
	loops := []module.Loop{
		{Name: "feed", Run: i.state.feed.Run},
		{Name: "sweep", Run: i.sweepRegularly},
		{Name: "lease", Run: func(ctx context.Context) { i.storage.lease.Monitor(ctx, leaseEvery, i.lost, i.regained) }},
		{Name: "till", Run: i.runTill},
		{Name: "end requests of expired keys", Run: i.plane.gateway.WatchExpiry},
		{Name: "jobs", Run: i.domains.jobs.Run, CallsModels: true},
	}
	for _, m := range i.domains.modules {
		loops = append(loops, m.Background...)
	}
	for _, loop := range loops {
		if loop.CallsModels {
			b.calls.Go(func() { loop.Run(calling) })
		} else {
			b.work.Go(func() { loop.Run(ctx) })
		}
	}
}

func (i *instance) runTill(ctx context.Context) {
	if err := i.plane.till.Run(ctx); err != nil {
		i.log.Error("stopping with charges that the journal could not take", "err", err)
	}
}

// stopCalling ends the work that calls models; it goes on after the next start. Repeating it is a no-op.
func (b *background) stopCalling() {
	if b.stopCalls != nil {
		b.stopCalls()
		b.calls.Wait()
	}
}

// stopAll ends all work, what calls models first.
func (b *background) stopAll() {
	b.stopCalling()
	if b.stop != nil {
		b.stop()
		b.work.Wait()
	}
}

// sweepRegularly deletes what is left over, from the last process and then now and then.
func (i *instance) sweepRegularly(ctx context.Context) {
	i.sweep(ctx)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			bounded, cancel := context.WithTimeout(ctx, time.Minute)
			if err := api.DeleteExpiredAnswers(bounded, i.storage.db); err != nil && ctx.Err() == nil {
				i.log.Warn("cannot forget old Idempotency-Keys", "err", err)
			}
			cancel()
			i.sweep(ctx)
		}
	}
}

func (i *instance) sweep(ctx context.Context) {
	if i.gate() != nil {
		return // what looks left over may be another server's work
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, m := range i.domains.modules {
		if m.Sweep == nil {
			continue
		}
		if err := m.Sweep(bounded); err != nil && ctx.Err() == nil {
			i.log.Warn("cannot delete what is left over; it is tried again", "of", m.Name, "err", err)
		}
	}
}
