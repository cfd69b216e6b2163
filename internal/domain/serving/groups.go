package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/plane/engines"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// A Member is this node among those that share the database.
type Member interface {
	// Single reports whether there can be no other node.
	Single() bool
	Life() cluster.Life
	// Fence fails when the present life is over.
	Fence(ctx context.Context, tx *db.Tx) error
	// Lead reports whether this node does the work of a role.
	Lead(ctx context.Context, role string) (bool, error)
}

// role is the work of the node that starts, watches and ends engines for all nodes.
const role = "engines"

// GroupsConfig is what Groups needs.
type GroupsConfig struct {
	DB       *db.DB
	Member   Member // nil for the only server
	Registry *engines.Registry
	Log      *slog.Logger
}

// Groups gives the engines of groups to the data planes of all nodes, and says how all of them use these. One node
// leads: it says which engines there are. The others have it in force a moment later, and tell it how they use them.
//
// The only server of an embedded database has no rows of this: its registry is all there is.
type Groups struct {
	GroupsConfig
	machine string
	single  bool
	woken   chan struct{} // something is to be followed or told

	mu      sync.Mutex
	rows    map[string]group          // as the leader has last read or written them
	uses    map[string]map[string]use // of the live nodes, by group and node; of the leader
	nodes   []string                  // the other nodes that serve; of the leader
	applied map[string]applied        // what this node follows, by group
	told    map[string]use            // what this node has last told
}

// A group is a row of engine_groups.
type group struct {
	Name, Machine, Replicas, Failure string
	RetryIn, Revision                int64
}

// A use is a row of engine_uses.
type use struct {
	Name, Node           string
	Epoch, Revision      int64
	Outstanding, Waiting int64
	LastUsed             clock.Time
	Busy                 string
}

// applied is what of a group is in force.
type applied struct {
	group    *engines.Group
	revision int64
}

// NewGroups returns the groups of a registry.
func NewGroups(c GroupsConfig) *Groups {
	g := &Groups{
		GroupsConfig: c, single: c.Member == nil || c.Member.Single(), woken: make(chan struct{}, 1), rows: map[string]group{},
		uses: map[string]map[string]use{}, applied: map[string]applied{}, told: map[string]use{},
	}
	if !g.single {
		g.machine = loopback()
		g.DB.Listen(topicGroups, g.look)
	}
	return g
}

// loopback names what the addresses of the loopback lead to from this process: its machine, and the network there.
func loopback() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, failed := os.Readlink("/proc/self/ns/net")
	if err != nil || failed != nil {
		name, _ := os.Hostname()
		return name
	}
	return strings.TrimSpace(string(boot)) + " " + network
}

// Topics of the database: groups have changed, and requests wait for engines.
const (
	topicGroups = "engine groups"
	topicUses   = "engine uses"
)

// OnWaiting calls f when requests of some node wait for engines.
func (g *Groups) OnWaiting(f func()) {
	if !g.single {
		g.DB.Listen(topicUses, f)
	}
}

// look has the loop follow and tell. It does not block.
func (g *Groups) look() {
	select {
	case g.woken <- struct{}{}:
	default: // it is about to
	}
}

// Wake says that a request of this node waits for an engine. It does not block.
func (g *Groups) Wake() { g.look() }

// A Term is the life in which this node leads the engines.
type Term struct{ life cluster.Life }

// Leads reports whether this node leads the engines, for which term.
func (g *Groups) Leads(ctx context.Context) (Term, bool, error) {
	if g.single {
		return Term{}, true, nil
	}
	t := Term{g.Member.Life()}
	leads, err := g.Member.Lead(ctx, role)
	return t, leads && g.Member.Life() == t.life, err
}

// Fence fails when another node may lead since a term began, and keeps that so until the transaction ends.
func (g *Groups) Fence(ctx context.Context, tx *db.Tx, t Term) error {
	if g.single {
		return nil
	}
	if err := g.Member.Fence(ctx, tx); err != nil {
		return err
	}
	if g.Member.Life() != t.life {
		return cluster.ErrFenced
	}
	return nil
}

// Node names this node's journal; empty for the only server.
func (g *Groups) Node() string {
	if g.single {
		return ""
	}
	return g.Member.Life().Node
}

const ofAll = "engines serve all workspaces"

const (
	groupColumns = `name, machine, replicas, failure, retry_in, revision FROM engine_groups`
	useColumns   = `name, node, epoch, revision, outstanding, waiting, last_used, busy FROM engine_uses`
)

