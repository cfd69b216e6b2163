package endpoint

import (
	"context"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/serving"
	"sovereign/internal/plane/engines"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A member is a node whose test says who leads.
type member struct {
	life   cluster.Life
	leader *string
	over   bool // its life is
}

func (m *member) Single() bool                               { return false }
func (m *member) Life() cluster.Life                         { return m.life }
func (m *member) Lead(context.Context, string) (bool, error) { return *m.leader == m.life.Node, nil }

func (m *member) Fence(context.Context, *db.Tx) error {
	if m.over {
		return cluster.ErrFenced
	}
	return nil
}

// A pair is two servers on one database and one cluster of engines, of which a leads.
type pair struct {
	a, b   *house
	leader string
}

func both(t *testing.T, test func(t *testing.T, p *pair)) {
	t.Helper()
	each(t, func(t *testing.T, h *house) {
		p := &pair{leader: "a"}
		one, other := *h, *h
		p.a, p.b = &one, &other
		for name, of := range map[string]*house{"a": p.a, "b": p.b} {
			of.disk, of.member = journaltest.NewDisk(), &member{life: cluster.Life{Node: name, Epoch: 1}, leader: &p.leader}
			of.open(h.DB)
			_, err := db.Exec(t.Context(), h.DB.Across("test"), `
				INSERT INTO nodes (id, epoch, beat, applied, serving, draining, ended, forgotten, name, address, release, settings,
					joined_at, seen_at) VALUES ($1, 1, 1, 1, TRUE, FALSE, FALSE, FALSE, '', '', '', '', 0, 0)`, name)
			h.ok(err)
		}
		test(t, p)
	})
}

// live lets seconds go by, and has every server do its rounds after each of them.
func (p *pair) live(d time.Duration, some ...*house) {
	t := p.a.t
	t.Helper()
	for ; d > 0; d -= time.Second {
		p.a.pass(min(d, time.Second))
		for range 2 { // what one says, the other hears
			for _, h := range some {
				h.ok(h.round(t.Context()))
				h.ok(h.Groups.Follow(t.Context()))
			}
		}
	}
}

// group returns the group of an endpoint at a server.
func (p *pair) group(h *house, e Endpoint) *engines.Group {
	h.t.Helper()
	r, err := find(h.t.Context(), h.DB.In(dbtest.Mine), e.ID)
	h.ok(err)
	h.ok(h.Feed.Fill(h.t.Context()))
	return h.Registry.Find(r.deployment())
}

// ask asks an endpoint at a server.
func (p *pair) ask(h *house, e Endpoint) <-chan asked {
	g := p.group(h, e)
	h.ok(h.Groups.Follow(h.t.Context()))
	done := make(chan asked, 1)
	go func() {
		lease, err := g.Acquire(h.t.Context(), "m")
		done <- asked{lease, err}
	}()
	for g.Use().Waiting == 0 && len(done) == 0 {
	}
	return done
}

type asked struct {
	lease *engines.Lease
	err   error
}

func TestAnEndpointIsWokenUsedAndDrainedByTheRequestsOfAllServers(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		made := p.a.create(Request{IdleTimeout: 90})
		p.live(13*time.Second, p.a, p.b)
		first := <-p.ask(p.b, made)
		p.a.ok(first.err)
		p.live(5*time.Minute, p.a, p.b) // the leader has no request of its own
		p.a.want(made.ID, Running, 1)
		first.lease.Release(false)
		p.live(3*time.Minute, p.a, p.b)
		p.a.want(made.ID, Running, 0)

		waits := p.ask(p.b, made)
		p.live(p.a.loading+3*time.Second, p.a, p.b)
		second := <-waits
		p.a.ok(second.err)
		_, err := p.b.Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		p.a.ok(err)
		p.live(20*time.Second, p.a, p.b)
		if p.a.alive() != 1 {
			t.Error("the engine ended under a request of the other server")
		}
		if got := <-p.ask(p.b, made); got.err == nil || fault.From(got.err).Kind != fault.Unavailable {
			t.Errorf("an endpoint that stops gets a request: %v", got.err)
		}
		second.lease.Release(false)
		p.live(5*time.Second, p.a, p.b)
		if p.a.alive() != 0 {
			t.Error("the engine did not end")
		}
		p.a.want(made.ID, Stopped, 0)
	})
}

// A server that does not hear the leader may send requests to an engine that was taken out of service: the leader waits
// for it, but for no longer than an engine may answer.
func TestASilentServerDelaysTheEndOfAnEngineForAMinute(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		made := p.a.create(Request{})
		p.live(13*time.Second, p.a, p.b)
		_, err := p.a.Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		p.a.ok(err)
		p.live(50*time.Second, p.a)
		if p.a.alive() != 1 {
			t.Error("the engine ended before the other server was heard of")
		}
		p.live(15*time.Second, p.a)
		if p.a.alive() != 0 {
			t.Error("the engine did not end")
		}
	})
}

