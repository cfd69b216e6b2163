package app

import (
	"context"
	"sync"
	"time"

	"sovereign/internal/base/panics"
	"sovereign/internal/store/api"
	"sovereign/internal/store/module"
)

const sweepEvery = 10 * time.Minute

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
	lead := i.newLeader()
	loops := []module.Loop{
		{Name: "leadership", Run: lead.watch},
		{Name: "feed", Run: i.state.feed.Run},
		{Name: "sweep", Run: i.sweepRegularly, Once: true},
		{Name: "sweep the files of engines", Run: i.sweepFolders},
		{Name: "changes by other servers", Run: func(ctx context.Context) { i.storage.db.Hear(ctx, i.log) }},
		{Name: "seal", Run: func(ctx context.Context) { i.storage.sealer.Run(ctx, i.gate) }, Once: true},
		{Name: "till", Run: i.runTill},
		{Name: "end requests of expired keys", Run: i.plane.gateway.WatchExpiry},
		{Name: "jobs", Run: i.domains.jobs.Run, CallsModels: true},
	}
	for _, m := range i.domains.modules {
		loops = append(loops, m.Background...)
	}
	for _, loop := range loops {
		if run := loop.Run; loop.Once {
			loop.Run = func(ctx context.Context) { lead.run(ctx, run) }
		}
		if loop.CallsModels {
			b.calls.Go(func() { i.keepRunning(calling, loop) })
		} else {
			b.work.Go(func() { i.keepRunning(ctx, loop) })
		}
	}
}

// The pause after which a loop that panicked is started again. It doubles each time, up to the longest.
const (
	firstRestart   = time.Second
	longestRestart = time.Minute
)

// keepRunning runs a loop until ctx ends. If it panics, it is started again.
func (i *instance) keepRunning(ctx context.Context, loop module.Loop) {
	for pause := firstRestart; ; pause = min(2*pause, longestRestart) {
		err := panics.Call(i.log, loop.Name, func() error { loop.Run(ctx); return nil })
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
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

// sweepFolders deletes files of engines that this machine no longer uses, at the start and then now and then.
func (i *instance) sweepFolders(ctx context.Context) {
	if i.folders == nil {
		return
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if i.gate() == nil && i.leadsEngines() == nil { //nolint:contextcheck // it asks with a time of its own
			bounded, cancel := context.WithTimeout(ctx, time.Minute)
			if err := i.folders.Sweep(bounded); err != nil && ctx.Err() == nil {
				i.log.Warn("cannot remove the unused files of engines", "err", err)
			}
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweepRegularly deletes what is left over, when this node begins to and then now and then.
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
