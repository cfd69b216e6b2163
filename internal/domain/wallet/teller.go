package wallet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// changedWallet is the kind of change that the data plane hears of.
const changedWallet = "wallet"

// Killed is the outcome of a request whose process died: it is charged what the journal last held of it.
const Killed = string(outcome.Killed)

// A Teller stands between the journal, the ledger and the money in memory: it posts what the journal says, and tells
// memory what the ledger says. The journal's position commits in the transaction of the batch, so that every entry is
// posted exactly once, whatever dies when.
type Poster struct {
	db      *db.DB
	journal *journal.Journal
	funds   *funds.Funds
	log     *slog.Logger
	tx      func(context.Context, func(*db.Tx) error) (db.Version, error)

	mu     sync.Mutex       // one posting at a time; while memory is filled from the ledger, none
	posted journal.Position // as the ledger has it
	read   journal.Position // at or after posted; in between is nothing to post
	doubt  *batch           // whose commit was not answered: it may have taken place, or may yet
	live   bool             // recovered: what is posted from now on was settled in this process's memory
	wake   chan struct{}    // for Run
	behind chan struct{}    // for Sync: a posting has failed

	lagMu sync.Mutex       // held for a moment only
	since time.Time        // when the oldest entry that is not posted was first seen
	last  time.Time        // when it was last posted
	until journal.Position // and how far
}

// NewTeller posts j into d, and keeps f.
func NewPoster(d *db.DB, j *journal.Journal, f *funds.Funds, log *slog.Logger) *Poster {
	return &Poster{db: d, journal: j, funds: f, log: log, tx: d.Tx, wake: make(chan struct{}, 1), behind: make(chan struct{}, 1)}
}

// Sources is what the feed needs to know.
func (t *Poster) Sources() map[string]feed.Source { return map[string]feed.Source{changedWallet: t} }

// Fill gives memory the ledger's word for every wallet.
func (t *Poster) Fill(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.resolve(ctx); err != nil { // or what is in the ledger already would be told to memory twice
		return err
	}
	all, err := db.Query[funds.Account](ctx, t.db.Across("money is held for all workspaces"), `
		SELECT workspace_id AS workspace, CAST(-SUM(CASE WHEN account = 'funding' THEN amount ELSE 0 END) AS BIGINT) AS credited,
			CAST(-SUM(amount) AS BIGINT) AS spent
		FROM ledger_balances WHERE account IN ('funding', 'wallet') GROUP BY workspace_id`)
	if err != nil {
		return fmt.Errorf("read the wallets: %w", err)
	}
	t.funds.Fill(all)
	return nil
}

// Apply tells memory what has come into a wallet.
func (t *Poster) Apply(ctx context.Context, c db.Change) error {
	amount, err := credited(ctx, t.db.In(c.Workspace))
	if err != nil {
		return err
	}
	t.funds.Credit(c.Workspace, amount)
	return nil
}

// Recovered is what a start found in the journal.
type Recovered struct {
	Orphans int        // requests that the last process left open
	Charged money.Nano // for them
	Torn    int64      // bytes of a write that never returned
}

// ErrForeign says that a journal and a database do not belong together.
var ErrForeign = errors.New("the journal in the data folder is not this database's")

// Recover posts everything that the last process left behind, charges the requests that it left open with what they
// had last delivered, and begins a new segment. A recovery that is killed is begun again by the next.
func (t *Poster) Recover(ctx context.Context) (Recovered, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := Recovered{Torn: t.journal.Torn}
	end := t.journal.End()
	fresh := journal.Position{Segment: end.Segment + 1}
	at, err := t.claim(ctx, end)
	if err != nil {
		return found, err
	}
	if at != fresh {
		orphans, err := t.journal.Orphans(at.Segment)
		if err != nil {
			return found, err
		}
		t.posted, t.read = at, at
		if err := t.drain(ctx, end); err != nil {
			return found, err
		}
		charges := make([]*journal.Charge, len(orphans))
		for i := range orphans {
			o := &orphans[i].Charge
			o.Outcome, o.Counted = Killed, true
			charges[i] = o
			found.Charged += o.Charged
		}
		if err := t.post(ctx, fresh, charges); err != nil {
			return found, err // if it was committed all the same, the next start finds so
		}
		found.Orphans = len(orphans)
	}
	t.posted, t.read, t.live = fresh, fresh, true
	if err := t.journal.Begin(); err != nil {
		return found, err
	}
	return found, t.journal.Forget(fresh.Segment)
}

