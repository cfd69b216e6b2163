package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A board is a source that records what was published to it.
type board struct {
	mu     sync.Mutex
	shown  []string
	fills  int
	filled func() error
	before func() error // called before a change is shown
}

func (b *board) Fill(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fills++
	if b.filled == nil {
		return nil
	}
	return b.filled()
}

func (b *board) Apply(_ context.Context, c db.Change) error {
	if b.before != nil {
		if err := b.before(); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown = append(b.shown, c.Subject)
	return nil
}

func (b *board) shows(subject string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.shown, subject)
}

func touch(t *testing.T, d *db.DB, kind, subject string) db.Version {
	t.Helper()
	version, err := d.Tx(context.Background(), func(tx *db.Tx) error {
		tx.Touch(kind, "ws_1", subject)
		return nil
	})
	if err != nil {
		t.Error(err) // not Fatal: several goroutines touch
	}
	return version
}

func newFeed(d *db.DB, sources map[string]Source) *Feed {
	return New(d, slog.New(slog.DiscardHandler), sources)
}

// run runs f for the length of the test.
func run(t *testing.T, f *Feed) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { f.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func TestAwaitReturnsOnlyAfterTheChangeIsPublished(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := &board{before: func() error { time.Sleep(2 * time.Millisecond); return nil }}
		f := newFeed(d, map[string]Source{"key": b})
		run(t, f)
		var group sync.WaitGroup
		for writer := range 8 {
			group.Go(func() {
				for i := range 5 {
					subject := fmt.Sprint(writer, "/", i)
					version := touch(t, d, "key", subject)
					if err := f.Await(context.Background(), version); err != nil || !b.shows(subject) || f.Applied() < version {
						t.Errorf("%s: shown %v, %v", subject, b.shows(subject), err)
					}
				}
			})
		}
		group.Wait()
	})
}

func TestAFailedSourceIsRetriedAndAwaitReturnsThen(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		failures := 1
		good := &board{}
		bad := &board{before: func() error {
			if failures > 0 {
				failures--
				return errors.New("the database went away")
			}
			return nil
		}}
		f := newFeed(d, map[string]Source{"good": good, "bad": bad})
		run(t, f)
		touch(t, d, "good", "first")
		version := touch(t, d, "bad", "second")
		if err := f.Await(within(t, 2*time.Minute), version); err != nil || !bad.shows("second") || !good.shows("first") {
			t.Errorf("good shows %v, bad shows %v, %v", good.shown, bad.shown, err)
		}
	})
}

func TestAChangeWhoseCallerDisconnectedIsStillPublished(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		held, release := make(chan struct{}), make(chan struct{})
		b := &board{before: func() error {
			select {
			case held <- struct{}{}:
				<-release
			case <-release:
			}
			return nil
		}}
		f := newFeed(d, map[string]Source{"key": b})
		run(t, f)
		version := touch(t, d, "key", "revoked")
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- f.Await(ctx, version) }()
		<-held
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) || b.shows("revoked") {
			t.Errorf("the caller that left was told %v", err)
		}
		close(release)
		if err := f.Await(within(t, 2*time.Minute), version); err != nil || !b.shows("revoked") {
			t.Errorf("shown %v, %v", b.shown, err)
		}
	})
}

// A change that commits during a fill may be missing from it: it must be applied after it.
func TestAChangeDuringFillIsPublishedAfterIt(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		touch(t, d, "key", "before")
		var during db.Version
		b := &board{filled: func() error { during = touch(t, d, "key", "during"); return nil }}
		f := newFeed(d, map[string]Source{"key": b})
		if err := f.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.Applied() >= during {
			t.Errorf("version %d is said to be in force after filling, and %d committed meanwhile", f.Applied(), during)
		}
		run(t, f)
		if err := f.Await(within(t, 2*time.Minute), during); err != nil || !b.shows("during") || b.shows("before") {
			t.Errorf("shown %v, %v", b.shown, err)
		}
	})
}

// A register holds one key, as the directory does, and can be stopped between reading and publishing a fill.
type register struct {
	db            *db.DB
	live          atomic.Bool
	read, publish chan struct{}
}

func (r *register) revoked(ctx context.Context) (bool, error) {
	n, err := db.One[int](ctx, r.db.Across("test"), `SELECT COUNT(*) FROM feed_changes WHERE subject = 'revoked'`)
	return n > 0, err
}

func (r *register) Fill(ctx context.Context) error {
	revoked, err := r.revoked(ctx)
	close(r.read)
	<-r.publish
	r.live.Store(!revoked)
	return err
}

func (r *register) Apply(ctx context.Context, _ db.Change) error {
	revoked, err := r.revoked(ctx)
	r.live.Store(!revoked)
	return err
}

