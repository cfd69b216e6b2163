package review

import (
	"context"
	"fmt"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// Assigning says who gets which items. An assigned item is offered to its people alone, and before all others.
type Assigning struct {
	UserIDs []tenant.UserID `json:"user_ids" maxItems:"100" nullable:"false" doc:"Who may grade in the queue; empty to offer the items to everybody again"`
	ItemIDs []string        `json:"item_ids,omitempty" maxItems:"5000" doc:"Which are assigned to all of them. Without any the open items of the queue are divided among them, so that each has as many people as the queue asks for"`
}

// Assigned is the answer to Assigning.
type Assigned struct {
	Object string        `json:"object" enum:"review_assignment"`
	Items  int64         `json:"items" doc:"How many are assigned, or offered to everybody again"`
	People []AssignedTo  `json:"people" nullable:"false"`
	By     tenant.UserID `json:"assigned_by"`
}

// AssignedTo is how many of the items a person has.
type AssignedTo struct {
	UserID tenant.UserID `json:"user_id"`
	Items  int64         `json:"items"`
}

// Assign assigns items, in place of their earlier assignments.
func (s *Store) Assign(ctx context.Context, caller tenant.Caller, queueID string, in Assigning,
) (done Assigned, err error) {
	ws := caller.Workspace
	users := slices.Compact(slices.Sorted(slices.Values(in.UserIDs)))
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		done = Assigned{Object: "review_assignment", People: []AssignedTo{}, By: caller.User}
		scope := tx.In(ws)
		q, err := find(ctx, scope, queueID)
		if err != nil {
			return err
		}
		for _, user := range users {
			if err := checkGrader(ctx, scope, queueID, user); err != nil {
				return err
			}
		}
		items, err := assignable(ctx, scope, queueID, in.ItemIDs)
		if err != nil {
			return err
		}
		rows := [][]any{}
		counts := map[tenant.UserID]int64{}
		for at, itemID := range items {
			if _, err := db.Exec(ctx, scope, `
				DELETE FROM review_assignments WHERE workspace_id = $1 AND queue_id = $2 AND item_id = $3`,
				queueID, itemID); err != nil {
				return fmt.Errorf("assign %s: %w", itemID, err)
			}
			for _, user := range share(users, at, int(q.GradersPerItem), len(in.ItemIDs) > 0) {
				rows = append(rows, []any{ws, queueID, itemID, string(user)})
				counts[user]++
			}
		}
		if err := db.Insert(ctx, tx.Across("the rows name their workspace"), "review_assignments",
			[]string{"workspace_id", "queue_id", "item_id", "user_id"}, rows); err != nil {
			return fmt.Errorf("assign the items of %s: %w", queueID, err)
		}
		done.Items = int64(len(items))
		for _, user := range users {
			done.People = append(done.People, AssignedTo{user, counts[user]})
		}
		return audit.Record(ctx, tx, ws, caller.Actor(), "review_queue.assign", queueID, nil, done)
	})
	return done, err
}

// share returns who of users gets the item at a place: all of them where items were named, else as many as it needs, in
// turns.
func share(users []tenant.UserID, at, graders int, named bool) []tenant.UserID {
	if named || len(users) <= graders {
		return users
	}
	some := make([]tenant.UserID, graders)
	for i := range some {
		some[i] = users[(at*graders+i)%len(users)]
	}
	return some
}

// assignable returns the named items, or all open ones.
func assignable(ctx context.Context, in db.Scoped, queueID string, named []string) ([]string, error) {
	if len(named) == 0 {
		all, err := db.Query[string](ctx, in, `
			SELECT id FROM review_items WHERE workspace_id = $1 AND queue_id = $2 AND state = 'open' ORDER BY position, id`,
			queueID)
		if err != nil {
			return nil, fmt.Errorf("read the open items of %s: %w", queueID, err)
		}
		return all, nil
	}
	all := slices.Compact(slices.Sorted(slices.Values(named)))
	for _, itemID := range all {
		if _, err := findItem(ctx, in, queueID, itemID); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// checkGrader refuses a person who may not grade in a queue.
func checkGrader(ctx context.Context, in db.Scoped, queueID string, user tenant.UserID) error {
	n, err := db.One[int64](ctx, in, `
		SELECT COUNT(*) FROM (
			SELECT user_id FROM review_grants WHERE workspace_id = $1 AND queue_id = $2 AND user_id = $3
			UNION ALL
			SELECT user_id FROM members WHERE workspace_id = $1 AND user_id = $3 AND role IN ('owner', 'admin')
		) AS graders`, queueID, user)
	if err != nil {
		return fmt.Errorf("find a grader: %w", err)
	}
	if n == 0 {
		return fault.Invalid("user_ids", "must be people who may grade in the queue: owners, admins and reviewers")
	}
	return nil
}
