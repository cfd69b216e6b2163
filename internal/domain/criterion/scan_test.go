package criterion

import (
	"context"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/live"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/job"
)

func (r *room) scan(t testing.TB, criterionID string, in Sample, want job.Status) Scan {
	t.Helper()
	begun, err := r.Scan(t.Context(), mine, ann, criterionID, in, within(0), r.book, r.bench)
	if err != nil {
		t.Fatal(err)
	}
	r.runner.Wake()
	return await(t, want, func() (Scan, job.Job, error) {
		s, err := r.readScan(t.Context(), mine, criterionID, begun.ID)
		return s, s.Job, err
	})
}

func TestAScanTellsTheRateOfASampleAndCorrectsItWhereItCan(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		logged := upTo(60)
		r.log(t, mine, "a", logged[:50]...)
		r.log(t, mine, "b", logged[50:]...)
		r.log(t, theirs, "a", 7_000_000)
		fails := func(item int) bool { return item >= 1_000_000 && item%5 == 0 }
		wrong := map[int]bool{}
		verdicts := map[int]judge.Verdict{}
		r.oracle.tells(func(item int) string {
			v := judge.Pass
			if said, known := verdicts[item]; known {
				v = said
			}
			if fails(item) {
				v = judge.Fail
			}
			if wrong[item] {
				v = opposite(v)
			}
			return opinion(v, 0.5)
		})
		reason := func(s Scan) string {
			if s.Result.NotCorrected == nil {
				return ""
			}
			return *s.Result.NotCorrected
		}
		first := r.scan(t, c.ID, Sample{Size: 5000, Filters: &Filters{Tag: "a"}}, job.Done)
		res := first.Result
		if first.Pool != 50 || first.Total != 50 || first.Done != 50 || first.Cost != 50*price || res.N != 50 || res.Passes != 40 || res.Failed != 0 || *res.Rate != 0.8 ||
			*res.RateCI != stat.Wilson(40, 50, 0.95) || res.Corrected != nil || reason(first) != "no_certificate" || len(res.Failing) != 10 {
			t.Errorf("%s", shown(t, first))
		}
		for _, f := range res.Failing {
			if f.Grade != 0.5 || f.Critique == "" || f.RequestID == nil || !strings.HasPrefix(f.LogID, "log_") {
				t.Errorf("%+v", f)
			}
		}
		again := r.scan(t, c.ID, Sample{Size: 20}, job.Done)
		if again.Pool != 60 || again.Result.N != 20 || again.Cost > 10*price { // what was judged before is remembered
			t.Errorf("%s", shown(t, again))
		}
		few := r.grade(t, c.ID, slices.Concat(marks(19, mark{verdict: judge.Pass}), marks(25, mark{verdict: judge.Fail}))...)
		for _, g := range few {
			verdicts[g.item] = g.Verdict
		}
		r.calibrate(t, c.ID)
		if s := r.scan(t, c.ID, Sample{Size: 60}, job.Done); reason(s) != "few_labels" {
			t.Errorf("%s", shown(t, s))
		}
		more := r.grade(t, c.ID, marks(11, mark{verdict: judge.Pass})...)
		for i, g := range more {
			verdicts[g.item], wrong[g.item] = g.Verdict, i < 3
		}
		r.calibrate(t, c.ID)
		certificate := r.certificate(t, c.ID)
		corrected := r.scan(t, c.ID, Sample{Size: 60, Filters: &Filters{Tag: "a"}}, job.Done).Result
		correction, refusal := stat.Correctable(stat.Table(certificate.Matrix), 0.95)
		rate, interval, _ := correction.RoganGladen(40, 50)
		if refusal != "" || corrected.NotCorrected != nil || *corrected.Corrected != rate || *corrected.CorrectedCI != interval || *corrected.Certificate != certificate.ID || rate <= 0.8 {
			t.Errorf("%s, want %v %v", shown(t, corrected), rate, interval)
		}
		r.erase(t, few[0].ID)
		if s := r.scan(t, c.ID, Sample{Size: 60}, job.Done); reason(s) != "certificate_void" || s.Result.Corrected != nil {
			t.Errorf("%s", shown(t, s))
		}
		rows, err := judged(t.Context(), r.db.In(mine), first.ID, judge.Fail, 100, 0)
		if err != nil || len(rows) != 10 || *rows[0].Verdict != judge.Fail {
			t.Error(rows, err)
		}
		if list, err := scans.list(t.Context(), r.db.In(mine), c.ID, 10, 0); err != nil || len(list) != 5 || list[4].ID != first.ID {
			t.Error(len(list), err)
		}
		_, err = scans.find(t.Context(), r.db.In(theirs), c.ID, first.ID)
		refused(t, err, 404, first.ID)
	})
}

func TestAScanIsRefusedOrFailsAndSaysWhy(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		_, err := r.Scan(t.Context(), mine, ann, c.ID, Sample{Size: 5}, within(0), r.book, r.bench)
		refused(t, err, 412, "no logged exchange")
		r.log(t, mine, "a", upTo(10)...)
		_, err = r.Scan(t.Context(), mine, ann, c.ID, Sample{Size: 10}, within(foretold), r.book, r.bench)
		refused(t, err, 400, "max_cost_usd")
		_, err = r.Scan(t.Context(), mine, ann, c.ID, Sample{Size: 10, Filters: &Filters{Start: 2, End: 1}}, within(0), r.book, r.bench)
		refused(t, err, 400, "filters.end")
		_, err = r.Scan(t.Context(), theirs, ann, c.ID, Sample{Size: 10}, within(0), r.book, r.bench)
		refused(t, err, 404, c.ID)
		hold := held(t)
		r.oracle.does(func(int, *infer.Request) (string, error) { <-hold.opened; return opinion(judge.Pass, 1), nil })
		begun, err := r.Scan(t.Context(), mine, ann, c.ID, Sample{Size: 10}, within(0), r.book, r.bench)
		if err != nil {
			t.Fatal(err)
		}
		r.runner.Pause(context.Canceled)
		hold.open()
		r.stop()
		r.settings.Put(mine, live.Settings{})
		r.serve(t)
		await(t, job.Failed, func() (Scan, job.Job, error) {
			k, err := scans.find(t.Context(), r.db.In(mine), c.ID, begun.ID)
			if err != nil {
				return Scan{}, job.Job{}, err
			}
			s, err := k.scan()
			if s.Error != nil && !strings.Contains(*s.Error, "logging") {
				t.Errorf("%+v", s)
			}
			return s, s.Job, err
		})
	})
}
