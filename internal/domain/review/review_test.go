package review

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func TestAReviewerGradesAQueueToItsEnd(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q := f.queue(t, 1, 3, expert)
		for i := range 3 {
			item := f.claim(t, expert, q.ID)
			again := f.claim(t, expert, q.ID)
			if item.ID != again.ID || item.Claim.ID != again.Claim.ID || again.Claim.LeaseUntil <= item.Claim.LeaseUntil {
				t.Fatalf("the own claim is not offered first and renewed: %+v, %+v", item.Claim, again.Claim)
			}
			if item.Judge != nil || len(item.Steps) != 1 || !strings.Contains(string(item.Steps[0].Messages), "<script>") {
				t.Errorf("%+v", item)
			}
			v := []judge.Verdict{judge.Pass, judge.Fail, judge.Pass}[i]
			done := f.grade(t, expert, item, v)
			if done.State != itemDone || done.Mine != Graded || done.Grade.Verdict != v || done.Grade.LabelID == "" || done.Conflict {
				t.Errorf("%+v", done)
			}
			// The same again is fine, and changes nothing.
			f.grade(t, expert, item, v)
			_, err := f.Grade(t.Context(), expert, q.ID, item.ID, NewGrade{Claim: item.Claim.ID, Verdict: v, Critique: "another"})
			dbtest.Refused(t, err, 409)
		}
		o, err := f.Claim(t.Context(), expert, q.ID)
		if err != nil || o.Item != nil || !o.Done || o.Mine != (MyCounts{Graded: 3}) {
			t.Errorf("%+v, %v", o, err)
		}
		if n := len(f.labels.given(t)); n != 3 {
			t.Errorf("%d labels", n)
		}
		p, err := f.Get(t.Context(), owner, q.ID)
		if err != nil || p.Counts != (QueueCounts{Items: 3, Done: 3}) || !p.MayManage || p.Source == nil {
			t.Errorf("%+v, %v", p, err)
		}
		for _, action := range []string{"review_queue.create", "review_queue.grant", "review_item.grade"} {
			if n := dbtest.Count(t, f.DB, `audit_entries WHERE action = $1 AND actor_kind = 'session'`, action); n == 0 {
				t.Errorf("%s is not audited as a session's", action)
			}
		}
	})
}

