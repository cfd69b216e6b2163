package live

import "sovereign/internal/base/tenant"

// An Alias is a workspace's own name for a model. It is immutable: a change replaces it.
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

// AliasName is the lookup key of an Alias.
type AliasName struct {
	Workspace tenant.ID
	Name      string
}

// Aliases holds the aliases of all workspaces. Reading takes no lock.
type Aliases struct{ all table[AliasName, *Alias] }

// NewAliases returns an empty set of aliases.
func NewAliases() *Aliases {
	a := &Aliases{all: newTable[AliasName, *Alias]()}
	a.Replace(nil)
	return a
}

// Find returns a workspace's alias of that name.
func (a *Aliases) Find(ws tenant.ID, name string) (*Alias, bool) {
	return a.all.get(AliasName{ws, name})
}

// Put adds or replaces an alias.
func (a *Aliases) Put(ws tenant.ID, alias *Alias) { a.all.put(AliasName{ws, alias.Name}, alias) }

// Drop removes an alias.
func (a *Aliases) Drop(ws tenant.ID, name string) { a.all.drop(AliasName{ws, name}) }

// Replace replaces all aliases.
func (a *Aliases) Replace(all map[AliasName]*Alias) { a.all.replace(all) }
