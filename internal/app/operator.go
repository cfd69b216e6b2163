package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/backup"
	"sovereign/internal/store/db"
	"sovereign/internal/store/vault"
)

// operatorRoutes are the operations on the whole server.
func (h *house) operatorRoutes() []api.Route {
	return []api.Route{
		api.Post("/bootstrap", api.Operator, h.bootstrapRoute, "Make a workspace with an owner, credit and a key", api.Creates, api.ShowsSecret),
		api.Get("/backup", api.Operator, h.backupRoute, "Download the whole database as one file", api.Long, api.Produces("application/gzip")),
		api.Post("/root-key/rotation", api.Operator, h.rotateRoute, "Replace the root key", api.Long, api.Outside),
		api.Get("/signing-keys", api.Operator, h.signingKeysRoute, "List the keys that sign certificates, or once did"),
		api.Post("/signing-keys/rotation", api.Operator, h.rotateSigningRoute, "Put a new signing key in force"),
	}
}

// A NewWorkspace asks for everything a team needs to begin.
type NewWorkspace struct {
	Workspace string     `json:"workspace"`
	Email     string     `json:"email"`
	Balance   money.Nano `json:"balance_usd,omitempty"`
}

// A Bootstrapped workspace, with its first key, shown once.
type Bootstrapped struct {
	WorkspaceID tenant.ID     `json:"workspace_id"`
	UserID      tenant.UserID `json:"user_id"`
	APIKey      string        `json:"api_key" doc:"Shown now and never again"`
}

func (h *house) bootstrapRoute(ctx context.Context, caller tenant.Caller, in NewWorkspace) (Bootstrapped, error) {
	return h.bootstrap(ctx, caller.Actor(), in, func(Bootstrapped) error { return nil })
}

// bootstrap makes a workspace, its owner, its credit and a key, all or nothing. show is called before anything is
// kept: a key that is in force has been shown, whatever dies when.
func (h *house) bootstrap(ctx context.Context, by tenant.Actor, in NewWorkspace, show func(Bootstrapped) error) (Bootstrapped, error) {
	if in.Balance < 0 {
		return Bootstrapped{}, fault.Invalid("balance_usd", "must be 0 or more")
	}
	var made Bootstrapped
	version, err := h.db.Tx(ctx, func(tx *db.Tx) error {
		ctx := tx.Bind(ctx)
		ws, owner, err := h.workspaces.Create(ctx, by, in.Workspace, in.Email)
		if err != nil {
			return err
		}
		if in.Balance != 0 {
			if _, err := h.wallets.TopUp(ctx, ws.ID, by, in.Balance, "first credit"); err != nil {
				return err
			}
		}
		_, key, err := h.workspaces.CreateKey(ctx, ws.ID, by, owner.Email, "default")
		if err != nil {
			return err
		}
		made = Bootstrapped{WorkspaceID: ws.ID, UserID: owner.UserID, APIKey: key.Reveal()}
		return show(made)
	})
	if err != nil {
		return Bootstrapped{}, err
	}
	return made, h.feed.Await(ctx, version)
}

func (h *house) backupRoute(ctx context.Context, _ tenant.Caller, _ api.None) (api.Stream, error) {
	if err := h.teller.Drain(ctx); err != nil { // what is finished is in the database, and so in the backup
		return api.Stream{}, fmt.Errorf("post the journal before a backup: %w", err)
	}
	return api.Stream{
		ContentType: "application/gzip",
		Filename:    "sovereign-" + clock.Now().Std().Format("20060102T150405Z") + ".backup",
		Write:       func(w io.Writer) error { return backup.Write(ctx, h.db, w) },
	}, nil
}

func (h *house) rotateRoute(ctx context.Context, caller tenant.Caller, _ api.None) (vault.Rotation, error) {
	done, err := h.vault.RotateRoot(ctx, caller.Actor())
	if err == nil {
		h.log.Info("root key rotated", "from", done.From, "to", done.To, "kept", done.Kept)
	}
	return done, err
}

