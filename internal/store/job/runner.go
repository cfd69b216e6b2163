package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// A Membership is this process's place among the servers of a database: see cluster.Member.
type Membership interface {
	Life() cluster.Life
	Fence(ctx context.Context, tx *db.Tx) error
}

// A Config configures a runner. Zero numbers mean the defaults.
type Config struct {
	DB           *db.DB
	Member       Membership // default: the only server of the database
	Log          *slog.Logger
	Slots        int               // jobs that run at once; default 4
	PerWorkspace int               // of them, jobs of one workspace; default 2
	Now          func() clock.Time // default: the machine's clock
}

// A Runner runs the jobs of all workspaces. On PostgreSQL each node has one, and they share the queue. A claim names
// the life of the node that took it. A claim of the runner's present life that is not in its memory belongs to no live
// run, and neither does a claim whose life is over: the runner takes those jobs over, and leaves the others alone. On
// SQLite there is one runner, and every claim is of its life.
type Runner struct {
	db           *db.DB
	member       Membership
	log          *slog.Logger
	slots        int
	perWorkspace int
	now          func() clock.Time
	tx           func(context.Context, func(*db.Tx) error) (db.Version, error)
	pollEvery    time.Duration
	backoffScale float64 // factor on backoff delays, for tests

	wake chan struct{}
	work sync.WaitGroup

	mu        sync.Mutex
	handlers  map[string]Work
	runs      map[string]*Run    // by claim; each occupies a slot, unless it is extra
	backoffs  map[string]backoff // by claim
	awaited   map[key]int        // jobs that callers wait for, and how many callers
	served    map[tenant.ID]uint64
	starts    uint64
	paused    error                 // why nothing may run; nil when not paused
	ended     chan struct{}         // closed and replaced when a run ends
	stopping  bool                  // Run returns, or has returned
	firstPass bool                  // claims were not reconciled yet: those it finds belong to a server that died
	lives     map[cluster.Life]bool // in which this process has claimed jobs
}

// A backoff is the time that a job waits between two tries. It uses the process's monotonic clock, not the wall
// clock.
type backoff struct {
	key
	until time.Time // zero: until a server with a handler for its kind starts
}

const (
	pollInterval = time.Second // how often the runner looks for changes without being woken
	// txTimeout bounds one transaction of the runner: a connection whose packets are dropped would otherwise block
	// until TCP gives up.
	txTimeout = 10 * time.Second
)

// NewRunner returns a runner that does not run yet.
func NewRunner(c Config) *Runner {
	r := &Runner{
		db: c.DB, member: c.Member, log: c.Log, slots: cmp.Or(c.Slots, 4), perWorkspace: cmp.Or(c.PerWorkspace, 2),
		now: c.Now, tx: c.DB.Tx, pollEvery: pollInterval, backoffScale: 1, wake: make(chan struct{}, 1),
		handlers: map[string]Work{}, runs: map[string]*Run{}, backoffs: map[string]backoff{}, awaited: map[key]int{},
		served: map[tenant.ID]uint64{}, lives: map[cluster.Life]bool{}, firstPass: true, ended: make(chan struct{}),
	}
	if r.now == nil {
		r.now = clock.Now
	}
	if r.member == nil {
		r.member = cluster.Alone(c.DB)
	}
	c.DB.Listen(topic, r.hear)
	return r
}

// Handle registers the work of a kind, before Run. Jobs of other kinds wait for a server that has a handler for them.
func (r *Runner) Handle(kind string, work Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handlers[kind] != nil {
		panic("job: two handlers of " + kind)
	}
	r.handlers[kind] = work
}

// hear is called when a job was queued, cancelled or has ended, on any node.
func (r *Runner) hear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.announce()
	r.wakeUp()
}

// wakeUp makes the runner look for changes now. A wake-up that is missed only delays them until the next poll.
func (r *Runner) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// Cancel is the package's Cancel in a transaction of its own, or in ctx's, and ends the run at once.
func (r *Runner) Cancel(ctx context.Context, ws tenant.ID, by tenant.Actor, id string) (j Job, err error) {
	if _, err = r.db.Tx(ctx, func(tx *db.Tx) (err error) {
		j, err = Cancel(ctx, tx, ws, by, id)
		return err
	}); err != nil {
		return Job{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.runs {
		if run.key() == (key{ws, id}) {
			run.end(ErrCancelled) // if ctx's transaction is rolled back, the job is run again
		}
	}
	r.announce()
	r.wakeUp()
	return j, nil
}

// Pause ends all runs at once and starts no others, because this server may no longer be a member. What the runs still
// write is refused here, and in the database if another server has claimed their job.
func (r *Runner) Pause(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = fmt.Errorf("%w: %w", ErrLost, err)
	for _, run := range r.runs {
		run.end(r.paused)
	}
	r.announce()
}

// Resume lets jobs run again.
func (r *Runner) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = nil
	r.wakeUp()
}

// Run runs jobs until ctx ends. Then it ends the running jobs with the cause ErrStopping, waits for them, and
// returns; those jobs are back in the queue.
func (r *Runner) Run(ctx context.Context) {
	tick := time.NewTicker(r.pollEvery)
	defer tick.Stop()
	var failing error
	var seen uint64 // the database's change number at the last pass; 0 forces another pass
	for {
		if now := r.db.Changes(ctx); now != seen || len(r.expiredBackoffs()) > 0 {
			err := r.runOnce(ctx)
			switch {
			case err != nil && failing == nil && ctx.Err() == nil:
				r.log.Warn("cannot look for jobs; trying again", "err", err)
			case err == nil && failing != nil:
				r.log.Info("jobs are looked for again")
			}
			if seen, failing = now, err; err != nil {
				seen = 0
			}
		}
		select {
		case <-ctx.Done():
			r.stop()
			return
		case <-r.wake:
			seen = 0
		case <-tick.C:
		}
	}
}

func (r *Runner) stop() {
	r.mu.Lock()
	r.stopping = true
	for _, run := range r.runs {
		run.end(ErrStopping)
	}
	r.announce()
	r.mu.Unlock()
	r.work.Wait()
}

// runOnce makes one pass: it reconciles the claims, requeues jobs whose backoff has expired, starts jobs that callers
// wait for, and fills the free slots.
func (r *Runner) runOnce(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.reconcile, r.requeueExpired, r.startAwaited, r.fillSlots} {
		if r.isPaused() {
			return nil
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) isPaused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paused != nil
}

// find reads across workspaces.
func find[T any](ctx context.Context, r *Runner, text string) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	return db.Query[T](ctx, r.db.Across("jobs of all workspaces are run here"), text)
}

