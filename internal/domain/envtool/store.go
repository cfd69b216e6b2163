package envtool

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
	"sovereign/internal/store/vault"
)

// A Store keeps tools, and calls them.
type Store struct {
	db    *db.DB
	vault *vault.Vault
	guard *netguard.Guard
	now   func() clock.Time // clock.Now, except in tests
}

// NewStore keeps tools in d, with secrets that v seals. Their URLs are such as guard would dial.
func NewStore(d *db.DB, v *vault.Vault, guard *netguard.Guard) *Store {
	return &Store{d, v, guard, clock.Now}
}

const columns = `id, name, description, endpoint_url, parameters, timeout_ms, created_at, updated_at`

// shown fills in what the table has in other form.
func (t *Tool) shown() Tool {
	t.Object, t.Parameters = object, jsontext.Value(t.Text)
	return *t
}

// Create keeps a tool. A secret that the server makes is in the answer, once.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, r Request) (Tool, error) {
	if err := r.check(s.guard); err != nil {
		return Tool{}, err
	}
	now := s.now()
	made := Tool{
		ID: id.New("tool"), Name: r.Name, Description: r.Description, EndpointURL: r.EndpointURL,
		Text: string(r.Parameters), TimeoutMS: r.TimeoutMS, CreatedAt: now, UpdatedAt: now,
	}
	made = made.shown()
	key := r.Secret
	if key == nil {
		text := rand.Text() + rand.Text()
		made.Secret = &text
		own := secret.New(text)
		key = &own
	}
	sealed, err := s.vault.Seal([]byte(key.Reveal()), sealedFor(ws, made.ID, made.EndpointURL))
	if err != nil {
		return Tool{}, fmt.Errorf("seal the secret of a tool: %w", err)
	}
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		there, err := db.Maybe[string](
			ctx, in, `SELECT id FROM environment_tools WHERE workspace_id = $1 AND name = $2`, r.Name,
		)
		switch {
		case err != nil:
			return fmt.Errorf("find a tool by its name: %w", err)
		case there != nil:
			return fault.Conflict("there is a tool %q already: %s", r.Name, *there)
		}
		if _, err := db.Exec(ctx, in, `
			INSERT INTO environment_tools (workspace_id, id, name, description, endpoint_url, parameters, timeout_ms, sealed,
				created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)`,
			made.ID, made.Name, made.Description, made.EndpointURL, made.Text, made.TimeoutMS, sealed, now); err != nil {
			return fmt.Errorf("insert a tool: %w", err)
		}
		if err := quota.Check(ctx, in, quota.EnvironmentTools, 1); err != nil {
			return err
		}
		public := made
		public.Secret = nil
		return audit.Record(ctx, tx, ws, by, object+".create", made.ID, nil, public)
	})
	return made, err
}

// Get reads a tool.
func (s *Store) Get(ctx context.Context, in db.Scoped, toolID string) (Tool, error) {
	t, err := db.Maybe[Tool](
		ctx, in, `SELECT `+columns+` FROM environment_tools WHERE workspace_id = $1 AND id = $2`, toolID,
	)
	switch {
	case err != nil:
		return Tool{}, fmt.Errorf("find a tool: %w", err)
	case t == nil:
		return Tool{}, fault.NotFound("environment tool", toolID)
	}
	return t.shown(), nil
}

// List reads tools, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Tool, error) {
	all, err := db.Query[Tool](ctx, s.db.In(ws), `SELECT `+columns+` FROM environment_tools WHERE workspace_id = $1
		ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list tools: %w", err)
	}
	for i := range all {
		all[i] = all[i].shown()
	}
	return all, nil
}

// Delete deletes a tool and its secret. Transcripts of its calls stay.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, toolID string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := s.Get(ctx, tx.In(ws), toolID)
		if err != nil {
			return err
		}
		if _, err := db.Exec(
			ctx, tx.In(ws), `DELETE FROM environment_tools WHERE workspace_id = $1 AND id = $2`, toolID,
		); err != nil {
			return fmt.Errorf("delete a tool: %w", err)
		}
		return audit.Record(ctx, tx, ws, by, object+".delete", toolID, before, nil)
	})
	return err
}

// open returns a tool with its secret.
func (s *Store) open(ctx context.Context, ws tenant.ID, toolID string) (Tool, secret.Text, error) {
	t, err := s.Get(ctx, s.db.In(ws), toolID)
	if err != nil {
		return t, secret.Text{}, err
	}
	sealed, err := db.One[[]byte](
		ctx, s.db.In(ws), `SELECT sealed FROM environment_tools WHERE workspace_id = $1 AND id = $2`, toolID,
	)
	if err != nil {
		return t, secret.Text{}, fmt.Errorf("read the secret of a tool: %w", err)
	}
	plain, err := s.vault.Unseal(sealed, sealedFor(ws, t.ID, t.EndpointURL))
	if err != nil {
		return t, secret.Text{}, fmt.Errorf("open the secret of a tool: %w", err)
	}
	return t, secret.New(string(plain)), nil
}
