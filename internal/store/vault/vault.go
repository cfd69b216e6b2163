package vault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// ErrWrongRoot reports that the root key does not open this database.
var ErrWrongRoot = errors.New("the root key does not open this database")

// ErrSealed reports that a sealed value does not open: it was changed, or sealed for another purpose.
var ErrSealed = errors.New("the sealed value does not open here")

// A Vault encrypts and decrypts secrets. Make it with Open.
type Vault struct {
	db   *db.DB
	data tink.AEAD

	mu   sync.Mutex // serializes rotations
	root *Root
}

// wrapPurpose is the associated data of a wrapped data key.
const wrapPurpose = "sovereign data key"

type dataKey struct {
	ID      int64
	RootID  string
	Wrapped []byte
}

// Empty reports whether the database has no data key yet, so that any root key may be used for it.
func Empty(ctx context.Context, d *db.DB) (bool, error) {
	keys, err := readDataKeys(ctx, d.Across("data keys serve all workspaces"))
	return len(keys) == 0, err
}

// Check returns ErrWrongRoot when root does not open the database's data keys. It changes nothing.
func Check(ctx context.Context, d *db.DB, root *Root) error {
	keys, err := readDataKeys(ctx, d.Across("data keys serve all workspaces"))
	if err != nil {
		return err
	}
	for _, key := range keys {
		if _, err := root.unwrap(key); err != nil {
			return err
		}
	}
	return nil
}

// Open opens the database's secrets with root. It creates a missing data key or signing key, and finishes a rotation
// that a kill interrupted.
func Open(ctx context.Context, d *db.DB, root *Root) (*Vault, error) {
	v := &Vault{db: d, root: root}
	_, err := d.Tx(ctx, func(tx *db.Tx) error {
		across := tx.Across("data keys serve all workspaces")
		handle, err := root.dataKey(ctx, across)
		if err != nil {
			return err
		}
		if v.data, err = aead.New(handle); err != nil {
			return err
		}
		return v.firstSigningKey(ctx, across)
	})
	if err != nil {
		return nil, fmt.Errorf("open the vault: %w", err)
	}
	if root.rotating() {
		return v, v.finishRotation(ctx, tenant.Operator, root)
	}
	return v, nil
}

// Inspect opens the secrets of a database that has them, with root. It changes nothing.
func Inspect(ctx context.Context, d *db.DB, root *Root) (*Vault, error) {
	keys, err := readDataKeys(ctx, d.Across("data keys serve all workspaces"))
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("the database has no data key")
	}
	handle, err := root.unwrap(keys[0])
	if err != nil {
		return nil, err
	}
	data, err := aead.New(handle)
	return &Vault{db: d, root: root, data: data}, err
}

// dataKey reads the data key, or creates the first one.
func (r *Root) dataKey(ctx context.Context, across db.Scoped) (*keyset.Handle, error) {
	keys, err := readDataKeys(ctx, across)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		return r.unwrap(keys[0])
	}
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, err
	}
	wrapped, err := r.wrap(handle)
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(ctx, across,
		`INSERT INTO vault_keys (id, root_id, wrapped, created_at, wrapped_at) VALUES (1, $1, $2, $3, $3)`,
		r.ID(), wrapped, clock.Now())
	return handle, err
}

// Seal encrypts plain for one purpose, such as "provider key of ws_… for openai". The purpose is authenticated: a row
// that is copied elsewhere does not open there.
func (v *Vault) Seal(plain []byte, purpose string) ([]byte, error) {
	return v.data.Encrypt(plain, []byte(purpose))
}

// Unseal decrypts what Seal made for the same purpose.
func (v *Vault) Unseal(sealed []byte, purpose string) ([]byte, error) {
	plain, err := v.data.Decrypt(sealed, []byte(purpose))
	if err != nil {
		return nil, ErrSealed
	}
	return plain, nil
}

// A Rotation is the result of a rotation of the root key.
type Rotation struct {
	From string `json:"from"`
	To   string `json:"to"`
	Kept string `json:"kept" doc:"The file that holds the old key, for backups of its day"`
}

