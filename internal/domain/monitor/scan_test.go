package monitor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/monitor"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/live"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

const (
	mine   = dbtest.Mine
	theirs = dbtest.Theirs
)

var ann = dbtest.Ann

func scan(t testing.TB, e *judgingtest.Env, criterionID string, in monitor.Sample, want job.Status) monitor.Scan {
	t.Helper()
	begun, err := e.Monitors.StartScan(t.Context(), mine, ann, criterionID, in, judging.Spending{})
	if err != nil {
		t.Fatal(err)
	}
	return judgingtest.Await(t, want, func() (monitor.Scan, job.Job, error) {
		s, err := e.Monitors.Scan(t.Context(), mine, criterionID, begun.ID)
		return s, s.Job, err
	})
}

func TestAScanReportsTheRateOfASampleAndCorrectsItWhereItCan(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		logged := judgingtest.LogItems(60)
		e.Log(t, mine, "a", logged[:50]...)
		e.Log(t, mine, "b", logged[50:]...)
		e.Log(t, theirs, "a", 7_000_000)
		fails := func(item int) bool { return item >= 1_000_000 && item%5 == 0 }
		wrong := map[int]bool{}
		verdicts := map[int]judge.Verdict{}
		e.Models.Say(func(item int) string {
			v := judge.Pass
			if said, known := verdicts[item]; known {
				v = said
			}
			if fails(item) {
				v = judge.Fail
			}
			if wrong[item] {
				v = judgingtest.Opposite(v)
			}
			return judgingtest.Assessment(v, 0.5)
		})
		reason := func(s monitor.Scan) string {
			if s.Result.NotCorrected == nil {
				return ""
			}
			return *s.Result.NotCorrected
		}
		first := scan(t, e, c.ID, monitor.Sample{Size: 5000, Filters: &criterion.Filters{Tag: "a"}}, job.Done)
		res := first.Result
		if first.Pool != 50 || first.Total != 50 || first.Done != 50 || first.Cost != 50*judgingtest.Price || res.N != 50 || res.Passes != 40 || res.Failed != 0 || *res.Rate != 0.8 ||
			*res.RateCI != stat.Wilson(40, 50, 0.95) || res.Corrected != nil || reason(first) != "no_certificate" || len(res.Failing) != 10 {
			t.Errorf("%s", judgingtest.JSON(t, first))
		}
		for _, f := range res.Failing {
			if f.Grade != 0.5 || f.Critique == "" || f.RequestID == nil || !strings.HasPrefix(f.LogID, "log_") {
				t.Errorf("%+v", f)
			}
		}
		again := scan(t, e, c.ID, monitor.Sample{Size: 20}, job.Done)
		if again.Pool != 60 || again.Result.N != 20 || again.Cost > 10*judgingtest.Price { // what was judged before is remembered
			t.Errorf("%s", judgingtest.JSON(t, again))
		}
		few := e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(19, judgingtest.Grade{Verdict: judge.Pass}), judgingtest.Grades(25, judgingtest.Grade{Verdict: judge.Fail}))...)
		for _, g := range few {
			verdicts[g.Item] = g.Verdict
		}
		e.Calibrate(t, c.ID)
		if s := scan(t, e, c.ID, monitor.Sample{Size: 60}, job.Done); reason(s) != "few_labels" {
			t.Errorf("%s", judgingtest.JSON(t, s))
		}
		more := e.Grade(t, c.ID, judgingtest.Grades(11, judgingtest.Grade{Verdict: judge.Pass})...)
		for i, g := range more {
			verdicts[g.Item], wrong[g.Item] = g.Verdict, i < 3
		}
		e.Calibrate(t, c.ID)
		certificate := e.Certificate(t, c.ID)
		corrected := scan(t, e, c.ID, monitor.Sample{Size: 60, Filters: &criterion.Filters{Tag: "a"}}, job.Done).Result
		correction, refusal := stat.Correctable(stat.Table(certificate.Matrix), 0.95)
		rate, interval, _ := correction.RoganGladen(40, 50)
		if refusal != "" || corrected.NotCorrected != nil || *corrected.Corrected != rate || *corrected.CorrectedCI != interval || *corrected.Certificate != certificate.ID || rate <= 0.8 {
			t.Errorf("%s, want %v %v", judgingtest.JSON(t, corrected), rate, interval)
		}
		e.DeleteLabel(t, few[0].ID)
		if s := scan(t, e, c.ID, monitor.Sample{Size: 60}, job.Done); reason(s) != "certificate_void" || s.Result.Corrected != nil {
			t.Errorf("%s", judgingtest.JSON(t, s))
		}
		rows, err := e.Monitors.ScanRows(t.Context(), mine, c.ID, first.ID, judge.Fail, 100, 0)
		if err != nil || len(rows) != 10 || *rows[0].Verdict != judge.Fail {
			t.Error(rows, err)
		}
		if list, err := e.Monitors.Scans(t.Context(), mine, c.ID, 10, 0); err != nil || len(list) != 5 || list[4].ID != first.ID {
			t.Error(len(list), err)
		}
		_, err = e.Monitors.Scan(t.Context(), theirs, c.ID, first.ID)
		dbtest.Refused(t, err, 404, first.ID)
	})
}