// claim is how far the ledger has posted this journal. A new journal is made known to the database.
func (t *Poster) claim(ctx context.Context, end journal.Position) (journal.Position, error) {
	at, err := t.cursor(ctx)
	switch {
	case err != nil:
		return at, err
	case at == (journal.Position{}) && end.Segment > 0:
		return at, fmt.Errorf("%w: its id %s is unknown there", ErrForeign, t.journal.ID)
	case at == (journal.Position{}):
		at = journal.Position{Segment: end.Segment + 1}
		_, err := t.db.Tx(ctx, func(tx *db.Tx) error {
			_, err := db.Exec(ctx, tx.Across("a journal is the server's"), `
				INSERT INTO journal_cursors (journal_id, segment, position, at) VALUES ($1, $2, $3, $4)`, t.journal.ID, at.Segment, at.Offset, clock.Now())
			return err
		})
		return at, err
	case end.Before(at) && at != journal.Position{Segment: end.Segment + 1}:
		return at, fmt.Errorf("%w: it ends at %d:%d, and the ledger has posted up to %d:%d", ErrForeign, end.Segment, end.Offset, at.Segment, at.Offset)
	}
	return at, nil
}

func (t *Poster) cursor(ctx context.Context) (journal.Position, error) {
	type row struct{ Segment, Position int64 }
	at, err := db.Maybe[row](ctx, t.db.Across("a journal is the server's"), `SELECT segment, position FROM journal_cursors WHERE journal_id = $1`, t.journal.ID)
	if err != nil || at == nil {
		return journal.Position{}, err
	}
	return journal.Position{Segment: at.Segment, Offset: at.Position}, nil
}

// Drain posts what was settled before it was called.
func (t *Poster) Drain(ctx context.Context) error {
	err := t.journal.Sync()
	t.mu.Lock()
	if err == nil {
		err = t.drain(ctx, t.journal.Synced())
	}
	until := t.read
	t.mu.Unlock()
	t.note(err == nil, until)
	return err
}

func (t *Poster) drain(ctx context.Context, end journal.Position) error {
	if err := t.resolve(ctx); err != nil {
		return err
	}
	for t.read.Before(end) {
		entries, next, err := t.journal.Read(t.read)
		if err != nil || next == t.read {
			return err
		}
		charges := make([]*journal.Charge, 0, len(entries))
		for i := range entries {
			if entries[i].Kind == journal.Settled {
				charges = append(charges, &entries[i].Charge)
			}
		}
		if len(charges) > 0 {
			if err := t.post(ctx, next, charges); err != nil {
				return err
			}
		}
		t.read = next
	}
	return nil
}

// A batch is what one transaction posts.
type batch struct {
	next    journal.Position
	charges map[tenant.ID][]*journal.Charge
	took    map[tenant.ID]money.Nano // from the wallets; nil until a transaction has gone as far as its commit
}

// post commits a batch with the position after it.
func (t *Poster) post(ctx context.Context, next journal.Position, charges []*journal.Charge) error {
	return t.commit(ctx, &batch{next: next, charges: byWorkspace(charges)})
}

// commit posts a batch. When the answer to its commit is lost, the batch stays in doubt and is posted again before
// anything else: it commits then, or finds the position where it meant to leave it, which says that it had committed.
func (t *Poster) commit(ctx context.Context, b *batch) error {
	_, err := t.tx(ctx, func(tx *db.Tx) error {
		if err := t.advance(ctx, tx, b.next); err != nil {
			return err
		}
		took, err := postUsage(ctx, tx, b.charges)
		if err != nil {
			return fmt.Errorf("post usage: %w", err)
		}
		b.took = took
		return nil
	})
	if errors.Is(err, errMoved) && b.took != nil {
		switch at, lost := t.cursor(ctx); {
		case lost != nil:
			err = lost // it stays in doubt
		case at == b.next:
			err = nil
		}
	}
	if t.doubt = nil; err != nil {
		if b.took != nil {
			t.doubt = b
		}
		return err
	}
	t.done(b)
	return nil
}

// resolve settles a doubt.
func (t *Poster) resolve(ctx context.Context) error {
	if t.doubt == nil {
		return nil
	}
	return t.commit(ctx, t.doubt)
}

