package notify

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/notice"
	"sovereign/internal/store/quota"
	"sovereign/internal/store/vault"
)

// A Store keeps channels and deliveries.
type Store struct {
	db    *db.DB
	vault *vault.Vault
	guard *netguard.Guard
	mails bool // e-mail is configured
	now   func() clock.Time
}

// NewStore keeps channels in d, with secrets that v seals. Their URLs are such as guard would dial.
func NewStore(d *db.DB, v *vault.Vault, guard *netguard.Guard, mails bool) *Store {
	return &Store{db: d, vault: v, guard: guard, mails: mails, now: clock.Now}
}

// A row is a channel as it is stored.
type row struct {
	Channel
	WorkspaceID tenant.ID
	Sealed      []byte
	KindList    string     `db:"kinds"`
	Failing     clock.Time `db:"failing_since"`
}

const channelColumns = `workspace_id, id, 'channel' AS object, type, address, sealed, kinds, enabled, failing_since,
	disabled_reason, created_at, updated_at`

func (r *row) channel() (Channel, error) {
	c := r.Channel
	if r.Failing > 0 {
		c.FailingSince = &r.Failing
	}
	if err := json.Unmarshal([]byte(r.KindList), &c.Kinds); err != nil {
		return c, fmt.Errorf("read the kinds of a channel: %w", err)
	}
	return c, nil
}

func encode(kinds []notice.Kind) string {
	text, _ := json.Marshal(kinds) // strings that were read as JSON
	return string(text)
}

// secretPrefix and secretSize are as Standard Webhooks says.
const (
	secretPrefix = "whsec_"
	secretSize   = 32
)

// Create stores a channel. That of a webhook has a secret, which is shown once.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, n NewChannel) (made Channel, err error) {
	if err := n.check(s.guard, s.mails); err != nil {
		return Channel{}, err
	}
	now := s.now()
	made = Channel{
		ID: id.New("chan"), Object: "channel", Type: n.Type, Address: n.Address, Kinds: n.Kinds,
		Enabled: n.Enabled == nil || *n.Enabled, CreatedAt: now, UpdatedAt: now,
	}
	shown, sealed, err := s.newSecret(ws, &made)
	if err != nil {
		return Channel{}, err
	}
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO notice_channels (workspace_id, id, type, address, sealed, kinds, enabled, failing_since,
				disabled_reason, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, 0, '', $8, $8)`,
			made.ID, made.Type, made.Address, sealed, encode(made.Kinds), made.Enabled, now); err != nil {
			return fmt.Errorf("create a channel: %w", err)
		}
		if err := quota.Check(ctx, tx.In(ws), quota.Channels, 1); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "channel.create", made.ID, nil, made)
	})
	made.Secret = shown
	return made, err
}

// newSecret makes the secret of a webhook, as it is shown and as it is stored. An e-mail address has none.
func (s *Store) newSecret(ws tenant.ID, c *Channel) (shown string, sealed []byte, err error) {
	if c.Type != Webhook {
		return "", nil, nil
	}
	var raw [secretSize]byte
	_, _ = rand.Read(raw[:]) // never fails
	if sealed, err = s.vault.Seal(raw[:], sealedFor(ws, c.ID, c.Address)); err != nil {
		return "", nil, fmt.Errorf("seal the secret of a channel: %w", err)
	}
	return secretPrefix + base64.StdEncoding.EncodeToString(raw[:]), sealed, nil
}

// Rotate gives a webhook another secret, which is shown once. The old one signs nothing any more.
func (s *Store) Rotate(
	ctx context.Context, ws tenant.ID, by tenant.Actor, channelID string,
) (after Channel, err error) {
	var shown string
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := findChannel(ctx, tx.In(ws), channelID)
		if err != nil {
			return err
		}
		var sealed []byte
		if shown, sealed, err = s.newSecret(ws, &r.Channel); err != nil {
			return err
		}
		if sealed == nil {
			return fault.Conflict("an e-mail channel has no secret")
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			UPDATE notice_channels SET sealed = $3, updated_at = $4 WHERE workspace_id = $1 AND id = $2`,
			channelID, sealed, s.now()); err != nil {
			return fmt.Errorf("store the secret of a channel: %w", err)
		}
		if after, err = r.channel(); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "channel.rotate", channelID, nil, nil)
	})
	after.Secret = shown
	return after, err
}

