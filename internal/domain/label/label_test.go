package label

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"sovereign/internal/grade/judge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func TestEveryRulingResolvesToOneKindAndVerdict(t *testing.T) {
	const pass, fail, none = judge.Pass, judge.Fail, judge.Verdict("")
	type outcome struct {
		kind    Kind
		verdict judge.Verdict
		refused string // the field
	}
	// by the kind, then by whether the verdict that is given is none, the label's own or the other
	table := map[Kind][3]outcome{
		LabelError: {{kind: LabelError, verdict: "other"}, {refused: "verdict"}, {kind: LabelError, verdict: "other"}},
		JudgeError: {{kind: JudgeError, verdict: "own"}, {kind: JudgeError, verdict: "own"}, {refused: "verdict"}},
		Ambiguous:  {{kind: Ambiguous, verdict: none}, {refused: "verdict"}, {refused: "verdict"}},
	}
	blind := map[string][3]outcome{ // by what the judge says: nothing, the label's own verdict or the other
		"nothing": {{refused: "kind"}, {kind: Confirmed, verdict: "own"}, {kind: LabelError, verdict: "other"}},
		"own":     {{refused: "kind"}, {kind: Confirmed, verdict: "own"}, {kind: LabelError, verdict: "other"}},
		"other":   {{refused: "kind"}, {kind: JudgeError, verdict: "own"}, {kind: LabelError, verdict: "other"}},
	}
	for _, was := range []judge.Verdict{pass, fail} {
		for said, judged := range map[string]judge.Verdict{"nothing": none, "own": was, "other": opposite(was)} {
			for kind, outcomes := range map[Kind][3]outcome{"": blind[said], LabelError: table[LabelError], JudgeError: table[JudgeError], Ambiguous: table[Ambiguous]} {
				for i, given := range []judge.Verdict{none, was, opposite(was)} {
					want := outcomes[i]
					want.verdict = map[judge.Verdict]judge.Verdict{"own": was, "other": opposite(was), none: none}[want.verdict]
					gotKind, got, err := Ruling{Kind: kind, Verdict: given}.resolve(was, judged)
					if want.refused != "" {
						dbtest.Refused(t, err, 400, want.refused)
						continue
					}
					if err != nil || gotKind != want.kind || got != want.verdict {
						t.Errorf("was %s, judge %q, kind %q, verdict %q: %s %q %v, want %+v", was, judged, kind, given, gotKind, got, err, want)
					}
				}
			}
		}
	}
}

func TestALabelKeepsItsCopyWhenTheLogIsDeleted(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.log("req_1", "", "What is 2 + 2?", "4")
		f.log("req_run_0", "run", "first", "step")
		f.log("req_run_1", "run", "first", "step", "second", "end")
		grade := 0.75
		made := f.make(t, mine,
			New{RequestID: "req_1", CriterionID: "crit_1", Verdict: judge.Pass, Grade: &grade, Critique: "Right.", Author: "Ben", Source: "queue"},
			New{TraceID: "run", Verdict: judge.Fail},
			New{Messages: talk("Hello?", "Hi.").Messages, Response: talk("Hello?", "Hi.").Response, Tools: []byte(`[{"type":"function"}]`), Verdict: judge.Fail},
		)
		clear(f.logs.requests)
		f.logs.closed = true
		for i, want := range [][]judge.Step{
			{talk("What is 2 + 2?", "4")},
			{talk("first", "step"), talk("first", "step", "second", "end")},
			{{Messages: talk("Hello?", "Hi.").Messages, Response: talk("Hello?", "Hi.").Response, Tools: []byte(`[{"type":"function"}]`)}},
		} {
			got := f.get(t, made[i].ID)
			if diff := cmp.Diff(want, got.Subject.Steps); diff != "" {
				t.Errorf("%d: %s", i, diff)
			}
			got.Subject = nil
			if diff := cmp.Diff(made[i], got); diff != "" {
				t.Errorf("%d: %s", i, diff)
			}
		}
		first, second, third := made[0], made[1], made[2]
		if *first.RequestID != "req_1" || first.TraceID != nil || *first.CriterionID != "crit_1" || *first.Grade != 0.75 || first.Author != "Ben" || first.Source != "queue" {
			t.Errorf("%+v", first)
		}
		if second.RequestID != nil || *second.TraceID != "run" || second.CriterionID != nil || second.Grade != nil || second.Author != "usr_ann" || second.Source != "api" {
			t.Errorf("%+v", second)
		}
		if third.RequestID != nil || third.TraceID != nil {
			t.Errorf("%+v", third)
		}
	})
}

