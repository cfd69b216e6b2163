package review

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// An admin who hid a grant elsewhere behind many of its own could open a link of that person's.
func TestAGrantElsewhereIsFoundBehindManyAndInAClosedQueue(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q := f.queue(t, 1, 0, expert)
		closed := true
		if _, err := f.Change(t.Context(), owner, q.ID, QueueChange{Closed: &closed}); err != nil {
			t.Fatal(err)
		}
		for i := range maxGrants + 1 {
			if _, err := db.Exec(t.Context(), f.DB.In(theirs), `
				INSERT INTO review_grants (workspace_id, queue_id, user_id, created_by, created_at, accepted_at)
				VALUES ($1, $2, $3, 'usr_evil', 1, 1)`,
				fmt.Sprintf("rq_%d", i), expert.User); err != nil {
				t.Fatal(err)
			}
		}
		for ws, elsewhere := range map[tenant.ID]bool{theirs: true, mine: true} {
			if got, err := f.ReviewsElsewhere(t.Context(), expert.User, ws); err != nil || got != elsewhere {
				t.Errorf("%s: %v %v", ws, got, err)
			}
		}
		if got, err := f.ReviewsElsewhere(t.Context(), expert2.User, mine); err != nil || got {
			t.Errorf("who reviews nothing: %v %v", got, err)
		}
	})
}

func TestReviewersOfADeletedQueueLeave(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		var left []tenant.UserID
		f.Left = func(_ context.Context, _ *db.Tx, _ tenant.Actor, user tenant.UserID) error {
			left = append(left, user)
			return nil
		}
		q := f.queue(t, 1, 1, expert, expert2)
		if err := f.Purge(t.Context(), owner, q.ID); err != nil {
			t.Fatal(err)
		}
		if slices.Sort(left); !slices.Equal(left, []tenant.UserID{expert.User, expert2.User}) {
			t.Errorf("%v", left)
		}
	})
}
