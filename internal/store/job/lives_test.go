package job

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// A member stands in for the membership of a node: a row of nodes that a test ends and begins.
type member struct {
	db *db.DB // the test's own connections, which outlive a killed server

	mu   sync.Mutex
	life cluster.Life
}

// join begins the first or the next life of a node.
func (m fixture) join(t *testing.T, node string) *member {
	t.Helper()
	of := &member{db: m.db, life: cluster.Life{Node: node}}
	of.rejoin(t)
	return of
}

func (of *member) rejoin(t *testing.T) {
	t.Helper()
	epoch, err := db.One[int64](t.Context(), of.db.Across("test"), `
		INSERT INTO nodes (id, epoch, beat, applied, serving, draining, ended, forgotten, name, address, release, settings, joined_at, seen_at)
		VALUES ($1, 1, 0, 0, TRUE, FALSE, FALSE, FALSE, '', '', '', '', 0, 0)
		ON CONFLICT (id) DO UPDATE SET epoch = nodes.epoch + 1, ended = FALSE RETURNING epoch`, of.life.Node)
	if err != nil {
		t.Fatal(err)
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	of.life.Epoch = epoch
}

// end ends the present life, as another node does that saw nothing of this one for longer than a lease.
func (of *member) end(t *testing.T) {
	t.Helper()
	if _, err := db.Exec(t.Context(), of.db.Across("test"), `UPDATE nodes SET ended = TRUE WHERE id = $1`, of.Life().Node); err != nil {
		t.Fatal(err)
	}
}

func (of *member) Life() cluster.Life {
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.life
}

func (of *member) Fence(ctx context.Context, tx *db.Tx) error {
	life := of.Life()
	found, err := db.Maybe[int64](ctx, tx.Across("test"), `SELECT epoch FROM nodes WHERE id = $1 AND epoch = $2 AND NOT ended FOR SHARE`, life.Node, life.Epoch)
	if err == nil && found == nil {
		return cluster.ErrFenced
	}
	return err
}

// eachOfMany runs a test where a database can have several nodes.
func eachOfMany(t *testing.T, test func(t *testing.T, m fixture)) {
	t.Helper()
	each(t, func(t *testing.T, m fixture) {
		if m.db.Engine == db.Postgres {
			test(t, m)
		}
	})
}

func receive(t *testing.T, from <-chan error) error {
	t.Helper()
	select {
	case err := <-from:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing comes")
		return nil
	}
}

func TestNodesShareTheQueueAndEachUnitIsWrittenOnce(t *testing.T) {
	eachOfMany(t, func(t *testing.T, m fixture) {
		at := newGate()
		one := m.serve(t, Config{Slots: 1, Member: m.join(t, "one")}, at.pass)
		other := m.serve(t, Config{Slots: 1, Member: m.join(t, "other")}, at.pass)
		var ids []string
		for range 6 {
			ids = append(ids, m.queue(t, mine, 2))
		}
		at.await(t)
		at.await(t) // of a slot each
		for _, s := range []*server{one, other} {
			if n, _ := s.running(false); n != 1 {
				t.Errorf("%d runs of %s", n, s.as.Life().Node)
			}
		}
		close(at.open)
		for _, id := range ids {
			m.checkDone(t, mine, id)
			if r := m.row(t, mine, id); r.Losses != 0 || r.Node != "" || r.Epoch != 0 {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestADeadNodesJobIsTakenOverWhenItsLifeIsOverAndNotBefore(t *testing.T) {
	eachOfMany(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 4)
		at := newGate()
		dead := m.serve(t, Config{Member: m.join(t, "dead")}, func(ctx context.Context, run *Run, unit int64) error {
			if unit != 2 {
				return nil
			}
			return at.pass(ctx, run, unit)
		})
		at.await(t)
		dead.kill()
		before := m.row(t, mine, id)
		other := m.open(t, Config{Member: m.join(t, "other")})
		var did atomic.Int64
		other.Handle(kind, counting(other.own, func(context.Context, *Run, int64) error { did.Add(1); return nil }))
		for range 3 {
			if err := other.runOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if r := m.row(t, mine, id); r.Status != Running || r.Claim != before.Claim || r.life() != (cluster.Life{Node: "dead", Epoch: 1}) {
			t.Fatalf("its life is not over yet: %+v", r)
		}
		dead.as.end(t)
		if err := other.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := m.row(t, mine, id); r.Status != Queued || r.Losses != 1 || r.Claim != "" || r.Node != "" {
			t.Errorf("taken over: %+v", r)
		}
		other.start(t)
		m.checkDone(t, mine, id)
		if did.Load() != 2 {
			t.Errorf("the other node did %d units of the 2 that were left", did.Load())
		}
	})
}

func TestARunEndsWithTheLifeThatItBelongsToAndTheNextLifeGoesOn(t *testing.T) {
	eachOfMany(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 1)
		lost := make(chan error, 1)
		var first atomic.Bool
		s := m.serve(t, Config{Member: m.join(t, "node")}, func(ctx context.Context, run *Run, _ int64) error {
			if !first.CompareAndSwap(false, true) {
				return nil
			}
			lost <- nil
			<-ctx.Done()
			late := context.WithoutCancel(ctx)
			lost <- errors.Join(context.Cause(ctx), run.Tx(late, func(tx *db.Tx, at *Tally) error { return writeUnit(late, tx, run, 0, at) }))
			return ctx.Err()
		})
		_ = receive(t, lost)
		s.as.end(t)
		if err := receive(t, lost); !errors.Is(err, ErrLost) || !errors.Is(err, cluster.ErrFenced) {
			t.Errorf("the run ends with %v", err)
		}
		if err := s.runOnce(t.Context()); err != nil && !errors.Is(err, cluster.ErrFenced) {
			t.Fatal(err)
		}
		if r := m.row(t, mine, id); r.Status != Queued || r.Claim != "" || r.Losses != 0 || m.units(t, mine, id) != 0 {
			t.Errorf("a node whose life is over has it: %+v", r)
		}
		s.as.rejoin(t)
		m.checkDone(t, mine, id)
	})
}

func TestARestartTakesOverWhatItsNodeHadBefore(t *testing.T) {
	eachOfMany(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 2)
		at := newGate()
		s := m.serve(t, Config{Member: m.join(t, "node")}, at.pass)
		at.await(t)
		s.kill()
		again := m.serve(t, Config{Member: m.join(t, "node")}, noDelay)
		m.checkDone(t, mine, id)
		if again.as.Life().Epoch != 2 {
			t.Errorf("it is life %v", again.as.Life())
		}
	})
}

// A claim of a release without nodes has no life.
func TestAClaimOfAnEarlierReleaseIsTakenOver(t *testing.T) {
	eachOfMany(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 2)
		if _, err := db.Exec(t.Context(), m.db.In(mine), `UPDATE jobs SET status = 'RUNNING', claim = 'run_old', started_at = 1 WHERE workspace_id = $1 AND id = $2`, id); err != nil {
			t.Fatal(err)
		}
		m.serve(t, Config{Member: m.join(t, "node")}, noDelay)
		m.checkDone(t, mine, id)
	})
}

