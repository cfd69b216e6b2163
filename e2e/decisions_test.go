package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/money"
)

// The models of a story: half of the base's answers are good, few of worse's, and nearly all of better's.
type contenders struct{ base, worse, better, judge string }

// serveContenders serves an instance with contenders, either simulated or at the mock provider.
func serveContenders(t *testing.T, p instance, simulated bool) (*process, contenders) {
	t.Helper()
	if simulated {
		config := judgeConfig(t, "http://127.0.0.1:1", nil, map[string]string{
			"base": "quality: 0.5", "worse": "quality: 0.1", "better": "quality: 0.95", "judge": "sensitivity: 0.98, specificity: 0.98",
		})
		return p.serve(t, "--config", config), contenders{"sim/base", "sim/worse", "sim/better", "sim/judge"}
	}
	config := mockConfig(t, startProvider(t), map[string]string{
		"base": "mock?good=0.5", "worse": "mock?good=0.1", "better": "mock?good=0.95", "judge": "mock?judge&se=0.98&sp=0.98",
	})
	return p.serve(t, "--config", config), contenders{"mock/base", "mock/worse", "mock/better", "mock/judge"}
}

// An evaluation is an eval, as far as the tests read it.
type evaluation struct {
	work
	Trust      string
	Candidates []struct {
		Model      string
		PassRate   *float64 `json:"pass_rate"`
		WinRate    *float64 `json:"win_rate"`
		Difference *float64
	}
	Reused int
}

// evaluate runs an eval to its end.
func (c *caller) evaluate(t *testing.T, body object) (e evaluation) {
	t.Helper()
	id := c.begin(t, "/v1/evals", body).ID
	if w := c.wait(t, "/v1/evals/"+id); w.Status != "DONE" {
		t.Fatalf("%s: %s %s", id, w.Status, deref(w.Error))
	}
	c.call(t, http.MethodGet, "/v1/evals/"+id, nil, http.StatusOK, &e)
	return e
}

// A gated is an alias, as far as the tests read it.
type gated struct {
	Target  string `json:"target_model"`
	Canary  string `json:"canary_model"`
	Percent int    `json:"canary_percent"`
	Gate    *struct {
		Verdict, Mode, Reason string
		Arms                  []struct {
			Model     string
			N, Passes int
		}
		Spent money.Nano `json:"spent_usd"`
	}
}

func (c *caller) alias(t *testing.T, name string) (a gated) {
	t.Helper()
	c.call(t, http.MethodGet, "/v1/aliases/"+name, nil, http.StatusOK, &a)
	return a
}

// supervise splits an alias between two models, with a gate that acts by itself.
func (c *caller) supervise(t *testing.T, name, target, canary, criterion string) {
	t.Helper()
	c.call(t, http.MethodPut, "/v1/aliases", object{
		"name": name, "target_model": target, "canary_model": canary, "canary_percent": 50, "gate_criterion_id": criterion,
		"gate_mode": "auto", "gate_min_samples": 20, "gate_rollback_threshold": 0.1, "gate_max_cost_usd": 2,
	}, http.StatusOK, nil)
}

// until sends requests to an alias, and waits until something holds.
func (c *caller) until(t *testing.T, name, what string, holds func(gated) bool) (now gated) {
	t.Helper()
	const most = 600
	sent := 0
	eventually(t, what, func() bool {
		for range min(20, most-sent) {
			c.ask(t, chat(name, fmt.Sprintf("%s, question %d", what, sent)))
			sent++
		}
		now = c.alias(t, name)
		return holds(now)
	})
	return now
}

