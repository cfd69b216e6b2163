package live

import (
	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
)

// An Alias is a workspace's own name for a model. It is immutable: a change replaces it.
type Alias struct {
	Name          string
	Target        string
	Canary        string
	CanaryPercent int
	Fallbacks     []string
	Created       clock.Time
	Gate          *Gate // that watches the split; nil if there is none, or no split
}

// An Arm is a side of an alias's split.
type Arm string

// The arms.
const (
	BaseArm   Arm = "base"   // the target
	CanaryArm Arm = "canary" // the canary
)

// Other returns the other arm.
func (a Arm) Other() Arm {
	if a == CanaryArm {
		return BaseArm
	}
	return CanaryArm
}

// Pick draws the arm of one request; u is uniform in [0, 1).
func (a *Alias) Pick(u float64) Arm {
	if a.Canary != "" && u*100 < float64(a.CanaryPercent) {
		return CanaryArm
	}
	return BaseArm
}

// Model returns the model of an arm.
func (a *Alias) Model(arm Arm) string {
	if arm == CanaryArm {
		return a.Canary
	}
	return a.Target
}

// A Gate says which requests of a split are drawn as samples of their arm.
type Gate struct {
	Epoch         string // samples of one epoch count together
	Stratum       int    // of the epoch: samples of one stratum had the same percent
	Key           string // of the digests of questions
	SamplePercent float64
}

// Draws reports whether a request is drawn. It depends on nothing but the request's id, which is known before the
// outcome and has nothing to do with the arm.
func (g *Gate) Draws(request string) bool {
	return g.SamplePercent >= 100 || float64(hash(request)>>11)/(1<<53)*100 < g.SamplePercent
}

// hash is FNV-1a, finished by the mixer of splitmix64: ids of one moment differ in their last characters alone.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// AliasName is the lookup key of an Alias.
type AliasName struct {
	Workspace tenant.ID
	Name      string
}

// Aliases holds the aliases of all workspaces. Reading takes no lock.
type Aliases struct{ names[*Alias] }

// NewAliases returns an empty set of aliases.
func NewAliases() *Aliases {
	return &Aliases{newNames(func(a *Alias) string { return a.Name })}
}

// Replace replaces all aliases.
func (a *Aliases) Replace(all map[AliasName]*Alias) {
	byWorkspace := map[tenant.ID]map[string]*Alias{}
	for name, alias := range all {
		if byWorkspace[name.Workspace] == nil {
			byWorkspace[name.Workspace] = map[string]*Alias{}
		}
		byWorkspace[name.Workspace][name.Name] = alias
	}
	a.all.replace(byWorkspace)
}
