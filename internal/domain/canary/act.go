package canary

import (
	"context"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/store/db"
)

// actions are what a gate changes in an alias.
var actions = map[Verdict]func(*alias.Alias){
	Promote:  func(a *alias.Alias) { a.TargetModel, a.CanaryModel, a.CanaryPercent = a.CanaryModel, "", 0 },
	RollBack: func(a *alias.Alias) { a.CanaryPercent = 0 },
}

// acts reports whether the gate may act now: it is decided and set to auto, its judge's certificate is valid and of the
// tier, and alias, judge and certificate are those that the evidence is about.
func (st *state) acts() bool {
	a, e, j := st.alias, st.epoch, st.judge
	return e != nil && e.DecidedAt > 0 && e.ActedAt == 0 && a.GateMode == alias.Auto && a.Splits() &&
		j.criterion != nil && j.certificate.automatic() && e.identity == j.identify(a)
}

// act does what was decided, in one transaction that checks everything again, and returns when it is in force. A change
// by a person is before it or after it, and never mixed with it.
func (s *Store) act(ctx context.Context, ws tenant.ID, name, epochID string) (done Verdict, err error) {
	err = s.Feed.Change(ctx, func(tx *db.Tx) error {
		done = ""
		in := tx.In(ws)
		st, err := load(ctx, in, name)
		if err != nil || st == nil || st.epoch == nil || st.epoch.ID != epochID || !st.acts() {
			return err
		}
		e, after := st.epoch, *st.alias
		f := s.facts(ws, st, note{})
		e.ActedAt, f.acted = f.now, true
		actions[e.Verdict](&after)
		after.Gate = e.report(f)
		after.Gate.Mode = alias.Auto
		if s.Aliases != nil {
			if err := s.Aliases.Allowed(ctx, tx, ws, tenant.Gate, st.alias, after); err != nil {
				return err
			}
		}
		if err := alias.Save(ctx, tx, ws, tenant.Gate, st.alias, &after); err != nil {
			return err
		}
		done = e.Verdict
		return saveEpoch(ctx, in, e, after.Gate)
	})
	return done, err
}

// renew begins the epoch that an alias needs after its judge has changed, and returns when requests are drawn for it.
func (s *Store) renew(ctx context.Context, ws tenant.ID, name string) error {
	return s.Feed.Change(ctx, func(tx *db.Tx) error {
		st, err := load(ctx, tx.In(ws), name)
		if err != nil || st == nil || !st.stale() {
			return err
		}
		if err := s.advance(ctx, tx.In(ws), ws, true, st.alias, st.judge); err != nil {
			return err
		}
		return alias.SetEpoch(ctx, tx, ws, st.alias)
	})
}
