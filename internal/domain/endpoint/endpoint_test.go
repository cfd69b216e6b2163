package endpoint

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func TestAnEndpointRunsIsBilledSleepsIsWokenStopsStartsAndIsDeleted(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		made := h.create(Request{IdleTimeout: 90, MaxReplicas: 2})
		if made.Status != Pending || made.Hourly != 36*money.Dollar/10 || made.MaxHourly != 72*money.Dollar/10 || !strings.HasPrefix(made.Model, "dedicated/support-") {
			t.Fatalf("%+v", made)
		}
		h.wantSpent(made.ID, 0, h.credit-72*money.Dollar/10)
		if own := names(h.Own.Of(dbtest.Mine)); len(own) != 1 || own[0] != made.Model || len(h.Own.Of(dbtest.Theirs)) != 0 {
			t.Fatalf("%v", own)
		}
		h.ok(h.reconcile(t.Context()))
		h.want(made.ID, Starting, 0)
		h.live(11 * time.Second)
		h.want(made.ID, Running, 1)
		h.live(61 * time.Second)
		h.wantSpent(made.ID, 60*second, h.credit-72*money.Dollar/10)
		h.live(40 * time.Second) // it was ready for 90 seconds, and nobody has called
		h.want(made.ID, Running, 0)
		if h.alive() != 0 {
			t.Fatal("the engine did not end")
		}
		slept := h.get(made.ID).Spent
		h.wantSpent(made.ID, slept, h.credit-slept) // nothing is set aside while it sleeps
		h.live(time.Hour)
		h.wantSpent(made.ID, slept, h.credit-slept)

		h.wakeUp(made)
		h.want(made.ID, Running, 1)
		_, err := h.Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		h.ok(err)
		h.want(made.ID, Stopping, 1)
		h.live(5 * time.Second)
		h.want(made.ID, Stopped, 0)
		stopped := h.get(made.ID).Spent
		h.wantSpent(made.ID, stopped, h.credit-stopped)
		_, err = h.Start(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		h.ok(err)
		h.live(20 * time.Second)
		h.want(made.ID, Running, 1)
		h.ok(h.Delete(t.Context(), dbtest.Mine, dbtest.Ann, made.ID))
		_, err = h.Get(t.Context(), dbtest.Mine, made.ID)
		wantFault(t, err, fault.Missing, made.ID)
		if len(h.Own.Of(dbtest.Mine)) != 0 {
			t.Error("a deleted endpoint is known")
		}
		h.live(5 * time.Second)
		h.gone()
		for _, e := range h.lives {
			if got, want := h.billed()[e.ID], since(e.ReadyAt, e.end); got != want {
				t.Errorf("%s: %d seconds are charged of %d", e.ID, got, want)
			}
		}
	})
}

// wakeUp waits for an engine as a request does.
func (h *house) wakeUp(e Endpoint) {
	h.t.Helper()
	r, err := find(h.t.Context(), h.DB.In(dbtest.Mine), e.ID)
	h.ok(err)
	g := h.Registry.Find(r.deployment())
	done := make(chan error)
	go func() {
		lease, err := g.Acquire(h.t.Context(), r.deployment())
		if err == nil {
			lease.Release(false)
		}
		done <- err
	}()
	<-h.woken // the request waits
	for g.Use().Waiting == 0 {
	}
	h.ok(h.reconcile(h.t.Context()))
	h.live(h.loading + 2*time.Second)
	h.ok(<-done)
}

// gone checks that nothing is left of any endpoint.
func (h *house) gone() {
	h.t.Helper()
	for _, table := range []string{"dedicated_endpoints", "endpoint_replicas", "endpoint_holds"} {
		n, err := db.One[int64](h.t.Context(), h.DB.Across("test"), `SELECT COUNT(*) FROM `+table)
		if h.ok(err); n != 0 {
			h.t.Errorf("%s has %d rows", table, n)
		}
	}
	if b := wallettest.Shown(h.t, h.wallets, dbtest.Mine); b.Held != 0 || len(h.deployments) != 0 || h.alive() != 0 {
		h.t.Errorf("%s is held, %d deployments and %d engines are left", b.Held, len(h.deployments), h.alive())
	}
}

