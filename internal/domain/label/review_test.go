package label

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func person(name string) tenant.Actor {
	return tenant.Actor{Kind: tenant.ActorSession, User: tenant.UserID(name)}
}

// review grades in a queue.
func (f fixture) review(t dbtest.T, ws tenant.ID, by tenant.Actor, n New) (made Label, err error) {
	t.Helper()
	prepared, err := f.Prepare(t.Context(), ws, n)
	if err != nil {
		return made, err
	}
	_, err = f.db.Tx(t.Context(), func(tx *db.Tx) error {
		made, err = f.PutReview(t.Context(), tx, ws, by, prepared)
		return err
	})
	return made, err
}

func (f fixture) mustReview(t dbtest.T, by tenant.Actor, n New) Label {
	t.Helper()
	made, err := f.review(t, mine, by, n)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (f fixture) takeBack(t dbtest.T, by tenant.Actor, labelID string) error {
	t.Helper()
	_, err := f.db.Tx(t.Context(), func(tx *db.Tx) error { return f.TakeBack(t.Context(), tx, mine, by, labelID) })
	return err
}

func TestEachPersonHasOneLabelOfAnItemForAJudge(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		n := inline(judge.Pass, "a", "b")
		first := f.make(t, mine, n)[0]
		n.Author = "Ben"
		second := f.make(t, mine, n)[0]
		_, err := f.Create(t.Context(), mine, ann, []New{n}, at)
		dbtest.Refused(t, err, 409, "labels[0]: the same was graded before, as "+second.ID+": adjudicate that label, or delete it")
		n.Author = string(ann.User)
		_, err = f.Create(t.Context(), mine, ann, []New{n}, at)
		dbtest.Refused(t, err, 409, first.ID)
		if first.InReportHalf != second.InReportHalf || !bytes.Equal(f.item(t, first.ID), f.item(t, second.ID)) {
			t.Errorf("%+v is of another item than %+v", second, first)
		}
		both := []New{inline(judge.Pass, "c", "d"), inline(judge.Fail, "c", "d")}
		both[1].Author = "Ben"
		f.make(t, mine, both...)
		if n, copies := dbtest.Count(t, f.db, "labels"), dbtest.Count(t, f.db, "label_items"); n != 4 || copies != 2 {
			t.Errorf("%d labels of %d items", n, copies)
		}
	})
}

// Whoever grades a run later grades what was graded first: a run that has continued is the same run.
func TestARunThatContinuedIsOneItemForAllItsGraders(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.log("req_run_0", "run", "1", "one")
		first := f.mustReview(t, person("usr_ben"), New{TraceID: "run", CriterionID: "crit_1", Verdict: judge.Pass})
		f.log("req_run_1", "run", "2", "two")
		second := f.mustReview(t, person("usr_cai"), New{TraceID: "run", CriterionID: "crit_1", Verdict: judge.Fail})
		third := f.mustReview(t, person("usr_ben"), New{TraceID: "run", CriterionID: "crit_1", Verdict: judge.Fail})
		if second.ID == first.ID || third.ID != first.ID || !bytes.Equal(f.item(t, first.ID), f.item(t, second.ID)) {
			t.Errorf("%s, %s, %s", first.ID, second.ID, third.ID)
		}
		if n := dbtest.Count(t, f.db, "label_items"); n != 1 {
			t.Errorf("%d items", n)
		}
	})
}

