package app

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/dash/signin"
	"sovereign/internal/domain/review"
)

// attachReviews lets reviewers sign in, and ends their sessions with their last grant.
func attachReviews(reviews *review.Store, sessions *signin.Store, options func() signin.Options) {
	sessions.Queues = func(ctx context.Context, user tenant.UserID) ([]signin.SessionQueue, error) {
		grants, err := reviews.QueuesOf(ctx, user)
		all := make([]signin.SessionQueue, len(grants))
		for i, g := range grants {
			all[i] = signin.SessionQueue{WorkspaceID: g.WorkspaceID, QueueID: g.QueueID, Name: g.Name}
		}
		return all, err
	}
	sessions.Granted, sessions.ReviewsElsewhere = reviews.Granted, reviews.ReviewsElsewhere
	sessions.AcceptGrants = reviews.Accept
	reviews.Left, reviews.Links = sessions.EndOutside, signin.NewTeam(sessions, options)
}
