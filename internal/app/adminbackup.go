package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/backup"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
	"sovereign/internal/store/vault"
)

// backupKey says what a backup is encrypted with.
type backupKey struct {
	PassphraseFile string `placeholder:"FILE" help:"Encrypt with the passphrase in this file, instead of a key derived from the root key."`
}

// minPassphrase is the least number of bytes of a passphrase.
const minPassphrase = 12

// load reads the passphrase, or the root key of s.
func (k backupKey) load(s Storage) (backup.Key, error) {
	root, err := vault.LoadRoot(s.RootKeyFile)
	if k.PassphraseFile != "" {
		text, err := os.ReadFile(k.PassphraseFile)
		if err != nil {
			return backup.Key{}, err
		}
		text = bytes.TrimRight(text, "\r\n")
		if len(text) < minPassphrase {
			return backup.Key{}, fmt.Errorf(
				"the passphrase in %s has less than %d characters", k.PassphraseFile, minPassphrase,
			)
		}
		return backup.Key{Root: root, Passphrase: text}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return backup.Key{}, fmt.Errorf(
			"the root key file %s is missing: name it with --root-key-file, or use --passphrase-file", s.RootKeyFile,
		)
	}
	if err != nil {
		return backup.Key{}, fmt.Errorf("root key file %s: %w", s.RootKeyFile, cause(err))
	}
	return backup.Key{Root: root}, nil
}

type backupCommand struct {
	backupKey `embed:""`
	File      string `arg:"" help:"The file to write. It appears whole or not at all."`
	Force     bool   `help:"Replace the file if it exists."`
}

func (c *backupCommand) Run(a *admin) error {
	if _, err := os.Lstat(c.File); err == nil && !c.Force {
		return exists(c.File)
	}
	key, err := c.load(a.storage)
	if err != nil {
		return err
	}
	response, err := a.send(http.MethodGet, "/admin/backup", nil, "")
	if err != nil {
		return fmt.Errorf("the server did not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return refusal(response.StatusCode, text)
	}
	end, size, err := save(c.File, response.Body, key, c.Force)
	if err != nil {
		return err
	}
	with := "the root key, which is not in it: keep " + a.storage.RootKeyFile + " too"
	if c.PassphraseFile != "" {
		with = "the passphrase in " + c.PassphraseFile + "; a restore needs " + a.storage.RootKeyFile + " too"
	}
	_, err = fmt.Fprintf(a.out, "%s: %d rows, %d bytes, sha256 of the rows %s. It is encrypted with %s.\n",
		c.File, end.Total(), size, end.Sha256, with)
	return err
}

func exists(path string) error { return fmt.Errorf("%s exists already: --force replaces it", path) }

// save encrypts a backup into a temporary file beside path, reads it back to check that it is whole, and gives it its
// name.
func save(path string, from io.Reader, key backup.Key, replace bool) (end backup.End, size int64, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*")
	if err != nil {
		return end, 0, err
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name()) // a no-op after a rename
	}()
	sweepPartials(path)
	written := &sink{to: file}
	if err := encrypt(written, from, key); err != nil {
		if written.err != nil {
			err = fmt.Errorf("write %s: %w", path, cause(written.err))
		}
		return end, 0, err
	}
	if err := file.Sync(); err != nil {
		return end, 0, fmt.Errorf("write %s: %w", path, cause(err))
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return end, 0, err
	}
	r, err := openBackup(file, key, false)
	if err == nil {
		end, err = r.Each(func(db.Table, [][]any) error { return nil })
	}
	if err != nil {
		return end, 0, err
	}
	if err := publish(file.Name(), path, replace); err != nil {
		return end, 0, err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return end, 0, err
	}
	return end, written.size, errors.Join(folder.Sync(), folder.Close())
}

func encrypt(to io.Writer, from io.Reader, key backup.Key) error {
	out, err := backup.Encrypt(to, key)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, from); err != nil {
		return err
	}
	return out.Close()
}

// publish gives a file its name. Unless replace is set, it fails when something has the name: a link is made only if
// there is none. A file system without links leaves a moment between looking and renaming.
func publish(from, path string, replace bool) error {
	if replace {
		return os.Rename(from, path)
	}
	switch err := os.Link(from, path); {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return exists(path)
	}
	if _, err := os.Lstat(path); err == nil {
		return exists(path)
	}
	return os.Rename(from, path)
}

