package wallet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// changedWallet is the kind of change under which the feed announces a credited wallet.
const changedWallet = "wallet"

// Killed is the outcome of a request whose process died. It is charged what the journal last recorded of it.
const Killed = string(outcome.Killed)

// A Poster posts the journal's settled charges to the ledger, and keeps the money in memory equal to the ledger. The
// journal position commits in the same transaction as the charges before it. Every entry is therefore posted exactly
// once, whichever process or connection dies when.
type Poster struct {
	Holds  *Holds  // the named holds
	Escrow *Escrow // what is taken of wallets that are shared with other servers; nil on SQLite

	db      *db.DB
	journal *journal.Journal
	funds   *funds.Funds
	log     *slog.Logger
	tx      func(context.Context, func(*db.Tx) error) (db.Version, error)
	insert  func(context.Context, *db.Tx, map[tenant.ID][]*journal.Charge) (map[payer]money.Nano, error) // postUsage

	mu        sync.Mutex       // serializes postings, and excludes them while memory is filled from the ledger
	posted    journal.Position // the cursor as committed in the ledger
	read      journal.Position // at or after posted; between the two there is nothing to post
	inDoubt   *batch           // a batch whose COMMIT was not answered: it may have committed, or may still commit
	within    *limits          // of the charges that are being inserted; nil for no limit
	turns     int              // how many more postings wait until no other server posts
	recovered bool             // Recover is done: what is posted from now on was settled in this process's memory
	wake      chan struct{}    // wakes Run
	behind    chan struct{}    // wakes Sync: a posting has failed
	freed     chan struct{}    // wakes CollectLoop: a named hold has ended

	paid       map[tenant.ID]money.Nano // what each workspace had paid in the last day, at the start
	asideCount atomic.Int64             // charges that were set aside

	lagMu       sync.Mutex       // protects the fields below; never held during I/O
	behindSince time.Time        // since when entries wait beyond their turn; zero when none do
	lastPosting time.Time        // when the last posting ended
	postedUntil journal.Position // the position that it reached
}

// NewPoster returns a poster that posts j to the ledger in d and keeps f up to date.
func NewPoster(d *db.DB, j *journal.Journal, f *funds.Funds, log *slog.Logger) *Poster {
	days := usage.NewDays() // postings are serialized
	if d.Engine == db.Postgres {
		days = days.Of(j.ID)
	}
	p := &Poster{
		Holds: newHolds(d, f, log),
		db:    d, journal: j, funds: f, log: log, tx: d.Tx,
		wake: make(chan struct{}, 1), behind: make(chan struct{}, 1), freed: make(chan struct{}, 1),
	}
	p.insert = func(ctx context.Context, tx *db.Tx, batch map[tenant.ID][]*journal.Charge) (
		map[payer]money.Nano, error,
	) {
		return postUsage(ctx, tx, days, batch, p.within)
	}
	if d.Engine == db.Postgres {
		p.Escrow = newEscrow(d, j.ID, f, log)
		p.Holds.escrow = p.Escrow
	}
	return p
}

// Sources returns what the feed has to know.
func (p *Poster) Sources() map[string]feed.Source {
	return map[string]feed.Source{changedWallet: p, changedHold: p}
}

// Recovered is what Recover found in the journal.
type Recovered struct {
	Orphans int        // requests that the last process left open
	Charged money.Nano // the charges for them
	Torn    int64      // bytes of a write that never returned
}

// ErrJournalMismatch reports that the journal and the database do not belong together.
var ErrJournalMismatch = errors.New("the journal in the data folder is not this database's")

// Recover posts everything that the last process left in the journal, charges the requests that it left open with the
// usage they had last recorded, and starts a new segment. A Recover that is killed is completed by the next one.
func (p *Poster) Recover(ctx context.Context) (Recovered, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := Recovered{Torn: p.journal.Torn}
	if err := p.countSetAside(); err != nil {
		return found, err
	}
	end := p.journal.End()
	fresh := journal.Position{Segment: end.Segment + 1}
	at, err := p.startPosition(ctx, end)
	if err != nil {
		return found, err
	}
	if at != fresh {
		orphans, err := p.journal.Orphans(at.Segment)
		if err != nil {
			return found, err
		}
		p.posted, p.read = at, at
		if err := p.drain(ctx, end); err != nil {
			return found, err
		}
		charges := make([]*journal.Charge, len(orphans))
		for i := range orphans {
			o := &orphans[i].Charge
			o.Outcome, o.Counted = Killed, true
			charges[i] = o
			found.Charged += o.Charged
		}
		if err := p.post(ctx, fresh, charges); err != nil {
			return found, err // if it committed all the same, the next start finds the cursor there
		}
		found.Orphans = len(orphans)
	}
	if err := p.dropSlices(ctx); err != nil {
		return found, err
	}
	p.posted, p.read, p.recovered = fresh, fresh, true
	if err := p.journal.Begin(); err != nil {
		return found, err
	}
	return found, p.journal.Forget(fresh.Segment)
}