func TestACriterionHasOneLabelOfAnItem(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.log("req_1", "", "same", "words")
		first := f.make(t, mine, New{RequestID: "req_1", CriterionID: "crit_1", Verdict: judge.Pass})[0]
		for _, again := range []New{{RequestID: "req_1", CriterionID: "crit_1", Verdict: judge.Pass}, inline(judge.Fail, "same", "words")} {
			_, err := f.Create(t.Context(), mine, ann, []New{again}, at)
			dbtest.Refused(t, err, 409, first.ID, "labels[0]: ")
		}
		_, err := f.Create(t.Context(), mine, ann, []New{inline(judge.Fail, "new", "words"), inline(judge.Fail, "new", "words")}, at)
		dbtest.Refused(t, err, 409, "labels[1]: ")
		if n := dbtest.Count(t, f.db, "labels"); n != 1 {
			t.Errorf("%d labels", n)
		}
		elsewhere := inline(judge.Pass, "same", "words")
		elsewhere.CriterionID = "crit_2"
		free := elsewhere
		free.CriterionID = ""
		f.make(t, mine, elsewhere, free, inline(judge.Pass, "same", "other words"))
		f.make(t, theirs, inline(judge.Pass, "same", "words"))
		if n := dbtest.Count(t, f.db, "label_items"); n != 3 { // mine, my other words, theirs
			t.Errorf("%d copies of what was graded", n)
		}
	})
}

func TestABatchOfLabelsIsStoredWholeOrNotAtAll(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.log("req_1", "", "a", "b")
		f.logs.requests["req_theirs"] = logged{theirs, talk("x", "y"), ""}
		good := func() []New {
			return []New{inline(judge.Pass, "1", "1"), inline(judge.Pass, "2", "2"), inline(judge.Pass, "3", "3"), inline(judge.Pass, "4", "4"), inline(judge.Pass, "5", "5")}
		}
		step := talk("q", "a")
		for name, c := range map[string]struct {
			bad    New
			status int
			field  string
		}{
			"of nothing":               {New{Verdict: judge.Pass}, 400, "labels[3].request_id"},
			"of two things":            {New{RequestID: "req_1", TraceID: "run", Verdict: judge.Pass}, 400, "labels[3].request_id"},
			"of two, one sent along":   {New{RequestID: "req_1", Messages: step.Messages, Response: step.Response, Verdict: judge.Pass}, 400, "labels[3].request_id"},
			"tools alone":              {New{Tools: []byte(`[]`), Verdict: judge.Pass}, 400, "labels[3].messages"},
			"without a response":       {New{Messages: step.Messages, Verdict: judge.Pass}, 400, "labels[3].response"},
			"without messages":         {New{Response: step.Response, Verdict: judge.Pass}, 400, "labels[3].messages"},
			"without a verdict":        {New{RequestID: "req_1"}, 400, "labels[3].verdict"},
			"messages are none":        {New{Messages: []byte(`{}`), Response: step.Response, Verdict: judge.Pass}, 400, "labels[3].messages"},
			"a message without a role": {New{Messages: []byte(`[{"content":"x"}]`), Response: step.Response, Verdict: judge.Pass}, 400, "labels[3].messages"},
			"a response of text":       {New{Messages: step.Messages, Response: []byte(`"hello"`), Verdict: judge.Pass}, 400, "labels[3].response"},
			"tools that are none":      {New{Messages: step.Messages, Response: step.Response, Tools: []byte(`{}`), Verdict: judge.Pass}, 400, "labels[3].tools"},
			"NUL in the critique":      {New{RequestID: "req_1", Verdict: judge.Pass, Critique: "a\x00b"}, 400, "labels[3].critique"},
			"NUL in the author":        {New{RequestID: "req_1", Verdict: judge.Pass, Author: "a\x00b"}, 400, "labels[3].author"},
			"no UTF-8 in the source":   {New{RequestID: "req_1", Verdict: judge.Pass, Source: "a\xffb"}, 400, "labels[3].source"},
			"no such request":          {New{RequestID: "req_none", Verdict: judge.Pass}, 404, "req_none"},
			"another's request":        {New{RequestID: "req_theirs", Verdict: judge.Pass}, 404, "req_theirs"},
			"no such run":              {New{TraceID: "none", Verdict: judge.Pass}, 404, "none"},
			"no such judge":            {New{RequestID: "req_1", CriterionID: "crit_9", Verdict: judge.Pass}, 404, "crit_9"},
		} {
			_, err := f.Create(t.Context(), mine, ann, slices.Insert(good(), 3, c.bad), at)
			dbtest.Refused(t, err, c.status, c.field)
			for _, table := range []string{"labels", "label_items", "label_halves", "label_secrets"} {
				if n := dbtest.Count(t, f.db, table); n != 0 {
					t.Fatalf("%s: %d rows of %s", name, n, table)
				}
			}
		}
		if made := f.make(t, mine, good()...); len(made) != 5 {
			t.Error(made)
		}
	})
}

