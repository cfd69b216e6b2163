package canary

import (
	"context"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A found epoch, as the database has it.
type foundEpoch struct {
	alias, target, canary string
	verdict               Verdict
	n, passes             int64 // of each arm
	age                   time.Duration
	trust                 trust.Tier
	void                  bool
}

// equal is an epoch with plenty of evidence that two models are equal.
var equal = foundEpoch{alias: "support", target: "sim/a", canary: "sim/b", verdict: Promote, n: 1200, passes: 1080, trust: trust.Measured}

func (f foundEpoch) with(change func(*foundEpoch)) foundEpoch {
	change(&f)
	return f
}

// insert writes an epoch that began before those that were inserted.
func (f foundEpoch) insert(t *testing.T, d *db.DB, number int) {
	t.Helper()
	in, now := d.In(dbtest.Mine), clock.Now()
	arm := stat.Arm{N: f.n, Passed: f.passes}
	e := newEpoch(&alias.Alias{Name: f.alias, CanaryPercent: 20}, identity{f.target, f.canary, "crit_1", 1, "cert_" + string(rune('a'+number))},
		&judgeState{}, clock.Of(now.Std().Add(-f.age-time.Duration(number)*time.Hour)))
	e.Youden, e.Entered, e.Verdict = 1, f.n, f.verdict
	strata := stat.Strata{{Base: arm, Canary: arm}}
	e.Tally.Evidence = stat.Evidence{Promote: strata, RollBack: strata}
	if f.verdict == Promote || f.verdict == RollBack {
		e.DecidedAt = now
	}
	voided := clock.Time(0)
	if f.void {
		voided = now
	}
	if err := db.Insert(t.Context(), in.Across("test"), "certificates", []string{
		"workspace_id", "id", "criterion_id", "calibration_id", "version", "edition", "document", "key_id", "jws", "trust", "holdout_active",
		"issued_at", "voided_at", "voided_by", "voided_reason",
	}, [][]any{{string(dbtest.Mine), e.CertificateID, "crit_1", "cal_1", 1, 1, []byte("{}"), "", "", string(f.trust), true, 1, int64(voided), "", ""}}); err != nil {
		t.Fatal(err)
	}
	facts := &facts{tally: &e.Tally, now: now}
	if err := insertEpoch(t.Context(), in, e, facts); err != nil {
		t.Fatal(err)
	}
	e.Verdict = f.verdict
	if err := saveEpoch(t.Context(), in, e, e.report(facts)); err != nil {
		t.Fatal(err)
	}
}

// wide are the terms of a policy that allows as much as the gates of the other tests.
var wide = Terms{MaxRegression: 0.4, Confidence: 0.95, MinTrust: trust.Measured}

// A promotion proves to a policy what the policy asks for, whatever the owner of the gate has asked for.
func TestAPromotionProvesWhatItsEvidenceShows(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		terms := Terms{MaxRegression: 0.05, Confidence: 0.95, MinTrust: trust.Measured, Since: clock.Of(time.Now().Add(-30 * 24 * time.Hour))}
		for name, c := range map[string]struct {
			found []foundEpoch // the newest first
			want  bool
		}{
			"one epoch":                        {[]foundEpoch{equal}, true},
			"the epoch before":                 {[]foundEpoch{equal.with(func(f *foundEpoch) { f.canary, f.verdict = "sim/c", Collecting }), equal}, true},
			"no epoch":                         {nil, false},
			"no verdict":                       {[]foundEpoch{equal.with(func(f *foundEpoch) { f.verdict = Inconclusive })}, false},
			"another alias":                    {[]foundEpoch{equal.with(func(f *foundEpoch) { f.alias = "other" })}, false},
			"another target":                   {[]foundEpoch{equal.with(func(f *foundEpoch) { f.target = "sim/c" })}, false},
			"another canary":                   {[]foundEpoch{equal.with(func(f *foundEpoch) { f.canary = "sim/c" })}, false},
			"the other way round":              {[]foundEpoch{equal.with(func(f *foundEpoch) { f.target, f.canary = "sim/b", "sim/a" })}, false},
			"a void certificate":               {[]foundEpoch{equal.with(func(f *foundEpoch) { f.void = true })}, false},
			"a judge that is not trusted":      {[]foundEpoch{equal.with(func(f *foundEpoch) { f.trust = trust.Provisional })}, false},
			"too old":                          {[]foundEpoch{equal.with(func(f *foundEpoch) { f.age = 31 * 24 * time.Hour })}, false},
			"a margin that was wider":          {[]foundEpoch{equal.with(func(f *foundEpoch) { f.n, f.passes = 50, 45 })}, false},
			"two epochs ago":                   {[]foundEpoch{equal.with(none), equal.with(none), equal}, false},
			"the third epoch, enough evidence": {[]foundEpoch{equal, equal.with(none), equal.with(none)}, true},
			"the third epoch, scarce evidence": {[]foundEpoch{equal.with(scarce), equal.with(none), equal.with(none)}, false},
			"one epoch, scarce evidence":       {[]foundEpoch{equal.with(scarce)}, true},
		} {
			for _, table := range []string{"canary_points", "canary_epochs", "certificates"} {
				if _, err := db.Exec(t.Context(), d.Across("test"), `DELETE FROM `+table); err != nil {
					t.Fatal(err)
				}
			}
			for i, f := range c.found {
				f.insert(t, d, i)
			}
			s := NewStore(Config{DB: d})
			if got, err := s.Promoted(t.Context(), d.In(dbtest.Mine), "support", "sim/a", "sim/b", terms); err != nil || got != c.want {
				t.Errorf("%s: %v, want %v; %v", name, got, c.want, err)
			}
			if got, err := s.Promoted(t.Context(), d.In(dbtest.Theirs), "support", "sim/a", "sim/b", terms); err != nil || got {
				t.Errorf("%s, another workspace: %v %v", name, got, err)
			}
		}
	})
}

