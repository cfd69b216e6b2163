package review

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// An Offer is the next item of a person, or none.
type Offer struct {
	Object string     `json:"object" enum:"review_offer"`
	Item   *QueueItem `json:"item" doc:"null when nothing can be offered"`
	Done   bool       `json:"done" doc:"Nothing is left for you. Without an item and not done: others hold the rest, or items are being added"`
	Mine   MyCounts   `json:"mine"`
}

// maxLost is how many items are looked at in one call that turn out to be gone.
const maxLost = 50

// Claim gives a person the next item: one that the person holds, else one that is assigned to the person, else the
// first that needs a grade. An item whose log has expired leaves the queue, and the next one is taken.
func (s *Store) Claim(ctx context.Context, caller tenant.Caller, queueID string) (Offer, error) {
	for range maxLost {
		q, a, i, err := s.claim(ctx, caller, queueID)
		if err != nil {
			return Offer{}, err
		}
		if i == nil {
			return s.nothing(ctx, caller, q)
		}
		shown, gone, err := s.show(ctx, caller, q, a, i)
		if err != nil {
			return Offer{}, err
		}
		if gone || shown.Claim == nil { // it is not logged any more, or another window of the person was faster
			continue
		}
		mine, err := s.mine(ctx, s.DB.In(caller.Workspace), caller.User, queueID)
		return Offer{Object: "review_offer", Item: &shown, Mine: mine}, err
	}
	return s.nothing(ctx, caller, &queueRecord{ID: queueID})
}

// nothing is the offer when there is no item.
func (s *Store) nothing(ctx context.Context, caller tenant.Caller, q *queueRecord) (o Offer, err error) {
	in := s.DB.In(caller.Workspace)
	o.Object = "review_offer"
	if o.Mine, err = s.mine(ctx, in, caller.User, q.ID); err != nil {
		return o, err
	}
	fill, err := lastFill(ctx, in, q.ID)
	o.Done = o.Mine.Waiting == 0 && (fill == nil || fill.Status.Ended())
	return o, err
}

// claim claims the next item, or returns nil.
func (s *Store) claim(ctx context.Context, caller tenant.Caller, queueID string,
) (q *queueRecord, a access, found *itemRecord, err error) {
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(caller.Workspace)
		if q, a, err = enterToGrade(ctx, in, caller, queueID); err != nil {
			return err
		}
		if found, err = s.held(ctx, in, q, caller.User); err != nil || found != nil {
			return err
		}
		if found, err = s.next(ctx, in, q, caller.User); err != nil || found == nil {
			return err
		}
		return s.lease(ctx, in, q, found.ID, caller.User, Open)
	})
	return q, a, found, err
}

// lease writes the claim of a person, with a new id.
func (s *Store) lease(ctx context.Context, in db.Scoped, q *queueRecord, itemID string, user tenant.UserID, was State,
) error {
	to, err := was.move(claims)
	if err != nil {
		return err
	}
	now := s.Now()
	if _, err := db.Exec(ctx, in, `
		INSERT INTO review_grades (workspace_id, queue_id, item_id, user_id, state, claim, lease_until, verdict, grade,
			critique, unsure, label_id, at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, '', NULL, '', FALSE, '', $8)
		ON CONFLICT (workspace_id, queue_id, item_id, user_id) DO NOTHING`, // another window was faster
		q.ID, itemID, user, to, id.New("claim"), q.leaseFrom(now), now); err != nil {
		return fmt.Errorf("claim %s: %w", itemID, err)
	}
	return nil
}

// leaseFrom returns when a lease ends that begins now.
func (q *queueRecord) leaseFrom(now clock.Time) clock.Time {
	return now.Add(time.Duration(q.LeaseMinutes) * time.Minute)
}

