package train

import (
	"context"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func TestEveryPairOfStatesIsAllowedOrRefusedByTheTable(t *testing.T) {
	all := []Status{Validating, Queued, Running, Paused, Succeeded, Failed, Cancelled}
	allowed := 0
	for _, from := range all {
		for _, to := range all {
			if from.May(to) {
				allowed++
			}
			if from.Final() && from.May(to) {
				t.Errorf("%s is final, and becomes %s", from, to)
			}
		}
	}
	if allowed != 15 || len(next) != len(all) {
		t.Errorf("%d pairs of %d states", allowed, len(next))
	}
}

// Two GPUs at $3.60 an hour: ten seconds cost two cents.
func TestTheTimeBetweenAcceptedHeartbeatsIsChargedOnce(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.create("ftjob_1", 10*money.Dollar)
		h.wantSpent("ftjob_1", 0, 90*money.Dollar)
		lease := h.take()
		h.pass(7 * time.Second) // before the first heartbeat: free
		h.train(lease, 1, 3)    // 10 seconds, and 5 that are not acknowledged
		h.beat(lease, 3)        // a repetition meters nothing
		h.save(lease, 3, "weights")
		if err := h.Finish(t.Context(), h.worker, lease.hand(), Done{Outcome: "succeeded", Step: 3}); err != nil {
			t.Fatal(err)
		}
		h.wantStatus("ftjob_1", Succeeded)
		h.tick()
		h.tick()
		h.wantSpent("ftjob_1", 2*money.Dollar/100, 100*money.Dollar-2*money.Dollar/100)
		if r := h.run("ftjob_1"); !r.Settled || r.StartedAt == 0 || r.FinishedAt == 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestALostWorkerIsReplacedAndItsTimeIsFree(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.create("ftjob_1", money.Dollar)
		first := h.take()
		h.train(first, 1, 4)
		h.save(first, 4, "four")
		h.pass(leaseTime)
		h.tick()
		h.wantStatus("ftjob_1", Queued)
		_, err := h.Heartbeat(t.Context(), h.worker, first.hand(), Beat{Number: 5})
		wantFault(t, err, fault.StaleLease, "lost")
		err = h.Finish(t.Context(), h.worker, first.hand(), Done{Outcome: "succeeded", Step: 4})
		wantFault(t, err, fault.StaleLease, "lost")

		second := h.take()
		if second.Attempt != 2 || second.Fence == first.Fence || second.ResumeFrom == nil || second.ResumeFrom.Step != 4 ||
			second.ResumeFrom.Files[0].Name != "model.bin" {
			t.Fatalf("%+v", second)
		}
		h.train(second, 1, 2)
		h.save(second, 5, "five")
		if err := h.Finish(t.Context(), h.worker, second.hand(), Done{Outcome: "succeeded", Step: 5}); err != nil {
			t.Fatal(err)
		}
		h.tick()
		h.wantSpent("ftjob_1", money.Dollar/100, 100*money.Dollar-money.Dollar/100) // five seconds of two GPUs
	})
}

func TestARunThatLosesWorkersWithoutProgressFails(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.create("ftjob_1", money.Dollar)
		for range maxLost {
			if lease := h.take(); lease == nil {
				t.Fatal("it is not queued")
			}
			h.pass(2 * leaseTime)
			h.tick()
		}
		h.wantStatus("ftjob_1", Failed)
		told, err := h.Alarms(t.Context(), dbtest.Mine)
		if err != nil || len(told) != 1 || told[0].Link.Page != "training/runs/ftjob_1" || told[0].Detail == "" {
			t.Errorf("Home is told %+v %v", told, err)
		}
		if theirs, err := h.Alarms(t.Context(), dbtest.Theirs); err != nil || len(theirs) != 0 {
			t.Errorf("another workspace is told %+v %v", theirs, err)
		}
		h.tick()
		h.wantSpent("ftjob_1", 0, 100*money.Dollar)
		h.pass(alarmFor)
		if told, err := h.Alarms(t.Context(), dbtest.Mine); err != nil || len(told) != 0 {
			t.Errorf("a week later Home is told %+v %v", told, err)
		}
	})
}