// fromLogToPromotion goes the whole way: traffic, a calibrated judge, an eval, its gate, the policy, and canaries.
func fromLogToPromotion(t *testing.T, server *process, m contenders) {
	p, c := server.instance, server.caller()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server logged:\n%s", server.log)
		}
	})
	p.mustAdmin(t, nil, "wallet", "topup", "--workspace", "default", "--amount-usd", "100", "--json")
	p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "7", "--json")
	c.call(t, http.MethodPut, "/v1/aliases", object{"name": "prod", "target_model": m.base}, http.StatusOK, nil)
	const traffic = 150
	for i := range traffic {
		c.ask(t, chat("prod", fmt.Sprintf("Question %d of the day", i)))
	}
	c.awaitLogs(t, traffic)
	criterion := c.criterion(t, m.judge, nil)
	labels := inlines("graded", 400)
	c.grade(t, criterion, labels)
	if w := c.calibrated(t, criterion); w.Block.Trust != "calibrated" && w.Block.Trust != "certified" {
		t.Fatalf("%+v", *w.Block)
	}

	// The eval tells the candidates apart, and its gate refuses one of them.
	e := c.evaluate(t, object{
		"name": "May it replace?", "criterion_id": criterion, "baseline_model": m.base, "candidate_models": []string{m.worse, m.better},
		"sample_count": 100, "reuse_logged_answers": true, "sample_filters": object{},
	})
	if len(e.Candidates) != 2 || e.Cost <= 0 || e.Cost > e.Estimate {
		t.Fatalf("%+v", e)
	}
	p.costs(t, "default", e.ID, e.Cost)
	gate := "/v1/evals/" + e.ID + "/gate?max_regression=0.05&require_trust=measured&candidate="
	if _, text := c.call(t, http.MethodGet, gate+m.worse, nil, http.StatusPreconditionFailed, nil); !strings.Contains(text, `"check":"max_regression"`) ||
		!strings.Contains(text, `"code":"precondition_failed"`) {
		t.Errorf("a refusal says %s", text)
	}
	c.call(t, http.MethodGet, gate+m.better, nil, http.StatusOK, nil)

	// The policy lets through what was proven, and nothing else.
	p.mustAdmin(t, nil, "evidence", "set", "--workspace", "default", "--required", "--json")
	if _, text := c.call(t, http.MethodPut, "/v1/aliases", object{"name": "prod", "target_model": m.worse}, http.StatusPreconditionFailed, nil); !strings.Contains(text, "/v1/evals") {
		t.Errorf("an unproven repoint is refused with %s", text)
	}
	c.call(t, http.MethodPut, "/v1/aliases", object{"name": "prod", "target_model": m.better}, http.StatusOK, nil)
	c.call(t, http.MethodPut, "/v1/aliases", object{"name": "prod", "target_model": m.base}, http.StatusOK, nil) // back is always allowed
	p.mustAdmin(t, nil, "evidence", "set", "--workspace", "default", "--no-required", "--json")

	// A canary that is better takes the traffic, and one that is worse loses it.
	c.supervise(t, "rising", m.base, m.better, criterion)
	up := c.until(t, "rising", "the better canary is promoted", func(a gated) bool { return a.Target == m.better })
	if up.Canary != "" || up.Percent != 0 {
		t.Errorf("promoted to %+v", up)
	}
	c.supervise(t, "falling", m.better, m.worse, criterion)
	down := c.until(t, "falling", "the worse canary is rolled back", func(a gated) bool { return a.Percent == 0 })
	if down.Target != m.better || down.Canary != m.worse {
		t.Errorf("rolled back to %+v", down)
	}
	for _, name := range []string{"rising", "falling"} {
		_, history := c.call(t, http.MethodGet, "/v1/aliases/"+name+"/history", nil, http.StatusOK, nil)
		if facts, _ := c.certificate(t, criterion); !strings.Contains(history, facts.ID) || !strings.Contains(history, `"gate"`) {
			t.Errorf("the history of %s does not say who repointed it, and by which certificate: %s", name, history)
		}
	}
	voidedHalfWay(t, c, m, criterion, labels)
	p.verifyLedger(t)
}

// voidedHalfWay voids a judge's certificate while a gate collects evidence: from then on it recommends, and does not
// act.
func voidedHalfWay(t *testing.T, c *caller, m contenders, criterion string, labels []labelled) {
	t.Helper()
	c.supervise(t, "held", m.base, m.better, criterion)
	for i := range 10 {
		c.ask(t, chat("held", fmt.Sprintf("before, question %d", i)))
	}
	for _, l := range labels {
		if l.InReportHalf {
			c.rule(t, l.ID, object{"kind": "label_error", "verdict": opposite(l.truth), "note": "it was wrong"})
			break
		}
	}
	if facts, _ := c.certificate(t, criterion); !facts.Voided {
		t.Fatal("the certificate is not void")
	}
	voided := time.Now()
	eventually(t, "the gate recommends", func() bool { a := c.alias(t, "held"); return a.Gate.Mode == "recommend" })
	if took := time.Since(voided); measured() && took > time.Second {
		t.Errorf("the gate recommends %v after its certificate was voided", took)
	}
	c.until(t, "held", "all drawn requests are judged", func(a gated) bool {
		return a.Gate.Verdict == "promote" || a.Gate.Verdict == "paused"
	})
	if a := c.alias(t, "held"); a.Target != m.base || a.Percent != 50 {
		t.Errorf("a gate with a void certificate has acted: %+v", a)
	}
}

func TestDrillFromALogToAPromotedAlias(t *testing.T) {
	t.Parallel()
	for name, simulated := range map[string]bool{"sim": true, "mock": false} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, p instance) {
				server, models := serveContenders(t, p, simulated)
				fromLogToPromotion(t, server, models)
			})
		})
	}
}