// held renews the claim that a person took last, and returns its item. Claims whose lease has ended are given back
// where others have taken the item since, or it is not open any more.
func (s *Store) held(ctx context.Context, in db.Scoped, q *queueRecord, user tenant.UserID) (*itemRecord, error) {
	mine, err := db.Query[gradeRecord](ctx, in, `
		SELECT `+gradeColumns+` FROM review_grades
		WHERE workspace_id = $1 AND queue_id = $2 AND user_id = $3 AND state = 'claimed' ORDER BY at DESC, item_id`,
		q.ID, user)
	if err != nil {
		return nil, fmt.Errorf("find claims: %w", err)
	}
	for i := range mine {
		g := &mine[i]
		item, err := findItem(ctx, in, q.ID, g.ItemID)
		if err != nil {
			return nil, err
		}
		free, err := s.free(ctx, in, q, g)
		if err != nil {
			return nil, err
		}
		if free && item.State == itemOpen {
			_, err := db.Exec(ctx, in, `
				UPDATE review_grades SET lease_until = $5
				WHERE workspace_id = $1 AND queue_id = $2 AND item_id = $3 AND user_id = $4`,
				q.ID, g.ItemID, user, q.leaseFrom(s.Now()))
			return item, err
		}
		if err := giveBack(ctx, in, q.ID, g); err != nil {
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // none is held
}

// giveBack opens an item that a person has claimed.
func giveBack(ctx context.Context, in db.Scoped, queueID string, g *gradeRecord) error {
	if _, err := g.State.move(expires); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, in, `
		DELETE FROM review_grades WHERE workspace_id = $1 AND queue_id = $2 AND item_id = $3 AND user_id = $4
			AND state = 'claimed'`, queueID, g.ItemID, g.UserID); err != nil {
		return fmt.Errorf("give %s back: %w", g.ItemID, err)
	}
	return nil
}

// taken counts the grades of an item, and the claims that are held. $4 is the time.
const taken = `SELECT COUNT(*) FROM review_grades g WHERE g.workspace_id = $1 AND g.queue_id = $2
	AND (g.state = 'graded' OR g.state = 'claimed' AND g.lease_until > $4)`

// free reports whether an item has a place for one more grader beside all others than g's.
func (s *Store) free(ctx context.Context, in db.Scoped, q *queueRecord, g *gradeRecord) (bool, error) {
	n, err := db.One[int64](ctx, in, taken+` AND g.item_id = $3 AND g.user_id <> $5`, q.ID, g.ItemID, s.Now(), g.UserID)
	if err != nil {
		return false, fmt.Errorf("count who grades %s: %w", g.ItemID, err)
	}
	return n < q.GradersPerItem, nil
}

// offered are the open items that a person has not claimed, graded or skipped, and that are not assigned to others
// alone.
const offered = ` FROM review_items i
	LEFT JOIN review_assignments a ON a.workspace_id = i.workspace_id AND a.queue_id = i.queue_id AND a.item_id = i.id
		AND a.user_id = $3
	WHERE i.workspace_id = $1 AND i.queue_id = $2 AND i.state = 'open'
		AND NOT EXISTS (SELECT 1 FROM review_grades g WHERE g.workspace_id = $1 AND g.queue_id = $2 AND g.item_id = i.id
			AND g.user_id = $3)
		AND (a.user_id IS NOT NULL OR NOT EXISTS (SELECT 1 FROM review_assignments o WHERE o.workspace_id = $1
			AND o.queue_id = $2 AND o.item_id = i.id))`

// next finds the first item that can be offered to a person.
func (s *Store) next(ctx context.Context, in db.Scoped, q *queueRecord, user tenant.UserID) (*itemRecord, error) {
	i, err := db.Maybe[itemRecord](ctx, in, `
		SELECT i.ref, i.id, i.position, i.steps, i.reason, i.judge, i.grade, i.critique, i.expires_at, i.state, i.conflict,
			i.lost`+offered+` AND (`+taken+` AND g.item_id = i.id) < $5
		ORDER BY CASE WHEN a.user_id IS NULL THEN 1 ELSE 0 END, i.position, i.id LIMIT 1`,
		q.ID, user, s.Now(), q.GradersPerItem)
	if err != nil {
		return nil, fmt.Errorf("find the next item: %w", err)
	}
	return i, nil
}

func findItem(ctx context.Context, in db.Scoped, queueID, itemID string) (*itemRecord, error) {
	i, err := db.Maybe[itemRecord](ctx, in, `
		SELECT `+itemColumns+` FROM review_items WHERE workspace_id = $1 AND queue_id = $2 AND id = $3`, queueID, itemID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find item: %w", err)
	case i == nil:
		return nil, fault.NotFound("review item", itemID)
	}
	return i, nil
}

// gradesOf reads an item as all people have it, the first first.
func gradesOf(ctx context.Context, in db.Scoped, queueID, itemID string) ([]gradeRecord, error) {
	all, err := db.Query[gradeRecord](ctx, in, `
		SELECT `+gradeColumns+` FROM review_grades WHERE workspace_id = $1 AND queue_id = $2 AND item_id = $3
		ORDER BY at, user_id`, queueID, itemID)
	if err != nil {
		return nil, fmt.Errorf("read grades: %w", err)
	}
	return all, nil
}

// show returns an item with its content. What is gone leaves the queue.
func (s *Store) show(ctx context.Context, caller tenant.Caller, q *queueRecord, a access, i *itemRecord,
) (v QueueItem, gone bool, err error) {
	steps, lost, err := s.content(ctx, caller.Workspace, i)
	if err != nil {
		return v, false, err
	}
	if lost != "" && i.State == itemOpen {
		if err := s.lose(ctx, caller.Workspace, q.ID, i.ID, lost); err != nil {
			return v, false, err
		}
		i.State = itemExpired
	}
	in := s.DB.In(caller.Workspace)
	all, err := gradesOf(ctx, in, q.ID, i.ID)
	if err != nil {
		return v, false, err
	}
	v = i.view(q, a, caller.User, all)
	if lost == "" {
		v.Steps, v.Digest = steps, digest(steps)
	}
	if a.manages {
		v.Assignees, err = db.Query[string](ctx, in, `
			SELECT user_id FROM review_assignments WHERE workspace_id = $1 AND queue_id = $2 AND item_id = $3
			ORDER BY user_id`, q.ID, i.ID)
	}
	return v, lost != "", err
}

// Why an item has expired.
const (
	lostLog   = "what was to be graded is not logged any more"
	lostSteps = "a part of the run is not logged any more"
	lostLong  = "the run has become too long to be graded"
)

// content reads what is graded, or says why it is gone.
func (s *Store) content(ctx context.Context, ws tenant.ID, i *itemRecord) (steps []judge.Step, lost string, err error) {
	steps, err = s.steps(ctx, ws, ref(i.Ref))
	if err == nil {
		if int64(len(steps)) < i.Steps {
			return nil, lostSteps, nil
		}
		return steps, "", nil
	}
	switch fault.From(err).Status {
	case http.StatusNotFound:
		return nil, lostLog, nil
	case http.StatusBadRequest:
		return nil, lostLong, nil
	}
	return nil, "", err
}

// lose takes an item that is gone out of the queue, with the claims of it. Grades stay.
func (s *Store) lose(ctx context.Context, ws tenant.ID, queueID, itemID, why string) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		if _, err := db.Exec(ctx, in, `
			UPDATE review_items SET state = 'expired', lost = $4, critique = ''
			WHERE workspace_id = $1 AND queue_id = $2 AND id = $3 AND state = 'open'`, queueID, itemID, why); err != nil {
			return err
		}
		_, err := db.Exec(ctx, in, `
			DELETE FROM review_grades WHERE workspace_id = $1 AND queue_id = $2 AND item_id = $3 AND state = 'claimed'`,
			queueID, itemID)
		return err
	})
	if err != nil {
		return fmt.Errorf("take %s out of the queue: %w", itemID, err)
	}
	return nil
}