func TestAnEngineThatCannotStartFailsTheEndpointWithItsLastLinesAndCostsNothing(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.broken = true
		made := h.create(Request{})
		h.live(15 * time.Second)
		h.want(made.ID, Failed, 0)
		e := h.get(made.ID)
		if e.Error == nil || e.Error.Code != codeEngine || strings.Join(e.Error.Lines, "|") != "loading|out of memory" {
			t.Fatalf("%+v", e.Error)
		}
		h.wantSpent(made.ID, 0, h.credit)
		if n, err := db.One[int64](t.Context(), h.DB.Across("test"), `SELECT COUNT(*) FROM notices WHERE kind = 'endpoint.failed'`); err != nil || n != 1 {
			t.Errorf("%d notices: %v", n, err)
		}
		alarms, err := h.Alarms(t.Context(), dbtest.Mine)
		if h.ok(err); len(alarms) != 1 || alarms[0].Subject != made.ID {
			t.Errorf("%+v", alarms)
		}
		h.broken = false
		_, err = h.Start(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		h.ok(err)
		h.live(20 * time.Second)
		h.want(made.ID, Running, 1)
		if h.get(made.ID).Error != nil {
			t.Error("an endpoint that runs has an error")
		}
	})
}

func TestAWalletThatCannotPayStopsTheEndpointAndIsNeverOverdrawn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := newHouse(t, d, 4*money.Dollar)
		made := h.create(Request{MinReplicas: 1})
		h.live(90 * time.Minute)
		h.want(made.ID, Stopped, 0)
		e := h.get(made.ID)
		if e.Error == nil || e.Error.Code != codeBalance {
			t.Fatalf("%+v", e.Error)
		}
		h.wantSpent(made.ID, e.Spent, h.credit-e.Spent)
		if left := h.credit - e.Spent; left > 10*60*second {
			t.Errorf("it stopped with %s left", left)
		}
		if got, want := h.billed()[h.lives[0].ID], since(h.lives[0].ReadyAt, h.lives[0].end); got != want || h.alive() != 0 {
			t.Errorf("%d seconds are charged of %d; %d engines run", got, want, h.alive())
		}
		_, err := h.Start(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		wantFault(t, err, fault.InsufficientBalance, "to be set aside")
		_, err = h.Create(t.Context(), dbtest.Mine, dbtest.Ann, Request{Name: "x", BaseModel: "m", GPUCount: 8})
		wantFault(t, err, fault.InsufficientBalance, "to be set aside")
	})
}

func TestWhatRanWhileTheServerWasDownIsBilledOnce(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		made := h.create(Request{MinReplicas: 1})
		h.live(30 * time.Second)
		h.pass(3 * time.Hour) // the server is down
		h.restart()
		h.live(2 * time.Second)
		h.want(made.ID, Running, 1)
		one := h.lives[0]
		if got, want := h.billed()[one.ID], since(one.ReadyAt, h.world.now()); got < want-60 || got > want {
			t.Errorf("%d seconds are charged of %d", got, want)
		}
		h.blind = true // it dies while the server is down, and nobody sees it
		h.restart()
		h.pass(time.Minute)
		h.die(one)
		h.pass(time.Hour)
		h.live(time.Second)
		if got, want := h.billed()[one.ID], since(one.ReadyAt, one.listed); got < want-60 || got > want {
			t.Errorf("%d seconds are charged of %d that it was seen", got, want)
		}
		h.want(made.ID, Running, 1) // another has taken its place
	})
}

func TestAnEndpointThatCostsNothingNeedsNoMoney(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := newHouse(t, d, 1)
		made := h.create(Request{GPUType: "cpu", MinReplicas: 1})
		h.live(2 * time.Minute)
		h.want(made.ID, Running, 1)
		h.wantSpent(made.ID, 0, 1)
		h.ok(h.Delete(t.Context(), dbtest.Mine, dbtest.Ann, made.ID))
		h.live(5 * time.Second)
		h.gone()
	})
}