func TestACancellationReachesTheNodeThatRunsTheJob(t *testing.T) {
	eachOfMany(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 2)
		at, ended := newGate(), make(chan error, 1)
		m.serve(t, Config{Member: m.join(t, "one")}, func(ctx context.Context, run *Run, unit int64) error {
			err := at.pass(ctx, run, unit)
			ended <- context.Cause(ctx)
			return err
		})
		at.await(t)
		other := m.serve(t, Config{Member: m.join(t, "other")}, noDelay)
		if j, err := other.Cancel(t.Context(), mine, ann, id); err != nil || j.Status != Running {
			t.Fatalf("%+v %v", j, err)
		}
		if err := receive(t, ended); !errors.Is(err, ErrCancelled) {
			t.Errorf("the run ends with %v", err)
		}
		m.await(t, mine, id, Cancelled)
	})
}

func TestACallerWaitsForAJobThatAnotherNodeRuns(t *testing.T) {
	eachOfMany(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 1)
		at := newGate()
		m.serve(t, Config{Member: m.join(t, "one")}, at.pass)
		at.await(t)
		other := m.serve(t, Config{Member: m.join(t, "other")}, noDelay)
		got := make(chan error, 1)
		go func() {
			j, err := other.Wait(t.Context(), mine, id)
			if err == nil && j.Status != Done {
				err = errors.New(string(j.Status))
			}
			got <- err
		}()
		close(at.open)
		if err := receive(t, got); err != nil {
			t.Error(err)
		}
	})
}

// How long a job rests is known to the node that ran it: a caller elsewhere is told that it will be tried again.
func TestACallerIsToldThatAJobRestsOnAnotherNode(t *testing.T) {
	eachOfMany(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 1)
		one := m.open(t, Config{Member: m.join(t, "one")})
		one.backoffScale = 1000
		one.Handle(kind, counting(one.own, func(context.Context, *Run, int64) error { return errBroken }))
		one.start(t)
		for deadline := time.Now().Add(2 * time.Minute); m.row(t, mine, id).Attempts == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it is not tried")
			}
		}
		other := m.serve(t, Config{Member: m.join(t, "other")}, noDelay)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if j, err := other.Wait(ctx, mine, id); !errors.Is(err, ErrRetrying) || j.Status != Queued {
			t.Errorf("%+v %v", j, err)
		}
		one.kill()
		one.as.end(t)
		m.checkDone(t, mine, id)
	})
}

// While releases differ, a node may not know a kind of job that another one does.
func TestAJobIsLeftToANodeThatKnowsItsKind(t *testing.T) {
	eachOfMany(t, func(t *testing.T, m fixture) {
		id := m.queue(t, mine, 1)
		m.open(t, Config{Member: m.join(t, "old")}).start(t)
		for deadline := time.Now().Add(2 * time.Minute); m.row(t, mine, id).Claim == ""; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it is not set aside")
			}
		}
		m.serve(t, Config{Member: m.join(t, "new")}, noDelay)
		m.checkDone(t, mine, id)
	})
}
