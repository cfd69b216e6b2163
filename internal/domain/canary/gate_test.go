package canary

import (
	"strings"
	"testing"

	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db/dbtest"
)

func TestAutoPromotesABetterCanary(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, auto))
		f.answers(t, 60, func(i int) bool { return i%3 > 0 }, always)
		g := f.await(t, Promote)
		a := f.get(t)
		if a.TargetModel != better || a.CanaryModel != "" || a.CanaryPercent != 0 || !strings.Contains(g.Reason, "has become the target") {
			t.Errorf("%s", text(t, a))
		}
		if l, _ := f.live.Find(mine, name); l.Target != better || l.Gate != nil {
			t.Errorf("in force: %+v", l)
		}
		entries, err := f.aliases.History(t.Context(), mine, name, 10, 0)
		if err != nil || len(entries) != 2 || entries[0].Actor != tenant.Gate {
			t.Fatalf("%v, %v", entries, err)
		}
		for _, want := range []string{f.Certificate(t, c.ID).ID, `"target_model":"` + better, `"passes":`, `"evidence":{"promote":`, `"verdict":"promote"`} {
			if !strings.Contains(string(entries[0].After), want) {
				t.Errorf("the audit entry lacks %s: %s", want, entries[0].After)
			}
		}
		if strings.Contains(string(entries[0].Before), better+`","canary_percent":0`) {
			t.Errorf("before: %s", entries[0].Before)
		}
		for range 3 { // it acts once
			f.poll(t)
		}
		if entries, _ := f.aliases.History(t.Context(), mine, name, 10, 0); len(entries) != 2 {
			t.Errorf("%d entries", len(entries))
		}
		if n := dbtest.Count(t, f.DB, "notices WHERE kind = 'gate.verdict' AND title LIKE '%promotes its canary'"); n != 1 {
			t.Errorf("%d notices of one verdict", n)
		}
	})
}

func TestAutoRollsBackAWorseCanary(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, auto))
		f.answers(t, 60, always, never)
		f.await(t, RollBack)
		a := f.get(t)
		if a.TargetModel != base || a.CanaryModel != better || a.CanaryPercent != 0 || a.Gate.Verdict != string(RollBack) {
			t.Errorf("%s", text(t, a))
		}
		first := a.GateEpoch
		// A person who splits again begins another epoch.
		again := f.put(t, gated(c.ID, auto))
		if again.GateEpoch == first || again.Gate.Verdict != string(Collecting) || again.Gate.Arms[0].N != 0 {
			t.Errorf("%s", text(t, again))
		}
	})
}

// The errors of providers count as fails of the drawn model, although no judge sees them.
func TestACanaryWhoseProviderFailsIsRolledBack(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		for range 60 {
			f.end(f.draw(t, false), outcome.Answered, judge.Pass)
			f.end(f.draw(t, true), outcome.Failed, "")
		}
		g := f.await(t, RollBack)
		if arm := g.Arms[1]; arm.Errors != arm.N || arm.Passes != 0 || arm.Latency.P50 != nil || g.Arms[0].Latency.P50 == nil {
			t.Errorf("%s", text(t, g))
		}
		if a := f.get(t); a.CanaryPercent != 50 {
			t.Error("a gate that recommends has acted")
		}
	})
}

// A canary whose provider refuses the hard questions would be compared on the others alone.
func TestACanaryThatRefusesMoreThanItsTargetIsNotPromoted(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, auto, func(a *alias.Alias) { a.GateMinSamples = 60 }))
		for i := range 80 {
			f.end(f.draw(t, false), outcome.Answered, judge.Pass)
			if d := f.draw(t, true); i%5 == 0 {
				f.end(d, outcome.Excluded, "")
			} else {
				f.end(d, outcome.Answered, judge.Pass)
			}
		}
		f.entered(t, 160)
		f.poll(t)
		if a := f.get(t); a.Gate.Verdict != string(Paused) || a.TargetModel != base ||
			!strings.Contains(a.Gate.Reason, "0.0 % of the requests to the target and 20.0 % of those to the canary are refused") {
			t.Errorf("%s", text(t, a))
		}
	})
}

// Refusals that do not depend on the model stop nothing.
func TestRefusalsOfBothModelsDoNotPauseAGate(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		for i := range 80 {
			for _, canary := range []bool{false, true} {
				if d := f.draw(t, canary); i%2 == 0 {
					f.end(d, outcome.Excluded, "")
				} else {
					f.end(d, outcome.Answered, judge.Pass)
				}
			}
		}
		f.await(t, Promote)
	})
}

