package label

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db/dbtest"
)

func TestAgreementIsOfItemsThatSeveralPeopleGraded(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		measure := func() Agreement {
			t.Helper()
			a, err := f.Agreement(t.Context(), mine, "crit_1")
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		if a := measure(); a != (Agreement{Object: "agreement"}) {
			t.Errorf("without labels: %+v", a)
		}
		grade := func(item int, by string, v judge.Verdict) Label {
			t.Helper()
			return f.mustReview(t, person(by), inline(v, fmt.Sprint("item ", item), "said"))
		}
		for item := range 12 {
			v := []judge.Verdict{judge.Pass, judge.Fail}[item%2]
			grade(item, "usr_ben", v)
			if item == 0 {
				v = judge.Fail
			}
			grade(item, "usr_cai", v)
		}
		third := grade(1, "usr_dia", judge.Fail)
		grade(99, "usr_eve", judge.Pass) // alone
		other := inline(judge.Fail, "item 0", "said")
		other.CriterionID = "crit_2"
		f.mustReview(t, person("usr_ben"), other) // for another judge
		a := measure()
		// 11 pairs and the 3 of the item with three grades: one differs. Passes and fails are counted over all grades.
		passes, fails := 11.0, 14.0
		alpha := 1 - 24*2/(25*25-passes*passes-fails*fails)
		if a.Items != 12 || a.Graders != 3 || a.Pairs != 14 || math.Abs(*a.Percent-100*13.0/14) > 1e-9 || math.Abs(*a.Alpha-alpha) > 1e-9 || !a.AlphaCI.Contains(alpha) {
			t.Errorf("%+v, alpha %v, want %v", a, *a.Alpha, alpha)
		}
		if _, err := f.Adjudicate(t.Context(), mine, ann, third.ID, Ruling{Kind: LabelError}); err != nil {
			t.Fatal(err)
		}
		if again := measure(); *again.Alpha != *a.Alpha || *again.AlphaCI != *a.AlphaCI {
			t.Errorf("an adjudication changes what people said: %+v, then %+v", a, again)
		}
		_, err := f.Agreement(t.Context(), mine, "crit_9")
		dbtest.Refused(t, err, 404, "crit_9")
		if a, err := f.Agreement(t.Context(), theirs, "crit_1"); err != nil || a.Items != 0 {
			t.Errorf("another workspace's: %+v %v", a, err)
		}
	})
}

// Nothing is undefined in an answer: a number is a number, or null.
func TestAnAgreementHasNumbersOrNulls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := Tallies{}
		var shared int64
		for range rapid.IntRange(0, 6).Draw(t, "kinds") {
			of := Tally{rapid.Int64Range(0, 5).Draw(t, "passes"), rapid.Int64Range(0, 5).Draw(t, "fails")}
			items[of] = rapid.Int64Range(1, 40).Draw(t, "items")
		}
		for of, n := range items {
			if of.Passes+of.Fails > 1 {
				shared += n
			}
		}
		a := NewAgreement(items, 5)
		if a.Items != shared || (a.Percent == nil) != (a.Pairs == 0) || a.AlphaCI != nil && a.Alpha == nil {
			t.Fatalf("%+v of %v", a, items)
		}
		if a.Percent != nil && (*a.Percent < 0 || *a.Percent > 100) || a.Alpha != nil && (math.IsNaN(*a.Alpha) || *a.Alpha > 1) {
			t.Fatalf("%+v of %v", a, items)
		}
	})
}
