package dataset_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// rowsWritten waits until a build has written some rows, so that what follows comes in the middle of it.
func (r fixture) rowsWritten(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if n := r.counts(t); n[1] > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is written")
		}
	}
}

func (r fixture) start(t *testing.T, recipe dataset.Recipe) string {
	t.Helper()
	id, err := r.Start(t.Context(), mine, ann, recipe)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestABuildThatIsKilledResumesAndIsWhole(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 1000)...)
		ctx := audit.WithRequest(t.Context(), "req_1")
		id, err := r.Start(ctx, mine, ann, dataset.Recipe{Name: "all", Holdout: 10})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // each run ends as if its server had died: nothing that it has in hand reaches the database
			r.rowsWritten(t)
			r.runner.Pause(errors.New("killed"))
			r.stop()
			r.serve(t)
			if err := r.Sweep(t.Context()); err != nil { // as at a start
				t.Fatal(err)
			}
		}
		d, err := r.Await(t.Context(), mine, id)
		if err != nil || d.ID != id || d.Curation.Kept != 1000 {
			t.Fatalf("%+v %v", d, err)
		}
		r.has(t, [4]int{2, 1000, 1000, 0})
		if n := len(lines(r.export(t, d))) + len(lines(r.export(t, r.get(t, *d.HoldoutID)))); n != 1000 {
			t.Errorf("%d examples", n)
		}
		if entries, err := audit.History(t.Context(), r.db, mine, "dataset", id, 10, 0); err != nil || len(entries) != 1 || entries[0].RequestID != "req_1" {
			t.Errorf("%+v %v", entries, err)
		}
	})
}

func TestACallerWhoLeavesDoesNotStopTheBuild(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 1000)...)
		id := r.start(t, dataset.Recipe{Name: "all"})
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := r.Await(ctx, mine, id)
			left <- err
		}()
		r.rowsWritten(t)
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller who left: %v", err)
		}
		if d, err := r.Await(t.Context(), mine, id); err != nil || d.Rows != 1000 {
			t.Errorf("%+v %v", d, err)
		}
		r.has(t, [4]int{1, 1000, 1000, 0})
	})
}

func TestWhileTheServerStopsTheCallerIsToldToComeBack(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 1000)...)
		id := r.start(t, dataset.Recipe{Name: "all"})
		r.stop()
		_, err := r.Await(t.Context(), mine, id)
		if refusal, _ := errors.AsType[*fault.Fault](err); err != nil && (refusal == nil || refusal.Kind != fault.Unavailable || refusal.RetryAfter == 0) {
			t.Errorf("%v", err)
		}
		r.serve(t)
		if d, err := r.Await(t.Context(), mine, id); err != nil || d.Rows != 1000 {
			t.Errorf("%+v %v", d, err)
		}
	})
}

func TestACancelledBuildLeavesNothingAndFreesItsName(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 1000)...)
		id := r.start(t, dataset.Recipe{Name: "all", Holdout: 10})
		r.rowsWritten(t)
		if _, err := r.runner.Cancel(t.Context(), mine, ann, id); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Await(t.Context(), mine, id); !refused(err, fault.Conflicting) {
			t.Error(err)
		}
		r.has(t, [4]int{0, 0, 0, 0})
		r.make(t, dataset.Recipe{Name: "all", Holdout: 10})
		r.has(t, [4]int{2, 1000, 1000, 0})
	})
}

func TestAFailedBuildIsSweptAndForgotten(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 200)...)
		id := r.start(t, dataset.Recipe{Name: "all", Holdout: 10})
		if _, err := r.Await(t.Context(), mine, id); err != nil {
			t.Fatal(err)
		}
		// As a job leaves it that fails before its last transaction, while no caller waits.
		for _, statement := range []string{
			`INSERT INTO dataset_builds (workspace_id, id, name, holdout_id, holdout_name, recipe, actor, request_id)
				SELECT workspace_id, id, name, holdout_id, 'all-eval', '{}', '{}', '' FROM datasets WHERE role = 'train'`,
			`INSERT INTO dataset_loose (workspace_id, dataset_id, since) SELECT workspace_id, id, 1 FROM datasets`,
			`DELETE FROM datasets`,
			`UPDATE jobs SET status = 'FAILED', failure = 'internal error'`,
		} {
			if _, err := db.Exec(t.Context(), r.db.Across("test"), statement); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.has(t, [4]int{0, 0, 0, 0})
		if _, err := r.Await(t.Context(), mine, id); !refused(err, fault.Internal) {
			t.Errorf("a caller who waits for it: %v", err)
		}
		if _, err := db.Exec(t.Context(), r.db.Across("test"), `UPDATE jobs SET finished_at = 1`); err != nil {
			t.Fatal(err)
		}
		if err := r.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"dataset_builds", "jobs"} {
			if n, err := db.One[int](t.Context(), r.db.Across("test"), `SELECT COUNT(*) FROM `+table); err != nil || n != 0 {
				t.Errorf("%d rows in %s: %v", n, table, err)
			}
		}
		if _, err := r.Await(t.Context(), mine, id); !refused(err, fault.Missing) {
			t.Errorf("long after: %v", err)
		}
	})
}

func TestDeletingADatasetDeletesItsJob(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 5)...)
		d := r.make(t, dataset.Recipe{Name: "all"})
		r.delete(t, d.ID)
		if _, err := job.Get(t.Context(), r.db.In(mine), d.ID); !refused(err, fault.Missing) {
			t.Error(err)
		}
	})
}

