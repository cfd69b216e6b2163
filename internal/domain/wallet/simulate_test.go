package wallet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "replay one seed of the money simulator")
	seedsFlag = flag.Uint64("seeds", 40, "how many seeds the money simulator runs")
)

// The simulator drives the real till, funds, journal and ledger through random interleavings of many requests, named
// holds, top-ups, postings, crashes, power losses, disk errors and lost commits, and compares the ledger with what the
// callers were told. Everything follows from the seed: -run Simulat -seed N replays a failure.
func TestSimulatedAccidentsNeverLoseOrDoubleACharge(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine == db.Postgres {
			t.Skip("wallets are shared there: TestSimulatedServersNeverLoseOrDoubleACharge")
		}
		seeds := *seedsFlag
		for seed := uint64(1); seed <= seeds; seed++ {
			if *seedFlag != 0 {
				seed = *seedFlag
			}
			s := newSimulation(t, d, seed)
			s.run(300)
			s.clear()
			if t.Failed() || *seedFlag != 0 {
				t.Logf("seed %d; replay with -run %s -seed %d", seed, t.Name(), seed)
				return
			}
		}
	})
}

// A simulation is a machine with a disk and a database, the process on it, and what its callers were told.
type simulation struct {
	t      *testing.T
	random *rand.Rand
	db     *db.DB
	spaces []tenant.ID
	known  map[tenant.ID]money.Nano // credited, as callers were told
	disk   *journaltest.Disk

	journal *journal.Journal
	funds   *funds.Funds
	poster  *Poster
	till    *till.Till

	tabs     []*request
	requests map[string]*request
	holds    []*simulatedHold
	changes  []db.Change // committed, and not published yet
	made     int
	failDisk int    // how many of the next disk operations fail
	failSync int    // how many of the next syncs fail, while writes work
	flaky    int    // for how many of the next disk operations each may fail
	late     func() // a commit that is still on its way
}

// A request is one request, with what its caller may rely on.
type request struct {
	tab  *till.Tab
	id   string
	ws   tenant.ID
	hold string // that pays; empty for the wallet
	used live.Usage

	sure   []money.Nano // every cost that was recorded; the last one counts
	synced int          // how many of those survive a power loss
	owed   bool         // the last usage may be recorded later
	dark   bool         // a power loss may have taken some of them
	past   bool         // its process has ended: its charge is final
}

var simulated = &live.Model{ID: "m", Provider: &live.Provider{Name: "p"}, Price: live.Price{Rates: live.Rates{Input: 1_000_000, CachedInput: 500_000, WrittenInput: 1_250_000, AudioInput: 1_000_000, Output: 4_000_000, Reasoning: 4_000_000}}}

func newSimulation(t *testing.T, d *db.DB, seed uint64) *simulation {
	t.Helper()
	s := &simulation{t: t, random: rand.New(rand.NewPCG(seed, 7)), db: d, disk: journaltest.NewDisk(), known: map[tenant.ID]money.Nano{}, requests: map[string]*request{}}
	for i := range 3 {
		ws := tenant.ID(fmt.Sprintf("ws_%d_%d", seed, i))
		if _, err := db.Exec(t.Context(), d.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, string(ws)); err != nil {
			t.Fatal(err)
		}
		s.spaces = append(s.spaces, ws)
	}
	s.boot()
	return s
}