// What unreadable messages are related to is unknown, so that nothing may be measured by them and no judge may be shown
// them.
func TestALabelOfUnreadableMessagesIsInBothHalves(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		for i := range 8 {
			name := fmt.Sprint("req_", i)
			odd := judge.Step{Messages: fmt.Appendf(nil, `[{"role":"user","role":"user","content":"%d"}]`, i), Response: talk("a", "b").Response}
			f.logs.requests[name] = logged{mine, odd, ""}
			made := f.make(t, mine, New{RequestID: name, Verdict: judge.Pass})[0]
			if !made.InReportHalf || !made.InBothHalves {
				t.Error("it measures judges, or is shown to them")
			}
			if got := f.get(t, made.ID); !bytes.Equal(got.Subject.Steps[0].Messages, odd.Messages) {
				t.Errorf("%s", got.Subject.Steps[0].Messages)
			}
		}
	})
}

func TestLoggedExchangesAreGradedOnlyWhileLogsMayBeRead(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.log("req_1", "", "a", "b")
		f.logs.closed = true
		_, err := f.Create(t.Context(), mine, ann, []New{{RequestID: "req_1", Verdict: judge.Pass}}, at)
		dbtest.Refused(t, err, 409)
		f.make(t, mine, inline(judge.Pass, "a", "b"))
	})
}

func TestNoCredentialIsStored(t *testing.T) {
	const secret = "AKIAIOSFODNN7EXAMPLQ"
	each(t, func(t *testing.T, f fixture) {
		n := inline(judge.Pass, "my key is "+secret, "I will not tell "+secret)
		n.Tools, n.Critique = []byte(`[{"description":"`+secret+`"}]`), "it tells "+secret
		made := f.make(t, mine, n)[0]
		if _, err := f.Adjudicate(t.Context(), mine, ann, made.ID, Ruling{Kind: LabelError, Note: "see " + secret}); err != nil {
			t.Fatal(err)
		}
		got := f.get(t, made.ID)
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("[redacted]")); n != 5 {
			t.Errorf("%d times redacted: %s", n, text)
		}
		for _, column := range []string{"SELECT steps FROM label_items", "SELECT critique FROM labels", "SELECT note FROM labels"} {
			if all, err := db.Query[[]byte](t.Context(), f.db.Across("test"), column); err != nil || len(all) != 1 || bytes.Contains(all[0], []byte(secret)) {
				t.Errorf("%s: %s %v", column, all, err)
			}
		}
		trail, err := audit.List(t.Context(), f.db, mine, "", 10, 0)
		if err != nil || len(trail) != 2 {
			t.Fatal(trail, err)
		}
		for _, entry := range trail {
			if bytes.Contains(entry.After, []byte(secret)) {
				t.Errorf("%s", entry.After)
			}
		}
	})
}