// RotateRoot replaces the root key of a running server without re-encrypting any secret. It saves a copy of the old
// key, adds the new key to the file, wraps the data keys anew, and removes the old key from the file. After a kill at
// any point, the next Open finishes the rotation.
func (v *Vault) RotateRoot(ctx context.Context, by tenant.Actor) (Rotation, error) {
	if db.Bound(ctx) {
		return Rotation{}, errors.New("a root key cannot be rotated within a transaction: the file would change before the database")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	ctx = context.WithoutCancel(ctx) // a caller that disconnects must not leave two keys in the file
	// The file may have changed since it was read: a key that does not open the database must never overwrite it.
	current, err := LoadRoot(v.root.path)
	if err != nil {
		return Rotation{}, fmt.Errorf("read the root key file: %w", err)
	}
	if err := Check(ctx, v.db, current); err != nil {
		return Rotation{}, err
	}
	v.root = current
	done := Rotation{From: v.root.ID(), Kept: v.root.Retired()}
	if err := v.root.saveAs(done.Kept); err != nil {
		return Rotation{}, fmt.Errorf("put the old root key aside: %w", err)
	}
	both, err := v.root.withNewKey()
	if err != nil {
		return Rotation{}, fmt.Errorf("make a root key: %w", err)
	}
	done.To = both.ID()
	if err := both.save(); err != nil {
		return Rotation{}, fmt.Errorf("write the root key file: %w", err)
	}
	v.root = both // from here on the database may be wrapped by either key, so that a retry must keep both
	if err := v.finishRotation(ctx, by, both); err != nil {
		return Rotation{}, err
	}
	return done, nil
}

// finishRotation wraps every data key with the first key of both, then removes the others from the file.
func (v *Vault) finishRotation(ctx context.Context, by tenant.Actor, both *Root) error {
	_, err := v.db.Tx(ctx, func(tx *db.Tx) error {
		across := tx.Across("data keys serve all workspaces")
		keys, err := readDataKeys(ctx, across)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if key.RootID == both.ID() {
				continue // wrapped already, before a kill
			}
			handle, err := both.unwrap(key)
			if err != nil {
				return err
			}
			wrapped, err := both.wrap(handle)
			if err != nil {
				return err
			}
			if _, err := db.Exec(ctx, across, `UPDATE vault_keys SET root_id = $1, wrapped = $2, wrapped_at = $3 WHERE id = $4`,
				both.ID(), wrapped, clock.Now(), key.ID); err != nil {
				return err
			}
			if err := audit.Record(ctx, tx, tenant.Server, by, "root_key.rotate", "root_key", wrappedBy{key.RootID},
				wrappedBy{both.ID()}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wrap the data keys: %w", err)
	}
	alone, err := both.primaryOnly()
	if err != nil {
		return fmt.Errorf("drop the old root key: %w", err)
	}
	if err := alone.save(); err != nil {
		return fmt.Errorf("write the root key file: %w", err)
	}
	v.root = alone
	return nil
}

// wrappedBy is a root key as the audit log shows it.
type wrappedBy struct {
	RootKeyID string `json:"root_key_id"`
}

func readDataKeys(ctx context.Context, s db.Scoped) ([]dataKey, error) {
	keys, err := db.Query[dataKey](ctx, s, `SELECT id, root_id, wrapped FROM vault_keys ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("read the data keys: %w", err)
	}
	return keys, nil
}

func (r *Root) wrap(data *keyset.Handle) ([]byte, error) {
	cipher, err := r.cipher()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = data.WriteWithAssociatedData(keyset.NewBinaryWriter(&out), cipher, []byte(wrapPurpose))
	return out.Bytes(), err
}

func (r *Root) unwrap(key dataKey) (*keyset.Handle, error) {
	cipher, err := r.cipher()
	if err != nil {
		return nil, err
	}
	handle, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(key.Wrapped)), cipher,
		[]byte(wrapPurpose))
	if err != nil {
		return nil, fmt.Errorf("%w (it needs root key %s; %s holds %s)", ErrWrongRoot, key.RootID, r.path, r.ID())
	}
	return handle, nil
}
