package calibration_test

import (
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

const old = tenant.ID("ws_old")

// An oldLabel is a label of a criterion with what its judge said of it, as schema 19 has them.
type oldLabel struct {
	human, after, said judge.Verdict
	kind               label.Kind // that it was adjudicated as after the calibration
	report, deleted    bool
}

// oldLabels has both halves, a judge that errs and fails, and adjudications of every kind. With rulings it also has
// some since the calibration, and a label that was deleted.
func oldLabels(rulings bool) (all []oldLabel) {
	for i := range 140 {
		human := []judge.Verdict{judge.Pass, judge.Fail}[i%2]
		l := oldLabel{human: human, after: human, said: human, report: i%10 < 7}
		switch {
		case i%23 == 0:
			l.said = ""
		case i%9 == 0:
			l.said = judgingtest.Opposite(human)
		}
		switch {
		case !rulings:
		case i == 3:
			l.kind, l.after = label.LabelError, judgingtest.Opposite(human)
		case i == 4:
			l.kind, l.after = label.Ambiguous, ""
		case i == 5:
			l.kind = label.JudgeError
		case i == 6:
			l.deleted, l.after = true, ""
		}
		all = append(all, l)
	}
	return all
}

// insertOld inserts labels and a calibration of them, with its certificate, into a database of schema 19.
func insertOld(t *testing.T, d *db.DB, all []oldLabel) {
	t.Helper()
	dbtest.AddWorkspaces(t, d, old)
	in := d.Across("test")
	insert := func(table string, columns []string, rows ...[]any) {
		t.Helper()
		if err := db.Insert(t.Context(), in, table, columns, rows); err != nil {
			t.Fatal(err)
		}
	}
	var items, labels, rows [][]any
	for i, l := range all {
		id, step := fmt.Sprintf("lbl_%03d", i), judgingtest.Exchange(i)
		subject := judge.Subject{Steps: []judge.Step{step}}
		hash, err := subject.Identity()
		if err != nil {
			t.Fatal(err)
		}
		verdict, failure := string(l.said), ""
		if verdict == "" {
			failure = "malformed: ?"
		}
		rows = append(rows, []any{old, "cal_1", id, "req_1", hash[:], l.report, false, string(l.human), string(l.after), string(l.kind), i, false, verdict, 0.5, "as I see it", failure})
		if l.deleted {
			continue
		}
		ruled, at := "", 0
		if l.kind != "" {
			ruled, at = string(l.after), 5
		}
		items = append(items, []any{old, hash[:], judgingtest.JSON(t, subject.Steps)})
		labels = append(labels, []any{old, id, "crit_1", "req_1", "", string(l.human), nil, "why", "usr_ann", "api", l.report, false, hash[:], string(l.kind), ruled, "", "", at, i})
	}
	insert("label_items", []string{"workspace_id", "hash", "steps"}, items...)
	insert("labels", []string{
		"workspace_id", "id", "criterion_id", "request_id", "trace_id", "verdict", "grade", "critique", "author", "source", "in_report_half", "straddles", "item", "kind",
		"adjudicated", "note", "adjudicated_by", "adjudicated_at", "created_at",
	}, labels...)
	insert("calibration_rows", []string{
		"workspace_id", "calibration_id", "label_id", "request_id", "item", "in_report_half", "shown", "human", "standing",
		"ruling", "draw", "pending", "judge", "grade", "critique", "failure",
	}, rows...)
	halves := halvesOf(t, d)
	insert("criteria", []string{
		"workspace_id", "id", "name", "rubric", "judge_model", "scale", "pass_threshold", "few_shot", "shots", "filters", "version", "monitoring", "created_at", "updated_at",
	}, []any{old, "crit_1", "polite", "It is polite.", judgingtest.Model, "binary", 0.5, false, "[]", "{}", 1, "", 1, 1})
	insert("calibrations", []string{
		"workspace_id", "id", "criterion_id", "version", "judge_model", "threshold", "max_cost", "fresh", "counts", "enrolled", "last", "created_by", "created_at", "aligned_at",
	}, []any{old, "cal_1", "crit_1", 1, judgingtest.Model, 0.5, nil, false, string(judgingtest.JSON(t, halves)), "lbl_139", "lbl_139", "usr_ann", 2, 3})
	insert("jobs", []string{
		"workspace_id", "id", "kind", "status", "done", "total", "estimate", "cost", "attempts", "losses", "claim", "cancel_requested", "failure", "created_at", "finished_at",
	}, []any{old, "cal_1", "calibration", "DONE", len(all), len(all), 0, 0, 1, 0, "", false, "", 2, 3})
	block := halves.Block()
	proof := calibration.Proof{ID: "cert_1", Object: "certificate", CriterionID: "crit_1", Version: 1, CalibrationID: "cal_1", Edition: judge.Edition, N: block.N, Matrix: block.Matrix, Trust: block.Trust, Voids: []string{}}
	insert("certificates", []string{
		"workspace_id", "id", "criterion_id", "calibration_id", "version", "edition", "document", "key_id", "jws", "trust", "holdout_active", "issued_at", "voided_at", "voided_by", "voided_reason",
	}, []any{old, "cert_1", "crit_1", "cal_1", 1, int64(judge.Edition), judgingtest.JSON(t, proof), "", "", string(block.Trust), block.HoldoutActive, 3, 0, "", ""})
}

// halvesOf counts the rows of cal_1 anew.
func halvesOf(t *testing.T, d *db.DB) (h trust.Halves) {
	t.Helper()
	type row struct {
		InReportHalf bool
		Human, Judge judge.Verdict
	}
	rows, err := db.Query[row](t.Context(), d.In(old), `SELECT in_report_half, human, judge FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = 'cal_1'`)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		h.Half(r.InReportHalf).Add(r.Human, r.Judge, 1)
	}
	return h
}

