package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// A calibration whose server is killed again and again, at random moments, goes on and ends: every label is judged, and
// none is paid for twice. Answers that were not yet charged when the server died stay free: at most those that were
// under way.
func TestDrillKillDuringACalibration(t *testing.T) {
	t.Parallel()
	const labels, atOnce = 96, 8
	eachEngine(t, func(t *testing.T, p instance) {
		provider := startProvider(t)
		config := judgeConfig(t, provider, map[string]string{"judges": "mock?judge&latency=40ms"}, nil)
		server := p.serve(t, "--config", config)
		key := server.key()
		c := server.callerWith(key)
		id := c.criterion(t, "mock/judges", nil)
		c.grade(t, id, inlines("what", labels))
		for round := range drills(1, 12) {
			c = server.callerWith(key)
			c.call(t, http.MethodPatch, "/v1/criteria/"+id, object{"rubric": fmt.Sprintf("It is right, says round %d.", round)}, http.StatusOK, nil)
			path := "/v1/criteria/" + id + "/calibrations"
			run, kills, w := c.begin(t, path, nil).ID, 0, work{}
			for kills < drills(3, 10) {
				time.Sleep(rand.N(250 * time.Millisecond))
				server.kill()
				kills++
				server = p.serve(t, "--config", config)
				c = server.callerWith(key)
				if c.call(t, http.MethodGet, path+"/"+run, nil, http.StatusOK, &w); w.ended() {
					break
				}
			}
			w = c.wait(t, path+"/"+run)
			if w.Status != "DONE" || w.Progress.Done != labels || w.Progress.Total != labels || w.Block.Failed != 0 || w.Block.Matrix.FP+w.Block.Matrix.FN != 0 {
				t.Fatalf("%+v %s", w, deref(w.Error))
			}
			p.paidOnce(t, run, w, labels, kills*atOnce, len(seenBy(t, provider, fmt.Sprintf("says round %d.", round))))
		}
		p.verifyLedger(t)
	})
}

// paidOnce compares a calibration's cost with the usage. asked is the number of requests at the provider.
func (p instance) paidOnce(t *testing.T, run string, w work, labels, gifts, asked int) {
	t.Helper()
	var rows int
	var sum money.Nano
	eventually(t, "the usage of "+run, func() bool {
		rows, sum = p.spentFor(t, "default", run)
		return rows >= labels-gifts
	})
	switch {
	case rows > labels || rows > asked:
		t.Errorf("%d labels, %d questions and %d charges", labels, asked, rows)
	case sum > w.Cost:
		t.Errorf("$%s were charged, and the calibration says $%s", sum, w.Cost)
	case rows == labels && sum != w.Cost:
		t.Errorf("all of it was charged: $%s, and the calibration says $%s", sum, w.Cost)
	}
	if gift := w.Cost - sum; gift > w.Cost/money.Nano(labels)*money.Nano(gifts)*2 {
		t.Errorf("$%s of $%s are not charged", gift, w.Cost)
	}
	t.Logf("%d labels, %d questions, %d charges: $%s of $%s", labels, asked, rows, sum, w.Cost)
}

// What was answered before a calibration was cancelled is kept: the next one asks for the rest.
func TestACancelledCalibrationKeepsWhatWasAnswered(t *testing.T) {
	t.Parallel()
	const labels = 120
	p := newInstance(t, secret.Text{})
	provider := startProvider(t)
	server := p.serve(t, "--config", judgeConfig(t, provider, map[string]string{"judges": "mock?judge&latency=30ms"}, nil))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server logged:\n%s", server.log)
		}
	})
	c := server.caller()
	id := c.criterion(t, "mock/judges", nil)
	c.grade(t, id, inlines("what", labels))
	path := "/v1/criteria/" + id + "/calibrations"
	run := c.begin(t, path, nil).ID
	if status, text := c.call(t, http.MethodPost, path, nil, 0, nil); status != http.StatusConflict {
		t.Errorf("a second calibration beside it: %d %s", status, text)
	}
	eventually(t, "some answers", func() bool {
		var w work
		c.call(t, http.MethodGet, path+"/"+run, nil, http.StatusOK, &w)
		return w.Progress.Done >= 32
	})
	c.call(t, http.MethodPost, path+"/"+run+"/cancel", nil, http.StatusOK, nil)
	cancelled := c.wait(t, path+"/"+run)
	if cancelled.Status != "CANCELLED" || cancelled.Block != nil {
		t.Errorf("%+v", cancelled)
	}
	var before int
	var paid money.Nano
	eventually(t, "the charges come to what the cancelled calibration says", func() bool {
		before, paid = p.spentFor(t, "default", run)
		return paid == cancelled.Cost
	})
	if before < 32 || before == labels {
		t.Fatalf("%d answers before the end", before)
	}
	w := c.calibrated(t, id)
	p.costs(t, "default", w.ID, w.Cost)
	if after, _ := p.spentFor(t, "default", w.ID); before+after != labels || w.Progress.Total != labels {
		t.Errorf("%d answers before, and %d after: %+v", before, after, w.Block)
	}
	p.verifyLedger(t)
}

// A wallet that is too small fails a calibration with a message that says so. Paid answers are kept: after a top-up
// only the rest is asked.
func TestAnEmptyWalletFailsACalibrationAndLosesNothing(t *testing.T) {
	t.Parallel()
	const labels = 120
	eachEngine(t, func(t *testing.T, p instance) {
		provider := startProvider(t)
		server := p.serve(t, "--config", judgeConfig(t, provider, map[string]string{"judges": "mock?judge&in=10000"}, nil))
		c := server.callerWith(p.newWorkspace(t, "poor", 1_500_000_000))
		id := c.criterion(t, "mock/judges", nil)
		c.grade(t, id, inlines("what", labels))
		var foreseen struct {
			Calls int
			Cost  money.Nano `json:"cost_usd"`
		}
		c.call(t, http.MethodPost, "/v1/criteria/estimates", object{"kind": "calibration", "criterion_id": id}, 0, &foreseen)
		if foreseen.Calls != labels || foreseen.Cost <= 0 {
			t.Errorf("%+v", foreseen)
		}
		path := "/v1/criteria/" + id + "/calibrations"
		if status, text := c.call(t, http.MethodPost, path, object{"max_cost_usd": 0.001}, 0, nil); status != http.StatusBadRequest {
			t.Errorf("more than it may cost: %d %s", status, text)
		}
		w := c.calibrate(t, id)
		if w.Status != "FAILED" || !contains(deref(w.Error), "balance", "funds", "wallet", "credit") || w.Cost <= 0 {
			t.Fatalf("%+v %s", w, deref(w.Error))
		}
		p.costs(t, "poor", w.ID, w.Cost)
		first, _ := p.spentFor(t, "poor", w.ID)
		p.mustAdmin(t, nil, "wallet", "topup", "--workspace", "poor", "--amount-usd", "20", "--json")
		again := c.calibrated(t, id)
		p.costs(t, "poor", again.ID, again.Cost)
		if rest, _ := p.spentFor(t, "poor", again.ID); first == 0 || first+rest != labels || again.Progress.Total != labels {
			t.Errorf("%d charges, then %d: %+v", first, rest, again.Block)
		}
		p.verifyLedger(t)
	})
}
