package billing

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/limit"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/store/api"
)

type handler struct {
	store  *Store
	client *client
	drain  func(context.Context) error // posts what was settled, so that a statement has it
	log    *slog.Logger
	now    func() time.Time
	hooks  *limit.Budget // events that are handled at once
}

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Get("/billing", api.SessionMember, h.show, "How the wallet can be topped up, and what it owes"),
		api.PostAwaited("/topups", api.SessionAdmin, h.create, h.open,
			"Begin a card payment into the wallet; the answer says where to pay", api.Creates, api.Spends),
		api.Get("/topups", api.SessionAdmin, h.list, "List card payments"),
		api.Get("/topups/{id}", api.SessionAdmin, h.get, "Read a card payment"),
		api.Get("/statements", api.SessionMember, h.statements, "List the months of the wallet with their totals"),
		api.Get("/statements/{month}", api.SessionMember, h.statement, "Read the statement of a month"),
		api.Get("/statements/{month}/export", api.SessionMember, h.export, "Download the statement of a month",
			api.Produces("text/csv"), api.Long),
		api.Raw[api.None, received]("/dashboard/webhooks/stripe", api.Public, h.webhook, "Take an event of Stripe's",
			api.RequestHeader("Stripe-Signature", "The signature of the body"), api.Management),
	}
}

// A BillingState is how a wallet can be topped up.
type BillingState struct { //nolint:revive // its name in the OpenAPI document
	Object   string     `json:"object" enum:"billing"`
	Cards    bool       `json:"card_payments" doc:"People can pay by card; otherwise the operator credits the wallet"`
	Min      money.Nano `json:"min_usd"`
	Max      money.Nano `json:"max_usd"`
	Currency string     `json:"currency" enum:"usd"`
	Owed     money.Nano `json:"owed_usd" doc:"What was refunded or disputed and the wallet could not give: the next credit pays it"`
}

func (h *handler) show(ctx context.Context, caller tenant.Caller, _ api.None) (BillingState, error) {
	owed, err := h.store.wallets.Owed(ctx, caller.Workspace)
	if err != nil {
		return BillingState{}, err
	}
	simulated, err := demo(ctx, h.store.db.In(caller.Workspace))
	return BillingState{
		Object: "billing", Cards: h.client.Enabled() && !simulated, Min: h.client.Bounds.Min, Max: h.client.Bounds.Max,
		Currency: Currency, Owed: owed,
	}, err
}

// A NewTopup asks for a page at which an amount can be paid.
type NewTopup struct {
	Amount money.Nano `json:"amount_usd" doc:"In whole cents"`
}

// A ticket names a top-up that has no page yet.
type ticket struct {
	ID string `json:"id"`
}

// create stores the top-up, before Stripe hears of it.
func (h *handler) create(ctx context.Context, caller tenant.Caller, in NewTopup) (ticket, error) {
	if !h.client.Enabled() {
		return ticket{}, fault.Conflict("card payments are not configured here: ask the operator to top the wallet up")
	}
	if err := h.client.Bounds.check(in.Amount); err != nil {
		return ticket{}, err
	}
	made, err := h.store.Create(ctx, caller.Workspace, caller.Actor(), in.Amount)
	return ticket{made.ID}, err
}

// open asks Stripe for the page of a top-up. Asking again for the same one returns the same page.
func (h *handler) open(ctx context.Context, caller tenant.Caller, in ticket) (Topup, error) {
	made, err := h.store.Get(ctx, caller.Workspace, in.ID)
	if err != nil || made.URL != "" || made.State != Pending {
		return made, err
	}
	page, err := h.client.open(ctx, string(caller.Workspace), &made)
	if err == nil {
		return h.store.open(ctx, caller.Workspace, in.ID, page)
	}
	refusal := fault.From(err)
	return Topup{}, errors.Join(err, h.store.fail(context.WithoutCancel(ctx), caller.Workspace, in.ID, refusal.Message))
}

