package canary

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// record stands for a criterion that was not deleted.
var record = new(criterion.Record)

// expected counts the drawn requests up to the first whose outcome is not recorded, in the order in which they were
// drawn.
func (f *fixture) expected(e *epoch, ended map[int]bool) (*tally, int64) {
	var counted tally
	var n int64
	asked := map[capture.Question]bool{}
	for i, d := range f.drawn {
		if d.Epoch != e.ID {
			continue
		}
		if !ended[i] {
			break
		}
		n++
		s := &sample{
			RequestID: d.Request, Stratum: d.Stratum, Canary: d.Arm == "canary", Latency: d.Latency, Cost: d.Cost, Result: known[d.Outcome],
		}
		if s.Result == pending {
			s.Result = map[judge.Verdict]result{judge.Pass: passed, judge.Fail: rejected}[d.verdict]
		}
		if asked[d.Question] {
			s.Result = repeated
		}
		asked[d.Question] = true
		counted.add(s, e.Percents.of(s.Stratum), e.FalsePass)
	}
	return &counted, n
}

// Failures are known before answers, and answers before verdicts. The evidence must not depend on that.
func TestSamplesEnterInTheOrderInWhichTheyWereDrawn(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		random := rand.New(rand.NewPCG(7, 7))
		c := f.judged(t)
		undecided := func(a *alias.Alias) { a.GateMinSamples = 100_000 }
		f.put(t, gated(c.ID, undecided))
		ended, running := map[int]bool{}, []int{}
		for round := range 30 {
			if round%8 == 7 {
				f.put(t, gated(c.ID, undecided, func(a *alias.Alias) { a.CanaryPercent = 20 + round }))
			}
			for range random.IntN(6) {
				d := f.draw(t, random.IntN(2) == 0)
				if random.IntN(3) == 0 {
					d.Question = asks(random.IntN(5))
				}
				running = append(running, len(f.drawn)-1)
			}
			random.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
			for range random.IntN(len(running) + 1) {
				i := running[0]
				running, ended[i] = running[1:], true
				f.end(&f.drawn[i], outcome.Samples[random.IntN(len(outcome.Samples))], []judge.Verdict{judge.Pass, judge.Fail}[random.IntN(2)])
			}
			e := f.epoch(t)
			want, n := f.expected(e, ended)
			e = f.entered(t, n)
			if e.Entered != n || text(t, e.Tally) != text(t, want) {
				t.Fatalf("round %d: %d are entered, want %d:\n%s\n%s", round, e.Entered, n, text(t, e.Tally), text(t, want))
			}
		}
		e := f.epoch(t)
		if text(t, e.Percents) != "[50,27,35,43]" || e.Tally.Evidence.Promote[1].Percent != 27 || e.Tally.Leaves[1].Percent != 27 {
			t.Errorf("%v: %s", e.Percents, text(t, e.Tally))
		}
		if got, want := text(t, e.Tally), text(t, f.recount(t, e)); got != want || e.stratum() != 4 {
			t.Errorf("stratum %d: %s, recounted %s", e.stratum(), got, want)
		}
	})
}

// A server that is killed leaves requests without an outcome. They do not count, and what comes after them does.
func TestADrawThatNeverCameIsNotWaitedForWhenItsSourceHasEnded(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 1000 }))
		for i := range 5 {
			if d := f.draw(t, i%2 == 0); i != 2 {
				f.end(d, outcome.Failed, "")
			}
		}
		f.entered(t, 2)
		f.poll(t)
		if e := f.epoch(t); e.Taken != 2 {
			t.Fatalf("%d are taken while the third may come", e.Taken)
		}
		// The next process has a source of its own.
		d := f.draw(t, true)
		d.Source, d.Seq = d.Source[:len("src_")]+strings.Repeat("z", len(d.Source)-len("src_")), 1
		f.end(d, outcome.Failed, "")
		if e := f.entered(t, 5); e.Tally.Base.N+e.Tally.Canary.N != 5 {
			t.Errorf("%+v", e.Tally)
		}
	})
}

