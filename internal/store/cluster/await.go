package cluster

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/store/db"
)

// A view is what one look at the table showed.
type view struct {
	began time.Duration
	rows  []row
}

// The pause between two looks grows up to the longest. A look that fails is repeated for as long as a node without a
// database keeps its own lease.
const (
	firstLook    = 2 * time.Millisecond
	longestLook  = 20 * time.Millisecond
	awaitFailing = leaseTime + time.Second
)

// Await returns when every node with a live lease has version in force, or its life is over.
func (m *Member) Await(ctx context.Context, version db.Version) error {
	if m.alone() || version == 0 {
		return nil
	}
	m.awaits.Add(1)
	failing := time.Duration(0)
	for pause := firstLook; ; pause = min(2*pause, longestLook) {
		done, err := m.inForce(ctx, version)
		switch {
		case err == nil && done:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("await version %d elsewhere: %w", version, ctx.Err())
		case err == nil:
			failing = 0
		case failing == 0:
			failing = m.now()
		case m.now()-failing > awaitFailing:
			return fault.Unavailable.Because(err,
				"the change is committed; whether every server has it in force is unknown, because the database does not answer").In(time.Second)
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("await version %d elsewhere: %w", version, err)
		}
	}
}

// inForce looks whether every other node has a version in force. It ends the lives of silent ones that have not.
func (m *Member) inForce(ctx context.Context, version db.Version) (bool, error) {
	rows, err := m.lookSince(ctx, m.now())
	if err != nil {
		return false, err
	}
	own, done := m.Life().Node, true
	for _, r := range rows {
		if r.ID == own || !r.Serving || r.Applied >= version {
			continue
		}
		if !m.watch.silent(r, m.now()) {
			done = false
			continue
		}
		ended, err := m.table.end(ctx, r)
		if err != nil {
			return false, err
		}
		if !ended {
			done = false
			continue
		}
		m.ended(r)
	}
	return done, nil
}

// lookSince returns a look that began after a time. Callers that wait for each other share one.
func (m *Member) lookSince(ctx context.Context, asked time.Duration) ([]row, error) {
	select {
	case m.looking <- struct{}{}:
		defer func() { <-m.looking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m.view.began > asked {
		return m.view.rows, nil
	}
	began := m.now()
	bounded, stop := context.WithTimeout(ctx, beatTimeout)
	defer stop()
	rows, err := m.table.look(bounded)
	if err != nil {
		return nil, err
	}
	m.watch.see(rows, m.now())
	m.view = view{began, rows}
	return rows, nil
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