// Refresh reads what other nodes tell of their use. The leader calls it before each look at its engines.
func (g *Groups) Refresh(ctx context.Context) error {
	if g.single {
		return nil
	}
	rows, err := db.Query[group](ctx, g.DB.Across(ofAll), `SELECT `+groupColumns)
	if err != nil {
		return fmt.Errorf("read the groups of engines: %w", err)
	}
	live, err := db.Query[string](ctx, g.DB.Across(ofAll),
		`SELECT id FROM nodes WHERE serving AND NOT ended AND id <> $1`, g.Node())
	if err != nil {
		return fmt.Errorf("read the nodes that serve: %w", err)
	}
	uses, err := db.Query[use](ctx, g.DB.Across(ofAll), `SELECT `+useColumns+` WHERE EXISTS (SELECT 1 FROM nodes n
		WHERE n.id = engine_uses.node AND n.epoch = engine_uses.epoch AND n.serving AND NOT n.ended) AND node <> $1`, g.Node())
	if err != nil {
		return fmt.Errorf("read the uses of engines: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes, g.rows, g.uses = live, map[string]group{}, map[string]map[string]use{}
	for _, r := range rows {
		g.rows[r.Name] = r
		g.uses[r.Name] = map[string]use{}
	}
	for _, u := range uses {
		if g.uses[u.Name] != nil {
			g.uses[u.Name][u.Node] = u
		}
	}
	return nil
}

// Use returns how the requests of all nodes use a group, those of other nodes as they last told.
func (g *Groups) Use(name string) (all engines.Use) {
	if own := g.Registry.Find(name); own != nil {
		all = own.Use()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range g.uses[name] {
		all.Outstanding += int(u.Outstanding)
		all.Waiting += int(u.Waiting)
		all.LastUsed = max(all.LastUsed, u.LastUsed)
	}
	return all
}

// Busy returns how many requests of all nodes a replica answers. It is at least 1 while some node may send it another.
func (g *Groups) Busy(name, replica string) (n int) {
	if own := g.Registry.Find(name); own != nil {
		n = own.Busy(replica)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	row, known := g.rows[name]
	if !known {
		return n
	}
	if slices.ContainsFunc(row.engines(), func(r engines.Replica) bool { return r.ID == replica }) {
		n++ // it was not taken out of service yet
	}
	for _, node := range g.nodes {
		u, told := g.uses[name][node]
		if !told || u.Revision != row.Revision {
			n++
			continue
		}
		busy := map[string]int{}
		_ = json.Unmarshal([]byte(u.Busy), &busy) // ours
		n += busy[replica]
	}
	return n
}

// engines returns the replicas of a row.
func (r *group) engines() (all []engines.Replica) {
	_ = json.Unmarshal([]byte(r.Replicas), &all) // ours
	return all
}

// Set says which replicas of a group get requests, at every node. Failure is why requests are refused where there are
// none; nil, if there may be one soon. The leader calls it.
func (g *Groups) Set(ctx context.Context, name string, replicas []engines.Replica, failure error) error {
	if own := g.Registry.Find(name); own != nil {
		own.Set(replicas)
		if failure != nil {
			own.Fail(failure)
		}
	}
	if g.single {
		return nil
	}
	if replicas == nil {
		replicas = []engines.Replica{}
	}
	text, err := json.Marshal(replicas)
	if err != nil {
		return fmt.Errorf("write the engines of a group: %w", err)
	}
	next := group{Name: name, Machine: g.machine, Replicas: string(text)}
	if failure != nil {
		told := fault.From(engines.Refusal(failure))
		next.Failure, next.RetryIn = told.Message, told.RetryAfter.Microseconds()
	}
	g.mu.Lock()
	before := g.rows[name]
	g.mu.Unlock()
	next.Revision = before.Revision
	if next == before {
		return nil
	}
	next.Revision++
	return g.store(ctx, &before, &next)
}

// store stores a group as it is now, unless another node has changed it.
func (g *Groups) store(ctx context.Context, before, next *group) error {
	_, err := g.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := db.Exec(ctx, tx.Across(ofAll), `
			INSERT INTO engine_groups (name, machine, replicas, failure, retry_in, revision) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (name) DO UPDATE SET machine = excluded.machine, replicas = excluded.replicas,
				failure = excluded.failure, retry_in = excluded.retry_in, revision = excluded.revision
			WHERE engine_groups.revision = $7`,
			next.Name, next.Machine, next.Replicas, next.Failure, next.RetryIn, next.Revision, before.Revision)
		if err == nil && n == 0 {
			return fault.Conflict("another server has changed the engines of %s: it is looked at again", next.Name)
		}
		tx.Signal(topicGroups)
		return err
	})
	if err != nil {
		return fmt.Errorf("publish the engines of %s: %w", next.Name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rows[next.Name] = *next
	return nil
}

// Drop forgets a group that is no more.
func (g *Groups) Drop(ctx context.Context, name string) error {
	g.mu.Lock()
	_, known := g.rows[name]
	delete(g.rows, name)
	g.mu.Unlock()
	if g.single || !known {
		return nil
	}
	_, err := g.DB.Tx(ctx, func(tx *db.Tx) error {
		_, err := db.Exec(ctx, tx.Across(ofAll), `DELETE FROM engine_groups WHERE name = $1`, name)
		_, failed := db.Exec(ctx, tx.Across(ofAll), `DELETE FROM engine_uses WHERE name = $1`, name)
		return errors.Join(err, failed)
	})
	if err != nil {
		return fmt.Errorf("forget the engines of %s: %w", name, err)
	}
	return nil
}

// tellEvery is the interval between two looks at what the leader says, when nothing asks for one before, and how old
// what a node tells of its use may be.
const tellEvery = time.Second

// Run follows the leader and tells it how this node uses the engines, until ctx ends.
func (g *Groups) Run(ctx context.Context, serves func() error) {
	if g.single {
		return
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-g.woken:
		}
		if serves() != nil {
			continue
		}
		if err := g.Follow(ctx); err != nil && ctx.Err() == nil {
			g.Log.Warn("cannot learn which engines there are; it is tried again", "err", err)
		}
	}
}

// Follow puts in force what the leader says, and tells it how this node uses it.
func (g *Groups) Follow(ctx context.Context) error {
	if _, leads, err := g.Leads(ctx); err != nil || leads {
		g.mu.Lock()
		clear(g.applied) // what is followed next may be another's
		clear(g.told)
		g.mu.Unlock()
		return err
	}
	rows, err := db.Query[group](ctx, g.DB.Across(ofAll), `SELECT `+groupColumns)
	if err != nil {
		return fmt.Errorf("read the groups of engines: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	there := map[string]bool{}
	var changed []use
	waits := false
	for i := range rows {
		r := &rows[i]
		there[r.Name] = true
		own := g.Registry.Find(r.Name)
		g.apply(own, r)
		now := g.useOf(own, r)
		waits = waits || now.Waiting > g.told[r.Name].Waiting
		if g.told[r.Name] != now {
			changed = append(changed, now)
		}
	}
	gone := func(name string) bool { return !there[name] }
	maps.DeleteFunc(g.applied, func(name string, _ applied) bool { return gone(name) })
	maps.DeleteFunc(g.told, func(name string, _ use) bool { return gone(name) })
	if len(changed) == 0 {
		return nil
	}
	return g.tell(ctx, changed, waits)
}

// apply puts the leader's row of a group in force, unless it is already. It repeats a refusal each time, because
// publishing the model clears it.
func (g *Groups) apply(own *engines.Group, r *group) {
	if own == nil {
		return
	}
	all := r.engines()
	failure := error(nil)
	if r.Failure != "" {
		failure = fault.Unavailable.New("%s", r.Failure).In(time.Duration(r.RetryIn) * time.Microsecond)
	}
	if r.Machine != g.machine && slices.ContainsFunc(all, onLoopback) {
		all, failure = nil, errElsewhere()
	}
	if g.applied[r.Name] != (applied{own, r.Revision}) {
		own.Set(all)
		own.Fail(failure)
	} else if failure != nil {
		own.Fail(failure)
	}
	g.applied[r.Name] = applied{own, r.Revision}
}

// onLoopback reports whether only the machine of a replica reaches it.
func onLoopback(r engines.Replica) bool {
	at, err := url.Parse(r.BaseURL)
	if err != nil {
		return true
	}
	ip, err := netip.ParseAddr(at.Hostname())
	return at.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

func errElsewhere() error {
	return fault.Unavailable.New("the engine of this model is a process of another server's machine, which alone reaches it " +
		"(serving.backend)").In(time.Minute)
}

// useOf returns how this node uses a group now.
func (g *Groups) useOf(own *engines.Group, r *group) use {
	life := g.Member.Life()
	u := use{Name: r.Name, Node: life.Node, Epoch: life.Epoch, Revision: r.Revision, Busy: "{}"}
	if own == nil {
		return u
	}
	now := own.Use()
	u.Outstanding, u.Waiting, u.LastUsed = int64(now.Outstanding), int64(now.Waiting), now.LastUsed
	if text, err := json.Marshal(own.BusyAll(), json.Deterministic(true)); err == nil {
		u.Busy = string(text)
	}
	return u
}

// tell stores how this node uses groups, and wakes the leader when requests wait.
func (g *Groups) tell(ctx context.Context, changed []use, waits bool) error {
	rows := make([][]any, len(changed))
	for i, u := range changed {
		rows[i] = []any{u.Name, u.Node, u.Epoch, u.Revision, u.Outstanding, u.Waiting, u.LastUsed, u.Busy}
	}
	_, err := g.DB.Tx(ctx, func(tx *db.Tx) error {
		if waits {
			tx.Signal(topicUses)
		}
		return db.Upsert(ctx, tx.Across(ofAll), "engine_uses",
			[]string{"name", "node", "epoch", "revision", "outstanding", "waiting", "last_used", "busy"}, 2, rows)
	})
	if err != nil {
		return fmt.Errorf("tell the use of engines: %w", err)
	}
	for _, u := range changed {
		g.told[u.Name] = u
	}
	return nil
}
