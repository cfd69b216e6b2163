package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
)

// A Store knows which files are stored, and what refers to them.
type Store struct {
	db      *db.DB
	backend Backend
	now     func() clock.Time // clock.Now, except in tests
}

// NewStore returns a store of files whose bytes are in b.
func NewStore(d *db.DB, b Backend) *Store { return &Store{db: d, backend: b, now: clock.Now} }

// Put stores a file of a workspace. Until something refers to it, it is kept for a day.
func (s *Store) Put(ctx context.Context, ws tenant.ID, f File, from io.Reader) error {
	if err := check(f); err != nil {
		return err
	}
	if err := s.use(ctx, ws, f); err != nil { // before the bytes: a sweep must not delete them under the row
		return err
	}
	return refusal(s.backend.Put(ctx, ws, f, from))
}

// Add stores what a reader has, at most so many bytes, and returns its name. It stages the bytes on the disk, since a
// backend takes them by their name.
func (s *Store) Add(ctx context.Context, ws tenant.ID, from io.Reader, most int64) (File, error) {
	staged, err := os.CreateTemp("", "artifact-")
	if err != nil {
		return File{}, refusal(fmt.Errorf("stage an artifact: %w", err))
	}
	defer func() { _, _ = staged.Close(), os.Remove(staged.Name()) }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(staged, sum), io.LimitReader(readerOf(ctx, from), most+1))
	switch {
	case err != nil:
		return File{}, refusal(fmt.Errorf("stage an artifact: %w", err))
	case n > most:
		return File{}, fault.BodyTooLarge.New("the file is larger than %d bytes", most)
	}
	if _, err := staged.Seek(0, io.SeekStart); err != nil {
		return File{}, fmt.Errorf("stage an artifact: %w", err)
	}
	f := File{Digest(hex.EncodeToString(sum.Sum(nil))), n}
	return f, s.Put(ctx, ws, f, staged)
}

func check(f File) error {
	switch {
	case !f.Digest.Valid():
		return fault.Invalid("sha256", "must be 64 hexadecimal digits in lower case")
	case f.Bytes < 0 || f.Bytes > maxBytes:
		return fault.Invalid("bytes", "must be 0 to 1099511627776")
	}
	return nil
}

// maxBytes bounds one file.
const maxBytes = 1 << 40

// use notes that a file is about to be stored, or to be referred to.
func (s *Store) use(ctx context.Context, ws tenant.ID, f File) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		now := s.now()
		n, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO artifacts (workspace_id, digest, bytes, created_at, used_at) VALUES ($1, $2, $3, $4, $4)
			ON CONFLICT (workspace_id, digest) DO UPDATE SET used_at = excluded.used_at
			WHERE artifacts.used_at > $5`,
			f.Digest, f.Bytes, now, -now.Add(-deletesFor))
		switch {
		case err != nil:
			return fmt.Errorf("note an artifact: %w", err)
		case n == 0:
			return fault.Unavailable.New("the file %s is being deleted: send it again", f.Digest).In(time.Second)
		}
		return quota.Check(ctx, tx.In(ws), quota.Artifacts, 1)
	})
	return err
}

// Offer returns where a worker sends a file to: nil, when it is there already. The row is made first, and keeps the
// bytes for a day.
func (s *Store) Offer(ctx context.Context, ws tenant.ID, f File) (*Transfer, error) {
	if err := check(f); err != nil {
		return nil, err
	}
	if err := s.use(ctx, ws, f); err != nil {
		return nil, err
	}
	switch size, err := s.backend.Size(ctx, ws, f.Digest); {
	case err == nil && size == f.Bytes:
		return nil, nil //nolint:nilnil // it is there already
	case err != nil && !errors.Is(err, ErrMissing):
		return nil, refusal(fmt.Errorf("look for an artifact: %w", err))
	}
	to, err := s.backend.Upload(ctx, ws, f)
	if err != nil {
		return nil, refusal(fmt.Errorf("offer an upload: %w", err))
	}
	return &to, nil
}

// Download returns where a worker fetches a file.
func (s *Store) Download(ctx context.Context, ws tenant.ID, f File) (Transfer, error) {
	from, err := s.backend.Download(ctx, ws, f)
	return from, refusal(err)
}

// Name names where the bytes of all files are.
func (s *Store) Name() (string, error) { return s.backend.Name() }

// Ready refuses while no file can be stored or read.
func (s *Store) Ready(ctx context.Context) error { return refusal(s.backend.Ready(ctx)) }

// Open reads a file of a workspace. The reader fails at its end, when the bytes are not those of the file's name.
func (s *Store) Open(ctx context.Context, ws tenant.ID, d Digest) (io.ReadCloser, error) {
	if !d.Valid() {
		return nil, fault.NotFound("artifact", string(d))
	}
	from, err := s.backend.Open(ctx, ws, d)
	if errors.Is(err, ErrMissing) {
		return nil, fault.NotFound("artifact", string(d))
	}
	if err != nil {
		return nil, refusal(fmt.Errorf("open an artifact: %w", err))
	}
	return verify(from, d), nil
}

// Stored refuses a file that is not stored whole. A backend has compared the digest when it took the bytes.
func (s *Store) Stored(ctx context.Context, ws tenant.ID, f File) error {
	if err := check(f); err != nil {
		return err
	}
	switch size, err := s.backend.Size(ctx, ws, f.Digest); {
	case errors.Is(err, ErrMissing):
		return fault.InvalidParameter.New("the file %s was not uploaded", f.Digest)
	case err != nil:
		return refusal(fmt.Errorf("look for an artifact: %w", err))
	case size != f.Bytes:
		return fault.InvalidParameter.New("the file %s has %d bytes, and %d were named", f.Digest, size, f.Bytes)
	}
	return nil
}

// Refer notes that an owner refers to files, in the transaction that makes the owner. It refuses a file without a row:
// a sweep may be deleting its bytes.
func (s *Store) Refer(ctx context.Context, tx *db.Tx, ws tenant.ID, owner string, files ...File) error {
	for _, f := range files {
		n, err := db.Exec(ctx, tx.In(ws), `
			UPDATE artifacts SET used_at = $3, bytes = $4 WHERE workspace_id = $1 AND digest = $2 AND used_at > 0`,
			f.Digest, s.now(), f.Bytes)
		switch {
		case err != nil:
			return fmt.Errorf("refer to an artifact: %w", err)
		case n == 0:
			return fault.Conflict("the file %s is no longer stored: upload it again", f.Digest)
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO artifact_references (workspace_id, owner, digest) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`, owner, f.Digest); err != nil {
			return fmt.Errorf("refer to an artifact: %w", err)
		}
	}
	return nil
}

