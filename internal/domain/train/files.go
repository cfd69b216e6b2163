package train

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/store/db"
)

// compareEvery is the interval between two looks at where other nodes keep their files.
const compareEvery = time.Minute

// compareFiles says where this node keeps files, and warns when another node keeps them elsewhere, until ctx ends: what
// one of them takes the other cannot read.
func (s *Store) compareFiles(ctx context.Context, d Deps) {
	if s.Member.Single() {
		return
	}
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	warned := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(compareEvery)
		}
		if d.Serving() != nil {
			continue
		}
		other, err := s.otherFiles(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			s.Log.Warn("cannot compare where servers keep the files of training; it is tried again", "err", err)
		case other != "" && other != warned:
			s.Log.Warn("another server keeps the files of training elsewhere, and neither can read those of the other: "+
				"use one bucket (training.s3), or one folder for all of them (docs/scaling.md)", "server", other)
		}
		warned = other
	}
}

// otherFiles returns a living node that keeps files elsewhere than this one, or nothing.
func (s *Store) otherFiles(ctx context.Context) (string, error) {
	name, err := s.Artifacts.Name()
	if err != nil {
		return "", err
	}
	if _, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		return db.Upsert(ctx, tx.Across(ofAll), "node_files", []string{"node", "store"}, 1, [][]any{{s.node(), name}})
	}); err != nil {
		return "", fmt.Errorf("say where files are kept: %w", err)
	}
	other, err := db.Maybe[string](ctx, s.DB.Across(ofAll), `SELECT f.node FROM node_files f JOIN nodes n ON n.id = f.node
		WHERE NOT n.ended AND f.store <> $1 ORDER BY f.node LIMIT 1`, name)
	if err != nil || other == nil {
		return "", err
	}
	return *other, nil
}
