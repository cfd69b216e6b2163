package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

const (
	mine   tenant.ID = "ws_mine"
	theirs tenant.ID = "ws_theirs"
	kind             = "count"
	price            = money.Nano(7)
)

var ann = tenant.Caller{Workspace: mine, User: "usr_ann", Key: "key_1"}.Actor()

// A fixture is a database with two workspaces and the tables of a small domain: units, each written once, and results.
type fixture struct {
	db     *db.DB
	folder string
	url    secret.Text
}

func each(t *testing.T, test func(t *testing.T, r fixture)) {
	t.Helper()
	dbtest.EachMigrated(t, func(t *testing.T, folder string, url secret.Text) {
		r := fixture{db: dbtest.Open(t, folder, url), folder: folder, url: url}
		for _, table := range []string{
			`CREATE TABLE units (workspace_id TEXT, job_id TEXT, unit BIGINT, PRIMARY KEY (workspace_id, job_id, unit))`,
			`CREATE TABLE results (workspace_id TEXT, job_id TEXT, PRIMARY KEY (workspace_id, job_id))`,
		} {
			if _, err := db.Exec(t.Context(), r.db.Across("test"), table); err != nil {
				t.Fatal(err)
			}
		}
		r.addWorkspace(t, mine)
		r.addWorkspace(t, theirs)
		test(t, r)
	})
}

// addWorkspace inserts a workspace.
func (m fixture) addWorkspace(t *testing.T, ws tenant.ID) {
	t.Helper()
	if _, err := db.Exec(t.Context(), m.db.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, string(ws)); err != nil {
		t.Fatal(err)
	}
}

func (m fixture) queue(t *testing.T, ws tenant.ID, total int64) string {
	t.Helper()
	n := New{ID: id.New("cnt"), Kind: kind, Total: total, Estimate: 100}
	if _, err := m.db.Tx(t.Context(), func(tx *db.Tx) error { return Queue(t.Context(), tx, ws, n) }); err != nil {
		t.Fatal(err)
	}
	return n.ID
}

