package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/dash/demo"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/domain/providerkey"
	"sovereign/internal/domain/review"
	"sovereign/internal/domain/reward"
)

// newDemos makes the demos of an instance. They call its API, which is made after them.
func newDemos(i *instance) *demo.Store {
	d := &i.domains
	return demo.NewStore(demo.Config{
		DB: i.storage.db, Feed: i.state.feed, Workspaces: d.workspaces, Wallets: d.wallets,
		Handler: func() http.Handler { return i.routers.public }, Drain: i.state.poster.Drain,
		Queue: i.demoQueues,
		Clear: []func(context.Context, tenant.ID) error{i.stopRewards, i.deleteAliases, i.deleteProviderKeys, i.state.ingester.Forget, i.forgetAnswers},
	})
}

// demoQueues makes the review queues of a demo, and returns when they have their items. Those that an earlier run has
// made stay as they are.
func (i *instance) demoQueues(ctx context.Context, ws tenant.ID, owner tenant.UserID, judgeID string) error {
	caller := tenant.Caller{Workspace: ws, User: owner, Role: tenant.Owner}
	reviews := i.domains.reviews
	before, err := reviews.List(ctx, caller, true, mostAtOnce, 0)
	if err != nil {
		return err
	}
	judge, err := criterion.Find(ctx, i.storage.db.In(ws), judgeID)
	if err != nil {
		return err
	}
	for _, q := range []review.NewQueue{
		{
			Name: "Answers to customers", CriterionID: judgeID,
			Instructions: "Zephyrine sells bicycles. Pass an answer that a customer could use as it stands.",
			// What came after the judge was graded by nobody, so that a grade changes nothing that its certificate
			// relies on.
			Source: review.QueueSource{Kind: "logs", N: 60, Filters: &logbook.Selection{FinishReason: "stop", Start: judge.CreatedAt}},
		},
		{
			Name: "Refunds, run by run", Instructions: "Pass a run that looked the order up before it refunded anything.",
			Source: review.QueueSource{Kind: "traces", N: 12},
		},
		{
			Name: "Where the judge and people differ", CriterionID: judgeID,
			Instructions: "A judge and a person disagree here. Grade as if neither had. " +
				"A grade that changes what people say of an item voids the certificate: calibrate again afterwards.",
			Source: review.QueueSource{Kind: "disagreements", N: 30},
		},
	} {
		at := slices.IndexFunc(before, func(made review.Queue) bool { return made.Name == q.Name })
		var made review.Queue
		if at >= 0 {
			made = before[at]
		} else if made, err = reviews.Create(ctx, caller, q); err != nil {
			return err
		}
		if err := i.awaitQueue(ctx, caller, made); err != nil {
			return err
		}
	}
	return nil
}

// awaitQueue returns when the items of a queue were added.
func (i *instance) awaitQueue(ctx context.Context, caller tenant.Caller, q review.Queue) (err error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for q.Fill != nil && !q.Fill.Status.Ended() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if q, err = i.domains.reviews.Get(ctx, caller, q.ID); err != nil {
			return err
		}
	}
	return nil
}

// mostAtOnce is how many things of a kind are deleted before the next are read.
const mostAtOnce = 100

// stopRewards stops the reward sessions of a workspace, which releases what they hold of the wallet.
func (i *instance) stopRewards(ctx context.Context, ws tenant.ID) error {
	for {
		active, err := i.domains.rewards.List(ctx, ws, reward.Selection{Status: reward.Active}, mostAtOnce, 0)
		if err != nil || len(active) == 0 {
			return err
		}
		for _, s := range active {
			if _, err := i.domains.rewards.Stop(ctx, ws, tenant.Operator, s.ID); err != nil {
				return err
			}
		}
	}
}

// deleteAliases deletes the aliases of a workspace, and ends their gates.
func (i *instance) deleteAliases(ctx context.Context, ws tenant.ID) error {
	for {
		all, err := i.domains.aliases.List(ctx, ws, mostAtOnce, 0)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, a := range all {
			if err := i.domains.aliases.Delete(ctx, ws, tenant.Operator, a.Name); err != nil {
				return err
			}
		}
	}
}

// deleteProviderKeys deletes a workspace's own keys at providers.
func (i *instance) deleteProviderKeys(ctx context.Context, ws tenant.ID) error {
	keys := providerkey.NewStore(i.storage.db, i.state.feed, i.storage.vault, i.models.guard, i.models.catalog)
	for {
		all, err := keys.List(ctx, ws, mostAtOnce, 0)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, k := range all {
			if err := keys.Delete(ctx, ws, tenant.Operator, k.Provider); err != nil {
				return err
			}
		}
	}
}

// forgetAnswers forgets the answers that are remembered for a workspace, and posts what it was charged.
func (i *instance) forgetAnswers(ctx context.Context, ws tenant.ID) error {
	i.plane.cache.Forget(ws)
	return i.state.poster.Drain(ctx)
}

// firstDemo makes a demo for the owner of the oldest workspace, unless there is one, and says so.
func (i *instance) firstDemo(ctx context.Context, out io.Writer) error {
	owner, err := i.dash.demos.OwnerOf(ctx)
	if err != nil {
		return err
	}
	if owner == "" {
		_, err := fmt.Fprintf(out, "There is no workspace yet, and so no owner of a demo: start with --bootstrap.\n\n")
		return err
	}
	made, err := i.dash.demos.Create(ctx, tenant.Operator, owner)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `The workspace %q (%s) is being filled with simulated traffic: a minute or two.
It is on the dashboard, marked as a demo, and is deleted there with one click.

`, made.Name, made.WorkspaceID)
	return err
}
