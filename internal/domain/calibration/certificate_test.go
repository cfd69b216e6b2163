package calibration_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/vault"
)

func TestACertificateVerifiesAndAChangedOneDoesNot(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(30, judgingtest.Grade{Report: true, Verdict: judge.Pass}), judgingtest.Grades(30, judgingtest.Grade{Report: true, Verdict: judge.Fail}), judgingtest.Grades(2, judgingtest.Grade{Verdict: judge.Pass}))...)
		e.Models.Say(func(item int) string {
			i := slices.IndexFunc(all, func(g judgingtest.Graded) bool { return g.Item == item })
			if i == 3 || i == 33 {
				return judgingtest.Assessment(map[judge.Verdict]judge.Verdict{judge.Pass: judge.Fail, judge.Fail: judge.Pass}[all[i].Verdict], 0.5)
			}
			return judgingtest.Assessment(all[i].Verdict, 0.5)
		})
		done := e.Calibrate(t, c.ID)
		keys, err := e.Vault.JWKS(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		verifies := func(when string) calibration.Certificate {
			t.Helper()
			got := e.Certificate(t, c.ID)
			if key, err := vault.VerifyDocument(judgingtest.JSON(t, got), keys); got.Voided != errors.Is(err, vault.ErrVoided) || err != nil && !got.Voided || key != got.Signature.KeyID || got.Signature.Alg != "EdDSA" {
				t.Errorf("%s: %s %v", when, key, err)
			}
			forged := got
			forged.Matrix.TP++
			if _, err := vault.VerifyDocument(judgingtest.JSON(t, forged), keys); !errors.Is(err, vault.ErrDocument) {
				t.Errorf("%s: what was not signed verifies", when)
			}
			return got
		}
		got := verifies("as it is issued")
		b, rubric := done.Block, sha256.Sum256([]byte("It is polite."))
		kappa, ok := stat.KappaInterval(stat.Table(b.Matrix), 0.95)
		want := calibration.Proof{
			ID: got.ID, Object: "certificate", CriterionID: c.ID, Version: 1, CalibrationID: done.ID, JudgeModel: judgingtest.Model, Edition: judge.Edition, RubricSHA256: hex.EncodeToString(rubric[:]),
			N: 60, Matrix: trust.Matrix{TP: 29, FN: 1, TN: 29, FP: 1}, Se: b.Se, SeCI: b.SeCI, Sp: b.Sp, SpCI: b.SpCI, Kappa: b.Kappa, KappaCI: &kappa,
			Trust: trust.Measured, HoldoutActive: true, Calibrations: 1, IssuedAt: *done.AlignedAt / 1000 * 1000, Voids: calibration.Voids, // it tells milliseconds
		}
		if diff := cmp.Diff(want, got.Proof); diff != "" || !ok || got.Voided {
			t.Error(diff, ok, got.Voided)
		}
		e.DeleteLabel(t, all[0].ID)
		after := verifies("when it is void")
		if diff := cmp.Diff(got.Proof, after.Proof); diff != "" || !after.Voided || after.Signature != got.Signature {
			t.Error(diff, after.Voided)
		}
		var members map[string]jsontext.Value
		if err := json.Unmarshal(judgingtest.JSON(t, after), &members); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"id", "criterion_id", "criterion_version", "judge_model", "rubric_sha256", "n", "failed", "matrix", "se", "se_ci", "sp", "sp_ci", "kappa", "kappa_ci", "trust", "issued_at", "voids", "voided", "voided_at", "voided_reason", "signature"} {
			if len(members[name]) == 0 {
				t.Errorf("it has no %s", name)
			}
		}
	})
}

// A void certificate stays void, for its first reason.
func TestOnlyAChangeOfAMeasuredLabelVoidsTheCertificate(t *testing.T) {
	type act func(t *testing.T, e *judgingtest.Env, id string)
	ruling := func(kinds ...label.Kind) act {
		return func(t *testing.T, e *judgingtest.Env, id string) {
			t.Helper()
			for _, kind := range kinds {
				e.Adjudicate(t, id, label.Ruling{Kind: kind})
			}
		}
	}
	erasing := func(t *testing.T, e *judgingtest.Env, id string) { t.Helper(); e.DeleteLabel(t, id) }
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		class := func(report bool, n int) []judgingtest.Grade {
			return slices.Concat(judgingtest.Grades(n, judgingtest.Grade{Report: report, Verdict: judge.Pass}), judgingtest.Grades(n, judgingtest.Grade{Report: report, Verdict: judge.Fail}))
		}
		seen, held := e.Grade(t, c.ID, class(false, 4)...), e.Grade(t, c.ID, class(true, 38)...)
		failing := held[len(held)-1].Item
		e.Models.Say(func(item int) string {
			if item == failing {
				return "?"
			}
			return judgingtest.Assessment(judge.Pass, 1)
		})
		next := func(from *[]judgingtest.Graded) string {
			id := (*from)[0].ID
			*from = (*from)[1:]
			return id
		}
		for _, step := range []struct {
			name   string
			of     *[]judgingtest.Graded
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
			done := e.Calibrate(t, c.ID)
			if !done.Block.HoldoutActive {
				t.Fatalf("%+v", done.Block)
			}
			if got := e.Certificate(t, c.ID); got.Voided || got.CalibrationID != done.ID || e.Criterion(t, c.ID).Trust != got.Trust {
				t.Fatalf("%s: a new certificate is void", step.name)
			}
			id := next(step.of)
			step.act(t, e, id)
			got, report := e.Certificate(t, c.ID), e.Report(t, c.ID)
			if got.Voided != (step.reason != "") || report.CertificateVoided != got.Voided || (e.Criterion(t, c.ID).Trust == trust.None) != got.Voided {
				t.Errorf("%s: %+v, %v", step.name, got, report.CertificateVoided)
			}
			if got.Voided && (!strings.Contains(*got.VoidedReason, step.reason) || !strings.Contains(*got.VoidedReason, id)) {
				t.Errorf("%s: %s", step.name, *got.VoidedReason)
			}
		}
		// what was void stays void for its first reason
		was := e.Certificate(t, c.ID)
		e.DeleteLabel(t, next(&held))
		if diff := cmp.Diff(was, e.Certificate(t, c.ID)); diff != "" {
			t.Error(diff)
		}
	})
}