func none(f *foundEpoch)   { f.verdict = Inconclusive }
func scarce(f *foundEpoch) { f.n, f.passes = 850, 765 }

// A strict policy refuses what needs a proof.
type strict struct{ lifted bool }

func (s *strict) Allows(_ context.Context, _ *db.Tx, _ tenant.ID, by tenant.Actor, c alias.Change) error {
	if s.lifted || by != tenant.Gate || c.After.TargetModel == c.Incumbent.Model {
		return nil
	}
	return fault.Precondition.New("not proven")
}

// A gate in auto mode does nothing that the policy of its workspace would refuse to a person.
func TestAGateObeysThePolicyOfItsWorkspace(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		policy := &strict{}
		f.aliases.Obey(policy)
		f.Aliases = f.aliases
		c := f.judged(t)
		f.put(t, gated(c.ID, auto))
		f.answers(t, 60, always, always)
		f.until(t, "that the policy refuses", func(g *alias.GateReport) bool {
			return g.Verdict == string(Promote) && strings.Contains(g.Reason, "evidence policy")
		})
		if a := f.get(t); a.TargetModel != base || a.CanaryPercent != 50 {
			t.Errorf("%s", text(t, a))
		}
		policy.lifted = true
		f.restart() // it would wait before it tries again
		f.until(t, "a new target", func(*alias.GateReport) bool { return f.get(t).TargetModel == better })
	})
}

func TestAPolicyDoesNotKeepAGateFromRollingBack(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.aliases.Obey(&strict{})
		f.Aliases = f.aliases
		c := f.judged(t)
		f.put(t, gated(c.ID, auto))
		f.answers(t, 60, always, never)
		f.await(t, RollBack)
		f.until(t, "no canary", func(*alias.GateReport) bool { return f.get(t).CanaryPercent == 0 })
	})
}
