package cluster

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/store/db"
)

// The states of a node, as operators see them.
const (
	Starting  = "starting" // it has joined, and does not serve yet
	Live      = "live"
	Draining  = "draining"
	Silent    = "silent"    // its lease was not renewed in time; its life ends soon
	Left      = "left"      // its life is over
	Forgotten = "forgotten" // its disk is gone
)

// A Node is a server of this database.
type Node struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Address  string     `json:"address"`
	Release  string     `json:"release"`
	Settings string     `json:"settings" doc:"A digest of its catalog and providers"`
	Epoch    int64      `json:"epoch" doc:"How many times it has joined"`
	State    string     `json:"state" enum:"starting,live,draining,silent,left,forgotten"`
	Serving  bool       `json:"serving"`
	Applied  db.Version `json:"applied" doc:"The version of change that it has in force"`
	JoinedAt clock.Time `json:"joined_at"`
	SeenAt   clock.Time `json:"seen_at"`
	Differs  bool       `json:"differs" doc:"Its release or its settings are not those of the server that answers"`
	Ended    bool       `json:"-"`
	Drains   bool       `json:"-" db:"draining"`
	Gone     bool       `json:"-" db:"forgotten"`
}

const selectNodes = `SELECT id, name, address, release, settings, epoch, serving, applied, joined_at, seen_at, ended, draining,
	forgotten FROM nodes`

// List returns all nodes that have ever joined, by name.
func (m *Member) List(ctx context.Context) ([]Node, error) {
	all, err := db.Query[Node](ctx, m.db.Across("nodes belong to no workspace"), selectNodes+` ORDER BY name, id`)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for i := range all {
		m.describe(&all[i])
	}
	return all, nil
}

// describe sets what follows from a node's row. That it is silent is told by our clock, so only of nodes that this one
// has watched for a while.
func (m *Member) describe(n *Node) {
	switch {
	case n.Gone:
		n.State = Forgotten
	case n.Ended:
		n.State = Left
	case m.quiet(n.ID) > leaseTime/2:
		n.State = Silent
	case n.Drains:
		n.State = Draining
	case !n.Serving && !m.alone():
		n.State = Starting
	default:
		n.State = Live
	}
	n.Differs = !n.Ended && !m.alone() && (n.Release != m.about.release || n.Settings != *m.settings.Load())
}

// quiet returns for how long the row of another node has not changed.
func (m *Member) quiet(id string) time.Duration {
	if m.alone() || id == m.Life().Node {
		return 0
	}
	m.watch.mu.Lock()
	defer m.watch.mu.Unlock()
	if s, known := m.watch.since[id]; known {
		return m.now() - s.at
	}
	return 0
}

// Drain asks a node to leave: it stops as with SIGTERM.
func (m *Member) Drain(ctx context.Context, tx *db.Tx, id string) (before, after Node, err error) {
	before, err = m.find(ctx, tx, id)
	if err == nil && before.Ended {
		err = fault.Conflict("node %s has left already", id)
	}
	if err != nil {
		return before, after, err
	}
	return m.set(ctx, tx, before, `draining = TRUE`)
}

// Forget notes that the disk of a node whose life is over is gone. It may not join any more. OnForget gives back what
// is set aside for it, and says what may be lost.
func (m *Member) Forget(ctx context.Context, tx *db.Tx, id string) (before, after Node, lost string, err error) {
	before, err = m.find(ctx, tx, id)
	if err == nil && !before.Ended {
		err = fault.Conflict("node %s is %s: stop it first, or wait until its lease has run out", id, before.State)
	}
	if err != nil {
		return before, after, "", err
	}
	if m.OnForget != nil && !before.Gone {
		if lost, err = m.OnForget(ctx, tx, Life{before.ID, before.Epoch}); err != nil {
			return before, after, "", err
		}
	}
	before, after, err = m.set(ctx, tx, before, `forgotten = TRUE`)
	return before, after, lost, err
}

func (m *Member) find(ctx context.Context, tx *db.Tx, id string) (Node, error) {
	lock := ""
	if !m.Single() {
		lock = " FOR UPDATE" // it neither joins nor ends meanwhile
	}
	n, err := db.Maybe[Node](ctx, tx.Across("nodes belong to no workspace"), selectNodes+` WHERE id = $1`+lock, id)
	if err != nil {
		return Node{}, fmt.Errorf("find node %s: %w", id, err)
	}
	if n == nil {
		return Node{}, fault.Missing.New("there is no node %s", id)
	}
	m.describe(n)
	return *n, nil
}

func (m *Member) set(ctx context.Context, tx *db.Tx, n Node, what string) (before, after Node, err error) {
	all := tx.Across("nodes belong to no workspace")
	if _, err := db.Exec(ctx, all, `UPDATE nodes SET `+what+` WHERE id = $1`, n.ID); err != nil {
		return n, n, fmt.Errorf("change node %s: %w", n.ID, err)
	}
	after, err = m.find(ctx, tx, n.ID)
	return n, after, err
}

// Settings replaces the digest of what this node should have in common with the others.
func (m *Member) Settings(digest string) { m.settings.Store(&digest) }

// Differs reports whether live nodes have different releases or settings, as of the last renewal.
func (m *Member) Differs() bool { return m.differs.Load() }

// compare warns when live nodes begin to differ, and says when they agree again.
func (m *Member) compare(rows []row) {
	differs := false
	for _, r := range rows {
		differs = differs || r.Release != rows[0].Release || r.Settings != rows[0].Settings
	}
	if differs == m.differs.Swap(differs) {
		return
	}
	if differs {
		m.config.Log.Warn("the servers of this database differ in their release, catalog or providers: see admin node list")
	} else {
		m.config.Log.Info("the servers of this database agree in their release, catalog and providers")
	}
}

// Remaining returns how much of the lease is left, 0 without one.
func (m *Member) Remaining() time.Duration {
	if m.alone() {
		return 0
	}
	_, _, ends := m.lease.at(m.now())
	return max(0, ends-m.now())
}

// Counts returns how many lives this process has begun, and how many changes it has awaited from others.
func (m *Member) Counts() (joins, awaits int64) { return m.joins.Load(), m.awaits.Load() }

// Leaving reports whether an operator has asked this node to leave.
func (m *Member) Leaving() bool { return m.drained.Load() }
