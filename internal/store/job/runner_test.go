package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

func TestQueuedWorkIsDoneAndItsResultCommitsWithIt(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		one, other := m.queue(t, mine, 5), m.queue(t, theirs, 0)
		if j := m.get(t, mine, one); j.Status != Queued || j.Total != 5 || j.Done != 0 || j.Estimate != 100 || j.Cost != 0 || j.StartedAt != nil || j.FinishedAt != nil || j.Error != nil {
			t.Errorf("queued: %+v", j)
		}
		s := m.serve(t, Config{}, noDelay)
		m.checkDone(t, mine, one)
		m.checkDone(t, theirs, other)
		later := m.queue(t, mine, 2) // without a wake-up
		m.checkDone(t, mine, later)
		s.stop()
	})
}

func TestAWakeUpStartsAJobWithoutPolling(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		s := m.open(t, Config{})
		s.pollEvery = time.Hour
		s.Handle(kind, counting(s.own, noDelay))
		s.start(t)
		id := m.queue(t, mine, 1)
		s.wakeUp()
		m.checkDone(t, mine, id)
		second := m.queue(t, mine, 1)
		s.wakeUp()
		m.checkDone(t, mine, second)
	})
}

// A request with an Idempotency-Key queues its job in the same transaction as the stored answer.
func TestJobIsQueuedWithItsCauseOrNotAtAll(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		for _, fail := range []error{nil, errBroken} {
			id := fmt.Sprintf("cnt_%v", fail == nil)
			_, err := m.db.Tx(t.Context(), func(tx *db.Tx) error {
				bound := tx.Bind(t.Context())
				_, err := m.db.Tx(bound, func(tx *db.Tx) error { return Queue(bound, tx, mine, New{ID: id, Kind: kind, Total: 1}) })
				return errors.Join(err, fail)
			})
			if !errors.Is(err, fail) {
				t.Fatal(err)
			}
			if _, err := Get(t.Context(), m.db.In(mine), id); (err == nil) != (fail == nil) {
				t.Errorf("after %v: %v", fail, err)
			}
		}
		if _, err := Get(t.Context(), m.db.In(theirs), "cnt_true"); fault.From(err).Kind != fault.Missing {
			t.Errorf("another workspace's job: %v", err)
		}
	})
}

// A domain lists what its jobs are for with one query.
func TestJobsAreReadWithWhatTheyAreFor(t *testing.T) {
	type result struct {
		JobID string
		Job
	}
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 2)
		m.queue(t, theirs, 2)
		m.serve(t, Config{}, noDelay)
		m.checkDone(t, mine, id)
		all, err := db.Query[result](t.Context(), m.db.In(mine), `
			SELECT results.job_id, `+Columns+` FROM results JOIN jobs ON jobs.workspace_id = $1 AND jobs.id = results.job_id WHERE results.workspace_id = $1`)
		if err != nil || len(all) != 1 || all[0].JobID != id || all[0].Status != Done || all[0].Done != 2 || all[0].Cost != 2*price || all[0].Error != nil {
			t.Errorf("%+v %v", all, err)
		}
	})
}

func TestWorkThatReturnsWithoutFinishingIsDone(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 1)
		s := m.open(t, Config{})
		s.Handle(kind, func(ctx context.Context, run *Run) error {
			return run.Tx(ctx, func(_ *db.Tx, at *Tally) error {
				at.Done, at.Total, at.Cost = 4, 4, 9
				return nil
			})
		})
		s.start(t)
		if j := m.await(t, mine, id, Done); j.Done != 4 || j.Total != 4 || j.Cost != 9 {
			t.Errorf("%+v", j)
		}
	})
}

func TestStoppedWorkIsResumedFromWhatItWrote(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 4)
		before := goleak.IgnoreCurrent()
		var cause error
		saved := make(chan error, 1)
		at := newGate()
		s := m.serve(t, Config{}, func(ctx context.Context, run *Run, unit int64) error {
			if unit != 2 {
				return nil
			}
			err := at.pass(ctx, run, unit)
			cause = context.Cause(ctx)
			last := context.WithoutCancel(ctx) // what it has is saved although it stops
			saved <- run.Tx(last, func(tx *db.Tx, at *Tally) error { return writeUnit(last, tx, run, unit, at) })
			return err
		})
		at.await(t)
		s.stop()
		if err := <-saved; err != nil || !errors.Is(cause, ErrStopping) {
			t.Errorf("ended of %v, and saving is %v", cause, err)
		}
		if r := m.row(t, mine, id); r.Status != Queued || r.Claim != "" || r.Done != 3 || r.Attempts != 0 || r.Losses != 0 {
			t.Errorf("after the stop: %+v", r)
		}
		_ = s.own.Close()
		goleak.VerifyNone(t, before)
		started := *m.get(t, mine, id).StartedAt
		var did atomic.Int64
		m.serve(t, Config{}, func(context.Context, *Run, int64) error { did.Add(1); return nil })
		m.checkDone(t, mine, id)
		if did.Load() != 1 || *m.get(t, mine, id).StartedAt != started {
			t.Errorf("the second run did %d units, and one was left", did.Load())
		}
	})
}

