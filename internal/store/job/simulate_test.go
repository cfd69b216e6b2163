package job

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

var seedsFlag = flag.Uint64("seeds", 3, "how many seeds the job simulator runs")

// Servers start, stop, are killed, are paused and resume, several of them at once; on PostgreSQL they are nodes, whose
// lives end while they run, or some time after they died, and which join again; jobs are queued and cancelled; work
// fails, panics and is refused; transactions fail before and after their commit. Whatever happens: every unit is
// written once, and counted if and only if it is written; a final status never changes; a job whose cancellation was
// acknowledged ends as cancelled; and no job is left over. -seeds N runs more of them.
func TestSimulatedFailuresNeverLoseOrDoubleAUnit(t *testing.T) {
	each(t, func(t *testing.T, m fixture) {
		seeds := *seedsFlag
		if m.db.Engine == db.Postgres {
			seeds = (seeds + 1) / 2
		}
		for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
			s := &simulation{fixture: m, t: t, random: rand.New(rand.NewPCG(seed, 7)), ends: map[key]record{}, cancelled: map[key]bool{}}
			for i := range 3 {
				ws := name("ws", int(seed)*10+i)
				m.addWorkspace(t, ws)
				s.spaces = append(s.spaces, ws)
			}
			s.run(80)
			s.drain()
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}
	})
}

type simulation struct {
	fixture
	t       *testing.T
	spaces  []tenant.ID
	jobs    []key
	servers []*server
	nodes   int
	dead    []*member // of servers that ended; their lives may not be over yet

	mu        sync.Mutex // work draws from random, too
	random    *rand.Rand
	ends      map[key]record // final rows as they were first seen
	cancelled map[key]bool   // jobs that callers were told are cancelled
}

func (s *simulation) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

var errRefused = fault.InsufficientBalance.New("refused by the test")

var events = []struct {
	weight int
	do     func(*simulation)
}{
	{6, (*simulation).queueJob},
	{3, (*simulation).startServer},
	{2, func(s *simulation) { s.endServer((*server).kill) }},
	{1, func(s *simulation) { s.endServer(func(v *server) { v.stop() }) }},
	{2, func(s *simulation) { s.onServer(func(v *server) { v.Pause(errBroken) }) }},
	{3, func(s *simulation) { s.onServer(func(v *server) { v.Resume() }) }},
	{4, (*simulation).cancel},
	{2, func(s *simulation) { s.onMember((*member).end) }},
	{2, func(s *simulation) { s.onMember((*member).rejoin) }},
	{1, (*simulation).endDead},
}

func (s *simulation) run(steps int) {
	total := 0
	for _, a := range events {
		total += a.weight
	}
	for range steps {
		at := s.draw(total)
		for _, a := range events {
			if at -= a.weight; at < 0 {
				a.do(s)
				break
			}
		}
		time.Sleep(time.Duration(s.draw(8)) * time.Millisecond)
		s.check()
	}
}

func (s *simulation) queueJob() {
	ws := s.spaces[s.draw(len(s.spaces))]
	s.jobs = append(s.jobs, key{ws, s.queue(s.t, ws, int64(s.draw(7)))})
	s.onServer(func(v *server) { v.wakeUp() })
}

// startServer starts a server, although another one may still run.
func (s *simulation) startServer() {
	if len(s.servers) == 3 {
		return
	}
	v := s.open(s.t, Config{Slots: 3, Member: s.member()})
	v.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) {
		switch s.draw(25) {
		case 0:
			return 0, errBroken
		case 1:
			version, err := v.own.Tx(ctx, fn)
			return version, errors.Join(err, errBroken)
		}
		return v.own.Tx(ctx, fn)
	}
	v.Handle(kind, counting(v.own, s.disturb))
	s.servers = append(s.servers, v.start(s.t))
}

// member returns the membership of a new server: of a node that died before, or of another one.
func (s *simulation) member() Membership {
	if s.db.Engine != db.Postgres {
		return nil
	}
	if len(s.dead) > 0 && s.draw(2) == 0 {
		of := s.dead[0]
		s.dead = s.dead[1:]
		return s.join(s.t, of.Life().Node)
	}
	s.nodes++
	return s.join(s.t, fmt.Sprintf("node_%d", s.nodes))
}

