// Package vault encrypts secrets by envelope encryption. Data keys in the database encrypt the secrets, and a root
// key outside of it wraps the data keys. A copy of the database without the root key reveals nothing.
package vault

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/aead/aesgcm"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/insecuresecretdataaccess"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// A Root is the root key, in a file of its own outside the database. During a rotation the file holds two keys, the
// new one first, so that a kill at any moment leaves a file that opens the database.
type Root struct {
	path   string
	handle *keyset.Handle
}

// LoadRoot reads the root key. A missing file is os.ErrNotExist.
func LoadRoot(path string) (*Root, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator's own path
	if err != nil {
		return nil, err
	}
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
	if err != nil {
		return nil, errors.New("is not a root key file")
	}
	return &Root{path: path, handle: handle}, nil
}

// CreateRoot creates a root key and its file, readable by its owner alone.
func CreateRoot(path string) (*Root, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, err
	}
	r := &Root{path: path, handle: handle}
	return r, r.save()
}

// ID identifies the root key without revealing it.
func (r *Root) ID() string {
	return keyID(r.handle.KeysetInfo().GetPrimaryKeyId())
}

// ErrOtherRoot reports that something needs a root key that the file does not hold.
var ErrOtherRoot = errors.New("it needs another root key")

// Derive returns a key of 32 bytes for one purpose, derived by HKDF-SHA-256 from the root key with an id.
func (r *Root) Derive(id, purpose string, salt []byte) ([]byte, error) {
	for i := range r.handle.Len() {
		entry, err := r.handle.Entry(i)
		if err != nil {
			return nil, err
		}
		key, ok := entry.Key().(*aesgcm.Key)
		if ok && keyID(entry.KeyID()) == id {
			return hkdf.Key(
				sha256.New, key.KeyBytes().Data(insecuresecretdataaccess.Token{}), salt, purpose, sha256.Size,
			)
		}
	}
	return nil, fmt.Errorf("%w: %s, and %s holds %s", ErrOtherRoot, id, r.path, r.ID())
}

func keyID(id uint32) string { return strconv.FormatUint(uint64(id), 16) }

// rotating reports whether a rotation was started and not finished.
func (r *Root) rotating() bool { return r.handle.Len() > 1 }

func (r *Root) cipher() (tink.AEAD, error) { return aead.New(r.handle) }

// withNewKey returns r with a new key first and the old ones behind it.
func (r *Root) withNewKey() (*Root, error) {
	manager := keyset.NewManagerFromHandle(r.handle)
	fresh, err := manager.Add(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, err
	}
	if err := manager.SetPrimary(fresh); err != nil {
		return nil, err
	}
	return r.withKeys(manager)
}

// primaryOnly returns r with its first key only.
func (r *Root) primaryOnly() (*Root, error) {
	manager := keyset.NewManagerFromHandle(r.handle)
	info := r.handle.KeysetInfo()
	for _, key := range info.GetKeyInfo() {
		if key.GetKeyId() == info.GetPrimaryKeyId() {
			continue
		}
		if err := manager.Delete(key.GetKeyId()); err != nil {
			return nil, err
		}
	}
	return r.withKeys(manager)
}

func (r *Root) withKeys(manager *keyset.Manager) (*Root, error) {
	handle, err := manager.Handle()
	if err != nil {
		return nil, err
	}
	return &Root{path: r.path, handle: handle}, nil
}

// Retired returns the path at which a replaced root key is kept: backups of its time need it.
func (r *Root) Retired() string { return r.path + "." + r.ID() }

// save replaces the file atomically: after a power loss it is the old one or the new one.
func (r *Root) save() error { return r.saveAs(r.path) }

func (r *Root) saveAs(path string) error {
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(r.handle, keyset.NewJSONWriter(&text)); err != nil {
		return err
	}
	text.WriteByte('\n')
	folder := filepath.Dir(r.path)
	file, err := os.CreateTemp(folder, ".root-key-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // a no-op after the rename
	_, err = file.Write(text.Bytes())
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncFolder(folder)
}

func syncFolder(folder string) error {
	dir, err := os.Open(folder) //nolint:gosec // the operator's own path
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", folder, err)
	}
	return nil
}
