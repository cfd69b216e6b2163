package train

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A member is a node whose test says who leads.
type member struct {
	life   cluster.Life
	leader *string
}

func (m *member) Single() bool                               { return false }
func (m *member) Life() cluster.Life                         { return m.life }
func (m *member) Fence(context.Context, *db.Tx) error        { return nil }
func (m *member) Lead(context.Context, string) (bool, error) { return *m.leader == m.life.Node, nil }

// A pair is two servers on one database, of which a leads.
type pair struct {
	a, b    *house
	leader  string
	elapsed time.Duration // on the clocks that nobody sets
}

// both runs a test with two servers on one database. The wall clock of b is a minute behind.
func both(t *testing.T, test func(t *testing.T, p *pair)) {
	t.Helper()
	each(t, func(t *testing.T, h *house) {
		p := &pair{leader: "a"}
		behind := new(atomic.Int64)
		behind.Store(h.clock.Load() - int64(clock.Time(0).Add(time.Minute)))
		one, other := *h, house{t: t, folder: h.folder, worker: h.worker, clock: behind}
		p.a, p.b = &one, &other
		d := h.DB
		for name, of := range map[string]*house{"a": p.a, "b": p.b} {
			of.disk, of.member = journaltest.NewDisk(), &member{cluster.Life{Node: name, Epoch: 1}, &p.leader}
			p.open(of, d)
		}
		test(t, p)
	})
}

func (p *pair) open(h *house, d *db.DB) {
	h.open(d)
	began := time.Now()
	h.elapsed = func() time.Time { return began.Add(p.elapsed) }
}

// restart kills a server, and starts the next one on what it left.
func (p *pair) restart(h *house) {
	h.disk = h.disk.Crash()
	p.open(h, h.DB)
}

func (p *pair) pass(d time.Duration) {
	p.a.pass(d)
	p.b.pass(d)
	p.elapsed += d
}

// look does a round of each of some servers.
func (p *pair) look(some ...*house) {
	for _, h := range some {
		h.t.Helper()
		for what, do := range h.round(h.t.Context()) {
			if err := do(h.t.Context()); err != nil {
				h.t.Fatal(what, err)
			}
		}
	}
}

// ended has a worker train for ten seconds at both servers in turns, and end. Two cents are due.
func (p *pair) ended(id string) *attempt {
	t := p.a.t
	t.Helper()
	p.a.create(id, 10*money.Dollar)
	p.restart(p.b) // it knows of the hold
	lease := p.a.take()
	for n := range int64(3) {
		p.a.beat(lease, n+1)
		p.pass(beatEvery)
	}
	p.b.save(lease, 3, "weights")
	if err := p.b.Finish(t.Context(), p.b.worker, lease.hand(), Done{Outcome: "succeeded", Step: 3}); err != nil {
		t.Fatal(err)
	}
	return p.attempt(id)
}

func (p *pair) attempt(id string) *attempt {
	p.a.t.Helper()
	a, err := db.One[attempt](p.a.t.Context(), p.a.DB.In(dbtest.Mine),
		`SELECT `+attemptColumns+` WHERE workspace_id = $1 AND run_id = $2`, id)
	if err != nil {
		p.a.t.Fatal(err)
	}
	return &a
}

// wantCharged checks what the ledger has of a run.
func (p *pair) wantCharged(id string, want money.Nano) {
	t := p.a.t
	t.Helper()
	type sums struct{ Rows, Charged int64 }
	got, err := db.One[sums](t.Context(), p.a.DB.In(dbtest.Mine), `
		SELECT COUNT(*) AS rows, CAST(COALESCE(SUM(charged), 0) AS BIGINT) AS charged FROM usage_rows
		WHERE workspace_id = $1 AND hold_id = $2`, id)
	if err != nil || money.Nano(got.Charged) != want || got.Rows > 1 {
		t.Fatalf("the ledger has %+v, want $%s once: %v", got, want, err)
	}
}

const dueCents = 2 * money.Dollar / 100

// The first server dies when its journal has the charge and the ledger does not: the second waits for the first's
// journal.
func TestAChargeInTheJournalOfADeadServerIsMadeByNoOther(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		due := p.ended("ftjob_1")
		if bound, err := p.a.bind(t.Context(), due); err != nil || !bound {
			t.Fatal(bound, err)
		}
		if err := p.a.spend(t.Context(), due); err != nil {
			t.Fatal(err)
		}
		p.leader = "b"
		p.look(p.b, p.b)
		p.wantCharged("ftjob_1", 0)
		if p.b.run("ftjob_1").Settled {
			t.Error("the hold ended before the charge came")
		}
		p.restart(p.a) // it posts what its journal has
		p.wantCharged("ftjob_1", dueCents)
		p.look(p.b, p.a, p.b)
		p.wantCharged("ftjob_1", dueCents)
		if !p.b.run("ftjob_1").Settled {
			t.Error("the hold did not end")
		}
	})
}