func TestAnAdjudicationIsReplacedAndBothAreAudited(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		made := f.make(t, mine, inline(judge.Pass, "a", "b"))[0]
		item := f.item(t, made.ID)
		f.judges.said[string(item)] = judge.Fail
		rule := func(ruling Ruling) *Adjudication {
			t.Helper()
			after, err := f.Adjudicate(t.Context(), mine, ann, made.ID, ruling)
			if err != nil {
				t.Fatal(err)
			}
			got := f.get(t, made.ID)
			if got.Subject = nil; !cmp.Equal(got, after) {
				t.Error(cmp.Diff(got, after))
			}
			if after.Verdict != judge.Pass || after.Adjudication.OriginalVerdict != judge.Pass {
				t.Errorf("what the label says has changed: %+v", after)
			}
			return after.Adjudication
		}
		if a := rule(Ruling{Kind: LabelError, Note: "wrong"}); *a.Verdict != judge.Fail || a.Kind != LabelError || a.Note != "wrong" || a.By != "usr_ann" || a.At == 0 {
			t.Errorf("%+v", a)
		}
		if a := rule(Ruling{Kind: Ambiguous}); a.Verdict != nil || a.Kind != Ambiguous || a.Note != "" {
			t.Errorf("%+v", a)
		}
		if a := rule(Ruling{Verdict: judge.Pass}); *a.Verdict != judge.Pass || a.Kind != JudgeError {
			t.Errorf("a blind review that upholds the label against the judge: %+v", a)
		}
		says := func(v judge.Verdict, by Kind) Consensus { return Consensus{LabelID: made.ID, Verdict: v, Ruling: by} }
		change := Change{LabelID: made.ID, CriterionID: "crit_1", Item: item, Cause: Ruled, By: ann}
		want := []Change{change, change, change}
		want[0].Before, want[0].After = says(judge.Pass, ""), says(judge.Fail, LabelError)
		want[1].Before, want[1].After = want[0].After, says("", Ambiguous)
		want[2].Before, want[2].After = want[1].After, says(judge.Pass, JudgeError)
		if diff := cmp.Diff(want, f.judges.changes); diff != "" {
			t.Error(diff)
		}
		trail, err := audit.History(t.Context(), f.db, mine, "label", made.ID, 10, 0)
		if err != nil || len(trail) != 4 {
			t.Fatal(trail, err)
		}
		for i, words := range [][2]string{{`"ambiguous"`, `"judge_error"`}, {`"label_error"`, `"ambiguous"`}, {`null`, `"label_error"`}, {`null`, `"labels":1`}} {
			if !strings.Contains(string(trail[i].Before), words[0]) || !strings.Contains(string(trail[i].After), words[1]) {
				t.Errorf("%d: %s then %s", i, trail[i].Before, trail[i].After)
			}
		}
		if _, err := f.Adjudicate(t.Context(), mine, ann, made.ID, Ruling{Kind: JudgeError, Note: "a\x00b"}); err == nil {
			t.Error("a note with NUL is taken")
		} else {
			dbtest.Refused(t, err, 400)
		}
	})
}

func TestAChangeThatJudgesRefuseIsRolledBack(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		made := f.make(t, mine, inline(judge.Pass, "a", "b"))[0]
		f.judges.refuses = errors.New("no")
		if _, err := f.Adjudicate(t.Context(), mine, ann, made.ID, Ruling{Kind: LabelError}); !errors.Is(err, f.judges.refuses) {
			t.Error(err)
		}
		if err := f.Delete(t.Context(), mine, ann, made.ID); !errors.Is(err, f.judges.refuses) {
			t.Error(err)
		}
		if got := f.get(t, made.ID); got.Adjudication != nil {
			t.Errorf("%+v", got)
		}
		if trail, err := audit.List(t.Context(), f.db, mine, "", 10, 0); err != nil || len(trail) != 1 {
			t.Error(trail, err)
		}
	})
}

