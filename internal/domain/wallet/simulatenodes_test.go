package wallet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// The simulator drives two to four servers on one PostgreSQL, each with the real till, funds, journal, poster and
// escrow, through random interleavings of requests, named holds, postings, recalls and accidents, one step at a time.
// It compares the ledger with what callers were told, and what servers have in memory with their slices. Steps follow
// from the seed:
// -run SimulatedServers -seed N replays a failure.
func TestSimulatedServersNeverLoseOrDoubleACharge(t *testing.T) {
	simulateServers(t, 6)
}

// The same with many seeds.
func TestDrillSimulatedServersNeverLoseOrDoubleACharge(t *testing.T) {
	if os.Getenv("SOVEREIGN_DRILLS") != "full" {
		t.Skip("only with SOVEREIGN_DRILLS=full")
	}
	simulateServers(t, 1000)
}

func simulateServers(t *testing.T, seeds uint64) {
	t.Helper()
	d := dbtest.Migrated(t, db.Postgres)
	var now *servers
	d.Listen(topicRecall, func() { now.heard() })
	first, last := uint64(1), seeds
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	start, refused, held := time.Now(), 0, 0
	for seed := first; seed <= last; seed++ {
		now = newServers(t, d, seed)
		now.run(150)
		now.clear()
		refused, held = refused+now.refused, held+now.held
		if t.Failed() {
			t.Logf("seed %d, after %v; replay with -run %s -seed %d", seed, now.trace, t.Name(), seed)
			return
		}
		if seed == last || seed%100 == 0 {
			t.Logf("%d seeds in %v: %d requests, of which %d were refused", seed-first+1, time.Since(start), held+refused, refused)
		}
	}
}

// servers are the servers of one database, and what their callers were told.
type servers struct {
	t      *testing.T
	random *rand.Rand
	db     *db.DB
	gone   *db.DB // a database that cannot be reached
	clock  time.Time
	trace  []string

	spaces   []tenant.ID
	credited map[tenant.ID]money.Nano
	all      []*server
	requests map[string]*served
	holds    []payer // that were opened; also those that have ended
	made     int
	owner    *server // whose step it is
	leave    func()  // ends the waiting of the caller
	upset    bool    // something in this step may delay a caller
	refused  int
	held     int
}

// A server is a process with its journal, its membership, and its connections to the database.
type server struct {
	*servers
	disk  *journaltest.Disk
	epoch int64

	journal *journal.Journal
	funds   *funds.Funds
	poster  *Poster
	till    *till.Till
	store   *Store

	up        bool // the process runs
	over      bool // its membership is over
	cut       bool // it does not reach the database
	forgotten bool
	lose      int // what becomes of the next COMMIT, whose answer is lost; 0 if it is not
	late      *lateCommit
	told      func(db.Outcome)
	tabs      []*served
	changes   []db.Change // that it has not heard of
}

// A served is one request, with what its caller was told.
type served struct {
	tab     *till.Tab
	id      string
	from    payer
	by      *server
	cost    money.Nano // that was settled, or recorded last
	charged money.Nano
	there   bool // it is in the journal, and so in the ledger in the end
	hold    money.Nano
}

// A lateCommit is a transaction whose COMMIT is on its way.
type lateCommit struct {
	posts   bool
	release chan bool // whether it arrives
	done    chan struct{}
}

var (
	errNoAnswer = errors.New("connection lost")
	errCut      = errors.New("no connection")
	errFenced   = errors.New("not a member any more")
)

func newServers(t *testing.T, d *db.DB, seed uint64) *servers {
	t.Helper()
	s := &servers{
		t: t, random: rand.New(rand.NewPCG(seed, 11)), db: d, clock: time.Unix(1e9, 0),
		credited: map[tenant.ID]money.Nano{}, requests: map[string]*served{},
	}
	for i := range 2 {
		s.spaces = append(s.spaces, tenant.ID(fmt.Sprintf("ws_n%d_%d", seed, i)))
	}
	dbtest.AddWorkspaces(t, d, s.spaces...)
	for range 2 + s.random.IntN(3) {
		v := &server{servers: s, disk: journaltest.NewDisk()}
		s.all = append(s.all, v)
		v.boot()
	}
	for range 2 {
		s.topUp()
	}
	return s
}