func TestWhoHasNoGrantSeesNothing(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q, other := f.queue(t, 1, 2, expert), f.queue(t, 1, 1, expert2)
		item := f.claim(t, expert, q.ID)
		for _, who := range []struct {
			caller tenant.Caller
			status int
		}{
			{expert2, 404},
			{stranger, 404},
			{member, 403},
			{person(mine, "nobody", ""), 404},
		} {
			_, err := f.Claim(t.Context(), who.caller, q.ID)
			dbtest.Refused(t, err, who.status)
			_, err = f.Grade(t.Context(), who.caller, q.ID, item.ID, NewGrade{Claim: item.Claim.ID, Verdict: judge.Pass})
			dbtest.Refused(t, err, who.status)
			_, err = f.Undo(t.Context(), who.caller, q.ID, item.ID)
			dbtest.Refused(t, err, who.status)
			_, err = f.Item(t.Context(), who.caller, q.ID, item.ID)
			dbtest.Refused(t, err, 404)
		}
		if _, err := f.Get(t.Context(), member, q.ID); err != nil {
			t.Error("a member sees how far a queue is", err)
		}
		if v, err := f.Get(t.Context(), expert, q.ID); err != nil || v.Source != nil || !v.MayGrade || v.MayManage {
			t.Errorf("%+v, %v", v, err)
		}
		// An item of one queue is not one of another, and what others hold is not there.
		_, err := f.Item(t.Context(), expert2, other.ID, item.ID)
		dbtest.Refused(t, err, 404)
		_, err = f.Item(t.Context(), person(mine, "expert3", ""), q.ID, item.ID)
		dbtest.Refused(t, err, 404)
		if all, err := f.QueuesOf(t.Context(), expert.User); err != nil || len(all) != 1 || all[0].QueueID != q.ID || all[0].WorkspaceID != mine {
			t.Errorf("%+v, %v", all, err)
		}
		// A grant that is taken away ends at once, with the claims.
		if err := f.Revoke(t.Context(), owner, q.ID, expert.User); err != nil {
			t.Fatal(err)
		}
		_, err = f.Grade(t.Context(), expert, q.ID, item.ID, NewGrade{Claim: item.Claim.ID, Verdict: judge.Pass})
		dbtest.Refused(t, err, 404)
		_, err = f.Get(t.Context(), expert, q.ID)
		dbtest.Refused(t, err, 404)
		if n := dbtest.Count(t, f.DB, `review_grades WHERE user_id = $1`, string(expert.User)); n != 0 {
			t.Errorf("%d claims are left", n)
		}
		dbtest.Refused(t, f.Revoke(t.Context(), owner, q.ID, expert.User), 404)
		if all, err := f.QueuesOf(t.Context(), expert.User); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestGradersOfABlindQueueLearnNothingOfOthers(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q := f.queue(t, 2, 1, expert, expert2)
		first := f.grade(t, expert, f.claim(t, expert, q.ID), judge.Pass)
		held := f.claim(t, expert2, q.ID)
		for name, seen := range map[string]QueueItem{"own": first, "open": held} {
			if text := asJSON(t, seen); seen.Judge != nil || len(seen.Grades) != 0 || seen.Conflict || strings.Contains(text, "judge's words") ||
				strings.Contains(text, "half") {
				t.Errorf("%s: %s", name, text)
			}
		}
		done := f.grade(t, expert2, held, judge.Fail)
		if done.State != itemDone || done.Conflict || len(done.Grades) != 0 {
			t.Errorf("%+v", done)
		}
		seen, err := f.Item(t.Context(), owner, q.ID, done.ID)
		if err != nil || !seen.Conflict || len(seen.Grades) != 2 || seen.Judge == nil || seen.Judge.Verdict != judge.Fail {
			t.Errorf("%+v, %v", seen, err)
		}
		c, err := f.Get(t.Context(), owner, q.ID)
		if err != nil || c.Counts.Conflicts != 1 {
			t.Errorf("%+v, %v", c, err)
		}
		a, err := f.Agreement(t.Context(), expert, q.ID)
		if err != nil || a.Items != 1 || a.Pairs != 1 || *a.Percent != 0 {
			t.Errorf("%+v, %v", a, err)
		}
		p, err := f.Progress(t.Context(), expert, q.ID)
		if err != nil || len(p.Graders) != 1 || p.Graders[0].UserID != expert.User || p.Pass != nil || p.Needed != nil {
			t.Errorf("%+v, %v", p, err)
		}
		no := false
		if _, err := f.Change(t.Context(), owner, q.ID, QueueChange{Blind: &no}); err != nil {
			t.Fatal(err)
		}
		seen, err = f.Item(t.Context(), expert, q.ID, done.ID)
		if err != nil || seen.Judge == nil || len(seen.Grades) != 2 || !seen.Conflict {
			t.Errorf("%+v, %v", seen, err)
		}
	})
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAClaimThatEndedIsFencedOnceAnotherHasTheItem(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q := f.queue(t, 1, 1, expert, expert2)
		first := f.claim(t, expert, q.ID)
		if o, err := f.Claim(t.Context(), expert2, q.ID); err != nil || o.Item != nil || o.Done || o.Mine.Waiting != 1 {
			t.Fatalf("an item is offered that another holds: %+v, %v", o, err)
		}
		f.wait(16)
		second := f.claim(t, expert2, q.ID)
		if second.ID != first.ID {
			t.Fatal("the item is not free after its lease")
		}
		_, err := f.Grade(t.Context(), expert, q.ID, first.ID, NewGrade{Claim: first.Claim.ID, Verdict: judge.Pass})
		dbtest.Refused(t, err, 409, "claim has ended")
		_, err = f.Grade(t.Context(), expert2, q.ID, first.ID, NewGrade{Claim: first.Claim.ID, Verdict: judge.Pass})
		dbtest.Refused(t, err, 409)
		// Its own lease has ended too, and nobody took the item: the grade counts.
		f.wait(16)
		f.grade(t, expert2, second, judge.Pass)
		if n := len(f.labels.given(t)); n != 1 {
			t.Errorf("%d labels", n)
		}
		_, err = f.Skip(t.Context(), expert, q.ID, first.ID, Skip{Claim: first.Claim.ID})
		dbtest.Refused(t, err, 409)
	})
}

