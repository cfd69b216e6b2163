package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"sovereign/internal/domain/logbook"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/meter"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/feed"
)

// state is what the data plane holds in memory and on the disk, and what brings it together with the databases.
type state struct {
	log *slog.Logger

	directory *live.Directory
	aliases   *live.Aliases
	own       *live.OwnModels // the workspaces' own models
	settings  *live.AllSettings
	limits    *live.AllLimits
	meter     *meter.Meter  // counts what is used against the limits
	keys      *live.Keyring // the workspaces' own provider keys
	feed      *feed.Feed    // puts committed changes in force; the modules register what it publishes

	funds   *funds.Funds
	journal *journal.Journal
	poster  *wallet.Poster

	spool    *spool.Spool
	recorder *capture.Recorder
	ingester *logbook.Ingester
}

// prepare opens the money journal, and makes the empty data plane with its feed.
func (s *state) prepare(on *storage) error {
	s.log = on.log
	s.directory, s.aliases = live.NewDirectory(), live.NewAliases()
	s.own = live.NewOwnModels()
	s.settings, s.keys = live.NewSettings(), live.NewKeyring()
	s.limits = live.NewLimits()
	s.meter = meter.New(s.limits)
	s.funds, s.feed = funds.New(), feed.New(on.db, on.log, nil)
	folder := on.config.DataDir
	_, absent := os.Stat(filepath.Join(folder, journalFolder))
	on.created.journal = errors.Is(absent, fs.ErrNotExist)
	disk, err := journal.Folder(filepath.Join(folder, journalFolder))
	if err != nil {
		return folderError(folder, err)
	}
	s.journal, err = journal.Open(disk)
	return err
}

// open recovers the money journal, and opens the spool of logs, which holds at most budget bytes.
func (s *state) open(ctx context.Context, on *storage, member *cluster.Member, budget int64) error {
	if err := s.recover(ctx, on, member); err != nil {
		return err
	}
	return s.openSpool(ctx, on, budget)
}

// recover posts what the last process left in the journal, before anything can be spent.
func (s *state) recover(ctx context.Context, on *storage, member *cluster.Member) error {
	s.poster = wallet.NewPoster(on.db, s.journal, s.funds, s.log)
	if s.poster.Escrow != nil {
		s.poster.Escrow.Fence = member.Fence
	}
	found, err := s.poster.Recover(ctx)
	if err != nil {
		return fmt.Errorf("recover the money journal: %w", err)
	}
	if found.Orphans > 0 || found.Torn > 0 {
		s.log.Info("recovered the money journal", "unfinished", found.Orphans,
			"charged_usd", found.Charged.String(), "torn_bytes", found.Torn)
	}
	return s.poster.RestoreRecent(ctx)
}

// openSpool opens the spool before the database of logged exchanges.
func (s *state) openSpool(ctx context.Context, on *storage, budget int64) error {
	folder := on.config.DataDir
	disk, err := journal.Folder(filepath.Join(folder, spoolFolder))
	if err != nil {
		return folderError(folder, err)
	}
	position, err := logbook.Position(ctx, on.logs, s.journal.ID)
	if err != nil {
		return err
	}
	if s.spool, err = spool.Open(disk, position, budget); err != nil {
		return err
	}
	s.recorder = capture.NewRecorder(s.settings, s.spool)
	s.ingester = logbook.NewIngester(on.logs, s.spool, s.journal.ID, s.log)
	newest, err := s.ingester.Newest(ctx)
	if err == nil {
		s.recorder.After(newest)
	}
	return err
}

// close closes the journal and the spool.
func (s *state) close() {
	if s.journal != nil {
		if err := s.journal.Close(); err != nil {
			s.log.Error("closing the journal", "err", err)
		}
	}
	if s.spool != nil {
		if err := s.spool.Close(); err != nil {
			s.log.Error("closing the spool", "err", err)
		}
	}
}
