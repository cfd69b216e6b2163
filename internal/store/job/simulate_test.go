package job

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

var seedsFlag = flag.Uint64("seeds", 6, "how many accidents of jobs are simulated")

// Servers come, stop, are killed, are paused and come back, sometimes two of them at once; jobs are queued and cancelled; work fails,
// panics, is refused; transactions fail before and after they took place. Whatever happens: every unit is written once, and counted if and
// only if it is written; an end is final; who was told that a job is cancelled finds it cancelled; and no job is left over.
func TestSimulatedAccidentsNeverLoseOrDoubleAUnit(t *testing.T) {
	each(t, func(t *testing.T, m room) {
		seeds := *seedsFlag
		if m.db.Engine == db.Postgres {
			seeds = (seeds + 1) / 2
		}
		for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
			s := &simulation{room: m, t: t, random: rand.New(rand.NewPCG(seed, 7)), ends: map[place]record{}, cancelled: map[place]bool{}}
			for i := range 3 {
				ws := name("ws", int(seed)*10+i)
				m.settle(t, ws)
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
	room
	t      *testing.T
	spaces []tenant.ID
	jobs   []place
	alive  []*server

	mu        sync.Mutex // work draws, too
	random    *rand.Rand
	ends      map[place]record // as they were first seen
	cancelled map[place]bool   // as callers were told
}

func (s *simulation) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

var errRefused = fault.InsufficientBalance.New("refused by the test")

var accidents = []struct {
	weight int
	do     func(*simulation)
}{
	{6, (*simulation).ask},
	{3, (*simulation).begin},
	{2, func(s *simulation) { s.end((*server).kill) }},
	{1, func(s *simulation) { s.end(func(v *server) { v.stop() }) }},
	{2, func(s *simulation) { s.some(func(v *server) { v.Pause(errBroken) }) }},
	{3, func(s *simulation) { s.some(func(v *server) { v.Resume() }) }},
	{4, (*simulation).cancel},
}

func (s *simulation) run(steps int) {
	total := 0
	for _, a := range accidents {
		total += a.weight
	}
	for range steps {
		at := s.draw(total)
		for _, a := range accidents {
			if at -= a.weight; at < 0 {
				a.do(s)
				break
			}
		}
		time.Sleep(time.Duration(s.draw(8)) * time.Millisecond)
		s.check()
	}
}

func (s *simulation) ask() {
	ws := s.spaces[s.draw(len(s.spaces))]
	s.jobs = append(s.jobs, place{ws, s.queue(s.t, ws, int64(s.draw(7)))})
	s.some(func(v *server) { v.wakeUp() })
}

// begin starts a server, although another may still believe that it serves.
func (s *simulation) begin() {
	if len(s.alive) == 2 {
		return
	}
	v := s.open(s.t, Config{Slots: 3})
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
	v.Handle(kind, counting(v.own, s.hinder))
	s.alive = append(s.alive, v.start(s.t))
}

// hinder is what may happen before a unit.
func (s *simulation) hinder(ctx context.Context, _ *Run, _ int64) error {
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

func (s *simulation) some(do func(*server)) {
	if len(s.alive) > 0 {
		do(s.alive[s.draw(len(s.alive))])
	}
}

func (s *simulation) end(how func(*server)) {
	if len(s.alive) > 0 {
		v := s.alive[0]
		s.alive = s.alive[1:]
		how(v)
	}
}

func (s *simulation) cancel() {
	if len(s.jobs) == 0 || len(s.alive) == 0 {
		return
	}
	at := s.jobs[s.draw(len(s.jobs))]
	_, err := s.alive[s.draw(len(s.alive))].Cancel(s.t.Context(), at.WorkspaceID, ann, at.ID)
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

func (s *simulation) look() []seen {
	all, err := db.Query[seen](s.t.Context(), s.db.Across("test"), `
		SELECT workspace_id, id, kind, status, done, total, cost, attempts, losses, claim, cancel_requested, failure, started_at, finished_at,
			(SELECT COUNT(*) FROM units WHERE units.workspace_id = jobs.workspace_id AND units.job_id = jobs.id) AS units,
			(SELECT COUNT(*) FROM results WHERE results.workspace_id = jobs.workspace_id AND results.job_id = jobs.id) AS results
		FROM jobs`)
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// check holds every job against what was seen and told before.
func (s *simulation) check() {
	for _, j := range s.look() {
		at := place{j.WorkspaceID, j.ID}
		if j.Units != j.Done || j.Cost != money.Nano(j.Units)*price || j.Done > j.Total || (j.Results == 1) != (j.Status == Done) || (j.Status == Done && j.Done != j.Total) {
			s.t.Errorf("%d units, %d results: %+v", j.Units, j.Results, j.record)
		}
		if s.cancelled[at] && j.Status != Cancelled && (!j.CancelRequested || j.Status != Running) {
			s.t.Errorf("it was cancelled: %+v", j.record)
		}
		if j.Status == Failed && j.Failure != errRefused.Message && j.Attempts < maxAttempts { // accidents may follow one another so often
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

// drain lets one good server do what is left.
func (s *simulation) drain() {
	for len(s.alive) > 0 {
		s.end((*server).kill)
	}
	last := s.serve(s.t, Config{}, quick)
	for _, at := range s.jobs {
		for deadline := time.Now().Add(20 * time.Second); !s.get(s.t, at.WorkspaceID, at.ID).Status.Ended(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				s.t.Fatalf("left over: %+v", s.row(s.t, at.WorkspaceID, at.ID))
			}
		}
	}
	s.check()
	last.stop()
	tally := map[Status]int{}
	for _, j := range s.look() {
		tally[j.Status]++
	}
	s.t.Log(tally)
}