func TestAScanIsRefusedOrFailsWithItsReason(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		_, err := e.Monitors.StartScan(t.Context(), mine, ann, c.ID, monitor.Sample{Size: 5}, judging.Spending{})
		dbtest.Refused(t, err, 412, "no logged exchange")
		e.Log(t, mine, "a", judgingtest.LogItems(10)...)
		_, err = e.Monitors.StartScan(t.Context(), mine, ann, c.ID, monitor.Sample{Size: 10}, judgingtest.Limit(judgingtest.Estimate))
		dbtest.Refused(t, err, 400, "max_cost_usd")
		_, err = e.Monitors.StartScan(t.Context(), mine, ann, c.ID, monitor.Sample{Size: 10, Filters: &criterion.Filters{Start: 2, End: 1}}, judging.Spending{})
		dbtest.Refused(t, err, 400, "filters.end")
		_, err = e.Monitors.StartScan(t.Context(), theirs, ann, c.ID, monitor.Sample{Size: 10}, judging.Spending{})
		dbtest.Refused(t, err, 404, c.ID)
		hold := judgingtest.NewGate(t)
		e.Models.Do(func(int, *infer.Request) (string, error) {
			hold.Wait()
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		begun, err := e.Monitors.StartScan(t.Context(), mine, ann, c.ID, monitor.Sample{Size: 10}, judging.Spending{})
		if err != nil {
			t.Fatal(err)
		}
		e.Runner.Pause(context.Canceled)
		hold.Open()
		e.Stop()
		e.Settings.Put(mine, live.Settings{})
		e.Serve(t)
		judgingtest.Await(t, job.Failed, func() (monitor.Scan, job.Job, error) {
			s, err := e.Monitors.Scan(t.Context(), mine, c.ID, begun.ID)
			if s.Error != nil && !strings.Contains(*s.Error, "logging") {
				t.Errorf("%+v", s)
			}
			return s, s.Job, err
		})
	})
}