// A queue of disagreements holds labels: people grade what was copied then, though the logs are gone.
func TestWhatALabelGradesIsGradedAgainWithoutItsLog(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.log("req_run_0", "run", "1", "one")
		f.log("req_run_1", "run", "2", "two")
		first := f.make(t, mine, New{TraceID: "run", CriterionID: "crit_1", Verdict: judge.Pass}, inline(judge.Pass, "a", "b"))
		clear(f.logs.requests)
		f.logs.closed = true
		for _, of := range first {
			prepared, err := f.PrepareAgain(t.Context(), mine, of.ID, New{CriterionID: "crit_1", Verdict: judge.Fail})
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.db.Tx(t.Context(), func(tx *db.Tx) error {
				made, err := f.PutReview(t.Context(), tx, mine, person("usr_ben"), prepared)
				if err == nil && (made.ID == of.ID || made.InReportHalf != of.InReportHalf || (made.TraceID == nil) != (of.TraceID == nil)) {
					t.Errorf("%+v of %+v", made, of)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := dbtest.Count(t, f.db, "label_consensus WHERE tied AND graders = 2"); n != 2 {
			t.Errorf("%d ties", n)
		}
		_, err := f.PrepareAgain(t.Context(), theirs, first[0].ID, New{Verdict: judge.Fail})
		dbtest.Refused(t, err, 404, first[0].ID)
		_, err = f.PrepareAgain(t.Context(), mine, first[0].ID, New{})
		dbtest.Refused(t, err, 400, "verdict")
	})
}

func TestAGradeOfAReviewReplacesThePersonsOwn(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		ben, grade := person("usr_ben"), 0.25
		n := inline(judge.Pass, "a", "b")
		n.Author, n.Source = "somebody else", "somewhere"
		first := f.mustReview(t, ben, n)
		if first.Author != "usr_ben" || first.Source != "review" || first.Verdict != judge.Pass {
			t.Errorf("%+v", first)
		}
		f.mustReview(t, person("usr_cai"), n)
		n.Verdict, n.Grade, n.Critique = judge.Fail, &grade, "rude, AKIAIOSFODNN7EXAMPLQ"
		again := f.mustReview(t, ben, n)
		if again.ID != first.ID || again.Verdict != judge.Fail || *again.Grade != grade || again.Critique != "rude, [redacted]" || again.CreatedAt != first.CreatedAt {
			t.Errorf("%+v", again)
		}
		if n := dbtest.Count(t, f.db, "labels"); n != 2 {
			t.Errorf("%d labels", n)
		}
		last := f.judges.changes[len(f.judges.changes)-1]
		if last.Cause != Regraded || last.LabelID != first.ID || last.Before.Verdict != judge.Pass || !last.After.Tied || last.By != ben {
			t.Errorf("%+v", last)
		}
		trail, err := audit.History(t.Context(), f.db, mine, "label", first.ID, 10, 0)
		if err != nil || len(trail) != 2 || trail[0].Action != "label.regrade" || !bytes.Contains(trail[0].Before, []byte(`"pass"`)) || !bytes.Contains(trail[0].After, []byte(`"fail"`)) {
			t.Errorf("%+v %v", trail, err)
		}
	})
}

func TestAnAdjudicatedLabelIsNotGradedAnew(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		ben := person("usr_ben")
		made := f.mustReview(t, ben, inline(judge.Pass, "a", "b"))
		if _, err := f.Adjudicate(t.Context(), mine, ann, made.ID, Ruling{Kind: LabelError}); err != nil {
			t.Fatal(err)
		}
		_, err := f.review(t, mine, ben, inline(judge.Fail, "a", "b"))
		dbtest.Refused(t, err, 409, made.ID, "adjudicated")
		dbtest.Refused(t, f.takeBack(t, ben, made.ID), 409, made.ID, "adjudicated")
		if got := f.get(t, made.ID); got.Verdict != judge.Pass || got.Adjudication.OriginalVerdict != judge.Pass {
			t.Errorf("%+v", got)
		}
	})
}

func TestOnlyThePersonTakesTheirGradeBack(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		ben, cai := person("usr_ben"), person("usr_cai")
		made := f.mustReview(t, ben, inline(judge.Pass, "a", "b"))
		posted := f.make(t, mine, inline(judge.Pass, "c", "d"))[0]
		dbtest.Refused(t, f.takeBack(t, cai, made.ID), 404, made.ID)
		dbtest.Refused(t, f.takeBack(t, ann, posted.ID), 404, posted.ID) // it was not made in a review
		_, err := f.db.Tx(t.Context(), func(tx *db.Tx) error { return f.TakeBack(t.Context(), tx, theirs, ben, made.ID) })
		dbtest.Refused(t, err, 404, made.ID)
		if err := f.takeBack(t, ben, made.ID); err != nil {
			t.Fatal(err)
		}
		dbtest.Refused(t, f.takeBack(t, ben, made.ID), 404, made.ID)
		if n := dbtest.Count(t, f.db, "labels"); n != 1 {
			t.Errorf("%d labels", n)
		}
		again := f.mustReview(t, ben, inline(judge.Fail, "a", "b"))
		last := f.judges.changes[len(f.judges.changes)-1]
		if last.Cause != Graded || last.LabelID != again.ID || last.Before != (Consensus{}) || last.After.Verdict != judge.Fail {
			t.Errorf("judges do not know that it was graded again: %+v", last)
		}
	})
}

