package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/money"
)

// A gatedAlias is an alias as the API shows it.
type gatedAlias struct {
	TargetModel   string `json:"target_model"`
	CanaryModel   string `json:"canary_model"`
	CanaryPercent int    `json:"canary_percent"`
	Gate          struct {
		Verdict, Mode, Epoch, Reason string
		Arms                         []struct {
			Model                            string
			N, Passes, Errors, Missing, Left int64
		}
		Spent money.Nano `json:"spent_usd"`
	}
}

func (a gatedAlias) judged() (n int64) {
	for _, arm := range a.Gate.Arms {
		n += arm.N
	}
	return n
}

// gated splits an alias between two models, with a gate.
func (c *caller) gated(t *testing.T, criterion, target, canary string, more object) (a gatedAlias) {
	t.Helper()
	body := object{
		"name": "support", "target_model": target, "canary_model": canary, "canary_percent": 50, "gate_criterion_id": criterion,
	}
	for name, value := range more {
		body[name] = value
	}
	c.call(t, http.MethodPut, "/v1/aliases", body, http.StatusOK, &a)
	return a
}

func (c *caller) support(t *testing.T) (a gatedAlias) {
	t.Helper()
	c.call(t, http.MethodGet, "/v1/aliases/support", nil, http.StatusOK, &a)
	return a
}

// questions numbers requests, so that no two are the same.
var questions atomic.Int64

// keepAsking sends different requests to the alias, several at a time, until the function it returns is called.
func (c *caller) keepAsking(t *testing.T, callers int) (stop func()) {
	ctx, end := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for ctx.Err() == nil {
				_, _ = c.post(ctx, "/v1/chat/completions", chat("support", fmt.Sprintf("question %d", questions.Add(1))), nil)
			}
		})
	}
	return func() { end(); group.Wait() }
}

// calibratedJudge makes a judge with a certificate that lets a gate act, and turns logging on.
func calibratedJudge(t *testing.T, p instance, c *caller, model string) string {
	t.Helper()
	p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
	id := c.criterion(t, model, nil)
	c.grade(t, id, inlines("what", 300))
	if w := c.calibrated(t, id); w.Block.Matrix.FP+w.Block.Matrix.FN != 0 {
		t.Fatalf("%+v", w.Block)
	}
	return id
}

func TestAGatePromotesABetterCanaryAndRollsBackAWorseOne(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		provider := startProvider(t)
		server := p.serve(t, "--config", judgeConfig(t, provider, map[string]string{
			"judges": "mock?judge", "good": "mock?good=0.95", "poor": "mock?good=0.4",
		}, nil))
		c := server.caller()
		judge := calibratedJudge(t, p, c, "mock/judges")
		for _, round := range []struct {
			target, canary, verdict, ends string
		}{{"mock/poor", "mock/good", "promote", "mock/good"}, {"mock/good", "mock/poor", "roll_back", "mock/good"}} {
			c.gated(t, judge, round.target, round.canary, object{"gate_mode": "auto"})
			stop := c.keepAsking(t, 2)
			var a gatedAlias
			eventually(t, "the gate acts", func() bool { a = c.support(t); return a.CanaryPercent == 0 })
			stop()
			if a.TargetModel != round.ends || a.Gate.Verdict != round.verdict {
				t.Errorf("%+v: %+v", round, a)
			}
			t.Logf("%s after %d requests: %s", a.Gate.Verdict, a.judged(), a.Gate.Reason)
			var history struct {
				Data []struct{ Actor struct{ Kind string } }
			}
			c.call(t, http.MethodGet, "/v1/aliases/support/history?limit=1", nil, http.StatusOK, &history)
			if len(history.Data) != 1 || history.Data[0].Actor.Kind != "gate" {
				t.Errorf("%+v", history)
			}
		}
		p.verifyLedger(t)
		p.verifyTrail(t)
	})
}

// A gate whose server is killed again and again goes on: everything that was logged is judged, once, and paid for at
// most once.
func TestDrillKillDuringAGate(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		provider := startProvider(t)
		config := judgeConfig(t, provider, map[string]string{
			"judges": "mock?judge&latency=20ms", "one": "mock?good=0.9&latency=50ms", "two": "mock?good=0.9&latency=50ms",
		}, nil)
		server := p.serve(t, "--config", config)
		key := server.key()
		c := server.callerWith(key)
		judge := calibratedJudge(t, p, c, "mock/judges")
		epoch := c.gated(t, judge, "mock/one", "mock/two", object{"gate_min_samples": 1_000_000}).Gate.Epoch
		kills := drills(3, 20)
		for range kills {
			before := c.support(t).judged()
			stop := c.keepAsking(t, 2)
			eventually(t, "the judge goes on", func() bool { return c.support(t).judged() > before+20 })
			time.Sleep(rand.N(300 * time.Millisecond))
			server.kill()
			stop()
			server = p.serve(t, "--config", config)
			c = server.callerWith(key)
		}
		for range 5 { // the draws of a run of the server are complete when a later one has drawn
			c.ask(t, chat("support", fmt.Sprintf("question %d", questions.Add(1))))
		}
		server.stop(t) // what is logged is in the database then
		server = p.serve(t, "--config", config)
		c = server.callerWith(key)
		var a gatedAlias
		logged := int64(len(c.logs(t, "")))
		eventually(t, "all that was logged is judged", func() bool { a = c.support(t); return a.judged() >= logged })
		rows, charged := p.spentFor(t, "default", epoch)
		eventually(t, "the usage", func() bool {
			rows, charged = p.spentFor(t, "default", epoch)
			return int64(rows) >= logged-int64(8*kills)
		})
		if a.judged() != logged || a.Gate.Epoch != epoch || int64(rows) > logged || charged > a.Gate.Spent || a.Gate.Verdict != "collecting" {
			t.Errorf("%d logged, %d charges of $%s: %+v", logged, rows, charged, a)
		}
		for _, arm := range a.Gate.Arms {
			if arm.Errors+arm.Missing != 0 {
				t.Errorf("%+v", arm)
			}
		}
		t.Logf("%d kills: %d logged and judged, %d charges: $%s of $%s", kills, logged, rows, charged, a.Gate.Spent)
		p.verifyLedger(t)
	})
}
