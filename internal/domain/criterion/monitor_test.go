package criterion

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

func (r *room) guard() *Guard {
	return NewGuard(r.Store, r.book, r.bench, r.logs.Open, func() error { return nil }, quiet)
}

func (r *room) monitor(t testing.TB, criterionID string) Monitor {
	t.Helper()
	m, err := r.Monitor(t.Context(), mine, criterionID)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAWatchSeesEachExchangeOnceAndJudgesItsShare(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c, g := r.judge(t), r.guard()
		g.Look(t.Context()) // nobody watches yet
		all := upTo(200)
		r.log(t, mine, "a", all[:20]...) // before the watch
		bound := 0.5
		set, err := r.SetWatch(t.Context(), mine, ann, c.ID, Watch{Enabled: true, SamplePercent: share(50), Filters: &Filters{Tag: "a"}, AlertBelow: &bound, WindowHours: 1}, r.book)
		if err != nil || set.Since == nil || set.Seen != 0 {
			t.Fatalf("%+v %v", set, err)
		}
		g.Look(t.Context())
		r.log(t, mine, "b", all[20:40]...)
		r.log(t, mine, "a", all[40:140]...)
		r.log(t, theirs, "a", 8_000_000)
		for range 5 {
			g.Look(t.Context())
		}
		m := r.monitor(t, c.ID)
		if m.Seen != 100 || m.Rates.N < 30 || m.Rates.N > 70 || m.Rates.Passes != m.Rates.N || m.Alarm != nil || int64(m.Cost) != m.Rates.N*int64(price) || int64(r.oracle.calls) != m.Rates.N {
			t.Errorf("%s after %d calls", shown(t, m), r.oracle.calls)
		}
		r.oracle.tells(func(int) string { return opinion(judge.Fail, 0.1) })
		r.log(t, mine, "a", all[140:]...)
		for range 3 {
			g.Look(t.Context())
		}
		if m = r.monitor(t, c.ID); m.Seen != 160 || len(m.Rates.Failing) != 20 {
			t.Errorf("%s", shown(t, m))
		}
		// another version begins anew
		if _, err := r.Update(t.Context(), mine, ann, c.ID, &Definition{Rubric: ptr("It is short.")}, catalog{}); err != nil {
			t.Fatal(err)
		}
		cost := m.Cost
		var later []int
		for i := range 60 {
			later = append(later, 2_000_000+i)
		}
		r.log(t, mine, "a", later...)
		for range 3 {
			g.Look(t.Context())
		}
		m = r.monitor(t, c.ID)
		if m.Version != 2 || m.Seen != 60 || m.Rates.Passes != 0 || m.Cost <= cost || m.Alarm == nil || !strings.Contains(m.Alarm.Reason, "below 0.5") {
			t.Errorf("%s", shown(t, m))
		}
		// so does another window
		if _, err := db.Exec(t.Context(), r.db.In(mine), `UPDATE monitors SET since = $2 WHERE workspace_id = $1`, clock.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		r.log(t, mine, "a", 3_000_001, 3_000_002)
		g.Look(t.Context())
		if m = r.monitor(t, c.ID); m.Seen != 2 || m.Alarm != nil {
			t.Errorf("%s", shown(t, m))
		}
		if off, err := r.SetWatch(t.Context(), mine, ann, c.ID, Watch{SamplePercent: share(50), WindowHours: 1}, r.book); err != nil || off.Enabled || off.Seen != 0 || off.Cost != m.Cost {
			t.Errorf("%+v %v", off, err)
		}
		calls := r.oracle.calls
		r.log(t, mine, "a", 3_000_003, 3_000_004, 3_000_005, 3_000_006)
		g.Look(t.Context())
		if r.oracle.calls != calls {
			t.Error("it watches although it was told not to")
		}
	})
}

func TestAWatchHasItsUsualShareAndWindow(t *testing.T) {
	if w := (Watch{Enabled: true}).whole(); *w.SamplePercent != 10 || w.WindowHours != 24 {
		t.Errorf("%+v", w)
	}
	if w := (Watch{SamplePercent: share(0.5), WindowHours: 3}).whole(); *w.SamplePercent != 0.5 || w.WindowHours != 3 {
		t.Errorf("%+v", w)
	}
}

// Whoever looks after every single verdict is alarmed for nothing in one window of twenty at most, and soon where the rate is really low.
func TestAFalseAlarmIsRareHoweverOftenTheWatchLooks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, bound := range []float64{0.5, 0.9} {
		runs := func(rate float64, n int) (alarms int) {
			for range 400 {
				var k keptMonitor
				for range n {
					if k.Judged++; random.Float64() < rate {
						k.Passes++
					}
					if k.alarm(&bound, 1) {
						alarms++
						break
					}
				}
			}
			return alarms
		}
		if empty := runs(bound, 400); empty > 400*5/100+13 { // three standard deviations above 5 %
			t.Errorf("at a rate of %v: %d false alarms in 400 windows", bound, empty)
		}
		if right := runs(bound-0.25, 400); right < 390 {
			t.Errorf("at a rate of %v below the bound: %d alarms in 400 windows", 0.25, right)
		}
	}
	var k keptMonitor
	if k.alarm(nil, 1) || k.alarm(ptr(0.5), 1) {
		t.Error("an alarm without a bound, or without a verdict")
	}
}