// boot starts a process on the journal: it joins, recovers and fills its memory.
func (v *server) boot() {
	for try := 0; ; try++ {
		err := v.tryBoot()
		if err == nil {
			break
		}
		if try == 3 {
			v.t.Fatalf("it does not start: %v", err)
		}
		v.disk = v.disk.Crash()
	}
	v.up, v.over, v.cut, v.changes = true, false, false, nil
}

func (v *server) tryBoot() (err error) {
	ctx := v.t.Context()
	if v.late != nil && !v.late.posts { // the joining waits for it
		v.arrive()
	}
	if v.journal, err = journal.Open(v.disk); err != nil {
		return err
	}
	v.journal.Limit = 2000
	v.lose = kept
	v.join()
	log := slog.New(slog.DiscardHandler)
	v.funds = funds.New()
	v.poster = NewPoster(v.db, v.journal, v.funds, log)
	v.till = till.New(v.funds, v.journal, log, func(money.Nano) {}, func(money.Nano) {})
	v.store = NewStore(v.db, nil, v.funds)
	e := v.poster.Escrow
	e.now = func() time.Time { return v.clock }
	e.Fence = v.fence
	e.onEnd = func(tx *db.Tx, told func(db.Outcome)) {
		if v.told = told; v.lose != committedLater {
			tx.OnEnd(told)
		}
	}
	v.connect(v.db)
	if _, err := v.poster.Recover(ctx); err != nil {
		return err
	}
	if err := v.poster.Fill(ctx); err != nil {
		return err
	}
	if v.random.IntN(3) == 0 {
		e.Prefetch(ctx, map[tenant.ID]money.Nano{v.spaces[0]: money.Nano(v.random.IntN(200_000))})
	}
	return nil
}

// join begins a life.
func (v *server) join() {
	v.epoch++
	v.exec(`INSERT INTO nodes (id, epoch, beat, applied, serving, draining, ended, forgotten, name, address, release, settings,
		joined_at, seen_at) VALUES ($1, $2, 1, 1, TRUE, FALSE, FALSE, FALSE, '', '', '', '', 1, 1)
		ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, ended = FALSE`, v.journal.ID, v.epoch)
}

func (s *servers) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := db.Exec(s.t.Context(), s.db.Across("test"), statement, args...); err != nil {
		s.t.Fatal(err)
	}
}

// fence is that of a member.
func (v *server) fence(ctx context.Context, tx *db.Tx) error {
	found, err := db.Maybe[int64](ctx, tx.Across("test"),
		`SELECT epoch FROM nodes WHERE id = $1 AND epoch = $2 AND NOT ended FOR KEY SHARE`, v.journal.ID, v.epoch)
	if err == nil && found == nil {
		err = errFenced
	}
	return err
}

// connect connects a server to a database.
func (v *server) connect(d *db.DB) {
	e, p := v.poster.Escrow, v.poster
	e.db, p.db, p.Holds.db = d, d, d
	e.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) {
		return v.transact(ctx, false, fn)
	}
	p.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) { return v.transact(ctx, true, fn) }
}

// transact runs a transaction, whose answer may be lost.
func (v *server) transact(ctx context.Context, posts bool, fn func(*db.Tx) error) (db.Version, error) {
	if v.cut {
		return 0, errCut
	}
	v.arrive() // it would wait for its locks
	v.arrivePostings()
	end := v.lose
	if v.told = nil; end == kept {
		return v.db.Tx(ctx, fn)
	}
	v.upset = true
	var err error
	switch end {
	case committedLater:
		err = v.sendLate(ctx, posts, fn)
	default:
		_, err = v.db.Tx(ctx, func(tx *db.Tx) error {
			if err := fn(tx); err != nil || end == committed {
				return err
			}
			return errNoAnswer
		})
	}
	v.lose = kept
	if err != nil && !errors.Is(err, errNoAnswer) {
		return 0, err
	}
	if v.told != nil {
		v.told(db.InDoubt)
	}
	return 0, errNoAnswer
}

// kept says that the answer to a COMMIT arrives.
const kept = -1