// The first server dies when its journal has a charge and the ledger does not: the second waits for the first's
// journal, and charges what was run meanwhile after it.
func TestSecondsInTheJournalOfADeadServerAreChargedOnce(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		made := p.a.create(Request{MinReplicas: 1})
		p.b.restart()
		killed := false
		p.a.Drain = func(context.Context) error { killed = true; return context.Canceled }
		for !killed {
			p.a.pass(time.Second)
			_ = p.a.round(t.Context())
		}
		p.leader = "b"
		p.live(3*time.Minute, p.b)
		if got := p.b.get(made.ID).Spent; got != 0 {
			t.Fatalf("%s are charged while the other journal may have it", got)
		}
		p.b.want(made.ID, Running, 1)
		p.a.restart() // it posts what its journal has
		p.live(3*time.Second, p.a, p.b)
		p.stopped(made)
	})
}

// stopped stops an endpoint, and checks that every second of its engines is in the ledger, once.
func (p *pair) stopped(e Endpoint) {
	t := p.a.t
	t.Helper()
	_, err := p.b.Stop(t.Context(), dbtest.Mine, dbtest.Ann, e.ID)
	p.b.ok(err)
	p.live(5*time.Second, p.a, p.b)
	p.b.want(e.ID, Stopped, 0)
	billed := p.b.billed()
	for _, l := range p.b.lives {
		if got, want := billed[l.ID], since(l.ReadyAt, l.end); got != want {
			t.Errorf("%s: %d seconds are charged of %d", l.ID, got, want)
		}
	}
}

// The first server dies when it has said which seconds it charges, and before its journal has them.
func TestSecondsThatNeverCameIntoAJournalAreHandedBackOrTakenFromAForgottenServer(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		both(t, func(t *testing.T, p *pair) {
			made := p.a.create(Request{MinReplicas: 1})
			p.b.restart()
			p.live(70*time.Second, p.a)
			r, err := readActive(t.Context(), p.a.DB)
			p.a.ok(err)
			p.a.pass(70 * time.Second)
			p.a.ok(p.a.see(&r[0]))
			lives, err := readLives(t.Context(), p.a.DB.In(dbtest.Mine), made.ID)
			p.a.ok(err)
			p.a.ok(p.a.begin(t.Context(), &r[0], lives))
			before := p.b.get(made.ID).Spent
			p.leader = "b"
			p.live(2*time.Minute, p.b)
			if got := p.b.get(made.ID).Spent; got != before {
				t.Fatalf("%s are charged after %s", got, before)
			}
			if forgotten {
				_, err := db.Exec(t.Context(), p.b.DB.Across("test"), `UPDATE nodes SET forgotten = TRUE, ended = TRUE WHERE id = 'a'`)
				p.a.ok(err)
			} else {
				p.a.restart()
			}
			p.live(3*time.Second, p.a, p.b)
			p.stopped(made)
		})
	}
}

// see notes that the engines of an endpoint are alive.
func (h *house) see(e *record) error {
	_, err := db.Exec(h.t.Context(), h.DB.In(e.Workspace),
		`UPDATE endpoint_replicas SET seen_at = $2 WHERE workspace_id = $1`, h.world.now())
	return err
}

// A server that leads no longer, and does not know, changes nothing.
func TestAnOldLeaderChangesNothing(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		made := p.a.create(Request{MinReplicas: 1})
		p.live(13*time.Second, p.a, p.b)
		p.a.member.(*member).over = true
		p.a.pass(2 * time.Minute)
		if err := p.a.round(t.Context()); err == nil {
			t.Error("an old leader has stored what it saw")
		}
		if got := p.a.get(made.ID).Spent; got != money.Nano(0) {
			t.Errorf("an old leader has charged %s", got)
		}
	})
}

// Engines that listen on another machine's loopback are not asked: something else may listen there on this one.
func TestEnginesOfAnotherMachinesLoopbackAreRefused(t *testing.T) {
	both(t, func(t *testing.T, p *pair) {
		made := p.a.create(Request{MinReplicas: 1})
		p.live(13*time.Second, p.a, p.b)
		for range 2 {
			got := <-p.ask(p.b, made)
			p.a.ok(got.err)
			got.lease.Release(false)
		}
		_, err := db.Exec(t.Context(), p.a.DB.Across("test"),
			`UPDATE engine_groups SET machine = 'another', revision = revision + 1`)
		p.a.ok(err)
		p.a.ok(p.b.Groups.Follow(t.Context()))
		got := <-p.ask(p.b, made)
		wantFault(t, got.err, fault.Unavailable, "another server's machine")
	})
}

var _ serving.Member = (*member)(nil)
