package review_test

import (
	"fmt"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/domain/monitor"
	"sovereign/internal/domain/review"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

const mine = dbtest.Mine

var ann = tenant.Caller{Workspace: mine, User: "usr_ann", Session: "ses_1", Role: tenant.Owner}

// A fixture has queues beside everything that they are made from, all of it real but the models.
type fixture struct {
	*judgingtest.Env
	reviews *review.Store
}

func each(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Helper()
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		f := fixture{e, review.NewStore(review.Config{
			DB: e.DB, Labels: e.Labels, Contents: e.Logs, Logs: e.Book, Scans: e.Monitors, Reports: e.Calibrations,
		})}
		e.Criteria.Attach(f.reviews.Dependent())
		e.Add(t, review.Module(f.reviews))
		test(t, f)
	})
}

// filled makes a queue, and waits until it is filled.
func (f fixture) filled(t *testing.T, in review.NewQueue) review.Queue {
	t.Helper()
	q, err := f.reviews.Create(t.Context(), ann, in)
	if err != nil {
		t.Fatal(err)
	}
	return judgingtest.Await(t, job.Done, func() (review.Queue, job.Job, error) {
		now, err := f.reviews.Get(t.Context(), ann, q.ID)
		if err != nil {
			return now, job.Job{}, err
		}
		return now, job.Job{Status: now.Fill.Status, Error: now.Fill.Error}, nil
	})
}

func (f fixture) items(t *testing.T, queueID string) []review.QueueItem {
	t.Helper()
	all, err := f.reviews.Items(t.Context(), ann, queueID, "", nil, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// gradeAll grades everything that a queue offers.
func (f fixture) gradeAll(t *testing.T, queueID string, say func(review.QueueItem) judge.Verdict) (n int) {
	t.Helper()
	for {
		o, err := f.reviews.Claim(t.Context(), ann, queueID)
		if err != nil {
			t.Fatal(err)
		}
		if o.Item == nil {
			return n
		}
		if _, err := f.reviews.Grade(t.Context(), ann, queueID, o.Item.ID, review.NewGrade{
			Claim: o.Item.Claim.ID, Verdict: say(*o.Item), Critique: "because", Digest: o.Item.Digest,
		}); err != nil {
			t.Fatal(err)
		}
		n++
	}
}

func TestAQueueOfLogsMakesLabelsOfTheirJudge(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		c := f.NewCriterion(t)
		f.Log(t, mine, "a", judgingtest.LogItems(12)...)
		f.Log(t, dbtest.Theirs, "a", 7_000_000)
		q := f.filled(t, review.NewQueue{
			Name: "q", CriterionID: c.ID, Source: review.QueueSource{Kind: "logs", N: 5, Filters: &logbook.Selection{Tag: "a"}},
		})
		if q.Counts.Items != 5 || q.Fill.Added != 5 || q.Criterion == nil || q.Criterion.Rubric != c.Rubric {
			t.Fatalf("%+v", q)
		}
		passed := 0
		if n := f.gradeAll(t, q.ID, func(review.QueueItem) judge.Verdict {
			passed++
			return []judge.Verdict{judge.Pass, judge.Fail}[passed%2]
		}); n != 5 {
			t.Errorf("%d were graded", n)
		}
		labels, err := f.Labels.List(t.Context(), mine, &label.Filters{CriterionID: c.ID}, 100, 0)
		if err != nil || len(labels) != 5 {
			t.Fatal(len(labels), err)
		}
		for _, l := range labels {
			if l.Source != "review" || l.Author != "usr_ann" || l.Critique != "because" || l.RequestID == nil {
				t.Errorf("%+v", l)
			}
		}
		p, err := f.reviews.Progress(t.Context(), ann, q.ID)
		if err != nil || *p.Pass != 2 || *p.Fail != 3 || p.Needed.Measured.Pass+p.Needed.Measured.Fail < 100 || p.EstimatedCalibrationUSD == nil ||
			*p.EstimatedCalibrationUSD <= 0 || p.Needed.Calibrated.Pass-p.Needed.Measured.Pass != 40 {
			t.Errorf("%+v, %v", p, err)
		}
		// The same source again adds what is not there, and undo deletes the label.
		more, err := f.reviews.AddItems(t.Context(), ann, q.ID, review.QueueSource{Kind: "logs", N: 5000})
		if err != nil {
			t.Fatal(err)
		}
		after := judgingtest.Await(t, job.Done, func() (review.Queue, job.Job, error) {
			now, err := f.reviews.Get(t.Context(), ann, q.ID)
			return now, job.Job{Status: now.Fill.Status}, err
		})
		if after.Counts.Items != 12 || after.Fill.Added != 7 || after.Fill.ID == q.Fill.ID {
			t.Errorf("%+v, %+v", more.Fill, after.Fill)
		}
		var graded string
		for _, i := range f.items(t, q.ID) {
			if i.Mine == review.Graded {
				graded = i.ID
			}
		}
		if _, err := f.reviews.Undo(t.Context(), ann, q.ID, graded); err != nil {
			t.Fatal(err)
		}
		if labels, err = f.Labels.List(t.Context(), mine, &label.Filters{CriterionID: c.ID}, 100, 0); err != nil || len(labels) != 4 {
			t.Errorf("%d labels, %v", len(labels), err)
		}
	})
}

