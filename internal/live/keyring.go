package live

import (
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
)

// An OwnKey is a workspace's own key at a provider.
type OwnKey struct {
	Key     secret.Text
	BaseURL string // the workspace's base URL; empty for the provider's default
	Broken  bool   // the key cannot be decrypted; the server's own key must not silently replace it
}

// OwnKeyName is the lookup key of an OwnKey.
type OwnKeyName struct {
	Workspace tenant.ID
	Provider  string
}

// A Keyring holds the own keys of all workspaces. Reading takes no lock.
type Keyring struct{ all table[OwnKeyName, *OwnKey] }

// NewKeyring returns an empty keyring.
func NewKeyring() *Keyring {
	k := &Keyring{all: newTable[OwnKeyName, *OwnKey]()}
	k.Replace(nil)
	return k
}

// Find returns a workspace's own key at a provider, or nil.
func (k *Keyring) Find(ws tenant.ID, provider string) *OwnKey {
	key, _ := k.all.get(OwnKeyName{ws, provider})
	return key
}

// Of returns a function that reports whether a workspace has its own key at a provider.
func (k *Keyring) Of(ws tenant.ID) func(provider string) bool {
	return func(provider string) bool { return k.Find(ws, provider) != nil }
}

// Put adds or replaces a key.
func (k *Keyring) Put(ws tenant.ID, provider string, key *OwnKey) {
	k.all.put(OwnKeyName{ws, provider}, key)
}

// Drop removes a key.
func (k *Keyring) Drop(ws tenant.ID, provider string) { k.all.drop(OwnKeyName{ws, provider}) }

// Replace replaces all keys.
func (k *Keyring) Replace(all map[OwnKeyName]*OwnKey) { k.all.replace(all) }
