package signin

import (
	"context"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

// An operator serves the operations of the server's operator.
type operator struct {
	store   *Store
	options func() Options
}

func (o *operator) routes() []api.Route {
	return []api.Route{
		api.Post("/dashboard/link", api.Operator, o.link,
			"Make a link that signs a person in to the dashboard, once", api.Creates, api.ShowsSecret),
	}
}

// NewLink asks for a link.
type NewLink struct {
	Email string `json:"email" doc:"Of a member of any workspace, or of a reviewer"`
}

// A ShownLink shows a link, once.
type ShownLink struct {
	Object    string     `json:"object" enum:"dashboard_link"`
	Email     string     `json:"email"`
	URL       string     `json:"url" doc:"Works once"`
	ExpiresAt clock.Time `json:"expires_at"`
}

func (o *operator) link(ctx context.Context, caller tenant.Caller, in NewLink) (ShownLink, error) {
	made, err := o.store.MakeLink(ctx, caller.Actor(), SignIn, in.Email)
	if err != nil {
		return ShownLink{}, err
	}
	return shown(made, o.options().URL), nil
}

// shown returns a link with its URL.
func shown(l Link, base string) ShownLink {
	return ShownLink{Object: "dashboard_link", Email: l.Email, URL: l.URL(base), ExpiresAt: l.ExpiresAt}
}
