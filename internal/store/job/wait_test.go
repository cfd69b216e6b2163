package job_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

const waiter tenant.ID = "ws_waiter"

// eachRunner gives the test a runner on each storage, whose jobs of the kind "hold" end when they are released. The
// runner runs until stop.
func eachRunner(t *testing.T, test func(t *testing.T, d *db.DB, r *job.Runner, release chan error, stop func())) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if _, err := db.Exec(t.Context(), d.In(waiter), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, 'waiter', 1)`); err != nil {
			t.Fatal(err)
		}
		r := job.NewRunner(job.Config{DB: d, Log: slog.New(slog.DiscardHandler)})
		release := make(chan error)
		r.Handle("hold", func(ctx context.Context, _ *job.Run) error {
			select {
			case err := <-release:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		stop := func() { cancel(); <-done }
		t.Cleanup(stop)
		test(t, d, r, release, stop)
	})
}

func queueHold(t *testing.T, d *db.DB, id string) {
	t.Helper()
	queueKind(t, d, "hold", id)
}

func TestWaitReturnsWhenTheJobHasEnded(t *testing.T) {
	eachRunner(t, func(t *testing.T, d *db.DB, r *job.Runner, release chan error, _ func()) {
		queueHold(t, d, "job_done")
		released := time.AfterFunc(20*time.Millisecond, func() { release <- nil })
		defer released.Stop()
		if j, err := r.Wait(t.Context(), waiter, "job_done"); err != nil || j.Status != job.Done {
			t.Errorf("%+v %v", j, err)
		}
		if j, err := r.Wait(t.Context(), waiter, "job_done"); err != nil || j.Status != job.Done {
			t.Errorf("again: %+v %v", j, err)
		}
		if _, err := r.Wait(t.Context(), waiter, "job_missing"); err == nil {
			t.Error("it waited for a job that does not exist")
		}
	})
}

func TestWaitEndsWithItsContextAndTheJobGoesOn(t *testing.T) {
	eachRunner(t, func(t *testing.T, d *db.DB, r *job.Runner, release chan error, _ func()) {
		queueHold(t, d, "job_left")
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := r.Wait(short, waiter, "job_left"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		release <- nil
		if j, err := r.Wait(t.Context(), waiter, "job_left"); err != nil || j.Status != job.Done {
			t.Errorf("%+v %v", j, err)
		}
	})
}

func TestWaitTellsOfCancellationPauseAndStop(t *testing.T) {
	eachRunner(t, func(t *testing.T, d *db.DB, r *job.Runner, _ chan error, stop func()) {
		queueHold(t, d, "job_cancelled")
		if _, err := r.Cancel(t.Context(), waiter, tenant.Operator, "job_cancelled"); err != nil {
			t.Fatal(err)
		}
		if j, err := r.Wait(t.Context(), waiter, "job_cancelled"); err != nil || j.Status != job.Cancelled {
			t.Errorf("cancelled: %+v %v", j, err)
		}
		queueHold(t, d, "job_kept")
		paused := time.AfterFunc(20*time.Millisecond, func() { r.Pause(errors.New("the lock is lost")) })
		defer paused.Stop()
		if _, err := r.Wait(t.Context(), waiter, "job_kept"); !errors.Is(err, job.ErrLost) {
			t.Errorf("paused: %v", err)
		}
		r.Resume()
		stopped := time.AfterFunc(20*time.Millisecond, stop)
		defer stopped.Stop()
		if _, err := r.Wait(t.Context(), waiter, "job_kept"); !errors.Is(err, job.ErrStopping) {
			t.Errorf("stopped: %v", err)
		}
	})
}

func queueKind(t *testing.T, d *db.DB, kind, id string) {
	t.Helper()
	if _, err := d.Tx(t.Context(), func(tx *db.Tx) error {
		return job.Queue(t.Context(), tx, waiter, job.New{ID: id, Kind: kind})
	}); err != nil {
		t.Fatal(err)
	}
}

// A caller does not wait behind background work: not behind what runs, nor behind what was queued before.
func TestAnAwaitedJobDoesNotQueueBehindOthers(t *testing.T) {
	eachRunner(t, func(t *testing.T, d *db.DB, r *job.Runner, release chan error, _ func()) {
		r.Handle("quick", func(context.Context, *job.Run) error { return nil })
		for i := range 6 { // as many as run, and more
			queueKind(t, d, "hold", fmt.Sprint("job_held_", i))
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i := range 3 {
			id := fmt.Sprint("job_awaited_", i)
			queueKind(t, d, "quick", id)
			if j, err := r.Wait(soon, waiter, id); err != nil || j.Status != job.Done {
				t.Fatalf("%+v %v", j, err)
			}
		}
		for range 6 {
			release <- nil
		}
	})
}

// Callers of one workspace cannot take every slot, however many wait: what they wait for has its turn.
func TestAwaitedJobsAreBounded(t *testing.T) {
	eachRunner(t, func(t *testing.T, d *db.DB, r *job.Runner, release chan error, _ func()) {
		var running, most atomic.Int64
		r.Handle("counted", func(ctx context.Context, _ *job.Run) error {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			select {
			case err := <-release:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		const jobs = 12
		var group sync.WaitGroup
		for i := range jobs {
			id := fmt.Sprintf("job_%02d", i)
			queueKind(t, d, "counted", id)
			group.Go(func() {
				if j, err := r.Wait(t.Context(), waiter, id); err != nil || j.Status != job.Done {
					t.Errorf("%+v %v", j, err)
				}
			})
		}
		const bound = 4 // two slots of the workspace, and two beside them
		for deadline := time.Now().Add(time.Minute); running.Load() < bound; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d run at once", running.Load())
			}
		}
		for range jobs {
			release <- nil
		}
		group.Wait()
		if n := most.Load(); n != bound {
			t.Errorf("%d ran at once, want %d", n, bound)
		}
	})
}

// A caller hears of a job that fails long before the last try.
func TestWaitTellsOfARetryThatIsNotSoon(t *testing.T) {
	eachRunner(t, func(t *testing.T, d *db.DB, r *job.Runner, _ chan error, _ func()) {
		var tries atomic.Int64
		r.Handle("failing", func(context.Context, *job.Run) error {
			tries.Add(1)
			return errors.New("the database is away")
		})
		queueKind(t, d, "failing", "job_failing")
		j, err := r.Wait(t.Context(), waiter, "job_failing")
		if n := tries.Load(); !errors.Is(err, job.ErrRetrying) || j.Status != job.Queued || n != 2 {
			t.Errorf("after %d tries: %+v %v", n, j, err)
		}
	})
}
