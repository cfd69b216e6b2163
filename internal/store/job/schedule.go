package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
)

// fillSlots starts waiting jobs in the free slots.
func (r *Runner) fillSlots(ctx context.Context) error {
	for r.freeSlots() > 0 && ctx.Err() == nil {
		heads, err := find[queueHead](ctx, r, selectQueueHeads)
		if err != nil {
			return fmt.Errorf("find jobs that wait: %w", err)
		}
		chosen := r.choose(heads)
		if len(chosen) == 0 {
			return nil
		}
		for _, h := range chosen {
			if err := r.claim(ctx, h, false); err != nil {
				return fmt.Errorf("claim job %s: %w", h.ID, err)
			}
		}
	}
	return ctx.Err()
}

// Jobs that run beside the slots because a caller waits for them, of all workspaces and of one.
const (
	extraSlots        = 4
	extraPerWorkspace = 2
)

// startAwaited starts waiting jobs that callers wait for, the oldest first: they do not queue behind background work.
// What has no slot here gets one of the others in its turn.
func (r *Runner) startAwaited(ctx context.Context) error {
	for _, at := range r.awaitedJobs() {
		if n, of := r.running(true); n >= extraSlots || of[at.WorkspaceID] >= extraPerWorkspace {
			continue
		}
		queued, err := findQueued(ctx, r.db, at)
		if err == nil && queued != nil {
			err = r.claim(ctx, *queued, true)
		}
		if err != nil {
			return fmt.Errorf("start job %s: %w", at.ID, err)
		}
	}
	return nil
}

// awaitedJobs returns the jobs that callers wait for and that do not run, the oldest first.
func (r *Runner) awaitedJobs() []key {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := maps.Clone(r.awaited)
	for _, run := range r.runs {
		delete(waiting, run.key())
	}
	return slices.SortedFunc(maps.Keys(waiting), func(a, b key) int { return cmp.Compare(a.ID, b.ID) })
}

// running counts the runs in the slots, or those beside them.
func (r *Runner) running(extra bool) (n int, ofWorkspace map[tenant.ID]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ofWorkspace = map[tenant.ID]int{}
	for _, run := range r.runs {
		if run.extra == extra {
			n++
			ofWorkspace[run.Workspace]++
		}
	}
	return n, ofWorkspace
}

func (r *Runner) freeSlots() int {
	n, _ := r.running(false)
	return r.slots - n
}

func (r *Runner) choose(heads []queueHead) []queueHead {
	n, running := r.running(false)
	r.mu.Lock()
	defer r.mu.Unlock()
	return choose(heads, running, r.served, r.perWorkspace, r.slots-n)
}

// choose picks jobs for the free slots, at most one per workspace: first of the workspaces with the fewest running
// jobs, then of those served the longest ago, then the oldest job. However much other workspaces queue,
// each of them starts at most one job before a waiting workspace that has nothing running.
func choose(
	heads []queueHead, running map[tenant.ID]int, served map[tenant.ID]uint64, perWorkspace, vacant int,
) []queueHead {
	heads = slices.DeleteFunc(slices.Clone(heads),
		func(h queueHead) bool { return running[h.WorkspaceID] >= perWorkspace })
	slices.SortFunc(heads, func(a, b queueHead) int {
		return cmp.Or(
			cmp.Compare(running[a.WorkspaceID], running[b.WorkspaceID]),
			cmp.Compare(served[a.WorkspaceID], served[b.WorkspaceID]),
			cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return heads[:max(0, min(vacant, len(heads)))]
}

// claim takes a job and starts its run, in a slot or beside them. A job that was cancelled or taken meanwhile is
// skipped.
func (r *Runner) claim(ctx context.Context, h queueHead, extra bool) error {
	r.mu.Lock()
	work := r.handlers[h.Kind]
	r.mu.Unlock()
	if work == nil {
		return r.setAside(ctx, h)
	}
	run := &Run{
		Workspace: h.WorkspaceID, ID: h.ID, Kind: h.Kind, runner: r, claim: id.New("run"), extra: extra,
		writing: make(chan struct{}, 1),
	}
	claimed, life := false, r.member.Life()
	err := r.take(ctx, h.key(), life, func(j *record) error {
		err := j.claim(run.claim, life, r.now())
		claimed = err == nil
		return err
	})
	if err != nil || !claimed {
		return err
	}
	run.ctx, run.end = context.WithCancelCause(context.WithoutCancel(ctx))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused != nil {
		run.end(r.paused)
	}
	if !extra {
		r.starts++
		r.served[h.WorkspaceID] = r.starts
	}
	r.runs[run.claim] = run
	r.lives[life] = true
	r.work.Go(func() { r.perform(run.ctx, run, work) })
	return nil
}

// asidePrefix begins the claims of jobs that are set aside.
const asidePrefix = "aside_"

// setAside claims a job whose kind this server has no handler for, so that it is not found again. A server that has one
// takes it over.
func (r *Runner) setAside(ctx context.Context, h queueHead) error {
	r.log.Error("no handler for jobs of this kind; the job waits for a server that has one", "kind", h.Kind,
		"workspace", h.WorkspaceID, "job", h.ID)
	claim, life := id.New(strings.TrimSuffix(asidePrefix, "_")), r.member.Life()
	err := r.take(ctx, h.key(), life, func(j *record) error { return j.setAside(claim, life) })
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backoffs[claim] = backoff{key: h.key()}
	return nil
}

// perform does the work, and stores the result.
func (r *Runner) perform(ctx context.Context, run *Run, work Work) {
	var err error
	if run.cause() == nil {
		err = r.runRecovering(ctx, run, work)
	}
	var wait time.Duration
	_ = panics.Call(r.log, "storing how a job ended", func() error { // its claim then belongs to no run: see reconcile
		wait = r.settle(ctx, run, err)
		return nil
	}, "job", run.ID)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.runs, run.claim)
	if wait > 0 {
		r.backoffs[run.claim] = backoff{
			key: run.key(), until: time.Now().Add(time.Duration(r.backoffScale * float64(wait))),
		}
	}
	run.end(nil)
	r.announce()
	r.wakeUp()
}

func (r *Runner) runRecovering(ctx context.Context, run *Run, work Work) error {
	return panics.Call(r.log, "a job", func() error { return work(ctx, run) },
		"kind", run.Kind, "workspace", run.Workspace, "job", run.ID)
}

// settle stores how a job's run ended, and returns for how long the job backs off. If the database does not store it,
// the claim belongs to no run, and reconcile takes the job over and resumes it.
func (r *Runner) settle(ctx context.Context, run *Run, err error) (wait time.Duration) {
	cause := run.cause()
	var after record
	unsettled := r.change(context.WithoutCancel(ctx), run.key(), func(j *record) (lost error) {
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
		log.Error("a job failed with an internal error", "err", err)
	case wait > 0:
		log.Warn("a job will be tried again", "err", err, "attempts", after.Attempts, "in", wait)
	}
	return wait
}
