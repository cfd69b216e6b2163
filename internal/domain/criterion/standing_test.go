package criterion

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/vault"
)

func TestWhatChangesWhatAJudgeIsToldIsANewVersionAndVoidsItsCertificate(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		for name, c := range map[string]struct {
			change Definition
			reason string // "" where nothing is new
		}{
			"nothing":            {Definition{}, ""},
			"the name":           {Definition{Name: ptr("kind")}, ""},
			"the filters":        {Definition{Filters: &Filters{Tag: "support"}}, ""},
			"all as it is":       {Definition{Rubric: ptr("It is polite."), JudgeModel: ptr(model), Scale: ptr(judge.Binary), PassThreshold: ptr(0.5), FewShot: ptr(false)}, ""},
			"the rubric":         {Definition{Rubric: ptr("It is short.")}, "the rubric"},
			"the judge model":    {Definition{JudgeModel: ptr(another)}, "the judge model"},
			"the scale":          {Definition{Scale: ptr(judge.Graded)}, "the scale"},
			"the pass threshold": {Definition{PassThreshold: ptr(0.6)}, "the pass threshold"},
			"examples":           {Definition{FewShot: ptr(true)}, "the examples"},
		} {
			before := r.judge(t)
			r.grade(t, before.ID, mark{verdict: judge.Pass})
			r.calibrate(t, before.ID)
			after, err := r.Update(t.Context(), mine, ann, before.ID, &c.change, catalog{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(after, r.get(t, before.ID)); diff != "" {
				t.Error(diff)
			}
			certificate := r.certificate(t, before.ID)
			fresh := c.reason != ""
			if (after.Version == 2) != fresh || certificate.Voided != fresh || (certificate.VoidedAt != nil) != fresh || (after.Trust == trust.None) != fresh || after.Trust == "" {
				t.Errorf("%s: %+v %+v", name, after, certificate)
			}
			if fresh && (!strings.HasPrefix(*certificate.VoidedReason, c.reason) || !strings.Contains(*certificate.VoidedReason, "version 1 is now 2")) {
				t.Errorf("%s: %s", name, *certificate.VoidedReason)
			}
			if c.reason == "the rubric" { // to change it back is another version, and the certificate stays void
				back, err := r.Update(t.Context(), mine, ann, before.ID, &Definition{Rubric: ptr("It is polite.")}, catalog{})
				if err != nil || back.Version != 3 || !r.certificate(t, before.ID).Voided {
					t.Errorf("%+v %v", back, err)
				}
			}
		}
	})
}

func TestACriterionIsRefusedByTheFieldThatBreaksARule(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		good := r.judge(t)
		for field, d := range map[string]Definition{
			"name":             {Name: ptr("a\u0007b")},
			"name must":        {Name: ptr("")},
			"name must be":     {Name: ptr(strings.Repeat("x", 65))},
			"rubric":           {Rubric: ptr(" ")},
			"judge_model":      {JudgeModel: ptr("")},
			"judge_model c":    {JudgeModel: ptr("none/such")},
			"scale":            {Scale: ptr(judge.Scale("ternary"))},
			"pass_threshold":   {PassThreshold: ptr(0.0)},
			"pass_threshold m": {PassThreshold: ptr(1.01)},
			"filters.end":      {Filters: &Filters{Start: 2, End: 1}},
		} {
			_, err := r.Update(t.Context(), mine, ann, good.ID, &d, catalog{})
			refused(t, err, 400, field)
			whole := Definition{Name: ptr("x"), Rubric: ptr("x"), JudgeModel: ptr(model)}
			merge(&whole, &d)
			_, err = r.Create(t.Context(), mine, ann, &whole, catalog{})
			refused(t, err, 400, field)
		}
		_, err := r.Update(t.Context(), mine, ann, good.ID, &Definition{Rubric: ptr("a\x00b")}, catalog{})
		refused(t, err, 400)
		if diff := cmp.Diff(good, r.get(t, good.ID)); diff != "" {
			t.Error(diff)
		}
		if all, err := r.List(t.Context(), mine, 10, 0); err != nil || len(all) != 1 {
			t.Error(all, err)
		}
	})
}

func merge(to, from *Definition) {
	for _, one := range []struct{ to, from **string }{{&to.Name, &from.Name}, {&to.Rubric, &from.Rubric}, {&to.JudgeModel, &from.JudgeModel}} {
		if *one.from != nil {
			*one.to = *one.from
		}
	}
	to.Scale, to.PassThreshold, to.FewShot, to.Filters = from.Scale, from.PassThreshold, from.FewShot, from.Filters
}

