package review

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/store/api"
)

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/queues", api.SessionAdmin, h.create, "Make a review queue, and fill it", api.Creates),
		api.Get("/queues", api.SessionMember, h.list, "List review queues"),
		api.Get("/my/queues", api.SessionReviewer, h.mine, "List the open review queues that you may grade in"),
		api.Get("/queues/{id}", api.SessionReviewer, h.get, "Read a review queue with its rubric"),
		api.Patch("/queues/{id}", api.SessionAdmin, h.change, "Change a review queue"),
		api.Delete("/queues/{id}", api.SessionAdmin, h.close,
			"Close a review queue; with purge=true delete it. The labels that were made in it stay"),
		api.Get("/queues/{id}/items", api.SessionAdmin, h.items,
			"List the items of a review queue, without their content"),
		api.Post("/queues/{id}/items", api.SessionAdmin, h.add, "Add items to a review queue", api.Accepts),
		api.Get("/queues/{id}/reviewers", api.SessionAdmin, h.reviewers,
			"List the people who have a grant on a review queue"),
		api.Put("/queues/{id}/reviewers", api.SessionAdmin, h.grant,
			"Let a person grade in a review queue, member or not; the link is shown once", api.ShowsSecret),
		api.Delete("/queues/{id}/reviewers/{user_id}", api.SessionAdmin, h.revoke,
			"Take a grant away; what was graded stays"),
		api.Put("/queues/{id}/assignments", api.SessionAdmin, h.assign,
			"Assign items to people, or divide a queue among them"),
		api.Post("/queues/{id}/claim", api.SessionReviewer, h.claim,
			"Claim the next item, or renew the claim that you hold"),
		api.Get("/queues/{id}/items/{item_id}", api.SessionReviewer, h.item,
			"Read an item: one that you have claimed, graded or skipped; any for owners and admins"),
		api.Post("/queues/{id}/items/{item_id}/grade", api.SessionReviewer, h.grade,
			"Grade an item, which makes a label"),
		api.Post("/queues/{id}/items/{item_id}/skip", api.SessionReviewer, h.skip, "Leave an item to others"),
		api.Post("/queues/{id}/items/{item_id}/undo", api.SessionReviewer, h.undo,
			"Take back your grade, which deletes its label, or your skip"),
		api.Get("/queues/{id}/progress", api.SessionReviewer, h.progress,
			"Read how far a review queue is, and what its judge still needs"),
		api.Get("/queues/{id}/agreement", api.SessionReviewer, h.agreement,
			"Read how far the graders of a review queue agree"),
	}
}

type one struct {
	ID string `path:"id"`
}

type oneItem struct {
	ID     string `path:"id"`
	ItemID string `path:"item_id"`
}

func (h *handler) create(ctx context.Context, caller tenant.Caller, in NewQueue) (Queue, error) {
	return h.store.Create(ctx, caller, in)
}

type listing struct {
	Closed bool `query:"closed" doc:"The closed queues, in place of the open ones"`
	api.Page
}

func (h *handler) list(ctx context.Context, caller tenant.Caller, in listing) (api.List[Queue], error) {
	all, err := h.store.List(ctx, caller, in.Closed, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *handler) mine(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Queue], error) {
	all, err := h.store.Mine(ctx, caller, in.More(), in.Offset)
	return api.NewList(in, all), err
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in one) (Queue, error) {
	return h.store.Get(ctx, caller, in.ID)
}

type changing struct {
	ID   string `path:"id"`
	Body QueueChange
}

func (h *handler) change(ctx context.Context, caller tenant.Caller, in changing) (Queue, error) {
	return h.store.Change(ctx, caller, in.ID, in.Body)
}

type closing struct {
	ID    string `path:"id"`
	Purge bool   `query:"purge" doc:"Delete the queue with its items and grants"`
}

