package endpoint

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/serving"
	"sovereign/internal/plane/engines"
)

func servingSpec(name string) serving.Spec { return serving.Spec{Name: name, Replicas: 1} }

var statuses = []Status{Pending, Starting, Running, Stopping, Stopped, Failed}

func TestEveryStateIsInTheTableAndLeadsToAnother(t *testing.T) {
	for _, s := range statuses {
		if len(next[s]) == 0 {
			t.Errorf("nothing follows %s", s)
		}
		for _, to := range statuses {
			if s.May(to) && s == to {
				t.Errorf("%s follows itself", s)
			}
		}
		if s.Serves() && !s.May(Stopping) {
			t.Errorf("%s cannot be stopped", s)
		}
		if !s.Serves() && s != Stopping && !s.May(Pending) {
			t.Errorf("%s cannot be started", s)
		}
	}
}

const t0 = clock.Time(1_700_000_000_000_000)

func at(d time.Duration) clock.Time { return t0.Add(d) }

// An example is an endpoint with engines, and what is decided.
type example struct {
	e      record
	lives  []life
	ready  []string
	busy   map[string]int
	use    engines.Use
	unseen bool // the backend lists nothing
	status Status
	wanted int64
	run    int
	serve  []string
}

func (x *example) facts(now clock.Time) facts {
	f := facts{now: now, ready: map[string]bool{}, busy: func(id string) int { return x.busy[id] }, use: x.use, listed: !x.unseen}
	for _, id := range x.ready {
		f.ready[id] = true
	}
	return f
}

func ready(id string, since time.Duration) life {
	return life{ID: id, StartedAt: at(since - 5*time.Second), ReadyAt: at(since), SeenAt: at(since)}
}

func draining(id string, since time.Duration) life {
	l := ready(id, -time.Hour)
	l.DrainAt = at(since)
	return l
}

