package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// A Config says what a runner needs. Zero numbers mean the usual ones.
type Config struct {
	DB           *db.DB
	Log          *slog.Logger
	Slots        int               // how many jobs run at once: 4
	PerWorkspace int               // and of one workspace: 2
	Now          func() clock.Time // the machine's clock
}

// A Runner runs the jobs of all workspaces. There is one for a database: whoever may serve it. A claim that is not in
// its memory is therefore nobody's, and it takes the job over: at its start all of them are.
type Runner struct {
	db           *db.DB
	log          *slog.Logger
	slots        int
	perWorkspace int
	now          func() clock.Time
	tx           func(context.Context, func(*db.Tx) error) (db.Version, error)
	every        time.Duration
	pace         float64 // of rests

	wake chan struct{}
	work sync.WaitGroup

	mu      sync.Mutex
	works   map[string]Work
	runs    map[string]*Run // by claim; each has a slot
	resting map[string]rest // by claim
	served  map[tenant.ID]uint64
	turns   uint64
	paused  error // why nothing may run
	fresh   bool  // has not looked at claims yet: what it finds, a server died with
}

// A rest is the time that a job spends between two tries. The time is the process's own, and does not follow the clock
// on the wall.
type rest struct {
	place
	until time.Time // zero: until a server comes that knows its kind
}

const (
	poll     = time.Second      // how often the runner looks without being woken
	patience = 10 * time.Second // for one of its own transactions: a connection that swallows packets would be waited on for long
)

// NewRunner is a runner that has nothing to do yet.
func NewRunner(c Config) *Runner {
	r := &Runner{
		db: c.DB, log: c.Log, slots: cmp.Or(c.Slots, 4), perWorkspace: cmp.Or(c.PerWorkspace, 2), now: c.Now, tx: c.DB.Tx, every: poll, pace: 1,
		wake: make(chan struct{}, 1), works: map[string]Work{}, runs: map[string]*Run{}, resting: map[string]rest{}, served: map[tenant.ID]uint64{},
		fresh: true,
	}
	if r.now == nil {
		r.now = clock.Now
	}
	c.DB.Listen(queued, r.wakeUp)
	return r
}

// Handle says who does jobs of a kind, before Run. A job of a kind that nobody does waits for a server that does it.
func (r *Runner) Handle(kind string, work Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.works[kind] != nil {
		panic("job: two handle " + kind)
	}
	r.works[kind] = work
}

// wakeUp makes the runner look for jobs soon. A wake-up that comes too early, or is lost, only delays that until the
// next poll.
func (r *Runner) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default: // it is about to look
	}
}

// Cancel is the package's Cancel in a transaction of its own, or in ctx's, and tells the run at once.
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
		if run.place() == (place{ws, id}) {
			run.end(ErrCancelled) // if ctx's transaction is not committed after all, the job is run again
		}
	}
	r.wakeUp()
	return j, nil
}

// Pause ends all runs at once, and lets none begin: another server may have the database now. What they still write is
// refused here, and in the database if their job has changed hands.
func (r *Runner) Pause(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = fmt.Errorf("%w: %w", ErrLost, err)
	for _, run := range r.runs {
		run.end(r.paused)
	}
}

// Resume lets jobs run again.
func (r *Runner) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = nil
	r.wakeUp()
}

// Run runs jobs until ctx ends. Then it ends what runs, of the cause ErrStopping, and returns when that has returned;
// those jobs are back in the queue.
func (r *Runner) Run(ctx context.Context) {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	var failing error
	var seen uint64 // the database's changes at the last look; 0 when there is to be another in any case
	for {
		if now := r.db.Changes(ctx); now != seen || len(r.rested()) > 0 {
			err := r.look(ctx)
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
	for _, run := range r.runs {
		run.end(ErrStopping)
	}
	r.mu.Unlock()
	r.work.Wait()
}

// look is one turn: what was claimed is compared with what is in hand, what has rested enough waits again, and free
// slots are filled.
func (r *Runner) look(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.compare, r.rouse, r.fill} {
		if r.idle() {
			return nil
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paused != nil
}

// find reads across workspaces.
func find[T any](ctx context.Context, r *Runner, text string) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return db.Query[T](ctx, r.db.Across("jobs of all workspaces are run here"), text)
}

// change is a change in a transaction of its own. That a job has changed hands or is gone is no error.
func (r *Runner) change(ctx context.Context, at place, rule func(*record) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := r.tx(ctx, func(tx *db.Tx) error { return change(ctx, tx, at.WorkspaceID, at.ID, rule) })
	if errors.Is(err, ErrLost) || errors.Is(err, errMissing) {
		return nil
	}
	return err
}

// compare tells runs that their job was cancelled, and takes jobs over whose claim is in nobody's hand: of a server
// that died, of a claim or an end that the database did not answer.
func (r *Runner) compare(ctx context.Context) error {
	all, err := find[claimed](ctx, r, findClaimed)
	if err != nil {
		return fmt.Errorf("find claimed jobs: %w", err)
	}
	r.mu.Lock()
	died := r.fresh
	r.mu.Unlock()
	for _, c := range all {
		if r.known(c) {
			continue
		}
		err := r.change(ctx, c.place(), func(j *record) error { return j.free(c.Claim, died, r.now()) })
		if err != nil {
			return fmt.Errorf("take over job %s: %w", c.ID, err)
		}
		r.log.Info("a job that nobody had in hand is taken over", "workspace", c.WorkspaceID, "job", c.ID)
	}
	r.mu.Lock()
	r.fresh = false
	r.mu.Unlock()
	return nil
}

// known reports whether a claim is in hand here, and ends its run if the job was cancelled.
func (r *Runner) known(c claimed) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.runs[c.Claim]
	if run == nil {
		_, resting := r.resting[c.Claim]
		return resting
	}
	if c.CancelRequested {
		run.end(ErrCancelled)
	}
	return !errors.Is(run.cause(), ErrLost)
}

// rouse lets jobs wait again that have rested enough.
func (r *Runner) rouse(ctx context.Context) error {
	for claim, at := range r.rested() {
		err := r.change(ctx, at, func(j *record) error { return j.free(claim, false, r.now()) })
		if err != nil {
			return fmt.Errorf("rouse job %s: %w", at.ID, err)
		}
		r.mu.Lock()
		delete(r.resting, claim)
		r.mu.Unlock()
	}
	return nil
}

func (r *Runner) rested() map[string]place {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]place{}
	for claim, rest := range r.resting {
		if !rest.until.IsZero() && time.Now().After(rest.until) {
			all[claim] = rest.place
		}
	}
	return all
}
