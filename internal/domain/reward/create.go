package reward

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
	"sovereign/internal/text/redact"
)

// Bounds of a new session.
const (
	maxLabel  = 200
	maxJudges = 8
	maxBudget = 1_000_000 * money.Dollar
)

// holdKind is the kind of the hold that a session pays from.
const holdKind = "reward"

// A NewSession asks for a session.
type NewSession struct {
	Label     string           `json:"label,omitempty" doc:"At most 200 characters"`
	Reward    Rule             `json:"reward" doc:"The judges: each needs a certificate that is not void, of the tier measured or better"`
	Budget    money.Nano       `json:"budget_usd" doc:"The most that its judges may be paid. It is held from the wallet until the session ends"`
	ExpiresIn int64            `json:"expires_in_seconds,omitempty" default:"86400" minimum:"60" maximum:"2592000" doc:"When the session is stopped, at the latest"`
	Agentic   bool             `json:"agentic,omitempty" doc:"Completions are trajectories: messages with tool calls and results"`
	Anchor    *NewAnchor       `json:"anchor,omitempty" doc:"An independent judge that checks samples of what was scored"`
	Tasks     []jsontext.Value `json:"tasks,omitempty" large:"16777216" maxItems:"10000" doc:"Objects that the session keeps for the trainer: 16 MiB in all"`
}

// SchemaName is the type's name in the OpenAPI document.
func (NewSession) SchemaName() string { return "NewRewardSession" }

// A NewAnchor asks for an anchor.
type NewAnchor struct {
	CriterionID string `json:"criterion_id" doc:"Another criterion, with another judge model, than those of the reward. Its tier is calibrated or better"`
	SampleSize  int64  `json:"sample_size,omitempty" minimum:"8" maximum:"512" doc:"Completions of a check; 64 by default"`
	Every       int64  `json:"every,omitempty" minimum:"8" maximum:"100000" doc:"Scored items after which the next check is made; 256 by default"`
}

// Create makes a session and sets its budget aside. The certificates of its judges are pinned.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, n *NewSession) (Session, error) {
	if err := n.check(); err != nil {
		return Session{}, err
	}
	var made *session
	err := s.Feed.Change(ctx, func(tx *db.Tx) (err error) {
		if made, err = s.newSession(ctx, tx.In(ws), ws, n); err != nil {
			return err
		}
		if err := made.insert(ctx, tx.In(ws), by.User); err != nil {
			return err
		}
		if err := made.fits(ctx, tx.In(ws)); err != nil {
			return err
		}
		if err := insertTasks(ctx, tx, ws, made.ID, n.Tasks); err != nil {
			return err
		}
		if err := s.Holds.Open(ctx, tx, ws, made.ID, holdKind, made.Budget); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, object+".create", made.ID, nil, made.audited())
	})
	if err != nil {
		return Session{}, err
	}
	return s.view(ctx, ws, made)
}

// fits refuses a session that is stored and exceeds a quota.
func (r *session) fits(ctx context.Context, in db.Scoped) error {
	if err := quota.Check(ctx, in, quota.RewardSessions, 1); err != nil || r.TaskCount == 0 {
		return err
	}
	return quota.Check(ctx, in, quota.RewardTasks, int((r.TaskBytes+1023)/1024))
}

// check reports the first rule that n breaks, fills in what was left out, and leaves credentials out of its texts.
func (n *NewSession) check() error {
	n.Label = redact.String(n.Label)
	if n.ExpiresIn == 0 {
		n.ExpiresIn = 86_400
	}
	switch {
	case utf8.RuneCountInString(n.Label) > maxLabel:
		return fault.Invalid("label", "must be at most 200 characters")
	case n.Budget <= 0 || n.Budget > maxBudget:
		return fault.Invalid("budget_usd", fmt.Sprintf("must be above 0 and at most %s", maxBudget))
	}
	if err := n.Reward.check(); err != nil {
		return err
	}
	return cleanTasks(n.Tasks)
}

// check reports the first rule that r breaks.
func (r *Rule) check() error {
	if r.Mode == Single {
		switch {
		case r.CriterionID == "":
			return fault.Invalid("reward.criterionId", "is required for the mode single")
		case r.Criteria != nil:
			return fault.Invalid("reward.criteria", "is for the modes weighted and all")
		}
		return nil
	}
	switch {
	case r.CriterionID != "":
		return fault.Invalid("reward.criterionId", "is for the mode single: name the judges in criteria")
	case len(r.Criteria) < 1 || len(r.Criteria) > maxJudges:
		return fault.Invalid("reward.criteria", "must be a list of 1 to 8 judges")
	}
	seen := map[string]bool{}
	for i, c := range r.Criteria {
		field := fmt.Sprintf("reward.criteria[%d].", i)
		switch {
		case c.CriterionID == "":
			return fault.Invalid(field+"criterionId", "is required")
		case seen[c.CriterionID]:
			return fault.Invalid(field+"criterionId", "is there twice")
		case c.Weight != nil && r.Mode == All:
			return fault.Invalid(field+"weight", "is for the mode weighted")
		}
		seen[c.CriterionID] = true
	}
	return nil
}

