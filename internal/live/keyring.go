package live

import (
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
)

// An OwnKey is a workspace's own key at a provider.
type OwnKey struct {
	Key     secret.Text
	BaseURL string // where the workspace wants to be served; empty for the provider's own URL
	Broken  bool   // it cannot be read, and stands for that: the server's key must not take its place unasked
}

// OwnKeyName is what a key is found by.
type OwnKeyName struct {
	Workspace tenant.ID
	Provider  string
}

// A Keyring is every workspace's own keys, read without a lock.
type Keyring struct{ all table[OwnKeyName, *OwnKey] }

// NewKeyring is empty.
func NewKeyring() *Keyring {
	k := &Keyring{all: newTable[OwnKeyName, *OwnKey]()}
	k.Replace(nil)
	return k
}

// Find is a workspace's own key at a provider, or nil.
func (k *Keyring) Find(ws tenant.ID, provider string) *OwnKey {
	key, _ := k.all.get(OwnKeyName{ws, provider})
	return key
}

// Of tells at which providers a workspace has a key of its own.
func (k *Keyring) Of(ws tenant.ID) func(provider string) bool {
	return func(provider string) bool { return k.Find(ws, provider) != nil }
}

// Put puts a key in force.
func (k *Keyring) Put(ws tenant.ID, provider string, key *OwnKey) {
	k.all.put(OwnKeyName{ws, provider}, key)
}

// Drop ends a key.
func (k *Keyring) Drop(ws tenant.ID, provider string) { k.all.drop(OwnKeyName{ws, provider}) }

// Replace puts exactly these in force.
func (k *Keyring) Replace(all map[OwnKeyName]*OwnKey) { k.all.replace(all) }