// Update changes a channel. One that is enabled again begins without failures.
func (s *Store) Update(
	ctx context.Context, ws tenant.ID, by tenant.Actor, channelID string, change ChannelChange,
) (after Channel, err error) {
	if change.Kinds != nil {
		if err := checkKinds(*change.Kinds); err != nil {
			return Channel{}, err
		}
	}
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := findChannel(ctx, tx.In(ws), channelID)
		if err != nil {
			return err
		}
		before, err := r.channel()
		if err != nil {
			return err
		}
		after = before
		if change.Kinds != nil {
			after.Kinds = *change.Kinds
		}
		if change.Enabled != nil {
			after.Enabled = *change.Enabled
			after.DisabledReason, after.FailingSince = "", nil
		}
		after.UpdatedAt = s.now()
		if err := saveChannel(ctx, tx.In(ws), &after); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "channel.update", channelID, before, after)
	})
	return after, err
}

func saveChannel(ctx context.Context, in db.Scoped, c *Channel) error {
	failing := clock.Time(0)
	if c.FailingSince != nil {
		failing = *c.FailingSince
	}
	_, err := db.Exec(ctx, in, `
		UPDATE notice_channels SET kinds = $3, enabled = $4, failing_since = $5, disabled_reason = $6, updated_at = $7
		WHERE workspace_id = $1 AND id = $2`, c.ID, encode(c.Kinds), c.Enabled, failing, c.DisabledReason, c.UpdatedAt)
	if err != nil {
		return fmt.Errorf("store a channel: %w", err)
	}
	return nil
}

// Delete forgets a channel, its secret and its deliveries.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, channelID string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := findChannel(ctx, tx.In(ws), channelID)
		if err != nil {
			return err
		}
		before, err := r.channel()
		if err != nil {
			return err
		}
		for _, remove := range []string{
			`DELETE FROM notice_deliveries WHERE workspace_id = $1 AND channel_id = $2`,
			`DELETE FROM notice_channels WHERE workspace_id = $1 AND id = $2`,
		} {
			if _, err := db.Exec(ctx, tx.In(ws), remove, channelID); err != nil {
				return fmt.Errorf("delete a channel: %w", err)
			}
		}
		return audit.Record(ctx, tx, ws, by, "channel.delete", channelID, before, nil)
	})
	return err
}

func findChannel(ctx context.Context, in db.Scoped, channelID string) (*row, error) {
	r, err := db.Maybe[row](ctx, in, `SELECT `+channelColumns+` FROM notice_channels
		WHERE workspace_id = $1 AND id = $2`, channelID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find a channel: %w", err)
	case r == nil:
		return nil, fault.NotFound("channel", channelID)
	}
	return r, nil
}

// Get returns a channel.
func (s *Store) Get(ctx context.Context, ws tenant.ID, channelID string) (Channel, error) {
	r, err := findChannel(ctx, s.db.In(ws), channelID)
	if err != nil {
		return Channel{}, err
	}
	return r.channel()
}

// List reads the channels of a workspace, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, limit, offset int) ([]Channel, error) {
	return channels(ctx, s.db.In(ws), `ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, limit, offset)
}

func channels(ctx context.Context, in db.Scoped, which string, args ...any) ([]Channel, error) {
	rows, err := db.Query[row](ctx, in, `SELECT `+channelColumns+` FROM notice_channels WHERE workspace_id = $1 `+which,
		args...)
	if err != nil {
		return nil, fmt.Errorf("list channels: %w", err)
	}
	all := make([]Channel, len(rows))
	for i := range rows {
		if all[i], err = rows[i].channel(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// A target is a channel that can be sent to.
type target struct {
	Channel
	url netguard.URL
	key secret.Text // of a webhook's signatures
}

// target returns a channel as it is now, with its secret.
func (s *Store) target(ctx context.Context, ws tenant.ID, channelID string) (*target, error) {
	r, err := findChannel(ctx, s.db.In(ws), channelID)
	if err != nil {
		return nil, err
	}
	to := &target{Channel: r.Channel}
	if r.Type != Webhook {
		return to, nil
	}
	if to.url, err = s.guard.Parse(r.Address); err != nil {
		return nil, fault.Upstream.Because(err, "the URL cannot be called any more")
	}
	plain, err := s.vault.Unseal(r.Sealed, sealedFor(ws, r.ID, r.Address))
	if err != nil {
		return nil, fault.Upstream.Because(err, "the secret cannot be read: make another")
	}
	to.key = secret.New(string(plain))
	return to, nil
}