// all returns the judges of r, and the fields that name them.
func (r *Rule) all() (judges []Judge, fields []string) {
	if r.Mode == Single {
		return []Judge{{CriterionID: r.CriterionID, Weight: 1}}, []string{"reward.criterionId"}
	}
	for i, c := range r.Criteria {
		j := Judge{CriterionID: c.CriterionID, Weight: 1}
		if c.Weight != nil {
			j.Weight = *c.Weight
		}
		judges, fields = append(judges, j), append(fields, fmt.Sprintf("reward.criteria[%d].criterionId", i))
	}
	return judges, fields
}

// newSession pins the judges and the anchor of a session.
func (s *Store) newSession(ctx context.Context, in db.Scoped, ws tenant.ID, n *NewSession) (*session, error) {
	now := s.now()
	r := &session{
		ID: id.At("rs", now.Std()), Label: n.Label, Status: Active, Agentic: n.Agentic, Mode: n.Reward.Mode,
		Budget: n.Budget, TaskCount: int64(len(n.Tasks)), TaskBytes: sizeOf(n.Tasks), CreatedAt: now,
		ExpiresAt: now.Add(time.Duration(n.ExpiresIn) * time.Second),
	}
	all, fields := n.Reward.all()
	for i := range all {
		if err := s.pin(ctx, in, ws, &all[i], fields[i]); err != nil {
			return nil, err
		}
	}
	r.Judges = all
	if n.Anchor != nil {
		if err := s.checkAnchor(ctx, in, ws, r, n.Anchor); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// pin fills in the version and the certificate of a judge. It refuses a judge that is not measured, or cannot run.
func (s *Store) pin(ctx context.Context, in db.Scoped, ws tenant.ID, j *Judge, field string) error {
	c, err := criterion.Find(ctx, in, j.CriterionID)
	if err != nil {
		return err
	}
	if err := s.Models.Chats(ws, field, c.JudgeModel); err != nil {
		return err
	}
	proof, err := calibration.LastCertificate(ctx, in, c.ID)
	if err != nil {
		return err
	}
	if err := certified(c, proof, trust.Measured); err != nil {
		return err
	}
	j.Version, j.Certificate = c.Version, *proof
	return nil
}

// certified refuses a judge without a valid certificate of that tier, and says what to do.
func certified(c *criterion.Record, proof *calibration.Certificate, least trust.Tier) error {
	const calibrate = "POST /v1/criteria/%s/calibrations"
	switch {
	case proof == nil:
		return fault.Precondition.New("the criterion %q has no certificate: grade what models said, then "+calibrate,
			c.Name, c.ID)
	case proof.Voided:
		return fault.Precondition.New("the certificate of the criterion %q is void (%s): calibrate it again, "+calibrate,
			c.Name, *proof.VoidedReason, c.ID)
	case proof.Version != c.Version:
		return fault.Precondition.New("the certificate of the criterion %q is for version %d, and the criterion has "+
			"version %d: calibrate it again, "+calibrate, c.Name, proof.Version, c.Version, c.ID)
	case !proof.Trust.AtLeast(least):
		return fault.Precondition.New("the certificate of the criterion %q has the tier %s, and %s is needed: add labels "+
			"of both verdicts, then "+calibrate, c.Name, proof.Trust, least, c.ID)
	}
	return nil
}

// A created is what the audit trail has about a new session.
type created struct {
	Label        string     `json:"label"`
	Reward       Rule       `json:"reward"`
	Certificates []string   `json:"certificates"`
	Anchor       string     `json:"anchor_criterion_id,omitempty"`
	Budget       money.Nano `json:"budget_usd"`
	ExpiresAt    string     `json:"expires_at"`
	Agentic      bool       `json:"agentic"`
	Tasks        int64      `json:"task_count"`
}

func (r *session) audited() created {
	c := created{
		Label: r.Label, Reward: r.rule(), Anchor: r.AnchorCriterionID, Budget: r.Budget,
		ExpiresAt: r.ExpiresAt.String(), Agentic: r.Agentic, Tasks: r.TaskCount,
	}
	for _, j := range r.Judges {
		c.Certificates = append(c.Certificates, j.Certificate.ID)
	}
	return c
}