func TestAKilledServerEndsNoRunAndChargesNothingTwice(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.create("ftjob_1", 10*money.Dollar)
		lease := h.take()
		h.train(lease, 1, 2)
		h.pass(leaseTime) // the server is away for longer than a lease
		h.restart()
		h.tick()
		h.wantStatus("ftjob_1", Running)
		h.beat(lease, 3)
		h.save(lease, 3, "weights")
		if err := h.Finish(t.Context(), h.worker, lease.hand(), Done{Outcome: "succeeded", Step: 3}); err != nil {
			t.Fatal(err)
		}
		due, err := db.Query[attempt](t.Context(), h.DB.Across(ofAll), `SELECT `+attemptColumns+` WHERE charge = 'due'`)
		if err != nil || len(due) != 1 {
			t.Fatal(due, err)
		}
		if err := h.spend(t.Context(), &due[0]); err != nil { // it dies after the journal has the charge
			t.Fatal(err)
		}
		h.restart()
		h.tick()
		h.tick()
		// Five seconds, then a gap of 35 of which the lease of 30 is metered: 35 seconds of two GPUs.
		h.wantSpent("ftjob_1", 7*money.Dollar/100, 100*money.Dollar-7*money.Dollar/100)
	})
}

func TestABudgetIsNeverExceeded(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.create("ftjob_1", 5*money.Dollar/100) // 25 seconds of two GPUs
		lease := h.take()
		var order Order
		n := int64(1)
		for ; n < 20 && order.Command != CheckpointAndStop; n++ {
			order = h.beat(lease, n)
			h.pass(beatEvery)
		}
		if order.Reason != "the budget is spent" || n != 6 { // 20 seconds are metered: one more heartbeat fits, and two do not
			t.Errorf("after %d heartbeats: %+v", n-1, order)
		}
		h.save(lease, n, "last")
		for ; n < 20; n++ { // it does not obey
			order = h.beat(lease, n)
			h.pass(beatEvery)
		}
		if order.Command != Stop {
			t.Errorf("%+v", order)
		}
		if err := h.Finish(t.Context(), h.worker, lease.hand(), Done{Outcome: "stopped"}); err != nil {
			t.Fatal(err)
		}
		h.tick()
		h.wantStatus("ftjob_1", Failed)
		if r := h.run("ftjob_1"); r.ErrorCode != "budget_exhausted" {
			t.Errorf("%+v", r)
		}
		h.wantSpent("ftjob_1", 5*money.Dollar/100, 100*money.Dollar-5*money.Dollar/100)
	})
}

func TestAPausedRunGoesOnAndACancelledOneEnds(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		held := ""
		h.Handle(kind, Hooks{Look: func(context.Context, Run) (Wanted, string, error) {
			if held == "" {
				return GoOn, "", nil
			}
			return Pause, held, nil
		}})
		h.create("ftjob_1", money.Dollar)
		lease := h.take()
		h.train(lease, 1, 2)
		held = "the reward diverged"
		if order := h.beat(lease, 3); order != (Order{CheckpointAndStop, "the reward diverged"}) {
			t.Errorf("%+v", order)
		}
		h.save(lease, 3, "three")
		if err := h.Finish(t.Context(), h.worker, lease.hand(), Done{Outcome: "stopped", Step: 3}); err != nil {
			t.Fatal(err)
		}
		h.wantStatus("ftjob_1", Paused)
		if r := h.run("ftjob_1"); r.PausedReason != "the reward diverged" {
			t.Errorf("%+v", r)
		}
		held = ""
		if err := h.Resume(t.Context(), dbtest.Mine, dbtest.Ann, kind, "ftjob_1"); err != nil {
			t.Fatal(err)
		}
		again := h.take()
		h.beat(again, 1)
		if err := h.Want(t.Context(), dbtest.Mine, dbtest.Ann, kind, "ftjob_1", Cancel, ""); err != nil {
			t.Fatal(err)
		}
		if order := h.beat(again, 2); order.Command != Stop {
			t.Errorf("%+v", order)
		}
		if err := h.Finish(t.Context(), h.worker, again.hand(), Done{Outcome: "stopped"}); err != nil {
			t.Fatal(err)
		}
		h.wantStatus("ftjob_1", Cancelled)
		err := h.Resume(t.Context(), dbtest.Mine, dbtest.Ann, kind, "ftjob_1")
		wantFault(t, err, fault.Conflicting, "CANCELLED")
	})
}