// sendLate runs a transaction up to its COMMIT, which arrives later.
func (v *server) sendLate(ctx context.Context, posts bool, fn func(*db.Tx) error) error {
	sent, failed := make(chan bool), make(chan error, 1)
	l := &lateCommit{posts: posts, release: make(chan bool), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		ran := false
		_, err := v.db.Tx(context.WithoutCancel(ctx), func(tx *db.Tx) error {
			if ran { // it was on its way too long, and is refused
				return errNoAnswer
			}
			if err := fn(tx); err != nil {
				return err
			}
			if !posts && v.told == nil { // what others wait for is not late
				return nil
			}
			ran = true
			sent <- true
			if !<-l.release {
				return errNoAnswer
			}
			return nil
		})
		if !ran {
			failed <- err
		}
	}()
	select {
	case <-sent:
		v.late = l
		return nil
	case err := <-failed:
		return err
	}
}

// arrive lets the COMMIT that is on its way arrive, or not.
func (v *server) arrive() {
	if l := v.late; l != nil {
		v.late = nil
		l.release <- v.random.IntN(4) > 0
		<-l.done
	}
}

// arrivePostings lets all postings arrive: others wait for their locks.
func (s *servers) arrivePostings() {
	for _, v := range s.all {
		if v.late != nil && v.late.posts {
			v.arrive()
		}
	}
}

func (s *servers) arriveAll() {
	for _, v := range s.all {
		v.arrive()
	}
}

// tx runs a transaction of somebody whose connection works.
func (s *servers) tx(fn func(*db.Tx) error) error {
	s.arrivePostings()
	_, err := s.db.Tx(s.t.Context(), fn)
	return err
}

// heard is what servers do when something is recalled. Those that do not answer are found dead, unless the caller
// leaves.
func (s *servers) heard() {
	for _, v := range s.all {
		switch {
		case v.over:
		case v.up && !v.cut:
			for range 5 { // as its loop does
				if v.poster.Escrow.answerRecalls(s.t.Context(), func(payer) bool { return true }) == nil {
					break
				}
			}
		case s.leave != nil && s.random.IntN(3) == 0:
			s.upset = true
			s.leave()
		default:
			v.endLife()
		}
	}
}

func (v *server) endLife() {
	if v.late != nil && !v.late.posts { // the end waits for it
		v.arrive()
	}
	v.exec(`UPDATE nodes SET ended = TRUE WHERE id = $1`, v.journal.ID)
	v.over = true
}

type serverStep struct {
	name   string
	weight int
	do     func(*server)
}

var serverSteps = []serverStep{
	{"request", 60, (*server).request},
	{"record", 8, (*server).record},
	{"settle", 35, (*server).settle},
	{"drop", 6, (*server).drop},
	{"post", 12, (*server).post},
	{"look", 14, (*server).looks},
	{"sweep", 5, (*server).sweeps},
	{"top up", 4, func(v *server) { v.topUp() }},
	{"take back", 3, (*server).takeBack},
	{"open", 5, (*server).openHold},
	{"end", 3, (*server).endHold},
	{"publish", 8, (*server).publish},
	{"lose", 9, func(v *server) { v.lose = v.random.IntN(3) }},
	{"arrive", 4, func(v *server) { v.arrive() }},
	{"cut", 3, (*server).cutOff},
	{"heal", 10, (*server).heal},
	{"end life", 2, func(v *server) { v.endLife() }},
	{"rejoin", 20, (*server).rejoin},
	{"kill", 2, (*server).kill},
	{"boot", 16, (*server).restart},
	{"leave", 2, (*server).leaves},
	{"forget", 1, (*server).forget},
	{"fill", 3, (*server).fill},
}

func (s *servers) run(count int) {
	total := 0
	for _, step := range serverSteps {
		total += step.weight
	}
	for i := range count {
		pick := s.random.IntN(total)
		for _, step := range serverSteps {
			if pick -= step.weight; pick < 0 {
				v := s.draw()
				s.trace = append(s.trace, fmt.Sprint(step.name, " ", v))
				s.owner, s.upset = s.all[v], false
				step.do(s.owner)
				break
			}
		}
		s.clock = s.clock.Add(time.Duration(s.random.IntN(1500)) * time.Millisecond)
		s.invariants(i%10 == 0)
		if i%50 == 49 {
			s.prove()
		}
		if s.t.Failed() {
			s.arriveAll()
			return
		}
	}
	s.finish()
}