// own returns the id of a person's only label.
func (f fixture) own(t dbtest.T, author string) string {
	t.Helper()
	name, err := db.One[string](t.Context(), f.db.In(mine), `SELECT id FROM labels WHERE workspace_id = $1 AND author = $2`, author)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// A conversation that is graded often, taken back and graded again keeps its half, and stays one conversation.
func TestManyGradesOfOneItemMakeNoTemplateOfItsConversation(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		for c := range 6 {
			said := []string{fmt.Sprint("hello ", c), "hi", "more", "yes"}
			first := f.mustReview(t, ann, inline(judge.Pass, said...))
			for range 2 * maxShared {
				f.mustReview(t, person("usr_ben"), inline(judge.Pass, said...))
				for _, by := range []string{"usr_ben", string(ann.User)} {
					if err := f.takeBack(t, person(by), f.own(t, by)); err != nil {
						t.Fatal(err)
					}
				}
				f.mustReview(t, ann, inline(judge.Pass, said...))
			}
			if err := f.takeBack(t, ann, f.own(t, string(ann.User))); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				other := f.mustReview(t, person("usr_cai"), inline(judge.Pass, append(slices.Clone(said[:2]), fmt.Sprint("other ", i), "no")...))
				if other.InReportHalf != first.InReportHalf {
					t.Fatalf("conversation %d is in both halves", c)
				}
			}
		}
	})
}

// Whatever happens to labels, what is stored of an item is what its labels say, and judges were told of every change.
func TestWhatIsStoredOfItemsIsWhatTheirLabelsSay(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		random := rand.New(rand.NewPCG(1, 2))
		told := map[string]Consensus{}
		people := []tenant.Actor{person("usr_ben"), person("usr_cai"), person("usr_dia"), ann}
		kinds := []Kind{LabelError, JudgeError, Ambiguous}
		for range 150 {
			all, err := f.List(t.Context(), mine, &Filters{}, 1000, 0)
			if err != nil {
				t.Fatal(err)
			}
			by := people[random.IntN(len(people))]
			n := inline([]judge.Verdict{judge.Pass, judge.Fail}[random.IntN(2)], fmt.Sprint("item ", random.IntN(4)), "said")
			if random.IntN(4) == 0 {
				n.CriterionID = "crit_2"
			}
			switch act := random.IntN(8); {
			case act < 4:
				_, err = f.review(t, mine, by, n)
			case act == 4:
				_, err = f.Create(t.Context(), mine, by, []New{n}, at)
			case len(all) == 0:
			case act == 5:
				_, err = f.Adjudicate(t.Context(), mine, ann, all[random.IntN(len(all))].ID, Ruling{Kind: kinds[random.IntN(3)]})
			case act == 6:
				err = f.Delete(t.Context(), mine, ann, all[random.IntN(len(all))].ID)
			case act == 7:
				l := all[random.IntN(len(all))]
				err = f.takeBack(t, person(l.Author), l.ID)
			}
			_ = err // a refusal changes nothing
			for _, c := range f.judges.changes {
				of := c.CriterionID + string(c.Item)
				if before, known := told[of]; known && before != c.Before {
					t.Fatalf("judges were told %+v, and now that it was %+v", before, c.Before)
				}
				told[of] = c.After
			}
			f.judges.changes = nil
			f.checkConsensus(t)
		}
	})
}

// checkConsensus compares what is stored of each item with what its labels say.
func (f fixture) checkConsensus(t *testing.T) {
	t.Helper()
	rows, err := db.Query[record](t.Context(), f.db.In(mine), `SELECT `+columns+` WHERE workspace_id = $1 ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	labels := map[target][]record{}
	for _, r := range rows {
		of := itemTarget(r.CriterionID, string(r.Item))
		labels[of] = append(labels[of], r)
	}
	type stored struct {
		CriterionID string
		Item        []byte
		Graders     int
		Consensus
	}
	all, err := db.Query[stored](t.Context(), f.db.In(mine), `
		SELECT criterion_id, item, graders, label_id, verdict, ruling, tied FROM label_consensus WHERE workspace_id = $1`)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(labels) {
		t.Fatalf("%d items of %d", len(all), len(labels))
	}
	for _, c := range all {
		of := labels[itemTarget(c.CriterionID, string(c.Item))]
		if want := settle(of); c.Consensus != want || c.Graders != len(of) {
			t.Fatalf("%+v, want %+v of %d", c, want, len(of))
		}
	}
}
