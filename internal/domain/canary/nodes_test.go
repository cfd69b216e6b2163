package canary

import (
	"math/rand/v2"
	"testing"

	"sovereign/internal/base/id"
	"sovereign/internal/base/outcome"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// A node numbers draws of its own.
type node struct {
	life   cluster.Life
	source string
	seq    int64
}

// join begins the next life of a node.
func (f *fixture) join(t *testing.T, n *node) {
	t.Helper()
	n.life.Epoch++
	n.source, n.seq = "", 0
	if _, err := db.Exec(t.Context(), f.Store.DB.Across("test"), `
		INSERT INTO nodes (id, epoch, beat, applied, serving, draining, ended, forgotten, name, address, release, settings, joined_at, seen_at)
		VALUES ($1, $2, 0, 0, TRUE, FALSE, FALSE, FALSE, '', '', '', '', 0, 0)
		ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, ended = FALSE`, n.life.Node, n.life.Epoch); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) endLife(t *testing.T, n *node) {
	t.Helper()
	if _, err := db.Exec(t.Context(), f.Store.DB.Across("test"), `UPDATE nodes SET ended = TRUE WHERE id = $1`, n.life.Node); err != nil {
		t.Fatal(err)
	}
}

// drawOn draws a request on a node.
func (f *fixture) drawOn(t *testing.T, n *node) int {
	t.Helper()
	d := f.draw(t, len(f.drawn)%2 == 0)
	if n.source == "" {
		n.source = id.At("src", d.At.Std()) + "." + logbook.NameLife(n.life)
	}
	n.seq++
	d.Source, d.Seq = n.source, n.seq
	return len(f.drawn) - 1
}

// taken returns the requests that are samples, in their order.
func (f *fixture) taken(t *testing.T) (all []string) {
	t.Helper()
	f.poll(t)
	all, err := db.Query[string](t.Context(), f.Store.DB.In(mine), `SELECT request_id FROM canary_samples WHERE workspace_id = $1 ORDER BY position`)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (f *fixture) checkTaken(t *testing.T, what string, want ...int) {
	t.Helper()
	got := f.taken(t)
	if len(got) != len(want) {
		t.Fatalf("%s: %d are taken, want %d: %v", what, len(got), len(want), got)
	}
	for i, n := range want {
		if got[i] != f.drawn[n].Request {
			t.Errorf("%s: at %d is %s, want %s", what, i, got[i], f.drawn[n].Request)
		}
	}
}

// A running request of a live node is waited for, and one of a node whose life is over is lost.
func TestDrawsOfSeveralNodesAreTakenInTheOrderOfDrawing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 1000 }))
		one, two := &node{life: cluster.Life{Node: "jrn_1"}}, &node{life: cluster.Life{Node: "jrn_2"}}
		f.join(t, one)
		f.join(t, two)
		var order []int
		for range 3 {
			order = append(order, f.drawOn(t, one), f.drawOn(t, two))
		}
		const slow = 2 // the second of one
		for i := len(order) - 1; i >= 0; i-- {
			if order[i] != slow {
				f.end(&f.drawn[order[i]], outcome.Failed, "")
			}
		}
		f.checkTaken(t, "while one request runs", 0)
		f.endLife(t, one)
		f.checkTaken(t, "when its node's life is over", 0, 1, 3, 4, 5)
		// The process lives after all: what it had still to store comes, and the number that was lost stays so.
		f.end(&f.drawn[slow], outcome.Failed, "")
		late := f.drawOn(t, one)
		f.end(&f.drawn[late], outcome.Failed, "")
		f.join(t, one)
		again := f.drawOn(t, one)
		f.end(&f.drawn[again], outcome.Failed, "")
		f.checkTaken(t, "of the next life", 0, 1, 3, 4, 5, late, again)
		e := f.entered(t, 7)
		if got, want := text(t, e.Tally), text(t, f.recount(t, e)); got != want || e.Taken != 7 {
			t.Errorf("%s, recounted %s", got, want)
		}
	})
}

