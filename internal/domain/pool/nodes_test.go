package pool

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/serving"
	"sovereign/internal/live"
	"sovereign/internal/plane/engines"
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

// nodes are two servers on one database and one cluster, of which a leads.
type nodes struct {
	t      *testing.T
	a, b   *fixture
	leader string
	away   atomic.Int64 // seconds that have gone by, beside those of the test
}

func both(t *testing.T, adapters string, test func(t *testing.T, n *nodes)) {
	t.Helper()
	each(t, adapters, func(t *testing.T, f *fixture) {
		n := &nodes{t: t, leader: "a"}
		n.a, n.b = n.open(f, "a"), n.open(f, "b")
		test(t, n)
	})
}

func (n *nodes) open(f *fixture, name string) *fixture {
	n.t.Helper()
	if _, err := db.Exec(n.t.Context(), f.DB.Across("test"), `
		INSERT INTO nodes (id, epoch, beat, applied, serving, draining, ended, forgotten, name, address, release, settings,
			joined_at, seen_at) VALUES ($1, 1, 1, 1, TRUE, FALSE, FALSE, FALSE, '', '', '', '', 0, 0)`, name); err != nil {
		n.t.Fatal(err)
	}
	made := &fixture{t: f.t, backend: f.backend, folders: &folders{}}
	c := f.Config
	c.Own, c.Registry, c.Folders = live.NewOwnModels(), engines.NewRegistry(), made.folders
	c.Groups = serving.NewGroups(serving.GroupsConfig{
		DB: c.DB, Member: &member{cluster.Life{Node: name, Epoch: 1}, &n.leader}, Registry: c.Registry, Log: c.Log,
	})
	made.Pool = New(c)
	made.now = func() time.Time { return time.Now().Add(time.Duration(n.away.Load()) * time.Second) }
	return made
}

// look has both servers do a round, and hear each other.
func (n *nodes) look() {
	n.t.Helper()
	for range 2 {
		for _, f := range []*fixture{n.a, n.b} {
			if err := f.round(n.t.Context()); err != nil {
				n.t.Fatal(err)
			}
			if err := f.Groups.Follow(n.t.Context()); err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

func (n *nodes) add(ws tenant.ID, id string) {
	n.a.add(ws, id, "tiny/bigram", "model.bin")
	n.b.apply(ws, id)
}

// ask asks a model at a server, while both do their rounds.
func (n *nodes) ask(f *fixture, id string) *engines.Lease {
	n.t.Helper()
	m, ok := f.Own.Find(dbtest.Mine, id)
	if !ok {
		n.t.Fatalf("%s is not published", id)
	}
	type result struct {
		lease *engines.Lease
		err   error
	}
	answered := make(chan result, 1)
	go func() {
		lease, err := f.Registry.Acquire(n.t.Context(), m.Engines, m.Upstream)
		answered <- result{lease, err}
	}()
	for {
		select {
		case r := <-answered:
			if r.err != nil {
				n.t.Fatal(r.err)
			}
			return r.lease
		case <-time.After(10 * time.Millisecond):
		}
		n.look()
	}
}

// calls returns what the engines were asked to load and to unload, and forgets it.
func (n *nodes) calls() (all []string) {
	n.a.backend.mu.Lock()
	defer n.a.backend.mu.Unlock()
	for _, c := range n.a.backend.calls {
		if strings.Contains(c, "load_lora_adapter mv_") && !strings.Contains(c, "stale") {
			all = append(all, strings.Fields(c)[0][1:]+" "+strings.Fields(c)[1])
		}
	}
	n.a.backend.calls = nil
	return all
}

func TestServersShareWhatAnEngineHasLoaded(t *testing.T) {
	both(t, serving.AdaptersLoad, func(t *testing.T, n *nodes) {
		for _, id := range []string{"mv_1", "mv_2", "mv_3"} {
			n.add(dbtest.Mine, id)
		}
		first := n.ask(n.b, "ft/mv_1") // the other server wakes the engine
		n.ask(n.a, "ft/mv_1").Release(false)
		n.ask(n.a, "ft/mv_2").Release(false)
		if got := n.calls(); !slices.Equal(got, []string{"load_lora_adapter mv_1", "load_lora_adapter mv_2"}) {
			t.Fatalf("%q", got)
		}
		n.ask(n.b, "ft/mv_3").Release(false) // the place of the one that nobody answers with
		if got := n.calls(); !slices.Equal(got, []string{"unload_lora_adapter mv_2", "load_lora_adapter mv_3"}) {
			t.Fatalf("%q", got)
		}
		first.Release(false)

		// The server that has pinned both dies: the other needs not ask it.
		n.ask(n.b, "ft/mv_1").Release(false)
		if _, err := db.Exec(t.Context(), n.a.DB.Across("test"), `UPDATE nodes SET ended = TRUE WHERE id = 'b'`); err != nil {
			t.Fatal(err)
		}
		n.calls()
		lone := &nodes{t: t, a: n.a, b: n.a}
		lone.ask(n.a, "ft/mv_2").Release(false)
		if got := n.calls(); !slices.Contains(got, "load_lora_adapter mv_2") {
			t.Fatalf("%q", got)
		}
	})
}

func TestAVersionThatIsNotUsedIsGivenUpAndItsFilesAreLetGo(t *testing.T) {
	both(t, serving.AdaptersLoad, func(t *testing.T, n *nodes) {
		n.add(dbtest.Mine, "mv_1")
		n.ask(n.b, "ft/mv_1").Release(false)
		n.away.Add(120)
		n.look()
		left, err := db.One[int64](t.Context(), n.a.DB.Across("test"), `SELECT COUNT(*) FROM engine_adapters`)
		if err != nil || left != 0 || n.b.folders.held != 0 {
			t.Errorf("%d rows and %d folders are left: %v", left, n.b.folders.held, err)
		}
		n.ask(n.b, "ft/mv_1").Release(false)
	})
}

func TestAnEngineStopsWhenNoServerUsesIt(t *testing.T) {
	both(t, serving.AdaptersLoad, func(t *testing.T, n *nodes) {
		n.add(dbtest.Mine, "mv_1")
		lease := n.ask(n.b, "ft/mv_1")
		n.away.Add(7200)
		n.look()
		n.away.Add(7200)
		if n.look(); len(n.a.backend.running()) != 1 {
			t.Fatal("the engine ended under a request of the other server")
		}
		lease.Release(false)
		n.look()
		n.away.Add(7200)
		n.look()
		if n.look(); len(n.a.backend.running()) != 0 {
			t.Error("the engine did not end")
		}
		n.ask(n.b, "ft/mv_1").Release(false)
	})
}
