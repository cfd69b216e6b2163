package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/panics"
	"sovereign/internal/store/db"
)

// beatTimeout bounds one statement. A connection whose packets are dropped is replaced while the lease still lasts.
const beatTimeout = leaseTime / 2

// startTimeout is how long a start repeats a step that the database does not answer. It is far longer than a renewal
// may take, because nobody is served yet.
const startTimeout = 10 * time.Second

// insist repeats a step of the start while the database does not answer.
func insist(ctx context.Context, step func() error) error {
	for end := time.Now().Add(startTimeout); ; {
		err := step()
		if !unanswered(err) || ctx.Err() != nil || time.Now().After(end) || sleep(ctx, beatEvery/5) != nil {
			return err
		}
	}
}

// unanswered reports whether the database could not be reached, or did not answer in time.
func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || err != nil && fault.From(err).Kind == fault.Unavailable
}

// Join makes this process a node, and renews its lease until Leave. It serves after Serve. The caller has the lock of
// the data folder, so no other process has this journal.
func Join(ctx context.Context, c Config) (*Member, error) {
	m := &Member{
		config: c, db: c.DB, now: boottime, table: table{c.DB.Reserve(1), c.DB.Reserve(others)},
		about: about{c.Name, c.Address, c.Release, c.Settings}, looking: make(chan struct{}, 1),
		kicks: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}
	m.settings.Store(&c.Settings)
	m.roles.known = map[string]answer{}
	if m.config.Log == nil {
		m.config.Log = slog.New(slog.DiscardHandler)
	}
	if m.config.Feed == nil {
		m.config.Feed = current{}
	}
	m.lease.life, m.newest = Life{Node: c.ID}, Life{Node: c.ID}
	// A former life of this node has ended with its process. A join has no timeout of its own: it may wait for what
	// that life has fenced.
	if err := insist(ctx, func() error { return m.join(ctx) }); err != nil {
		return nil, errors.Join(err, m.table.close())
	}
	c.DB.LimitIdle(leaseTime)
	m.start() //nolint:contextcheck // the loops run until Leave
	return m, nil
}

// start runs the loops until stop is called.
func (m *Member) start() {
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.loops.Go(func() { m.keep(ctx, "membership", m.run) })
	m.loops.Go(func() { m.keep(ctx, "membership: telling", m.tell) })
}

// keep runs a loop until ctx ends, again after a panic.
func (m *Member) keep(ctx context.Context, name string, loop func(context.Context)) {
	for ctx.Err() == nil {
		_ = panics.Call(m.config.Log, name, func() error { loop(ctx); return nil })
		_ = sleep(ctx, beatEvery/5)
	}
}

// everything is the version of a process in which all changes are in force at once.
const everything db.Version = math.MaxInt64

// current is a feed of a process that keeps nothing in memory.
type current struct{}

func (current) Applied() db.Version           { return everything }
func (current) CatchUp(context.Context) error { return nil }
func (current) Fill(context.Context) error    { return nil }
func (current) Wake()                         {}

// join begins a life.
func (m *Member) join(ctx context.Context) error {
	sent := m.now()
	m.tried = clock.Now()
	life, beat, err := m.table.join(ctx, m.newest, m.tried, m.about)
	if err != nil {
		return fmt.Errorf("join the servers of this database: %w", err)
	}
	m.newest = life
	m.lease.join(life, beat, sent)
	m.joins.Add(1)
	m.config.Log.Info("joined the servers of this database", "node", life.Node, "epoch", life.Epoch)
	return nil
}

// Serve makes this node serve: changes wait for it from now on, and those that did not are in force when it returns.
func (m *Member) Serve(ctx context.Context) error {
	if m.alone() {
		return nil
	}
	for {
		life := m.Life()
		err := insist(ctx, func() error { return m.admit(ctx, life) })
		if err == nil {
			m.admitted.Store(true) // from now on, later lives come back by themselves
			if m.Life() != life {  // this one had begun before
				err = errGone
			}
		}
		if !errors.Is(err, errGone) || m.stopped.Load() != nil {
			return err
		}
		if err := sleep(ctx, beatEvery/5); err != nil { // the life was ended meanwhile; the next one is about to begin
			return err
		}
		if err := insist(ctx, func() error { return m.config.Feed.Fill(ctx) }); err != nil {
			return err
		}
	}
}

