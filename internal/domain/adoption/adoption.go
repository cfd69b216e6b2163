// Package adoption brings trained models into use: an alias is pointed at one, on evidence that it is no worse than the
// model which the alias stands for.
package adoption

import (
	"context"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/policy"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// A Request says which alias is to use a version, and what proves it.
type Request struct {
	AliasName     string `json:"aliasName" doc:"An alias of the workspace"`
	CanaryPercent int    `json:"canaryPercent" doc:"1 to 100: the share of the alias's requests that the version gets; 100 is a cut-over"`
	EvalID        string `json:"evalId,omitempty" doc:"An eval of the version against the model that the alias stands for; without one, any that proves it, or a verdict of the alias's own gate"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Request) SchemaName() string { return "AdoptionRequest" }

// check reports the first rule that a request breaks, naming the field.
func (r *Request) check() error {
	switch {
	case r.AliasName == "":
		return fault.Invalid("aliasName", "is missing: PUT /v1/aliases makes one")
	case r.CanaryPercent < 1 || r.CanaryPercent > 100:
		return fault.Invalid("canaryPercent", "must be 1 to 100")
	}
	return nil
}

// applied returns an alias as it is after the adoption of a model. Its gate stays, and judges the model as a canary.
func (r *Request) applied(before alias.Alias, model string) alias.Alias {
	after := before
	after.Gate = nil
	if before.Incumbent() == model {
		return after // it was promoted
	}
	after.TargetModel, after.CanaryModel, after.CanaryPercent = before.Incumbent(), model, r.CanaryPercent
	return after
}

// An Adoption is a trained model in use.
type Adoption struct {
	Object    string               `json:"object" enum:"adoption"`
	Version   modelversion.Version `json:"model_version"`
	Alias     alias.Alias          `json:"alias"`
	EvalID    *string              `json:"eval_id" doc:"What was named as the proof"`
	AdoptedAt clock.Time           `json:"adopted_at"`
}

// Config is what a store needs.
type Config struct {
	DB       *db.DB
	Feed     *feed.Feed
	Versions *modelversion.Store
	Aliases  *alias.Store
	Proofs   Proofs
	// Check refuses an alias that names a model which the workspace cannot call.
	Check func(ws tenant.ID, a alias.Alias) error
}

// Proofs decides what is proven.
type Proofs interface {
	// Prove refuses a claim without a proof.
	Prove(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, c policy.Claim) error
}

// A Store adopts versions.
type Store struct{ Config }

// NewStore returns a store.
func NewStore(c Config) *Store { return &Store{c} }

// Adopt points an alias at a version, which is in force when it returns. Repeating it makes no difference, and needs no
// proof again.
func (s *Store) Adopt(
	ctx context.Context, ws tenant.ID, by tenant.Actor, versionID string, r Request,
) (Adoption, error) {
	if err := r.check(); err != nil {
		return Adoption{}, err
	}
	err := s.Feed.Change(ctx, func(tx *db.Tx) error { return s.adopt(tx.Bind(ctx), tx, ws, by, versionID, &r) })
	if err != nil {
		return Adoption{}, err
	}
	a := Adoption{Object: "adoption"}
	if r.EvalID != "" {
		a.EvalID = &r.EvalID
	}
	if a.Version, err = s.Versions.Get(ctx, ws, versionID); err != nil {
		return Adoption{}, err
	}
	if a.Version.AdoptedAt != nil {
		a.AdoptedAt = *a.Version.AdoptedAt
	}
	a.Alias, err = s.Aliases.Get(ctx, ws, r.AliasName)
	return a, err
}

// adopt is Adopt in a transaction that ctx belongs to.
func (s *Store) adopt(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, versionID string, r *Request,
) error {
	v, err := s.Versions.Get(ctx, ws, versionID)
	if err != nil {
		return err
	}
	before, err := alias.Find(ctx, tx.In(ws), r.AliasName)
	switch {
	case err != nil:
		return err
	case before == nil:
		return fault.NotFound("alias", r.AliasName)
	}
	after := r.applied(*before, v.Name)
	same := after.CanaryModel == before.CanaryModel && after.CanaryPercent == before.CanaryPercent
	if same && v.AdoptedAt != nil {
		_, err := s.Aliases.Put(ctx, ws, by, after) // it waits until the alias is in force
		return err
	}
	if err := s.Check(ws, after); err != nil {
		return unserved(err, v.Name)
	}
	if before.Incumbent() != v.Name {
		if err := s.Proofs.Prove(ctx, tx, ws, by, policy.Claim{
			Alias: r.AliasName, Incumbent: before.Incumbent(), Model: v.Name, EvalID: r.EvalID, Field: "evalId",
			Why: "an adoption always needs one",
		}); err != nil {
			return err
		}
	}
	if _, err := s.Aliases.Put(ctx, ws, by, after); err != nil {
		return err
	}
	if err := s.Versions.Adopt(ctx, tx, ws, versionID, clock.Now()); err != nil {
		return err
	}
	return audit.Record(ctx, tx, ws, by, "model_version.adopt", versionID, nil, r)
}

// unserved turns the refusal of an alias into one of the adoption: a model that no engine serves cannot be adopted now.
func unserved(err error, model string) error {
	if fault.From(err).Kind != fault.InvalidParameter {
		return err
	}
	return fault.Precondition.New("%s cannot be adopted: %s", model, fault.From(err).Message)
}