// A loop that ends with its context returns nil: that must not pass for the end of the work.
func TestNilAfterTheContextHasEndedIsNotDone(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 1)
		s := m.open(t, Config{})
		running := make(chan struct{})
		s.Handle(kind, func(ctx context.Context, _ *Run) error {
			close(running)
			<-ctx.Done()
			return nil
		})
		s.start(t)
		<-running
		s.stop()
		if j := m.get(t, mine, id); j.Status != Queued {
			t.Errorf("%+v", j)
		}
	})
}

func TestKilledWorkIsResumedAndEachUnitIsWrittenOnce(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 4)
		at := newGate()
		s := m.serve(t, Config{}, func(ctx context.Context, run *Run, unit int64) error {
			if unit != 2 {
				return nil
			}
			return at.pass(ctx, run, unit)
		})
		at.await(t)
		s.kill()
		if r := m.row(t, mine, id); r.Status != Running || r.Claim == "" || r.Done != 2 {
			t.Fatalf("a kill cleans nothing up: %+v", r)
		}
		var did atomic.Int64
		m.serve(t, Config{}, func(context.Context, *Run, int64) error { did.Add(1); return nil })
		m.checkDone(t, mine, id)
		if did.Load() != 2 {
			t.Errorf("the second run did %d units of the 2 that were left", did.Load())
		}
	})
}

func TestARunThatLostItsClaimWritesNothing(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 3)
		old := m.open(t, Config{})
		at, ended := newGate(), make(chan error, 1)
		old.Handle(kind, func(ctx context.Context, run *Run) error {
			_ = at.pass(ctx, run, 0)
			late := context.WithoutCancel(ctx)
			err := run.Tx(late, func(tx *db.Tx, at *Tally) error { return writeUnit(late, tx, run, 0, at) })
			if cause := context.Cause(ctx); !errors.Is(cause, ErrLost) {
				t.Errorf("its context ends of %v", cause)
			}
			ended <- errors.Join(err, run.Finish(late, func(*db.Tx, *Tally) error { return nil }))
			return err
		})
		if err := old.runOnce(t.Context()); err != nil { // one pass only: its loop does not run, its job does
			t.Fatal(err)
		}
		at.await(t)
		second := newGate()
		m.serve(t, Config{}, func(ctx context.Context, run *Run, unit int64) error {
			if unit == 1 {
				return second.pass(ctx, run, unit)
			}
			return nil
		})
		second.await(t)
		before := m.row(t, mine, id)
		close(at.open)
		if err := <-ended; !errors.Is(err, ErrLost) || strings.Contains(err.Error(), "<nil>") {
			t.Errorf("its writes are answered with %v", err)
		}
		old.work.Wait()
		if after := m.row(t, mine, id); after.Claim != before.Claim || after.Done != before.Done || after.Status != Running {
			t.Errorf("the old run changed\n%+v to\n%+v", before, after)
		}
		close(second.open)
		m.checkDone(t, mine, id)
	})
}

func TestPausedRunsEndAtOnceWriteNothingAndResume(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 2)
		at, ended := newGate(), make(chan error, 1)
		s := m.serve(t, Config{}, atUnit(1, func(ctx context.Context, run *Run) error {
			_ = at.pass(ctx, run, 1)
			late := context.WithoutCancel(ctx)
			ended <- run.Tx(late, func(tx *db.Tx, at *Tally) error { return writeUnit(late, tx, run, 1, at) })
			return context.Cause(ctx)
		}))
		at.await(t)
		s.Pause(errBroken)
		if err := <-ended; !errors.Is(err, ErrLost) || !errors.Is(err, errBroken) {
			t.Errorf("a write while paused: %v", err)
		}
		other := m.queue(t, mine, 1)
		if err := s.runOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if j := m.get(t, mine, other); j.Status != Queued || m.units(t, mine, id) != 1 {
			t.Errorf("runs while paused: %+v, %d units", j, m.units(t, mine, id))
		}
		s.Resume()
		m.checkDone(t, mine, id)
		m.checkDone(t, mine, other)
		if r := m.row(t, mine, id); r.Losses != 0 {
			t.Errorf("a pause counts as a loss: %+v", r)
		}
	})
}

