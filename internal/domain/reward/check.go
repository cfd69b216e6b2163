package reward

import (
	"context"
	"errors"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/store/db"
)

// ready reads a session that may score now. It refuses one that has ended, has expired or is held, and it ends or holds
// one whose judges can no longer be relied on. A scoring call enters running first, so that it does not miss the end.
func (s *Store) ready(ctx context.Context, ws tenant.ID, id string) (*session, error) {
	r, err := s.find(ctx, s.DB.In(ws), id)
	if err == nil {
		r, err = s.expireIfDue(ctx, ws, r)
	}
	if err == nil {
		err = r.refusal()
	}
	if err == nil {
		err = s.checkJudges(ctx, ws, r)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// refusal says why a session cannot score. It is nil where it can.
func (r *session) refusal() error {
	switch {
	case r.Status != Active:
		return r.ended()
	case r.HeldAt > 0:
		return heldFor(r.ID, r.HeldReason)
	}
	return nil
}

// ended is the fault of a session that is not active.
func (r *session) ended() error {
	if r.Status == Overbudget {
		return fault.SessionOverbudget.New("the budget of the reward session %s is spent", r.ID)
	}
	why := ""
	if r.Reason != "" {
		why = ": " + r.Reason
	}
	return fault.SessionNotActive.New("the reward session %s is %s%s", r.ID, r.Status, why)
}

func heldFor(id, reason string) error {
	return fault.AnchorHeld.New("the reward session %s is held: %s", id, reason)
}

// checkJudges refuses to score when a judge is not what was pinned. The session is held when a certificate is void or a
// judge has another version, and it has failed when a judge can no longer run.
func (s *Store) checkJudges(ctx context.Context, ws tenant.ID, r *session) error {
	all, err := r.everyJudge()
	if err != nil {
		return err
	}
	for i := range all {
		hold, fail, err := s.checkJudge(ctx, s.DB.In(ws), ws, &all[i])
		switch {
		case err != nil:
			return err
		case fail != "":
			after, _, err := s.move(ctx, ws, tenant.Operator, r.ID, Failed, fail)
			if err != nil {
				return err
			}
			return after.ended()
		case hold != "":
			if err := s.hold(ctx, ws, r.ID, hold); err != nil {
				return err
			}
			return heldFor(r.ID, hold)
		}
	}
	return nil
}

// checkJudge returns why a session with this judge must be held, or has failed.
func (s *Store) checkJudge(ctx context.Context, in db.Scoped, ws tenant.ID, j *Judge) (hold, fail string, _ error) {
	c, err := criterion.Find(ctx, in, j.CriterionID)
	var missing *fault.Fault
	switch {
	case errors.As(err, &missing) && missing.Kind == fault.Missing:
		return "", fmt.Sprintf("the criterion %s was deleted", j.CriterionID), nil
	case err != nil:
		return "", "", err
	case c.Version != j.Version:
		return fmt.Sprintf("the criterion %s has changed: version %d was pinned, and it has version %d", j.CriterionID,
			j.Version, c.Version), "", nil
	}
	pinned := j.Certificate.ID
	if c.CertificateID != pinned || c.VoidedAt > 0 {
		now, err := calibration.FindCertificate(ctx, in, pinned)
		if err != nil {
			return "", "", err
		}
		if now.Voided {
			return fmt.Sprintf("the certificate %s of the criterion %s is void: %s", pinned, j.CriterionID,
				*now.VoidedReason), "", nil
		}
	}
	if err := s.Models.Chats(ws, "judge model "+c.JudgeModel, c.JudgeModel); err != nil {
		return "", "the " + fault.From(err).Message, nil
	}
	return "", "", nil
}
