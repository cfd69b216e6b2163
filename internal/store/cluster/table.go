package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/store/db"
)

// A table is the rows of all nodes. Its connections are its own: a renewal waits for no other statement.
type table struct{ own, db *db.DB }

// others is how many connections there are beside that of the renewal: to look at the other nodes, and to end them,
// which may wait for a transaction.
const others = 3

func (t table) close() error { return errors.Join(t.own.Close(), t.db.Close()) }

func (t table) all() db.Scoped { return t.db.Across("nodes belong to no workspace") }

// Errors of a membership that cannot go on.
var (
	// ErrForgotten refuses a node whose disk an operator has declared gone.
	ErrForgotten = errors.New("an operator has declared this server's disk gone (admin node forget): its data folder " +
		"cannot be used any more; start with a new, empty data_dir")
	// ErrCopied stops a server whose data folder is in use elsewhere.
	ErrCopied = errors.New("another process has joined with a copy of this data folder: this one stops; give every " +
		"server a data folder of its own")
)

// errGone reports that no live row has this life.
var errGone = errors.New("the life is over")

// about is what operators see of a node.
type about struct{ name, address, release, settings string }

// join begins the next life of a node. It waits for the transactions that its former life has fenced. known is the
// newest life that this process has had: after a database that lost its last commits, the next is still a new one. at
// is the time of this attempt. A drain that an operator requested stays requested when the same process joins again.
func (t table) join(ctx context.Context, known Life, at clock.Time, a about) (life Life, beat int64, err error) {
	_, err = t.own.Tx(ctx, func(tx *db.Tx) error {
		all := tx.Across("nodes belong to no workspace")
		former, err := db.Maybe[struct {
			Epoch     int64
			Beat      int64
			Forgotten bool
		}](ctx, all, `SELECT epoch, beat, forgotten FROM nodes WHERE id = $1 FOR UPDATE`, known.Node)
		if err != nil {
			return err
		}
		if former == nil {
			life, beat = Life{known.Node, known.Epoch + 1}, 0
			_, err := db.Exec(ctx, all, `INSERT INTO nodes (id, epoch, beat, applied, serving, draining, ended, forgotten,
				name, address, release, settings, joined_at, seen_at)
				VALUES ($1, $2, 0, -1, FALSE, FALSE, FALSE, FALSE, $3, $4, $5, $6, $7, $7)`,
				known.Node, life.Epoch, a.name, a.address, a.release, a.settings, at)
			return err
		}
		if former.Forgotten {
			return ErrForgotten
		}
		life, beat = Life{known.Node, max(former.Epoch, known.Epoch) + 1}, former.Beat+1
		_, err = db.Exec(ctx, all, `UPDATE nodes SET epoch = $2, beat = $3, applied = -1, serving = FALSE,
			draining = draining AND epoch = $9, ended = FALSE, name = $4, address = $5, release = $6, settings = $7,
			joined_at = $8, seen_at = $8
			WHERE id = $1`, known.Node, life.Epoch, beat, a.name, a.address, a.release, a.settings, at, known.Epoch)
		return err
	})
	return life, beat, err
}

// A renewal is the answer to a beat.
type renewal struct {
	Beat     int64
	Draining bool
	Head     db.Version
	Nodes    string // the live ones, in JSON
}

// renew renews the lease of a life, or fails with errGone. beat is the newest that the database has acknowledged. If
// the row has an older one, the database has lost a commit, and renew fails: otherwise a renewal whose answer was lost
// could hide that.
func (t table) renew(
	ctx context.Context, life Life, beat int64, applied db.Version, settings string,
) (renewal, []row, error) {
	found, err := db.Maybe[renewal](ctx, t.own.Across("nodes belong to no workspace"), `
		UPDATE nodes SET beat = beat + 1, applied = $4, seen_at = $5, settings = $6
		WHERE id = $1 AND epoch = $2 AND NOT ended AND beat >= $3
		RETURNING beat, draining, (SELECT version FROM feed_head WHERE id = 1) AS head,
			(SELECT CAST(COALESCE(JSON_AGG(JSON_BUILD_OBJECT('ID', o.id, 'Epoch', o.epoch, 'Beat', o.beat,
				'Applied', o.applied, 'Serving', o.serving,
				'Release', o.release, 'Settings', o.settings)), '[]') AS TEXT) FROM nodes o WHERE NOT o.ended) AS nodes`,
		life.Node, life.Epoch, beat, applied, clock.Now(), settings)
	if err == nil && found == nil {
		err = errGone
	}
	if err != nil {
		return renewal{}, nil, err
	}
	var rows []row
	err = json.Unmarshal([]byte(found.Nodes), &rows)
	return *found, rows, err
}