func (s *simulation) onMember(do func(*member, *testing.T)) {
	s.onServer(func(v *server) {
		if v.as != nil {
			do(v.as, s.t)
		}
	})
}

// endDead ends the life of a node that died.
func (s *simulation) endDead() {
	if len(s.dead) > 0 {
		s.dead[0].end(s.t)
		s.dead = s.dead[1:]
	}
}

// disturb is what may happen before a unit.
func (s *simulation) disturb(ctx context.Context, _ *Run, _ int64) error {
	switch s.draw(60) {
	case 0:
		return errBroken
	case 1:
		panic("by the test")
	case 2:
		return errRefused
	case 3, 4, 5, 6, 7, 8, 9:
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(s.draw(20)) * time.Millisecond): // or does not look
		}
	}
	return nil
}

func (s *simulation) onServer(do func(*server)) {
	if len(s.servers) > 0 {
		do(s.servers[s.draw(len(s.servers))])
	}
}

func (s *simulation) endServer(how func(*server)) {
	if len(s.servers) > 0 {
		v := s.servers[0]
		s.servers = s.servers[1:]
		how(v)
		if v.as != nil {
			s.dead = append(s.dead, v.as)
		}
	}
}

func (s *simulation) cancel() {
	if len(s.jobs) == 0 || len(s.servers) == 0 {
		return
	}
	at := s.jobs[s.draw(len(s.jobs))]
	_, err := s.servers[s.draw(len(s.servers))].Cancel(s.t.Context(), at.WorkspaceID, ann, at.ID)
	switch {
	case err == nil:
		s.cancelled[at] = true
	case fault.From(err).Kind != fault.Conflicting:
		s.t.Errorf("cancel: %v", err)
	}
}

type seen struct {
	record
	WorkspaceID    tenant.ID
	ID             string
	Units, Results int64
}

func (s *simulation) readAll() []seen {
	all, err := db.Query[seen](s.t.Context(), s.db.Across("test"), `
		SELECT workspace_id, id, kind, status, done, total, cost, attempts, losses, claim, node, epoch, cancel_requested, failure, started_at, finished_at,
			(SELECT COUNT(*) FROM units WHERE units.workspace_id = jobs.workspace_id AND units.job_id = jobs.id) AS units,
			(SELECT COUNT(*) FROM results WHERE results.workspace_id = jobs.workspace_id AND results.job_id = jobs.id) AS results
		FROM jobs`)
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// check compares every job with what was seen and what callers were told before.
func (s *simulation) check() {
	for _, j := range s.readAll() {
		at := key{j.WorkspaceID, j.ID}
		if j.Units != j.Done || j.Cost != money.Nano(j.Units)*price || j.Done > j.Total || (j.Results == 1) != (j.Status == Done) || (j.Status == Done && j.Done != j.Total) {
			s.t.Errorf("%d units, %d results: %+v", j.Units, j.Results, j.record)
		}
		if s.cancelled[at] && j.Status != Cancelled && (!j.CancelRequested || j.Status != Running) {
			s.t.Errorf("it was cancelled: %+v", j.record)
		}
		if j.Status == Failed && j.Failure != errRefused.Message && j.Attempts < maxAttempts { // that many failures may follow one another
			s.t.Errorf("nothing else should fail: %+v", j.record)
		}
		plain := j.record
		plain.StartedAt, plain.FinishedAt = nil, nil // pointers
		if before, ended := s.ends[at]; ended && before != plain {
			s.t.Errorf("an end has changed:\n%+v\n%+v", before, plain)
		}
		if j.Status.Ended() {
			s.ends[at] = plain
		}
	}
}

// drain lets one undisturbed server finish what is left.
func (s *simulation) drain() {
	for len(s.servers) > 0 {
		s.endServer((*server).kill)
	}
	for len(s.dead) > 0 {
		s.endDead()
	}
	last := s.serve(s.t, Config{Member: s.member()}, noDelay)
	for _, at := range s.jobs {
		for deadline := time.Now().Add(2 * time.Minute); !s.get(s.t, at.WorkspaceID, at.ID).Status.Ended(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				s.t.Fatalf("left over: %+v", s.row(s.t, at.WorkspaceID, at.ID))
			}
		}
	}
	s.check()
	last.stop()
	tally := map[Status]int{}
	for _, j := range s.readAll() {
		tally[j.Status]++
	}
	s.t.Log(tally)
}