func TestTheCopyIsDeletedWithItsLastLabel(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		second := inline(judge.Fail, "a", "b")
		second.CriterionID = "crit_2"
		made := f.make(t, mine, inline(judge.Pass, "a", "b"), second)
		item := f.item(t, made[1].ID)
		kept := f.make(t, theirs, inline(judge.Pass, "a", "b"))[0]
		for i, copies := range []int{2, 1} {
			if err := f.Delete(t.Context(), mine, ann, made[i].ID); err != nil {
				t.Fatal(err)
			}
			if n := dbtest.Count(t, f.db, "label_items"); n != copies {
				t.Errorf("%d copies, want %d", n, copies)
			}
			_, err := f.Get(t.Context(), mine, made[i].ID)
			dbtest.Refused(t, err, 404, made[i].ID)
		}
		if _, err := f.Get(t.Context(), theirs, kept.ID); err != nil {
			t.Error(err)
		}
		if last := f.judges.changes[len(f.judges.changes)-1]; !cmp.Equal(last, Change{
			LabelID: made[1].ID, CriterionID: "crit_2", Item: item, Cause: Deleted, Before: Consensus{LabelID: made[1].ID, Verdict: judge.Fail}, By: ann,
		}) {
			t.Errorf("%+v", last)
		}
		if trail, err := audit.List(t.Context(), f.db, mine, "label.delete", 10, 0); err != nil || len(trail) != 2 || trail[1].Subject != made[0].ID || !bytes.Contains(trail[1].Before, []byte(`"pass"`)) {
			t.Error(trail, err)
		}
	})
}

func TestALabelOfAnotherWorkspaceIsNotFound(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		made := f.make(t, theirs, inline(judge.Pass, "a", "b"))[0]
		_, err := f.Get(t.Context(), mine, made.ID)
		dbtest.Refused(t, err, 404, made.ID)
		dbtest.Refused(t, f.Delete(t.Context(), mine, ann, made.ID), 404, made.ID)
		_, err = f.Adjudicate(t.Context(), mine, ann, made.ID, Ruling{Kind: LabelError})
		dbtest.Refused(t, err, 404, made.ID)
		if all, err := f.List(t.Context(), mine, &Filters{}, 10, 0); err != nil || len(all) != 0 {
			t.Error(all, err)
		}
		if got, err := f.Get(t.Context(), theirs, made.ID); err != nil || got.Adjudication != nil {
			t.Error(got, err)
		}
	})
}

func TestLabelsAreListedNewestFirstByEveryFilter(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.log("req_1", "", "1", "1")
		f.log("req_run_0", "run", "2", "2")
		var made []Label
		for _, n := range []New{
			{RequestID: "req_1", CriterionID: "crit_1", Verdict: judge.Pass},
			{RequestID: "req_1", CriterionID: "crit_2", Verdict: judge.Fail},
			{TraceID: "run", CriterionID: "crit_1", Verdict: judge.Fail},
			inline(judge.Pass, "3", "3"),
		} {
			made = append(made, f.make(t, mine, n)...)
		}
		if _, err := f.Adjudicate(t.Context(), mine, ann, made[2].ID, Ruling{Kind: LabelError}); err != nil {
			t.Fatal(err)
		}
		yes, no := true, false
		for _, c := range []struct {
			f             Filters
			limit, offset int
			want          []int
		}{
			{Filters{}, 10, 0, []int{3, 2, 1, 0}},
			{Filters{}, 2, 1, []int{2, 1}},
			{Filters{CriterionID: "crit_1"}, 10, 0, []int{3, 2, 0}},
			{Filters{RequestID: "req_1"}, 10, 0, []int{1, 0}},
			{Filters{TraceID: "run"}, 10, 0, []int{2}},
			{Filters{Verdict: judge.Fail}, 10, 0, []int{2, 1}}, // as they were given
			{Filters{Adjudicated: &yes}, 10, 0, []int{2}},
			{Filters{Adjudicated: &no}, 10, 0, []int{3, 1, 0}},
			{Filters{CriterionID: "crit_1", Verdict: judge.Pass, Adjudicated: &no}, 10, 0, []int{3, 0}},
		} {
			all, err := f.List(t.Context(), mine, &c.f, c.limit, c.offset)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range all {
				got = append(got, l.ID)
			}
			var want []string
			for _, i := range c.want {
				want = append(want, made[i].ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v: %v, want %v", c.f, got, want)
			}
		}
	})
}

