package notify

import (
	"context"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/notice"
)

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Get("/notifications", api.SessionMember, h.settings, "What can be notified, and the mark of a low wallet"),
		api.Patch("/notifications", api.SessionAdmin, h.set, "Set the mark below which the wallet is low"),
		api.Get("/notices", api.SessionMember, h.notices, "List what the workspace was told of in the last 30 days"),
		api.Get("/channels", api.SessionAdmin, h.list, "List notification channels"),
		api.Post("/channels", api.SessionAdmin, h.create,
			"Make a notification channel; a webhook's secret is shown once",
			api.Creates, api.ShowsSecret),
		api.Get("/channels/{id}", api.SessionAdmin, h.get, "Read a notification channel"),
		api.Patch("/channels/{id}", api.SessionAdmin, h.update, "Change the kinds of a channel, or turn it on or off"),
		api.Delete("/channels/{id}", api.SessionAdmin, h.delete, "Delete a notification channel"),
		api.Post("/channels/{id}/secret", api.SessionAdmin, h.rotate,
			"Give a webhook another secret, which is shown once",
			api.ShowsSecret),
		api.Post("/channels/{id}/test", api.SessionAdmin, h.test, "Send a test to a channel", api.Accepts, api.Spends),
		api.Get("/channels/{id}/deliveries", api.SessionAdmin, h.deliveries,
			"List what went to a channel in the last 30 days"),
		api.Post("/channels/{id}/deliveries/{delivery_id}/redelivery", api.SessionAdmin, h.redeliver,
			"Deliver a notice again, with the same id", api.Accepts, api.Spends),
	}
}

// A NoticeKind is a kind of notices, for the settings page.
type NoticeKind struct {
	Kind notice.Kind `json:"kind"`
	When string      `json:"when"`
}

// NotificationSettings are what can be notified, and how.
type NotificationSettings struct {
	Object    string       `json:"object" enum:"notification_settings"`
	WalletLow money.Nano   `json:"wallet_low_usd" doc:"Below it the wallet is low; 0 for never"`
	Email     bool         `json:"email" doc:"E-mail is configured on this server"`
	Kinds     []NoticeKind `json:"kinds" nullable:"false"`
}

func (h *handler) settings(ctx context.Context, caller tenant.Caller, _ api.None) (NotificationSettings, error) {
	low, err := walletLow(ctx, h.store.db.In(caller.Workspace))
	shown := NotificationSettings{
		Object: "notification_settings", WalletLow: low, Email: h.store.mails, Kinds: []NoticeKind{},
	}
	for _, k := range notice.Kinds {
		shown.Kinds = append(shown.Kinds, NoticeKind{k.Kind, k.When})
	}
	return shown, err
}

// A NotificationChange is what shall be set.
type NotificationChange struct {
	WalletLow money.Nano `json:"wallet_low_usd" doc:"0 for never"`
}

func (h *handler) set(ctx context.Context, caller tenant.Caller, in NotificationChange) (NotificationSettings, error) {
	if err := h.store.SetWalletLow(ctx, caller.Workspace, caller.Actor(), in.WalletLow); err != nil {
		return NotificationSettings{}, err
	}
	return h.settings(ctx, caller, api.None{})
}

func (h *handler) notices(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Sent], error) {
	all, err := h.store.Notices(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, append([]Sent{}, all...)), err
}

func (h *handler) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Channel], error) {
	all, err := h.store.List(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, append([]Channel{}, all...)), err
}

func (h *handler) create(ctx context.Context, caller tenant.Caller, in NewChannel) (Channel, error) {
	return h.store.Create(ctx, caller.Workspace, caller.Actor(), in)
}

type atChannel struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in atChannel) (Channel, error) {
	return h.store.Get(ctx, caller.Workspace, in.ID)
}

type changeChannel struct {
	ID   string `path:"id"`
	Body ChannelChange
}

func (h *handler) update(ctx context.Context, caller tenant.Caller, in changeChannel) (Channel, error) {
	return h.store.Update(ctx, caller.Workspace, caller.Actor(), in.ID, in.Body)
}

func (h *handler) delete(ctx context.Context, caller tenant.Caller, in atChannel) (api.Deleted, error) {
	err := h.store.Delete(ctx, caller.Workspace, caller.Actor(), in.ID)
	return api.Deleted{ID: in.ID, Object: "channel", Deleted: err == nil}, err
}

func (h *handler) rotate(ctx context.Context, caller tenant.Caller, in atChannel) (Channel, error) {
	return h.store.Rotate(ctx, caller.Workspace, caller.Actor(), in.ID)
}

func (h *handler) test(ctx context.Context, caller tenant.Caller, in atChannel) (Delivery, error) {
	return h.store.Test(ctx, caller.Workspace, caller.Actor(), in.ID)
}

type deliveriesOf struct {
	ID string `path:"id"`
	api.Page
}

func (h *handler) deliveries(ctx context.Context, caller tenant.Caller, in deliveriesOf) (api.List[Delivery], error) {
	all, err := h.store.Deliveries(ctx, caller.Workspace, in.ID, in.More(), in.Offset)
	return api.NewList(in.Page, append([]Delivery{}, all...)), err
}

type atDelivery struct {
	ID       string `path:"id"`
	Delivery string `path:"delivery_id"`
}

func (h *handler) redeliver(ctx context.Context, caller tenant.Caller, in atDelivery) (Delivery, error) {
	return h.store.Redeliver(ctx, caller.Workspace, caller.Actor(), in.ID, in.Delivery)
}
