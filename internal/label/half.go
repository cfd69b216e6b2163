package label

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"sovereign/internal/db"
	"sovereign/internal/fold"
	"sovereign/internal/tenant"
)

// A Split says which half a conversation stands in. Turns of one conversation, and steps of one run, stand in the same, as does what
// was asked twice: else a judge that was shown one of them would have seen what it is measured by.
type Split struct {
	secret []byte
}

// names are the keys that an exchange is known by: as a whole, by what was asked, and by its run.
func names(c fold.Chain, trace string) (all [][]byte) {
	if c.Own != (fold.Key{}) {
		all = append(all, c.Own[:], c.Prompt[:])
	}
	if trace != "" {
		sum := sha256.Sum256([]byte("trace\n" + trace))
		all = append(all, sum[:])
	}
	return all
}

// draw is the half of what no label is related to.
func (s Split) draw(names [][]byte) (report bool) {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write(names[len(names)-1])
	return mac.Sum(nil)[0]&1 == 1
}

// TheSplit is a workspace's, made where there is none yet.
func TheSplit(ctx context.Context, d *db.DB, ws tenant.ID) (s Split, err error) {
	if s, err = openSplit(ctx, d.In(ws)); err != nil || s.secret != nil {
		return s, err
	}
	_, err = d.Tx(ctx, func(tx *db.Tx) (err error) {
		s, err = split(ctx, tx, ws)
		return err
	})
	return s, err
}

// openSplit reads a workspace's split.
func openSplit(ctx context.Context, in db.Scoped) (Split, error) {
	secret, err := db.Maybe[[]byte](ctx, in, `SELECT secret FROM label_secrets WHERE workspace_id = $1`)
	if err != nil || secret == nil {
		return Split{}, err
	}
	return Split{secret: *secret}, nil
}

// split is the workspace's, made where there is none yet.
func split(ctx context.Context, tx *db.Tx, ws tenant.ID) (Split, error) {
	s, err := openSplit(ctx, tx.In(ws))
	if err != nil || s.secret != nil {
		return s, err
	}
	s.secret = make([]byte, sha256.Size)
	_, _ = rand.Read(s.secret) // never fails
	_, err = db.Exec(ctx, tx.In(ws), `INSERT INTO label_secrets (workspace_id, secret) VALUES ($1, $2)`, s.secret)
	return s, err
}

// Half reports whether an exchange belongs to the report half: with the labels that it is related to or, without any, by lot. Where
// it ties two conversations together that were drawn apart, it goes where it can be seen: it measures nothing, then.
func (s Split) Half(ctx context.Context, in db.Scoped, c fold.Chain, trace string) (report bool, err error) {
	own := names(c, trace)
	if len(own) == 0 {
		return false, nil
	}
	known := 0
	ask := func(text string, key []byte) error {
		found, err := db.Query[bool](ctx, in, text, key)
		if err != nil {
			return fmt.Errorf("find a conversation's half: %w", err)
		}
		for _, half := range found {
			report = half && (report || known == 0)
			known++
		}
		return nil
	}
	const is, had = `SELECT report FROM label_halves WHERE workspace_id = $1 AND turn = $2 AND NOT earlier`, `SELECT report FROM label_halves WHERE workspace_id = $1 AND turn = $2 AND earlier`
	for _, key := range own {
		if err := ask(is, key); err != nil {
			return false, err
		}
	}
	for _, key := range c.Earlier {
		if err := ask(is, key[:]); err != nil {
			return false, err
		}
	}
	if c.Own != (fold.Key{}) {
		if err := ask(had, c.Own[:]); err != nil {
			return false, err
		}
	}
	if known > 0 {
		return report, nil
	}
	return s.draw(own), nil
}

// settle fixes the half of what is graded. A turn that comes before some in either half is in what judges may be shown.
func (s Split) settle(ctx context.Context, tx *db.Tx, ws tenant.ID, c fold.Chain, trace string) (report bool, err error) {
	if report, err = s.Half(ctx, tx.In(ws), c, trace); err != nil {
		return false, err
	}
	return report, s.put(ctx, tx.In(ws), c, trace, report)
}

// Shown notes that a model was shown an exchange of the tuning half to learn from: what is related to it, and graded later, measures
// nothing.
func (s Split) Shown(ctx context.Context, tx *db.Tx, ws tenant.ID, c fold.Chain, trace string) error {
	return s.put(ctx, tx.In(ws), c, trace, false)
}

// put keeps the half of an exchange.
func (Split) put(ctx context.Context, in db.Scoped, c fold.Chain, trace string, report bool) error {
	put := func(key []byte, earlier bool) error {
		_, err := db.Exec(ctx, in, `INSERT INTO label_halves (workspace_id, turn, earlier, report) VALUES ($1, $2, $3, $4)
			ON CONFLICT (workspace_id, turn, earlier) DO UPDATE SET report = (label_halves.report AND excluded.report)`, key, earlier, report)
		return err
	}
	for _, key := range names(c, trace) {
		if err := put(key, false); err != nil {
			return fmt.Errorf("keep a conversation's half: %w", err)
		}
	}
	for _, key := range c.Earlier {
		if err := put(key[:], true); err != nil {
			return fmt.Errorf("keep a conversation's half: %w", err)
		}
	}
	return nil
}
