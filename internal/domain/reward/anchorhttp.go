package reward

import (
	"context"
	"errors"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/stat"
	"sovereign/internal/store/api"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// An Anchor is the anchor of a session, as the API shows it. Without an anchor most of it is null or 0.
type Anchor struct {
	Object    string `json:"object" enum:"reward_anchor"`
	SessionID string `json:"session_id"`
	AnchorState
	SampleSize   int64                    `json:"sample_size" doc:"Completions of a check, at most"`
	Every        int64                    `json:"every" doc:"Items that are scored between two checks by count"`
	ScoredSince  int64                    `json:"scored_since_check" doc:"Items that were scored since the last check by count began"`
	Certificate  *calibration.Certificate `json:"certificate" doc:"Of the anchor, pinned"`
	CommonPass   int64                    `json:"common_pass" doc:"Items that people pass, by which the anchor and the reward's judges were compared"`
	CommonFail   int64                    `json:"common_fail"`
	Gap          *float64                 `json:"gap" doc:"The difference between the pass rates that the calibrations explain: a healthy run shows no more"`
	FailureBound *float64                 `json:"failure_bound" doc:"The part of the gap that is left for answers of the anchor without a verdict"`
	Evidence     *float64                 `json:"evidence" doc:"Against a healthy run, in this e-process"`
	HoldsFrom    float64                  `json:"holds_from" doc:"The evidence that holds the session: a healthy run is ever held with a probability of at most 5 % in an e-process"`
	Process      int64                    `json:"process" doc:"The e-process: creation and each release begin one"`
	Dropped      int64                    `json:"dropped_checks" doc:"Checks that were drawn and have no result: the session ended or was held first"`
	Checking     *string                  `json:"checking" doc:"The step of the check that is running"`
	Note         *string                  `json:"note" doc:"Why a check that is due was not made"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Anchor) SchemaName() string { return "RewardAnchor" }

// AnchorOf reads the anchor of a session.
func (s *Store) AnchorOf(ctx context.Context, ws tenant.ID, id string) (shown Anchor, err error) {
	v := s.viewer(ws)
	r, err := s.find(ctx, v.in, id)
	if err != nil {
		return shown, err
	}
	shown = Anchor{
		Object: "reward_anchor", SessionID: id, SampleSize: r.SampleSize, Every: r.Every, HoldsFrom: stat.HoldsFrom,
		Process: r.Process,
	}
	if shown.AnchorState, err = v.anchor(ctx, r); err != nil {
		return shown, err
	}
	a, err := r.pinned()
	if err != nil || a == nil {
		return shown, err
	}
	p, err := r.process()
	if err != nil {
		return shown, err
	}
	certificate, err := v.certificate(ctx, a.Judge.Certificate)
	if err != nil {
		return shown, err
	}
	evidence, failure := p.Evidence(), a.Common.Failure()
	shown.Certificate, shown.Gap, shown.FailureBound, shown.Evidence = &certificate, &a.Gap, &failure, &evidence
	shown.CommonPass, shown.CommonFail = a.Common.Pass.Cases(), a.Common.Fail.Cases()
	shown.ScoredSince = r.Scored - r.CheckedAtItem
	if shown.Checking, err = checking(ctx, v.in, id); err != nil {
		return shown, err
	}
	if shown.Dropped, err = dropped(ctx, v.in, id); err != nil {
		return shown, err
	}
	if p.Nothing {
		shown.Note = judging.Optional(nothingToDraw)
	}
	return shown, nil
}

// nothingToDraw is why a check that is due was not made.
const nothingToDraw = "nothing that was scored since the last check could be drawn: all of it was checked before, or it " +
	"has no reward"

// checking returns the step of a session's pending check, or nil.
func checking(ctx context.Context, in db.Scoped, id string) (*string, error) {
	step, err := db.Maybe[string](ctx, in, `
		SELECT step FROM reward_checks WHERE workspace_id = $1 AND session_id = $2 AND done_at = 0`, id)
	if err != nil {
		return nil, fmt.Errorf("find a pending check of %s: %w", id, err)
	}
	return step, nil
}

// dropped counts the checks of a session that were dropped.
func dropped(ctx context.Context, in db.Scoped, id string) (int64, error) {
	n, err := db.One[int64](ctx, in, `
		SELECT COUNT(*) FROM reward_checks WHERE workspace_id = $1 AND session_id = $2 AND done_at > 0 AND n = 0`, id)
	if err != nil {
		return 0, fmt.Errorf("count the dropped checks of %s: %w", id, err)
	}
	return n, nil
}

// CheckStep begins a check of what was scored in a step.
func (s *Store) CheckStep(ctx context.Context, ws tenant.ID, id, step string) error {
	if err := checkName("step", step); err != nil {
		return err
	}
	r, err := s.ready(ctx, ws, id)
	switch {
	case err != nil:
		return err
	case r.AnchorCriterionID == "":
		return fault.Conflict("the reward session %s has no anchor: name one when a session is made", id)
	}
	err = s.begin(ctx, ws, r, step, true)
	var few *fewPrompts
	if errors.As(err, &few) {
		return fault.Precondition.New("of step %s %s", step, few.Error())
	}
	return err
}

func (s *Store) anchorRoutes() []api.Route {
	h := &handler{s}
	return []api.Route{
		api.Get("/reward/sessions/{id}/anchor", api.Reader, h.anchor,
			"Read what the anchor of a reward session has found: its checks, its evidence, and what holds"),
		api.Post("/reward/sessions/{id}/anchor/checks", api.Admin, h.checkStep,
			"Have the anchor check a sample of a step now, beside the checks by count", api.Accepts),
		api.Post("/reward/sessions/{id}/anchor/release", api.Admin, h.release,
			"Let a held reward session score again: the newest certificates are pinned, and a new e-process begins"),
	}
}

func (h *handler) anchor(ctx context.Context, caller tenant.Caller, in atSession) (Anchor, error) {
	return h.store.AnchorOf(ctx, caller.Workspace, in.ID)
}

type newCheck struct {
	ID   string `path:"id"`
	Body NewCheck
}

// A NewCheck asks for a check.
type NewCheck struct {
	Step string `json:"step" minLength:"1" maxLength:"200" doc:"What was scored under this step is drawn from, except what was checked before"`
}

// SchemaName is the type's name in the OpenAPI document.
func (NewCheck) SchemaName() string { return "NewAnchorCheck" }

func (h *handler) checkStep(ctx context.Context, caller tenant.Caller, in newCheck) (Anchor, error) {
	if err := h.store.CheckStep(ctx, caller.Workspace, in.ID, in.Body.Step); err != nil {
		return Anchor{}, err
	}
	return h.store.AnchorOf(ctx, caller.Workspace, in.ID)
}

type newRelease struct {
	ID   string `path:"id"`
	Body NewRelease
}

// A NewRelease releases a held session.
type NewRelease struct {
	Note string `json:"note" minLength:"1" maxLength:"4000" doc:"Why; it is kept in the audit trail"`
}

// SchemaName is the type's name in the OpenAPI document.
func (NewRelease) SchemaName() string { return "AnchorRelease" }

func (h *handler) release(ctx context.Context, caller tenant.Caller, in newRelease) (Session, error) {
	note := redact.String(in.Body.Note)
	if err := h.store.Release(ctx, caller.Workspace, caller.Actor(), in.ID, note); err != nil {
		return Session{}, err
	}
	return h.store.Get(ctx, caller.Workspace, in.ID)
}