// upgrade opens a database of schema 19 with those labels, and migrates it.
func upgrade(t *testing.T, folder string, url secret.Text, all []oldLabel) (e *judgingtest.Env, before trust.Halves) {
	t.Helper()
	core := dbtest.Open(t, folder, url)
	if err := core.MigrateTo(t.Context(), 19); err != nil {
		t.Fatal(err)
	}
	insertOld(t, core, all)
	before = halvesOf(t, core)
	logs, err := db.OpenLogs(t.Context(), folder, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = logs.Close() })
	for _, d := range []*db.DB{core, logs} {
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return judgingtest.New(t, core, logs), before
}

// A certificate of a release in which an item had one label stays valid: what it measured is the same.
func TestAnUpgradeKeepsWhatWasMeasured(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, folder string, url secret.Text) {
		all := oldLabels(false)
		e, before := upgrade(t, folder, url, all)
		after := halvesOf(t, e.DB)
		if diff := gocmp.Diff(before.Block(), after.Block()); diff != "" || !after.HoldoutActive() {
			t.Fatalf("another block: %s", diff)
		}
		certificate := func() calibration.Certificate {
			t.Helper()
			c, err := e.Calibrations.Certificate(t.Context(), old, "crit_1")
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		if got := certificate(); got.Voided || got.Matrix != after.Block().Matrix {
			t.Errorf("%+v", got)
		}
		c, err := e.Criteria.Get(t.Context(), old, "crit_1")
		if err != nil || c.Labels != (label.Counts{Pass: 70, Fail: 70}) || c.Trust != after.Block().Trust {
			t.Errorf("%+v %v", c, err)
		}
		// A calibration after it, of a judge that says the same, measures the same.
		e.Models.Say(func(item int) string {
			if all[item].said == "" {
				return "?"
			}
			return judgingtest.Assessment(all[item].said, 0.5)
		})
		begun, err := e.Calibrations.Start(t.Context(), old, ann, "crit_1", calibration.Options{})
		if err != nil {
			t.Fatal(err)
		}
		again := judgingtest.Await(t, job.Done, func() (calibration.Calibration, job.Job, error) {
			c, err := e.Calibrations.Get(t.Context(), old, "crit_1", begun.ID)
			return c, c.Job, err
		})
		if diff := gocmp.Diff(before.Block(), *again.Block); diff != "" || again.Ties != 0 {
			t.Errorf("measured anew: %s", diff)
		}
		if _, err := e.Labels.Adjudicate(t.Context(), old, ann, "lbl_002", label.Ruling{Kind: label.LabelError}); err != nil {
			t.Fatal(err)
		}
		first, err := e.Calibrations.CertificateByID(t.Context(), old, "cert_1")
		if err != nil || !first.Voided || !certificate().Voided {
			t.Errorf("a correction after the upgrade voids nothing: %+v %v", first, err)
		}
	})
}

// What was adjudicated or deleted since a calibration is reported as before.
func TestAnUpgradeKeepsTheAdjudicationReport(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, folder string, url secret.Text) {
		all := oldLabels(true)
		e, before := upgrade(t, folder, url, all)
		report, err := e.Calibrations.Report(t.Context(), old, "crit_1")
		if err != nil {
			t.Fatal(err)
		}
		var changes []trust.Change
		for _, l := range all {
			if l.human != l.after {
				changes = append(changes, trust.Change{Before: l.human, After: l.after, Judge: l.said, InReportHalf: l.report})
			}
		}
		after := before.After(changes)
		if diff := gocmp.Diff(before.Block(), report.Before); diff != "" {
			t.Errorf("before: %s", diff)
		}
		if diff := gocmp.Diff(after.Block(), report.After); diff != "" {
			t.Errorf("after: %s", diff)
		}
		if report.ByKind != (calibration.ByKind{LabelError: 1, JudgeError: 1, Ambiguous: 1}) || report.Ties != 0 {
			t.Errorf("%+v", report)
		}
		c, err := e.Criteria.Get(t.Context(), old, "crit_1")
		if err != nil || c.Labels != (label.Counts{Pass: 69, Fail: 69}) { // one turned, one withdrawn, one deleted
			t.Errorf("%+v %v", c.Labels, err)
		}
	})
}
