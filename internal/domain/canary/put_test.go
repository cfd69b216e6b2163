package canary

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/outcome"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/live"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// refuses wants a fault of a status and a code, and that nothing changes.
func (f *fixture) refuses(t *testing.T, a alias.Alias, status int, code string) {
	t.Helper()
	_, err := f.aliases.Put(t.Context(), mine, dbtest.Ann, a)
	if got := fault.From(err); got == nil || got.Status != status || got.Code != code {
		t.Errorf("%s: %v, want %d %s", text(t, a), err, status, code)
	}
}

func TestAGateThatCannotWorkIsRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		raw := f.NewCriterion(t)
		f.refuses(t, gated("crit_none"), 404, "not_found")
		f.refuses(t, gated(raw.ID, auto), 412, "precondition_failed")
		if a := f.put(t, gated(raw.ID)); a.Gate.Verdict != string(Paused) || !strings.Contains(a.Gate.Reason, "calibrate it") {
			t.Errorf("%s", text(t, a.Gate))
		}
		if all, err := f.Alarms(t.Context(), dbtest.Mine); err != nil || len(all) != 1 || all[0].Kind != "gate.paused" || !strings.Contains(all[0].Detail, "calibrate it") {
			t.Errorf("%+v, %v", all, err)
		}
		c := f.judged(t)
		f.put(t, gated(c.ID, auto))
		f.void(t, c.ID)
		change := func(a *alias.Alias) { a.GateMinSamples++ }
		f.refuses(t, gated(c.ID, auto, change), 412, "precondition_failed")
		f.Settings.Put(mine, live.Settings{})
		f.refuses(t, gated(c.ID, change), 409, "logging_disabled")
		// A person who ends the split is never refused.
		off := gated(c.ID, auto, func(a *alias.Alias) { a.CanaryPercent = 0 })
		if a := f.put(t, off); a.CanaryPercent != 0 || a.Gate.Verdict != string(Idle) || a.Gate.Mode != alias.Auto {
			t.Errorf("%s", text(t, a))
		}
	})
}

func TestAChangeOfModelsOrJudgeBeginsAnEpochAndOneOfThePercentAStratum(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		patient := func(a *alias.Alias) { a.GateMinSamples = 1000 }
		first := f.put(t, gated(c.ID, patient))
		f.answers(t, 5, always, always)
		f.entered(t, 10)
		same := f.put(t, gated(c.ID, patient, func(a *alias.Alias) { a.CanaryPercent = 20 }))
		if same.GateEpoch != first.GateEpoch || same.GateStratum != 2 || same.Gate.Arms[0].N != 5 {
			t.Errorf("another percent: %s", text(t, same))
		}
		if a, _ := f.live.Find(mine, name); *a.Gate != (live.Gate{Epoch: first.GateEpoch, Stratum: 2, Key: first.GateKey, SamplePercent: 100}) {
			t.Errorf("in force: %+v", a.Gate)
		}
		// The judge changes without a Put: its rubric, then its certificate.
		f.ChangeRubric(t, c.ID, "It is very polite.")
		f.poll(t)
		second := f.get(t)
		if second.GateEpoch == first.GateEpoch || second.Gate.Verdict != string(Paused) || second.Gate.Arms[0].N != 0 || second.GateStratum != 1 {
			t.Errorf("another version: %s", text(t, second))
		}
		f.calibrate(t, c.ID)
		f.poll(t)
		third := f.get(t)
		if third.GateEpoch == second.GateEpoch || third.Gate.Verdict != string(Collecting) || *third.Gate.CertificateID != f.Certificate(t, c.ID).ID {
			t.Errorf("another certificate: %s", text(t, third))
		}
		if a, _ := f.live.Find(mine, name); a.Gate.Epoch != third.GateEpoch {
			t.Errorf("in force: %+v", a.Gate)
		}
		// What was drawn for an old epoch never counts for a new one.
		late := f.drawn[0]
		late.Epoch, late.Outcome = first.GateEpoch, outcome.Failed
		late.Seq += 1000
		f.Recorder.Drawn(&late.Draw)
		f.answers(t, 3, always, always)
		if e := f.entered(t, 6); e.Tally.Base.N != 3 || e.Tally.Canary.N != 3 || e.Tally.Base.Errors != 0 {
			t.Errorf("%s", text(t, e.Tally))
		}
		fourth := f.put(t, gated(c.ID, patient, func(a *alias.Alias) { a.TargetModel = "sim/third" }))
		none := f.put(t, alias.Alias{Name: name, TargetModel: base, FallbackModels: alias.Models{}})
		fifth := f.put(t, gated(c.ID, patient))
		if fourth.GateEpoch == third.GateEpoch || none.GateEpoch != "" || none.Gate != nil || fifth.GateEpoch == fourth.GateEpoch || fifth.GateEpoch == first.GateEpoch {
			t.Errorf("%s, %q, %s", fourth.GateEpoch, none.GateEpoch, fifth.GateEpoch)
		}
		if err := f.aliases.Delete(t.Context(), mine, dbtest.Ann, name); err != nil {
			t.Fatal(err)
		}
		open, err := db.One[int64](t.Context(), f.Store.DB.In(mine), `SELECT COUNT(*) FROM canary_epochs WHERE workspace_id = $1 AND ended_at = 0`)
		if err != nil || open != 0 {
			t.Errorf("%d epochs are open, %v", open, err)
		}
	})
}