func TestAnothersCriterionIsNotFound(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, mark{verdict: judge.Pass})
		cal := r.calibrate(t, c.ID)
		_, err := r.Get(t.Context(), theirs, c.ID)
		refused(t, err, 404, c.ID)
		_, err = r.Update(t.Context(), theirs, ann, c.ID, &Definition{Name: ptr("x")}, catalog{})
		refused(t, err, 404, c.ID)
		refused(t, r.Delete(t.Context(), theirs, ann, c.ID), 404, c.ID)
		_, err = r.Certificate(t.Context(), theirs, c.ID)
		refused(t, err, 404, c.ID)
		_, err = r.Adjudication(t.Context(), theirs, c.ID)
		refused(t, err, 404, c.ID)
		_, err = r.Calibration(t.Context(), theirs, c.ID, cal.ID)
		refused(t, err, 404, cal.ID)
		_, err = r.Calibrations(t.Context(), theirs, c.ID, 10, 0)
		refused(t, err, 404, c.ID)
		_, err = r.Monitor(t.Context(), theirs, c.ID)
		refused(t, err, 404, c.ID)
		step := exchange(1)
		_, err = r.labels.Create(t.Context(), theirs, ann, []label.New{{Messages: step.Messages, Response: step.Response, Verdict: judge.Pass, CriterionID: c.ID}}, func(int) string { return "" })
		refused(t, err, 404, c.ID)
		if all, err := r.List(t.Context(), theirs, 10, 0); err != nil || len(all) != 0 {
			t.Error(all, err)
		}
	})
}

func TestADeletedCriterionLeavesItsLabelsAndItsTrail(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c, other := r.judge(t), r.judge(t)
		all := r.grade(t, c.ID, marks(3, mark{verdict: judge.Pass})...)
		r.grade(t, other.ID, mark{verdict: judge.Pass})
		r.calibrate(t, c.ID)
		r.calibrate(t, other.ID)
		if err := r.Delete(t.Context(), mine, ann, c.ID); err != nil {
			t.Fatal(err)
		}
		if err := r.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for table, want := range map[string]int{"criteria_deleted": 0, "criteria": 1, "calibrations": 1, "calibration_rows": 1, "certificates": 2, "certificates WHERE voided_at = 0": 1, "judge_answers": 1, "labels": 4} {
			if n := r.rows(t, table); n != want {
				t.Errorf("%d rows of %s, want %d", n, table, want)
			}
		}
		r.rule(t, all[0].ID, label.Ruling{Kind: label.LabelError})
		r.erase(t, all[1].ID)
		if trail, err := r.History(t.Context(), mine, c.ID, 10, 0); err != nil || len(trail) != 2 || trail[0].Action != "criterion.delete" {
			t.Errorf("%+v %v", trail, err)
		}
		if _, err := r.History(t.Context(), theirs, c.ID, 10, 0); err == nil {
			t.Error("another reads it")
		}
	})
}

func TestACertificateIsWhatWasSignedAndVerifies(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		all := r.grade(t, c.ID, slices.Concat(marks(30, mark{report: true, verdict: judge.Pass}), marks(30, mark{report: true, verdict: judge.Fail}), marks(2, mark{verdict: judge.Pass}))...)
		r.oracle.tells(func(item int) string {
			i := slices.IndexFunc(all, func(g graded) bool { return g.item == item })
			if i == 3 || i == 33 {
				return opinion(map[judge.Verdict]judge.Verdict{judge.Pass: judge.Fail, judge.Fail: judge.Pass}[all[i].Verdict], 0.5)
			}
			return opinion(all[i].Verdict, 0.5)
		})
		done := r.calibrate(t, c.ID)
		keys, err := r.vault.JWKS(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		verifies := func(when string) Certificate {
			t.Helper()
			got := r.certificate(t, c.ID)
			if key, err := vault.VerifyDocument(shown(t, got), keys); got.Voided != errors.Is(err, vault.ErrVoided) || err != nil && !got.Voided || key != got.Signature.KeyID || got.Signature.Alg != "EdDSA" {
				t.Errorf("%s: %s %v", when, key, err)
			}
			forged := got
			forged.Matrix.TP++
			if _, err := vault.VerifyDocument(shown(t, forged), keys); !errors.Is(err, vault.ErrDocument) {
				t.Errorf("%s: what was not signed verifies", when)
			}
			return got
		}
		got := verifies("as it is issued")
		b, rubric := done.Block, sha256.Sum256([]byte("It is polite."))
		kappa, ok := stat.KappaInterval(stat.Table(b.Matrix), 0.95)
		want := Proof{
			ID: got.ID, Object: "certificate", CriterionID: c.ID, Version: 1, CalibrationID: done.ID, JudgeModel: model, Edition: judge.Edition, RubricSHA256: hex.EncodeToString(rubric[:]),
			N: 60, Matrix: trust.Matrix{TP: 29, FN: 1, TN: 29, FP: 1}, Se: b.Se, SeCI: b.SeCI, Sp: b.Sp, SpCI: b.SpCI, Kappa: b.Kappa, KappaCI: &kappa,
			Trust: trust.Measured, HoldoutActive: true, Calibrations: 1, IssuedAt: *done.AlignedAt / 1000 * 1000, Voids: voids, // it tells milliseconds
		}
		if diff := cmp.Diff(want, got.Proof); diff != "" || !ok || got.Voided {
			t.Error(diff, ok, got.Voided)
		}
		r.erase(t, all[0].ID)
		after := verifies("when it is void")
		if diff := cmp.Diff(got.Proof, after.Proof); diff != "" || !after.Voided || after.Signature != got.Signature {
			t.Error(diff, after.Voided)
		}
		var members map[string]jsontext.Value
		if err := json.Unmarshal(shown(t, after), &members); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"id", "criterion_id", "criterion_version", "judge_model", "rubric_sha256", "n", "failed", "matrix", "se", "se_ci", "sp", "sp_ci", "kappa", "kappa_ci", "trust", "issued_at", "voids", "voided", "voided_at", "voided_reason", "signature"} {
			if len(members[name]) == 0 {
				t.Errorf("it has no %s", name)
			}
		}
	})
}

