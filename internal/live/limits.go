package live

import (
	"net/netip"
	"strings"
	"sync/atomic"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
)

// Limits are what a key, or all keys of a workspace together, may do. A zero field limits nothing. Limits are
// immutable.
type Limits struct {
	RequestsPerMinute int64
	TokensPerMinute   int64
	Concurrency       int64        // requests that run at once
	BudgetPerDay      money.Nano   // of a UTC day
	BudgetPerMonth    money.Nano   // of a UTC month
	Models            ModelNames   // the allowed ones
	InferenceOnly     bool         // the management API is closed
	ExpiresAt         clock.Time   // from then on keys are refused
	Addresses         AddressRange // from which keys are accepted
}

// HasBudget reports whether the limits bound money.
func (l *Limits) HasBudget() bool { return l.BudgetPerDay > 0 || l.BudgetPerMonth > 0 }

// Expired reports whether the limits have expired at now.
func (l *Limits) Expired(now clock.Time) bool { return l.ExpiresAt > 0 && now >= l.ExpiresAt }

// ModelNames are ids of catalog models and names of aliases. A name that ends with * stands for all that begin with
// what is before it.
type ModelNames []string

// Allow reports whether a name is among them. No names allow all.
func (m ModelNames) Allow(name string) bool {
	for _, allowed := range m {
		prefix, wild := strings.CutSuffix(allowed, "*")
		if name == allowed || wild && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return len(m) == 0
}

// An AddressRange is a list of address prefixes.
type AddressRange []netip.Prefix

// Allow reports whether an address is in the range. An empty range allows all.
func (a AddressRange) Allow(address netip.Addr) bool {
	for _, prefix := range a {
		if prefix.Contains(address) {
			return true
		}
	}
	return len(a) == 0
}

// AllLimits holds the limits of all keys and workspaces that have any. Reading takes no lock.
type AllLimits struct {
	all      table[string, *Limits]
	some     atomic.Bool // there are any, or there were
	expiring atomic.Bool // some of them expire
}

// NewLimits returns an AllLimits without limits.
func NewLimits() *AllLimits {
	a := &AllLimits{all: newTable[string, *Limits]()}
	a.Replace(nil)
	return a
}

// None reports whether nothing has had limits so far. Then looking them up can be spared.
func (a *AllLimits) None() bool { return a == nil || !a.some.Load() }

// Expiring reports whether some limits expire.
func (a *AllLimits) Expiring() bool { return a != nil && a.expiring.Load() }

// Of returns the limits of a key and of its workspace. Each is nil if there are none.
func (a *AllLimits) Of(c *tenant.Caller) (key, workspace *Limits) {
	if a.None() {
		return nil, nil
	}
	key, _ = a.all.get(string(c.Key))
	workspace, _ = a.all.get(string(c.Workspace))
	return key, workspace
}

// Put sets the limits of a key or a workspace, by its id. nil removes them.
func (a *AllLimits) Put(id string, l *Limits) {
	if l == nil {
		a.all.drop(id)
		return
	}
	a.note(l) // before they are in force
	a.all.put(id, l)
}

// Replace replaces all limits.
func (a *AllLimits) Replace(all map[string]*Limits) {
	for _, l := range all {
		a.note(l)
	}
	a.all.replace(all)
}

func (a *AllLimits) note(l *Limits) {
	a.some.Store(true)
	if l.ExpiresAt > 0 {
		a.expiring.Store(true)
	}
}
