package review

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
)

// An access is what a person may do with a queue. Without any of it the queue does not exist for that person.
type access struct {
	member  bool // of the workspace: sees the queue and how far it is
	grades  bool // sees the items that are claimed, and grades them
	manages bool // sees and changes everything
}

// enter returns a queue, and what the caller may do with it.
func enter(ctx context.Context, in db.Scoped, caller tenant.Caller, queueID string) (*queueRecord, access, error) {
	a := access{member: caller.Role.Valid(), grades: caller.Role.Manages(), manages: caller.Role.Manages()}
	if !a.grades {
		granted, err := db.One[int64](ctx, in, `
			SELECT COUNT(*) FROM review_grants
			WHERE workspace_id = $1 AND queue_id = $2 AND user_id = $3 AND ($4 OR accepted_at > 0)`,
			queueID, caller.User, a.member)
		if err != nil {
			return nil, a, fmt.Errorf("find a grant: %w", err)
		}
		a.grades = granted > 0
	}
	if !a.member && !a.grades {
		return nil, a, fault.NotFound(object, queueID)
	}
	q, err := find(ctx, in, queueID)
	return q, a, err
}

// enterToGrade is enter for whoever grades.
func enterToGrade(ctx context.Context, in db.Scoped, caller tenant.Caller, queueID string,
) (*queueRecord, access, error) {
	q, a, err := enter(ctx, in, caller, queueID)
	switch {
	case err != nil:
		return nil, a, err
	case !a.grades:
		return nil, a, fault.Forbidden.New("to grade in this queue you need a grant on it: an owner or admin gives it")
	}
	return q, a, q.checkOpen()
}

// A Reviewer is a person who may grade in a queue by a grant.
type Reviewer struct {
	Object    string        `json:"object" enum:"reviewer"`
	UserID    tenant.UserID `json:"user_id"`
	Email     string        `json:"email"`
	Graded    int64         `json:"graded"`
	Skipped   int64         `json:"skipped"`
	CreatedAt clock.Time    `json:"created_at"`
}

// A GrantedReviewer is a reviewer with a link to sign in.
type GrantedReviewer struct {
	Reviewer
	URL *string `json:"url" doc:"Signs the person in once, and is shown once; null for a member, who signs in as before"`
}

const reviewerColumns = `'reviewer' AS object, t.user_id, u.email, t.created_at,
	(SELECT COUNT(*) FROM review_grades g WHERE g.workspace_id = $1 AND g.queue_id = $2 AND g.user_id = t.user_id
		AND g.state = 'graded') AS graded,
	(SELECT COUNT(*) FROM review_grades g WHERE g.workspace_id = $1 AND g.queue_id = $2 AND g.user_id = t.user_id
		AND g.state = 'skipped') AS skipped
	FROM review_grants t JOIN users u ON u.id = t.user_id WHERE t.workspace_id = $1 AND t.queue_id = $2`

// Reviewers lists the people with a grant on a queue.
func (s *Store) Reviewers(ctx context.Context, ws tenant.ID, queueID string, limit, offset int) ([]Reviewer, error) {
	in := s.DB.In(ws)
	if _, err := find(ctx, in, queueID); err != nil {
		return nil, err
	}
	all, err := db.Query[Reviewer](ctx, in,
		`SELECT `+reviewerColumns+` ORDER BY u.email LIMIT $3 OFFSET $4`, queueID, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list reviewers: %w", err)
	}
	return all, nil
}

// Grant lets a person grade in a queue: a member at once, and another person with the link. To grant it twice is fine,
// and makes another link.
func (s *Store) Grant(ctx context.Context, caller tenant.Caller, queueID, email string,
) (given GrantedReviewer, err error) {
	ws := caller.Workspace
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		given = GrantedReviewer{}
		in := tx.In(ws)
		if _, err := find(ctx, in, queueID); err != nil {
			return err
		}
		user, err := s.People.Person(tx.Bind(ctx), email)
		if err != nil {
			return err
		}
		n, err := db.Exec(ctx, in, `
			INSERT INTO review_grants (workspace_id, queue_id, user_id, created_by, created_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (workspace_id, queue_id, user_id) DO NOTHING`, queueID, user, caller.User, s.Now())
		if err != nil {
			return fmt.Errorf("grant %s: %w", queueID, err)
		}
		if err := quota.Check(ctx, in, quota.Reviewers, 1); err != nil {
			return err
		}
		r, err := reviewer(ctx, in, queueID, user)
		if err != nil {
			return err
		}
		given.Reviewer = *r
		accepted, err := s.known(ctx, in, user)
		if err != nil {
			return err
		}
		if given.URL, err = s.link(ctx, tx, ws, caller.Actor(), user, &accepted); err != nil {
			return err
		}
		if accepted {
			if _, err := s.Accept(ctx, tx, caller.Actor(), ws, user); err != nil {
				return err
			}
		}
		if n == 0 {
			return nil
		}
		return audit.Record(ctx, tx, ws, caller.Actor(), "review_queue.grant", queueID, nil, given.Reviewer)
	})
	return given, err
}

// known reports whether a person has shown themselves to the workspace before: as a member, or with the link of an
// earlier grant.
func (s *Store) known(ctx context.Context, in db.Scoped, user tenant.UserID) (bool, error) {
	n, err := db.One[int64](ctx, in, `
		SELECT COUNT(*) FROM (
			SELECT user_id FROM members WHERE workspace_id = $1 AND user_id = $2
			UNION ALL
			SELECT user_id FROM review_grants WHERE workspace_id = $1 AND user_id = $2 AND accepted_at > 0
		) AS known`, user)
	if err != nil {
		return false, fmt.Errorf("find a person: %w", err)
	}
	return n > 0 || s.Links == nil, nil
}