// What voids a certificate is a change of what it was measured by, and nothing else; it is void for its first reason, for good.
func TestOnlyWhatACertificateWasMeasuredByVoidsIt(t *testing.T) {
	type act func(t *testing.T, r *room, id string)
	ruling := func(kinds ...label.Kind) act {
		return func(t *testing.T, r *room, id string) {
			t.Helper()
			for _, kind := range kinds {
				r.rule(t, id, label.Ruling{Kind: kind})
			}
		}
	}
	erasing := func(t *testing.T, r *room, id string) { t.Helper(); r.erase(t, id) }
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		class := func(report bool, n int) []mark {
			return slices.Concat(marks(n, mark{report: report, verdict: judge.Pass}), marks(n, mark{report: report, verdict: judge.Fail}))
		}
		seen, held := r.grade(t, c.ID, class(false, 4)...), r.grade(t, c.ID, class(true, 38)...)
		failing := held[len(held)-1].item
		r.oracle.tells(func(item int) string {
			if item == failing {
				return "?"
			}
			return opinion(judge.Pass, 1)
		})
		next := func(from *[]graded) string {
			id := (*from)[0].ID
			*from = (*from)[1:]
			return id
		}
		for _, step := range []struct {
			name   string
			of     *[]graded
			act    act
			reason string // "" where it stays valid
		}{
			{"a correction in the tuning half", &seen, ruling(label.LabelError), ""},
			{"a deletion in the tuning half", &seen, erasing, ""},
			{"a judge_error", &held, ruling(label.JudgeError), ""},
			{"a correction", &held, ruling(label.LabelError), "was corrected (label_error)"},
			{"a withdrawal", &held, ruling(label.Ambiguous), "was withdrawn (ambiguous)"},
			{"a deletion", &held, erasing, "was deleted"},
			{"a correction that is taken back", &held, ruling(label.LabelError, label.JudgeError), "was corrected (label_error)"},
			{"a judge_error that becomes a correction", &held, ruling(label.JudgeError, label.LabelError), "was corrected (label_error)"},
		} {
			done := r.calibrate(t, c.ID)
			if !done.Block.HoldoutActive {
				t.Fatalf("%+v", done.Block)
			}
			if got := r.certificate(t, c.ID); got.Voided || got.CalibrationID != done.ID || r.get(t, c.ID).Trust != got.Trust {
				t.Fatalf("%s: a new certificate is void", step.name)
			}
			id := next(step.of)
			step.act(t, r, id)
			got, report := r.certificate(t, c.ID), r.report(t, c.ID)
			if got.Voided != (step.reason != "") || report.CertificateVoided != got.Voided || (r.get(t, c.ID).Trust == trust.None) != got.Voided {
				t.Errorf("%s: %+v, %v", step.name, got, report.CertificateVoided)
			}
			if got.Voided && (!strings.Contains(*got.VoidedReason, step.reason) || !strings.Contains(*got.VoidedReason, id)) {
				t.Errorf("%s: %s", step.name, *got.VoidedReason)
			}
		}
		// what was void stays void for its first reason
		was := r.certificate(t, c.ID)
		r.erase(t, next(&held))
		if diff := cmp.Diff(was, r.certificate(t, c.ID)); diff != "" {
			t.Error(diff)
		}
	})
}