// dropSlices gives back what the last process has taken: everything that it spent is posted.
func (p *Poster) dropSlices(ctx context.Context) error {
	if p.Escrow == nil {
		return nil
	}
	_, err := p.db.Tx(ctx, func(tx *db.Tx) error {
		if p.Escrow.Fence != nil {
			if err := p.Escrow.Fence(ctx, tx); err != nil {
				return err
			}
		}
		return dropSlices(ctx, tx, p.journal.ID)
	})
	return err
}

// RestoreRecent loads what workspaces have paid and abandoned in the last day into memory. It is called once, after
// Recover.
func (p *Poster) RestoreRecent(ctx context.Context) error {
	all, err := readRecent(ctx, p.db, clock.Now().Add(-24*time.Hour))
	if err != nil {
		return err
	}
	p.paid = make(map[tenant.ID]money.Nano, len(all))
	for ws, sums := range all {
		p.funds.Restore(ws, sums)
		for _, one := range sums {
			p.paid[ws] += one.Paid
		}
	}
	return nil
}

// startPosition returns the position up to which the ledger has posted this journal. It registers a new journal with
// the database, and refuses one that does not match it.
func (p *Poster) startPosition(ctx context.Context, end journal.Position) (journal.Position, error) {
	at, err := readCursor(ctx, p.db, p.journal.ID)
	switch {
	case err != nil:
		return at, err
	case at == (journal.Position{}) && end.Segment > 0:
		return at, fmt.Errorf("%w: its id %s is unknown there", ErrJournalMismatch, p.journal.ID)
	case at == (journal.Position{}):
		at = journal.Position{Segment: end.Segment + 1}
		_, err := p.db.Tx(ctx, func(tx *db.Tx) error { return insertCursor(ctx, tx, p.journal.ID, at) })
		return at, err
	case end.Before(at) && at != journal.Position{Segment: end.Segment + 1}:
		return at, fmt.Errorf("%w: it ends at %d:%d, and the ledger has posted up to %d:%d", ErrJournalMismatch,
			end.Segment, end.Offset, at.Segment, at.Offset)
	}
	return at, nil
}

// Drain posts everything that was settled before it was called.
func (p *Poster) Drain(ctx context.Context) error {
	err := p.journal.Sync()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		err = panics.Call(p.log, "posting the journal", func() error { return p.drain(ctx, p.journal.Synced()) })
	}
	p.recordPosting(err == nil, p.read)
	return err
}

func (p *Poster) drain(ctx context.Context, end journal.Position) error {
	if err := p.resolveInDoubt(ctx); err != nil {
		return err
	}
	for p.read.Before(end) {
		entries, next, err := p.journal.Read(p.read)
		if err != nil || next == p.read {
			return err
		}
		charges := make([]*journal.Charge, 0, len(entries))
		for i := range entries {
			if entries[i].Kind == journal.Settled {
				charges = append(charges, &entries[i].Charge)
			}
		}
		if len(charges) > 0 {
			if err := p.post(ctx, next, charges); err != nil {
				return err
			}
		}
		p.read = next
	}
	return nil
}

// A batch is what one transaction posts.
type batch struct {
	next    journal.Position
	charges map[tenant.ID][]*journal.Charge
	paid    map[payer]money.Nano // what wallets and holds paid; nil until a transaction has reached its COMMIT

	oneByOne bool // the charges are posted one by one, since some of them cannot be posted
	aside    []*journal.Charge
}