func TestUndoTakesBackAGradeOrASkip(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q := f.queue(t, 1, 2, expert, expert2)
		first := f.grade(t, expert, f.claim(t, expert, q.ID), judge.Pass)
		second := f.claim(t, expert, q.ID)
		undone, err := f.Undo(t.Context(), expert, q.ID, first.ID)
		if err != nil || undone.Mine != Claimed || undone.State != itemOpen || undone.Grade != nil || len(f.labels.given(t)) != 0 {
			t.Fatalf("%+v, %v, %d labels", undone, err, len(f.labels.given(t)))
		}
		if again, err := f.Undo(t.Context(), expert, q.ID, first.ID); err != nil || again.Claim.ID != undone.Claim.ID {
			t.Errorf("to undo twice: %+v, %v", again, err)
		}
		if next := f.claim(t, expert, q.ID); next.ID != first.ID {
			t.Error("the item that was undone is not offered first")
		}
		f.grade(t, expert, undone, judge.Fail)
		if next := f.claim(t, expert, q.ID); next.ID != second.ID {
			t.Error("the other claim is lost")
		}
		skipped, err := f.Skip(t.Context(), expert, q.ID, second.ID, Skip{Claim: second.Claim.ID, Reason: "not my field"})
		if err != nil || skipped.Mine != Skipped || skipped.State != itemOpen {
			t.Fatalf("%+v, %v", skipped, err)
		}
		if _, err := f.Skip(t.Context(), expert, q.ID, second.ID, Skip{Claim: second.Claim.ID}); err != nil {
			t.Error("to skip twice:", err)
		}
		if o, err := f.Claim(t.Context(), expert, q.ID); err != nil || o.Item != nil || !o.Done {
			t.Errorf("what was skipped is offered again: %+v, %v", o, err)
		}
		taken := f.claim(t, expert2, q.ID)
		_, err = f.Undo(t.Context(), expert, q.ID, second.ID)
		dbtest.Refused(t, err, 409, "others")
		if err := f.Revoke(t.Context(), owner, q.ID, expert2.User); err != nil {
			t.Fatal(err)
		}
		if back, err := f.Undo(t.Context(), expert, q.ID, taken.ID); err != nil || back.Mine != Claimed {
			t.Errorf("%+v, %v", back, err)
		}
	})
}

func TestAnItemThatIsNotLoggedAnyMoreLeavesTheQueue(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q := f.queue(t, 1, 3, expert)
		first := f.claim(t, expert, q.ID)
		f.contents.forget(*first.RequestID)
		_, err := f.Grade(t.Context(), expert, q.ID, first.ID, NewGrade{Claim: first.Claim.ID, Verdict: judge.Pass})
		dbtest.Refused(t, err, 409, "not logged any more")
		second := f.claim(t, expert, q.ID)
		if second.ID == first.ID {
			t.Fatal("what is gone is offered")
		}
		graded := f.grade(t, expert, second, judge.Pass)
		f.contents.forget(*graded.RequestID)
		_, err = f.Undo(t.Context(), expert, q.ID, graded.ID)
		dbtest.Refused(t, err, 409, "stands")
		// The last one expires while nobody looks.
		if _, err := db.Exec(t.Context(), f.DB.In(mine), `
			UPDATE review_items SET expires_at = 5 WHERE workspace_id = $1 AND state = 'open'`); err != nil {
			t.Fatal(err)
		}
		if err := f.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		v, err := f.Get(t.Context(), expert, q.ID)
		if err != nil || v.Counts != (QueueCounts{Items: 3, Done: 1, Expired: 2}) {
			t.Errorf("%+v, %v", v.Counts, err)
		}
		if n := dbtest.Count(t, f.DB, `review_items WHERE state = 'expired' AND (critique <> '' OR lost = '')`); n != 0 {
			t.Errorf("%d expired items keep what a judge said, or do not say why", n)
		}
	})
}

func TestARunThatHasGrownIsReadAgain(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q := f.queue(t, 1, 0, expert)
		f.contents.log("trace-1", "a", "b")
		if _, err := f.DB.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := f.add(t.Context(), tx, mine, q.ID, []itemRecord{{Ref: ofTrace + "trace-1", Steps: 2}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		item := f.claim(t, expert, q.ID)
		if len(item.Steps) != 2 || *item.TraceID != "trace-1" {
			t.Errorf("%+v", item)
		}
		f.contents.log("trace-1", "c")
		in := NewGrade{Claim: item.Claim.ID, Verdict: judge.Pass, Digest: item.Digest}
		_, err := f.Grade(t.Context(), expert, q.ID, item.ID, in)
		dbtest.Refused(t, err, 409, "grown")
		in.Digest = f.claim(t, expert, q.ID).Digest
		if _, err := f.Grade(t.Context(), expert, q.ID, item.ID, in); err != nil {
			t.Error(err)
		}
	})
}