// A run that ignores its context keeps its slot, but not its job.
func TestARunThatOutlivesAPauseDoesNotBlockItsJob(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 1)
		deaf, reached := make(chan struct{}), make(chan struct{})
		s := m.serve(t, Config{}, atUnit(0, func(context.Context, *Run) error {
			close(reached)
			<-deaf
			return errBroken
		}))
		<-reached
		s.Pause(errBroken)
		s.Resume()
		m.checkDone(t, mine, id)
		for deadline := time.Now().Add(2 * time.Minute); s.freeSlots() != 3; time.Sleep(time.Millisecond) { // the finished run frees its slot a little later
			if time.Now().After(deadline) {
				t.Fatalf("%d slots are free", s.freeSlots())
			}
		}
		close(deaf)
	})
}

func TestCancelEndsAWaitingJobAtOnceAndIsAuditedOnce(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		s := m.open(t, Config{})
		id := m.queue(t, mine, 3)
		for range 2 {
			if j, err := s.Cancel(t.Context(), mine, ann, id); err != nil || j.Status != Cancelled || j.FinishedAt == nil || j.Error != nil {
				t.Fatalf("%+v %v", j, err)
			}
		}
		entries, err := audit.History(t.Context(), m.db, mine, kind, id, 10, 0)
		if err != nil || len(entries) != 1 || entries[0].Action != "count.cancel" || entries[0].Actor != ann ||
			string(entries[0].Before) != `{"status":"QUEUED","cancel_requested":false}` || string(entries[0].After) != `{"status":"CANCELLED","cancel_requested":true}` {
			t.Errorf("%+v %v", entries, err)
		}
		for ws, name := range map[tenant.ID]string{theirs: id, mine: "cnt_none"} {
			if _, err := s.Cancel(t.Context(), ws, ann, name); fault.From(err).Kind != fault.Missing {
				t.Errorf("%s of %s: %v", name, ws, err)
			}
		}
		s.Handle(kind, counting(s.own, noDelay))
		s.start(t)
		other := m.queue(t, mine, 1)
		m.checkDone(t, mine, other)
		if m.units(t, mine, id) != 0 {
			t.Error("a cancelled job ran")
		}
	})
}

func TestCancelEndsARunningJobAndKeepsWhatItDid(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		for _, reach := range []string{"by the runner", "in a transaction of the caller", "while its work does not look"} {
			id := m.queue(t, mine, 3)
			at, causes := newGate(), make(chan error, 1)
			s := m.open(t, Config{})
			if reach == "by the runner" {
				s.pollEvery = time.Hour
			}
			s.Handle(kind, counting(s.own, atUnit(1, func(ctx context.Context, run *Run) error {
				err := at.pass(ctx, run, 1)
				causes <- context.Cause(ctx)
				if reach == "while its work does not look" {
					return nil
				}
				return err
			})))
			s.start(t)
			at.await(t)
			if reach == "by the runner" {
				if j, err := s.Cancel(t.Context(), mine, ann, id); err != nil || j.Status.Ended() && j.Status != Cancelled {
					t.Fatalf("%+v %v", j, err)
				}
			} else if _, err := m.db.Tx(t.Context(), func(tx *db.Tx) error {
				_, err := Cancel(t.Context(), tx, mine, ann, id)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if cause := <-causes; !errors.Is(cause, ErrCancelled) {
				t.Errorf("%s: ended of %v", reach, cause)
			}
			if j := m.await(t, mine, id, Cancelled); j.Done != 1 || j.Cost != price || j.FinishedAt == nil || j.Error != nil || m.units(t, mine, id) != 1 {
				t.Errorf("%s: %+v", reach, j)
			}
			s.stop()
		}
	})
}