func TestAVoidCertificateTurnsAutoIntoRecommend(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		before := f.put(t, gated(c.ID, auto))
		f.answers(t, 10, always, always)
		f.entered(t, 20)
		f.void(t, c.ID)
		f.poll(t)
		if g := f.get(t).Gate; g.Mode != alias.Recommend || g.Verdict != string(Collecting) || !strings.Contains(g.Reason, "only recommends") {
			t.Errorf("%s", text(t, g))
		}
		f.answers(t, 60, always, always)
		g := f.await(t, Promote)
		if a := f.get(t); g.Mode != alias.Recommend || a.CanaryPercent != 50 || a.TargetModel != base || a.GateEpoch != before.GateEpoch {
			t.Errorf("%s", text(t, a))
		}
	})
}

// The certificate is checked in the transaction that acts, not only before it.
func TestACertificateThatIsVoidedLastStopsTheAction(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		f.answers(t, 60, always, always)
		f.await(t, Promote)
		a := f.put(t, gated(c.ID, auto))
		f.void(t, c.ID)
		if done, err := f.act(t.Context(), mine, name, a.GateEpoch); done != "" || err != nil {
			t.Errorf("%q, %v", done, err)
		}
		if a := f.get(t); a.TargetModel != base || a.CanaryPercent != 50 {
			t.Errorf("%s", text(t, a))
		}
	})
}

func TestARecommendationIsActedOnWhenThePersonChoosesAuto(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		f.answers(t, 60, always, always)
		f.await(t, Promote)
		f.put(t, gated(c.ID, auto))
		f.poll(t)
		if a := f.get(t); a.TargetModel != better || a.CanaryPercent != 0 {
			t.Errorf("%s", text(t, a))
		}
	})
}

func TestACallerThatLeavesDoesNotCountAndADifferencePauses(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, auto))
		for i := range 150 {
			f.end(f.draw(t, false), outcome.Answered, judge.Pass)
			o := outcome.Answered
			if i%3 == 0 {
				o = outcome.Departed
			}
			f.end(f.draw(t, true), o, judge.Pass)
			f.end(f.draw(t, i%2 == 0), outcome.Excluded, "")
		}
		f.entered(t, 450)
		g := f.await(t, Paused)
		if g.Arms[0].N != 150 || g.Arms[1].N != 100 || g.Arms[1].Left != 50 || !strings.Contains(g.Reason, "Callers leave") {
			t.Errorf("%s", text(t, g))
		}
		if a := f.get(t); a.CanaryPercent != 50 {
			t.Error("a paused gate has acted")
		}
	})
}

func TestOnlyTheOwnWorkspaceCounts(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		a := f.put(t, gated(c.ID))
		if _, err := f.aliases.Put(t.Context(), theirs, dbtest.Ann, gated(c.ID)); err == nil || !strings.Contains(err.Error(), "no criterion") {
			t.Fatalf("another workspace's judge: %v", err)
		}
		// A draw of another workspace that claims the alias and the epoch.
		for range 30 {
			d := f.draw(t, true)
			f.drawn = f.drawn[:len(f.drawn)-1]
			stolen := d.Draw
			stolen.Workspace, stolen.Outcome = theirs, outcome.Failed
			f.Recorder.Drawn(&stolen)
		}
		f.Recorder.Settle()
		f.poll(t)
		if e := f.epoch(t); e.Taken != 0 || e.ID != a.GateEpoch {
			t.Errorf("%+v", e)
		}
		if _, err := f.History(t.Context(), theirs, name, ""); err == nil || !strings.Contains(err.Error(), "no alias") {
			t.Errorf("%v", err)
		}
		if _, err := f.History(t.Context(), mine, name, "epoch_other"); err == nil || !strings.Contains(err.Error(), "no epoch") {
			t.Errorf("%v", err)
		}
	})
}

func TestTheEvidenceOverTimeIsKept(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		first := f.put(t, gated(c.ID))
		f.answers(t, 60, always, never)
		f.await(t, RollBack)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.CanaryModel = "sim/other" }))
		h, err := f.History(t.Context(), mine, name, "")
		if err != nil || len(h.Epochs) != 2 || len(h.Points) != 0 || h.Verdict != string(Collecting) {
			t.Fatalf("%s, %v", text(t, h), err)
		}
		old := h.Epochs[1]
		if *old.Epoch != first.GateEpoch || old.EndedAt == nil || old.Verdict != string(RollBack) || h.Epochs[0].EndedAt != nil {
			t.Errorf("%s", text(t, h.Epochs))
		}
		if h, err = f.History(t.Context(), mine, name, first.GateEpoch); err != nil || len(h.Points) == 0 {
			t.Fatalf("%s, %v", text(t, h), err)
		}
		last := h.Points[len(h.Points)-1]
		if last.RollBack < h.Evidence.Needed || last.Promote > 0 || last.CanaryPasses != 0 || last.BasePasses != last.BaseN || last.Highest >= 0 {
			t.Errorf("%s", text(t, last))
		}
		if a, _ := f.live.Find(mine, name); a.Gate == nil || a.Gate.Epoch != f.get(t).GateEpoch || a.Gate.Stratum != 1 {
			t.Errorf("%+v", a)
		}
	})
}