func (m fixture) get(t *testing.T, ws tenant.ID, id string) Job {
	t.Helper()
	j, err := Get(t.Context(), m.db.In(ws), id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// row reads what callers do not see.
func (m fixture) row(t *testing.T, ws tenant.ID, id string) record {
	t.Helper()
	r, err := db.One[record](t.Context(), m.db.In(ws), `
		SELECT kind, status, done, total, cost, attempts, losses, claim, node, epoch, cancel_requested, failure, started_at, finished_at
		FROM jobs WHERE workspace_id = $1 AND id = $2`, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// await waits until the job is in the status, and fails when it ends in another.
func (m fixture) await(t *testing.T, ws tenant.ID, id string, want Status) Job {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		j := m.get(t, ws, id)
		if j.Status == want {
			return j
		}
		if j.Status.Ended() || time.Now().After(deadline) {
			t.Fatalf("want %s, and it is %s: %+v", want, j.Status, m.row(t, ws, id))
		}
	}
}

func (m fixture) units(t *testing.T, ws tenant.ID, id string) int64 {
	t.Helper()
	n, err := db.One[int64](t.Context(), m.db.In(ws), `SELECT COUNT(*) FROM units WHERE workspace_id = $1 AND job_id = $2`, id)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkDone waits until a job is DONE, and checks that each unit is written once and counted.
func (m fixture) checkDone(t *testing.T, ws tenant.ID, id string) {
	t.Helper()
	j := m.await(t, ws, id, Done)
	n := m.units(t, ws, id)
	results, err := db.One[int64](t.Context(), m.db.In(ws), `SELECT COUNT(*) FROM results WHERE workspace_id = $1 AND job_id = $2`, id)
	if err != nil || n != j.Total || j.Done != n || j.Cost != money.Nano(n)*price || results != 1 || j.FinishedAt == nil || j.StartedAt == nil || j.Error != nil {
		t.Errorf("%d units, %d results: %+v %v", n, results, j, err)
	}
}

// counting does every unit that is not written yet, each in its own transaction, and writes a result at the end. It
// reads outside of transactions what is left: only the claim keeps another run from writing the same unit.
func counting(d *db.DB, before func(ctx context.Context, run *Run, unit int64) error) Work {
	return func(ctx context.Context, run *Run) error {
		j, err := Get(ctx, d.In(run.Workspace), run.ID)
		if err != nil {
			return err
		}
		for unit := range j.Total {
			n, err := db.One[int64](ctx, d.In(run.Workspace), `SELECT COUNT(*) FROM units WHERE workspace_id = $1 AND job_id = $2 AND unit = $3`, run.ID, unit)
			if err != nil {
				return err
			}
			if n == 1 {
				continue
			}
			if err := before(ctx, run, unit); err != nil {
				return err
			}
			if err := run.Tx(ctx, func(tx *db.Tx, at *Tally) error { return writeUnit(ctx, tx, run, unit, at) }); err != nil {
				return err
			}
		}
		return run.Finish(ctx, func(tx *db.Tx, _ *Tally) error {
			_, err := db.Exec(ctx, tx.In(run.Workspace), `INSERT INTO results (workspace_id, job_id) VALUES ($1, $2)`, run.ID)
			return err
		})
	}
}

func writeUnit(ctx context.Context, tx *db.Tx, run *Run, unit int64, at *Tally) error {
	at.Done++
	at.Cost += price
	_, err := db.Exec(ctx, tx.In(run.Workspace), `INSERT INTO units (workspace_id, job_id, unit) VALUES ($1, $2, $3)`, run.ID, unit)
	return err
}

func noDelay(context.Context, *Run, int64) error { return nil }

// A server is a runner with database connections of its own.
type server struct {
	*Runner
	as     *member // nil for a runner that is alone
	logged *buffer
	own    *db.DB
	stop   func() // returns when the runner has
}

// open returns a runner that polls often and backs off briefly. It does not run yet.
func (m fixture) open(t *testing.T, c Config) *server {
	t.Helper()
	s := &server{own: dbtest.Open(t, m.folder, m.url), logged: &buffer{}}
	s.as, _ = c.Member.(*member)
	c.DB, c.Log = s.own, slog.New(slog.NewTextHandler(s.logged, nil))
	s.Runner = NewRunner(c)
	s.pollEvery, s.backoffScale = 5*time.Millisecond, 0.0001
	return s
}

func (s *server) start(t *testing.T) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	s.stop = func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(2 * time.Minute):
			t.Error("the runner does not end")
		}
	}
	t.Cleanup(s.stop)
	return s
}

func (m fixture) serve(t *testing.T, c Config, before func(context.Context, *Run, int64) error) *server {
	t.Helper()
	s := m.open(t, c)
	s.Handle(kind, counting(s.own, before))
	return s.start(t)
}

// kill ends the server as SIGKILL would: nothing of it reaches the database any more.
func (s *server) kill() {
	_ = s.own.Close()
	s.stop()
}

// A gate blocks work at one point until the test opens it.
type gate struct {
	reached, open chan struct{}
}

func newGate() gate { return gate{make(chan struct{}, 100), make(chan struct{})} }

// pass waits until the gate is opened, or the run ends.
func (g gate) pass(ctx context.Context, _ *Run, _ int64) error {
	g.reached <- struct{}{}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) await(t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(2 * time.Minute):
		t.Fatal("no run reaches the gate")
	}
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

var errBroken = errors.New("broken by the test with the secret hunter2")

// atUnit calls do before one unit, the first time only.
func atUnit(unit int64, do func(ctx context.Context, run *Run) error) func(context.Context, *Run, int64) error {
	var done atomic.Bool
	return func(ctx context.Context, run *Run, n int64) error {
		if n == unit && done.CompareAndSwap(false, true) {
			return do(ctx, run)
		}
		return nil
	}
}

func name(prefix string, n int) tenant.ID { return tenant.ID(fmt.Sprintf("%s_%d", prefix, n)) }
