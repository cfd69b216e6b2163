package providerkey

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/quota"
	"sovereign/internal/store/vault"
)

// A Store keeps keys. Every change is audited in its own transaction, and in force when its method returns.
type Store struct {
	db      *db.DB
	feed    *feed.Feed
	vault   *vault.Vault
	guard   *netguard.Guard
	catalog func() *live.Catalog
}

// NewStore keeps keys for the catalog's providers in d, sealed by v, and publishes changes through f. Their URLs are
// such as guard would dial.
func NewStore(d *db.DB, f *feed.Feed, v *vault.Vault, guard *netguard.Guard, catalog func() *live.Catalog) *Store {
	return &Store{db: d, feed: f, vault: v, guard: guard, catalog: catalog}
}

// Put keeps a key, in the place of the one before it: requests that run keep the key they began with, those that begin
// after Put has returned use the new one.
func (s *Store) Put(ctx context.Context, ws tenant.ID, by tenant.Actor, n New) (ProviderKey, error) {
	if err := n.check(s.catalog(), s.guard); err != nil {
		return ProviderKey{}, err
	}
	sealed, err := s.vault.Seal([]byte(n.APIKey.Reveal()), sealedFor(ws, n.Provider, n.BaseURL))
	if err != nil {
		return ProviderKey{}, fmt.Errorf("seal a provider key: %w", err)
	}
	now := clock.Now()
	after := ProviderKey{Object: object, Provider: n.Provider, BaseURL: n.BaseURL, CreatedAt: now, UpdatedAt: now}
	return after, s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := find(ctx, tx.In(ws), n.Provider)
		if err != nil {
			return err
		}
		if before != nil {
			after.CreatedAt = before.CreatedAt
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO provider_keys (workspace_id, provider, base_url, sealed, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (workspace_id, provider) DO UPDATE SET base_url = excluded.base_url, sealed = excluded.sealed, updated_at = excluded.updated_at`,
			n.Provider, n.BaseURL, sealed, after.CreatedAt, after.UpdatedAt); err != nil {
			return fmt.Errorf("keep a provider key: %w", err)
		}
		if before == nil {
			if err := quota.Check(ctx, tx.In(ws), quota.ProviderKeys, 1); err != nil {
				return err
			}
		}
		tx.Touch(changed, ws, n.Provider)
		return audit.Record(ctx, tx, ws, by, "provider_key.put", n.Provider, before, after)
	})
}

// Delete forgets a key. Requests that begin after it has returned use the server's own, where it has one.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, provider string) error {
	return s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := find(ctx, tx.In(ws), provider)
		if err != nil {
			return err
		}
		if before == nil {
			return fault.NotFound("provider key", provider)
		}
		if _, err := db.Exec(
			ctx, tx.In(ws), `DELETE FROM provider_keys WHERE workspace_id = $1 AND provider = $2`, provider,
		); err != nil {
			return fmt.Errorf("delete a provider key: %w", err)
		}
		tx.Touch(changed, ws, provider)
		return audit.Record(ctx, tx, ws, by, "provider_key.delete", provider, before, nil)
	})
}

const columns = `'provider_key' AS object, provider, base_url, created_at, updated_at FROM provider_keys`

func find(ctx context.Context, scope db.Scoped, provider string) (*ProviderKey, error) {
	k, err := db.Maybe[ProviderKey](
		ctx, scope, `SELECT `+columns+` WHERE workspace_id = $1 AND provider = $2`, provider,
	)
	if err != nil {
		return nil, fmt.Errorf("find a provider key: %w", err)
	}
	return k, nil
}

// List reads what can be told of a workspace's keys, the newest first, and those of one instant by provider.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]ProviderKey, error) {
	return db.Query[ProviderKey](ctx, s.db.In(ws), `SELECT `+columns+`
		WHERE workspace_id = $1 ORDER BY created_at DESC, provider LIMIT $2 OFFSET $3`, limit, offset)
}