// An earlier release took one source after the other. What it took is not taken again.
func TestAnEpochOfAnEarlierReleaseGoesOnWhereItWas(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 1000 }))
		for range 4 {
			f.end(f.draw(t, true), outcome.Failed, "")
		}
		f.entered(t, 4)
		if _, err := db.Exec(t.Context(), f.Store.DB.In(mine), `UPDATE canary_epochs SET cursors = '{}', source = $2, seq = 4 WHERE workspace_id = $1`, f.drawn[0].Source); err != nil {
			t.Fatal(err)
		}
		f.end(f.draw(t, true), outcome.Failed, "")
		f.checkTaken(t, "after the upgrade", 0, 1, 2, 3, 4)
	})
}

// However the requests of three nodes end and whichever lives end, each draw is taken at most once, those of a source
// in the order of their numbers, all that can come when nothing runs, and the counts are those of the rows.
func TestDrawsOfManyNodesAreTakenOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		random := rand.New(rand.NewPCG(5, 5))
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 100_000 }))
		nodes := []*node{{life: cluster.Life{Node: "jrn_1"}}, {life: cluster.Life{Node: "jrn_2"}}, {life: cluster.Life{Node: "jrn_3"}}}
		for _, n := range nodes {
			f.join(t, n)
		}
		running, lost := []int{}, map[int]bool{}
		for round := range 40 {
			for range random.IntN(6) {
				running = append(running, f.drawOn(t, nodes[random.IntN(len(nodes))]))
			}
			if round%9 == 8 { // its running requests never end
				n := nodes[random.IntN(len(nodes))]
				var kept []int
				for _, i := range running {
					if f.drawn[i].Source == n.source {
						lost[i] = true
					} else {
						kept = append(kept, i)
					}
				}
				running = kept
				f.endLife(t, n)
				if random.IntN(2) == 0 {
					f.taken(t)
				}
				f.join(t, n)
			}
			random.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
			for range random.IntN(len(running)/2 + 2) {
				if len(running) == 0 {
					break
				}
				f.end(&f.drawn[running[0]], outcome.Failed, "")
				running = running[1:]
			}
			f.checkOrder(t, f.taken(t))
		}
		for _, i := range running {
			f.end(&f.drawn[i], outcome.Failed, "")
		}
		all := f.taken(t)
		f.checkOrder(t, all)
		if want := len(f.drawn) - len(lost); len(all) != want || len(lost) == 0 {
			t.Errorf("%d are taken of %d, and %d are lost", len(all), want, len(lost))
		}
		e := f.entered(t, int64(len(all)))
		if got, want := text(t, e.Tally), text(t, f.recount(t, e)); got != want {
			t.Errorf("%s, recounted %s", got, want)
		}
	})
}

// checkOrder checks that no request is there twice, and that those of a source ascend.
func (f *fixture) checkOrder(t *testing.T, all []string) {
	t.Helper()
	by, last := map[string]*drawn{}, map[string]int64{}
	for i := range f.drawn {
		by[f.drawn[i].Request] = &f.drawn[i]
	}
	for _, request := range all {
		d := by[request]
		if d.Seq <= last[d.Source] {
			t.Fatalf("%s has number %d after %d of %s", request, d.Seq, last[d.Source], d.Source)
		}
		last[d.Source] = d.Seq
	}
}

// A node that came to judge has counted what was paid. The one before it, which lives after all, stores its results
// later and does not count the same answers again.
func TestWhatTwoNodesPaidIsCountedOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 1000 }))
		f.answers(t, 5, always, always)
		f.entered(t, 10)
		e := f.epoch(t)
		stale := *e
		stale.Spent -= 3 // as it was read before those three were counted
		if err := f.saveResults(t.Context(), mine, &stale, nil, 3); err != nil {
			t.Fatal(err)
		}
		if now := f.epoch(t); now.Spent != e.Spent || e.Spent == 0 {
			t.Errorf("spent %s, then %s", e.Spent, now.Spent)
		}
		if err := f.saveResults(t.Context(), mine, e, nil, 3); err != nil {
			t.Fatal(err)
		}
		if now := f.epoch(t); now.Spent != e.Spent+3 {
			t.Errorf("spent %s, then %s", e.Spent, now.Spent)
		}
	})
}
