package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sovereign/internal/domain/serving"
	"sovereign/internal/plane/engines"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// Where several nodes share an engine, what it has loaded is in the database. A node pins a version that it uses: the
// row is made when the engine has it, and a version that some living node pins is not unloaded. A node loads and
// unloads while no other does, and asks the engine what it has: nobody needs to know what a dead node was about to do.
// A node keeps a pin for a minute after its last request, or until another needs the place. So a request reads no row
// while its node has the pin.

// pins are the versions that this node has pinned.
type pins struct {
	pool *Pool

	mu     sync.Mutex
	life   cluster.Life
	pinned map[place]*pin
}

// A place is a version in a replica.
type place struct{ replica, version string }

// A pin is a version that this node uses, or is about to.
type pin struct {
	ready   chan struct{} // closed when it is loaded, or could not be
	err     error
	users   int
	used    time.Time
	leaving bool // it is being given up: a caller that needs it waits for gone
	gone    chan struct{}
	release func() // lets go of its files
}

func newPins(p *Pool) *pins { return &pins{pool: p, pinned: map[place]*pin{}} }

const (
	keepPinned = time.Minute            // after its last request
	pinAgain   = 200 * time.Millisecond // between two looks for a place
)

func (s *pins) member() serving.Member { return s.pool.Groups.Member }

// use has a replica load a version, and keeps it until done is called.
func (s *pins) use(ctx context.Context, r engines.Replica, version string) (done func(), err error) {
	at := place{r.ID, version}
	for {
		p, wait := s.take(r, at) //nolint:contextcheck // a load goes on when the request has left
		select {
		case <-wait:
		case <-ctx.Done():
			if p != nil {
				s.leave(p)
			}
			return nil, ctx.Err()
		}
		switch {
		case p == nil: // it was being given up
		case p.err != nil:
			s.leave(p)
			return nil, p.err
		default:
			return func() { s.leave(p) }, nil
		}
	}
}

// take counts a use of a pin, which is begun where there is none. A nil pin is to be taken again after wait.
func (s *pins) take(r engines.Replica, at place) (p *pin, wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if life := s.member().Life(); life != s.life {
		s.release() // the others count none of the former life
		s.life, s.pinned = life, map[place]*pin{}
	}
	p = s.pinned[at]
	if p != nil && p.leaving {
		return nil, p.gone
	}
	if p == nil {
		p = &pin{ready: make(chan struct{}), gone: make(chan struct{})}
		s.pinned[at] = p
		go s.begin(r, at, p, s.life)
	}
	p.users++
	return p, p.ready
}

// release lets go of the files of versions that are loaded and not used.
func (s *pins) release() {
	for _, p := range s.pinned {
		if p.users == 0 && p.release != nil {
			p.release()
		}
	}
}

func (s *pins) leave(p *pin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.users--
	p.used = s.pool.now()
}

