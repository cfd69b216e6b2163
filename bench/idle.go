package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// begunAtOnce is the number of streams started together; more would overflow a listener's backlog.
const begunAtOnce = 256

// idle opens streams that stay silent after their first chunk, and measures the memory that they use.
func (b *bench) idle(ctx context.Context, s *stage, t *target, streams int) (sample, error) {
	result := sample{scenario: idle, target: t.name, events: int64(streams)}
	asked, err := s.control(ctx, query("latency", "0s", "interval", "0s", "hold", "true"))
	if err != nil {
		return result, err
	}
	release := func() (int64, error) { return s.control(ctx, query("hold", "false")) }
	l := &load{
		addresses: t.addresses(), order: newOrder(chatPath, chat(450, true), t.senders("chat")), want: streamed,
		conns: streams, memory: 2 << 10,
	}
	before, err := t.rows(ctx)
	if err != nil {
		return result, err
	}
	callers, err := l.dial(ctx)
	if err != nil {
		return result, err
	}
	defer callers.close()
	all, err := callers.begin(ctx)
	if err == nil {
		err = pause(ctx, 2*time.Second) // time for garbage collection
		result.memory = resident(t.pids())
	}
	answered, failed := release()
	if err = errors.Join(err, failed); err != nil {
		return result, fmt.Errorf("%s: %w", t.name, err)
	}
	if err := all(); err != nil {
		return result, t.process.failure(err)
	}
	if answered-asked != int64(streams) {
		return result, fmt.Errorf("%s: the mock was asked for %d streams of %d", t.name, answered-asked, streams)
	}
	return result, t.settle(ctx, before+int64(streams))
}

// begin sends every caller's request and returns when each stream has its first content. The returned function waits
// for the streams to end.
func (c *callers) begin(ctx context.Context) (func() error, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, drainTimeout, errors.New("the streams did not begin in time"))
	defer cancel()
	failures := make(chan error, len(c.callers))
	turns := make(chan struct{}, begunAtOnce)
	var begun, ended sync.WaitGroup
	begun.Add(len(c.callers))
	for _, caller := range c.callers {
		turns <- struct{}{}
		var once sync.Once
		first := func() { once.Do(func() { <-turns; begun.Done() }) }
		caller.reader.notice, caller.reader.noticed = 2, first // the role, and the first words
		ended.Go(func() {
			if err := caller.one(time.Now()); err != nil {
				failures <- err
			}
			first() // of one that failed
		})
	}
	all := make(chan struct{})
	go func() { begun.Wait(); close(all) }()
	wait := func() error {
		ended.Wait()
		close(failures)
		return <-failures
	}
	select {
	case <-all:
	case <-ctx.Done():
		return wait, context.Cause(ctx)
	}
	if len(failures) > 0 {
		return wait, <-failures
	}
	return wait, nil
}