// done tells memory what was posted.
func (t *Poster) done(b *batch) {
	t.posted = b.next
	if t.read.Before(b.next) {
		t.read = b.next
	}
	for ws, charges := range b.charges {
		var settled money.Nano
		for _, c := range charges {
			settled += c.Charged
		}
		if t.live {
			t.funds.Posted(ws, settled, b.took[ws])
		}
		if b.took[ws] != settled {
			t.log.Error("a wallet could not pay what was settled: the rest is booked as overage", "workspace", ws, "settled_usd", settled.String(), "paid_usd", b.took[ws].String())
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

// errMoved says that somebody else posts the same journal.
var errMoved = errors.New("the journal's position in the ledger is not where it was left")

func (t *Poster) advance(ctx context.Context, tx *db.Tx, next journal.Position) error {
	moved, err := db.Exec(ctx, tx.Across("a journal is the server's"), `
		UPDATE journal_cursors SET segment = $4, position = $5, at = $6 WHERE journal_id = $1 AND segment = $2 AND position = $3`,
		t.journal.ID, t.posted.Segment, t.posted.Offset, next.Segment, next.Offset, clock.Now())
	if err == nil && moved != 1 {
		err = errMoved
	}
	return err
}

const (
	// tellEvery is how often the journal is synced, and so what a power loss may cost. As often it is posted, if it is much:
	// each posting has its own price.
	tellEvery = 100 * time.Millisecond
	much      = 256 << 10 // bytes of the journal
	// postEvery is how long the little waits: so old may a list of usage be. Wallets are always up to date, in memory.
	postEvery = 500 * time.Millisecond
	// patience is for one posting: a connection that swallows packets would be waited on for long.
	patience = 5 * time.Second
)

// Sync syncs the journal until ctx ends, however the database fares, and wakes who posts it. When everything is synced and posted it
// rests until something is written.
func (t *Poster) Sync(ctx context.Context) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	var failing error
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if failing == nil && t.even() {
			tick.Stop()
			select {
			case <-ctx.Done():
				return
			case <-t.journal.Appended():
			case <-t.behind:
			}
			tick.Reset(tellEvery)
			continue
		}
		err := t.journal.Sync()
		if t.due() {
			select {
			case t.wake <- struct{}{}:
			default: // it is awake
			}
		}
		switch {
		case err != nil && failing == nil:
			t.log.Error("charges cannot be recorded; inference is refused until they can", "err", err)
		case err == nil && failing != nil:
			t.log.Info("charges can be recorded again")
		}
		failing = err
	}
}

// Run posts whenever Sync wakes it, until ctx ends, and once more then. Without the database, what is settled waits in the
// journal.
func (t *Poster) Run(ctx context.Context) {
	var failing error
	for {
		bounded, cancel := context.WithTimeout(ctx, patience)
		err := t.Drain(bounded)
		cancel()
		switch {
		case err != nil && failing == nil && ctx.Err() == nil:
			t.log.Error("the ledger falls behind the journal; what is settled is kept there", "err", err)
		case err == nil && failing != nil:
			t.log.Info("the ledger has caught up with the journal")
		}
		failing = err
		t.forget()
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			if err := t.Drain(last); err != nil {
				t.log.Warn("not everything was posted; the next start does it", "err", err)
			}
			return
		case <-t.wake:
		}
	}
}

// due reports whether there is something to post, and it is much or has waited for long, or the last posting failed.
func (t *Poster) due() bool {
	if t.Lag() > 0 {
		return true
	}
	t.lagMu.Lock()
	from, last := t.until, t.last
	t.lagMu.Unlock()
	end := t.journal.End()
	return end != from && (end.Segment != from.Segment || end.Offset-from.Offset >= much || time.Since(last) >= postEvery)
}

// even reports whether nothing is left to be synced or posted.
func (t *Poster) even() bool {
	t.lagMu.Lock()
	posted := t.since.IsZero()
	until := t.until
	t.lagMu.Unlock()
	return posted && t.journal.Failure() == nil && t.journal.Synced() == t.journal.End() && t.journal.End() == until
}

func (t *Poster) forget() {
	t.mu.Lock()
	before := t.posted.Segment
	t.mu.Unlock()
	if err := t.journal.Forget(before); err != nil {
		t.log.Warn("cannot remove posted segments of the journal", "err", err)
	}
}

// note says how far a posting came.
func (t *Poster) note(caughtUp bool, until journal.Position) {
	t.lagMu.Lock()
	defer t.lagMu.Unlock()
	t.last, t.until = time.Now(), until
	switch {
	case caughtUp:
		t.since = time.Time{}
	case t.since.IsZero():
		t.since = time.Now()
		select {
		case t.behind <- struct{}{}:
		default: // it is known
		}
	}
}

// Lag is for how long something has waited to be posted beyond its turn.
func (t *Poster) Lag() time.Duration {
	t.lagMu.Lock()
	defer t.lagMu.Unlock()
	if t.since.IsZero() {
		return 0
	}
	return time.Since(t.since)
}