func TestNothingIsWrittenOrFinishedAfterACancellation(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 1)
		s := m.open(t, Config{})
		answers := make(chan error, 2)
		s.Handle(kind, func(ctx context.Context, run *Run) error {
			if _, err := m.db.Tx(ctx, func(tx *db.Tx) error {
				_, err := Cancel(ctx, tx, mine, ann, id)
				return err
			}); err != nil {
				return err
			}
			late := context.WithoutCancel(ctx)
			answers <- run.Tx(late, func(tx *db.Tx, at *Tally) error { return writeUnit(late, tx, run, 0, at) })
			answers <- run.Finish(late, func(*db.Tx, *Tally) error { return nil })
			return nil
		})
		s.start(t)
		for range 2 {
			if err := <-answers; !errors.Is(err, ErrCancelled) {
				t.Errorf("a write is answered with %v", err)
			}
		}
		if j := m.await(t, mine, id, Cancelled); j.Done != 0 || m.units(t, mine, id) != 0 {
			t.Errorf("%+v", j)
		}
	})
}

func TestCancelOfAnEndedJobIsAConflict(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		done, failed := m.queue(t, mine, 1), m.queue(t, theirs, 1)
		s := m.serve(t, Config{}, func(_ context.Context, run *Run, _ int64) error {
			if run.Workspace == theirs {
				return fault.InsufficientBalance.New("no money")
			}
			return nil
		})
		m.await(t, mine, done, Done)
		m.await(t, theirs, failed, Failed)
		for id, ws := range map[string]tenant.ID{done: mine, failed: theirs} {
			before := m.row(t, ws, id)
			if _, err := s.Cancel(t.Context(), ws, ann, id); fault.From(err).Kind != fault.Conflicting {
				t.Errorf("%v", err)
			}
			if after := m.row(t, ws, id); after.Status != before.Status || after.CancelRequested {
				t.Errorf("changed to %+v", after)
			}
		}
	})
}

// A run is told before the caller's transaction commits; when that fails, the job goes on.
func TestACancellationThatIsRolledBackOnlyInterrupts(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 2)
		at := newGate()
		s := m.open(t, Config{})
		s.Handle(kind, counting(s.own, atUnit(1, func(ctx context.Context, run *Run) error { return at.pass(ctx, run, 1) })))
		s.start(t)
		at.await(t)
		_, err := s.own.Tx(t.Context(), func(tx *db.Tx) error {
			if _, err := s.Cancel(tx.Bind(t.Context()), mine, ann, id); err != nil {
				return err
			}
			return errBroken
		})
		if !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		m.checkDone(t, mine, id)
	})
}

func TestCancelledWorkOfADeadServerIsCancelledNotResumed(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 2)
		at := newGate()
		s := m.serve(t, Config{}, at.pass)
		at.await(t)
		s.kill()
		other := m.open(t, Config{})
		if j, err := other.Cancel(t.Context(), mine, ann, id); err != nil || j.Status != Running {
			t.Fatalf("%+v %v", j, err)
		}
		other.Handle(kind, counting(other.own, noDelay))
		other.start(t)
		if m.await(t, mine, id, Cancelled); m.units(t, mine, id) != 0 {
			t.Error("it was resumed")
		}
	})
}

func TestRefusalFailsWithItsMessageAtOnce(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 3)
		var runs atomic.Int64
		m.serve(t, Config{}, func(_ context.Context, _ *Run, unit int64) error {
			if unit == 0 {
				runs.Add(1)
				return nil
			}
			return fmt.Errorf("judge: %w", fault.InsufficientBalance.Because(errBroken, "the wallet is empty\x00"))
		})
		j := m.await(t, mine, id, Failed)
		if j.Error == nil || *j.Error != "the wallet is empty\uFFFD" || j.Done != 1 || j.FinishedAt == nil || runs.Load() != 1 {
			t.Errorf("%d runs: %+v", runs.Load(), j)
		}
	})
}

func TestErrorsAndPanicsAreRetriedThenFailWithoutDetails(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		for what, fail := range map[string]func() error{
			"error": func() error { return errBroken },
			"panic": func() error { panic(errBroken) },
		} {
			var runs atomic.Int64
			id := m.queue(t, mine, 2)
			s := m.serve(t, Config{}, func(_ context.Context, _ *Run, unit int64) error {
				if unit == 0 {
					return nil
				}
				runs.Add(1)
				return fail()
			})
			j := m.await(t, mine, id, Failed)
			if j.Error == nil || *j.Error != "internal error" || j.Done != 1 || runs.Load() != maxAttempts {
				t.Errorf("%s: %d tries: %+v", what, runs.Load(), j)
			}
			s.stop()
			if text := s.logged.String(); !strings.Contains(text, "hunter2") || (what == "panic") != strings.Contains(text, "runner_test.go") {
				t.Errorf("%s: the log says\n%s", what, text)
			}
		}
	})
}