func TestDecisions(t *testing.T) {
	scaled := record{Status: Running, MinReplicas: 0, MaxReplicas: 4, IdleTimeout: 300, Wanted: 1, HoldID: "h", Active: true}
	with := func(edit func(*record)) record { r := scaled; edit(&r); return r }
	two := with(func(r *record) { r.Wanted = 2 })
	for name, x := range map[string]example{
		"a new endpoint starts one engine": {
			e: record{Status: Pending, MaxReplicas: 2, Active: true}, unseen: true, status: Starting, wanted: 1, run: 1,
		},
		"it starts as many as it shall have at least": {
			e: record{Status: Pending, MinReplicas: 2, MaxReplicas: 2, Active: true}, unseen: true, status: Starting, wanted: 2, run: 2,
		},
		"it runs when one is ready": {
			e:     record{Status: Starting, MaxReplicas: 1, IdleTimeout: 300, Wanted: 1, Active: true},
			lives: []life{ready("a", -time.Second)}, ready: []string{"a"}, status: Running, wanted: 1, run: 1, serve: []string{"a"},
		},
		"after five failures in a row it has failed": {
			e: record{Status: Starting, MaxReplicas: 1, Wanted: 1, Failures: 5, Active: true}, status: Failed,
		},
		"an engine that serves keeps it alive though another fails": {
			e:     with(func(r *record) { r.Failures, r.Wanted, r.MinReplicas = 9, 2, 2 }),
			lives: []life{ready("a", -time.Second)}, ready: []string{"a"}, status: Running, wanted: 2, run: 2, serve: []string{"a"},
		},
		"more requests want more replicas at once": {
			e: scaled, lives: []life{ready("a", -time.Hour)}, ready: []string{"a"},
			use: engines.Use{Outstanding: 2*perReplica + 1}, status: Running, wanted: 3, run: 3, serve: []string{"a"},
		},
		"never more than it may have": {
			e: scaled, lives: []life{ready("a", -time.Hour)}, ready: []string{"a"},
			use: engines.Use{Outstanding: 1000, Waiting: 1000}, status: Running, wanted: 4, run: 4, serve: []string{"a"},
		},
		"it does not shrink before a quiet minute has passed": {
			e: with(func(r *record) { r.Wanted, r.QuietAt = 2, at(-59*time.Second) }), use: engines.Use{Outstanding: 1},
			lives: []life{ready("a", -time.Hour), ready("b", -time.Minute)}, ready: []string{"a", "b"},
			status: Running, wanted: 2, run: 2, serve: []string{"a", "b"},
		},
		"then the youngest leaves service, and goes on answering": {
			e: with(func(r *record) { r.Wanted, r.QuietAt = 2, at(-60*time.Second) }), use: engines.Use{Outstanding: 1},
			lives: []life{ready("a", -time.Hour), ready("b", -time.Minute)}, ready: []string{"a", "b"}, busy: map[string]int{"b": 1},
			status: Running, wanted: 1, run: 2, serve: []string{"a"},
		},
		"it ends when it has answered": {
			e: scaled, use: engines.Use{Outstanding: 1}, lives: []life{ready("a", -time.Hour), draining("b", -time.Second)},
			ready: []string{"a", "b"}, status: Running, wanted: 1, run: 1, serve: []string{"a"},
		},
		"or when it has had its time": {
			e: scaled, use: engines.Use{Outstanding: 2}, lives: []life{ready("a", -time.Hour), draining("b", -drainFor)},
			ready: []string{"a", "b"}, busy: map[string]int{"b": 1}, status: Running, wanted: 1, run: 1, serve: []string{"a"},
		},
		"one that loads ends before one that is ready": {
			e: scaled, use: engines.Use{Outstanding: 1}, lives: []life{{ID: "a", StartedAt: at(-time.Hour)}, ready("b", -time.Minute)},
			ready: []string{"b"}, status: Running, wanted: 1, run: 1, serve: []string{"b"},
		},
		"one that drains serves again when it is needed": {
			e: two, use: engines.Use{Outstanding: perReplica + 1}, lives: []life{ready("a", -time.Hour), draining("b", -time.Second)},
			ready: []string{"a", "b"}, status: Running, wanted: 2, run: 2, serve: []string{"a", "b"},
		},
		"it stays while it was used of late": {
			e: scaled, use: engines.Use{LastUsed: at(-299 * time.Second)}, lives: []life{ready("a", -time.Hour)}, ready: []string{"a"},
			status: Running, wanted: 1, run: 1, serve: []string{"a"},
		},
		"idle, it scales to zero": {
			e: scaled, use: engines.Use{LastUsed: at(-300 * time.Second)}, lives: []life{ready("a", -time.Hour)}, ready: []string{"a"},
			status: Running, wanted: 0, run: 1,
		},
		"one that shall have a replica never does": {
			e: with(func(r *record) { r.MinReplicas = 1 }), lives: []life{ready("a", -time.Hour)}, ready: []string{"a"},
			status: Running, wanted: 1, run: 1, serve: []string{"a"},
		},
		"a request that waits wakes it": {
			e: with(func(r *record) { r.Wanted, r.HoldID = 0, "" }), use: engines.Use{Waiting: 1}, unseen: true,
			status: Running, wanted: 1, run: 1,
		},
		"a caller that left does not end the engine that loads for it": {
			e: scaled, use: engines.Use{LastUsed: at(-time.Hour)}, lives: []life{{ID: "a", StartedAt: at(-time.Second)}},
			status: Running, wanted: 1, run: 1,
		},
		"stopping, it answers what it was asked": {
			e: with(func(r *record) { r.Status = Stopping }), lives: []life{ready("a", -time.Hour)}, ready: []string{"a"},
			busy: map[string]int{"a": 1}, status: Stopping, run: 1,
		},
		"without money it ends at once": {
			e:     with(func(r *record) { r.Status, r.ErrorCode = Stopping, codeBalance }),
			lives: []life{ready("a", -time.Hour)}, ready: []string{"a"}, busy: map[string]int{"a": 1}, status: Stopping,
		},
		"it has not stopped while something is not charged": {
			e: with(func(r *record) { r.Status = Stopping }), lives: []life{{ID: "a", EndedAt: t0}}, unseen: true, status: Stopping,
		},
		"it has not stopped while the backend has something of it": {
			e: with(func(r *record) { r.Status, r.HoldID = Stopping, "" }), lives: []life{{ID: "a", EndedAt: t0, Settled: true}}, status: Stopping,
		},
		"it has stopped when nothing is left": {
			e:     with(func(r *record) { r.Status, r.HoldID = Stopping, "" }),
			lives: []life{{ID: "a", EndedAt: t0, Settled: true}}, unseen: true, status: Stopped,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, do := decide(x.e, x.lives, x.facts(t0))
			if got.Status != x.status || got.Wanted != x.wanted || do.run != x.run || !slices.Equal(do.serve, x.serve) {
				t.Errorf("%s, %d wanted, %+v; want %s, %d, %d %v", got.Status, got.Wanted, do, x.status, x.wanted, x.run, x.serve)
			}
		})
	}
}