func TestALyingWorkerIsRefused(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.create("ftjob_1", money.Dollar)
		lease := h.take()
		other, _, err := h.CreateWorker(t.Context(), tenant.Operator, "", "gpu-2")
		if err != nil {
			t.Fatal(err)
		}
		for name, try := range map[string]func() error{
			"another fence": func() error {
				_, err := h.Heartbeat(t.Context(), h.worker, LeaseRef{lease.Run, 1, "x"}, Beat{Number: 1})
				return err
			},
			"another attempt": func() error {
				_, err := h.Heartbeat(t.Context(), h.worker, LeaseRef{lease.Run, 2, lease.Fence}, Beat{Number: 1})
				return err
			},
			"another worker": func() error { _, err := h.Heartbeat(t.Context(), other, lease.hand(), Beat{Number: 1}); return err },
			"another run": func() error {
				_, err := h.Record(t.Context(), h.worker, LeaseRef{"ftjob_2", 1, lease.Fence}, nil)
				return err
			},
		} {
			t.Log(name)
			wantFault(t, try(), fault.StaleLease, "no lease")
		}
		file := artifact.File{Digest: artifact.DigestOf([]byte("what it names")), Bytes: 13}
		err = h.Artifacts.Put(t.Context(), dbtest.Mine, file, reader("what it sends"))
		wantFault(t, err, fault.InvalidParameter, "the bytes are not those")
		_, err = h.Save(t.Context(), h.worker, lease.hand(), Saved{Step: 1, Files: []Member{{"model.bin", file}}})
		wantFault(t, err, fault.InvalidParameter, "was not uploaded")
		err = h.Finish(t.Context(), h.worker, lease.hand(), Done{Outcome: "succeeded", Step: 1})
		wantFault(t, err, fault.Conflicting, "no checkpoint of step 1")
		for _, name := range []string{"", "/etc/passwd", "../x", "a/../../x", "a//b", "..", "a\\b"} {
			_, err := h.Save(t.Context(), h.worker, lease.hand(), Saved{Step: 1, Files: []Member{{name, file}}})
			wantFault(t, err, fault.InvalidParameter, "no plain relative path")
		}
		// Theirs file does not become Mine by its digest.
		theirs := h.upload(dbtest.Theirs, "a secret of another workspace")
		_, err = h.Save(t.Context(), h.worker, lease.hand(), Saved{Step: 1, Files: []Member{{"model.bin", theirs}}})
		wantFault(t, err, fault.InvalidParameter, "was not uploaded")
	})
}

func TestARepeatedEventIsKeptOnce(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.create("ftjob_1", money.Dollar)
		lease := h.take()
		told := []Report{
			{Number: 1, Level: "info", Type: "metrics", Step: 1, Data: map[string]float64{"loss": 2.5}},
			{Number: 2, Level: "info", Type: "message", Step: 1, Message: "the key is sk-ant-api03-abcdefghij0123456789"},
		}
		for _, want := range []int{2, 0} {
			if kept, err := h.Record(t.Context(), h.worker, lease.hand(), told); err != nil || kept != want {
				t.Errorf("%d kept, want %d: %v", kept, want, err)
			}
		}
		all, err := h.EventsAfter(t.Context(), dbtest.Mine, "ftjob_1", 0, 10)
		if err != nil || len(all) != 3 || string(all[1].Data) != `{"loss":2.5}` || all[2].Message != "the key is [redacted]" ||
			all[2].Seq != 3 {
			t.Errorf("%+v %v", all, err)
		}
		if all, _ := h.EventsAfter(t.Context(), dbtest.Theirs, "ftjob_1", 0, 10); len(all) != 0 {
			t.Errorf("another workspace reads %+v", all)
		}
	})
}

func TestAWorkerGetsOnlyWhatItMayAndCanTrain(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		bound, _, err := h.CreateWorker(t.Context(), tenant.Operator, dbtest.Theirs, "theirs")
		if err != nil {
			t.Fatal(err)
		}
		h.create("ftjob_1", money.Dollar)
		h.create("ftjob_2", money.Dollar)
		if err := h.createFor(dbtest.Theirs, "ftjob_3", money.Dollar); err != nil {
			t.Fatal(err)
		}
		small := info
		small.GPUCount = 1
		if lease, err := h.lease(t.Context(), h.worker, small); lease != nil || err != nil {
			t.Errorf("too few GPUs: %+v %v", lease, err)
		}
		if lease := h.take(); lease.Run != "ftjob_1" {
			t.Errorf("the oldest is %s", lease.Run)
		}
		if lease := h.take(); lease.Run != "ftjob_3" { // the workspace without a running one comes first
			t.Errorf("the fair one is %s", lease.Run)
		}
		if lease, err := h.lease(t.Context(), bound, info); lease != nil || err != nil {
			t.Errorf("another workspace's: %+v %v", lease, err)
		}
		if _, err := h.Await(t.Context(), h.worker, Info{GPUType: "unknown", GPUCount: 1}); err == nil {
			t.Error("a worker without a price got work")
		}
	})
}