// While the report half holds too few, all labels measure, and each of them can void.
func TestWithoutAHoldoutTheTuningHalfVoidsToo(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		all := r.grade(t, c.ID, marks(4, mark{verdict: judge.Pass})...)
		r.calibrate(t, c.ID)
		first := r.certificate(t, c.ID)
		r.rule(t, all[0].ID, label.Ruling{Kind: label.LabelError})
		if got := r.certificate(t, c.ID); !got.Voided || got.ID != first.ID {
			t.Errorf("%+v", got)
		}
		// an older certificate that was measured by a label says nothing of a newer one that was not
		r.calibrate(t, c.ID)
		old := r.certificate(t, c.ID)
		r.grade(t, c.ID, slices.Concat(marks(30, mark{report: true, verdict: judge.Pass}), marks(30, mark{report: true, verdict: judge.Fail}))...)
		r.calibrate(t, c.ID)
		if old.HoldoutActive || !r.certificate(t, c.ID).HoldoutActive {
			t.Fatal("the holdout is not as it should be")
		}
		r.rule(t, all[1].ID, label.Ruling{Kind: label.LabelError})
		if got := r.certificate(t, c.ID); got.Voided {
			t.Errorf("void by what it was not measured by: %s", *got.VoidedReason)
		}
		if n := r.rows(t, "certificates WHERE id = $1 AND voided_at > 0", old.ID); n != 1 {
			t.Error("the older one holds, although it was measured by the label")
		}
	})
}

func TestExamplesAreOfTheTuningHalfAndStayUntilOneOfThemChanges(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t, func(d *Definition) { d.FewShot = ptr(true) })
		why := func(m mark) mark { m.critique = "because"; return m }
		r.grade(t, c.ID, marks(5, why(mark{report: true, verdict: judge.Pass}))...)
		silent := r.grade(t, c.ID, mark{verdict: judge.Pass})
		passing := r.grade(t, c.ID, marks(5, why(mark{verdict: judge.Pass}))...)
		failing := r.grade(t, c.ID, marks(2, why(mark{verdict: judge.Fail}))...)
		if c.Shots == nil || len(c.Shots) != 0 {
			t.Errorf("chosen before it is calibrated: %v", c.Shots)
		}
		ids := func(of ...graded) (all []string) {
			for _, g := range of {
				all = append(all, g.ID)
			}
			slices.Sort(all)
			return all
		}
		is := func(when string, version int64, valid bool, want ...graded) {
			t.Helper()
			got := r.get(t, c.ID)
			if !slices.Equal(got.Shots, ids(want...)) || got.Version != version || (got.Trust != trust.None) != valid {
				t.Errorf("%s: version %d, %s, shown %v, want %v", when, got.Version, got.Trust, got.Shots, ids(want...))
			}
		}
		r.calibrate(t, c.ID)
		is("calibrated", 2, true, passing[0], passing[1], passing[2], failing[0], failing[1])
		if body := string(r.oracle.last); !strings.Contains(body, fmt.Sprintf("reply to item %d", passing[0].item)) || !strings.Contains(body, "because") {
			t.Errorf("the judge is not shown its examples: %s", body)
		}
		r.grade(t, c.ID, marks(6, why(mark{verdict: judge.Pass}))...)
		r.grade(t, c.ID, marks(3, why(mark{report: true, verdict: judge.Fail}))...)
		calls := r.oracle.calls
		r.calibrate(t, c.ID)
		is("with more labels", 2, true, passing[0], passing[1], passing[2], failing[0], failing[1])
		if n := r.oracle.calls - calls; n != 9 {
			t.Errorf("%d questions for 9 new labels", n)
		}
		r.rule(t, passing[4].ID, label.Ruling{Kind: label.Ambiguous}) // is not shown; but no holdout, so void
		if got := r.get(t, c.ID); got.Version != 2 {
			t.Errorf("%+v", got)
		}
		r.calibrate(t, c.ID)
		r.rule(t, passing[0].ID, label.Ruling{Kind: label.JudgeError})
		is("after a judge_error", 2, true, passing[0], passing[1], passing[2], failing[0], failing[1])
		r.rule(t, passing[0].ID, label.Ruling{Kind: label.LabelError, Note: "rude"})
		is("after a correction", 3, false, passing[1], passing[2], passing[3], passing[0], failing[0], failing[1])
		r.erase(t, failing[0].ID)
		is("after a deletion", 4, false, passing[1], passing[2], passing[3], passing[0], failing[1])
		done := r.calibrate(t, c.ID)
		is("calibrated anew", 4, true, passing[1], passing[2], passing[3], passing[0], failing[1])
		if done.Version != 4 || bytes.Contains(r.oracle.last, []byte(fmt.Sprintf("reply to item %d\"", silent[0].item))) {
			t.Errorf("%+v", done)
		}
		if _, err := r.Update(t.Context(), mine, ann, c.ID, &Definition{FewShot: ptr(false)}, catalog{}); err != nil {
			t.Fatal(err)
		}
		is("no longer shown any", 5, false)
		if trail, err := audit.History(t.Context(), r.db, mine, "criterion", c.ID, 10, 0); err != nil || len(trail) < 2 {
			t.Error(trail, err)
		}
	})
}