// Whatever an endpoint is and does: its state follows by the table, no more engines run than it may have, only ready
// ones that stay serve, and deciding again in the same state and with the same facts decides the same.
func TestDecisionsKeepTheirBoundsForAnyFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := example{e: record{
			Status: rapid.SampledFrom(statuses).Draw(t, "status"), MaxReplicas: rapid.Int64Range(1, 4).Draw(t, "max"),
			IdleTimeout: 60, Failures: rapid.Int64Range(0, 6).Draw(t, "failures"), Active: true,
			HoldID: rapid.SampledFrom([]string{"", "h"}).Draw(t, "hold"),
		}}
		x.e.MinReplicas = rapid.Int64Range(0, x.e.MaxReplicas).Draw(t, "min")
		x.e.Wanted = rapid.Int64Range(0, x.e.MaxReplicas).Draw(t, "wanted")
		x.use = engines.Use{Outstanding: rapid.IntRange(0, 100).Draw(t, "outstanding"), Waiting: rapid.IntRange(0, 100).Draw(t, "waiting")}
		x.busy = map[string]int{}
		for _, id := range []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(t, "lives")] {
			l := life{ID: id, StartedAt: at(-time.Hour)}
			switch rapid.IntRange(0, 3).Draw(t, "life") {
			case 0:
				l.EndedAt, l.Settled = t0, rapid.Bool().Draw(t, "settled")
			case 1:
				l.ReadyAt, l.SeenAt = at(-time.Minute), t0
				x.ready = append(x.ready, id)
				x.busy[id] = rapid.IntRange(0, 2).Draw(t, "busy")
			}
			x.lives = append(x.lives, l)
		}
		got, lives, do := decide(x.e, x.lives, x.facts(t0))
		if got.Status != x.e.Status && !x.e.Status.May(got.Status) {
			t.Fatalf("%s became %s", x.e.Status, got.Status)
		}
		alive := 0
		for _, l := range lives {
			if l.EndedAt == 0 {
				alive++
			}
			if l.DrainAt != 0 && slices.Contains(do.serve, l.ID) {
				t.Fatalf("%s drains and serves", l.ID)
			}
		}
		if do.run > max(int(got.MaxReplicas), alive) || len(do.serve) > do.run || got.Wanted > got.MaxReplicas {
			t.Fatalf("%+v of %d alive", do, alive)
		}
		if !got.Status.Serves() && (got.Wanted != 0 || len(do.serve) != 0 || do.run > alive) {
			t.Fatalf("%s: %+v", got.Status, do)
		}
		if !got.Active && (alive > 0 || got.HoldID != "") {
			t.Fatalf("not active with %d engines and the hold %q", alive, got.HoldID)
		}
		again, _, more := decide(got, lives, x.facts(t0))
		if got.Status == x.e.Status && (again.Wanted != got.Wanted || more.run != do.run) {
			t.Fatalf("%+v and then %+v", do, more)
		}
	})
}
