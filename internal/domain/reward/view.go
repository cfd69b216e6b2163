package reward

import (
	"context"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/store/db"
)

// A viewer shows sessions of a workspace. What several sessions share is read once.
type viewer struct {
	store        *Store
	ws           tenant.ID
	in           db.Scoped
	certificates map[string]calibration.Certificate
}

func (s *Store) viewer(ws tenant.ID) *viewer {
	return &viewer{store: s, ws: ws, in: s.DB.In(ws), certificates: map[string]calibration.Certificate{}}
}

// view returns a session as the API shows it.
func (s *Store) view(ctx context.Context, ws tenant.ID, r *session) (Session, error) {
	return s.viewer(ws).view(ctx, r)
}

// view returns a session as the API shows it, with what voids its certificates today.
func (v *viewer) view(ctx context.Context, r *session) (Session, error) {
	shown := Session{
		ID: r.ID, Object: object, Status: r.Status, Reason: judging.Optional(r.Reason), Agentic: r.Agentic,
		Reward: r.rule(), Label: r.Label, Budget: r.Budget, ExpiresAt: r.ExpiresAt, CreatedAt: r.CreatedAt,
		StoppedAt: optional(r.EndedAt), Certificates: make([]calibration.Certificate, len(r.Judges)),
		TaskCount: r.TaskCount, Scored: r.Scored, PurgedAt: optional(r.PurgedAt),
	}
	var err error
	if shown.Spent, err = v.store.Holds.Spent(ctx, v.ws, r.ID); err != nil {
		return Session{}, err
	}
	for i, j := range r.Judges {
		if shown.Certificates[i], err = v.certificate(ctx, j.Certificate); err != nil {
			return Session{}, err
		}
	}
	shown.Anchor, err = v.anchor(ctx, r)
	return shown, err
}

// certificate returns a pinned certificate with what voids it today.
func (v *viewer) certificate(ctx context.Context, pinned calibration.Certificate) (calibration.Certificate, error) {
	if today, ok := v.certificates[pinned.ID]; ok {
		return today, nil
	}
	today, err := calibration.FindCertificate(ctx, v.in, pinned.ID)
	if err != nil {
		return pinned, err
	}
	pinned.Voided, pinned.VoidedAt, pinned.VoidedReason = today.Voided, today.VoidedAt, today.VoidedReason
	v.certificates[pinned.ID] = pinned
	return pinned, nil
}

// anchor returns what the anchor has found. A session without an anchor can be held too, for a certificate that is void.
func (v *viewer) anchor(ctx context.Context, r *session) (AnchorState, error) {
	a := AnchorState{
		CriterionID: judging.Optional(r.AnchorCriterionID), Held: r.HeldAt > 0, HeldAt: optional(r.HeldAt),
		HeldReason: judging.Optional(r.HeldReason), PinnedStep: judging.Optional(r.PinnedStep), Checks: r.Checks,
		History: []Check{},
	}
	if r.AnchorCriterionID == "" {
		return a, nil
	}
	c, err := criterion.Find(ctx, v.in, r.AnchorCriterionID)
	switch f := fault.From(err); {
	case err == nil:
		a.CriterionName = &c.Name
	case f.Kind != fault.Missing: // a criterion that was deleted has no name
		return a, err
	}
	a.History, err = v.store.history(ctx, v.in, r.ID)
	return a, err
}

// rule returns the judges as the session was asked for.
func (r *session) rule() Rule {
	rule := Rule{Mode: r.Mode}
	if r.Mode == Single {
		rule.CriterionID = r.Judges[0].CriterionID
		return rule
	}
	for _, j := range r.Judges {
		c := Criterion{CriterionID: j.CriterionID}
		if r.Mode == Weighted {
			c.Weight = &j.Weight
		}
		rule.Criteria = append(rule.Criteria, c)
	}
	return rule
}

// optional returns a pointer to a time, or nil when it is 0.
func optional(t clock.Time) *clock.Time {
	if t == 0 {
		return nil
	}
	return &t
}

// Get reads a session.
func (s *Store) Get(ctx context.Context, ws tenant.ID, id string) (Session, error) {
	r, err := s.find(ctx, s.DB.In(ws), id)
	if err != nil {
		return Session{}, err
	}
	return s.view(ctx, ws, r)
}

// List reads sessions, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, which Selection, limit, offset int) ([]Session, error) {
	rows, err := s.list(ctx, s.DB.In(ws), which, limit, offset)
	if err != nil {
		return nil, err
	}
	v, all := s.viewer(ws), make([]Session, len(rows))
	for i := range rows {
		if all[i], err = v.view(ctx, &rows[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}