func TestARevokedWorkerLosesItsRunAndItsToken(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		made, token, err := h.CreateWorker(t.Context(), tenant.Operator, "", "gpu-2")
		if err != nil {
			t.Fatal(err)
		}
		if found, err := h.Authenticate(t.Context(), token.Reveal()); err != nil || found.ID != made.ID {
			t.Fatal(found, err)
		}
		h.create("ftjob_1", money.Dollar)
		if _, err := h.lease(t.Context(), made, info); err != nil {
			t.Fatal(err)
		}
		if err := h.RevokeWorker(t.Context(), tenant.Operator, made.ID); err != nil {
			t.Fatal(err)
		}
		_, err = h.Authenticate(t.Context(), token.Reveal())
		wantFault(t, err, fault.InvalidKey, "revoked")
		h.pass(time.Second)
		h.tick()
		h.wantStatus("ftjob_1", Queued)
	})
}

func TestTheWorkerOfAnAttemptIsKnown(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.create("ftjob_1", money.Dollar)
		if err := h.seen(t.Context(), h.worker, info); err != nil {
			t.Fatal(err)
		}
		lease := h.take()
		got, err := h.WorkerOf(t.Context(), h.DB.In(dbtest.Mine), lease.Run, lease.Attempt)
		if err != nil || got.Engine != info.Engine || got.GPUType != info.GPUType {
			t.Errorf("%+v %v", got, err)
		}
		if got, err := h.WorkerOf(t.Context(), h.DB.In(dbtest.Mine), lease.Run, 9); err != nil || got.Engine != "" {
			t.Errorf("%+v %v", got, err)
		}
	})
}

// A worker that was started for an attempt gets that one, and ends when it will not come.
func TestAWorkerOfOneAttemptGetsNoOther(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.create("run_1", 10*money.Dollar)
		h.pass(time.Second)
		h.create("run_2", 10*money.Dollar)
		only := info
		only.Run, only.Attempt = "run_2", 1
		if needs, err := h.Unfinished(t.Context()); err != nil || len(needs) != 2 || needs[1] !=
			(Need{ID: "run_2", Attempt: 1, Queued: true, BaseModel: model, GPUCount: 2}) {
			t.Fatalf("needs %+v: %v", needs, err)
		}
		lease, err := h.Await(t.Context(), h.worker, only)
		if err != nil || lease == nil || lease.Run != "run_2" || lease.Attempt != 1 {
			t.Fatalf("got %+v: %v", lease, err)
		}
		_, err = h.Await(t.Context(), h.worker, only) // it runs already
		wantFault(t, err, fault.StaleLease, "does not wait for the attempt 1")
		h.pass(leaseTime + time.Second)
		h.tick() // its node died: the run waits for the next attempt
		_, err = h.Await(t.Context(), h.worker, only)
		wantFault(t, err, fault.StaleLease, "does not wait for the attempt 1")
		only.Attempt = 2
		if lease, err = h.Await(t.Context(), h.worker, only); err != nil || lease == nil || lease.Attempt != 2 {
			t.Fatalf("got %+v: %v", lease, err)
		}
		workers, err := h.Workers(t.Context())
		if err != nil || workers[0].Info.Run != "" || workers[0].Info.Engine != "small" {
			t.Errorf("the worker says of itself %+v: %v", workers, err)
		}
	})
}

func TestWhatWorkersCouldTrainThatAreStartedForItIsOffered(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.Offers = []Info{{Methods: []string{"grpo"}, Models: []Base{{ID: "big/one"}}, GPUType: "h200", GPUCount: 8}}
		if err := h.CheckModel(t.Context(), dbtest.Mine, "big/one", "grpo", "h200"); err != nil {
			t.Error(err)
		}
		if err := h.CheckModel(t.Context(), dbtest.Mine, "big/one", "sft", ""); err == nil {
			t.Error("a method that nobody offers is taken")
		}
	})
}