// While the report half has too few labels, all labels measure.
func TestWithoutAHoldoutLabelsOfTheTuningHalfVoidTheCertificateToo(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, judgingtest.Grades(4, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Calibrate(t, c.ID)
		first := e.Certificate(t, c.ID)
		e.Adjudicate(t, all[0].ID, label.Ruling{Kind: label.LabelError})
		if got := e.Certificate(t, c.ID); !got.Voided || got.ID != first.ID {
			t.Errorf("%+v", got)
		}
		alarms := func(want int) {
			t.Helper()
			if all, err := e.Calibrations.Alarms(t.Context(), dbtest.Mine); err != nil || len(all) != want {
				t.Errorf("%d alarms, want %d: %v", len(all), want, err)
			}
		}
		alarms(1)
		e.Calibrate(t, c.ID)
		alarms(0)
		// an older certificate that was measured by a label says nothing of a newer one that was not
		e.Calibrate(t, c.ID)
		old := e.Certificate(t, c.ID)
		e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(30, judgingtest.Grade{Report: true, Verdict: judge.Pass}), judgingtest.Grades(30, judgingtest.Grade{Report: true, Verdict: judge.Fail}))...)
		e.Calibrate(t, c.ID)
		if old.HoldoutActive || !e.Certificate(t, c.ID).HoldoutActive {
			t.Fatal("the holdout is not as it should be")
		}
		e.Adjudicate(t, all[1].ID, label.Ruling{Kind: label.LabelError})
		if got := e.Certificate(t, c.ID); got.Voided {
			t.Errorf("void by what it was not measured by: %s", *got.VoidedReason)
		}
		if n := dbtest.Count(t, e.DB, "certificates WHERE id = $1 AND voided_at > 0", old.ID); n != 1 {
			t.Error("the older one holds, although it was measured by the label")
		}
	})
}

func TestACertificateCanBeReadByIDAfterItsCriterionWasDeleted(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, judgingtest.Grades(3, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Calibrate(t, c.ID)
		first := e.Certificate(t, c.ID)
		e.Calibrate(t, c.ID)
		if got, err := e.Calibrations.CertificateByID(t.Context(), mine, first.ID); err != nil || got.Voided || got.Signature != first.Signature {
			t.Errorf("%+v %v", got, err)
		}
		if err := e.Criteria.Delete(t.Context(), mine, ann, c.ID); err != nil {
			t.Fatal(err)
		}
		e.Sweep(t)
		if got, err := e.Calibrations.CertificateByID(t.Context(), mine, first.ID); err != nil || !got.Voided || *got.VoidedReason != "the criterion was deleted" {
			t.Errorf("%+v %v", got, err)
		}
		_, err := e.Calibrations.CertificateByID(t.Context(), theirs, first.ID)
		dbtest.Refused(t, err, 404)
	})
}

func TestTheNewestCertificateIsTheLastWhenTheClockWasSetBack(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, judgingtest.Grades(4, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Calibrate(t, c.ID)
		for _, text := range []string{`UPDATE certificates SET issued_at = issued_at + $2 WHERE workspace_id = $1`, `UPDATE calibrations SET aligned_at = aligned_at + $2 WHERE workspace_id = $1`} {
			if _, err := db.Exec(t.Context(), e.DB.In(mine), text, int64(3_600_000_000)); err != nil {
				t.Fatal(err)
			}
		}
		e.Adjudicate(t, all[0].ID, label.Ruling{Kind: label.LabelError})
		again := e.Calibrate(t, c.ID)
		if got := e.Certificate(t, c.ID); got.CalibrationID != again.ID || got.Voided || *e.Criterion(t, c.ID).CertificateID != got.ID {
			t.Errorf("%+v", got)
		}
		if report := e.Report(t, c.ID); report.AlignedAt != *again.AlignedAt || report.Before.Matrix.FP != 1 {
			t.Errorf("%+v", report)
		}
	})
}