// change runs the package's change in a transaction of its own. It ignores that another run has the job's claim, or
// that the job is deleted.
func (r *Runner) change(ctx context.Context, at key, rule func(*record) error) error {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	_, err := r.tx(ctx, func(tx *db.Tx) error { return change(ctx, tx, at.WorkspaceID, at.ID, rule) })
	if errors.Is(err, ErrLost) || errors.Is(err, errMissing) {
		return nil
	}
	return err
}

// reconcile compares the claims in the database with those in memory. It ends runs whose job was cancelled or taken
// over, and takes over jobs whose claim belongs to no live run: of a server whose life is over, or of a claim or a
// settlement that the database did not answer.
func (r *Runner) reconcile(ctx context.Context) error {
	present := r.member.Life()
	all, err := find[claimedJob](ctx, r, selectClaimed)
	if err != nil {
		return fmt.Errorf("find claimed jobs: %w", err)
	}
	for _, c := range all {
		if present == (cluster.Life{}) {
			c.Over = c.life() != present
		}
		vacant, died := r.judge(&c, present)
		if !vacant {
			continue
		}
		err := r.change(ctx, c.key(), func(j *record) error { return j.releaseClaim(c.Claim, died, r.now()) })
		if err != nil {
			return fmt.Errorf("take over job %s: %w", c.ID, err)
		}
		r.log.Info("a job whose claim belongs to no run is taken over", "workspace", c.WorkspaceID, "job", c.ID,
			"node", c.Node, "epoch", c.Epoch)
	}
	r.mu.Lock()
	r.firstPass = false
	r.mu.Unlock()
	return nil
}

// judge reports whether a claim belongs to no live run, so that the job is taken over, and whether its process has
// died. It ends the run of this process whose job was cancelled, or is no longer its own.
func (r *Runner) judge(c *claimedJob, present cluster.Life) (vacant, died bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.runs[c.Claim]
	_, resting := r.backoffs[c.Claim]
	switch {
	case c.Over:
		if run != nil {
			run.end(fmt.Errorf("%w: %w", ErrLost, cluster.ErrFenced))
		}
		delete(r.backoffs, c.Claim)
		return true, !r.lives[c.life()]
	case c.life() != present:
		r.endOthers(c)
		return r.handlers[c.Kind] != nil && strings.HasPrefix(c.Claim, asidePrefix), false
	case run == nil:
		return !resting, r.firstPass
	case c.CancelRequested:
		run.end(ErrCancelled)
	}
	return errors.Is(run.cause(), ErrLost), false
}

// endOthers ends the runs of a job that another node has claimed. The caller holds r.mu.
func (r *Runner) endOthers(c *claimedJob) {
	for _, run := range r.runs {
		if run.key() == c.key() {
			run.end(fmt.Errorf("%w: another server has taken it over", ErrLost))
		}
	}
}

// take runs the package's change as one that takes a job for a life. It fails with ErrFenced if that life is over.
func (r *Runner) take(ctx context.Context, at key, life cluster.Life, rule func(*record) error) error {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	_, err := r.tx(ctx, func(tx *db.Tx) error {
		if err := r.member.Fence(ctx, tx); err != nil {
			return err
		}
		if r.member.Life() != life {
			return cluster.ErrFenced
		}
		return change(ctx, tx, at.WorkspaceID, at.ID, rule)
	})
	if errors.Is(err, ErrLost) || errors.Is(err, errMissing) {
		return nil
	}
	return err
}

// requeueExpired requeues jobs whose backoff has expired.
func (r *Runner) requeueExpired(ctx context.Context) error {
	for claim, at := range r.expiredBackoffs() {
		err := r.change(ctx, at, func(j *record) error { return j.releaseClaim(claim, false, r.now()) })
		if err != nil {
			return fmt.Errorf("requeue job %s: %w", at.ID, err)
		}
		r.mu.Lock()
		delete(r.backoffs, claim)
		r.mu.Unlock()
	}
	return nil
}

func (r *Runner) expiredBackoffs() map[string]key {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]key{}
	for claim, b := range r.backoffs {
		if !b.until.IsZero() && time.Now().After(b.until) {
			all[claim] = b.key
		}
	}
	return all
}
