package job

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/notice"
)

// longWork is how long a job has to run for people to be told that it is done.
const longWork = time.Minute

// pages are the pages of the dashboard that show jobs of a kind; others have none.
var pages = map[string]string{
	"calibration": "judges", "scan": "judges", "improvement": "judges", "suggestion": "judges", "dataset": "datasets",
	"eval": "evals", "raft_scoring": "training", "raft_comparing": "training", "raft_next": "training",
}

// tell adds a notice of a job that has failed, or that has taken long and is done.
func tell(ctx context.Context, tx *db.Tx, ws tenant.ID, id string, r *record) error {
	n := notice.Notice{Kind: notice.JobEnded, Subject: id, Link: pages[r.Kind]}
	switch {
	case r.Status == Failed:
		n.Title = fmt.Sprintf("A job has failed: %s", r.Kind)
		n.Text = fmt.Sprintf("The %s %s has failed: %s", r.Kind, id, r.Failure)
	case r.Status == Done && r.StartedAt != nil && r.FinishedAt.Sub(*r.StartedAt) >= longWork:
		n.Title = fmt.Sprintf("A job is done: %s", r.Kind)
		n.Text = fmt.Sprintf("The %s %s is done. It took %s and cost $%s.", r.Kind, id,
			r.FinishedAt.Sub(*r.StartedAt).Round(time.Second), r.Cost)
	default:
		return nil
	}
	return notice.Add(ctx, tx, ws, n)
}