func TestAQueueIsMadeOfWhatAJudgeSaid(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		c := f.NewCriterion(t)
		f.Log(t, mine, "a", judgingtest.LogItems(10)...)
		f.Models.Say(func(item int) string { // the higher the item, the higher the grade: those at 5 are near the threshold
			n := item - judgingtest.FirstLogged
			grade, v := float64(n)/10, judge.Pass
			if n < 5 {
				v = judge.Fail
			}
			return judgingtest.Assessment(v, grade)
		})
		begun, err := f.Monitors.StartScan(t.Context(), mine, dbtest.Ann, c.ID, monitor.Sample{Size: 10}, judging.Spending{})
		if err != nil {
			t.Fatal(err)
		}
		judgingtest.Await(t, job.Done, func() (monitor.Scan, job.Job, error) {
			s, err := f.Monitors.Scan(t.Context(), mine, c.ID, begun.ID)
			return s, s.Job, err
		})
		requests := func(all []review.QueueItem) map[string]judge.Verdict {
			found := map[string]judge.Verdict{}
			for _, i := range all {
				found[*i.RequestID] = i.Judge.Verdict
			}
			return found
		}
		scan := f.filled(t, review.NewQueue{Name: "scan", CriterionID: c.ID, Source: review.QueueSource{Kind: "scan", ScanID: begun.ID, N: 7}})
		fails := 0
		for _, v := range requests(f.items(t, scan.ID)) {
			if v == judge.Fail {
				fails++
			}
		}
		if scan.Counts.Items != 7 || fails != 5 {
			t.Errorf("%d items, %d fails", scan.Counts.Items, fails)
		}
		only := f.filled(t, review.NewQueue{Name: "fails", CriterionID: c.ID, Source: review.QueueSource{Kind: "scan", ScanID: begun.ID, Verdict: judge.Fail}})
		if only.Counts.Items != 5 {
			t.Errorf("%+v", only.Counts)
		}
		unsure := f.filled(t, review.NewQueue{Name: "unsure", CriterionID: c.ID, Source: review.QueueSource{Kind: "uncertain", ScanID: begun.ID, N: 3}})
		found := requests(f.items(t, unsure.ID))
		for _, n := range []int{4, 5, 6} {
			if _, ok := found[fmt.Sprintf("req_log_%d", judgingtest.FirstLogged+n)]; !ok {
				t.Errorf("item %d is not among the least sure: %v", n, found)
			}
		}
		// Another criterion's scan is not found: the job fails and says so.
		other := f.NewCriterion(t)
		q, err := f.reviews.Create(t.Context(), ann, review.NewQueue{Name: "x", CriterionID: other.ID, Source: review.QueueSource{Kind: "scan", ScanID: begun.ID}})
		if err != nil {
			t.Fatal(err)
		}
		judgingtest.Await(t, job.Failed, func() (review.Queue, job.Job, error) {
			now, err := f.reviews.Get(t.Context(), ann, q.ID)
			return now, job.Job{Status: now.Fill.Status}, err
		})
		if err := f.Criteria.Delete(t.Context(), mine, dbtest.Ann, other.ID); err != nil {
			t.Fatal(err)
		}
		if now, err := f.reviews.Get(t.Context(), ann, q.ID); err != nil || now.ClosedAt == nil {
			t.Errorf("the queue of a deleted criterion is open: %+v, %v", now, err)
		}
	})
}

