// Package cluster makes several servers on one PostgreSQL database act as one. Each is a node with a lease of two
// seconds, which it renews every half second. A change is answered when every node with a live lease has it in force.
// What belongs to a node, such as the claim of a job, names its life, and passes to the others when that life is over.
//
// The database is the only authority, and no clock of it decides anything. A node counts its own lease from before it
// sent the renewal. The others end a node when its row has not changed for longer than a lease, by their own clocks,
// with a statement that fails if it has changed after all.
//
// On SQLite there is one node, which has no lease and no row: see Alone.
package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/store/db"
)

// A Life is one membership of a node, from a join to its end. On SQLite it is the zero Life.
type Life struct {
	Node  string // the id of the node's journal
	Epoch int64
}

// Over is a condition of SQL that is true when the life in two columns is over. On SQLite, where no node has a row,
// every life is over, so a query excepts its own: `WHERE node <> $1 AND `+cluster.Over("jobs.node", "jobs.epoch").
func Over(node, epoch string) string {
	return `NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = ` + node + ` AND nodes.epoch = ` + epoch + ` AND NOT nodes.ended)`
}

// ErrFenced reports that the life in whose name a transaction writes is over.
var ErrFenced = errors.New("this server's membership is over: the others have gone on without it")

// A Feed puts committed changes in force in this process.
type Feed interface {
	// Applied returns the version that is in force.
	Applied() db.Version
	// CatchUp puts everything in force that is committed.
	CatchUp(ctx context.Context) error
	// Fill puts the present state of everything in force, and forgets what was.
	Fill(ctx context.Context) error
	// Wake makes the feed look for changes now.
	Wake()
}

// A Config says who joins. All but DB and ID may be left out.
type Config struct {
	DB  *db.DB
	ID  string // of the journal in the data folder
	Log *slog.Logger

	Name, Address, Release, Settings string // what operators see

	Feed     Feed        // without one, every change counts as in force
	Lost     func(error) // the node may not serve until Regained; work that others may take over must end
	Regained func()      // it serves again, perhaps with a new life
	Ended    func(error) // the process must stop: another has its place
	Drain    func()      // an operator has asked the node to leave
}

// A Member is this process's membership.
type Member struct {
	config Config
	db     *db.DB
	table  table
	about  about
	now    func() time.Duration

	lease lease
	watch watch
	nodes atomic.Int64
	// OnForget gives back what is set aside for a life whose disk is gone, and says what may be lost. BeforeLeave gives
	// back what this node has, while it still has its lease. Both are set before Serve.
	OnForget    func(ctx context.Context, tx *db.Tx, life Life) (lost string, err error)
	BeforeLeave func(ctx context.Context) error

	settings atomic.Pointer[string]
	differs  atomic.Bool

	// Used by Join, and then by the loop that renews.
	newest Life       // the newest that the database is known to have of this process
	tried  clock.Time // when it last tried to join

	stopped atomic.Pointer[string] // why it will never serve again; nil while it may
	drained atomic.Bool            // an operator has asked it to leave

	admitted atomic.Bool // it has served once, so later lives serve too
	reaping  atomic.Bool
	left     atomic.Bool

	looking chan struct{} // a semaphore: one look at a time
	view    view          // the last look, under looking

	roles struct {
		sync.Mutex
		known map[string]answer
	}

	told struct { // by the loop tell
		life    Life // the last as which we serve
		serving bool
	}

	kicks   chan struct{} // a version was put in force: the next beat is due
	changed chan struct{} // the gate may have opened or closed
	stop    context.CancelFunc
	loops   sync.WaitGroup
	joins   atomic.Int64
	awaits  atomic.Int64
}

// Alone returns the membership of the only server of an embedded database.
func Alone(d *db.DB) *Member { return &Member{db: d} }

// Single reports whether there can be no other node.
func (m *Member) Single() bool { return m.db.Engine == db.SQLite }

// alone reports whether this member has no lease.
func (m *Member) alone() bool { return m.config.DB == nil }

// Life returns the present life. It changes when the node joins again after its lease was lost.
func (m *Member) Life() Life {
	m.lease.mu.Lock()
	defer m.lease.mu.Unlock()
	return m.lease.life
}

// Check returns nil while this node may serve, and the refusal of every request otherwise. It is called for each
// request: it reads a clock and an atomic value.
func (m *Member) Check() error {
	if m.alone() || int64(m.now()) < m.lease.until.Load() {
		return nil
	}
	return fault.Unavailable.New("not serving: %s", m.reason()).In(time.Second)
}

// reason says why the gate is closed.
func (m *Member) reason() string {
	if stopped := m.stopped.Load(); stopped != nil {
		return *stopped
	}
	now := m.now()
	m.lease.mu.Lock()
	defer m.lease.mu.Unlock()
	switch {
	case m.lease.over:
		return "this server's membership is over; it joins the others again"
	case now >= m.lease.ends:
		return "the lease on the database could not be renewed"
	default:
		return "changes that were made meanwhile are not in force yet"
	}
}

// Nodes returns how many nodes have a live lease, this one included, as of the last renewal. It is at least 1.
func (m *Member) Nodes() int { return int(max(1, m.nodes.Load())) }

// Fence fails with ErrFenced when the present life is over, and keeps it from being ended until the transaction ends.
// Call it first in a transaction that takes something for this node.
func (m *Member) Fence(ctx context.Context, tx *db.Tx) error { return m.FenceAs(ctx, tx, m.Life()) }

// FenceAs is Fence for a life that was read before.
func (m *Member) FenceAs(ctx context.Context, tx *db.Tx, life Life) error {
	if m.alone() {
		return nil
	}
	return fence(ctx, tx, life)
}

// An answer about a role holds for a life, until a time.
type answer struct {
	life  Life
	leads bool
	until time.Duration
}

// otherLeads is how long it is believed that another node has a role.
const otherLeads = time.Second

// Lead reports whether this node does the work of a role, and takes the role when nobody has it. The answer holds as
// long as the lease: a loop asks before each round.
func (m *Member) Lead(ctx context.Context, role string) (bool, error) {
	if m.alone() {
		return true, nil
	}
	life := m.Life()
	if !m.lease.held(life, m.now()) {
		return false, nil
	}
	m.roles.Lock()
	known, ok := m.roles.known[role]
	m.roles.Unlock()
	// Nobody takes a role from a life that is not over.
	if ok && known.life == life && (known.leads || m.now() < known.until) {
		return known.leads, nil
	}
	leads, err := m.table.lead(ctx, role, life)
	if err != nil {
		return false, err
	}
	m.roles.Lock()
	m.roles.known[role] = answer{life, leads, m.now() + otherLeads}
	m.roles.Unlock()
	return leads && m.lease.held(life, m.now()), nil
}
