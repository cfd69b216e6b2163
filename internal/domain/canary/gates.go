package canary

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
)

// A judgeState is the judge of a gate as it is now.
type judgeState struct {
	criterion   *criterion.Record // nil when it was deleted
	version     int64
	certificate *certificate // nil when none was issued for the version
	falsePass   float64      // the upper bound of 1 - Sp
}

// readJudge reads the judge of a gate.
func readJudge(ctx context.Context, in db.Scoped, criterionID string) (*judgeState, error) {
	r, err := criterion.Find(ctx, in, criterionID)
	if err != nil {
		if fault.From(err).Status == http.StatusNotFound {
			return &judgeState{}, nil
		}
		return nil, err
	}
	j := &judgeState{criterion: r, version: r.Version, falsePass: 1}
	c, err := calibration.LastCertificate(ctx, in, criterionID)
	if err != nil || c == nil || c.Version != r.Version || c.Edition != judge.Edition {
		return j, err
	}
	g := stat.NewGate(stat.Table(c.Matrix), 0, 0)
	j.certificate = &certificate{ID: c.ID, Trust: c.Trust, Voided: c.Voided, Youden: g.Youden}
	j.falsePass = g.FalsePass
	return j, nil
}

// identify returns what the evidence about an alias is about now.
func (j *judgeState) identify(a *alias.Alias) identity {
	is := identity{
		TargetModel: a.TargetModel, CanaryModel: a.CanaryModel,
		CriterionID: a.GateCriterionID, CriterionVersion: j.version,
	}
	if j.certificate != nil {
		is.CertificateID = j.certificate.ID
	}
	return is
}

// check refuses a gate that cannot work. A person who only ends the split is never refused.
func (s *Store) check(ws tenant.ID, before, after *alias.Alias, j *judgeState) error {
	switch {
	case before != nil && before.GateSettings == after.GateSettings && !after.Splits():
		return nil
	case j.criterion == nil:
		return fault.NotFound("criterion", after.GateCriterionID)
	case !s.Logging(ws):
		return fault.LoggingDisabled.New("a gate judges logged exchanges, and request logging is off for this " +
			"workspace; the operator turns it on: sovereign admin logging on")
	case after.GateMode != alias.Auto || j.certificate.automatic():
		return nil
	}
	why := "has no certificate for its version"
	switch c := j.certificate; {
	case c == nil:
	case c.Voided:
		why = "has a void certificate"
	default:
		why = fmt.Sprintf("is only %s", c.Trust)
	}
	refusal := fault.Precondition.New(
		"gate_mode auto needs a judge of the tier %s, and this one %s: calibrate it, or use recommend", trust.Calibrated, why)
	refusal.Field = "gate_mode"
	return refusal
}

// Begin sets the epoch and the stratum of an alias that is written.
func (s *Store) Begin(ctx context.Context, tx *db.Tx, ws tenant.ID, before, after *alias.Alias) error {
	if !after.Gated() {
		ended := after.GateEpoch
		after.GateEpoch, after.GateStratum, after.GateKey = "", 0, ""
		return endEpoch(ctx, tx.In(ws), ended, s.now())
	}
	j, err := readJudge(ctx, tx.In(ws), after.GateCriterionID)
	if err != nil {
		return err
	}
	if err := s.check(ws, before, after, j); err != nil {
		return err
	}
	if err := s.advance(ctx, tx.In(ws), ws, before != nil && before.Splits(), after, j); err != nil || before == nil ||
		!after.Splits() || before.GateEpoch != after.GateEpoch || before.DecidesLike(&after.GateSettings) {
		return err
	}
	return s.reopen(ctx, tx.In(ws), ws, after, j)
}

// reopen decides anew about an epoch, on the evidence that it has: a verdict is one about the threshold and the minimum
// by which it was reached. One that was acted on stays.
func (s *Store) reopen(ctx context.Context, in db.Scoped, ws tenant.ID, a *alias.Alias, j *judgeState) error {
	e, err := findEpoch(ctx, in, a.GateEpoch)
	if err != nil || e == nil || e.DecidedAt == 0 || e.ActedAt > 0 {
		return err
	}
	e.DecidedAt = 0
	return s.conclude(ctx, in, ws, &state{a, e, j}, note{})
}