func TestVerdictsOfOneVersionAreNotCorrectedByTheCertificateOfAnother(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		verdicts := map[int]judge.Verdict{}
		for _, g := range e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(40, judgingtest.Grade{Report: true, Verdict: judge.Pass}), judgingtest.Grades(40, judgingtest.Grade{Report: true, Verdict: judge.Fail}))...) {
			verdicts[g.Item] = g.Verdict
		}
		e.Models.Say(func(item int) string {
			if verdicts[item] == judge.Fail {
				return judgingtest.Assessment(judge.Fail, 0.1)
			}
			return judgingtest.Assessment(judge.Pass, 0.9)
		})
		e.Calibrate(t, c.ID)
		is := func(version int64, want string) {
			t.Helper()
			got, err := monitor.ReadRates(t.Context(), e.DB.In(mine), c.ID, version, 8, 10)
			if err != nil || (got.NotCorrected == nil) != (want == "") || want != "" && *got.NotCorrected != want {
				t.Errorf("version %d: %v %+v, want %q", version, err, got, want)
			}
		}
		is(1, "")
		if _, err := e.Criteria.Update(t.Context(), mine, ann, c.ID, &criterion.Definition{Rubric: judgingtest.Ptr("It is short.")}, judgingtest.Catalog{}); err != nil {
			t.Fatal(err)
		}
		is(1, "certificate_void")
		e.Calibrate(t, c.ID)
		is(1, "certificate_void")
		is(2, "")
	})
}

func TestFailingExamplesAreDeletedWithTheirExchanges(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Log(t, mine, "a", judgingtest.LogItems(8)...)
		e.Models.Say(func(int) string { return judgingtest.Assessment(judge.Fail, 0.1) })
		done := scan(t, e, c.ID, monitor.Sample{Size: 8}, job.Done)
		if len(done.Result.Failing) != 8 {
			t.Fatalf("%s", judgingtest.JSON(t, done))
		}
		if _, err := db.Exec(t.Context(), e.DB.In(mine), `UPDATE judged_logs SET expires_at = $2 WHERE workspace_id = $1`, clock.Now()-1); err != nil {
			t.Fatal(err)
		}
		e.Sweep(t)
		if scan, err := e.Monitors.Scan(t.Context(), mine, c.ID, done.ID); err != nil || len(scan.Result.Failing) != 0 || scan.Result.N != 8 {
			t.Errorf("%s %v", judgingtest.JSON(t, scan), err)
		}
	})
}

func TestTheSweepDeletesWhatHasExpiredAndNothingElse(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		now := clock.Now()
		for i, expires := range []clock.Time{0, now.Add(-time.Hour), now.Add(-time.Second), now.Add(time.Hour)} {
			for ws := range map[tenant.ID]bool{mine: true, theirs: true} {
				if _, err := db.Exec(t.Context(), e.DB.In(ws), `
					INSERT INTO judge_answers (workspace_id, question, criterion_id, origin, request_id, opinion, failure, cost, created_at, expires_at)
					VALUES ($1, $2, 'crit_1', '', '', '', '', 0, 1, $3)`, []byte{byte(i)}, expires); err != nil {
					t.Fatal(err)
				}
				if _, err := db.Exec(t.Context(), e.DB.In(ws), `
					INSERT INTO judged_logs (workspace_id, run_id, log_id, at, pending, judge, grade, critique, failure, request_id, expires_at)
					VALUES ($1, 'scan_1', $2, 1, FALSE, 'pass', 1, '', '', '', $3)`, fmt.Sprint("log_", i), expires); err != nil {
					t.Fatal(err)
				}
			}
		}
		var many [][]any
		for i := range 2*judging.DeleteBatch + 1 {
			many = append(many, []any{mine, "scan_2", fmt.Sprint("log_", i), 1, false, "pass", 1.0, "", "", "", now - 1})
		}
		if err := db.Insert(t.Context(), e.DB.Across("test"), "judged_logs", []string{"workspace_id", "run_id", "log_id", "at", "pending", "judge", "grade", "critique", "failure", "request_id", "expires_at"}, many); err != nil {
			t.Fatal(err)
		}
		e.Sweep(t)
		for table, want := range map[string]int{"judge_answers": 4, "judge_answers WHERE expires_at = 0": 2, "judged_logs": 4, "judged_logs WHERE log_id IN ('log_0', 'log_3')": 4} {
			if n := dbtest.Count(t, e.DB, table); n != want {
				t.Errorf("%d %s, want %d", n, table, want)
			}
		}
	})
}
