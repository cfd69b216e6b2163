package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sovereign/internal/store/db"
	"sovereign/internal/store/vault"
)

// takeFolder creates the data folder, for its owner alone, unless it exists. It reports whether it has created it.
func takeFolder(folder string, mode openMode, log *slog.Logger) (made bool, err error) {
	info, err := os.Stat(folder)
	if err == nil {
		if info.Mode().Perm()&0o022 != 0 {
			log.Warn("others may write into the data folder", "folder", folder, "mode", info.Mode().Perm().String())
		}
		return false, nil
	}
	if errors.Is(err, fs.ErrNotExist) && mode == mustExist {
		return false, fmt.Errorf(
			"there is no data folder %s: name it with --data-dir or --config, or make it with serve or admin bootstrap",
			folder,
		)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return false, folderError(folder, err)
	}
	return true, nil
}

func folderError(folder string, err error) error {
	if errors.Is(err, db.ErrTaken) {
		return err
	}
	for _, reason := range []error{fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR} {
		if errors.Is(err, reason) {
			return fmt.Errorf("the data folder %s is not writable: %w", folder, reason)
		}
	}
	return fmt.Errorf("data folder: %w", err)
}

// engineFile is the file of a data folder that names the engine of its data.
const engineFile = "engine"

func (s Storage) engine() db.Engine {
	if s.DatabaseURL.Empty() {
		return db.SQLite
	}
	return db.Postgres
}

// sameEngine refuses a folder whose data is in the other engine: a command without database_url would otherwise open,
// or create, an empty database beside the real one.
func (s Storage) sameEngine(mode openMode) error {
	text, err := os.ReadFile(filepath.Join(s.DataDir, engineFile))
	switch was := db.Engine(strings.TrimSpace(string(text))); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return folderError(s.DataDir, err)
	case was == db.Postgres && s.engine() == db.SQLite:
		return fmt.Errorf("the data of %s is in PostgreSQL: database_url is missing", s.DataDir)
	case was == db.SQLite && s.engine() == db.Postgres:
		return fmt.Errorf("the data of %s is in the embedded database, and database_url is set: use another data folder, or move the data with admin backup and restore", s.DataDir)
	}
	if _, err := os.Stat(filepath.Join(s.DataDir, db.CoreFile)); errors.Is(err, fs.ErrNotExist) &&
		s.engine() == db.SQLite && mode == mustExist {
		return fmt.Errorf("there is no Sovereign data in %s: name its folder with --data-dir or --config, or make it with serve or admin bootstrap", s.DataDir)
	}
	return nil
}

func (s Storage) rememberEngine() error {
	path := filepath.Join(s.DataDir, engineFile)
	want := string(s.engine()) + "\n"
	if have, err := os.ReadFile(path); err == nil && string(have) == want { //nolint:gosec // the operator's own path
		return nil
	}
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		return folderError(s.DataDir, err)
	}
	return nil
}

// journalFolder is the folder of the money journal in the data folder.
const journalFolder = "journal"

// spoolFolder is the folder of logged rows that wait for their database.
const spoolFolder = "spool"

// noJournal refuses to create a database where there is a journal: it holds the charges of a database that is missing.
func (s Storage) noJournal() error {
	folder := filepath.Join(s.DataDir, journalFolder)
	if left, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(left) > 0 {
		return fmt.Errorf("%s is the money journal of a database that is not there: bring the database back, or move the journal away", folder)
	}
	return nil
}

// root loads the root key, or creates it if fresh is set.
func (s Storage) root(fresh bool, log *slog.Logger) (*vault.Root, error) {
	root, err := vault.LoadRoot(s.RootKeyFile)
	if errors.Is(err, fs.ErrNotExist) && !fresh {
		return nil, fmt.Errorf("the root key file %s is missing; the data cannot be opened without it", s.RootKeyFile)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(s.RootKeyFile), 0o700); err != nil {
			return nil, fmt.Errorf("the root key file %s cannot be made: %w", s.RootKeyFile, cause(err))
		}
		if root, err = vault.CreateRoot(s.RootKeyFile); err != nil {
			return nil, fmt.Errorf("the root key file %s cannot be made: %w", s.RootKeyFile, cause(err))
		}
		log.Info("made a root key; keep a copy of it away from the data", "file", s.RootKeyFile, "id", root.ID())
	}
	if err != nil {
		return nil, fmt.Errorf("root key file %s: %w", s.RootKeyFile, cause(err))
	}
	if info, err := os.Stat(s.RootKeyFile); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn("the root key file can be read by others", "file", s.RootKeyFile, "mode", info.Mode().Perm().String())
	}
	return root, nil
}

// cause is a file's error without the path, which the message already names.
func cause(err error) error {
	var on *fs.PathError
	if errors.As(err, &on) {
		return on.Err
	}
	return err
}

// unlock opens the vault of a database with the root key, and migrates the database. It refuses a newer schema and a
// wrong or missing root key before it migrates, and creates a root key only for a database that has none.
func unlock(ctx context.Context, d *db.DB, s Storage, mode openMode, log *slog.Logger) (*vault.Vault, error) {
	have, known, err := d.Schemas(ctx)
	if err != nil {
		return nil, err
	}
	fresh := have == 0
	if have > known {
		return nil, fmt.Errorf("%w (schema %d; this release knows %d)", db.ErrNewer, have, known)
	}
	if !fresh {
		if fresh, err = vault.Empty(ctx, d); err != nil {
			return nil, err
		}
	}
	if fresh && mode == mustExist {
		return nil, errors.New("the database is empty: make a workspace with serve --bootstrap or admin bootstrap, or restore a backup")
	}
	root, err := s.root(fresh, log)
	if err != nil {
		return nil, err
	}
	if !fresh {
		if err := vault.Check(ctx, d, root); err != nil {
			return nil, err
		}
	}
	if err := d.Migrate(ctx); err != nil {
		return nil, err
	}
	return vault.Open(ctx, d, root)
}
