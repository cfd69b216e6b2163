// Package feed carries committed changes to the data plane. A commit gets a version. The feed reads what each version
// touched, publishes it to memory, and releases the callers that await that version. A change that was answered is
// therefore in force.
package feed

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/store/db"
)

// A Source publishes one kind of data to memory.
type Source interface {
	// Fill publishes everything there is, and replaces what was there.
	Fill(ctx context.Context) error
	// Apply reads the subject as it is now and publishes it. It is idempotent.
	Apply(ctx context.Context, change db.Change) error
}

// A Feed applies versions in order. Make it with New, call Fill, then Run.
type Feed struct {
	db      *db.DB
	sources map[string]Source
	log     *slog.Logger

	// timeout bounds one query: a connection whose packets are dropped would otherwise block until TCP gives up.
	timeout time.Duration
	wake    chan struct{}

	// Elsewhere returns when a version is in force in the other servers; nil when there are none. Advanced is called
	// after every version that is in force here. Both are set before Run.
	Elsewhere func(context.Context, db.Version) error
	Advanced  func()

	publishing sync.Mutex // serializes the reads of the tables: an older read must not overwrite a newer one

	mu       sync.Mutex
	applied  db.Version
	advanced chan struct{} // closed and replaced when applied changes
}

const (
	pollInterval = time.Second // the interval between retries, and the delay of a change that no caller awaits
	retention    = time.Hour   // how long applied changes stay in the table
)

// New returns a feed of the given kinds of change.
func New(d *db.DB, log *slog.Logger, sources map[string]Source) *Feed {
	f := &Feed{
		db: d, sources: sources, log: log, timeout: 5 * time.Second, wake: make(chan struct{}, 1),
		advanced: make(chan struct{}),
	}
	d.Listen(db.FeedTopic, f.Wake)
	return f
}

// Wake makes the feed look for changes now.
func (f *Feed) Wake() {
	select {
	case f.wake <- struct{}{}:
	default: // a read is already due
	}
}

// Register adds sources to those of New. It must be called before Fill and Run.
func (f *Feed) Register(sources map[string]Source) {
	all := maps.Clone(f.sources)
	if all == nil {
		all = map[string]Source{}
	}
	for kind, source := range sources {
		if all[kind] != nil {
			panic("feed: two sources of " + kind)
		}
		all[kind] = source
	}
	f.sources = all
}

// Fill publishes the present state of everything. It reads the version first: a change that commits meanwhile is
// published twice, never missed. The version may be lower than before, on a database that lost its last commits.
func (f *Feed) Fill(ctx context.Context) error {
	f.publishing.Lock()
	defer f.publishing.Unlock()
	return f.fill(ctx)
}

// fill is Fill. publishing is held.
func (f *Feed) fill(ctx context.Context) error {
	head, err := Head(ctx, f.db.Across("versions number all workspaces together"))
	if err != nil {
		return err
	}
	for _, source := range f.distinctSources() {
		if err := source.Fill(ctx); err != nil {
			return fmt.Errorf("fill the data plane: %w", err)
		}
	}
	f.advance(head)
	return nil
}

// distinctSources returns every source once, although one may serve several kinds.
func (f *Feed) distinctSources() []Source {
	seen := map[Source]bool{}
	var all []Source
	for _, source := range f.sources {
		if !seen[source] {
			seen[source] = true
			all = append(all, source)
		}
	}
	return all
}

// Head returns the newest committed version.
func Head(ctx context.Context, s db.Scoped) (db.Version, error) {
	return db.One[db.Version](ctx, s, `SELECT version FROM feed_head WHERE id = 1`)
}

// Change runs fn in a transaction, and returns when what it touched is in force in every server.
func (f *Feed) Change(ctx context.Context, fn func(*db.Tx) error) error {
	version, err := f.db.Tx(ctx, fn)
	if err != nil {
		return err
	}
	return f.Await(ctx, version)
}

// Await returns when version is in force in every server. If ctx ends first, the change is still committed and will
// still be published; only the caller is not told so.
func (f *Feed) Await(ctx context.Context, version db.Version) error {
	if err := f.awaitHere(ctx, version); err != nil || f.Elsewhere == nil {
		return err
	}
	return f.Elsewhere(ctx, version)
}

// awaitHere returns when version is in force in this process.
func (f *Feed) awaitHere(ctx context.Context, version db.Version) error {
	if f.reached(version) == nil {
		return nil
	}
	f.Wake()
	for {
		moved := f.reached(version)
		if moved == nil {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("await version %d: %w", version, ctx.Err())
		}
	}
}

// reached returns nil when version is in force, else a channel that is closed at the next advance.
func (f *Feed) reached(version db.Version) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.applied >= version {
		return nil
	}
	return f.advanced
}

// Applied returns the version that is in force.
func (f *Feed) Applied() db.Version {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied
}

func (f *Feed) advance(to db.Version) {
	f.mu.Lock()
	f.applied = to
	close(f.advanced)
	f.advanced = make(chan struct{})
	f.mu.Unlock()
	if f.Advanced != nil {
		f.Advanced()
	}
}

// Run publishes until ctx ends. It retries a failed read each second: what is committed is published however often
// the database is unreachable in between.
func (f *Feed) Run(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	pruned := time.Time{}
	var seen uint64 // the database's change number when all changes were in force; 0 forces a read
	for {
		if now := f.db.Changes(ctx); now != seen {
			seen = now
			if err := f.CatchUp(ctx); err != nil {
				seen = 0
				if ctx.Err() == nil {
					f.log.Warn("feed: cannot read changes; trying again", "err", err)
				}
			}
		}
		if time.Since(pruned) > retention/4 {
			pruned = time.Now()
			if err := f.bounded(ctx, f.prune); err != nil && ctx.Err() == nil {
				f.log.Warn("feed: cannot prune old changes", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			seen = 0
		case <-tick.C:
		}
	}
}

func (f *Feed) bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return do(ctx)
}

// CatchUp applies what was committed since the last call. Each query has its own timeout, and each applied version
// stays applied. Many changes or a slow database therefore delay the feed, but cannot stop it for good. When another
// server has pruned what this one could not apply for too long, everything is filled anew: versions have no gaps.
func (f *Feed) CatchUp(ctx context.Context) error {
	f.publishing.Lock()
	defer f.publishing.Unlock()
	var changes []db.Change
	err := f.bounded(ctx, func(ctx context.Context) (err error) {
		changes, err = db.Query[db.Change](ctx, f.db.Across("the data plane serves all workspaces"), `
			SELECT version, kind, workspace_id AS workspace, subject
			FROM feed_changes WHERE version > $1 ORDER BY version, seq`, f.Applied())
		return err
	})
	if err != nil {
		return err
	}
	if len(changes) > 0 && changes[0].Version > f.Applied()+1 {
		return f.fill(ctx)
	}
	for i, c := range changes {
		if source, known := f.sources[c.Kind]; known {
			if err := f.bounded(ctx, func(ctx context.Context) error { return source.Apply(ctx, c) }); err != nil {
				return fmt.Errorf("apply %s %s: %w", c.Kind, c.Subject, err)
			}
		}
		if last := i == len(changes)-1; last || changes[i+1].Version != c.Version {
			f.advance(c.Version)
		}
	}
	return nil
}

func (f *Feed) prune(ctx context.Context) error {
	_, err := db.Exec(ctx, f.db.Across("old versions of all workspaces"),
		`DELETE FROM feed_changes WHERE at < $1 AND version <= $2`,
		clock.Now().Add(-retention), f.Applied())
	return err
}
