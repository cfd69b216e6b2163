package chain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/store/db"
)

// Keys signs heads with the server's key in force, and verifies that a head was signed by it. Both read the key in s.
type Keys interface {
	SignHead(ctx context.Context, s db.Scoped, document []byte) (keyID, jws string, err error)
	VerifyHead(ctx context.Context, s db.Scoped, document []byte, keyID, jws string) error
}

// ErrHead reports a signed head that is missing or was changed.
var ErrHead = errors.New("the signed head is not genuine")

// errMoved reports that another process has sealed meanwhile.
var errMoved = errors.New("another process has sealed")

// batchSize bounds how many links one transaction seals.
const batchSize = 2000

// A Sealer seals the chains of a database. Several processes may seal at once: the head's row decides which of them
// commits.
type Sealer struct {
	db   *db.DB
	keys Keys
	log  *slog.Logger

	mu     sync.Mutex    // serializes sealing
	sealed map[Name]Head // as this process has left them
	logged map[Name]Head // as the log has them
	failed string        // the last error that was logged; Run's
}

// NewSealer returns a sealer of the chains in d, whose heads keys sign.
func NewSealer(d *db.DB, keys Keys, log *slog.Logger) *Sealer {
	return &Sealer{db: d, keys: keys, log: log, sealed: map[Name]Head{}, logged: map[Name]Head{}}
}

const (
	// sealEvery bounds how long a change is not covered by a signed head.
	sealEvery = 5 * time.Second
	// logEvery is how often the heads are logged, so that they can be compared with what a log store has kept.
	logEvery = time.Hour
	// sealTimeout bounds one batch: a connection whose packets are dropped would otherwise block until TCP gives up.
	sealTimeout = time.Minute
)

// Run seals every few seconds until ctx ends, while may returns nil. It logs the heads now and then.
func (s *Sealer) Run(ctx context.Context, may func() error) {
	tick := time.NewTicker(sealEvery)
	defer tick.Stop()
	var logged time.Time
	for {
		if may() == nil {
			s.round(ctx)
			if time.Since(logged) >= logEvery && s.logHeads() {
				logged = time.Now()
			}
		}
		select {
		case <-ctx.Done():
			s.logHeads()
			return
		case <-tick.C:
		}
	}
}

// round seals once. It logs an error when it is another one than the last.
func (s *Sealer) round(ctx context.Context) {
	err := s.Seal(ctx)
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != s.failed && text != "" {
		s.log.Error("the audit trail or the ledger cannot be sealed", "err", err)
	}
	s.failed = text
}

// logHeads logs the heads that have changed. It reports whether there was one.
func (s *Sealer) logHeads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	for _, name := range Names {
		if h := s.sealed[name]; h != s.logged[name] {
			s.log.Info("chain head", "chain", name, "seq", h.Seq, "hash", h.Hash, "since", h.Since.String())
			s.logged[name], changed = h, true
		}
	}
	return changed
}

// Seal gives every link that was committed before the call its place, and signs the heads. The first call on a
// database begins its chains, with the rows that are there.
func (s *Sealer) Seal(ctx context.Context) error {
	return errors.Join(s.sealEach(ctx)...)
}

// sealEach seals every chain, and returns the errors. A chain that cannot be sealed does not keep the others from it.
func (s *Sealer) sealEach(ctx context.Context) (failed []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range Names {
		if err := s.sealAll(ctx, name); err != nil {
			failed = append(failed, fmt.Errorf("seal the %s chain: %w", name, err))
		}
	}
	return failed
}

// sealAll seals all links of a chain.
func (s *Sealer) sealAll(ctx context.Context, name Name) error {
	for {
		n, err := s.seal(ctx, name)
		if errors.Is(err, errMoved) {
			continue
		}
		if err != nil || n < batchSize {
			return err
		}
	}
}

// seal seals one batch of links, and returns how many.
func (s *Sealer) seal(ctx context.Context, name Name) (int, error) {
	across := s.db.Across(scope)
	head, err := readHead(ctx, across, name)
	if err != nil {
		return 0, err
	}
	if head == nil {
		if err := s.begin(ctx, name); err != nil { // as long as it takes
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	// The links are read before the transaction, which therefore does not conflict with writers of new ones. Nobody
	// changes them unless the head moves.
	pending, err := readUnsealed(ctx, across, name, batchSize)
	if err != nil {
		return 0, err
	}
	if head != nil && len(pending) == 0 && s.sealed[name] == head.Head {
		return 0, nil
	}
	var sealed Head
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		sealed, err = s.extend(ctx, tx.Across(scope), name, head, pending)
		return err
	})
	if err != nil {
		return 0, err
	}
	if before := s.sealed[name]; sealed.Seq < before.Seq || sealed.Since != before.Since && before.Seq > 0 {
		s.log.Error("a chain was shortened or began anew: compare it with a head that you have kept", "chain", name,
			"had", before.Seq, "has", sealed.Seq)
	}
	s.sealed[name] = sealed
	return len(pending), nil
}

