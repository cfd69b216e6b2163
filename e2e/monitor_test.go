package e2e

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/grade/stat"
)

func contains(text string, some ...string) bool {
	for _, one := range some {
		if strings.Contains(text, one) {
			return true
		}
	}
	return false
}

// traffic sends n requests, of which the given number has a good answer.
func (c *caller) traffic(t *testing.T, what string, n, good int) {
	t.Helper()
	for i := range n {
		c.ask(t, chat("mock/chats", fmt.Sprintf("%s %d [truth=%s]", what, i, verdictOf(i*good/n != (i+1)*good/n))))
	}
}

// A scan reports the rate that a judge sees, and the true rate as far as the judge's certificate measures its errors.
// Without a certificate the scan says why it is not corrected.
func TestAScanIsCorrectedByACertificateAndByNothingElse(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		const logged, good, judged = 200, 160, 320
		provider := startProvider(t)
		server := p.serve(t, "--config", judgeConfig(t, provider, map[string]string{"chats": "mock", "judges": "mock?judge&se=0.9&sp=0.9"}, nil))
		c := server.caller()
		id := c.criterion(t, "mock/judges", nil)
		scans := "/v1/criteria/" + id + "/scans"
		if status, text := c.call(t, http.MethodPost, scans, object{}, 0, nil); status < 400 || !strings.Contains(text, "logging") {
			t.Errorf("a scan without logs: %d %s", status, text)
		}
		p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "7", "--json")
		c.traffic(t, "live", logged, good)
		c.awaitLogs(t, logged)
		scan := func() work {
			var foreseen struct {
				Calls int
				Cost  money.Nano `json:"cost_usd"`
			}
			c.call(t, http.MethodPost, "/v1/criteria/estimates", object{"kind": "scan", "criterion_id": id, "sample_size": logged}, 0, &foreseen)
			w := c.wait(t, scans+"/"+c.begin(t, scans, object{"sample_size": logged}).ID)
			if w.Status != "DONE" || w.Result == nil || w.Result.N != logged || w.Progress.Done != logged || foreseen.Calls != logged || w.Cost > foreseen.Cost {
				t.Fatalf("%+v %+v %s %+v", w, w.Result, deref(w.Error), foreseen)
			}
			p.costs(t, "default", w.ID, w.Cost)
			return w
		}
		before := scan()
		if before.Result.Corrected != nil || deref(before.Result.NotCorrected) != "no_certificate" || before.Cost == 0 || len(before.Result.Failing) == 0 {
			t.Errorf("%+v", before.Result)
		}
		c.grade(t, id, inlines("what", judged))
		certificate := c.calibrated(t, id)
		after := scan()
		r := after.Result
		if after.Cost != 0 || deref(r.Rate) != deref(before.Result.Rate) {
			t.Errorf("the same was asked again, for $%s: %+v", after.Cost, r)
		}
		m := certificate.Block.Matrix
		table := stat.Table{TP: int64(m.TP), FP: int64(m.FP), TN: int64(m.TN), FN: int64(m.FN)}
		correction, _ := stat.Correctable(table, 0.95)
		rate, interval, _ := correction.RoganGladen(int64(r.Passes), int64(r.N))
		if r.CorrectedCI == nil || r.NotCorrected != nil || *r.Corrected != rate || *r.CorrectedCI != interval {
			t.Errorf("%+v by %+v, not %v in %v", r, certificate.Block, rate, interval)
		}
		// The judge's errors are drawn anew in every run: five standard errors.
		if math.Abs(rate-float64(good)/logged) > 0.25 {
			t.Errorf("%v of %d logged are good, not %v", good, logged, rate)
		}
		c.call(t, http.MethodPatch, "/v1/criteria/"+id, object{"rubric": "Another."}, http.StatusOK, nil)
		if voided := scan(); voided.Result.Corrected != nil || deref(voided.Result.NotCorrected) != "certificate_void" {
			t.Errorf("%+v", voided.Result)
		}
		var rows struct{ Data []object }
		c.call(t, http.MethodGet, scans+"/"+after.ID+"/rows?verdict=fail&limit=1000", nil, http.StatusOK, &rows)
		if len(rows.Data) != logged-r.Passes {
			t.Errorf("%d rows fail of %+v", len(rows.Data), r)
		}
		p.verifyLedger(t)
	})
}