// End ends the epoch of an alias that is deleted.
func (s *Store) End(ctx context.Context, tx *db.Tx, ws tenant.ID, name string) error {
	return endEpoch(ctx, tx.In(ws), name, s.now())
}

// advance begins the epoch or the stratum that an alias needs now, if it is another one.
func (s *Store) advance(
	ctx context.Context, in db.Scoped, ws tenant.ID, did bool, a *alias.Alias, j *judgeState,
) error {
	var e *epoch
	var err error
	if a.GateEpoch != "" {
		if e, err = findEpoch(ctx, in, a.GateEpoch); err != nil {
			return err
		}
	}
	is := j.identify(a)
	switch e.next(is, a, did) {
	case stay:
	case nextStratum:
		e.Percents = append(e.Percents, int64(a.CanaryPercent))
		a.GateStratum = e.stratum()
		return saveStratum(ctx, in, e)
	case nextEpoch:
		if e != nil {
			if err := endEpoch(ctx, in, e.ID, s.now()); err != nil {
				return err
			}
		}
		e = newEpoch(a, is, j, s.now())
		a.GateEpoch, a.GateStratum, a.GateKey = e.ID, e.stratum(), rand.Text()
		return insertEpoch(ctx, in, e, s.facts(ws, &state{a, e, j}, note{}))
	}
	return nil
}

// Show fills in what the gates of some aliases of a workspace know.
func (s *Store) Show(ctx context.Context, in db.Scoped, all []alias.Alias) error {
	of, args := ``, []any{}
	if len(all) == 1 {
		of, args = ` AND name = $2`, []any{all[0].Name}
	}
	current, err := db.Query[epoch](ctx, in, `SELECT `+epochColumns+` WHERE workspace_id = $1 AND id IN (
		SELECT gate_epoch FROM aliases WHERE workspace_id = $1 AND gate_criterion_id <> ''`+of+`)`, args...)
	if err != nil {
		return fmt.Errorf("read the gates of aliases: %w", err)
	}
	byID := make(map[string]*epoch, len(current))
	for i := range current {
		byID[current[i].ID] = &current[i]
	}
	for i := range all {
		if a := &all[i]; a.Gated() {
			if a.Gate, err = byID[a.GateEpoch].shown(a, s.now()); err != nil {
				return err
			}
		}
	}
	return nil
}

// A state is a gated alias with its epoch, which is nil before the first, and its judge.
type state struct {
	alias *alias.Alias
	epoch *epoch
	judge *judgeState
}

// load reads the state of a gated alias. It returns nil when there is none.
func load(ctx context.Context, in db.Scoped, name string) (*state, error) {
	a, err := alias.Find(ctx, in, name)
	if err != nil || a == nil || !a.Gated() {
		return nil, err
	}
	st := &state{alias: a}
	if a.GateEpoch != "" {
		if st.epoch, err = findEpoch(ctx, in, a.GateEpoch); err != nil {
			return nil, err
		}
	}
	st.judge, err = readJudge(ctx, in, a.GateCriterionID)
	return st, err
}

// stale reports whether the epoch is not about what the alias and its judge are now.
func (st *state) stale() bool {
	return st.judge.criterion != nil && st.alias.Splits() &&
		st.epoch.next(st.judge.identify(st.alias), st.alias, true) != stay
}

// A note is what the last attempt to judge found.
type note struct {
	exhausted bool
	trouble   string
	heldAt    time.Time // when the evidence policy refused what the gate would do; zero if it did not
}

// facts are what the verdict of a state depends on.
func (s *Store) facts(ws tenant.ID, st *state, n note) *facts {
	e, j := st.epoch, st.judge
	return &facts{
		settings: st.alias.GateSettings, splits: st.alias.Splits(), decided: e.decided(), acted: e.ActedAt > 0,
		deleted: j.criterion == nil, logging: s.Logging(ws), version: j.version, certificate: j.certificate,
		tally: &e.Tally, spent: e.Spent, exhausted: n.exhausted, trouble: n.trouble, held: !n.heldAt.IsZero(),
		started: e.StartedAt, now: s.now(),
	}
}
