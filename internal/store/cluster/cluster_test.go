package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	neturl "net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A board is a feed that puts changes in force when it is told to, or all at once.
type board struct {
	db *db.DB

	mu       sync.Mutex
	shown    db.Version
	held     bool // CatchUp and Wake do nothing
	fills    int
	advanced func()
	once     func()  // called by the next CatchUp, before it reads
	fails    []error // of the next calls of CatchUp
}

func (b *board) Applied() db.Version {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shown
}

func (b *board) CatchUp(ctx context.Context) error {
	b.mu.Lock()
	once := b.once
	b.once = nil
	b.mu.Unlock()
	if once != nil {
		once()
	}
	b.mu.Lock()
	if len(b.fails) > 0 {
		err := b.fails[0]
		if b.fails = b.fails[1:]; err != nil {
			b.mu.Unlock()
			return err
		}
	}
	b.mu.Unlock()
	head, err := db.One[db.Version](ctx, b.db.Across("test"), `SELECT version FROM feed_head WHERE id = 1`)
	b.mu.Lock()
	if !b.held && err == nil {
		b.shown = head
	}
	advanced := b.advanced
	b.mu.Unlock()
	if advanced != nil {
		advanced()
	}
	return err
}

func (b *board) Fill(ctx context.Context) error {
	b.mu.Lock()
	b.fills++
	b.mu.Unlock()
	return b.CatchUp(ctx)
}

func (b *board) Wake() { go func() { _ = b.CatchUp(context.Background()) }() }

func (b *board) hold(held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = held
}

// A server is a member with its board.
type server struct {
	*Member
	board *board
	ended chan error
	asked chan struct{} // to leave

	mu   sync.Mutex
	told []string
}

func (s *server) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, what)
}