// A judge that monitors traffic counts it, reports its cost, and raises the alarm when the quality drops, not before.
func TestMonitoringRaisesTheAlarmWhenQualityDrops(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		t.Parallel()
		provider := startProvider(t)
		server := p.serve(t, "--config", judgeConfig(t, provider, map[string]string{"chats": "mock", "judges": "mock?judge"}, nil))
		c := server.caller()
		id := c.criterion(t, "mock/judges", nil)
		path := "/v1/criteria/" + id + "/monitoring"
		p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "7", "--json")
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the server logged:\n%s", server.log)
			}
		})
		c.traffic(t, "before", 5, 0)
		c.awaitLogs(t, 5)
		if status, _ := c.call(t, http.MethodPut, path, object{"enabled": true, "sample_percent": 0}, 0, nil); status != http.StatusBadRequest {
			t.Errorf("monitoring of no requests: %d", status)
		}
		if _, text := c.call(t, http.MethodPut, path, object{"enabled": true}, http.StatusOK, nil); !strings.Contains(text, `"sample_percent":10,"window_hours":24`) {
			t.Errorf("by default: %s", text)
		}
		c.call(t, http.MethodPut, path, object{"enabled": true, "sample_percent": 100, "alert_below": 0.7}, http.StatusOK, nil)
		type monitor struct {
			Seen  int
			Rates rates
			Cost  money.Nano `json:"cost_usd"`
			Alarm *struct{ Reason string }
		}
		monitored := func(n int) (m monitor) {
			eventually(t, fmt.Sprintf("%d are monitored", n), func() bool {
				m = monitor{}
				c.call(t, http.MethodGet, path, nil, http.StatusOK, &m)
				return m.Seen >= n
			})
			return m
		}
		c.traffic(t, "good", 30, 27)
		if m := monitored(30); m.Seen != 30 || m.Rates.N != 30 || m.Rates.Passes != 27 || m.Alarm != nil || m.Cost <= 0 {
			t.Errorf("%+v", m)
		}
		c.traffic(t, "bad", 40, 4) // more than one round of monitoring takes
		m := monitored(70)
		if m.Rates.N != 70 || m.Rates.Passes != 31 || m.Alarm == nil || !strings.Contains(m.Alarm.Reason, "below 0.7") {
			t.Errorf("%+v", m)
		}
		server.expect(t, "raises the alarm")
		p.costs(t, "default", id, m.Cost)
		c.call(t, http.MethodPut, path, object{"enabled": false}, http.StatusOK, nil)
		p.verifyLedger(t)
	})
}

// A draft costs what the usage says. To adopt it makes a new version of the judge, whose certificate is void.
func TestAnAdoptedDraftIsANewVersionThatNoCertificateSpeaksFor(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	provider := startProvider(t)
	server := p.serve(t, "--config", judgeConfig(t, provider, map[string]string{"judges": "mock?judge&se=0.8&sp=0.8", "garbles": "mock?judge=garbage"}, nil))
	c := server.caller()
	id := c.criterion(t, "mock/judges", nil)
	path := "/v1/criteria/" + id + "/improvements"
	if status, text := c.call(t, http.MethodPost, path, object{}, 0, nil); status != http.StatusPreconditionFailed || !strings.Contains(text, "nothing to improve on") {
		t.Errorf("before a calibration: %d %s", status, text)
	}
	c.grade(t, id, inlines("what", 160))
	c.calibrated(t, id)
	var foreseen struct {
		Cost money.Nano `json:"cost_usd"`
	}
	c.call(t, http.MethodPost, "/v1/criteria/estimates", object{"kind": "improvement", "criterion_id": id}, 0, &foreseen)
	w := c.wait(t, path+"/"+c.begin(t, path, object{}).ID)
	if w.Status != "DONE" || w.Rubric == nil || w.Cost <= 0 || w.Cost > foreseen.Cost {
		t.Fatalf("%+v %s, foreseen $%s", w, deref(w.Error), foreseen.Cost)
	}
	p.costs(t, "default", w.ID, w.Cost)
	if before, _ := c.certificate(t, id); before.Voided {
		t.Error("a draft voids nothing")
	}
	c.call(t, http.MethodPost, path+"/"+w.ID+"/adopt", nil, 0, nil)
	after, _ := c.certificate(t, id)
	if now := c.judge(t, id); now.Version != 2 || now.Trust != "none" || !after.Voided || !strings.Contains(after.VoidedReason, "the rubric changed: version 1 is now 2") {
		t.Errorf("%+v %+v", now, after)
	}
	again := c.calibrated(t, id)
	if again.Cost == 0 || c.judge(t, id).Trust == "none" {
		t.Errorf("%+v", again)
	}
	late := c.begin(t, path, object{"model": "mock/judges"})
	c.wait(t, path+"/"+late.ID)
	c.call(t, http.MethodPatch, "/v1/criteria/"+id, object{"rubric": "A third."}, http.StatusOK, nil)
	if status, text := c.call(t, http.MethodPost, path+"/"+late.ID+"/adopt", nil, 0, nil); status != http.StatusConflict {
		t.Errorf("a draft of another version: %d %s", status, text)
	}
	p.verifyLedger(t)
}