func TestProgressResetsTheCountOfErrors(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 3*maxAttempts)
		var last atomic.Int64
		last.Store(-1)
		m.serve(t, Config{}, func(_ context.Context, _ *Run, unit int64) error {
			if last.Swap(unit) != unit {
				return errBroken
			}
			return nil
		})
		m.checkDone(t, mine, id)
	})
}

func TestARefusalWithRetryAfterIsRetried(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		away := fault.Unavailable.Because(errBroken, "the database is not available").In(time.Second)
		passing, lasting := m.queue(t, mine, 1), m.queue(t, theirs, 1)
		var tries atomic.Int64
		m.serve(t, Config{}, func(_ context.Context, run *Run, _ int64) error {
			if run.Workspace == theirs || tries.Add(1) < 3 {
				return away
			}
			return nil
		})
		m.checkDone(t, mine, passing)
		if j := m.await(t, theirs, lasting, Failed); *j.Error != "the database is not available" {
			t.Errorf("%+v", j)
		}
	})
}

// A job in backoff waits in the queue: it occupies no slot, can be cancelled, and a new server does not wait for it.
func TestABackoffBlocksNothing(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		broken, stuck := m.queue(t, mine, 1), m.queue(t, mine, 1)
		s := m.open(t, Config{Slots: 1})
		s.backoffScale = 1000
		s.Handle(kind, counting(s.own, func(_ context.Context, run *Run, _ int64) error {
			if run.ID == broken || run.ID == stuck {
				return errBroken
			}
			return nil
		}))
		s.start(t)
		fine := m.queue(t, mine, 1)
		m.checkDone(t, mine, fine)
		for _, id := range []string{broken, stuck} {
			if r := m.row(t, mine, id); r.Status != Queued || r.Claim == "" || r.Attempts != 1 {
				t.Errorf("%+v", r)
			}
		}
		if j, err := s.Cancel(t.Context(), mine, ann, broken); err != nil || j.Status != Cancelled {
			t.Errorf("%+v %v", j, err)
		}
		s.kill()
		m.serve(t, Config{}, noDelay)
		m.checkDone(t, mine, stuck)
		if j := m.get(t, mine, broken); j.Status != Cancelled {
			t.Errorf("%+v", j)
		}
	})
}

func TestAJobThatKeepsCrashingItsServerFails(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 2)
		at := newGate()
		for n := range int64(maxLosses) {
			s := m.serve(t, Config{}, at.pass)
			at.await(t)
			s.kill()
			if r := m.row(t, mine, id); r.Status != Running || r.Losses != n {
				t.Fatalf("after %d: %+v", n, r)
			}
		}
		m.serve(t, Config{}, at.pass)
		if j := m.await(t, mine, id, Failed); *j.Error != "the server ended 10 times while this ran" {
			t.Errorf("%+v", j)
		}
	})
}

func TestJobOfAnUnknownKindWaitsForAServerThatKnowsIt(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 1)
		s := m.open(t, Config{}).start(t)
		for deadline := time.Now().Add(2 * time.Minute); m.row(t, mine, id).Claim == "" && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		s.stop()
		if r := m.row(t, mine, id); r.Status != Queued || strings.Count(s.logged.String(), "no handler for jobs") != 1 {
			t.Errorf("%+v\n%s", r, s.logged)
		}
		m.serve(t, Config{}, noDelay)
		m.checkDone(t, mine, id)
	})
}

// Whatever statement of the runner or the run fails, before or after its commit, each unit is written once.
func TestDatabaseErrorsAreSurvived(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		for _, committed := range []bool{false, true} {
			var ids []string
			for range 3 {
				ids = append(ids, m.queue(t, mine, 5), m.queue(t, theirs, 5))
			}
			s := m.open(t, Config{})
			var n atomic.Int64
			s.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) {
				if n.Add(1)%3 != 0 {
					return s.own.Tx(ctx, fn)
				}
				if committed {
					if version, err := s.own.Tx(ctx, fn); err != nil {
						return version, err
					}
				}
				return 0, fault.Unavailable.Because(errBroken, "the database is not available").In(time.Second)
			}
			s.Handle(kind, counting(s.own, noDelay))
			s.start(t)
			for i, id := range ids {
				m.checkDone(t, []tenant.ID{mine, theirs}[i%2], id)
			}
			s.stop()
		}
	})
}