func TestAQueueIsMadeOfDisagreementsAndOfRuns(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		c := f.NewCriterion(t)
		labels := f.Grade(t, c.ID, judgingtest.Grades(6, judgingtest.Grade{Report: true, Verdict: judge.Pass})...)
		wrong := map[int]bool{labels[1].Item: true, labels[4].Item: true}
		f.Models.Say(func(item int) string {
			if wrong[item] {
				return judgingtest.Assessment(judge.Fail, 0.1)
			}
			return judgingtest.Assessment(judge.Pass, 0.9)
		})
		f.Calibrate(t, c.ID)
		q := f.filled(t, review.NewQueue{Name: "q", CriterionID: c.ID, Source: review.QueueSource{Kind: "disagreements"}})
		if q.Counts.Items != 2 {
			t.Fatalf("%+v", q.Counts)
		}
		ben := ann
		ben.User = "usr_ben"
		o, err := f.reviews.Claim(t.Context(), ben, q.ID)
		if err != nil || o.Item == nil || len(o.Item.Steps) != 1 || o.Item.Judge != nil {
			t.Fatalf("%+v, %v", o, err)
		}
		done, err := f.reviews.Grade(t.Context(), ben, q.ID, o.Item.ID, review.NewGrade{Claim: o.Item.Claim.ID, Verdict: judge.Fail})
		if err != nil {
			t.Fatal(err)
		}
		// It is the item that was graded before, by a second person: pass and fail are a tie.
		if p, err := f.reviews.Progress(t.Context(), ann, q.ID); err != nil || *p.Pass != 5 || *p.Fail != 0 {
			t.Errorf("%+v, %v: %+v", p, err, done)
		}
		for run := range 3 {
			for step := range run + 1 {
				exchange := judgingtest.Exchange(judgingtest.FirstLogged + 100*run + step)
				f.Recorder.Record(&capture.Exchange{
					Workspace: mine, Key: "key_1", Request: fmt.Sprintf("req_run_%d_%d", run, step), Model: "sim/chat", Requested: "sim/chat",
					Provider: "sim", Trace: fmt.Sprintf("run-%d", run), Messages: exchange.Messages,
					Answer: fmt.Appendf(nil, `{"choices":[{"message":%s,"finish_reason":"stop"}]}`, exchange.Response),
				})
			}
		}
		f.Ingest(t)
		runs := f.filled(t, review.NewQueue{Name: "runs", CriterionID: c.ID, Source: review.QueueSource{Kind: "traces", Runs: &logbook.RunFilters{MinSteps: 2}}})
		if runs.Counts.Items != 2 {
			t.Fatalf("%+v", runs.Counts)
		}
		if n := f.gradeAll(t, runs.ID, func(i review.QueueItem) judge.Verdict {
			if i.TraceID == nil || len(i.Steps) < 2 {
				t.Errorf("%+v", i)
			}
			return judge.Pass
		}); n != 2 {
			t.Errorf("%d runs were graded", n)
		}
		named := f.filled(t, review.NewQueue{Name: "ids", Source: review.QueueSource{
			Kind: "ids", RequestIDs: []string{"req_run_0_0", "req_gone", "req_run_0_0"}, TraceIDs: []string{"run-1", "run-none"},
		}})
		if named.Counts.Items != 2 || named.Fill.Missing != 2 {
			t.Errorf("%+v, %+v", named.Counts, named.Fill)
		}
	})
}