func TestWhatPausesAGateAndHowItGoesOn(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples, a.GateWindowHours = 1000, 1 }))
		f.answers(t, 3, always, always)
		f.Settings.Put(mine, live.Settings{})
		calls := f.Models.Calls()
		if g := f.await(t, Paused); !strings.Contains(g.Reason, "logging is off") || f.Models.Calls() != calls {
			t.Errorf("%s, %d calls", g.Reason, f.Models.Calls()-calls)
		}
		f.Settings.Put(mine, live.Settings{LogDays: 30})
		f.entered(t, 6)
		f.await(t, Collecting)
		// The window ends, and a longer one begins where it ended.
		late := clock.Now().Add(2 * time.Hour)
		f.now = func() clock.Time { return late }
		f.answers(t, 3, always, always)
		if g := f.await(t, Inconclusive); g.Arms[0].N != 3 {
			t.Errorf("%s", text(t, g))
		}
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 1000 }))
		f.entered(t, 12)
		f.await(t, Collecting)
		if err := f.Criteria.Delete(t.Context(), mine, dbtest.Ann, c.ID); err != nil {
			t.Fatal(err)
		}
		if g := f.await(t, Paused); !strings.Contains(g.Reason, "was deleted") {
			t.Errorf("%s", g.Reason)
		}
	})
}

// A verdict is one about the threshold and the minimum that are set. It does not stand for stricter ones that are set
// later, and above all it is not acted on.
func TestAVerdictIsReachedAnewWhenItsThresholdChanges(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		lenient := f.put(t, gated(c.ID))
		f.answers(t, 60, always, always)
		entered := f.entered(t, 20).Entered
		f.await(t, Promote)
		strict := f.put(t, gated(c.ID, auto, func(a *alias.Alias) { a.GateRollbackThreshold = 0.01 }))
		if strict.Gate.Verdict != string(Collecting) || strict.GateEpoch != lenient.GateEpoch {
			t.Fatalf("stricter: %s", text(t, strict))
		}
		e := f.entered(t, 120)
		if a := f.get(t); a.TargetModel != base || a.Gate.Verdict != string(Collecting) || e.Entered <= entered {
			t.Errorf("on a verdict about another threshold: %s", text(t, a))
		}
		more := f.put(t, gated(c.ID, auto, func(a *alias.Alias) { a.GateMinSamples = 1000 }))
		f.poll(t)
		if a := f.get(t); more.Gate.Verdict != string(Collecting) || a.TargetModel != base {
			t.Errorf("more samples: %s", text(t, a))
		}
		f.put(t, gated(c.ID, auto))
		f.poll(t)
		if a := f.get(t); a.TargetModel != better {
			t.Errorf("as lenient as before: %s", text(t, a))
		}
	})
}

