package eval

import (
	"testing"

	"sovereign/internal/domain/calibration"
	"sovereign/internal/store/job"
)

// Reading a run however often counts it some hundred times, and what is shown is never more than a hundredth behind.
func TestALargeRunIsNotCountedAtEveryLook(t *testing.T) {
	var k recent
	certified := new(calibration.Certificate)
	certified.ID = "cert_1"
	read := func(id string, done int64, status job.Status, c *calibration.Certificate) (behind int64, counted bool) {
		r := &record{ID: id, Job: job.Job{Status: status, Progress: job.Progress{Done: done}}}
		f, known := k.find(r, c)
		if !known {
			f = Figures{Baseline: Result{Cases: done}}
			k.keep(r, c, f)
		}
		return done - f.Baseline.Cases, !known
	}
	times := 0
	for done := range int64(10_000) {
		for range 3 {
			behind, counted := read("eval_1", done, job.Running, nil)
			if counted {
				times++
			}
			if behind > done/100 || done < 100 && !counted {
				t.Fatalf("of %d cases %d are not shown", done, behind)
			}
		}
	}
	if times > 1000 {
		t.Errorf("it was counted %d times", times)
	}
	for name, counted := range map[string]func() bool{
		"another eval":   func() bool { _, counted := read("eval_2", 9_999, job.Running, nil); return counted },
		"a certificate":  func() bool { _, counted := read("eval_1", 9_999, job.Running, certified); return counted },
		"it was stopped": func() bool { _, counted := read("eval_1", 9_999, job.Cancelled, nil); return counted },
	} {
		if !counted() {
			t.Errorf("%s: it is not counted anew", name)
		}
	}
}