// The first server dies when it has said that it makes the charge, and before its journal has it.
func TestAChargeThatNeverCameIntoAJournalIsHandedBack(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		due := p.ended("ftjob_1")
		if bound, err := p.a.bind(t.Context(), due); err != nil || !bound {
			t.Fatal(bound, err)
		}
		if bound, err := p.b.bind(t.Context(), due); err != nil || bound {
			t.Fatalf("two servers make one charge: %v", err)
		}
		p.leader = "b"
		p.look(p.b)
		p.wantCharged("ftjob_1", 0)
		p.restart(p.a)
		p.look(p.a, p.b, p.a, p.b)
		p.wantCharged("ftjob_1", dueCents)
		if !p.b.run("ftjob_1").Settled {
			t.Error("the hold did not end")
		}
	})
}

func TestTheChargeOfAForgottenServerIsMadeByAnother(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		due := p.ended("ftjob_1")
		if bound, err := p.a.bind(t.Context(), due); err != nil || !bound {
			t.Fatal(bound, err)
		}
		p.leader = "b"
		p.look(p.b)
		p.wantCharged("ftjob_1", 0)
		if _, err := db.Exec(t.Context(), p.b.DB.Across("test"), `
			INSERT INTO nodes (id, epoch, beat, applied, serving, draining, ended, forgotten, name, address, release, settings,
				joined_at, seen_at) VALUES ('a', 1, 1, 1, FALSE, FALSE, TRUE, TRUE, '', '', '', '', 0, 0)`); err != nil {
			t.Fatal(err)
		}
		p.look(p.b, p.b)
		p.wantCharged("ftjob_1", dueCents)
	})
}

// A server that has lost the lead keeps the charges that its journal has, and marks them when they are posted.
func TestAServerThatNoLongerLeadsFinishesWhatItHasBegun(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		due := p.ended("ftjob_1")
		if _, err := p.a.bind(t.Context(), due); err != nil {
			t.Fatal(err)
		}
		if err := p.a.spend(t.Context(), due); err != nil {
			t.Fatal(err)
		}
		p.a.charged[due.requestID()] = true
		p.leader = "b"
		p.look(p.a, p.b)
		if got := p.attempt("ftjob_1"); got.ChargeNode != "a" || got.Charge != chargeDue {
			t.Errorf("%+v", got)
		}
		if err := p.a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.look(p.a, p.b)
		p.wantCharged("ftjob_1", dueCents)
		if got := p.attempt("ftjob_1"); got.Charge != chargePosted {
			t.Errorf("%+v", got)
		}
	})
}

// The clock of the server that leads is a minute ahead of the other's, to which the worker speaks.
func TestAWorkerIsLostByItsSilenceAndNotByAClock(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		p.a.create("ftjob_1", 10*money.Dollar)
		p.restart(p.b)
		lease := p.b.take()
		for n := range int64(20) { // a hundred seconds, at a server whose times are past for the other
			p.b.beat(lease, n+1)
			p.look(p.a, p.b)
			p.pass(beatEvery)
		}
		p.a.wantStatus("ftjob_1", Running)
		p.a.beat(lease, 21)
		p.b.beat(lease, 22)
		// A minute between two clocks counts once, and as the time of a lease at most.
		if got, most := p.attempt("ftjob_1").Metered, (100*time.Second + leaseTime).Microseconds(); got > most {
			t.Errorf("%d us are metered, want at most %d", got, most)
		}
		p.look(p.a)
		p.leader = "b" // which has seen nothing of it so far
		p.look(p.b)
		p.pass(leaseTime)
		p.look(p.b)
		p.a.wantStatus("ftjob_1", Running)
		p.pass(graceTime - leaseTime)
		p.look(p.b)
		p.a.wantStatus("ftjob_1", Queued)
		_, err := p.a.Heartbeat(t.Context(), p.a.worker, lease.hand(), Beat{Number: 23})
		wantFault(t, err, fault.StaleLease, "lost")

		second := p.a.take()
		p.look(p.b)
		p.b.beat(second, 1)
		p.look(p.b)
		p.pass(leaseTime)
		p.look(p.b)
		p.a.wantStatus("ftjob_1", Queued)
	})
}

func TestTheWorkOfARevokedWorkerIsLostAtOnceAtEveryServer(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		p.a.create("ftjob_1", money.Dollar)
		p.restart(p.b)
		p.a.take()
		if err := p.a.RevokeWorker(t.Context(), dbtest.Ann, p.a.worker.ID); err != nil {
			t.Fatal(err)
		}
		p.leader = "b"
		p.look(p.b)
		p.a.wantStatus("ftjob_1", Queued)
	})
}

func TestServersThatKeepFilesElsewhereAreToldApart(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		for _, node := range []string{"a", "b"} {
			if _, err := db.Exec(t.Context(), p.a.DB.Across("test"), `
				INSERT INTO nodes (id, epoch, beat, applied, serving, draining, ended, forgotten, name, address, release, settings,
					joined_at, seen_at) VALUES ($1, 1, 1, 1, TRUE, FALSE, FALSE, FALSE, '', '', '', '', 0, 0)`, node); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			for _, h := range []*house{p.a, p.b} {
				if other, err := h.otherFiles(t.Context()); err != nil || other != "" {
					t.Errorf("one folder counts as another's: %q %v", other, err)
				}
			}
		}
		p.b.folder = t.TempDir()
		p.restart(p.b)
		if other, err := p.b.otherFiles(t.Context()); err != nil || other != "a" {
			t.Errorf("%q %v", other, err)
		}
		if other, err := p.a.otherFiles(t.Context()); err != nil || other != "b" {
			t.Errorf("%q %v", other, err)
		}
	})
}
