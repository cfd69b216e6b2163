package live

import "sovereign/internal/base/tenant"

// Settings are a workspace's settings for its requests. The zero value has nothing set.
type Settings struct {
	DefaultMaxTokens int64 // the output limit of requests that name none; 0 for the server's default
	Cache            bool  // answers are cached
	LogDays          int64 // how long exchanges are stored; 0 when none are logged
}

// AllSettings holds the settings of all workspaces. Reading takes no lock.
type AllSettings struct{ all table[tenant.ID, Settings] }

// NewSettings returns an AllSettings with nothing set.
func NewSettings() *AllSettings {
	a := &AllSettings{all: newTable[tenant.ID, Settings]()}
	a.Replace(nil)
	return a
}

// Of returns the settings of a workspace.
func (a *AllSettings) Of(ws tenant.ID) Settings {
	s, _ := a.all.get(ws)
	return s
}

// Put sets the settings of a workspace.
func (a *AllSettings) Put(ws tenant.ID, s Settings) { a.all.put(ws, s) }

// Replace replaces the settings of all workspaces.
func (a *AllSettings) Replace(all map[tenant.ID]Settings) { a.all.replace(all) }