// post commits charges together with the position after them.
func (p *Poster) post(ctx context.Context, next journal.Position, charges []*journal.Charge) error {
	b := &batch{next: next, charges: byWorkspace(charges)}
	err := p.commit(ctx, b)
	if isPoisonous(err) && p.inDoubt == nil {
		p.log.Error("a batch of charges is refused; they are posted one by one", "err", err)
		b.oneByOne = true
		err = p.commit(ctx, b)
	}
	return err
}

// commit posts a batch. When the answer to its COMMIT is lost, the batch stays in doubt and is committed again before
// anything else is posted. Either that commits, or the cursor is found at the batch's end, which proves that the
// first COMMIT took effect. The cursor is the fencing token: advanceCursor succeeds only from the position that this
// process has posted up to.
func (p *Poster) commit(ctx context.Context, b *batch) error {
	p.funds.Ledger.Lock()
	defer p.funds.Ledger.Unlock()
	tries := 0
	_, err := p.tx(ctx, func(tx *db.Tx) error {
		if tries++; tries > 1 && p.Escrow != nil { // another server has posted to the same wallets meanwhile
			p.turns = turnsAfterConflict
		}
		if p.turns > 0 {
			if err := awaitTurn(ctx, tx); err != nil {
				return err
			}
		}
		if err := advanceCursor(ctx, tx, p.journal.ID, p.posted, b.next); err != nil {
			return err
		}
		if p.within = nil; p.Escrow != nil {
			var err error
			if p.within, err = p.Escrow.readLimits(ctx, tx, b.charges, !p.recovered); err != nil {
				return err
			}
		}
		insert := func() (map[payer]money.Nano, error) { return p.insertContained(ctx, tx, b.charges) }
		if b.oneByOne {
			insert = func() (map[payer]money.Nano, error) { return p.insertOneByOne(ctx, tx, b) }
		}
		paid, err := insert()
		if err != nil {
			return fmt.Errorf("post usage: %w", err)
		}
		if p.Escrow != nil {
			if err := p.Escrow.charge(ctx, tx, p.within); err != nil {
				return err
			}
		}
		b.paid = paid
		return nil
	})
	if errors.Is(err, errCursorMoved) && b.paid != nil {
		switch at, lost := readCursor(ctx, p.db, p.journal.ID); {
		case lost != nil:
			err = lost // the batch stays in doubt
		case at == b.next:
			err = nil
		}
	}
	if p.inDoubt = nil; err != nil {
		if b.paid != nil {
			p.inDoubt = b
		}
		return err
	}
	p.turns = max(0, p.turns-1)
	p.applyPosted(b)
	if len(b.aside) > 0 {
		return p.reportAside(b)
	}
	return nil
}

// turnsAfterConflict is how many postings wait for their turn after one had to start anew: those of half a minute.
// Servers that post to different wallets have no conflicts and do not wait.
const turnsAfterConflict = 60

// resolveInDoubt commits the batch in doubt, if there is one.
func (p *Poster) resolveInDoubt(ctx context.Context) error {
	if p.inDoubt == nil {
		return nil
	}
	return p.commit(ctx, p.inDoubt)
}

// applyPosted updates memory after a batch has committed.
func (p *Poster) applyPosted(b *batch) {
	p.posted = b.next
	if p.read.Before(b.next) {
		p.read = b.next
	}
	settled := map[payer]money.Nano{}
	for ws, charges := range b.charges {
		for _, c := range charges {
			settled[payer{ws, c.Hold}] += c.Charged
		}
	}
	if p.recovered {
		for who, amount := range settled {
			p.funds.Posted(who.ws, who.hold, amount, b.paid[who])
		}
	}
	for _, c := range b.aside {
		settled[payer{c.Workspace, c.Hold}] -= c.Charged
	}
	for who, amount := range settled {
		if b.paid[who] != amount {
			p.log.Error("a wallet could not pay what was settled: the rest is booked as overage", "workspace", who.ws,
				"hold", who.hold, "settled_usd", amount.String(), "paid_usd", b.paid[who].String())
		}
	}
}

func byWorkspace(charges []*journal.Charge) map[tenant.ID][]*journal.Charge {
	all := map[tenant.ID][]*journal.Charge{}
	for _, c := range charges {
		all[c.Workspace] = append(all[c.Workspace], c)
	}
	return all
}

// errCursorMoved reports that another process posts the same journal.
var errCursorMoved = errors.New("the journal's position in the ledger is not where it was left")