// What a verdict says is about the threshold by which it was reached, also when another one is set after it.
func TestAVerdictThatWasActedOnKeepsItsReason(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, auto))
		f.answers(t, 60, always, always)
		reason := f.await(t, Promote).Reason
		if !strings.Contains(reason, "by 0.4 or more") || !strings.Contains(reason, "has become the target") {
			t.Fatal(reason)
		}
		f.put(t, gated(c.ID, func(a *alias.Alias) {
			a.TargetModel, a.CanaryModel, a.CanaryPercent, a.GateRollbackThreshold = better, "", 0, 0.001
		}))
		f.poll(t)
		f.void(t, c.ID)
		f.poll(t)
		if g := f.get(t).Gate; g.Reason != reason || g.Verdict != string(Promote) || g.Mode != alias.Recommend {
			t.Errorf("%s", text(t, g))
		}
	})
}

// What a verdict has not used is kept for the next one: a place without a sample would be waited for in vain.
func TestSamplesThatAVerdictHasNotUsedAreKept(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		f.answers(t, 60, always, always)
		f.await(t, Promote)
		if e := f.epoch(t); e.Taken == e.Entered {
			t.Fatalf("all %d are used", e.Taken)
		}
		later := clock.Now().Add(100 * 24 * time.Hour)
		f.now = func() clock.Time { return later }
		if err := f.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateRollbackThreshold, a.GateWindowHours = 0.01, 24*365 }))
		f.entered(t, f.epoch(t).Taken)
	})
}

// A verdict that was reached stays, whatever comes after it in its epoch.
func TestAVerdictStaysForItsEpoch(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		f.answers(t, 60, always, always)
		g := f.await(t, Promote)
		f.answers(t, 60, always, never)
		f.poll(t)
		f.Settings.Put(mine, live.Settings{})
		f.poll(t)
		if now := f.get(t).Gate; now.Verdict != string(Promote) || text(t, now.Arms) != text(t, g.Arms) {
			t.Errorf("%s\n%s", text(t, g), text(t, now))
		}
		for _, pair := range []struct {
			from, to string
			want     bool
		}{{base, better, true}, {better, base, false}, {base, "sim/third", false}} {
			if is, err := f.Promoted(t.Context(), f.Store.DB.In(mine), name, pair.from, pair.to, wide); err != nil || is != pair.want {
				t.Errorf("%+v: %v, %v", pair, is, err)
			}
		}
		if is, err := f.Promoted(t.Context(), f.Store.DB.In(theirs), name, base, better, wide); err != nil || is {
			t.Errorf("another workspace: %v, %v", is, err)
		}
		f.void(t, c.ID)
		if is, err := f.Promoted(t.Context(), f.Store.DB.In(mine), name, base, better, wide); err != nil || is {
			t.Errorf("with a void certificate: %v, %v", is, err)
		}
	})
}

// The judge is told the exchange, and neither the model nor the arm nor the alias.
func TestTheJudgeIsBlind(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		f.end(f.draw(t, true), outcome.Answered, judge.Pass)
		f.entered(t, 1)
		for _, told := range []string{better, base, name, "canary", f.drawn[0].Request} {
			if strings.Contains(string(f.Models.Last()), told) {
				t.Errorf("the judge is told %q: %s", told, f.Models.Last())
			}
		}
	})
}