// extend appends links to the chain that ends with head, which is as it was read, and signs the new head.
func (s *Sealer) extend(
	ctx context.Context, across db.Scoped, name Name, head *SignedHead, links []storedLink,
) (Head, error) {
	found, err := readHead(ctx, across, name)
	if err != nil {
		return Head{}, err
	}
	last, at := Hash{}, Head{Object: "chain_head", Chain: name, Since: now()}
	switch {
	case (found == nil) != (head == nil), found != nil && found.Head != head.Head:
		return Head{}, errMoved
	case found != nil:
		if last, err = found.verify(ctx, across, s.keys); err != nil {
			return Head{}, err
		}
		if at = found.Head; len(links) == 0 {
			return at, nil
		}
	}
	plain, hashes := make([]Link, len(links)), make([]Hash, len(links))
	for i, l := range links {
		plain[i] = l.link()
		last = next(last, name, at.Seq+int64(i)+1, plain[i])
		hashes[i] = last
	}
	if err := place(ctx, across, name, at.Seq, plain, hashes); err != nil {
		return Head{}, err
	}
	at.Seq, at.Hash, at.At = at.Seq+int64(len(links)), last.String(), now()
	return at, sign(ctx, across, s.keys, at)
}

// now is the time in the precision of a document.
func now() clock.Time { return clock.Of(time.Now().Truncate(time.Millisecond)) }

// sign signs a head and stores it.
func sign(ctx context.Context, s db.Scoped, keys Keys, h Head) error {
	document, err := json.Marshal(h)
	if err != nil {
		return err
	}
	signed := SignedHead{Head: h, document: document}
	if signed.KeyID, signed.JWS, err = keys.SignHead(ctx, s, document); err != nil {
		return err
	}
	return writeHead(ctx, s, signed)
}

// begin links the rows that have no link: those from before the chain. Rows that are written meanwhile come with
// theirs. A begin that is killed is completed by the next one.
func (s *Sealer) begin(ctx context.Context, name Name) error {
	var missing []Link
	err := s.db.Snapshot(ctx, scope, func(all db.Scoped) error {
		stored, err := readLinks(ctx, all, name)
		if err != nil {
			return err
		}
		if len(stored) > 0 && stored[0].Seq != nil {
			return fmt.Errorf("%w: it is missing, and the chain has links", ErrHead)
		}
		counted, err := countRows(ctx, all, name)
		if err != nil {
			return err
		}
		found, err := digests(ctx, all, name, counted)
		if err != nil {
			return err
		}
		for _, l := range stored {
			delete(found, l.Subject)
		}
		missing = missing[:0]
		for _, subject := range slices.Sorted(maps.Keys(found)) {
			missing = append(missing, found[subject].link(subject))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(missing, batchSize) {
		if _, err := s.db.Tx(ctx, func(tx *db.Tx) error {
			return insert(ctx, tx.Across(scope), name, some)
		}); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		s.log.Info("a chain begins with the rows that are there", "chain", name, "entries", len(missing))
	}
	return nil
}

// Snapshot seals, and then runs fn on one consistent state of the database, with the keys that sign its heads.
func (s *Sealer) Snapshot(ctx context.Context, fn func(all db.Scoped, keys Keys) error) error {
	for _, err := range s.sealEach(ctx) {
		if !errors.Is(err, ErrHead) { // verifying reports a head that is not genuine
			return err
		}
	}
	return s.db.Snapshot(ctx, scope, func(all db.Scoped) error { return fn(all, s.keys) })
}

// Heads returns the signed heads of the chains that have begun.
func (s *Sealer) Heads(ctx context.Context) (all []SignedHead, err error) {
	for _, name := range Names {
		h, err := readHead(ctx, s.db.Across(scope), name)
		if err != nil {
			return nil, fmt.Errorf("read the head of %s: %w", name, err)
		}
		if h != nil {
			all = append(all, *h)
		}
	}
	return all, nil
}

// Genuine returns the heads that the key in force has signed.
func Genuine(ctx context.Context, s db.Scoped, keys Keys) (all []SignedHead, err error) {
	for _, name := range Names {
		h, err := readHead(ctx, s, name)
		if err == nil && h != nil {
			_, err = h.verify(ctx, s, keys)
		}
		switch {
		case errors.Is(err, ErrHead):
		case err != nil:
			return nil, err
		case h != nil:
			all = append(all, *h)
		}
	}
	return all, nil
}

// Resign signs heads with the key in force, which has changed. A head that was not genuine before must not be passed.
func Resign(ctx context.Context, s db.Scoped, keys Keys, heads []SignedHead) error {
	for _, h := range heads {
		if err := sign(ctx, s, keys, h.Head); err != nil {
			return err
		}
	}
	return nil
}
