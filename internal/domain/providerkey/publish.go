package providerkey

import (
	"context"
	"fmt"
	"log/slog"

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/vault"
)

// changed is the kind of change that is published.
const changed = "provider_key"

// A Publisher publishes the table of provider keys to the data plane.
type Publisher struct {
	db    *db.DB
	vault *vault.Vault
	live  *live.Keyring
	log   *slog.Logger
}

// NewPublisher publishes d's keys, which v opens, into to.
func NewPublisher(d *db.DB, v *vault.Vault, to *live.Keyring, log *slog.Logger) *Publisher {
	return &Publisher{db: d, vault: v, live: to, log: log}
}

// Sources is what the feed needs to know.
func (p *Publisher) Sources() map[string]feed.Source { return map[string]feed.Source{changed: p} }

type row struct {
	Ws       tenant.ID
	Provider string
	BaseURL  string `db:"base_url"`
	Sealed   []byte
}

const rowColumns = `workspace_id AS ws, provider, base_url, sealed FROM provider_keys`

// open unseals a key. A key that does not open was sealed for another workspace, provider or URL, or was changed.
// Requests that need it are refused: the server's own key must not pay for them.
func (p *Publisher) open(r row) *live.OwnKey {
	plain, err := p.vault.Unseal(r.Sealed, sealedFor(r.Ws, r.Provider, r.BaseURL))
	if err != nil {
		p.log.Error(
			"a provider key cannot be read: set it again", "workspace", r.Ws, "provider", r.Provider, "err", err,
		)
		return &live.OwnKey{Broken: true}
	}
	return &live.OwnKey{Key: secret.New(string(plain)), BaseURL: r.BaseURL}
}

// Fill publishes every key there is.
func (p *Publisher) Fill(ctx context.Context) error {
	all := map[live.OwnKeyName]*live.OwnKey{}
	for r, err := range db.Rows[row](ctx, p.db.Across("the data plane serves all workspaces"), `SELECT `+rowColumns) {
		if err != nil {
			return fmt.Errorf("read provider keys: %w", err)
		}
		all[live.OwnKeyName{Workspace: r.Ws, Provider: r.Provider}] = p.open(r)
	}
	p.live.Replace(all)
	return nil
}

// Apply publishes a key as it is now.
func (p *Publisher) Apply(ctx context.Context, c db.Change) error {
	r, err := db.Maybe[row](
		ctx, p.db.In(c.Workspace), `SELECT `+rowColumns+` WHERE workspace_id = $1 AND provider = $2`, c.Subject,
	)
	if err != nil {
		return fmt.Errorf("read a provider key: %w", err)
	}
	if r == nil {
		p.live.Drop(c.Workspace, c.Subject)
	} else {
		p.live.Put(c.Workspace, r.Provider, p.open(*r))
	}
	return nil
}