func TestAnEarlierFillDoesNotReviveWhatWasRevokedSince(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := &register{db: d, read: make(chan struct{}), publish: make(chan struct{})}
		f := newFeed(d, map[string]Source{"key": r})
		run(t, f)
		var filled, revoked error
		var group sync.WaitGroup
		group.Go(func() { filled = f.Fill(context.Background()) })
		<-r.read
		told := make(chan struct{})
		version := touch(t, d, "key", "revoked")
		group.Go(func() { revoked = f.Await(context.Background(), version); close(told) })
		select {
		case <-told:
		case <-time.After(50 * time.Millisecond): // the revocation may wait for the filling to end
		}
		close(r.publish)
		group.Wait()
		if filled != nil || revoked != nil || r.live.Load() {
			t.Errorf("the revoked key is live: %v; %v, %v", r.live.Load(), filled, revoked)
		}
	})
}

func TestFillOfADatabaseThatLostCommitsGoesBackToItsHead(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := &board{}
		f := newFeed(d, map[string]Source{"key": b})
		touch(t, d, "key", "kept")
		touch(t, d, "key", "lost")
		if err := f.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := d.Across("test")
		for _, undo := range []string{`DELETE FROM feed_changes WHERE version = 2`, `UPDATE feed_head SET version = 1`} {
			if _, err := db.Exec(t.Context(), all, undo); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		run(t, f)
		if err := f.Await(within(t, 2*time.Minute), touch(t, d, "key", "new")); err != nil || !b.shows("new") {
			t.Errorf("shown %v, %v", b.shown, err)
		}
	})
}

func TestFillFillsEachSourceOnceAndPutsTheHeadInForce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		version := touch(t, d, "key", "before")
		one, other := &board{}, &board{}
		f := newFeed(d, map[string]Source{"key": one, "member": one, "price": other})
		if err := f.Fill(t.Context()); err != nil || one.fills != 1 || other.fills != 1 {
			t.Errorf("filled %d and %d times, %v", one.fills, other.fills, err)
		}
		if err := f.Await(t.Context(), version); err != nil {
			t.Error(err)
		}
	})
}

func TestAFailedFillPutsNothingInForce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		touch(t, d, "key", "before")
		boom := errors.New("boom")
		f := newFeed(d, map[string]Source{"key": &board{filled: func() error { return boom }}})
		if err := f.Fill(t.Context()); !errors.Is(err, boom) || f.Applied() != 0 {
			t.Errorf("version %d is in force, %v", f.Applied(), err)
		}
	})
}

func TestAChangeWithoutASourceDelaysNoOther(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFeed(d, nil)
		run(t, f)
		if err := f.Await(within(t, 2*time.Minute), touch(t, d, "unknown", "x")); err != nil {
			t.Error(err)
		}
		if err := f.Await(t.Context(), 0); err != nil {
			t.Errorf("a transaction without changes: %v", err)
		}
	})
}

// Many changes on a slow database take longer than the timeout of one query; they are applied all the same.
func TestManySlowChangesAreAllApplied(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := &board{before: func() error { time.Sleep(30 * time.Millisecond); return nil }}
		f := newFeed(d, map[string]Source{"key": b})
		f.timeout = time.Second
		version, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			for i := range 40 {
				tx.Touch("key", "ws_1", strconv.Itoa(i))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		run(t, f)
		if err := f.Await(within(t, 2*time.Minute), version); err != nil || !b.shows("39") {
			t.Errorf("%d of 40 are shown, %v", len(b.shown), err)
		}
	})
}

func TestPruningKeepsWhatIsRecentAndWhatIsNotPublished(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := &board{}
		f := newFeed(d, map[string]Source{"key": b})
		for _, subject := range []string{"old", "recent"} {
			touch(t, d, "key", subject)
		}
		if err := f.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		touch(t, d, "key", "old, unpublished")
		all := d.Across("test")
		if _, err := db.Exec(t.Context(), all, `UPDATE feed_changes SET at = $1 WHERE subject LIKE 'old%'`, clock.Now().Add(-retention-time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := f.prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept, err := db.Query[string](t.Context(), all, `SELECT subject FROM feed_changes ORDER BY version`)
		if want := []string{"recent", "old, unpublished"}; err != nil || !slices.Equal(kept, want) {
			t.Errorf("kept %q %v", kept, err)
		}
		if err := f.CatchUp(t.Context()); err != nil || !b.shows("old, unpublished") {
			t.Errorf("shown %q, %v", b.shown, err)
		}
	})
}

// A server that cannot apply a change for longer than changes are kept does not skip it: another one has pruned it.
func TestAChangeThatAnotherServerHasPrunedIsFilledAnew(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := &board{}
		f := newFeed(d, map[string]Source{"key": b})
		touch(t, d, "key", "first")
		if err := f.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		pruned := touch(t, d, "key", "pruned")
		last := touch(t, d, "key", "last")
		if _, err := db.Exec(t.Context(), d.Across("test"), `DELETE FROM feed_changes WHERE version = $1`, pruned); err != nil {
			t.Fatal(err)
		}
		b.filled = func() error { return errors.New("not yet") }
		if err := f.CatchUp(t.Context()); err == nil || f.Applied() >= pruned {
			t.Errorf("version %d is called in force without having been applied: %v", f.Applied(), err)
		}
		b.filled = nil
		if err := f.CatchUp(t.Context()); err != nil || f.Applied() != last || b.fills != 2 {
			t.Errorf("version %d of %d is in force after %d fills: %v", f.Applied(), last, b.fills, err)
		}
	})
}