func TestABadRequestIsRefusedWithItsField(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		for want, in := range map[string]Request{
			"name":               {BaseModel: "m"},
			"baseModel":          {Name: "x"},
			"gpuType":            {Name: "x", BaseModel: "m", GPUType: "abacus"},
			"gpuCount":           {Name: "x", BaseModel: "m", GPUCount: 65},
			"minReplicas":        {Name: "x", BaseModel: "m", MinReplicas: 2, MaxReplicas: 1},
			"idleTimeoutSeconds": {Name: "x", BaseModel: "m", IdleTimeout: -1},
			"maxHourlyUsd":       {Name: "x", BaseModel: "m", MaxReplicas: 2, MaxHourly: 5 * money.Dollar},
		} {
			_, err := h.Create(t.Context(), dbtest.Mine, dbtest.Ann, in)
			wantFault(t, err, fault.InvalidParameter, want+" ")
		}
		_, err := h.Create(t.Context(), dbtest.Mine, dbtest.Ann, Request{Name: "x", ModelVersionID: "mv_1"})
		wantFault(t, err, fault.Missing, "mv_1")
		h.Backend = nil
		_, err = h.Create(t.Context(), dbtest.Mine, dbtest.Ann, Request{Name: "x", BaseModel: "m"})
		wantFault(t, err, fault.InvalidParameter, "serving.engines")
		if free := wallettest.Free(h.t, h.wallets, dbtest.Mine); free != h.credit {
			t.Errorf("refused requests hold %s", h.credit-free)
		}
	})
}

func TestAnotherWorkspacesEndpointIsUnknown(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		made := h.create(Request{})
		_, err := h.Get(t.Context(), dbtest.Theirs, made.ID)
		wantFault(t, err, fault.Missing, made.ID)
		_, err = h.Stop(t.Context(), dbtest.Theirs, dbtest.Ann, made.ID)
		wantFault(t, err, fault.Missing, made.ID)
		wantFault(t, h.Delete(t.Context(), dbtest.Theirs, dbtest.Ann, made.ID), fault.Missing, made.ID)
		if all, err := h.Store.List(t.Context(), dbtest.Theirs, 10, 0); err != nil || len(all) != 0 {
			t.Errorf("%+v: %v", all, err)
		}
		if all, err := h.ListAll(t.Context(), 10, 0); err != nil || len(all) != 1 || all[0].Workspace != dbtest.Mine {
			t.Errorf("%+v: %v", all, err)
		}
	})
}

func TestEnginesThatNoEndpointWantsAreEnded(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.ok(h.Apply(t.Context(), servingSpec("ep-orphan")))
		h.ok(h.Apply(t.Context(), servingSpec("pool-1")))
		h.live(3 * time.Second)
		if len(h.deployments) != 1 || h.deployments["pool-1"] == nil {
			t.Errorf("%v", h.deployments)
		}
	})
}

func TestAChangeByItsOwnerUndoesALookThatDidNotSeeIt(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		made := h.create(Request{MinReplicas: 1})
		seen, err := readActive(t.Context(), h.DB)
		h.ok(err)
		_, err = h.Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		h.ok(err)
		wantFault(t, h.step(t.Context(), &seen[0], nil), fault.Conflicting, "meanwhile")
		if len(h.lives) != 0 {
			t.Error("an engine was started for an endpoint that was stopped")
		}
		h.live(3 * time.Second)
		h.want(made.ID, Stopped, 0)
	})
}

func TestAStartAtAPriceAboveTheBoundIsRefused(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		made := h.create(Request{})
		_, err := h.Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		h.ok(err)
		_, err = h.Start(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		wantFault(t, err, fault.Conflicting, "not ended yet")
		h.live(3 * time.Second)
		h.Prices["h200"] = 4 * money.Dollar
		_, err = h.Start(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		wantFault(t, err, fault.InvalidParameter, "maxHourlyUsd is 3.6")
	})
}