// openBackup decrypts a backup and reads its header. plain accepts one that is not encrypted.
func openBackup(from io.Reader, key backup.Key, plain bool) (*backup.Reader, error) {
	decrypted, err := backup.Decrypt(from, key)
	if errors.Is(err, backup.ErrPlain) && plain {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return backup.NewReader(decrypted)
}

// sweepPartials removes temporary files of backups to the same path that were killed more than a day ago.
func sweepPartials(path string) {
	left, _ := filepath.Glob(path + ".partial-*")
	for _, partial := range left {
		if info, err := os.Stat(partial); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.Remove(partial)
		}
	}
}

// A sink counts the bytes that it passes on, and keeps its error: a full disk is not a broken backup.
type sink struct {
	to   io.Writer
	size int64
	err  error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	s.size += int64(n)
	s.err = err
	return n, err
}

// backupFile is a backup that is read.
type backupFile struct {
	backupKey `embed:""`
	File      string `arg:"" help:"The backup."`
	Plain     bool   `help:"Accept a backup of an earlier release, which is neither encrypted nor authenticated."`
}

// open opens the file and the root key of that time.
func (c *backupFile) open(s Storage) (r *backup.Reader, root *vault.Root, closer io.Closer, err error) {
	file, err := os.Open(c.File)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	root, err = vault.LoadRoot(s.RootKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, fmt.Errorf(
			"the root key file %s is missing; a restore needs the root key of that time (--root-key-file)",
			s.RootKeyFile,
		)
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("root key file %s: %w", s.RootKeyFile, err)
	}
	key, err := c.load(s)
	if err != nil {
		return nil, nil, nil, err
	}
	r, err = openBackup(file, key, c.Plain)
	switch {
	case errors.Is(err, backup.ErrPlain):
		err = fmt.Errorf("%s: %w: --plain accepts it", c.File, err)
	case err != nil:
		err = fmt.Errorf("%s: %w", c.File, err)
	}
	return r, root, file, err
}

type restoreCommand struct {
	backupFile `embed:""`
	Unverified bool `help:"Restore even if the audit trail or the ledger of the backup does not verify."`
}

// Run takes the storage like a server would, and fills it from the backup instead of serving it.
func (c *restoreCommand) Run(t *terminal, parent *adminCommand) (err error) {
	ctx, s := context.Background(), parent.Storage
	from, root, file, err := c.open(s)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	on := &storage{config: s, log: slog.New(slog.DiscardHandler)}
	defer func() {
		if err != nil {
			on.takeBack()
		} else {
			on.close()
		}
	}()
	if err := on.take(ctx, mayCreate); err != nil {
		return err
	}
	says := ""
	end, err := from.Restore(ctx, on.db, func(ctx context.Context) (err error) {
		if err := s.noJournal(); err != nil {
			return err
		}
		says, err = verifyRestored(ctx, on.db, root, from.Header.Schema, "")
		if err != nil && errors.Is(err, errUnproven) && c.Unverified {
			says, err = err.Error(), nil
		}
		return err
	})
	if end.Rows != nil { // committed, whatever comes after
		on.keep()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	if err := s.rememberEngine(); err != nil {
		return err
	}
	into := s.DataDir
	if s.engine() == db.Postgres {
		into = "PostgreSQL"
	}
	_, err = fmt.Fprintf(t.out, "restored %d rows as of %s into %s; %s; start it with the same root key file, %s\n",
		end.Total(), from.Header.CreatedAt, into, says, s.RootKeyFile)
	return err
}

type checkBackupCommand struct {
	backupFile `embed:""`
	Head       string `placeholder:"FILE|HASH" help:"A head of the audit trail that was kept: fails unless the backup has it."`
}

// Run restores the backup into a temporary database, verifies it there, and deletes it.
func (c *checkBackupCommand) Run(t *terminal, parent *adminCommand) (err error) {
	ctx := context.Background()
	kept, err := keptHead(c.Head, chain.Audit)
	if err != nil {
		return err
	}
	from, root, file, err := c.open(parent.Storage)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	folder, err := os.MkdirTemp("", "sovereign-check-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	d, err := db.Open(ctx, folder, secret.Text{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	says := ""
	end, err := from.Restore(ctx, d, func(ctx context.Context) (err error) {
		says, err = verifyRestored(ctx, d, root, from.Header.Schema, kept)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	_, err = fmt.Fprintf(t.out, "%s: %d rows as of %s; %s\n", c.File, end.Total(), from.Header.CreatedAt, says)
	return err
}