// begin has a replica load a version, and pins it.
func (s *pins) begin(r engines.Replica, at place, p *pin, life cluster.Life) {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	loader := &remote{pool: s.pool, base: r.BaseURL}
	var err error
	for fits := false; !fits && err == nil; {
		if fits, err = s.alone(ctx, at.replica, life, func() (bool, error) {
			return s.load(ctx, loader, at, p, life)
		}); !fits && err == nil {
			select {
			case <-time.After(pinAgain):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.err = err; err != nil && s.pinned[at] == p {
		delete(s.pinned, at) // the next request tries again
	}
	p.used = s.pool.now()
	close(p.ready)
}

// alone calls f while no other node loads or unloads versions of a replica. It reports false while one does.
func (s *pins) alone(ctx context.Context, replica string, life cluster.Life, f func() (bool, error)) (bool, error) {
	var n int64
	_, err := s.pool.DB.Tx(ctx, func(tx *db.Tx) (err error) {
		if err := s.member().Fence(ctx, tx); err != nil {
			return err
		}
		n, err = db.Exec(ctx, tx.Across(ofAll), `INSERT INTO engine_loading (replica, node, epoch) VALUES ($1, $2, $3)
			ON CONFLICT (replica) DO UPDATE SET node = excluded.node, epoch = excluded.epoch
			WHERE `+cluster.Over("engine_loading.node", "engine_loading.epoch"), replica, life.Node, life.Epoch)
		return err
	})
	if err != nil || n == 0 {
		return false, err
	}
	did, err := f()
	_, failed := s.pool.DB.Tx(context.WithoutCancel(ctx), func(tx *db.Tx) error {
		_, err := db.Exec(ctx, tx.Across(ofAll), `DELETE FROM engine_loading WHERE replica = $1 AND node = $2 AND epoch = $3`,
			replica, life.Node, life.Epoch)
		return err
	})
	return did, errors.Join(err, failed)
}

const ofAll = "engines serve all workspaces"

// load loads a version unless the engine has it, and pins it. It reports false when there is no place: then the nodes
// that pin others are asked to let go of those that they do not use.
func (s *pins) load(ctx context.Context, engine *remote, at place, p *pin, life cluster.Life) (bool, error) {
	pinned, err := db.Query[string](ctx, s.pool.DB.Across(ofAll), `SELECT DISTINCT version FROM engine_adapters
		WHERE replica = $1 AND NOT `+cluster.Over("engine_adapters.node", "engine_adapters.epoch"), at.replica)
	if err != nil {
		return false, fmt.Errorf("read what an engine has loaded: %w", err)
	}
	if !slices.Contains(pinned, at.version) && len(pinned) >= s.pool.Slots {
		return false, s.recall(ctx, at.replica)
	}
	has, err := engine.list(ctx)
	if err != nil {
		return false, err
	}
	for _, id := range has {
		if len(has) >= s.pool.Slots && id != at.version && !slices.Contains(pinned, id) {
			if err := engine.unload(ctx, id); err != nil {
				return false, err
			}
		}
	}
	if p.release, err = s.hold(
		ctx, engine, at.version, slices.Contains(slices.Concat(pinned, has), at.version),
	); err != nil {
		return false, err
	}
	_, err = s.pool.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := s.member().Fence(ctx, tx); err != nil {
			return err
		}
		return db.Upsert(ctx, tx.Across(ofAll), "engine_adapters", []string{
			"replica", "version", "node", "epoch", "recall",
		}, 3,
			[][]any{{at.replica, at.version, life.Node, life.Epoch, false}})
	})
	if err != nil {
		p.release()
		return false, fmt.Errorf("pin a version: %w", err)
	}
	return true, nil
}

// hold keeps the files of a version, and has the engine load it unless it has.
func (s *pins) hold(ctx context.Context, engine *remote, version string, loaded bool) (release func(), err error) {
	if !loaded {
		return engine.load(ctx, version)
	}
	s.pool.mu.Lock()
	v := s.pool.versions[version]
	s.pool.mu.Unlock()
	if v == nil {
		return func() {}, nil
	}
	_, release, err = s.pool.Folders.Get(ctx, v.WorkspaceID, version)
	return release, err
}

// recall asks all nodes to let go of the versions of a replica that they do not use.
func (s *pins) recall(ctx context.Context, replica string) error {
	_, err := s.pool.DB.Tx(ctx, func(tx *db.Tx) error {
		_, err := db.Exec(ctx, tx.Across(ofAll),
			`UPDATE engine_adapters SET recall = TRUE WHERE replica = $1 AND NOT recall`, replica)
		return err
	})
	if err != nil {
		return fmt.Errorf("recall versions: %w", err)
	}
	s.pool.look() // our own
	return nil
}

// tend gives up the pins that are not used: after a while, and at once when another needs the place.
func (s *pins) tend(ctx context.Context) error {
	if s == nil {
		return nil
	}
	life := s.member().Life()
	recalled, err := db.Query[struct{ Replica, Version string }](ctx, s.pool.DB.Across(ofAll),
		`SELECT replica, version FROM engine_adapters WHERE node = $1 AND epoch = $2 AND recall`, life.Node, life.Epoch)
	if err != nil {
		return fmt.Errorf("read which versions are recalled: %w", err)
	}
	wanted := map[place]bool{}
	for _, r := range recalled {
		wanted[place{r.Replica, r.Version}] = true
	}
	var all []error
	for at, p := range s.idle(life, wanted) {
		all = append(all, s.giveUp(ctx, at, p, life))
	}
	for at := range wanted {
		if s.unknown(at) { // of an earlier process, or of a load that was not finished
			all = append(all, s.forget(ctx, at, life))
		}
	}
	return errors.Join(all...)
}

func (s *pins) unknown(at place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pinned[at] == nil
}

// idle returns the pins to give up, which nobody can use from now on.
func (s *pins) idle(life cluster.Life, recalled map[place]bool) map[place]*pin {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[place]*pin{}
	if s.life != life {
		return all
	}
	for at, p := range s.pinned {
		select {
		case <-p.ready:
		default:
			continue // it is being loaded
		}
		if p.users == 0 && (p.leaving || recalled[at] || s.pool.now().Sub(p.used) >= keepPinned) {
			p.leaving = true
			all[at] = p
		}
	}
	return all
}

func (s *pins) giveUp(ctx context.Context, at place, p *pin, life cluster.Life) error {
	if err := s.forget(ctx, at, life); err != nil {
		return err // it stays, and nobody uses it until it is given up
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pinned[at] == p {
		delete(s.pinned, at)
	}
	close(p.gone)
	p.release()
	return nil
}

// sweep deletes what nodes have left whose lives are over.
func (s *pins) sweep(ctx context.Context) error {
	if s == nil {
		return nil
	}
	for _, table := range []string{"engine_adapters", "engine_loading", "engine_uses"} {
		_, err := s.pool.DB.Tx(ctx, func(tx *db.Tx) error {
			_, err := db.Exec(ctx, tx.Across(ofAll),
				`DELETE FROM `+table+` WHERE `+cluster.Over(table+".node", table+".epoch"))
			return err
		})
		if err != nil {
			return fmt.Errorf("delete what servers that are gone have used: %w", err)
		}
	}
	return nil
}

// forget deletes the row of a pin.
func (s *pins) forget(ctx context.Context, at place, life cluster.Life) error {
	_, err := s.pool.DB.Tx(ctx, func(tx *db.Tx) error {
		_, err := db.Exec(ctx, tx.Across(ofAll),
			`DELETE FROM engine_adapters WHERE replica = $1 AND version = $2 AND node = $3 AND epoch = $4`,
			at.replica, at.version, life.Node, life.Epoch)
		return err
	})
	if err != nil {
		return fmt.Errorf("give up a version: %w", err)
	}
	return nil
}
