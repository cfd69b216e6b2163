package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
)

// fill gives the free slots to jobs that wait.
func (r *Runner) fill(ctx context.Context) error {
	for r.vacant() > 0 && ctx.Err() == nil {
		heads, err := find[head](ctx, r, findHeads)
		if err != nil {
			return fmt.Errorf("find jobs that wait: %w", err)
		}
		chosen := r.choose(heads)
		if len(chosen) == 0 {
			return nil
		}
		for _, h := range chosen {
			if err := r.claim(ctx, h); err != nil {
				return fmt.Errorf("claim job %s: %w", h.ID, err)
			}
		}
	}
	return ctx.Err()
}

func (r *Runner) vacant() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slots - len(r.runs)
}

func (r *Runner) choose(heads []head) []head {
	r.mu.Lock()
	defer r.mu.Unlock()
	running := map[tenant.ID]int{}
	for _, run := range r.runs {
		running[run.Workspace]++
	}
	return choose(heads, running, r.served, r.perWorkspace, r.slots-len(r.runs))
}

// choose picks jobs for the vacant slots, one of a workspace at most: first of those that have the fewest running, of them of those that
// were served the longest ago, of them the oldest. However much one workspace queues, another's next job is never far.
func choose(heads []head, running map[tenant.ID]int, served map[tenant.ID]uint64, perWorkspace, vacant int) []head {
	heads = slices.DeleteFunc(slices.Clone(heads), func(h head) bool { return running[h.WorkspaceID] >= perWorkspace })
	slices.SortFunc(heads, func(a, b head) int {
		return cmp.Or(
			cmp.Compare(running[a.WorkspaceID], running[b.WorkspaceID]), cmp.Compare(served[a.WorkspaceID], served[b.WorkspaceID]),
			cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return heads[:max(0, min(vacant, len(heads)))]
}

// claim takes a job, and begins its run. One that was cancelled or taken meanwhile is passed over.
func (r *Runner) claim(ctx context.Context, h head) error {
	r.mu.Lock()
	work := r.works[h.Kind]
	r.mu.Unlock()
	if work == nil {
		return r.park(ctx, h)
	}
	run := &Run{Workspace: h.WorkspaceID, ID: h.ID, Kind: h.Kind, runner: r, claim: id.New("run"), turn: make(chan struct{}, 1)}
	ours := false
	err := r.change(ctx, h.place(), func(j *record) error {
		err := j.claim(run.claim, r.now())
		ours = err == nil
		return err
	})
	if err != nil || !ours {
		return err
	}
	run.ctx, run.end = context.WithCancelCause(context.WithoutCancel(ctx))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused != nil {
		run.end(r.paused)
	}
	r.turns++
	r.served[h.WorkspaceID] = r.turns
	r.runs[run.claim] = run
	r.work.Go(func() { r.perform(run.ctx, run, work) })
	return nil
}

// park puts a job aside that this server cannot do.
func (r *Runner) park(ctx context.Context, h head) error {
	r.log.Error("nobody does jobs of this kind; it waits for a server that does", "kind", h.Kind, "workspace", h.WorkspaceID, "job", h.ID)
	claim := id.New("run")
	err := r.change(ctx, h.place(), func(j *record) error { return j.park(claim) })
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resting[claim] = rest{place: h.place()}
	return nil
}

// perform does the work, and settles what becomes of the job.
func (r *Runner) perform(ctx context.Context, run *Run, work Work) {
	var err error
	if run.cause() == nil {
		err = r.guarded(ctx, run, work)
	}
	wait := r.settle(ctx, run, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.runs, run.claim)
	if wait > 0 {
		r.resting[run.claim] = rest{place: run.place(), until: time.Now().Add(time.Duration(r.pace * float64(wait)))}
	}
	run.end(nil)
	r.wakeUp()
}

func (r *Runner) guarded(ctx context.Context, run *Run, work Work) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			r.log.Error("a job panicked", "kind", run.Kind, "workspace", run.Workspace, "job", run.ID, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return work(ctx, run)
}

// settle writes what becomes of a job, and returns for how long it rests. If the database does not take it, the claim is left in
// nobody's hand, and the job is taken over and resumed.
func (r *Runner) settle(ctx context.Context, run *Run, err error) (wait time.Duration) {
	cause := run.cause()
	var after record
	unsettled := r.change(context.WithoutCancel(ctx), run.place(), func(j *record) (lost error) {
		wait, after = 0, record{}
		if wait, lost = j.settle(run.claim, err, cause, r.now()); lost == nil {
			after = *j
		}
		return lost
	})
	log := r.log.With("kind", run.Kind, "workspace", run.Workspace, "job", run.ID)
	switch {
	case unsettled != nil:
		log.Warn("cannot write how a job ended; it will be resumed", "err", unsettled, "ended", err)
		return 0
	case after.Status == Failed && errors.As(err, new(*fault.Fault)):
		log.Info("a job failed", "err", err)
	case after.Status == Failed:
		log.Error("a job failed of an error of ours", "err", err)
	case wait > 0:
		log.Warn("a job will be tried again", "err", err, "attempts", after.Attempts, "in", wait)
	}
	return wait
}
