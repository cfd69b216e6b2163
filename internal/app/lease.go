package app

import (
	"context"
	"time"

	"sovereign/internal/base/fault"
)

// lost ends serving at once: another server may hold the data now.
func (i *instance) lost(err error) {
	reason := "the serving lock on PostgreSQL was lost"
	i.fenced.Store(&reason)
	i.domains.jobs.Pause(err)
	i.log.Error(reason+"; refusing requests until it is regained", "err", err)
}

// regained refills everything that is in memory before serving again: others may have changed it.
func (i *instance) regained(ctx context.Context) error {
	if err := i.state.feed.Fill(ctx); err != nil {
		return err
	}
	i.fenced.Store(nil)
	i.domains.jobs.Resume()
	i.log.Info("the serving lock on PostgreSQL is regained; serving again")
	return nil
}

// gate refuses every request while the lease is lost.
func (i *instance) gate() error {
	if reason := i.fenced.Load(); reason != nil {
		return fault.Unavailable.New("not serving: %s", *reason).In(time.Second)
	}
	return nil
}