// Item reads an item: whichever, for owners and admins; for others those that they have claimed, graded or skipped.
func (s *Store) Item(ctx context.Context, caller tenant.Caller, queueID, itemID string) (QueueItem, error) {
	in := s.DB.In(caller.Workspace)
	q, a, err := enter(ctx, in, caller, queueID)
	if err != nil {
		return QueueItem{}, err
	}
	i, err := findItem(ctx, in, queueID, itemID)
	if err != nil {
		return QueueItem{}, err
	}
	if !a.manages {
		mine, err := mineOf(ctx, in, q.ID, itemID, caller.User)
		if err != nil {
			return QueueItem{}, err
		}
		if !a.grades || mine.State == Open {
			return QueueItem{}, fault.NotFound("review item", itemID)
		}
	}
	v, _, err := s.show(ctx, caller, q, a, i)
	return v, err
}

// mineOf reads an item as one person has it.
func mineOf(ctx context.Context, in db.Scoped, queueID, itemID string, user tenant.UserID) (*gradeRecord, error) {
	g, err := db.Maybe[gradeRecord](ctx, in, `
		SELECT `+gradeColumns+` FROM review_grades
		WHERE workspace_id = $1 AND queue_id = $2 AND item_id = $3 AND user_id = $4`, queueID, itemID, user)
	if err != nil {
		return nil, fmt.Errorf("read a grade: %w", err)
	}
	if g == nil {
		g = &gradeRecord{ItemID: itemID, UserID: user, State: Open}
	}
	return g, nil
}
