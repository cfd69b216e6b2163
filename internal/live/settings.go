package live

import "sovereign/internal/base/tenant"

// Settings are what a workspace has set for its traffic. The zero value is nothing set.
type Settings struct {
	DefaultMaxTokens int64 // of output, for requests that name no maximum; 0 for the server's own default
	Cache            bool  // answers are remembered
	LogDays          int64 // for which exchanges are kept; 0 when none are logged
}

// AllSettings is what every workspace has set, read without a lock.
type AllSettings struct{ all table[tenant.ID, Settings] }

// NewSettings is nothing set by anybody.
func NewSettings() *AllSettings {
	a := &AllSettings{all: newTable[tenant.ID, Settings]()}
	a.Replace(nil)
	return a
}

// Of is what a workspace has set.
func (a *AllSettings) Of(ws tenant.ID) Settings {
	s, _ := a.all.get(ws)
	return s
}

// Put puts a workspace's settings in force.
func (a *AllSettings) Put(ws tenant.ID, s Settings) { a.all.put(ws, s) }

// Replace puts exactly these in force.
func (a *AllSettings) Replace(all map[tenant.ID]Settings) { a.all.replace(all) }