// admit makes a life serve: first the row says so, and only then is everything that is committed put in force. So a
// change either waits for this node, or is in force here before it serves.
func (m *Member) admit(ctx context.Context, life Life) error {
	bounded, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	if err := m.table.serve(bounded, life, m.applied()); err != nil {
		return err
	}
	head, err := m.table.head(bounded)
	if err != nil {
		return err
	}
	if err := m.config.Feed.CatchUp(ctx); err != nil {
		return err
	}
	m.lease.served(life, head)
	m.lease.applied(m.applied())
	m.noteChange()
	return nil
}

// applied is the version that others may count on.
func (m *Member) applied() db.Version { return m.config.Feed.Applied() }

// Applied reports that a version was put in force, so that callers that wait for it continue at once.
func (m *Member) Applied() {
	if m.alone() {
		return
	}
	m.lease.applied(m.applied())
	m.noteChange()
	if m.nodes.Load() > 1 {
		select {
		case m.kicks <- struct{}{}:
		default: // one is due
		}
	}
}

func (m *Member) noteChange() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// run renews the lease until ctx ends.
func (m *Member) run(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	failing := false
	for ctx.Err() == nil {
		err := m.beat(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			m.config.Log.Warn("cannot renew the lease on the database; trying again", "err", err)
		}
		if err == nil && failing {
			m.config.Log.Info("the lease on the database is renewed again")
		}
		failing = err != nil
		if m.stopped.Load() != nil {
			<-ctx.Done()
		}
		if err != nil { // a connection that was cut is replaced at once, and a database that is away is not pressed
			_ = sleep(ctx, beatEvery/5)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-m.kicks:
			tick.Reset(beatEvery)
		}
	}
}

// beat renews the lease once, or joins again when the life is over.
func (m *Member) beat(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil // the end is no failure
	}
	bounded, stop := context.WithTimeout(ctx, beatTimeout)
	defer stop()
	m.lease.mu.Lock()
	life, beat, over := m.lease.life, m.lease.beat, m.lease.over
	m.lease.mu.Unlock()
	if over {
		return m.rejoin(ctx, bounded)
	}
	applied := m.applied()
	sent := m.now()
	got, rows, err := m.table.renew(bounded, life, beat, applied, *m.settings.Load())
	if errors.Is(err, errGone) {
		m.lease.end()
		m.noteChange()
		m.config.Log.Warn(
			"this server's membership is over; joining again", "node", life.Node, "epoch", life.Epoch,
		)
		return m.rejoin(ctx, bounded)
	}
	if err != nil {
		return err
	}
	now := m.now()
	m.watch.see(rows, now)
	m.nodes.Store(int64(len(rows)))
	m.compare(rows)
	if !m.lease.renewed(life, sent, now, got.Beat, got.Head, applied) {
		m.lease.end()
		m.noteChange()
		m.config.Log.Warn(
			"the database has lost commits that it had acknowledged; joining again", "head", got.Head, "applied",
			applied,
		)
		return m.rejoin(ctx, bounded)
	}
	m.noteChange()
	if got.Head > applied {
		m.config.Feed.Wake()
	}
	if got.Draining && !m.drained.Swap(true) && m.config.Drain != nil {
		m.config.Drain()
	}
	m.reap(ctx, rows)
	return nil
}

// rejoin begins the next life, and serves again when everything is in force.
func (m *Member) rejoin(ctx, bounded context.Context) error {
	m.lease.mu.Lock()
	acknowledged := m.lease.beat
	m.lease.mu.Unlock()
	newest, behind, err := m.table.lost(bounded, m.newest, acknowledged, m.tried)
	if behind {
		m.config.Log.Error(
			"the database has lost commits that it had acknowledged: renewals of this server's lease, and perhaps more",
			"node", newest.Node, "epoch", newest.Epoch, "acknowledged", acknowledged,
		)
	}
	if m.newest = newest; err == nil {
		err = m.join(bounded)
	}
	if errors.Is(err, ErrForgotten) || errors.Is(err, ErrCopied) {
		m.end(err)
		return nil
	}
	if err != nil || !m.admitted.Load() {
		return err
	}
	life := m.Life()
	m.loops.Go(func() { m.comeBack(ctx, life) })
	return nil
}