// Whatever fails and wherever the server dies, no question is paid for twice, and the counts are those of the rows.
func TestNothingIsLostOrPaidTwiceWhereverItStops(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		random := rand.New(rand.NewPCG(3, 3))
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 100_000 }))
		const n = 150
		for i := range n {
			f.end(f.draw(t, i%2 == 0), outcome.Answered, []judge.Verdict{judge.Pass, judge.Fail}[random.IntN(2)])
		}
		paid := f.Models.Paid()
		already, _ := f.Models.Answered()
		for kills := 0; f.epoch(t).Entered < n; kills++ {
			if kills > 2000 {
				t.Fatal("it does not come to an end")
			}
			ctx, kill := context.WithCancelCause(t.Context())
			var asked atomic.Int64
			after := random.Int64N(40)
			f.Models.Do(func(item int, _ *infer.Request) (string, error) {
				if asked.Add(1) > after {
					kill(errors.New("killed"))
				}
				return judgingtest.Assessment(f.verdict(item), 0.9), nil
			})
			var working sync.WaitGroup
			f.loop.Poll(ctx, &working)
			working.Wait()
			kill(nil)
			f.restart()
		}
		e := f.epoch(t)
		if got, want := text(t, e.Tally), text(t, f.recount(t, e)); got != want {
			t.Errorf("%s, recounted %s", got, want)
		}
		if answered, twice := f.Models.Answered(); twice || answered-already != n {
			t.Errorf("%d were asked, twice: %v", answered-already, twice)
		}
		if spent := f.Models.Paid() - paid; spent != n*judgingtest.Price || e.Spent != spent {
			t.Errorf("paid %s, counted %s", spent, e.Spent)
		}
	})
}

// An answer that was stored before the server died is counted as spent after it.
func TestWhatWasPaidBeforeADeathIsCountedAsSpent(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID))
		f.answers(t, 5, always, always)
		f.entered(t, 10)
		e := f.epoch(t)
		if _, err := db.Exec(t.Context(), f.Store.DB.In(mine), `UPDATE canary_epochs SET spent = 0 WHERE workspace_id = $1`); err != nil {
			t.Fatal(err)
		}
		f.restart()
		f.poll(t)
		if now := f.epoch(t); now.Spent != e.Spent || e.Spent != 10*judgingtest.Price {
			t.Errorf("spent %s, then %s", e.Spent, now.Spent)
		}
	})
}

func TestTheBudgetOfAnEpochIsNeverExceeded(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		limited := func(most money.Nano) func(*alias.Alias) {
			return func(a *alias.Alias) { a.GateMaxCost, a.GateMinSamples = most, 1000 }
		}
		f.put(t, gated(c.ID, limited(20*judgingtest.Price)))
		f.answers(t, 50, always, always)
		paid := f.Models.Paid()
		g := f.await(t, Paused)
		if spent := f.Models.Paid() - paid; spent > 20*judgingtest.Price || spent <= 20*judgingtest.Price-judgingtest.Estimate || g.Spent != spent {
			t.Errorf("spent %s, shown %s: %s", spent, g.Spent, g.Reason)
		}
		if !strings.Contains(g.Reason, "gate_max_cost_usd") {
			t.Errorf("%s", g.Reason)
		}
		f.put(t, gated(c.ID, limited(money.Dollar)))
		f.restart() // it would look again in some seconds
		if e := f.entered(t, 100); e.Spent != 100*judgingtest.Price {
			t.Errorf("spent %s", e.Spent)
		}
	})
}