func join(t *testing.T, d *db.DB, id string) *server {
	t.Helper()
	s := &server{board: &board{db: d}, ended: make(chan error, 1), asked: make(chan struct{}, 1)}
	var err error
	s.Member, err = Join(t.Context(), Config{
		DB: d, ID: id, Feed: s.board, Lost: func(error) { s.note("lost") }, Regained: func() { s.note("regained") },
		Ended: func(err error) { s.ended <- err }, Drain: func() { s.asked <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.board.mu.Lock()
	s.board.advanced = s.Applied
	s.board.mu.Unlock()
	t.Cleanup(s.Leave)
	return s
}

func serving(t *testing.T, d *db.DB, id string) *server {
	t.Helper()
	s := join(t, d, id)
	if err := s.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// pause stops a member as SIGSTOP does: its clock runs on.
func (s *server) pause() {
	s.stop()
	s.loops.Wait()
}

func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ask(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func change(t *testing.T, d *db.DB) db.Version {
	t.Helper()
	version, err := d.Tx(t.Context(), func(tx *db.Tx) error { tx.Touch("key", "ws_1", "k"); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func over(t *testing.T, d *db.DB, life Life) bool {
	t.Helper()
	gone, err := db.One[bool](t.Context(), d.Across("test"), `SELECT `+Over("$1", "$2")+` AS gone`, life.Node, life.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

func TestANodeServesFromServeUntilItLeaves(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	s := join(t, d, "jrn_a")
	shown := func() string {
		all, err := s.List(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0].State
	}
	if s.Check() == nil || shown() != Starting {
		t.Errorf("before Serve it is %s, and refuses with %v", shown(), s.Check())
	}
	if err := s.Serve(t.Context()); err != nil || s.Check() != nil || shown() != Live {
		t.Errorf("%v, %v, %s", err, s.Check(), shown())
	}
	life := s.Life()
	if life != (Life{"jrn_a", 1}) || over(t, d, life) || s.Nodes() != 1 {
		t.Errorf("%+v of %d nodes", life, s.Nodes())
	}
	s.Leave()
	if s.Check() == nil || !over(t, d, life) {
		t.Error("it serves after it has left")
	}
}

// The lease lasts as long as it is renewed, and no longer.
func TestALeaseThatIsNotRenewedRunsOut(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	s := serving(t, d, "jrn_a")
	time.Sleep(leaseTime + beatEvery)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	s.pause()
	eventually(t, "refused", func() bool { return s.Check() != nil })
	s.start()
	eventually(t, "serving again", func() bool { return s.Check() == nil })
}

func TestAwaitReturnsOnlyWhenEveryServingNodeHasTheChange(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a, b := serving(t, d, "jrn_a"), serving(t, d, "jrn_b")
	join(t, d, "jrn_c") // does not serve, so nobody waits for it
	b.board.hold(true)
	version := change(t, d)
	awaited := make(chan error, 1)
	go func() { awaited <- a.Await(context.Background(), version) }()
	select {
	case err := <-awaited:
		t.Fatalf("awaited before the other had it: %v", err)
	case <-time.After(silentTime + 2*beatEvery): // its lease is renewed: it is not given up
	}
	b.board.hold(false)
	if err := <-awaited; err != nil || b.inForceHere() < version {
		t.Errorf("%v, the other has %d of %d", err, b.inForceHere(), version)
	}
	if err := b.Check(); err != nil {
		t.Error(err)
	}
}

// inForceHere is the version that a server has.
func (s *server) inForceHere() db.Version { return s.board.Applied() }

// A node that does not answer is waited for until its lease has run out. It serves nobody then, and when it is back,
// not before it has everything.
func TestASilentNodeIsEndedAndComesBackWithEverything(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a, b := serving(t, d, "jrn_a"), serving(t, d, "jrn_b")
	life := b.Life()
	b.pause()
	version := change(t, d)
	if err := a.Await(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	if b.Check() == nil {
		t.Error("it serves after the change was answered")
	}
	if !over(t, d, life) {
		t.Error("its life is not over")
	}
	b.board.hold(true)
	b.start()
	eventually(t, "joined again", func() bool { return b.Life().Epoch == life.Epoch+1 })
	time.Sleep(2 * beatEvery)
	if b.Check() == nil {
		t.Error("it serves without the change")
	}
	b.board.hold(false)
	b.board.Wake()
	eventually(t, "serving again", func() bool { return b.Check() == nil })
	if b.inForceHere() < version || b.board.fills == 0 {
		t.Errorf("it serves with version %d of %d, filled %d times", b.inForceHere(), version, b.board.fills)
	}
	eventually(t, "told of both", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return strings.Join(b.told, " ") == "lost regained"
	})
}

// Without anybody who waits, a silent node is ended too, so that others take over what it did.
func TestSilentNodesAreReaped(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	serving(t, d, "jrn_a")
	b := serving(t, d, "jrn_b")
	b.pause()
	eventually(t, "ended", func() bool { return over(t, d, b.Life()) })
}

func TestAFencedTransactionHoldsTheEndOffAndNoneBeginsAfterIt(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a, b := serving(t, d, "jrn_a"), serving(t, d, "jrn_b")
	life, entered, release := b.Life(), make(chan struct{}), make(chan struct{})
	fenced := make(chan error, 1)
	go func() {
		_, err := d.Tx(context.Background(), func(tx *db.Tx) error {
			if err := b.Fence(context.Background(), tx); err != nil {
				return err
			}
			close(entered)
			<-release
			if over(t, d, life) {
				return errors.New("its life ended during the transaction")
			}
			return nil
		})
		fenced <- err
	}()
	<-entered
	rows, err := a.table.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.pause()
	ended := make(chan error, 1)
	go func() {
		for _, r := range rows {
			if r.ID == "jrn_b" {
				r.Beat = 0
				for done := false; !done; r.Beat++ { // whichever beat was the last
					var err error
					if done, err = a.table.end(context.Background(), r); err != nil {
						ended <- err
						return
					}
				}
			}
		}
		ended <- nil
	}()
	time.Sleep(200 * time.Millisecond) // for the end to come wrongly
	close(release)
	if err := <-fenced; err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil || !over(t, d, life) {
		t.Errorf("over: %v, %v", over(t, d, life), err)
	}
	if _, err := d.Tx(t.Context(), func(tx *db.Tx) error { return b.FenceAs(t.Context(), tx, life) }); !errors.Is(err, ErrFenced) {
		t.Errorf("after its end: %v", err)
	}
}

// The renewals of a node go on beside its own fenced transactions.
func TestAFencedTransactionDoesNotHoldRenewalsOff(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a := serving(t, d, "jrn_a")
	_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
		if err := a.Fence(t.Context(), tx); err != nil {
			return err
		}
		for range 3 {
			if err := a.beat(t.Context()); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestOneNodeLeadsARoleUntilItsLifeIsOver(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a, b := serving(t, d, "jrn_a"), serving(t, d, "jrn_b")
	leads := func(s *server, role string) bool {
		t.Helper()
		leads, err := s.Lead(t.Context(), role)
		if err != nil {
			t.Fatal(err)
		}
		return leads
	}
	if !leads(a, "loops") || leads(b, "loops") || !leads(a, "loops") || !leads(b, "engines") || leads(a, "engines") {
		t.Error("two lead, or none")
	}
	a.pause()
	eventually(t, "the other leads", func() bool { return leads(b, "loops") })
	if leads(a, "loops") {
		t.Error("two lead")
	}
	b.Leave()
	if leads(b, "loops") {
		t.Error("it leads after it has left")
	}
}

func TestAJoinEndsTheFormerLife(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	former := serving(t, d, "jrn_a")
	former.pause() // as when its process was killed
	life := former.Life()
	next := join(t, d, "jrn_a")
	if next.Life() != (Life{"jrn_a", 2}) || !over(t, d, life) || over(t, d, next.Life()) {
		t.Errorf("%+v after %+v", next.Life(), life)
	}
}

func TestTheFirstOfTwoProcessesWithOneDataFolderStops(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	first := serving(t, d, "jrn_a")
	second := serving(t, d, "jrn_a")
	if err := <-first.ended; !errors.Is(err, ErrCopied) || first.Check() == nil {
		t.Errorf("%v, %v", err, first.Check())
	}
	time.Sleep(2 * beatEvery)
	if err := second.Check(); err != nil || second.Life().Epoch != 2 {
		t.Errorf("the second is at epoch %d: %v", second.Life().Epoch, err)
	}
}

// The COMMIT of a join arrives, and its answer does not: the newer life in the row is this process's own.
func TestAJoinWhoseAnswerIsLostIsNotTakenForAnotherProcess(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a := serving(t, d, "jrn_a")
	a.pause()
	a.tried = clock.Now()
	if _, _, err := a.table.join(t.Context(), a.newest, a.tried, a.about); err != nil {
		t.Fatal(err)
	}
	a.start()
	eventually(t, "it serves again", func() bool { return a.Check() == nil && a.Life().Epoch == 3 })
	select {
	case err := <-a.ended:
		t.Error(err)
	default:
	}
}

// A database that accepts a connection and then says nothing for longer than a renewal may take does not end a start.
func TestAStartWaitsForADatabaseThatIsSlowToAnswer(t *testing.T) {
	address, silence := through(t, dbtest.Postgres(t))
	d := dbtest.Open(t, "", address)
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	silence(2) // the connection that joins, and its second try
	s := join(t, d, "jrn_a")
	silence(2) // those that serve
	if err := s.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it serves", func() bool { return s.Check() == nil })
}

// A database whose answers take too long while everything is put in force does not end a start, also not after the
// others have ended the first life for it.
func TestAStartRepeatsWhatTheDatabaseDidNotAnswer(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a := join(t, d, "jrn_a")
	a.board.fails = []error{
		context.DeadlineExceeded, // of CatchUp
		nil,                      // its life has ended meanwhile
		fault.Unavailable.New("the database is not available"), // of Fill
		context.DeadlineExceeded,
	}
	a.board.once = func() {
		a.board.once = func() {
			if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE nodes SET ended = TRUE`); err != nil {
				t.Error(err)
			}
			eventually(t, "it joins again", func() bool { return a.Life().Epoch == 2 })
		}
	}
	if err := a.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it serves", func() bool { return a.Check() == nil })
	if len(a.board.fails) != 0 {
		t.Errorf("%d failures are left", len(a.board.fails))
	}
}

// A start that is stopped does not wait for the database.
func TestAStoppedStartDoesNotWait(t *testing.T) {
	a := join(t, dbtest.Migrated(t, db.Postgres), "jrn_a")
	ctx, stop := context.WithCancel(t.Context())
	a.board.fails = []error{context.DeadlineExceeded}
	a.board.once = stop
	if err := a.Serve(ctx); err == nil {
		t.Error("it serves")
	}
}

// through returns the URL of a database behind a proxy. After silence(n), the next n connections hear nothing.
func through(t *testing.T, url secret.Text) (at secret.Text, silence func(n int)) {
	t.Helper()
	server, err := neturl.Parse(url.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	var silent atomic.Int64
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = client.Close() }()
				if silent.Add(-1) >= 0 {
					_, _ = io.Copy(io.Discard, client) // until the client gives up
					return
				}
				database, err := net.Dial("tcp", server.Host)
				if err != nil {
					return
				}
				defer func() { _ = database.Close() }()
				go func() { _, _ = io.Copy(database, client); _ = database.Close() }()
				_, _ = io.Copy(client, database)
			}()
		}
	}()
	behind := *server
	behind.Host = listener.Addr().String()
	return secret.New(behind.String()), func(n int) { silent.Store(int64(n)) }
}

// A life that is over before the start has put everything in force is followed by one that serves.
func TestAStartServesAlthoughItsFirstLifeWasEnded(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a := join(t, d, "jrn_a")
	a.board.once = func() {
		if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE nodes SET ended = TRUE`); err != nil {
			t.Error(err)
		}
		eventually(t, "it joins again", func() bool { return a.Life().Epoch == 2 })
	}
	if err := a.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it serves", func() bool { return a.Check() == nil })
}

// What an operator asks of a node that is silent is asked of its next life too, unless its process has ended meanwhile.
func TestANodeThatWasSilentWhenItWasAskedToLeaveHearsOfIt(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a := serving(t, d, "jrn_a")
	a.pause()
	if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE nodes SET ended = TRUE, draining = TRUE`); err != nil {
		t.Fatal(err)
	}
	a.start()
	<-a.asked
	a.pause()
	b := serving(t, d, "jrn_a")
	if err := b.beat(t.Context()); err != nil || b.drained.Load() {
		t.Errorf("a new process is asked to leave: %v %v", b.drained.Load(), err)
	}
}

func TestAForgottenNodeMayNotJoin(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	s := serving(t, d, "jrn_a")
	s.Leave()
	if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE nodes SET forgotten = TRUE`); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), Config{DB: d, ID: "jrn_a"}); !errors.Is(err, ErrForgotten) {
		t.Errorf("%v", err)
	}
}

// A database that was restored, or whose standby took over without its last commits, may have given the versions that
// are in force here to other changes.
func TestANodeReadsEverythingAnewWhenTheDatabaseHasLostCommits(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	s := serving(t, d, "jrn_a")
	acknowledged := func() int64 {
		s.lease.mu.Lock()
		defer s.lease.mu.Unlock()
		return s.lease.beat
	}
	eventually(t, "the database has acknowledged something", func() bool { return acknowledged() > 0 })
	s.pause()
	if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE nodes SET beat = 0`); err != nil {
		t.Fatal(err)
	}
	for range acknowledged() { // the answers to these are lost
		_, _, _ = s.table.renew(t.Context(), s.Life(), acknowledged(), 0, "")
	}
	if _, behind, err := s.table.lost(t.Context(), s.newest, acknowledged(), s.tried); err != nil || !behind {
		t.Errorf("the loss is not noticed: %v", err)
	}
	s.start()
	eventually(t, "joined again", func() bool { return s.Life().Epoch == 2 })
	eventually(t, "serving again", func() bool { return s.Check() == nil })
	if s.board.fills == 0 {
		t.Error("it was not filled")
	}
}

func TestANodeIsDrainedAndForgottenOnlyInTheStatesForIt(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a, b := serving(t, d, "jrn_a"), serving(t, d, "jrn_b")
	a.OnForget = func(_ context.Context, _ *db.Tx, life Life) (string, error) { return "up to " + life.Node, nil }
	in := func(do func(tx *db.Tx) error) error {
		_, err := d.Tx(t.Context(), do)
		return err
	}
	drain := func(id string) error {
		return in(func(tx *db.Tx) error { _, _, err := a.Drain(t.Context(), tx, id); return err })
	}
	var lost string
	forget := func(id string) error {
		return in(func(tx *db.Tx) (err error) { _, _, lost, err = a.Forget(t.Context(), tx, id); return err })
	}
	state := func() string {
		all, err := a.List(t.Context())
		if err != nil || len(all) != 2 || all[1].ID != "jrn_b" {
			t.Fatal(all, err)
		}
		return all[1].State
	}
	if err := forget("jrn_b"); err == nil || state() != Live {
		t.Errorf("a live node is forgotten: %v, %s", err, state())
	}
	if err := drain("jrn_x"); err == nil {
		t.Error("a node that is not there is drained")
	}
	if err := drain("jrn_b"); err != nil || state() != Draining {
		t.Errorf("%v, %s", err, state())
	}
	<-b.asked
	gaveBack := false
	b.BeforeLeave = func(context.Context) error { gaveBack = b.Check() == nil; return nil }
	b.Leave()
	if !gaveBack || state() != Left {
		t.Errorf("gave back with its lease: %v; %s", gaveBack, state())
	}
	if err := drain("jrn_b"); err == nil {
		t.Error("a node that has left is drained")
	}
	if err := forget("jrn_b"); err != nil || state() != Forgotten || lost != "up to jrn_b" {
		t.Errorf("%v, %s, lost %q", err, state(), lost)
	}
}

func TestNodesThatDifferAreFound(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	a, b := serving(t, d, "jrn_a"), serving(t, d, "jrn_b")
	b.Settings("other")
	eventually(t, "they differ", a.Differs)
	all, err := a.List(t.Context())
	if err != nil || all[0].Differs || !all[1].Differs {
		t.Errorf("%+v %v", all, err)
	}
	b.Settings("")
	eventually(t, "they agree", func() bool { return !a.Differs() })
}