// Other workspaces' builds do not count: one workspace cannot keep the others from building.
func TestAFifthUnfinishedBuildOfAWorkspaceIsRefused(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 5)...)
		r.runner.Pause(errors.New("until all are queued"))
		var ids []string
		for i := range 4 {
			ids = append(ids, r.start(t, dataset.Recipe{Name: fmt.Sprint("set ", i)}))
		}
		if _, err := r.Start(t.Context(), mine, ann, dataset.Recipe{Name: "one more"}); !refused(err, fault.RateLimited) {
			t.Error(err)
		}
		other, err := r.Start(t.Context(), theirs, ann, dataset.Recipe{Name: "one more"})
		if err != nil {
			t.Error(err)
		}
		r.runner.Resume()
		if _, err := r.Await(t.Context(), theirs, other); err != nil {
			t.Error(err)
		}
		for _, id := range ids {
			if _, err := r.Await(t.Context(), mine, id); err != nil {
				t.Error(err)
			}
		}
		if _, err := r.fromLogs(t.Context(), mine, dataset.Recipe{Name: "one more"}); err != nil {
			t.Error(err)
		}
	})
}

func TestABuildThatWaitedReadsNothingOnceLoggingIsOff(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 5)...)
		r.runner.Pause(errors.New("until logging is off"))
		id := r.start(t, dataset.Recipe{Name: "all"})
		r.logging(0)
		r.runner.Resume()
		if _, err := r.Await(t.Context(), mine, id); !refused(err, fault.LoggingDisabled) {
			t.Error(err)
		}
	})
}

// A repetition of a request that was cut off waits for the build that the first one started.
func TestAnIdempotencyKeyNamesOneBuildThroughARestart(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 1000)...)
		const body = `{"name":"all","holdout_pct":10}`
		first := r.client(t)
		answered := make(chan int)
		go func() {
			answered <- first.Do(t, first.Owner, "POST", "/v1/datasets/from_logs", body, "Idempotency-Key", "k").Code
		}()
		r.rowsWritten(t)
		r.runner.Pause(errors.New("killed"))
		r.stop()
		if status := <-answered; status != http.StatusServiceUnavailable {
			t.Errorf("the first is answered %d", status)
		}
		r.serve(t)
		again := r.client(t)
		made := again.create(t, body, "Idempotency-Key", "k")
		if repeated := again.create(t, body, "Idempotency-Key", "k"); repeated.ID != made.ID {
			t.Errorf("%s and %s", made.ID, repeated.ID)
		}
		r.has(t, [4]int{2, 1000, 1000, 0})
		r.delete(t, made.ID) // the answer is still kept
		if repeated := again.create(t, body, "Idempotency-Key", "k"); repeated.ID != made.ID {
			t.Errorf("%s and %s", made.ID, repeated.ID)
		}
	})
}

func TestAFailedBuildLeavesNoMemoryOfItsIdempotencyKey(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 1000)...)
		d := r.client(t)
		answered := make(chan int)
		go func() {
			answered <- d.Do(t, d.Owner, "POST", "/v1/datasets/from_logs", `{"name":"all","holdout_pct":10}`, "Idempotency-Key", "k").Code
		}()
		r.rowsWritten(t)
		id, err := db.One[string](t.Context(), r.db.In(mine), `SELECT id FROM dataset_builds WHERE workspace_id = $1`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.runner.Cancel(t.Context(), mine, ann, id); err != nil {
			t.Fatal(err)
		}
		if status := <-answered; status != http.StatusConflict {
			t.Errorf("%d", status)
		}
		if made := d.create(t, `{"name":"all","holdout_pct":10}`, "Idempotency-Key", "k"); made.ID == id {
			t.Error("the cancelled build is answered again")
		}
	})
}

// A caller waits for a build, and not for the runs that its workspace has in the background.
func TestABuildDoesNotWaitForTheRunsOfItsWorkspace(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 20)...)
		r.runner.Handle("long", func(ctx context.Context, _ *job.Run) error { <-ctx.Done(); return ctx.Err() })
		for i := range 6 { // as many as run, and more
			if _, err := r.db.Tx(t.Context(), func(tx *db.Tx) error {
				return job.Queue(t.Context(), tx, mine, job.New{ID: fmt.Sprint("cal_", i), Kind: "long"})
			}); err != nil {
				t.Fatal(err)
			}
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if d, err := r.fromLogs(soon, mine, dataset.Recipe{Name: "all"}); err != nil || d.Rows != 20 {
			t.Errorf("%+v %v", d, err)
		}
	})
}

// A caller hears of a build that fails before its last try, and the build goes on when it can.
func TestACallerHearsOfABuildThatIsTriedAgain(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 20)...)
		rename := func(from, to string) {
			if _, err := db.Exec(t.Context(), r.logs.Across("test"), `ALTER TABLE `+from+` RENAME TO `+to); err != nil {
				t.Fatal(err)
			}
		}
		rename("log_rows", "away")
		id := r.start(t, dataset.Recipe{Name: "all"})
		if _, err := r.Await(t.Context(), mine, id); !refused(err, fault.Unavailable) {
			t.Fatal(err)
		}
		rename("away", "log_rows")
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			d, err := r.Await(t.Context(), mine, id)
			if err == nil && d.Rows == 20 {
				return
			}
			if !refused(err, fault.Unavailable) || time.Now().After(deadline) {
				t.Fatalf("%+v %v", d, err)
			}
		}
	})
}
