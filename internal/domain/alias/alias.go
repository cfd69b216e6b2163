// Package alias manages a workspace's own names for models. An alias can be repointed and split, and every change is
// audited.
package alias

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

// An Alias routes a name to a model. It never shadows the catalog. It names models of the catalog and trained models of
// its workspace, never a dedicated endpoint or an alias.
type Alias struct {
	Object         string     `json:"object" enum:"alias"`
	Name           string     `json:"name"`
	TargetModel    string     `json:"target_model"`
	Description    string     `json:"description"`
	CanaryModel    string     `json:"canary_model" doc:"Empty when there is no canary"`
	CanaryPercent  int        `json:"canary_percent" doc:"Of requests, each drawn by itself, that go to the canary"`
	FallbackModels Models     `json:"fallback_models" nullable:"false" doc:"Tried in this order when the chosen model fails"`
	CreatedAt      clock.Time `json:"created_at"`
	UpdatedAt      clock.Time `json:"updated_at" doc:"When it last became different"`
	GateSettings
	Gate *GateReport `json:"gate,omitzero" db:"-" doc:"Of an alias with a gate_criterion_id"`

	GateEpoch   string `json:"-"` // that requests are drawn for; "" before the first
	GateStratum int64  `json:"-"`
	GateKey     string `json:"-"` // of the digests of the epoch's questions; a secret
}

// Models are ids of catalog models, in order.
type Models []string

var wellFormed = regexp.MustCompile(`^[A-Za-z0-9._-]{3,64}$`)

const (
	maxDescription = 500
	maxFallbacks   = 8
)

// Check reports a rule that a breaks, naming the field. A fallback may be the target or the canary: whichever was
// chosen, the other can stand in for it. The models are those that the workspace can call.
func (a Alias) Check(models live.Models, ws tenant.ID) error {
	switch {
	case !wellFormed.MatchString(a.Name):
		return fault.Invalid("name", "must be 3 to 64 letters, digits, dots, dashes or underscores")
	case models.Has(ws, a.Name):
		return fault.Invalid("name", "is the id of a catalog model")
	case utf8.RuneCountInString(a.Description) > maxDescription:
		return fault.Invalid("description", "must be at most 500 characters")
	case strings.ContainsRune(a.Description, 0):
		return fault.Invalid("description", "must not contain NUL characters")
	case a.TargetModel == "":
		return fault.Invalid("target_model", "is required")
	case a.CanaryPercent < 0 || a.CanaryPercent > 100:
		return fault.Invalid("canary_percent", "must be 0 to 100")
	case a.CanaryPercent > 0 && a.CanaryModel == "":
		return fault.Invalid("canary_model", "is required when canary_percent is above 0")
	case len(a.FallbackModels) > maxFallbacks:
		return fault.Invalid("fallback_models", "must be at most 8 models")
	}
	return a.checkModels(models, ws)
}

// checkModels holds every model of a to the same rules, the target first: the others must be of its kind, because
// any of them may answer the same request.
func (a Alias) checkModels(models live.Models, ws tenant.ID) error {
	type use struct{ field, id string }
	uses := []use{{"target_model", a.TargetModel}}
	if a.CanaryModel != "" {
		uses = append(uses, use{"canary_model", a.CanaryModel})
	}
	for i, id := range a.FallbackModels {
		field := "fallback_models[" + strconv.Itoa(i) + "]"
		if first := slices.Index(a.FallbackModels, id); first < i {
			return fault.Invalid(field, fmt.Sprintf("repeats fallback_models[%d]", first))
		}
		uses = append(uses, use{field, id})
	}
	var kind live.Kind
	for _, u := range uses {
		if live.IsDedicated(u.id) {
			return fault.Invalid(u.field, "must not be a dedicated endpoint")
		}
		model, err := models.Find(ws, u.id)
		if err != nil {
			return fault.Invalid(u.field, "cannot be called: "+err.Error())
		}
		if kind == "" {
			kind = model.Kind
		}
		if model.Kind != kind {
			return fault.Invalid(u.field, fmt.Sprintf("must be of kind %s, like target_model", kind))
		}
	}
	if a.Gated() && kind != live.Chat {
		return fault.Invalid("gate_criterion_id", fmt.Sprintf("needs models for chat, not for %s", kind))
	}
	return nil
}

// same reports whether a and b route alike and are described alike, whenever they were written.
func (a Alias) same(b Alias) bool {
	return a.TargetModel == b.TargetModel && a.Description == b.Description &&
		a.CanaryModel == b.CanaryModel && a.CanaryPercent == b.CanaryPercent &&
		slices.Equal(a.FallbackModels, b.FallbackModels) &&
		a.GateSettings == b.GateSettings
}
