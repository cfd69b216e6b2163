// Package monitor lets judges grade traffic. A scan grades a random sample of logged exchanges once. A monitor grades a
// share of what is logged from now on, and raises an alert when the pass rate falls below a bound.
package monitor

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
)

// Logs reads logged exchanges.
type Logs interface {
	Draw(ctx context.Context, ws tenant.ID, f *logbook.Filters, size int, seed uint64, each func(*logbook.Drawn) bool) (pool int, err error)
	Since(ctx context.Context, ws tenant.ID, f *logbook.Filters, after clock.Time, most int) ([]logbook.Drawn, error)
	Newest(ctx context.Context, ws tenant.ID) (clock.Time, error)
	Read(ctx context.Context, ws tenant.ID, id string) (judge.Step, error)
}

// A Monitor is a criterion's settings for monitoring, and what was found in the current window.
type Monitor struct {
	criterion.MonitorSettings
	Object      string      `json:"object" enum:"monitoring"`
	CriterionID string      `json:"criterion_id"`
	Version     int64       `json:"criterion_version"`
	Since       *clock.Time `json:"since" doc:"When this window began"`
	Seen        int64       `json:"seen" doc:"Exchanges that matched"`
	Rates       Rates       `json:"rates"`
	Cost        money.Nano  `json:"cost_usd" doc:"Of all windows"`
	Spent       money.Nano  `json:"spent_usd" doc:"Of it in this window"`
	Exhausted   bool        `json:"exhausted" doc:"max_cost_usd is spent: nothing is judged until the next window"`
	Alert       *Alert      `json:"alarm" doc:"null while there is none"`
}

// SchemaName is the type's name in the OpenAPI document. It hides that of the embedded settings.
func (Monitor) SchemaName() string { return "Monitor" }

// An Alert says that the pass rate is below the bound. The chance of a false alert in a window is at most 5 %, however
// often the rate is tested.
type Alert struct {
	At     clock.Time `json:"at"`
	Reason string     `json:"reason"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Alert) SchemaName() string { return "Alarm" }

// maxFalseAlerts is the chance of a false alert in a window.
const maxFalseAlerts = 0.05

// A record is a monitor's state as the table has it.
type record struct {
	CriterionID            string
	Version                int64
	Since                  clock.Time // when the window began
	Cursor                 clock.Time // the newest exchange that was looked at
	Seen                   int64
	Passes, Judged, Failed int64
	Cost, Spent            money.Nano
	AlarmedAt              clock.Time // 0 without an alert
	Reason                 string
}

// add counts answers.
func (r *record) add(answers map[string]judging.Answer, cost money.Nano) {
	for _, a := range answers {
		switch a.Verdict {
		case judge.Pass:
			r.Passes++
			r.Judged++
		case judge.Fail:
			r.Judged++
		default:
			r.Failed++
		}
	}
	r.Cost += cost
	r.Spent += cost
}

// windowOver reports whether the window has ended, by its length or because the criterion has a new version.
func (r *record) windowOver(c *criterion.Criterion, now clock.Time) bool {
	return r.Version != c.Version ||
		now.Sub(r.Since) >= time.Duration(c.Monitoring.WithDefaults().WindowHours)*time.Hour
}

// raiseAlert raises an alert, once in a window, when the verdicts are evidence that the pass rate is below the bound.
// The test is an e-process, so that it may be repeated after every verdict.
func (r *record) raiseAlert(bound *float64, now clock.Time) bool {
	if bound == nil || r.AlarmedAt > 0 || r.Judged == 0 {
		return false
	}
	arm := stat.Arm{N: r.Judged, Passed: r.Passes}
	if arm.Below(*bound) < math.Log(1/maxFalseAlerts) {
		return false
	}
	r.AlarmedAt = now
	r.Reason = fmt.Sprintf("%d of %d pass, which is evidence for a rate below %g", r.Passes, r.Judged, *bound)
	return true
}

const (
	seenBatch   = 500 // exchanges that are looked at together
	judgedBatch = 32  // exchanges of them that are judged
)

// sample takes a share of some exchanges, up to judgedBatch. seen is how many it looked at.
func sample(exchanges []logbook.Drawn, criterionID string, percent float64) (sampled []logbook.Drawn, seen int) {
	for _, d := range exchanges {
		sum := sha256.Sum256([]byte("watch\n" + criterionID + "\n" + d.ID))
		if float64(binary.BigEndian.Uint64(sum[:8]))/math.MaxUint64*100 < percent {
			sampled = append(sampled, d)
		}
		if seen++; len(sampled) == judgedBatch {
			break
		}
	}
	return sampled, seen
}
