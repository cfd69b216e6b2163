package review

import (
	"slices"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db/dbtest"
)

func TestEveryPairOfStateAndEventIsPermittedOrRefused(t *testing.T) {
	permitted := map[State]map[event]State{
		Open:    {claims: Claimed},
		Claimed: {claims: Claimed, grades: Graded, skips: Skipped, undoes: Claimed, expires: Open},
		Graded:  {undoes: Claimed},
		Skipped: {undoes: Claimed},
	}
	for _, from := range []State{Open, Claimed, Graded, Skipped} {
		for _, e := range []event{claims, grades, skips, undoes, expires} {
			to, err := from.move(e)
			want, ok := permitted[from][e]
			switch {
			case ok && (err != nil || to != want):
				t.Errorf("%s %s: %s, %v; want %s", from, e, to, err, want)
			case !ok:
				dbtest.Refused(t, err, 409)
			}
		}
	}
}

func TestAnItemIsDoneWithItsGradersAndConflictsWhereTheyDiffer(t *testing.T) {
	for _, one := range []struct {
		passes, fails, graders int64
		state                  string
		conflict               bool
	}{
		{0, 0, 1, itemOpen, false},
		{1, 0, 1, itemDone, false},
		{1, 0, 2, itemOpen, false},
		{2, 0, 2, itemDone, false},
		{1, 1, 2, itemDone, true},
		{1, 1, 3, itemOpen, true},
		{0, 3, 3, itemDone, false},
		{3, 0, 2, itemDone, false},
	} {
		if state, conflict := settle(one.passes, one.fails, one.graders); state != one.state || conflict != one.conflict {
			t.Errorf("%+v: %s, %v", one, state, conflict)
		}
	}
}

func TestAQueueIsDividedEvenly(t *testing.T) {
	users := []tenant.UserID{"a", "b", "c"}
	counts := map[tenant.UserID]int{}
	for at := range 9 {
		some := share(users, at, 2, false)
		if len(some) != 2 || some[0] == some[1] {
			t.Fatalf("item %d is for %v", at, some)
		}
		for _, user := range some {
			counts[user]++
		}
	}
	if counts["a"] != 6 || counts["b"] != 6 || counts["c"] != 6 {
		t.Errorf("%v", counts)
	}
	if !slices.Equal(share(users, 1, 2, true), users) || !slices.Equal(share(users[:1], 5, 2, false), users[:1]) {
		t.Error("named items, and few people")
	}
}

func TestASourceTakesWhatItsKindNeedsAndNothingElse(t *testing.T) {
	for _, one := range []struct {
		source QueueSource
		field  string
	}{
		{QueueSource{Kind: fromLogs, ScanID: "scan_1"}, "source.scan_id"},
		{QueueSource{Kind: fromScan}, "source.scan_id"},
		{QueueSource{Kind: fromUncertain, Verdict: judge.Fail}, "source.verdict"},
		{QueueSource{Kind: fromIDs}, "source.request_ids"},
		{QueueSource{Kind: fromLogs, TraceIDs: []string{"x"}}, "source.request_ids"},
	} {
		_, err := one.source.clean("crit_1")
		dbtest.Refused(t, err, 400, one.field)
	}
	_, err := QueueSource{Kind: fromDisagreements}.clean("")
	dbtest.Refused(t, err, 400, "criterion_id")
	if got, err := (QueueSource{Kind: fromLogs}).clean(""); err != nil || got.N != 100 {
		t.Error(got, err)
	}
	if got, err := (QueueSource{Kind: fromIDs, RequestIDs: []string{"a", "b"}, N: 1}).clean(""); err != nil || got.N != 2 {
		t.Error(got, err)
	}
}