// draw draws a server. Mostly it is one that serves.
func (s *servers) draw() int {
	v := s.random.IntN(len(s.all))
	for range 3 {
		if s.all[v].serves() {
			break
		}
		v = s.random.IntN(len(s.all))
	}
	return v
}

// serves reports whether a server accepts requests.
func (v *server) serves() bool { return v.up && !v.over }

func (v *server) request() {
	if !v.serves() {
		return
	}
	from := payer{ws: v.spaces[v.random.IntN(len(v.spaces))]}
	if len(v.holds) > 0 && v.random.IntN(2) == 0 { // mostly of one that is open
		from = v.holds[max(v.random.IntN(len(v.holds)), v.random.IntN(len(v.holds)))]
	}
	before, open := v.free(from)
	need := money.Nano(v.random.IntN(60))
	switch v.random.IntN(6) {
	case 0:
		need = max(0, before)
	case 1:
		need = max(0, before) + 1
	case 2:
		need = money.Nano(v.random.IntN(int(max(0, before)) + 2))
	}
	v.made++
	g := &served{id: fmt.Sprintf("req_%s_%d", from.ws, v.made), from: from, by: v, hold: need}
	ctx, cancel := context.WithCancel(v.t.Context())
	defer cancel()
	v.leave = cancel
	tab, err := v.till.Open(ctx, journal.Charge{Request: g.id, Workspace: from.ws, Route: "chat", Hold: from.hold}, need)
	v.leave = nil
	var short *till.InsufficientFunds
	switch {
	case err == nil:
		if open && need > before {
			v.t.Errorf("%d are held, and %d were free in %v", need, before, from)
		}
		tab.SetModel(simulated, simulated.Price, false)
		g.tab = &tab
		v.tabs, v.requests[g.id] = append(v.tabs, g), g
		v.held++
	case errors.As(err, &short):
		v.refused++
		after, _ := v.free(from)
		if open && need <= min(before, after) {
			v.t.Errorf("%d are refused (%+v), and %d are free in %v (%d before)", need, short, after, from, before)
			v.show(from)
		}
	case !v.upset && !v.cut:
		v.t.Errorf("neither held nor refused: %v", err)
	}
}

func (v *server) pick() (*served, int) {
	if len(v.tabs) == 0 {
		return nil, 0
	}
	i := v.random.IntN(len(v.tabs))
	return v.tabs[i], i
}

func (v *server) remove(i int) { v.tabs = append(v.tabs[:i:i], v.tabs[i+1:]...) }

// record records what a request has used so far.
func (v *server) record() {
	g, _ := v.pick()
	if g == nil {
		return
	}
	g.cost += money.Nano(v.random.IntN(int(g.hold)/2 + 2))
	if err := g.tab.RecordUsage(inputOf(g.cost)); err != nil {
		v.t.Fatal(err)
	}
	g.there, g.charged = true, min(g.cost, g.hold)
}

func (v *server) settle() {
	g, i := v.pick()
	if g == nil {
		return
	}
	switch v.random.IntN(4) {
	case 0:
		g.cost = max(g.cost, g.hold+money.Nano(v.random.IntN(80)))
	default:
		g.cost = max(g.cost, money.Nano(v.random.IntN(int(g.hold)+1)))
	}
	before, open := v.free(g.from)
	over := v.over // then it may use what it has taken, which others cannot
	if err := g.tab.Settle(till.Settlement{Outcome: "finished", Usage: inputOf(g.cost)}); err != nil {
		v.t.Fatal(err)
	}
	g.there, g.charged = true, g.tab.Spent()
	most := min(g.cost, g.hold+max(0, before))
	if open && !over && g.charged > most || g.charged < min(g.cost, g.hold) {
		v.t.Errorf("%d are charged of %d: held were %d, free %d", g.charged, g.cost, g.hold, before)
	}
	if calm := !v.upset && !v.cut && !v.over && open; calm && g.charged < most {
		if after, _ := v.free(g.from); after > 0 {
			v.t.Errorf("%d are charged of %d: held were %d, free %d, and %d after", g.charged, g.cost, g.hold, before, after)
		}
	}
	v.remove(i)
}

