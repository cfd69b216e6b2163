package canary

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/judging"
)

// A Loop judges what was drawn, and acts on verdicts, in the background.
type Loop struct {
	store   *Store
	serving func() error // refuses while another server may own the data
	log     *slog.Logger
	idle    atomic.Uint64 // the database's change counter when no alias was gated
	polls   int
	judging slots
	notes   sync.Map // epoch → note, of the last attempt to judge
	paused  sync.Map // epoch → time until which its judge is not asked, after an error
	counted sync.Map // epoch → true, when what it paid before this node came to judge is counted
}

// NewLoop returns a loop over the gates of s. serving refuses while nothing may be read.
func NewLoop(s *Store, serving func() error, log *slog.Logger) *Loop {
	return &Loop{store: s, serving: serving, log: log}
}

const (
	interval = 500 * time.Millisecond
	patience = 30 * time.Second // with one gate in a poll
	pause    = 20 * time.Second // of a judge, after an error
	refill   = 5 * time.Second  // the interval in which a spent budget is looked at

	maxJudging     = 16 // gates whose samples are judged at a time
	maxOfWorkspace = 4
)

// Run looks at every gate twice a second, until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	l.counted.Clear() // another node may have paid since this one last ran
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if l.serving() == nil {
				_ = panics.Call(l.log, "looking at gates", func() error { l.Poll(ctx, &working); return nil })
			}
		}
	}
}

// Poll looks at every gate: it concludes what is known, and acts. What there is to judge is judged in goroutines of
// working, some at a time. The polls begin with different gates, so that each has its turn.
func (l *Loop) Poll(ctx context.Context, working *sync.WaitGroup) {
	changes := l.store.DB.Changes(ctx)
	if l.idle.Load() == changes {
		return
	}
	all, err := alias.ListGated(ctx, l.store.DB)
	if err == nil && len(all) == 0 {
		l.idle.Store(changes)
	}
	if err == nil && len(all) > 0 {
		l.polls++
		first := l.polls * maxJudging % len(all)
		all = slices.Concat(all[first:], all[:first])
		err = judging.ForEach(ctx, judging.DefaultConcurrency, all, func(ctx context.Context, a alias.Ref) error {
			_ = panics.Call(l.log, "looking at a gate", func() error { l.pollOne(ctx, a, working); return nil })
			return nil // the others have their turn
		})
	}
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot look at the gates of aliases", "err", err)
	}
}

func (l *Loop) pollOne(ctx context.Context, a alias.Ref, working *sync.WaitGroup) {
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	st, err := l.conclude(soon, a.WorkspaceID, a.Name)
	if err != nil {
		l.warn(ctx, a, err)
		return
	}
	if st == nil || !l.due(a.WorkspaceID, st) || !l.judging.acquire(a) {
		return
	}
	working.Go(func() {
		defer l.judging.release(a)
		err := panics.Call(l.log, "judging for a gate", func() error { return l.judge(ctx, a.WorkspaceID, a.Name) })
		if err != nil {
			l.paused.Store(st.epoch.ID, time.Now().Add(pause))
			l.warn(ctx, a, err)
		}
	})
}

// slots are the gates whose samples are being judged.
type slots struct {
	mu  sync.Mutex
	all map[alias.Ref]bool
}

// acquire reports whether samples of a gate may be judged now: none of it are, and there is room.
func (s *slots) acquire(a alias.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := 0
	for other := range s.all {
		if other.WorkspaceID == a.WorkspaceID {
			of++
		}
	}
	if s.all[a] || of == maxOfWorkspace || len(s.all) == maxJudging {
		return false
	}
	if s.all == nil {
		s.all = map[alias.Ref]bool{}
	}
	s.all[a] = true
	return true
}

func (s *slots) release(a alias.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, a)
}

func (l *Loop) warn(ctx context.Context, a alias.Ref, err error) {
	if ctx.Err() == nil {
		l.log.Warn("the gate of an alias cannot go on, and is tried again", "alias", a.Name, "workspace", a.WorkspaceID,
			"err", err)
	}
}

