package monitor_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/monitor"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func read(t testing.TB, e *judgingtest.Env, criterionID string) monitor.Monitor {
	t.Helper()
	m, err := e.Monitors.Get(t.Context(), mine, criterionID)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAMonitorSeesEachExchangeOnceAndJudgesItsShare(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c, g := e.NewCriterion(t), monitor.NewLoop(e.Monitors, func() error { return nil }, judgingtest.Quiet)
		g.Poll(t.Context()) // no criterion has monitoring settings yet
		all := judgingtest.LogItems(200)
		e.Log(t, mine, "a", all[:20]...) // before monitoring was enabled
		bound := 0.5
		set, err := e.Monitors.Set(t.Context(), mine, ann, c.ID, criterion.MonitorSettings{Enabled: true, SamplePercent: judgingtest.Ptr(50.0), Filters: &criterion.Filters{Tag: "a"}, AlertBelow: &bound, WindowHours: 1})
		if err != nil || set.Since == nil || set.Seen != 0 {
			t.Fatalf("%+v %v", set, err)
		}
		g.Poll(t.Context())
		e.Log(t, mine, "b", all[20:40]...)
		e.Log(t, mine, "a", all[40:140]...)
		e.Log(t, theirs, "a", 8_000_000)
		for range 5 {
			g.Poll(t.Context())
		}
		m := read(t, e, c.ID)
		if m.Seen != 100 || m.Rates.N < 30 || m.Rates.N > 70 || m.Rates.Passes != m.Rates.N || m.Alert != nil || int64(m.Cost) != m.Rates.N*int64(judgingtest.Price) || int64(e.Models.Calls()) != m.Rates.N {
			t.Errorf("%s after %d calls", judgingtest.JSON(t, m), e.Models.Calls())
		}
		e.Models.Say(func(int) string { return judgingtest.Assessment(judge.Fail, 0.1) })
		e.Log(t, mine, "a", all[140:]...)
		for range 3 {
			g.Poll(t.Context())
		}
		if m = read(t, e, c.ID); m.Seen != 160 || len(m.Rates.Failing) != 20 {
			t.Errorf("%s", judgingtest.JSON(t, m))
		}
		// another version begins anew
		if _, err := e.Criteria.Update(t.Context(), mine, ann, c.ID, &criterion.Definition{Rubric: judgingtest.Ptr("It is short.")}, judgingtest.Catalog{}); err != nil {
			t.Fatal(err)
		}
		cost := m.Cost
		var later []int
		for i := range 60 {
			later = append(later, 2_000_000+i)
		}
		e.Log(t, mine, "a", later...)
		for range 3 {
			g.Poll(t.Context())
		}
		m = read(t, e, c.ID)
		if m.Version != 2 || m.Seen != 60 || m.Rates.Passes != 0 || m.Cost <= cost || m.Alert == nil || !strings.Contains(m.Alert.Reason, "below 0.5") {
			t.Errorf("%s", judgingtest.JSON(t, m))
		}
		if n := dbtest.Count(t, e.DB, "notices WHERE kind = 'judge.drift' AND subject = '"+c.ID+"'"); n != 1 {
			t.Errorf("%d notices of one alert", n)
		}
		// so does another window
		if _, err := db.Exec(t.Context(), e.DB.In(mine), `UPDATE monitors SET since = $2 WHERE workspace_id = $1`, clock.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		e.Log(t, mine, "a", 3_000_001, 3_000_002)
		g.Poll(t.Context())
		if m = read(t, e, c.ID); m.Seen != 2 || m.Alert != nil {
			t.Errorf("%s", judgingtest.JSON(t, m))
		}
		if off, err := e.Monitors.Set(t.Context(), mine, ann, c.ID, criterion.MonitorSettings{SamplePercent: judgingtest.Ptr(50.0), WindowHours: 1}); err != nil || off.Enabled || off.Seen != 0 || off.Cost != m.Cost {
			t.Errorf("%+v %v", off, err)
		}
		calls := e.Models.Calls()
		e.Log(t, mine, "a", 3_000_003, 3_000_004, 3_000_005, 3_000_006)
		g.Poll(t.Context())
		if e.Models.Calls() != calls {
			t.Error("it judges although monitoring is disabled")
		}
	})
}

// It is tried again every minute, by a process that may be new: people are told once a day.
// A server asks models, and is held up at its first question.
type server struct {
	*judgingtest.Models
	asked         atomic.Bool
	reached, hold *judgingtest.Gate
}

func (s *server) Complete(ctx context.Context, r *infer.Request) (*infer.Answer, error) {
	if s.asked.CompareAndSwap(false, true) {
		s.reached.Open()
		s.hold.Wait()
	}
	return s.Models.Complete(ctx, r)
}

