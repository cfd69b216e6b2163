package review

import (
	"context"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/module"
)

// mostWaits bounds the queues that are looked at for the dashboard's first page.
const mostWaits = 20

// Waits returns the open queues that have items for the caller.
func (s *Store) Waits(ctx context.Context, caller tenant.Caller) ([]module.Notice, error) {
	queues, err := s.Mine(ctx, caller, mostWaits, 0)
	if err != nil {
		return nil, err
	}
	var all []module.Notice
	for i := range queues {
		q := &queues[i]
		n := q.Mine.Waiting + q.Mine.Claimed
		if n == 0 {
			continue
		}
		all = append(all, module.Notice{
			Kind: "review.waiting", Subject: q.ID, Title: q.Name, Count: n, At: q.CreatedAt,
			Detail: fmt.Sprintf("%d of %d items to grade", n, q.Counts.Items),
			Link:   module.Link{Page: "review/" + q.ID},
		})
	}
	return all, nil
}