// lost says why a life is over: err is nil when the node may begin another. It returns the node's newest life, and
// whether the row is behind newest and beat, which the database had acknowledged. tried is the time of this process's
// last attempt to join, whose answer may have been lost: a newer life of that time is its own.
func (t table) lost(
	ctx context.Context, newest Life, beat int64, tried clock.Time,
) (life Life, behind bool, err error) {
	found, err := db.Maybe[struct {
		Epoch     int64
		Beat      int64
		Forgotten bool
		JoinedAt  clock.Time
	}](ctx, t.all(), `SELECT epoch, beat, forgotten, joined_at FROM nodes WHERE id = $1`, newest.Node)
	switch {
	case err != nil:
		return newest, false, err
	case found == nil:
		return newest, true, nil
	case found.Forgotten:
		return newest, false, ErrForgotten
	case found.Epoch > newest.Epoch && found.JoinedAt != tried:
		return newest, false, ErrCopied
	}
	behind = found.Epoch < newest.Epoch || found.Epoch == newest.Epoch && found.Beat < beat
	newest.Epoch = max(newest.Epoch, found.Epoch)
	return newest, behind, nil
}

// serve says that a life serves, so that changes wait for it, or fails with errGone.
func (t table) serve(ctx context.Context, life Life, applied db.Version) error {
	n, err := db.Exec(ctx, t.all(),
		`UPDATE nodes SET serving = TRUE, applied = $3 WHERE id = $1 AND epoch = $2 AND NOT ended`, life.Node, life.Epoch, applied)
	if err == nil && n == 0 {
		err = errGone
	}
	return err
}

// head is the newest version of change.
func (t table) head(ctx context.Context) (db.Version, error) {
	return db.One[db.Version](ctx, t.all(), `SELECT version FROM feed_head WHERE id = 1`)
}

// look reads the live nodes.
func (t table) look(ctx context.Context) ([]row, error) {
	return db.Query[row](
		ctx, t.all(), `SELECT id, epoch, beat, applied, serving, release, settings FROM nodes WHERE NOT ended`,
	)
}

// end ends the life of a silent node, unless its row has changed after all. It waits for the transactions that the life
// has fenced.
func (t table) end(ctx context.Context, r row) (ended bool, err error) {
	_, err = t.db.Tx(ctx, func(tx *db.Tx) error {
		ended = false
		all := tx.Across("nodes belong to no workspace")
		found, err := db.Maybe[int64](ctx, all, `SELECT epoch FROM nodes
			WHERE id = $1 AND epoch = $2 AND beat = $3 AND NOT ended FOR UPDATE`, r.ID, r.Epoch, r.Beat)
		if err != nil || found == nil {
			return err
		}
		ended = true
		return endLife(ctx, all, Life{r.ID, r.Epoch})
	})
	return ended, err
}

// leave ends a life.
func (t table) leave(ctx context.Context, life Life) error {
	_, err := t.db.Tx(ctx, func(tx *db.Tx) error {
		all := tx.Across("nodes belong to no workspace")
		_, err := db.Maybe[int64](
			ctx, all, `SELECT epoch FROM nodes WHERE id = $1 AND epoch = $2 FOR UPDATE`, life.Node, life.Epoch,
		)
		if err != nil {
			return err
		}
		return endLife(ctx, all, life)
	})
	return err
}

func endLife(ctx context.Context, all db.Scoped, life Life) error {
	_, err := db.Exec(
		ctx, all, `UPDATE nodes SET ended = TRUE, serving = FALSE WHERE id = $1 AND epoch = $2`, life.Node, life.Epoch,
	)
	if err != nil {
		return fmt.Errorf("end node %s: %w", life.Node, err)
	}
	return nil
}

// fence fails with ErrFenced when a life is over. Renewals go on beside it: the lock conflicts with those of end, leave
// and join alone.
func fence(ctx context.Context, tx *db.Tx, life Life) error {
	found, err := db.Maybe[int64](ctx, tx.Across("nodes belong to no workspace"),
		`SELECT epoch FROM nodes WHERE id = $1 AND epoch = $2 AND NOT ended FOR KEY SHARE`, life.Node, life.Epoch)
	if err == nil && found == nil {
		err = ErrFenced
	}
	return err
}

// lead takes a role for a life when nobody has it, and reports whether the life has it. It is one serializable
// transaction: a statement by itself could overwrite a role with what it knew of the lives before it waited.
func (t table) lead(ctx context.Context, role string, life Life) (leads bool, err error) {
	_, err = t.db.Tx(ctx, func(tx *db.Tx) error {
		all := tx.Across("nodes belong to no workspace")
		_, err := db.Exec(ctx, all, `
			INSERT INTO node_roles (role, node, epoch)
			SELECT $1, id, epoch FROM nodes WHERE id = $2 AND epoch = $3 AND NOT ended
			ON CONFLICT (role) DO UPDATE SET node = excluded.node, epoch = excluded.epoch
			WHERE `+Over("node_roles.node", "node_roles.epoch"), role, life.Node, life.Epoch)
		if err != nil {
			return err
		}
		has, err := db.Maybe[int64](ctx, all, `SELECT epoch FROM node_roles WHERE role = $1 AND node = $2 AND epoch = $3`,
			role, life.Node, life.Epoch)
		leads = has != nil
		return err
	})
	return leads && err == nil, err
}
