package monitor

import (
	"math/rand/v2"
	"testing"

	"sovereign/internal/domain/criterion"
)

func TestAMonitorHasADefaultShareAndWindow(t *testing.T) {
	half := 0.5
	if w := (criterion.MonitorSettings{Enabled: true}).WithDefaults(); *w.SamplePercent != 10 || w.WindowHours != 24 {
		t.Errorf("%+v", w)
	}
	if w := (criterion.MonitorSettings{SamplePercent: &half, WindowHours: 3}).WithDefaults(); *w.SamplePercent != 0.5 || w.WindowHours != 3 {
		t.Errorf("%+v", w)
	}
}

// Tested after every verdict, at most one window in twenty has a false alert, and a low rate has one soon.
func TestFalseAlertsAreRareHoweverOftenTheRateIsTested(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, bound := range []float64{0.5, 0.9} {
		runs := func(rate float64, n int) (alerts int) {
			for range 400 {
				var k record
				for range n {
					if k.Judged++; random.Float64() < rate {
						k.Passes++
					}
					if k.raiseAlert(&bound, 1) {
						alerts++
						break
					}
				}
			}
			return alerts
		}
		if empty := runs(bound, 400); empty > 400*5/100+13 { // three standard deviations above 5 %
			t.Errorf("at a rate of %v: %d false alerts in 400 windows", bound, empty)
		}
		if right := runs(bound-0.25, 400); right < 390 {
			t.Errorf("at a rate of %v below the bound: %d alerts in 400 windows", 0.25, right)
		}
	}
	var k record
	bound := 0.5
	if k.raiseAlert(nil, 1) || k.raiseAlert(&bound, 1) {
		t.Error("an alert without a bound, or without a verdict")
	}
}
