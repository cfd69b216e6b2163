package live

import "sovereign/internal/base/tenant"

// An Alias is a workspace's own name for a model. It never changes: a repoint puts a new one in its place.
type Alias struct {
	Name          string
	Target        string
	Canary        string
	CanaryPercent int
	Fallbacks     []string
}

// Pick chooses the model of one request; u is uniform in [0, 1).
func (a *Alias) Pick(u float64) string {
	if a.Canary != "" && u*100 < float64(a.CanaryPercent) {
		return a.Canary
	}
	return a.Target
}

// AliasName is what an alias is found by.
type AliasName struct {
	Workspace tenant.ID
	Name      string
}

// Aliases is every alias in force, read without a lock.
type Aliases struct{ all table[AliasName, *Alias] }

// NewAliases is none.
func NewAliases() *Aliases {
	a := &Aliases{all: newTable[AliasName, *Alias]()}
	a.Replace(nil)
	return a
}

// Find is a workspace's alias of that name.
func (a *Aliases) Find(ws tenant.ID, name string) (*Alias, bool) {
	return a.all.get(AliasName{ws, name})
}

// Put puts an alias in force.
func (a *Aliases) Put(ws tenant.ID, alias *Alias) { a.all.put(AliasName{ws, alias.Name}, alias) }

// Drop ends an alias.
func (a *Aliases) Drop(ws tenant.ID, name string) { a.all.drop(AliasName{ws, name}) }

// Replace puts exactly these in force.
func (a *Aliases) Replace(all map[AliasName]*Alias) { a.all.replace(all) }