// Release notes that an owner is gone.
func (s *Store) Release(ctx context.Context, tx *db.Tx, ws tenant.ID, owner string) error {
	if _, err := db.Exec(ctx, tx.In(ws),
		`DELETE FROM artifact_references WHERE workspace_id = $1 AND owner = $2`, owner); err != nil {
		return fmt.Errorf("release artifacts: %w", err)
	}
	return nil
}

// sweepBatch bounds the files that one sweep deletes.
const sweepBatch = 1000

// Sweep deletes files that nothing has referred to for a day.
func (s *Store) Sweep(ctx context.Context) error {
	type row struct {
		WorkspaceID tenant.ID
		Digest      Digest
	}
	const unused = `used_at < $1 AND NOT EXISTS (SELECT 1 FROM artifact_references r
		WHERE r.workspace_id = artifacts.workspace_id AND r.digest = artifacts.digest)`
	old, err := db.Query[row](ctx, s.db.Across("unused files of all workspaces are deleted"), `
		SELECT workspace_id, digest FROM artifacts WHERE `+unused+` ORDER BY used_at LIMIT $2`,
		s.now().Add(-unusedFor), sweepBatch)
	if err != nil {
		return fmt.Errorf("find unused artifacts: %w", err)
	}
	for _, f := range old {
		if err := s.sweep(ctx, f.WorkspaceID, f.Digest); err != nil {
			return err
		}
	}
	return nil
}

// deletesFor is more than a deletion of bytes takes. A row that says so for longer is of a server that was killed.
const deletesFor = 10 * time.Minute

// sweep deletes one file. The row says first that it is being deleted, as a negative time, so that no upload begins and
// nothing refers to it meanwhile; then its bytes go, and then the row. No transaction is open while a store is waited
// for.
func (s *Store) sweep(ctx context.Context, ws tenant.ID, d Digest) error {
	begun := -s.now()
	marked, err := s.alter(ctx, ws, `
		UPDATE artifacts SET used_at = $3 WHERE workspace_id = $1 AND digest = $2 AND used_at < $4 AND NOT EXISTS (
			SELECT 1 FROM artifact_references r WHERE r.workspace_id = $1 AND r.digest = $2)`,
		d, begun, s.now().Add(-unusedFor))
	if err != nil || !marked {
		return err
	}
	if err := s.backend.Delete(ctx, ws, d); err != nil {
		return fmt.Errorf("delete an unused artifact: %w", err)
	}
	_, err = s.alter(
		ctx, ws, `DELETE FROM artifacts WHERE workspace_id = $1 AND digest = $2 AND used_at = $3`, d, begun,
	)
	return err
}

// alter changes at most one row, and reports whether it did.
func (s *Store) alter(ctx context.Context, ws tenant.ID, query string, args ...any) (changed bool, err error) {
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := db.Exec(ctx, tx.In(ws), query, args...)
		changed = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("delete an unused artifact: %w", err)
	}
	return changed, nil
}