func (v *server) drop() {
	if g, i := v.pick(); g != nil {
		g.tab.Drop()
		v.till.Collect()
		v.remove(i)
	}
}

func (v *server) post() {
	if v.up {
		if err := v.poster.Drain(v.t.Context()); err != nil && !v.upset && !v.cut {
			v.t.Error(err)
		}
	}
}

// looks moves what is low, or has become free and is scarce.
func (v *server) looks() {
	if !v.up {
		return
	}
	for range 1 + v.random.IntN(6) { // what cannot be moved is signalled again
		select {
		case p := <-v.funds.Signals():
			_ = v.poster.Escrow.look(v.t.Context(), payer{p.Workspace, p.Hold})
		default:
			return
		}
	}
}

func (v *server) sweeps() {
	if v.clock = v.clock.Add(sweepEvery); v.up {
		_ = v.poster.Escrow.Sweep(v.t.Context())
	}
}

func (s *servers) topUp() {
	ws, amount := s.spaces[s.random.IntN(len(s.spaces))], money.Nano(1+s.random.IntN(400))
	if s.random.IntN(3) == 0 {
		amount *= 30
	}
	err := s.tx(func(tx *db.Tx) error {
		before, after, err := fund(s.t.Context(), tx, ws, fmt.Sprintf("txn_%s_%d", ws, s.random.Uint64()), "", amount)
		if err == nil && after-before > amount {
			s.t.Error("a top-up adds more than it is")
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (v *server) takeBack() {
	if !v.serves() || v.cut {
		return
	}
	v.clock = v.clock.Add(2 * time.Second)
	ws := v.spaces[v.random.IntN(len(v.spaces))]
	amount := money.Nano(1 + v.random.IntN(200))
	before, _ := v.free(payer{ws: ws})
	owed := v.owed(ws)
	v.made++
	err := v.tx(func(tx *db.Tx) error {
		release, err := v.store.TakeBack(v.t.Context(), tx, ws, tenant.Operator, fmt.Sprint("pay_", v.made), "", amount)
		release()
		return err
	})
	after, _ := v.free(payer{ws: ws})
	switch debt := v.owed(ws) - owed; {
	case err != nil:
		if !v.upset {
			v.t.Errorf("%d cannot be taken back: %v", amount, err)
		}
	case debt > 0 && after > 0, debt < 0, debt > amount, amount-debt > max(0, before):
		v.t.Errorf("%d of %d are owed, with %d free before and %d after", debt, amount, before, after)
		v.show(payer{ws: ws})
	}
}

func (s *servers) owed(ws tenant.ID) money.Nano {
	owed, err := NewStore(s.db, nil, funds.New()).Owed(s.t.Context(), ws)
	if err != nil {
		s.t.Fatal(err)
	}
	return owed
}

func (v *server) openHold() {
	if !v.serves() || v.cut {
		return
	}
	ws := v.spaces[v.random.IntN(len(v.spaces))]
	before, _ := v.free(payer{ws: ws})
	amount := money.Nano(1 + v.random.IntN(300))
	if v.random.IntN(3) == 0 {
		amount = max(1, before+money.Nano(v.random.IntN(2)))
	}
	v.made++
	p := payer{ws, fmt.Sprintf("rs_%s_%d", ws, v.made)}
	var end error
	if v.random.IntN(4) == 0 {
		end = errUndone
	}
	err := v.tx(func(tx *db.Tx) error {
		if err := v.poster.Holds.Open(v.t.Context(), tx, ws, p.hold, "reward", amount); err != nil {
			return err
		}
		return end
	})
	after, _ := v.free(payer{ws: ws})
	switch opened := err == nil || errors.Is(err, errUndone); {
	case opened && amount > before:
		v.t.Errorf("a hold of %d is opened, and %d were free", amount, before)
	case !opened && !v.upset && amount <= min(before, after):
		v.t.Errorf("a hold of %d is refused, and %d are free: %v", amount, after, err)
	case err == nil:
		v.holds = append(v.holds, p)
	}
}

func (v *server) endHold() {
	if len(v.holds) == 0 || !v.serves() || v.cut {
		return
	}
	p := v.holds[v.random.IntN(len(v.holds))]
	if err := v.tx(func(tx *db.Tx) error { return v.poster.Holds.End(v.t.Context(), tx, p.ws, p.hold) }); err != nil {
		v.t.Fatal(err)
	}
	for _, one := range v.all {
		one.changes = append(one.changes, db.Change{Kind: changedHold, Workspace: p.ws, Subject: p.hold})
	}
}

// publish does what the feed does.
func (v *server) publish() {
	if !v.up || v.cut {
		return
	}
	for _, c := range v.changes {
		if err := v.poster.Apply(v.t.Context(), c); err != nil {
			v.t.Fatal(err)
		}
	}
	v.changes = nil
}

func (v *server) cutOff() {
	if v.up {
		v.cut = true
		v.connect(v.away())
	}
}

func (v *server) heal() {
	if v.up && v.cut {
		v.cut = false
		v.connect(v.db)
	}
}

// away returns a database that does not answer.
func (s *servers) away() *db.DB {
	if s.gone == nil {
		var err error
		if s.gone, err = db.Open(s.t.Context(), s.t.TempDir(), dbtest.Postgres(s.t)); err == nil {
			err = s.gone.Close()
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return s.gone
}

// rejoin begins a new life of a process whose last one is over.
func (v *server) rejoin() {
	if !v.up || v.cut || !v.over || v.forgotten {
		return
	}
	v.arrive()
	v.join()
	if err := v.poster.Fill(v.t.Context()); err != nil {
		if !v.upset {
			v.t.Error(err)
		}
		v.endLife()
		return
	}
	v.over = false
	v.publish()
}

// kill ends a process. What it recorded of its requests is charged by the next one.
func (v *server) kill() {
	if v.up {
		v.up, v.cut, v.tabs, v.lose = false, false, nil, kept
		v.disk = v.disk.Crash()
	}
}

func (v *server) restart() {
	if !v.up && !v.forgotten {
		v.boot()
	}
}

// leaves ends a process in order.
func (v *server) leaves() {
	if !v.serves() || v.cut {
		return
	}
	v.leaveNow()
	v.endLife()
	v.kill()
}

func (v *server) leaveNow() {
	v.lose = kept
	for len(v.tabs) > 0 {
		v.settle()
	}
	v.till.Collect()
	err := v.poster.Drain(v.t.Context())
	if left := v.poster.Escrow.Leave(v.t.Context()); !v.forgotten {
		err = errors.Join(err, left)
	}
	if err != nil {
		v.t.Error(err)
	}
	if left := v.sliced(v.journal.ID); left != 0 && !v.forgotten {
		v.t.Errorf("a server has left with %d", left)
	}
}

// sliced returns what a server has taken, or all servers.
func (s *servers) sliced(node string) money.Nano {
	sum, err := db.One[money.Nano](s.t.Context(), s.db.Across("test"), `
		SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM wallet_slices WHERE node = $1 OR $1 = ''`, node)
	if err != nil {
		s.t.Fatal(err)
	}
	return sum
}

// forget declares a server lost. Its process may still run, and not know.
func (v *server) forget() {
	if !v.over || v.forgotten || v.random.IntN(2) == 0 {
		return
	}
	v.arrive()
	has := v.sliced(v.journal.ID)
	err := v.tx(func(tx *db.Tx) error {
		most, err := Forget(v.t.Context(), tx, tenant.Operator, v.journal.ID)
		if err == nil && most != has {
			v.t.Errorf("at most %d are lost, and %d were taken", most, has)
		}
		return err
	})
	if err != nil {
		v.t.Fatal(err)
	}
	v.forgotten = true
	next := &server{servers: v.servers, disk: journaltest.NewDisk()} // in its place
	v.all = append(v.all, next)
	next.boot()
}

func (v *server) fill() {
	if v.up {
		if err := v.poster.Fill(v.t.Context()); err != nil && !v.upset && !v.cut {
			v.t.Error(err)
		}
	}
}