const (
	// syncEvery is how often the journal is synced, and so bounds what a power loss costs. A backlog of largeBacklog
	// bytes is posted as often; less waits for postEvery, because each posting has a fixed cost.
	syncEvery    = 100 * time.Millisecond
	largeBacklog = 256 << 10 // bytes of the journal
	// postEvery bounds how long a small backlog waits, and so how old a list of usage may be. Wallets are always up
	// to date in memory.
	postEvery = 500 * time.Millisecond
	// postTimeout bounds one posting: a connection whose packets are dropped would otherwise block until TCP gives
	// up.
	postTimeout = 5 * time.Second
)

// SyncLoop syncs the journal until ctx ends, whatever the state of the database, and wakes Run when there is something
// to post. When everything is synced and posted, it sleeps until the journal is written again.
func (p *Poster) SyncLoop(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	var failing error
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if failing == nil && p.idle() {
			tick.Stop()
			select {
			case <-ctx.Done():
				return
			case <-p.journal.Appended():
			case <-p.behind:
			}
			tick.Reset(syncEvery)
			continue
		}
		err := p.journal.Sync()
		if p.due() {
			select {
			case p.wake <- struct{}{}:
			default: // Run is already awake
			}
		}
		switch {
		case err != nil && failing == nil:
			p.log.Error("charges cannot be recorded; inference is refused until they can", "err", err)
		case err == nil && failing != nil:
			p.log.Info("charges can be recorded again")
		}
		failing = err
	}
}

// Run posts whenever Sync wakes it, until ctx ends, and once more then. Without the database, settled charges wait in
// the journal.
func (p *Poster) Run(ctx context.Context) {
	var failing error
	for {
		bounded, cancel := context.WithTimeout(ctx, postTimeout)
		err := p.Drain(bounded)
		cancel()
		switch {
		case err != nil && failing == nil && ctx.Err() == nil:
			p.log.Error("the ledger falls behind the journal; what is settled is kept there", "err", err)
		case err == nil && failing != nil:
			p.log.Info("the ledger has caught up with the journal")
		}
		failing = err
		p.removePosted()
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			err := p.Drain(last)
			if err == nil && p.Escrow != nil {
				err = p.Escrow.Leave(last)
			}
			if err != nil {
				p.log.Warn("not everything was posted; the next start does it", "err", err)
			}
			return
		case <-p.wake:
		}
	}
}

// due reports whether there is something to post that is large or has waited for long, or the last posting failed.
func (p *Poster) due() bool {
	if p.Lag() > 0 {
		return true
	}
	p.lagMu.Lock()
	from, last := p.postedUntil, p.lastPosting
	p.lagMu.Unlock()
	end := p.journal.End()
	return end != from && (end.Segment != from.Segment || end.Offset-from.Offset >= largeBacklog ||
		time.Since(last) >= postEvery)
}

// idle reports whether everything is synced and posted.
func (p *Poster) idle() bool {
	p.lagMu.Lock()
	posted := p.behindSince.IsZero()
	until := p.postedUntil
	p.lagMu.Unlock()
	return posted && p.journal.Failure() == nil && p.journal.Synced() == p.journal.End() && p.journal.End() == until
}

func (p *Poster) removePosted() {
	p.mu.Lock()
	before := p.posted.Segment
	p.mu.Unlock()
	if err := p.journal.Forget(before); err != nil {
		p.log.Warn("cannot remove posted segments of the journal", "err", err)
	}
}

// recordPosting records when a posting ended, how far it came, and whether it succeeded.
func (p *Poster) recordPosting(caughtUp bool, until journal.Position) {
	p.lagMu.Lock()
	defer p.lagMu.Unlock()
	p.lastPosting, p.postedUntil = time.Now(), until
	switch {
	case caughtUp:
		p.behindSince = time.Time{}
	case p.behindSince.IsZero():
		p.behindSince = time.Now()
		select {
		case p.behind <- struct{}{}:
		default: // Sync is already awake
		}
	}
}

// Lag returns for how long something has waited to be posted beyond its turn.
func (p *Poster) Lag() time.Duration {
	p.lagMu.Lock()
	defer p.lagMu.Unlock()
	if p.behindSince.IsZero() {
		return 0
	}
	return time.Since(p.behindSince)
}