func TestSamplesAreDeletedWithTheirExchangesOnceTheyAreCounted(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 1000 }))
		f.answers(t, 3, always, always)
		e := f.entered(t, 6)
		rows := func() int64 {
			t.Helper()
			if err := f.sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			n, err := db.One[int64](t.Context(), f.Store.DB.In(mine), `SELECT COUNT(*) FROM canary_samples WHERE workspace_id = $1`)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := rows(); n != 6 {
			t.Errorf("%d are left", n)
		}
		if _, err := db.Exec(t.Context(), f.Store.DB.In(mine), `UPDATE canary_epochs SET entered = 4 WHERE workspace_id = $1`); err != nil {
			t.Fatal(err)
		}
		f.now = func() clock.Time { return e.StartedAt.Add(31 * 24 * time.Hour) }
		if n := rows(); n != 2 {
			t.Errorf("%d are left", n)
		}
	})
}

var shape = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|\b(req|aud|epoch|cert|crit)_[0-9a-z]{26}\b`)

func TestTheGateOnTheWire(t *testing.T) {
	dbtest.EachWithLogs(t, func(t *testing.T, core, logs *db.DB) {
		f := newFixture(t, judgingtest.New(t, core, logs))
		c := f.judged(t)
		routes := append((&handler{f.Store}).routes(), alias.NewHandler(f.aliases, func() live.Models { return live.Models{} }).Routes()[1:]...)
		d := apitest.NewClient(t, core, f.Feed, mine, theirs, routes, func(s string) string { return shape.ReplaceAllString(s, "X") })
		d.Refuses(t, d.Member, "GET", "/v1/aliases/support/gate", "", 404, "not_found", "")
		f.put(t, alias.Alias{Name: name, TargetModel: base, FallbackModels: alias.Models{}})
		d.Refuses(t, d.Member, "GET", "/v1/aliases/support/gate", "", 404, "not_found", "")
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.CanaryPercent = 0 }))
		idle := `{"verdict":"idle","mode":"recommend","epoch":null,"arms":[],"difference":null,"difference_ci":null,"evidence":{"promote":0,"roll_back":0,"needed":3.218876},"certificate_id":null,"spent_usd":0,"started_at":null,"evaluated_at":null,"reason":"The requests are not split between two models: set a canary_model, and a canary_percent from 1 to 99."}`
		d.Wants(t, d.Member, "GET", "/v1/aliases/support/gate", "", 200, `{"object":"gate","alias":"support",`+idle[1:len(idle)-1]+`,"points":[],"epochs":[]}`)
		f.put(t, gated(c.ID))
		arm := func(model string) string {
			return `{"model":"` + model + `","n":0,"passes":0,"rate":null,"ci":[0,1],"errors":0,"missing":0,"left":0,"repeated":0,"latency_ms":{"p50":null,"p95":null},"cost_usd":0}`
		}
		open := `"verdict":"collecting","mode":"recommend","epoch":"X","arms":[` + arm(base) + `,` + arm(better) + `],"difference":null,"difference_ci":null,"evidence":{"promote":0,"roll_back":0,"needed":3.218876},"certificate_id":"X","spent_usd":0,"started_at":"X","evaluated_at":"X","reason":"0 requests to the target and 0 to the canary are judged; a verdict needs 20 of each."`
		d.Wants(t, d.Member, "GET", "/v1/aliases/support/gate", "", 200, `{"object":"gate","alias":"support",`+open+`,"points":[],"epochs":[{`+open+`,"ended_at":null}]}`)
		d.Wants(t, d.Member, "GET", "/v1/aliases", "", 200, `{"object":"list","data":[{"object":"alias","name":"support","target_model":"sim/chat","description":"","canary_model":"sim/chat-large","canary_percent":50,"fallback_models":[],"created_at":"X","updated_at":"X","gate_criterion_id":"X","gate_mode":"recommend","gate_min_samples":20,"gate_rollback_threshold":0.4,"gate_window_hours":168,"gate_sample_percent":100,"gate_max_cost_usd":10,"gate":{`+open+`}}],"has_more":false}`)
		d.Refuses(t, d.Other, "GET", "/v1/aliases/support/gate", "", 404, "not_found", "")
		d.Refuses(t, d.Member, "GET", "/v1/aliases/support/gate?epoch=epoch_x", "", 404, "not_found", "")
	})
}