func TestAssignedItemsAreOfferedToTheirPeopleAlone(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q := f.queue(t, 1, 4, expert, expert2)
		all, err := f.Items(t.Context(), owner, q.ID, "", nil, 10, 0)
		if err != nil || len(all) != 4 {
			t.Fatal(len(all), err)
		}
		_, err = f.Assign(t.Context(), owner, q.ID, Assigning{UserIDs: []tenant.UserID{"usr_nobody"}})
		dbtest.Refused(t, err, 400, "user_ids")
		if _, err := f.Assign(t.Context(), owner, q.ID, Assigning{UserIDs: []tenant.UserID{expert2.User}, ItemIDs: []string{all[3].ID, all[0].ID}}); err != nil {
			t.Fatal(err)
		}
		if got := f.claim(t, expert2, q.ID); got.ID != all[0].ID {
			t.Errorf("%s is offered first", got.ID)
		}
		for _, want := range []string{all[1].ID, all[2].ID} {
			got := f.claim(t, expert, q.ID)
			if got.ID != want {
				t.Errorf("%s is offered, want %s", got.ID, want)
			}
			f.grade(t, expert, got, judge.Pass)
		}
		if o, err := f.Claim(t.Context(), expert, q.ID); err != nil || o.Item != nil || !o.Done {
			t.Errorf("%+v, %v", o, err)
		}
		divided, err := f.Assign(t.Context(), owner, q.ID, Assigning{UserIDs: []tenant.UserID{expert.User, expert2.User}})
		if err != nil || divided.Items != 2 || divided.People[0].Items != 1 || divided.People[1].Items != 1 {
			t.Errorf("%+v, %v", divided, err)
		}
		if free, err := f.Assign(t.Context(), owner, q.ID, Assigning{UserIDs: []tenant.UserID{}}); err != nil || free.Items != 2 ||
			dbtest.Count(t, f.DB, `review_assignments`) != 0 {
			t.Errorf("%+v, %v", free, err)
		}
	})
}

func TestAQueueCanBeChangedClosedAndDeleted(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		q := f.queue(t, 1, 2, expert)
		item := f.claim(t, expert, q.ID)
		f.grade(t, expert, item, judge.Pass)
		two, yes := 2, true
		if v, err := f.Change(t.Context(), owner, q.ID, QueueChange{GradersPerItem: &two}); err != nil || v.Counts.Open != 2 || v.Counts.Done != 0 {
			t.Errorf("%+v, %v", v.Counts, err)
		}
		for range 2 { // to close it twice is fine
			if v, err := f.Change(t.Context(), owner, q.ID, QueueChange{Closed: &yes}); err != nil || v.ClosedAt == nil {
				t.Errorf("%+v, %v", v, err)
			}
		}
		_, err := f.Claim(t.Context(), expert, q.ID)
		dbtest.Refused(t, err, 409, "closed")
		_, err = f.Undo(t.Context(), expert, q.ID, item.ID)
		dbtest.Refused(t, err, 409, "closed")
		_, err = f.AddItems(t.Context(), owner, q.ID, QueueSource{Kind: fromLogs})
		dbtest.Refused(t, err, 409, "closed")
		elsewhere := stranger
		_, err = f.Change(t.Context(), elsewhere, q.ID, QueueChange{Closed: &yes})
		dbtest.Refused(t, err, 404)
		dbtest.Refused(t, f.Purge(t.Context(), elsewhere, q.ID), 404)
		if err := f.Purge(t.Context(), owner, q.ID); err != nil {
			t.Fatal(err)
		}
		for _, table := range append([]string{"review_queues", "review_fills", "jobs"}, tables...) {
			if n := dbtest.Count(t, f.DB, table); n != 0 {
				t.Errorf("%d rows of %s are left", n, table)
			}
		}
		if n := len(f.labels.given(t)); n != 1 {
			t.Errorf("%d labels are left", n)
		}
	})
}

func TestWhatAWorkspaceStoresIsBounded(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		if _, err := db.Exec(t.Context(), f.DB.In(mine), `
			INSERT INTO quotas (workspace_id, kind, most) VALUES ($1, 'review_queues', 1), ($1, 'review_items', 2), ($1, 'reviewers', 1)`); err != nil {
			t.Fatal(err)
		}
		q := f.queue(t, 1, 2, expert)
		_, err := f.Create(t.Context(), owner, NewQueue{Name: "q", Source: QueueSource{Kind: fromLogs}})
		dbtest.Refused(t, err, 409, "review_queues")
		_, err = f.Grant(t.Context(), owner, q.ID, "usr_expert2@example.test")
		dbtest.Refused(t, err, 409, "reviewers")
		_, err = f.DB.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := f.add(t.Context(), tx, mine, q.ID, []itemRecord{{Ref: "request:new"}})
			return err
		})
		dbtest.Refused(t, err, 409, "review_items")
		if _, err := f.AddItems(t.Context(), owner, q.ID, QueueSource{Kind: fromLogs}); err != nil {
			t.Fatal(err)
		}
		_, err = f.AddItems(t.Context(), owner, q.ID, QueueSource{Kind: fromLogs})
		dbtest.Refused(t, err, 409, "already")
	})
}
