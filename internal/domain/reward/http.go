package reward

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return slices.Concat([]api.Route{
		api.Post(
			"/reward/sessions", api.Admin, h.create,
			"Start a reward session: certified judges, and a budget that is held from the wallet", api.Creates,
			api.Spends,
		),
		api.Get("/reward/sessions", api.Reader, h.list, "List reward sessions, the newest first"),
		api.Get("/reward/sessions/{id}", api.Reader, h.get, "Read a reward session"),
		api.Get(
			"/reward/sessions/{id}/tasks", api.Reader, h.tasks,
			"Read the tasks that are stored on a reward session, in their order",
		),
		api.Post(
			"/reward/sessions/{id}/complete", api.Admin, h.complete,
			"End a reward session whose run is done, and release what is left of its budget",
		),
		api.Delete(
			"/reward/sessions/{id}", api.Admin, h.stop,
			"Stop a reward session at once, and release what is left of its budget; one that has ended stays as it is",
		),
		api.Post(
			"/reward/sessions/{id}/tokens", api.Admin, h.createToken,
			"Make a token that may score in this session, for trainers that cannot send headers", api.Creates,
			api.ShowsSecret,
		),
		api.Get("/reward/sessions/{id}/tokens", api.Reader, h.tokens, "List the tokens of a reward session"),
		api.Delete(
			"/reward/sessions/{id}/tokens/{token_id}", api.Admin, h.revokeToken, "Revoke a token of a reward session",
		),
	}, h.store.scoreRoutes(), h.store.anchorRoutes(), h.store.exportRoutes())
}

func (h *handler) create(ctx context.Context, caller tenant.Caller, in NewSession) (Session, error) {
	return h.store.Create(ctx, caller.Workspace, caller.Actor(), &in)
}

type listSessions struct {
	Status string `query:"status" enum:"ACTIVE,COMPLETED,OVERBUDGET,STOPPED,FAILED" doc:"Only those of this status"`
	Label  string `query:"label" doc:"Only those with this label"`
	api.Page
}

func (h *handler) list(ctx context.Context, caller tenant.Caller, in listSessions) (api.List[Session], error) {
	all, err := h.store.List(ctx, caller.Workspace, Selection{Status(in.Status), in.Label}, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

type atSession struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in atSession) (Session, error) {
	return h.store.Get(ctx, caller.Workspace, in.ID)
}

type tasksOf struct {
	ID string `path:"id"`
	api.Page
}

func (h *handler) tasks(ctx context.Context, caller tenant.Caller, in tasksOf) (api.List[jsontext.Value], error) {
	all, err := h.store.Tasks(ctx, caller.Workspace, in.ID, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

func (h *handler) complete(ctx context.Context, caller tenant.Caller, in atSession) (Session, error) {
	return h.store.Complete(ctx, caller.Workspace, caller.Actor(), in.ID)
}

func (h *handler) stop(ctx context.Context, caller tenant.Caller, in atSession) (Session, error) {
	return h.store.Stop(ctx, caller.Workspace, caller.Actor(), in.ID)
}

type newToken struct {
	ID   string `path:"id"`
	Body NewToken
}

// A NewToken asks for a token.
type NewToken struct {
	Name string `json:"name" doc:"What it is for: 1 to 64 characters that can be seen"`
}

// SchemaName is the type's name in the OpenAPI document.
func (NewToken) SchemaName() string { return "NewRewardToken" }

// A ShownToken shows a token, once.
type ShownToken struct {
	Token
	Secret string `json:"token" doc:"Shown now and never again"`
}

// SchemaName is the type's name in the OpenAPI document.
func (ShownToken) SchemaName() string { return "ShownRewardToken" }

func (h *handler) createToken(ctx context.Context, caller tenant.Caller, in newToken) (ShownToken, error) {
	made, text, err := h.store.CreateToken(ctx, caller.Workspace, caller.Actor(), in.ID, in.Body.Name)
	return ShownToken{Token: made, Secret: text.Reveal()}, err
}

func (h *handler) tokens(ctx context.Context, caller tenant.Caller, in tasksOf) (api.List[Token], error) {
	all, err := h.store.Tokens(ctx, caller.Workspace, in.ID, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

type atToken struct {
	ID      string `path:"id"`
	TokenID string `path:"token_id"`
}

func (h *handler) revokeToken(ctx context.Context, caller tenant.Caller, in atToken) (api.Deleted, error) {
	err := h.store.RevokeToken(ctx, caller.Workspace, caller.Actor(), in.ID, in.TokenID)
	return api.Deleted{ID: in.TokenID, Object: tokenObject, Deleted: err == nil}, err
}