// due reports whether the judge of a gate may be asked now.
func (l *Loop) due(ws tenant.ID, st *state) bool {
	if st.epoch == nil || l.store.facts(ws, st, note{}).rule().stops {
		return false
	}
	until, waits := l.paused.Load(st.epoch.ID)
	return !waits || time.Now().After(until.(time.Time))
}

func (l *Loop) note(epochID string) note {
	n, _ := l.notes.Load(epochID)
	known, _ := n.(note)
	return known
}

// conclude begins the epoch that is needed, stores the verdict if it has changed, and acts on it. It returns the state,
// or nil when there is no gate.
func (l *Loop) conclude(ctx context.Context, ws tenant.ID, name string) (*state, error) {
	s := l.store
	st, err := load(ctx, s.DB.In(ws), name)
	if err != nil || st == nil {
		return nil, err
	}
	if st.stale() {
		if err := s.renew(ctx, ws, name); err != nil {
			return nil, err
		}
		if st, err = load(ctx, s.DB.In(ws), name); err != nil || st == nil {
			return nil, err
		}
	}
	if st.epoch == nil {
		return st, nil
	}
	e := st.epoch
	for more := true; more; {
		outdated, err := s.outdated(ctx, s.DB.In(ws), ws, st, l.note(e.ID))
		if err != nil {
			return nil, err
		}
		if !outdated {
			break
		}
		if more, err = s.evaluate(ctx, ws, name, e.ID, l.note(e.ID)); err != nil {
			return nil, err
		}
		if st, err = load(ctx, s.DB.In(ws), name); err != nil || st == nil || st.epoch == nil || st.epoch.ID != e.ID {
			return nil, err
		}
	}
	return st, l.act(ctx, ws, st)
}

// act acts on a verdict that was reached.
func (l *Loop) act(ctx context.Context, ws tenant.ID, st *state) error {
	n := l.note(st.epoch.ID)
	if !st.acts() || time.Since(n.heldAt) < pause {
		return nil
	}
	done, err := l.store.act(ctx, ws, st.alias.Name, st.epoch.ID)
	if refusal := fault.From(err); refusal != nil && refusal.Kind == fault.Precondition {
		n.heldAt, err = time.Now(), nil
		l.notes.Store(st.epoch.ID, n)
	}
	if done != "" {
		l.log.Info("the gate of an alias has acted", "alias", st.alias.Name, "workspace", ws, "verdict", done,
			"epoch", st.epoch.ID)
	}
	return err
}

// judge takes what was drawn, and has the next samples judged.
func (l *Loop) judge(ctx context.Context, ws tenant.ID, name string) error {
	s := l.store
	if s.Open(ctx, ws) != nil {
		return nil //nolint:nilerr // logging is off: the gate is paused, and shows why
	}
	st, err := load(ctx, s.DB.In(ws), name)
	if err != nil || st == nil || st.stale() || !l.due(ws, st) {
		return err
	}
	if err := l.countPaid(ctx, ws, st.epoch); err != nil {
		return err
	}
	if err := s.take(ctx, ws, st.epoch); err != nil {
		return err
	}
	n, err := s.judge(ctx, ws, st)
	l.notes.Store(st.epoch.ID, n)
	if n.exhausted {
		l.paused.Store(st.epoch.ID, time.Now().Add(refill))
	}
	if _, concluding := l.conclude(context.WithoutCancel(ctx), ws, name); err == nil {
		err = concluding
	}
	return err
}

// countPaid counts what an epoch had paid before this process began, once.
func (l *Loop) countPaid(ctx context.Context, ws tenant.ID, e *epoch) error {
	if _, done := l.counted.Load(e.ID); done {
		return nil
	}
	if err := countPaid(ctx, l.store.DB.In(ws), e); err != nil {
		return err
	}
	is, err := findEpoch(ctx, l.store.DB.In(ws), e.ID)
	if err != nil || is == nil {
		return err
	}
	*e = *is
	l.counted.Store(e.ID, true)
	return nil
}