func (h *handler) list(ctx context.Context, caller tenant.Caller, in api.Page) (api.List[Topup], error) {
	all, err := h.store.List(ctx, caller.Workspace, in.More(), in.Offset)
	return api.NewList(in, all), err
}

type atTopup struct {
	ID string `path:"id"`
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in atTopup) (Topup, error) {
	return h.store.Get(ctx, caller.Workspace, in.ID)
}

func (h *handler) statements(
	ctx context.Context, caller tenant.Caller, in api.Page,
) (api.List[wallet.MonthTotal], error) {
	if err := h.drain(ctx); err != nil {
		return api.List[wallet.MonthTotal]{}, err
	}
	all, err := h.store.wallets.Statements(ctx, caller.Workspace, clock.Of(h.now()))
	all = all[min(in.Offset, len(all)):]
	all = append([]wallet.MonthTotal{}, all[:min(in.More(), len(all))]...)
	return api.NewList(in, all), err
}

type atMonth struct {
	Month string `path:"month" doc:"Such as 2026-11"`
}

// maxLines bounds the lines of usage of a statement that is not downloaded.
const maxLines = 1000

func (h *handler) statement(ctx context.Context, caller tenant.Caller, in atMonth) (wallet.Statement, error) {
	if err := h.drain(ctx); err != nil {
		return wallet.Statement{}, err
	}
	made, err := h.store.wallets.Statement(ctx, caller.Workspace, in.Month, clock.Of(h.now()))
	return made.Brief(maxLines), err
}

func (h *handler) export(ctx context.Context, caller tenant.Caller, in atMonth) (api.Stream, error) {
	if err := h.drain(ctx); err != nil {
		return api.Stream{}, err
	}
	made, err := h.store.wallets.Statement(ctx, caller.Workspace, in.Month, clock.Of(h.now()))
	if err != nil {
		return api.Stream{}, err
	}
	return api.Stream{
		ContentType: "text/csv; charset=utf-8", Filename: "statement-" + in.Month + ".csv",
		Write: func(w io.Writer) error { return writeCSV(w, &made) },
	}, nil
}

// Limits of events. They come from anyone until their signature is checked.
const (
	maxEvent     = 64 << 10
	maxHooks     = 32
	eventTimeout = 20 * time.Second
)

// received is the answer to an event.
type received struct {
	Received bool `json:"received"`
}

// webhook takes an event. It answers 200 to what it has done and to what is not for it, so that Stripe sends it once,
// and refuses what it could not do now, so that Stripe sends it again.
func (h *handler) webhook(w http.ResponseWriter, r *http.Request) error {
	if !h.client.Enabled() {
		return fault.Unavailable.New("card payments are not configured here")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxEvent+1))
	switch {
	case err != nil:
		return fault.InvalidBody.Because(err, "the body broke off")
	case len(body) > maxEvent:
		return fault.BodyTooLarge.New("an event has at most %d bytes", maxEvent)
	}
	if err := verify(h.client.WebhookSecret, r.Header.Get("Stripe-Signature"), body, h.now()); err != nil {
		return fault.InvalidParameter.New("Stripe-Signature does not fit the body, or is too old")
	}
	e, asked, err := read(body)
	if err != nil {
		return fault.InvalidBody.Because(err, "the event cannot be read")
	}
	if !h.hooks.Take(1) { // counted once it is Stripe's: whoever sends slowly without a signature holds no place
		return fault.RateLimited.New("too many events at once").In(time.Second)
	}
	defer h.hooks.Give(1)
	ctx, cancel := context.WithTimeout(r.Context(), eventTimeout)
	defer cancel()
	done, err := h.store.apply(ctx, asked)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if done == mismatched {
		level = slog.LevelError // money may have been paid that no wallet has
	}
	h.log.Log(ctx, level, "an event of a payment", "event", e.ID, "type", e.Type, "outcome", string(done))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, err = io.WriteString(w, `{"received":true}`+"\n")
	if err != nil {
		h.log.Debug("the answer to an event did not arrive", "err", err)
	}
	return nil
}
