package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/dash/signin"
	"sovereign/internal/store/api"
	"sovereign/internal/store/backup"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
	"sovereign/internal/store/vault"
)

// operatorRoutes are the operations on the whole server.
func (i *instance) operatorRoutes() []api.Route {
	return append(append(i.chainRoutes(), i.nodeRoutes()...), []api.Route{
		api.Post(
			"/bootstrap", api.Operator, i.bootstrapRoute, "Make a workspace with an owner, credit and a key",
			api.Creates, api.ShowsSecret,
		),
		api.Get(
			"/backup", api.Operator, i.backupRoute, "Download the whole database as one file", api.Long,
			api.Produces("application/gzip"),
		),
		api.Post("/root-key/rotation", api.Operator, i.rotateRoute, "Replace the root key", api.Long, api.Outside),
		api.Get("/signing-keys", api.Operator, i.signingKeysRoute, "List the keys that sign certificates, or once did"),
		api.Post("/signing-keys/rotation", api.Operator, i.rotateSigningRoute, "Put a new signing key in force"),
	}...)
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

func (i *instance) bootstrapRoute(ctx context.Context, caller tenant.Caller, in NewWorkspace) (Bootstrapped, error) {
	return i.bootstrap(ctx, caller.Actor(), in, func(Bootstrapped) error { return nil })
}

// bootstrap makes a workspace, its owner, its credit and a key in one transaction. show is called before the commit: a
// key that is in force has been shown, even when the process is killed in between.
func (i *instance) bootstrap(
	ctx context.Context, by tenant.Actor, in NewWorkspace, show func(Bootstrapped) error,
) (Bootstrapped, error) {
	if in.Balance < 0 {
		return Bootstrapped{}, fault.Invalid("balance_usd", "must be 0 or more")
	}
	var made Bootstrapped
	version, err := i.storage.db.Tx(ctx, func(tx *db.Tx) error {
		ctx := tx.Bind(ctx)
		ws, owner, err := i.domains.workspaces.Create(ctx, by, in.Workspace, in.Email)
		if err != nil {
			return err
		}
		if in.Balance != 0 {
			if _, err := i.domains.wallets.TopUp(ctx, ws.ID, by, in.Balance, "first credit"); err != nil {
				return err
			}
		}
		_, key, err := i.domains.workspaces.CreateKey(ctx, ws.ID, by, owner.Email, "default")
		if err != nil {
			return err
		}
		made = Bootstrapped{WorkspaceID: ws.ID, UserID: owner.UserID, APIKey: key.Reveal()}
		return show(made)
	})
	if err != nil {
		return Bootstrapped{}, err
	}
	return made, i.state.feed.Await(ctx, version)
}

func (i *instance) backupRoute(ctx context.Context, _ tenant.Caller, _ api.None) (api.Stream, error) {
	if err := i.state.poster.Drain(ctx); err != nil { // what is finished is in the database, and so in the backup
		return api.Stream{}, fmt.Errorf("post the journal before a backup: %w", err)
	}
	// a broken chain is backed up as it is
	if err := i.storage.sealer.Seal(ctx); err != nil && !errors.Is(err, chain.ErrHead) {
		return api.Stream{}, fmt.Errorf("seal the chains before a backup: %w", err)
	}
	return api.Stream{
		ContentType: "application/gzip",
		Filename:    "sovereign-" + clock.Now().Std().Format("20060102T150405Z") + ".backup",
		Write:       func(w io.Writer) error { return backup.Write(ctx, i.storage.db, w) },
	}, nil
}

func (i *instance) rotateRoute(ctx context.Context, caller tenant.Caller, _ api.None) (vault.Rotation, error) {
	done, err := i.storage.vault.RotateRoot(ctx, caller.Actor())
	if err == nil {
		i.log.Info("root key rotated", "from", done.From, "to", done.To, "kept", done.Kept)
	}
	return done, err
}

func (i *instance) signingKeysRoute(
	ctx context.Context, _ tenant.Caller, in api.Page,
) (api.List[vault.SigningKey], error) {
	all, err := i.storage.vault.SigningKeys(ctx, in.More(), in.Offset)
	return api.NewList(in, all), err
}

func (i *instance) rotateSigningRoute(ctx context.Context, caller tenant.Caller, _ api.None) (vault.Rotated, error) {
	return i.storage.vault.RotateSigning(ctx, caller.Actor())
}

// jwkSet is the type of a set of public keys (RFC 7517).
const jwkSet = "application/jwk-set+json"

// jwksRoute answers the public keys, retired ones included: a client that caches them can verify every earlier
// signature.
func (i *instance) jwksRoute(ctx context.Context, _ tenant.Caller, _ api.None) (api.Document, error) {
	keys, err := i.storage.vault.JWKS(ctx)
	return api.Document{ContentType: jwkSet, Headers: map[string]string{"Cache-Control": "public, max-age=300"}, Body: append(keys, '\n')}, err
}

// Health answers a health check.
type Health struct {
	Status string `json:"status" enum:"ok,ready"`
}

// publicRoutes need no key.
func (i *instance) publicRoutes() []api.Route {
	ready := &readiness{instance: i}
	return []api.Route{
		api.Get("/healthz", api.Public, func(context.Context, tenant.Caller, api.None) (Health, error) {
			return Health{Status: "ok"}, nil
		}, "Is the process alive?"),
		api.Get("/readyz", api.Public, func(ctx context.Context, _ tenant.Caller, _ api.None) (Health, error) {
			return Health{Status: "ready"}, ready.check(ctx)
		}, "Should this server get traffic? 503 while stopping or without its database"),
		api.Get("/.well-known/jwks.json", api.Public, i.jwksRoute, "The public keys that certificates are signed with, retired ones too (RFC 7517)",
			api.Produces(jwkSet), api.ResponseHeader(
				"Cache-Control", "It may be kept for five minutes; ask again for a key that is not in it",
			)),
	}
}

// readiness checks the database at most once a second, however often it is called.
type readiness struct {
	instance *instance
	mu       sync.Mutex
	at       time.Time
	err      error
}

func (r *readiness) check(ctx context.Context) error {
	if err := r.instance.gate(); err != nil {
		return err
	}
	if r.instance.draining.Load() || r.instance.member.Leaving() {
		return fault.Unavailable.New("the server is stopping").In(time.Second)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) > time.Second {
		// the result is also for the next call
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		r.err, r.at = r.instance.storage.db.Ping(ctx), time.Now()
	}
	if r.err != nil {
		return fault.Unavailable.Because(r.err, "the database does not answer").In(time.Second)
	}
	return nil
}

// firstStart makes a workspace when there is none, and prints its key and a link to the dashboard to out before they
// are in force.
func (i *instance) firstStart(ctx context.Context, address string, out io.Writer) error {
	there, err := i.domains.workspaces.List(ctx, 1, 0)
	if err != nil || len(there) > 0 {
		return err
	}
	in := NewWorkspace{Workspace: "default", Email: "owner@localhost", Balance: 25 * money.Dollar}
	version, err := i.storage.db.Tx(ctx, func(tx *db.Tx) error {
		bound := tx.Bind(ctx)
		// Servers that start at once on an empty database come here one after the other. Only the first makes a
		// workspace, and prints a key.
		if _, err := db.Exec(
			ctx, tx.Across("the feed is everybody's"), `UPDATE feed_head SET version = version WHERE id = 1`,
		); err != nil {
			return err
		}
		if there, err := i.domains.workspaces.List(bound, 1, 0); err != nil || len(there) > 0 {
			return err
		}
		_, err := i.bootstrap(bound, tenant.Operator, in, func(made Bootstrapped) error {
			link, err := i.dash.sessions.MakeLink(bound, tenant.Operator, signin.SignIn, in.Email)
			if err != nil {
				return err
			}
			return i.welcome(out, address, in, made, link.URL(i.dash.options.Load().URL))
		})
		return err
	})
	if err != nil {
		return err
	}
	return i.state.feed.Await(ctx, version)
}

// welcome prints what the first start made.
func (i *instance) welcome(out io.Writer, address string, in NewWorkspace, made Bootstrapped, link string) error {
	_, err := fmt.Fprintf(out, `
First start: a workspace was made for you.

  workspace   %s (%s)
  owner       %s
  credit      $%s
  API key     %s
              shown once: keep it now
  dashboard   %s
              works once, within 15 minutes, and until another is made: admin dashboard link

Try it:

  curl -sS %s/v1/chat/completions -H "Authorization: Bearer %s" -H "Content-Type: application/json" -d '{"model":"sim/chat","messages":[{"role":"user","content":"Hello"}]}'

sim/chat is simulated, inside this binary. Real models:  GET %s/v1/models, and providers and models in the configuration
The API, to read: %s/docs
Another key:      %s admin key create --data-dir %s --workspace %s --email %s
Another link:     %s admin dashboard link --data-dir %s --email %s

`, in.Workspace, made.WorkspaceID, in.Email, in.Balance, made.APIKey, link, address, made.APIKey, address, address,
		os.Args[0], i.storage.config.DataDir, in.Workspace, in.Email, os.Args[0], i.storage.config.DataDir, in.Email)
	return err
}