// A judge that fails is evidence against every decision, and an outage of it is none.
func TestAJudgeThatFailsAndOneThatCannotBeReached(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 1000 }))
		f.answers(t, 10, always, always)
		down := true
		f.Models.Do(func(item int, _ *infer.Request) (string, error) {
			if down {
				return "", fault.Upstream.New("the provider is down")
			}
			if item%2 == 0 {
				return "I would rather not say", nil
			}
			return judgingtest.Assessment(judge.Pass, 0.9), nil
		})
		g := f.await(t, Paused)
		if !strings.Contains(g.Reason, "the provider is down") || f.epoch(t).Entered != 0 {
			t.Errorf("%s", text(t, g))
		}
		down = false
		f.restart()
		e := f.entered(t, 20)
		if e.Tally.Base.Missing+e.Tally.Canary.Missing != 10 || e.Tally.Base.Passes+e.Tally.Canary.Passes != 10 {
			t.Errorf("%s", text(t, e.Tally))
		}
		b, canary := e.Tally.Evidence.Promote.Sum()
		if b.Passed-e.Tally.Base.Passes != e.Tally.Base.Missing || canary.Passed != e.Tally.Canary.Passes {
			t.Errorf("%s", text(t, e.Tally))
		}
	})
}

// An outage of the judge, however long, costs no evidence. One question that it cannot take does not hold up the
// others.
func TestAnOutageOfTheJudgeIsWaitedForAndABadQuestionIsNot(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		f.put(t, gated(c.ID, func(a *alias.Alias) { a.GateMinSamples = 1000 }))
		f.answers(t, 10, always, always)
		var down atomic.Bool
		down.Store(true)
		bad := f.drawn[3].item
		f.Models.Do(func(item int, _ *infer.Request) (string, error) {
			if down.Load() || item == bad {
				return "", fault.Upstream.New("the provider is down")
			}
			return judgingtest.Assessment(judge.Pass, 0.9), nil
		})
		for range 3 * maxTries {
			f.poll(t)
			f.restart() // it would ask again in some seconds
		}
		if e := f.epoch(t); e.Entered != 0 {
			t.Fatalf("of an outage: %s", text(t, e.Tally))
		}
		down.Store(false)
		for range maxTries {
			f.poll(t)
			f.restart()
			f.answers(t, 1, always, always)
		}
		f.poll(t)
		if e := f.epoch(t); e.Entered < 20 || e.Tally.Base.Missing+e.Tally.Canary.Missing != 1 {
			t.Errorf("of a bad question: %s", text(t, e.Tally))
		}
	})
}

// A person and the gate change the alias at once. What is kept is what one of them made of the other's whole result.
func TestAPersonAndTheGateNeverMix(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.judged(t)
		for round := range 6 {
			f.put(t, gated(c.ID, func(a *alias.Alias) { a.TargetModel = base; a.CanaryPercent = 0 }))
			f.put(t, gated(c.ID, auto))
			f.answers(t, 40, always, always)
			f.entered(t, 20)
			e := f.epoch(t)
			if _, err := db.Exec(t.Context(), f.Store.DB.In(mine),
				`UPDATE canary_epochs SET verdict = 'promote', decided_at = 1 WHERE workspace_id = $1 AND id = $2 AND acted_at = 0`, e.ID); err != nil {
				t.Fatal(err)
			}
			person := gated(c.ID, auto, func(a *alias.Alias) { a.Description = "mine"; a.CanaryModel = "sim/third"; a.CanaryPercent = 7 })
			var both sync.WaitGroup
			both.Go(func() {
				if _, err := f.aliases.Put(t.Context(), mine, dbtest.Ann, person); err != nil {
					t.Error(err)
				}
			})
			both.Go(func() {
				if _, err := f.act(t.Context(), mine, name, e.ID); err != nil {
					t.Error(err)
				}
			})
			both.Wait()
			a := f.get(t)
			if a.TargetModel != base || a.CanaryModel != "sim/third" || a.CanaryPercent != 7 || a.Description != "mine" || a.GateEpoch == e.ID {
				t.Fatalf("round %d: %s", round, text(t, a))
			}
			entries, err := f.aliases.History(t.Context(), mine, name, 2, 0)
			if err != nil || string(entries[0].Before) != string(withoutGate(entries[1].After)) {
				t.Fatalf("the trail is broken:\n%s\n%s, %v", entries[0].Before, entries[1].After, err)
			}
		}
	})
}

// withoutGate returns an audited alias without what its gate knew.
func withoutGate(after []byte) []byte {
	whole := string(after)
	if at := strings.Index(whole, `,"gate":{`); at >= 0 {
		whole = whole[:at] + "}"
	}
	return []byte(whole)
}
