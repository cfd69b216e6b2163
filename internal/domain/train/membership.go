package train

import (
	"context"
	"fmt"

	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// A Membership is this node among those that share the database.
type Membership interface {
	// Single reports whether there can be no other node.
	Single() bool
	Life() cluster.Life
	// Fence fails when the present life is over.
	Fence(ctx context.Context, tx *db.Tx) error
	// Lead reports whether this node does the work of a role.
	Lead(ctx context.Context, role string) (bool, error)
}

// role is the work of one node for all: it replaces lost workers, charges attempts, and starts workers in a cluster.
const role = "training"

// alone is the membership of a store that was given none.
type alone struct{}

func (alone) Single() bool                               { return true }
func (alone) Life() cluster.Life                         { return cluster.Life{} }
func (alone) Fence(context.Context, *db.Tx) error        { return nil }
func (alone) Lead(context.Context, string) (bool, error) { return true, nil }

// Leads reports whether this node looks after the runs of all nodes.
func (s *Store) Leads(ctx context.Context) (bool, error) { return s.Member.Lead(ctx, role) }

// node is the journal of this process, to which a charge is bound while it is made: empty where there is no other.
func (s *Store) node() string {
	if s.Member.Single() {
		return ""
	}
	return s.Member.Life().Node
}

// ours is an SQL condition: a node may make the charge that is bound to the journal in a column. The charge is bound to
// the node's own journal, to no journal, or to the journal of a forgotten node.
func ours(column, node string) string {
	return `(` + column + ` = '' OR ` + column + ` = ` + node + ` OR EXISTS (SELECT 1 FROM nodes n
		WHERE n.id = ` + column + ` AND n.forgotten))`
}

// bind binds the charge of an attempt to this process's journal. It reports false when another has taken it since the
// attempt was read.
func (s *Store) bind(ctx context.Context, a *attempt) (bound bool, err error) {
	if a.ChargeNode == s.node() {
		return true, nil
	}
	err = s.rebind(ctx, a, s.node(), func(n int64) { bound = n > 0 })
	return bound, err
}

// rebind binds the charge of an attempt to another journal than when it was read.
func (s *Store) rebind(ctx context.Context, a *attempt, to string, changed func(int64)) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := s.Member.Fence(ctx, tx); err != nil {
			return err
		}
		n, err := db.Exec(ctx, tx.In(a.Workspace), `UPDATE training_attempts SET charge_node = $4
			WHERE workspace_id = $1 AND run_id = $2 AND attempt = $3 AND charge = 'due' AND charge_node = $5`,
			a.RunID, a.Attempt, to, a.ChargeNode)
		changed(n)
		return err
	})
	if err != nil {
		return fmt.Errorf("bind the charge of %s: %w", a.requestID(), err)
	}
	return nil
}