// Work that does many units at once writes them all, one after the other.
func TestConcurrentWritesOfOneRunAllSucceed(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		const units = 40
		id := m.queue(t, mine, units)
		s := m.open(t, Config{})
		s.Handle(kind, func(ctx context.Context, run *Run) error {
			var all sync.WaitGroup
			for unit := range int64(units) {
				all.Go(func() {
					if err := run.Tx(ctx, func(tx *db.Tx, at *Tally) error { return writeUnit(ctx, tx, run, unit, at) }); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			return nil
		})
		s.start(t)
		if j := m.await(t, mine, id, Done); j.Done != units || m.units(t, mine, id) != units {
			t.Errorf("%+v", j)
		}
	})
}

// The wall clock jumps by an hour, forward or back, each time that it is read.
func TestAJumpingClockChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		var n atomic.Int64
		jumping := func() clock.Time {
			return clock.Now().Add([]time.Duration{-time.Hour, 0, time.Hour}[n.Add(1)%3])
		}
		id, resting := m.queue(t, mine, 6), m.queue(t, theirs, 1)
		s := m.open(t, Config{Now: jumping})
		s.backoffScale = 0.1
		var runs atomic.Int64
		var failed, again time.Time
		s.Handle(kind, counting(s.own, func(_ context.Context, run *Run, unit int64) error {
			switch {
			case run.Workspace == theirs && failed.IsZero():
				failed = time.Now()
				return errBroken
			case run.Workspace == theirs:
				again = time.Now()
			case unit == 0:
				runs.Add(1)
			}
			time.Sleep(time.Millisecond)
			return nil
		}))
		s.start(t)
		m.checkDone(t, mine, id)
		m.checkDone(t, theirs, resting)
		if delay := again.Sub(failed); runs.Load() != 1 || delay < 100*time.Millisecond || delay > 30*time.Minute {
			t.Errorf("%d runs, and a backoff of %s", runs.Load(), delay)
		}
	})
}

// One workspace has a thousand jobs waiting when another comes with a few.
func TestOneWorkspaceDoesNotStarveAnother(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		if err := insertJobs(t, m.db, mine, 1000, Queued); err != nil {
			t.Fatal(err)
		}
		var few []string
		for range 5 {
			few = append(few, m.queue(t, theirs, 0))
		}
		s := m.open(t, Config{Slots: 1})
		var mu sync.Mutex
		var order []tenant.ID
		s.Handle(kind, func(_ context.Context, run *Run) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, run.Workspace)
			return nil
		})
		s.start(t)
		for _, id := range few {
			m.await(t, theirs, id, Done)
		}
		s.stop()
		for i, ws := range order[:2*len(few)] {
			if i > 0 && ws == order[i-1] {
				t.Fatalf("they do not take turns: %v", order)
			}
		}
	})
}

func TestSlotsBoundTheRunningJobs(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		var ids []string
		for range 3 {
			ids = append(ids, m.queue(t, mine, 1), m.queue(t, theirs, 1))
		}
		at := newGate()
		s := m.serve(t, Config{Slots: 3, PerWorkspace: 2}, at.pass)
		for range 3 {
			at.await(t)
		}
		if err := s.runOnce(t.Context()); err != nil { // a further pass starts no more
			t.Fatal(err)
		}
		running := map[tenant.ID]int{}
		s.mu.Lock()
		for _, run := range s.runs {
			running[run.Workspace]++
		}
		s.mu.Unlock()
		if len(at.reached) > 0 || running[mine]+running[theirs] != 3 || running[mine] > 2 || running[theirs] > 2 {
			t.Errorf("%d more than permitted, %v", len(at.reached), running)
		}
		close(at.open)
		for i, id := range ids {
			m.checkDone(t, []tenant.ID{mine, theirs}[i%2], id)
		}
	})
}

// PerWorkspace bounds a workspace's running jobs, however many slots are free.
func TestPerWorkspaceBoundsTheRunningJobs(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		at := newGate()
		s := m.open(t, Config{})
		s.Handle(kind, counting(s.own, at.pass))
		var ids []string
		for range 5 {
			ids = append(ids, m.queue(t, mine, 1))
		}
		s.start(t)
		at.await(t)
		at.await(t)
		if err := s.runOnce(t.Context()); err != nil { // a further pass starts no more
			t.Fatal(err)
		}
		if free := s.freeSlots(); free != 2 || len(at.reached) != 0 {
			t.Errorf("%d slots are free", free)
		}
		for _, id := range ids[:2] { // the oldest are first
			if j := m.get(t, mine, id); j.Status != Running {
				t.Errorf("%+v", j)
			}
		}
		close(at.open)
		for _, id := range ids {
			m.checkDone(t, mine, id)
		}
	})
}