// Closed is the answer to a queue's deletion.
type Closed struct {
	ID      string `json:"id"`
	Object  string `json:"object" enum:"review_queue"`
	Closed  bool   `json:"closed"`
	Deleted bool   `json:"deleted" doc:"Only with purge=true"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Closed) SchemaName() string { return "ClosedQueue" }

func (h *handler) close(ctx context.Context, caller tenant.Caller, in closing) (Closed, error) {
	done := Closed{ID: in.ID, Object: "review_queue", Closed: true, Deleted: in.Purge}
	if in.Purge {
		return done, h.store.Purge(ctx, caller, in.ID)
	}
	yes := true
	_, err := h.store.Change(ctx, caller, in.ID, QueueChange{Closed: &yes})
	return done, err
}

type itemList struct {
	ID       string `path:"id"`
	State    string `query:"state" enum:"open,done,expired" doc:"Those in one state"`
	Conflict *bool  `query:"conflict" doc:"Those whose grades differ, or those whose grades do not"`
	api.Page
}

func (h *handler) items(ctx context.Context, caller tenant.Caller, in itemList) (api.List[QueueItem], error) {
	all, err := h.store.Items(ctx, caller, in.ID, in.State, in.Conflict, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

type adding struct {
	ID   string `path:"id"`
	Body QueueSource
}

func (h *handler) add(ctx context.Context, caller tenant.Caller, in adding) (Queue, error) {
	return h.store.AddItems(ctx, caller, in.ID, in.Body)
}

type reviewerPage struct {
	ID string `path:"id"`
	api.Page
}

func (h *handler) reviewers(ctx context.Context, caller tenant.Caller, in reviewerPage) (api.List[Reviewer], error) {
	all, err := h.store.Reviewers(ctx, caller.Workspace, in.ID, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

// NewReviewer names a person.
type NewReviewer struct {
	Email string `json:"email" maxLength:"254"`
}

type granting struct {
	ID   string `path:"id"`
	Body NewReviewer
}

func (h *handler) grant(ctx context.Context, caller tenant.Caller, in granting) (GrantedReviewer, error) {
	return h.store.Grant(ctx, caller, in.ID, in.Body.Email)
}

type revoking struct {
	ID     string        `path:"id"`
	UserID tenant.UserID `path:"user_id"`
}

func (h *handler) revoke(ctx context.Context, caller tenant.Caller, in revoking) (api.Deleted, error) {
	return api.Deleted{ID: string(in.UserID), Object: "reviewer", Deleted: true},
		h.store.Revoke(ctx, caller, in.ID, in.UserID)
}

type assigning struct {
	ID   string `path:"id"`
	Body Assigning
}

func (h *handler) assign(ctx context.Context, caller tenant.Caller, in assigning) (Assigned, error) {
	return h.store.Assign(ctx, caller, in.ID, in.Body)
}

func (h *handler) claim(ctx context.Context, caller tenant.Caller, in one) (Offer, error) {
	return h.store.Claim(ctx, caller, in.ID)
}

func (h *handler) item(ctx context.Context, caller tenant.Caller, in oneItem) (QueueItem, error) {
	return h.store.Item(ctx, caller, in.ID, in.ItemID)
}

type grading struct {
	ID     string `path:"id"`
	ItemID string `path:"item_id"`
	Body   NewGrade
}

func (h *handler) grade(ctx context.Context, caller tenant.Caller, in grading) (QueueItem, error) {
	return h.store.Grade(ctx, caller, in.ID, in.ItemID, in.Body)
}

type skipping struct {
	ID     string `path:"id"`
	ItemID string `path:"item_id"`
	Body   Skip
}

func (h *handler) skip(ctx context.Context, caller tenant.Caller, in skipping) (QueueItem, error) {
	return h.store.Skip(ctx, caller, in.ID, in.ItemID, in.Body)
}

func (h *handler) undo(ctx context.Context, caller tenant.Caller, in oneItem) (QueueItem, error) {
	return h.store.Undo(ctx, caller, in.ID, in.ItemID)
}

func (h *handler) progress(ctx context.Context, caller tenant.Caller, in one) (QueueProgress, error) {
	return h.store.Progress(ctx, caller, in.ID)
}

func (h *handler) agreement(ctx context.Context, caller tenant.Caller, in one) (label.Agreement, error) {
	return h.store.Agreement(ctx, caller, in.ID)
}