func (h *house) signingKeysRoute(ctx context.Context, _ tenant.Caller, in api.Page) (api.List[vault.SigningKey], error) {
	all, err := h.vault.SigningKeys(ctx, in.More(), in.Offset)
	return api.NewList(in, all), err
}

func (h *house) rotateSigningRoute(ctx context.Context, caller tenant.Caller, _ api.None) (vault.Rotated, error) {
	return h.vault.RotateSigning(ctx, caller.Actor())
}

// jwkSet is the type of a set of public keys (RFC 7517).
const jwkSet = "application/jwk-set+json"

// jwksRoute answers the public keys. Whoever keeps them a while still knows every key that signed before.
func (h *house) jwksRoute(ctx context.Context, _ tenant.Caller, _ api.None) (api.Document, error) {
	keys, err := h.vault.JWKS(ctx)
	return api.Document{ContentType: jwkSet, Headers: map[string]string{"Cache-Control": "public, max-age=300"}, Body: append(keys, '\n')}, err
}

// Health answers a prober.
type Health struct {
	Status string `json:"status" enum:"ok,ready"`
}

// publicRoutes need no key.
func (h *house) publicRoutes() []api.Route {
	ready := &readiness{house: h}
	return []api.Route{
		api.Get("/healthz", api.Public, func(context.Context, tenant.Caller, api.None) (Health, error) {
			return Health{Status: "ok"}, nil
		}, "Is the process alive?"),
		api.Get("/readyz", api.Public, func(ctx context.Context, _ tenant.Caller, _ api.None) (Health, error) {
			return Health{Status: "ready"}, ready.check(ctx)
		}, "Should this server get traffic? 503 while stopping or without its database"),
		api.Get("/.well-known/jwks.json", api.Public, h.jwksRoute, "The public keys that certificates are signed with, retired ones too (RFC 7517)",
			api.Produces(jwkSet), api.ResponseHeader("Cache-Control", "It may be kept for five minutes; ask again for a key that is not in it")),
	}
}

// readiness asks the database at most once a second, however often it is asked itself.
type readiness struct {
	house *house
	mu    sync.Mutex
	at    time.Time
	err   error
}

func (r *readiness) check(ctx context.Context) error {
	if err := r.house.gate(); err != nil {
		return err
	}
	if r.house.draining.Load() {
		return fault.Unavailable.New("the server is stopping").In(time.Second)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) > time.Second {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second) // the answer is for the next prober too
		defer cancel()
		r.err, r.at = r.house.db.Ping(ctx), time.Now()
	}
	if r.err != nil {
		return fault.Unavailable.Because(r.err, "the database does not answer").In(time.Second)
	}
	return nil
}

// firstStart makes a workspace when there is none, and shows its key. The key is on out before it is in force.
func (h *house) firstStart(ctx context.Context, address string, out io.Writer) error {
	there, err := h.workspaces.List(ctx, 1, 0)
	if err != nil || len(there) > 0 {
		return err
	}
	in := NewWorkspace{Workspace: "default", Email: "owner@localhost", Balance: 25 * money.Dollar}
	_, err = h.bootstrap(ctx, tenant.Operator, in, func(made Bootstrapped) error {
		_, err := fmt.Fprintf(out, `
First start: a workspace was made for you.

  workspace   %s (%s)
  owner       %s
  credit      $%s
  API key     %s
              shown once: keep it now

Try it:

  curl -sS %s/v1/chat/completions -H "Authorization: Bearer %s" -H "Content-Type: application/json" -d '{"model":"sim/chat","messages":[{"role":"user","content":"Hello"}]}'

sim/chat is simulated, inside this binary. Real models:  GET %s/v1/models, and providers and models in the configuration
The API, to read: %s/docs
Another key:      %s admin key create --data-dir %s --workspace %s --email %s

`, in.Workspace, made.WorkspaceID, in.Email, in.Balance, made.APIKey, address, made.APIKey, address, address, os.Args[0], h.storage.DataDir, in.Workspace, in.Email)
		return err
	})
	return err
}