func TestABlindReadingRevealsNothingOfTheGrade(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		grade := 0.123
		n := inline(judge.Fail, "question", "answer")
		n.Grade, n.Critique, n.Author, n.Source = &grade, "dreadful", "Ben", "queue"
		made := f.make(t, mine, n)[0]
		if _, err := f.Adjudicate(t.Context(), mine, ann, made.ID, Ruling{Kind: JudgeError, Note: "remark"}); err != nil {
			t.Fatal(err)
		}
		open, err := json.Marshal(Reading{Label: f.get(t, made.ID)})
		if err != nil {
			t.Fatal(err)
		}
		blind, err := json.Marshal(Reading{Label: f.get(t, made.ID), blind: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"fail", "0.123", "dreadful", "judge_error", "remark"} {
			if !bytes.Contains(open, []byte(word)) || bytes.Contains(blind, []byte(word)) {
				t.Errorf("%s: open %s, blind %s", word, open, blind)
			}
		}
		if !bytes.Contains(blind, []byte("question")) || !bytes.Contains(blind, []byte(made.ID)) {
			t.Errorf("%s", blind)
		}
	})
}

func TestExamplesAreTheOldestWithACritiqueInTheTuningHalf(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		var all []New
		for i := range 60 {
			n := inline(judge.Pass, fmt.Sprint("question ", i), "yes")
			if i%3 == 0 {
				n.Critique = fmt.Sprint("because ", i)
			}
			all = append(all, n)
		}
		var want, silent []string
		for _, l := range f.make(t, mine, all...) {
			switch {
			case l.InReportHalf:
			case l.Critique != "":
				want = append(want, l.ID)
			default:
				silent = append(silent, l.ID)
			}
		}
		tuning := func(v judge.Verdict, most int) (ids []string) {
			some, err := Examples(t.Context(), f.db.In(mine), "crit_1", v, most)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range some {
				ids = append(ids, one.ID)
			}
			return ids
		}
		if got := tuning(judge.Pass, 3); !slices.Equal(got, want[:3]) {
			t.Errorf("%v, want %v", got, want[:3])
		}
		more := slices.Concat(want, silent[:2])
		slices.Sort(more)
		if got := tuning(judge.Pass, len(more)); !slices.Equal(got, more) {
			t.Errorf("%v, want %v", got, more)
		}
		if got := tuning(judge.Fail, 3); got != nil {
			t.Error(got)
		}
		for i, kind := range []Kind{LabelError, Ambiguous, JudgeError} {
			if _, err := f.Adjudicate(t.Context(), mine, ann, want[i], Ruling{Kind: kind, Note: "rather not"}); err != nil {
				t.Fatal(err)
			}
		}
		if got := tuning(judge.Pass, 2); !slices.Equal(got, want[2:4]) {
			t.Errorf("%v, want %v", got, want[2:4])
		}
		turned, err := Examples(t.Context(), f.db.In(mine), "crit_1", judge.Fail, 3)
		if err != nil || len(turned) != 1 || turned[0].ID != want[0] || turned[0].Critique != "rather not" || turned[0].Verdict != judge.Fail {
			t.Errorf("%+v %v", turned, err)
		}
		counts, err := Count(t.Context(), f.db.In(mine), "crit_1")
		if err != nil || counts != (Counts{Pass: 58, Fail: 1}) {
			t.Errorf("%+v %v", counts, err)
		}
	})
}