// boot starts the process: recovery, then filling.
func (s *simulation) boot() {
	var err error
	if s.journal, err = journal.Open(s.disk); err != nil {
		s.t.Fatal(err)
	}
	s.journal.Limit = 2000
	s.funds = funds.New()
	s.poster = NewPoster(s.db, s.journal, s.funds, slog.New(slog.DiscardHandler))
	s.till = till.New(s.funds, s.journal, slog.New(slog.DiscardHandler), func(money.Nano) {}, func(money.Nano) {})
	if _, err := s.poster.Recover(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if err := s.poster.Fill(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.disk.Fail = s.fails
	s.tabs, s.changes = nil, nil
	for _, g := range s.requests {
		g.past = true
	}
	s.check()
}

func (s *simulation) fails(operation string, size int) (int, error) {
	if operation == "sync" && s.failSync > 0 {
		s.failSync--
		return 0, journaltest.ErrDisk
	}
	if s.flaky > 0 {
		if s.flaky--; s.random.IntN(3) == 0 {
			return s.random.IntN(max(1, size)), journaltest.ErrDisk
		}
	}
	if s.failDisk > 0 {
		s.failDisk--
		return s.random.IntN(max(1, size)), journaltest.ErrDisk
	}
	return size, nil
}

type step struct {
	weight int
	do     func(*simulation)
}

var steps = append([]step{
	{30, (*simulation).arrive},
	{30, (*simulation).deliver},
	{25, (*simulation).settle},
	{5, (*simulation).leave},
	{6, (*simulation).topUp},
	{15, (*simulation).drain},
	{6, (*simulation).drainAndLoseTheCommit},
	{3, (*simulation).fill},
	{3, func(s *simulation) { s.failSync = 1 + s.random.IntN(3) }},
	{3, (*simulation).arriveLate},
	{3, func(s *simulation) { s.flaky = 1 + s.random.IntN(20) }},
	{8, func(s *simulation) { s.sync() }},
	{8, (*simulation).collect},
	{4, func(s *simulation) { s.failDisk = 1 + s.random.IntN(4) }},
	{2, (*simulation).crash},
	{1, (*simulation).losePower},
}, holdSteps...)

func (s *simulation) run(count int) {
	total := 0
	for _, step := range steps {
		total += step.weight
	}
	for range count {
		pick := s.random.IntN(total)
		for _, step := range steps {
			if pick -= step.weight; pick < 0 {
				step.do(s)
				break
			}
		}
		s.invariants()
		if s.t.Failed() {
			return
		}
	}
	for _, h := range s.holds {
		if !h.doubt && s.random.IntN(2) == 0 {
			s.end(h)
		}
	}
	s.crash()
}

func (s *simulation) arrive() {
	ws := s.spaces[s.random.IntN(len(s.spaces))]
	s.made++
	g := &request{id: fmt.Sprintf("req_%s_%d", ws, s.made), ws: ws, hold: s.payerOf(ws)}
	charge := journal.Charge{Request: g.id, Workspace: ws, Route: "chat", Hold: g.hold}
	tab, err := s.till.Open(s.t.Context(), charge, money.Nano(s.random.IntN(100)))
	if err != nil {
		return // insufficient funds, or the journal fails: either way nothing happened
	}
	tab.SetModel(simulated, simulated.Price, false)
	g.tab = &tab
	s.tabs = append(s.tabs, g)
	s.requests[g.id] = g
}

// pick takes a running request.
func (s *simulation) pick() (*request, int) {
	if len(s.tabs) == 0 {
		return nil, 0
	}
	i := s.random.IntN(len(s.tabs))
	return s.tabs[i], i
}

func (g *request) use(random *rand.Rand) {
	g.used.Input = max(g.used.Input, int64(random.IntN(10)))
	g.used.Output += int64(random.IntN(15))
}

func (s *simulation) deliver() {
	g, _ := s.pick()
	if g == nil {
		return
	}
	g.use(s.random)
	if g.tab.RecordUsage(g.used) == nil {
		g.sure = append(g.sure, simulated.Price.Of(g.used))
	}
}

func (s *simulation) settle() {
	g, i := s.pick()
	if g == nil {
		return
	}
	g.use(s.random)
	if free := s.funds.Free(g.ws); g.hold != "" {
		defer func() {
			if now := s.funds.Free(g.ws); now < free {
				s.t.Errorf("a request of a named hold has taken %d of what is free in the wallet", free-now)
			}
		}()
	}
	err := g.tab.Settle(till.Settlement{Outcome: "finished", Usage: g.used})
	switch {
	case err == nil:
		g.sure = append(g.sure, simulated.Price.Of(g.used))
	case g.tab.Journaled():
		g.tab.Owe(till.Settlement{Outcome: "left", Usage: g.used, Counted: true})
		g.owed = true
	default:
		g.tab.Drop()
	}
	s.tabs = append(s.tabs[:i], s.tabs[i+1:]...)
}

// collect settles what is owed, which is held.
func (s *simulation) collect() {
	free := map[tenant.ID]money.Nano{}
	for _, ws := range s.spaces {
		free[ws] = s.funds.Free(ws)
	}
	s.till.Collect()
	for _, ws := range s.spaces {
		if now := s.funds.Free(ws); now < free[ws] {
			s.t.Errorf("%s: collecting debts has taken %d of what is free", ws, free[ws]-now)
		}
	}
}

// leave ends a request that has delivered nothing.
func (s *simulation) leave() {
	g, i := s.pick()
	if g == nil || g.tab.Journaled() {
		return
	}
	g.tab.Drop()
	s.tabs = append(s.tabs[:i], s.tabs[i+1:]...)
}

func (s *simulation) topUp() {
	ws, amount := s.spaces[s.random.IntN(len(s.spaces))], money.Nano(1+s.random.IntN(400))
	_, err := s.db.Tx(s.t.Context(), func(tx *db.Tx) error {
		_, _, err := fund(s.t.Context(), tx, ws, fmt.Sprintf("txn_%s_%d", ws, s.random.Uint64()), "", amount)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.known[ws] += amount
	if err := s.poster.Apply(s.t.Context(), db.Change{Workspace: ws}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *simulation) drain() {
	if s.poster.Drain(s.t.Context()) == nil {
		s.durable()
	}
}

func (s *simulation) sync() {
	if s.journal.Sync() == nil {
		s.durable()
	}
}

// durable records that what callers were told so far survives a power loss from here on.
func (s *simulation) durable() {
	for _, g := range s.requests {
		if !g.past {
			g.synced = len(g.sure)
		}
	}
}

// The three ends of a transaction whose answer is lost.
const (
	undone = iota
	committed
	committedLater
)

// drainAndLoseTheCommit posts over a connection that drops around COMMIT: the server may have seen it, may never see
// it, or may see it only after we have looked.
func (s *simulation) drainAndLoseTheCommit() {
	end := s.random.IntN(3)
	lost := errors.New("connection lost")
	s.poster.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) {
		s.arriveLate()
		if _, err := s.db.Tx(ctx, func(tx *db.Tx) error {
			if err := fn(tx); err != nil {
				return err
			}
			if end != committed {
				return lost
			}
			return nil
		}); err != nil && !errors.Is(err, lost) {
			return 0, err
		}
		if end == committedLater {
			s.late = func() { _, _ = s.db.Tx(s.t.Context(), fn) }
		}
		return 0, lost
	}
	_ = s.poster.Drain(s.t.Context())
	s.poster.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) {
		s.arriveLate() // the next statement waits for the locks of the one before
		return s.db.Tx(ctx, fn)
	}
}

// arriveLate commits a transaction that was still in flight.
func (s *simulation) arriveLate() {
	if late := s.late; late != nil {
		s.late = nil
		late()
	}
}

// fill does what a server does that has regained the database.
func (s *simulation) fill() {
	if err := s.poster.Fill(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	for _, h := range s.holds { // it has heard of every end
		if left := s.funds.Left(h.ws, h.id); h.ended && left != 0 {
			s.t.Errorf("%s has ended, and %d are free in it", h.id, left)
		}
	}
}

func (s *simulation) crash() {
	s.failDisk, s.failSync, s.flaky = 0, 0, 0
	s.arriveLate()
	s.disk = s.disk.Crash()
	s.boot()
}

func (s *simulation) losePower() {
	s.failDisk, s.failSync, s.flaky = 0, 0, 0
	s.arriveLate()
	for _, g := range s.requests {
		g.dark = g.dark || !g.past && g.synced < len(g.sure)
	}
	s.disk = s.disk.PowerLoss(s.random)
	s.boot()
}

// fits reports whether a request may have been charged a cost in the end, or have no row when there is false.
func (g *request) fits(cost money.Nano, there bool) bool {
	from := len(g.sure) - 1
	if g.dark {
		from = max(0, g.synced-1)
	}
	return !there && (len(g.sure) == 0 || g.dark && g.synced == 0) ||
		there && from >= 0 && slices.Contains(g.sure[from:], cost) ||
		there && g.owed && cost == simulated.Price.Of(g.used)
}

// check compares the ledger with what the callers know, right after a start.
func (s *simulation) check() {
	ctx := s.t.Context()
	type row struct {
		RequestID     string
		HoldID        string
		Cost, Charged money.Nano
	}
	reserved := s.checkHolds()
	for _, ws := range s.spaces {
		rows, err := db.Query[row](ctx, s.db.In(ws), `SELECT request_id, hold_id, cost, charged FROM usage_rows WHERE workspace_id = $1`)
		if err != nil {
			s.t.Fatal(err)
		}
		seen := map[string]money.Nano{}
		var spent money.Nano
		for _, r := range rows {
			seen[r.RequestID] = r.Cost
			spent += r.Charged
			if g := s.requests[r.RequestID]; g == nil {
				s.t.Errorf("%s is charged and was never served", r.RequestID)
			} else if g.hold != r.HoldID {
				s.t.Errorf("%s is charged to %q, and is of %q", r.RequestID, r.HoldID, g.hold)
			}
		}
		for id, g := range s.requests {
			if cost, there := seen[id]; strings.HasPrefix(id, "req_"+string(ws)+"_") && !g.fits(cost, there) {
				s.t.Errorf("%s: charged %v, cost %d; it was told %v, of which %d are synced (owed %v, power lost %v)", id, there, cost, g.sure, g.synced, g.owed, g.dark)
			}
		}
		b := s.funds.Balance(ws)
		if b.Balance != s.known[ws]-spent || b.Held != reserved[ws] || b.Spent != spent {
			s.t.Errorf("%s: memory has %+v after a start; the ledger has %d of %d, with %d in open holds", ws, b,
				s.known[ws]-spent, s.known[ws], reserved[ws])
		}
	}
	proof, err := NewStore(s.db, (*feed.Feed)(nil), s.funds).Verify(ctx)
	if err != nil || !proof.OK {
		s.t.Errorf("the ledger does not prove: %+v %v", proof, err)
	}
}

// clear empties the ledger for the next seed: Verify reads all of it.
func (s *simulation) clear() {
	for _, table := range []string{
		"usage_rows", "ledger_entries", "ledger_balances", "ledger_days", "named_holds", "usage_days", "usage_sums", "usage_closed",
	} {
		if _, err := db.Exec(s.t.Context(), s.db.Across("the simulation is over"), "DELETE FROM "+table); err != nil {
			s.t.Fatal(err)
		}
	}
}

// invariants hold at every moment.
func (s *simulation) invariants() {
	for _, ws := range s.spaces {
		b := s.funds.Balance(ws)
		if b.Balance < 0 || b.Held < 0 || b.Held > b.Balance || b.Balance+b.Spent != s.known[ws] {
			s.t.Errorf("%s: %+v of %d", ws, b, s.known[ws])
		}
	}
	s.holdInvariants()
}