// comeBack makes a later life serve: what others changed while this node was no member is read anew.
func (m *Member) comeBack(ctx context.Context, life Life) {
	for failing := false; ctx.Err() == nil && m.Life() == life; {
		err := panics.Call(m.config.Log, "filling the data plane", func() error {
			if err := m.config.Feed.Fill(ctx); err != nil {
				return err
			}
			return m.admit(ctx, life)
		})
		if err == nil || errors.Is(err, errGone) {
			return // or the next life comes back
		}
		if !failing && ctx.Err() == nil {
			m.config.Log.Warn("cannot serve again yet; trying again", "err", err)
		}
		failing = true
		_ = sleep(ctx, beatEvery)
	}
}

// end closes the gate for good, and tells the process to stop.
func (m *Member) end(err error) {
	reason := err.Error()
	m.stopped.Store(&reason)
	m.lease.end()
	m.noteChange()
	m.config.Log.Error("this server stops", "err", err)
	if m.config.Ended != nil {
		m.config.Ended(err)
	}
}

// reap ends the lives of nodes that have gone silent, a few at a time.
func (m *Member) reap(ctx context.Context, rows []row) {
	own := m.Life().Node
	for _, r := range rows {
		if r.ID == own || !m.watch.silent(r, m.now()) || !m.reaping.CompareAndSwap(false, true) {
			continue
		}
		m.loops.Go(func() {
			defer m.reaping.Store(false)
			bounded, stop := context.WithTimeout(ctx, leaseTime)
			defer stop()
			ended, err := m.table.end(bounded, r)
			switch {
			case ended:
				m.ended(r)
			case err != nil && ctx.Err() == nil:
				m.config.Log.Warn(
					"cannot end the membership of a silent server; trying again", "node", r.ID, "err", err,
				)
			}
		})
	}
}

// ended notes that this process has ended the life of another.
func (m *Member) ended(r row) {
	m.config.Log.Warn(
		"ended the membership of a server that was silent for longer than its lease", "node", r.ID, "epoch", r.Epoch,
	)
}

// tell tells of every change between serving and not serving, in order, until ctx ends.
func (m *Member) tell(ctx context.Context) {
	told := &m.told
	for {
		life, open, ends := m.lease.at(m.now())
		if told.serving && (!open || life != told.life) {
			told.serving = false
			m.config.Log.Error("not serving: " + m.reason())
			if m.config.Lost != nil {
				m.config.Lost(errors.New(m.reason()))
			}
			continue
		}
		if open && !told.serving {
			if told.serving = true; told.life != (Life{}) {
				m.config.Log.Info("serving again", "node", life.Node, "epoch", life.Epoch)
				if m.config.Regained != nil {
					m.config.Regained()
				}
			}
			told.life = life
			continue
		}
		lapse := max(time.Millisecond, ends-m.now())
		if !told.serving {
			lapse = time.Hour
		}
		wait := time.NewTimer(lapse)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-m.changed:
		case <-wait.C:
		}
		wait.Stop()
	}
}

// leaveTimeout bounds the last statement. When it fails, the others end this life as that of a silent node.
const leaveTimeout = 5 * time.Second

// giveBackTimeout bounds BeforeLeave.
const giveBackTimeout = 10 * time.Second

// Leave ends the membership. Nothing is served any more. Repeating it is a no-op.
func (m *Member) Leave() {
	if m.alone() || m.left.Swap(true) {
		return
	}
	if m.BeforeLeave != nil {
		ctx, stop := context.WithTimeout(context.Background(), giveBackTimeout)
		defer stop()
		err := panics.Call(m.config.Log, "giving back what this server has", func() error { return m.BeforeLeave(ctx) })
		if err != nil {
			m.config.Log.Warn("cannot give back what this server has; its next start does", "err", err)
		}
	}
	m.stop()
	m.loops.Wait()
	over := m.lease.end()
	if !over {
		ctx, stop := context.WithTimeout(context.Background(), leaveTimeout)
		defer stop()
		if err := m.table.leave(ctx, m.Life()); err != nil {
			m.config.Log.Warn("cannot leave the servers of this database; they go on in two seconds", "err", err)
		}
	}
	if err := m.table.close(); err != nil {
		m.config.Log.Warn("closing the connections of the membership", "err", err)
	}
}
