package canary

import (
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/outcome"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// Two models that answer a few questions over and over say as much as if they had answered them once. A canary would
// otherwise be promoted because the judge likes one wrong answer.
func TestAQuestionCountsOnceHoweverOftenItIsAsked(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 1000 }))
		paid := f.Models.Paid()
		const questions, rounds = 30, 10
		for i := range questions * rounds {
			d := f.draw(t, i%2 == 0)
			d.Question = asks(i % questions)
			f.end(d, outcome.Answered, judge.Pass)
		}
		e := f.entered(t, questions*rounds)
		const repeats = questions * (rounds - 1)
		b, k := &e.Tally.Base, &e.Tally.Canary
		if b.N+k.N != questions || b.Repeats+k.Repeats != repeats || e.Verdict != Collecting {
			t.Errorf("%s: %s", e.Verdict, text(t, e.Tally))
		}
		if got, want := text(t, e.Tally), text(t, f.recount(t, e)); got != want {
			t.Errorf("%s, recounted %s", got, want)
		}
		if spent := f.Models.Paid() - paid; spent != questions*judgingtest.Price {
			t.Errorf("the judge cost %s", spent)
		}
		g := f.get(t).Gate
		if g.Arms[0].Repeated+g.Arms[1].Repeated != repeats || !strings.Contains(g.Reason, "270 more asked a question again") {
			t.Errorf("%s", text(t, g))
		}
	})
}

// The first request that asks a question decides whether it counts, and for which arm, whatever becomes of it: a second
// one would otherwise count because the first went wrong.
func TestWhatBecomesOfTheFirstRequestDoesNotMakeTheSecondCount(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		for i, first := range outcome.Samples {
			one, other := f.draw(t, i%2 == 0), f.draw(t, i%2 == 1)
			one.Question, other.Question = asks(i), asks(i)
			f.end(other, outcome.Answered, judge.Pass) // it is known before
			f.end(one, first, judge.Fail)
		}
		n := int64(len(outcome.Samples))
		e := f.entered(t, 2*n)
		if b, k := &e.Tally.Base, &e.Tally.Canary; b.Repeats+k.Repeats != n || b.Passes+k.Passes != 0 {
			t.Errorf("%s", text(t, e.Tally))
		}
	})
}

// A question is recognised while its epoch lasts: in later strata, after a restart, and when the logs that it came with
// are deleted. In the next epoch it is a new one.
func TestAQuestionIsRecognisedForAsLongAsItsEpochLasts(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		ask := func(canary bool) {
			t.Helper()
			d := f.draw(t, canary)
			d.Question = asks(1)
			f.end(d, outcome.Failed, "")
		}
		ask(false)
		f.entered(t, 1)
		f.restart()
		f.now = func() clock.Time { return clock.Now().Add(40 * 24 * time.Hour) }
		if err := f.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.now = clock.Now
		if n := dbtest.Count(t, f.Store.DB, "canary_samples"); n != 0 {
			t.Fatalf("%d samples are kept", n)
		}
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.CanaryPercent = 30 }))
		ask(true)
		e := f.entered(t, 2)
		if e.Tally.Base.N != 1 || e.Tally.Canary.N != 0 || e.Tally.Canary.Repeats != 1 || e.stratum() != 2 {
			t.Errorf("%s", text(t, e.Tally))
		}
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.CanaryModel = "sim/third" }))
		ask(true)
		if next := f.entered(t, 1); next.ID == e.ID || next.Tally.Canary.N != 1 {
			t.Errorf("%s", text(t, next.Tally))
		}
		if err := f.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := dbtest.Count(t, f.Store.DB, "canary_questions"); n != 1 {
			t.Errorf("%d questions are kept of the epoch that goes on", n)
		}
	})
}

// Every epoch has a key of its own, so that its digests say nothing about another's. An epoch without one is of a
// release that counted every request, and ends.
func TestAnEpochHasAKeyOfItsOwn(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		key := func() string {
			t.Helper()
			a, ok := f.live.Find(mine, name)
			if !ok || a.Gate == nil {
				t.Fatal("nothing is drawn")
			}
			return a.Gate.Key
		}
		first, epoch := key(), f.epoch(t).ID
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.CanaryPercent = 30 }))
		if len(first) < 20 || key() != first {
			t.Errorf("the key %q became %q in the same epoch", first, key())
		}
		if _, err := db.Exec(t.Context(), f.Store.DB.In(mine), `UPDATE aliases SET gate_key = '' WHERE workspace_id = $1`); err != nil {
			t.Fatal(err)
		}
		f.poll(t)
		if now := f.epoch(t).ID; now == epoch || key() == "" || key() == first {
			t.Errorf("epoch %s after %s, key %q after %q", now, epoch, key(), first)
		}
	})
}
