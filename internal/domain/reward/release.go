package reward

import (
	"context"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// Release lets a held session score again. It pins the certificates as they are now, measures the gap anew, and begins
// a new e-process; the history stays. It is refused while a certificate is void.
func (s *Store) Release(ctx context.Context, ws tenant.ID, by tenant.Actor, id, note string) error {
	if _, err := s.current(ctx, ws, id); err != nil {
		return err
	}
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		r, err := s.find(ctx, in, id)
		switch {
		case err != nil:
			return err
		case r.Status != Active:
			return r.ended()
		case r.HeldAt == 0:
			return fault.Conflict("the reward session %s is not held", id)
		}
		was := released{Reason: r.HeldReason, Process: r.Process, Certificates: r.certificates()}
		if err := s.repin(ctx, in, ws, r); err != nil {
			return err
		}
		if err := r.restart(ctx, in); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, object+".release", id, was,
			released{Note: note, Process: r.Process, Certificates: r.certificates()})
	})
	return err
}

// released is what the audit trail has about a release.
type released struct {
	Reason       string   `json:"held_reason,omitempty"`
	Note         string   `json:"note,omitempty"`
	Process      int64    `json:"process"`
	Certificates []string `json:"certificates"`
}

// certificates returns the ids of the pinned certificates, the anchor's last.
func (r *session) certificates() (all []string) {
	judges, err := r.everyJudge()
	if err != nil {
		judges = r.Judges
	}
	for i := range judges {
		all = append(all, judges[i].Certificate.ID)
	}
	return all
}

// repin pins the newest certificates of a session's judges, and of its anchor.
func (s *Store) repin(ctx context.Context, in db.Scoped, ws tenant.ID, r *session) error {
	for i := range r.Judges {
		if err := s.pin(ctx, in, ws, &r.Judges[i], "judge model"); err != nil {
			return err
		}
	}
	if r.AnchorCriterionID == "" {
		return nil
	}
	dependent, err := s.pinAnchor(ctx, in, ws, r)
	if dependent != "" {
		return fault.Precondition.New("the anchor %s", dependent)
	}
	return err
}

// restart stores what was pinned anew, and begins a new process after what was scored so far.
func (r *session) restart(ctx context.Context, in db.Scoped) error {
	last, err := db.One[int64](ctx, in, `
		SELECT COALESCE(MAX(position), 0) FROM reward_items WHERE workspace_id = $1 AND session_id = $2`, r.ID)
	if err != nil {
		return fmt.Errorf("find the last item of %s: %w", r.ID, err)
	}
	r.Evidence = ""
	p, err := r.process()
	if err != nil {
		return err
	}
	p.Begins, p.From = last, last
	if r.Evidence, err = encoded(p); err != nil {
		return err
	}
	judges, err := r.Judges.text()
	if err != nil {
		return err
	}
	r.Process++
	if _, err := db.Exec(ctx, in, `
		UPDATE reward_sessions SET held_at = 0, held_reason = '', judges = $3, anchor = $4, process = $5, evidence = $6,
			checked_at_item = scored WHERE workspace_id = $1 AND id = $2`,
		r.ID, judges, r.Anchor, r.Process, r.Evidence); err != nil {
		return fmt.Errorf("release %s: %w", r.ID, err)
	}
	return nil
}