func TestAVersionIsServedFromItsFilesAndKeepsThem(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		document := `{"id":"mv_1","object":"model_version","name":"ft/support","base_model":"tiny/bigram"}`
		_, err := db.Exec(t.Context(), h.DB.In(dbtest.Mine), `
			INSERT INTO model_versions (workspace_id, id, name, base_model, parent_id, source_type, source_id, source_step,
				document, key_id, jws, files, digest, bytes, adopted_at, created_at)
			VALUES ($1, 'mv_1', 'ft/support', 'tiny/bigram', '', 'fine_tuning_job', 'ftjob_1', 1, $2, '', '', '[]', '', 0, 0, 1)`,
			[]byte(document))
		h.ok(err)
		h.folders.broken = true
		made, err := h.Create(t.Context(), dbtest.Mine, dbtest.Ann, Request{Name: "x", ModelVersionID: "mv_1"})
		if h.ok(err); made.BaseModel != "tiny/bigram" || made.ModelVersionID == nil || *made.ModelVersionID != "mv_1" {
			t.Fatalf("%+v", made)
		}
		h.fetched()
		h.live(time.Second)
		h.want(made.ID, Starting, 0)
		if e := h.get(made.ID); e.Error == nil || e.Error.Code != codeWaits {
			t.Errorf("%+v", e.Error)
		}
		h.folders.broken = false
		h.pass(time.Minute)
		h.fetched()
		h.live(15 * time.Second)
		h.want(made.ID, Running, 1)
		for _, d := range h.deployments {
			if d.spec.Folder != "/models/mv_1" || d.spec.Version != "mv_1" {
				t.Errorf("%+v", d.spec)
			}
		}
		if e := h.get(made.ID); e.Error != nil || h.folders.held != 1 {
			t.Errorf("%+v; %d folders are held", e.Error, h.folders.held)
		}
		h.ok(h.Delete(t.Context(), dbtest.Mine, dbtest.Ann, made.ID))
		h.live(5 * time.Second)
		if h.gone(); h.folders.held != 0 {
			t.Errorf("%d folders are held", h.folders.held)
		}
	})
}

// fetched lets the server look, and waits until the files that it fetches are there, or are not.
func (h *house) fetched() {
	h.t.Helper()
	h.ok(h.reconcile(h.t.Context()))
	h.ok(h.reconcile(h.t.Context()))
	for running := true; running; {
		h.files.mu.Lock()
		running = false
		for _, f := range h.files.all {
			running = running || f.runs
		}
		h.files.mu.Unlock()
		runtime.Gosched()
	}
}

func TestAnEndpointIsWokenWhileItsLastEngineEnds(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		h.grace = 30 * time.Second
		made := h.create(Request{IdleTimeout: 20, MaxReplicas: 2})
		h.live(33 * time.Second) // it is ready after 10, and idle after 20 more
		if one := h.lives[0]; !one.Asked || one.end != 0 {
			t.Fatalf("the engine does not end: %+v", one)
		}
		h.wakeUp(made)
		if len(h.lives) != 2 || h.lives[1].Asked {
			t.Errorf("%d engines", len(h.lives))
		}
	})
}

func TestOwnersAndTheLoopChangeEndpointsAtOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := newHouse(t, d, 1_000_000*money.Dollar) // time flies here
		ctx, stop := context.WithCancel(t.Context())
		var loop, owners sync.WaitGroup
		loop.Go(func() { h.loop(ctx, func() error { return nil }) })
		loop.Go(func() {
			for ctx.Err() == nil {
				h.pass(time.Second)
				runtime.Gosched()
			}
		})
		for range 3 {
			owners.Go(func() {
				for range 2 {
					made, err := h.Create(t.Context(), dbtest.Mine, dbtest.Ann, Request{Name: "x", BaseModel: "m"})
					if err != nil {
						t.Error(err)
						return
					}
					for _, do := range []func() error{
						func() error { _, err := h.Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID); return err },
						func() error { _, err := h.Start(t.Context(), dbtest.Mine, dbtest.Ann, made.ID); return err },
						func() error { return h.Delete(t.Context(), dbtest.Mine, dbtest.Ann, made.ID) },
					} {
						for err = do(); err != nil && fault.From(err).Kind == fault.Conflicting; err = do() {
							runtime.Gosched() // the loop has changed it meanwhile, or its engines still end
						}
						if err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		owners.Wait()
		for left := int64(1); left > 0; {
			var err error
			left, err = db.One[int64](t.Context(), h.DB.Across("test"), `SELECT COUNT(*) FROM dedicated_endpoints`)
			h.ok(err)
		}
		stop()
		loop.Wait()
		h.gone()
		h.billed()
	})
}
