package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
	"sovereign/internal/store/vault"
)

// An openMode says whether an instance may be opened where there is none yet.
type openMode bool

const (
	mayCreate openMode = true  // a server, or a bootstrap: what is missing is created
	mustExist openMode = false // an admin command: a mistyped folder must not become an installation
)

// storage is the data folder and the databases.
type storage struct {
	config Storage
	log    *slog.Logger

	folder *db.FolderLock
	db     *db.DB
	logs   *db.DB
	start  func() // gives the lock of the start back; nil when it is not held
	vault  *vault.Vault
	sealer *chain.Sealer

	created created
}

// created is what this process has created, so that a failed start can take it back.
type created struct{ folder, database, journal bool }

// open takes the data folder and the databases, brings their schemas up to date, and unlocks them with the root key.
func (s *storage) open(ctx context.Context, mode openMode) (err error) {
	if err := s.take(ctx, mode); err != nil {
		return err
	}
	defer s.endStart()
	if s.vault, err = unlock(ctx, s.db, s.config, mode, s.log); err != nil {
		return err
	}
	if s.logs, err = db.OpenLogs(ctx, s.config.DataDir, s.config.DatabaseURL); err != nil {
		return err
	}
	if err := s.logs.Migrate(ctx); err != nil {
		return fmt.Errorf("the database of logs: %w", err)
	}
	s.sealer = chain.NewSealer(s.db, s.vault, s.log)
	return s.config.rememberEngine()
}

// take locks the folder, opens the database and takes the lock of a start. It creates what may be created.
func (s *storage) take(ctx context.Context, mode openMode) (err error) {
	c := s.config
	if c.engine() == db.Postgres { // a server that is not there is found before a folder is created
		if s.db, err = db.Open(ctx, c.DataDir, c.DatabaseURL); err != nil {
			return err
		}
	}
	if s.created.folder, err = takeFolder(c.DataDir, mode, s.log); err != nil {
		return err
	}
	if s.folder, err = db.LockFolder(c.DataDir); err != nil {
		return folderError(c.DataDir, err)
	}
	if err := c.sameEngine(mode); err != nil {
		return err
	}
	if c.engine() == db.SQLite {
		if err := s.openEmbedded(ctx); err != nil {
			return err
		}
	}
	s.start, err = s.db.LockStart(ctx)
	return err
}

// endStart lets other servers change the schema.
func (s *storage) endStart() {
	if s.start != nil {
		s.start()
	}
	s.start = nil
}

// openEmbedded opens the embedded database. The root key of a new one is created before it.
func (s *storage) openEmbedded(ctx context.Context) (err error) {
	c := s.config
	if _, err := os.Stat(filepath.Join(c.DataDir, db.CoreFile)); errors.Is(err, fs.ErrNotExist) {
		if err := c.noJournal(); err != nil {
			return err
		}
		if _, err := c.root(true, s.log); err != nil {
			return err
		}
		s.created.database = true
	}
	s.db, err = db.Open(ctx, c.DataDir, c.DatabaseURL)
	return err
}

// keep makes what was created an installation: a later failure does not take it back any more.
func (s *storage) keep() { s.created = created{} }

// takeBack closes what was opened and removes what was created on the way.
func (s *storage) takeBack() {
	s.release()
	s.removeCreated()
	s.unlock()
	s.removeFolder()
}

// close gives the databases and the folder free.
func (s *storage) close() {
	s.release()
	s.unlock()
}

// release gives the databases free for another process. Repeating it is a no-op.
func (s *storage) release() {
	s.endStart()
	for _, d := range []*db.DB{s.db, s.logs} {
		if d == nil {
			continue
		}
		if err := d.Close(); err != nil {
			s.log.Warn("closing the database", "err", err)
		}
	}
	s.db, s.logs = nil, nil
}

// unlock gives the data folder free.
func (s *storage) unlock() {
	if s.folder != nil {
		_ = s.folder.Release()
	}
}

// removeCreated removes the files that this process has created. The databases are closed.
func (s *storage) removeCreated() {
	folder := s.config.DataDir
	if s.created.database {
		for _, name := range []string{db.CoreFile, db.LogsFile} {
			for _, file := range []string{"", "-wal", "-shm"} {
				_ = os.Remove(filepath.Join(folder, name+file))
			}
		}
	}
	if s.created.journal { // it is empty: nothing was served
		_ = os.RemoveAll(filepath.Join(folder, journalFolder))
		_ = os.RemoveAll(filepath.Join(folder, spoolFolder))
	}
	if s.created.folder && s.folder != nil {
		_ = os.Remove(filepath.Join(folder, db.LockFile)) // while this process holds it
	}
}

// removeFolder removes the data folder if this process has created it and nothing is in it.
func (s *storage) removeFolder() {
	if s.created.folder {
		_ = os.Remove(s.config.DataDir)
	}
}