// link returns a link for a reviewer, or nil, and notes whether the person needs none to be let in. Whoever grants sees
// the link and could open it, so that there is none for a member of the workspace: an admin would become an owner.
func (s *Store) link(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, user tenant.UserID, accepted *bool,
) (*string, error) {
	if s.Links == nil {
		return nil, nil //nolint:nilnil // nobody can sign in by a link
	}
	member, err := db.One[int64](ctx, tx.In(ws),
		`SELECT COUNT(*) FROM members WHERE workspace_id = $1 AND user_id = $2`, user)
	if err != nil || member > 0 {
		return nil, err
	}
	url, proven, err := s.Links.Invite(ctx, tx, ws, by, user)
	*accepted = *accepted || proven
	return optional(url), err
}

// Accept puts the grants of a person in force, in one workspace or, for tenant.Server, in all. It returns how many were
// not before.
func (s *Store) Accept(ctx context.Context, tx *db.Tx, by tenant.Actor, ws tenant.ID, user tenant.UserID,
) (int, error) {
	all, err := db.Query[Grant](ctx, tx.Across("a person may review in several workspaces"), `
		UPDATE review_grants SET accepted_at = $1
		WHERE user_id = $2 AND accepted_at = 0 AND (workspace_id = $3 OR $3 = $4)
		RETURNING workspace_id, queue_id, '' AS name`, s.Now(), user, ws, tenant.Server)
	if err != nil {
		return 0, fmt.Errorf("accept grants: %w", err)
	}
	for _, g := range all {
		if err := audit.Record(ctx, tx, g.WorkspaceID, by, "review_queue.accept", g.QueueID, nil, struct {
			UserID tenant.UserID `json:"user_id"`
		}{user}); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

// reviewer reads a person's grant.
func reviewer(ctx context.Context, in db.Scoped, queueID string, user tenant.UserID) (*Reviewer, error) {
	r, err := db.Maybe[Reviewer](ctx, in, `SELECT `+reviewerColumns+` AND t.user_id = $3`, queueID, user)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read a grant: %w", err)
	case r == nil:
		return nil, fault.NotFound("reviewer", string(user))
	}
	return r, nil
}

// Revoke takes a grant away. What the person has graded stays; claims and assignments end.
func (s *Store) Revoke(ctx context.Context, caller tenant.Caller, queueID string, user tenant.UserID) error {
	ws := caller.Workspace
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		if _, err := find(ctx, in, queueID); err != nil {
			return err
		}
		before, err := reviewer(ctx, in, queueID, user)
		if err != nil {
			return err
		}
		for _, rows := range []string{
			`review_grants WHERE workspace_id = $1 AND queue_id = $2 AND user_id = $3`,
			`review_assignments WHERE workspace_id = $1 AND queue_id = $2 AND user_id = $3`,
			`review_grades WHERE workspace_id = $1 AND queue_id = $2 AND user_id = $3 AND state = 'claimed'`,
		} {
			if _, err := db.Exec(ctx, in, `DELETE FROM `+rows, queueID, user); err != nil {
				return fmt.Errorf("revoke a grant on %s: %w", queueID, err)
			}
		}
		if s.Left != nil {
			if err := s.Left(ctx, tx, caller.Actor(), user); err != nil {
				return err
			}
		}
		return audit.Record(ctx, tx, ws, caller.Actor(), "review_queue.revoke", queueID, before, nil)
	})
	return err
}

// A Grant is a queue that a person may grade in.
type Grant struct {
	WorkspaceID tenant.ID `json:"workspace_id"`
	QueueID     string    `json:"queue_id"`
	Name        string    `json:"name"`
}

// maxGrants bounds the queues that are listed for a person.
const maxGrants = 100

// QueuesOf lists the open queues, of all workspaces, that a person may grade in by a grant, the newest first.
func (s *Store) QueuesOf(ctx context.Context, user tenant.UserID) ([]Grant, error) {
	all, err := db.Query[Grant](ctx, s.DB.Across("a person may review in several workspaces"), `
		SELECT t.workspace_id, t.queue_id, q.name
		FROM review_grants t JOIN review_queues q ON q.workspace_id = t.workspace_id AND q.id = t.queue_id
		WHERE t.user_id = $1 AND t.accepted_at > 0 AND q.closed_at = 0 ORDER BY q.created_at DESC, q.id LIMIT $2`,
		user, maxGrants)
	if err != nil {
		return nil, fmt.Errorf("list a person's queues: %w", err)
	}
	return all, nil
}

// Granted reports whether a person has a grant anywhere, also one that was not accepted yet.
func (s *Store) Granted(ctx context.Context, user tenant.UserID) (bool, error) {
	n, err := db.One[int64](ctx, s.DB.Across("a person may review in several workspaces"),
		`SELECT COUNT(*) FROM review_grants WHERE user_id = $1`, user)
	if err != nil {
		return false, fmt.Errorf("find grants: %w", err)
	}
	return n > 0, nil
}

// ReviewsElsewhere reports whether a person has accepted a grant in another workspace than ws, on a closed queue too.
func (s *Store) ReviewsElsewhere(ctx context.Context, user tenant.UserID, ws tenant.ID) (bool, error) {
	n, err := db.One[int64](ctx, s.DB.Across("a person may review in several workspaces"),
		`SELECT COUNT(*) FROM review_grants WHERE user_id = $1 AND workspace_id <> $2 AND accepted_at > 0`, user, ws)
	if err != nil {
		return false, fmt.Errorf("find grants elsewhere: %w", err)
	}
	return n > 0, nil
}