// When the work passes to another server, both may look at the same exchanges for a moment. Each is counted once, and
// all that was paid is, whichever is first.
func TestTwoServersThatMonitorAtOnceCountEachExchangeOnce(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		for _, first := range []int{0, 1} {
			c := e.NewCriterion(t, func(d *criterion.Definition) { // no answer is shared
				d.Name, d.Rubric = judgingtest.Ptr(fmt.Sprint("polite ", first)), judgingtest.Ptr(fmt.Sprint("It is polite. ", first))
			})
			if _, err := e.Monitors.Set(t.Context(), mine, ann, c.ID, criterion.MonitorSettings{Enabled: true, SamplePercent: judgingtest.Ptr(100.0), WindowHours: 1}); err != nil {
				t.Fatal(err)
			}
			all, paid := judgingtest.LogItems(30), e.Models.Paid()
			var servers [2]*server
			var looks [2]sync.WaitGroup
			for i, some := range [][]int{all[:10], all[10:]} { // the second sees all 30
				e.Log(t, mine, "a", some...)
				s := &server{Models: e.Models, reached: judgingtest.NewGate(t), hold: judgingtest.NewGate(t)}
				servers[i] = s
				store := monitor.NewStore(e.DB, e.Book, e.Logs.Open, judging.NewClient(e.DB, s))
				looks[i].Go(func() {
					monitor.NewLoop(store, func() error { return nil }, judgingtest.Quiet).Poll(t.Context())
				})
				s.reached.Wait()
			}
			for _, i := range []int{first, 1 - first} {
				servers[i].hold.Open()
				looks[i].Wait()
			}
			monitor.NewLoop(e.Monitors, func() error { return nil }, judgingtest.Quiet).Poll(t.Context())
			if m := read(t, e, c.ID); m.Seen != 30 || m.Rates.N != 30 || m.Cost != e.Models.Paid()-paid || m.Cost != 30*judgingtest.Price {
				t.Errorf("the first to end is %d; paid %s: %s", first, e.Models.Paid()-paid, judgingtest.JSON(t, m))
			}
			if _, err := e.Monitors.Set(t.Context(), mine, ann, c.ID, criterion.MonitorSettings{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Other servers store what they log a little later: an exchange is looked at when they have.
func TestAMonitorOfSeveralServersLooksAtWhatAllHaveStored(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		if _, err := e.Monitors.Set(t.Context(), mine, ann, c.ID, criterion.MonitorSettings{Enabled: true, SamplePercent: judgingtest.Ptr(100.0), WindowHours: 1}); err != nil {
			t.Fatal(err)
		}
		g := monitor.NewLoop(e.Monitors, func() error { return nil }, judgingtest.Quiet)
		e.Log(t, mine, "a", judgingtest.LogItems(5)...)
		e.Monitors.Lag = time.Hour
		g.Poll(t.Context())
		if m := read(t, e, c.ID); m.Seen != 0 {
			t.Errorf("%d are seen that others may still precede", m.Seen)
		}
		e.Monitors.Lag = time.Microsecond
		g.Poll(t.Context())
		if m := read(t, e, c.ID); m.Seen != 5 {
			t.Errorf("%d are seen", m.Seen)
		}
	})
}

func TestAJudgeThatCannotMonitorIsToldOfOnceADay(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		if _, err := e.Monitors.Set(t.Context(), mine, ann, c.ID, criterion.MonitorSettings{
			Enabled: true, SamplePercent: judgingtest.Ptr(100.0), WindowHours: 1,
		}); err != nil {
			t.Fatal(err)
		}
		e.Models.Do(func(int, *infer.Request) (string, error) {
			return "", fault.InsufficientBalance.New("the wallet is empty")
		})
		monitor.NewLoop(e.Monitors, func() error { return nil }, judgingtest.Quiet).Poll(t.Context())
		e.Log(t, mine, "a", judgingtest.LogItems(10)...)
		const told = "notices WHERE kind = 'judge.failing'"
		for range 3 {
			monitor.NewLoop(e.Monitors, func() error { return nil }, judgingtest.Quiet).Poll(t.Context())
			if n := dbtest.Count(t, e.DB, told+" AND subject = '"+c.ID+"' AND body LIKE '%the wallet is empty%'"); n != 1 {
				t.Fatalf("%d notices", n)
			}
		}
		// The marks of another day.
		if _, err := db.Exec(t.Context(), e.DB.In(mine), `UPDATE notice_marks SET mark = mark || '-1' WHERE workspace_id = $1`); err != nil {
			t.Fatal(err)
		}
		monitor.NewLoop(e.Monitors, func() error { return nil }, judgingtest.Quiet).Poll(t.Context())
		if n := dbtest.Count(t, e.DB, told); n != 2 {
			t.Errorf("%d notices in two days", n)
		}
	})
}
