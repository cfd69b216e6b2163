package dataset_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

func TestADatasetIsCuratedAndFolded(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, chat{messages: []string{"one"}, response: "first"})
		time.Sleep(2 * time.Millisecond) // times are kept in milliseconds
		r.log(t,
			chat{messages: []string{"one", "first", "two"}, response: "second"},
			chat{messages: []string{"alone"}, response: "answer"},
			chat{messages: []string{"alone"}, response: "answer"},
			chat{messages: []string{"long"}, response: "cut o", finish: "length"},
			chat{messages: []string{"long", "cut o", "go on"}, response: "ff"},
			chat{messages: []string{"bad"}, response: "?", finish: "content_filter"},
			chat{messages: []string{"bad"}, response: `{"role":"assistant","content":null,"refusal":"I will not."}`},
			chat{messages: []string{"quiet"}, response: `{"role":"assistant","content":null}`},
			chat{messages: []string{"call"}, response: `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`, finish: "tool_calls", tools: `[{"type":"function","function":{"name":"f"}}]`},
			chat{messages: []string{"odd"}, response: "tools", tools: `{"not":"a list"}`},
			chat{ws: theirs, messages: []string{"theirs"}, response: "not mine"},
		)
		d := r.make(t, dataset.Recipe{Name: "all"})
		want := dataset.Curation{Scanned: 11, Kept: 4, Dropped: dataset.Dropped{Errored: 3, Truncated: 1, Empty: 1, Duplicate: 1}, FoldedConversations: 1, FoldedTurns: 1}
		if d.Curation != want || d.Rows != 4 || d.Role != dataset.Train || d.HoldoutID != nil || d.HoldoutOf != nil {
			t.Errorf("%+v", d)
		}
		if p := d.Provenance; p.Source != "logs" || p.Segment == nil || *p.Segment == "" || p.FirstAt == nil || *p.FirstAt >= *p.LastAt || p.CreatedBy != "usr_ann" {
			t.Errorf("%+v", p)
		}
		const system = `{"messages":[{"content":"You help.","role":"system"},`
		if got, want := r.export(t, d), strings.Join([]string{
			system + `{"content":"call","role":"user"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
			system + `{"content":"long","role":"user"},{"content":"cut o","role":"assistant"},{"content":"go on","role":"user"},{"role":"assistant","content":"ff"}]}`,
			system + `{"content":"alone","role":"user"},{"role":"assistant","content":"answer"}]}`,
			system + `{"content":"one","role":"user"},{"content":"first","role":"assistant","weight":1},{"content":"two","role":"user"},{"role":"assistant","content":"second","weight":1}]}`,
		}, "\n")+"\n"; got != want {
			t.Errorf("got:\n%swant:\n%s", got, want)
		}
		if kept := r.get(t, d.ID); kept.Curation != d.Curation || kept.Name != "all" || *kept.Provenance.Segment != *d.Provenance.Segment {
			t.Errorf("read again: %+v", kept)
		}
	})
}

func TestADatasetOutlivesItsLogs(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 150)...)
		d := r.make(t, dataset.Recipe{Name: "all", Holdout: 20})
		eval := r.get(t, *d.HoldoutID)
		before := r.export(t, d) + "and\n" + r.export(t, eval)
		for _, table := range []string{"log_rows", "log_counts", "log_variants", "log_families"} {
			if _, err := db.Exec(t.Context(), r.logs.Across("test"), `DELETE FROM `+table); err != nil {
				t.Fatal(err)
			}
		}
		r.logging(0)
		if after := r.export(t, d) + "and\n" + r.export(t, eval); after != before || len(lines(before)) != 151 {
			t.Errorf("%d bytes have become %d", len(before), len(after))
		}
	})
}

func TestAHoldoutIsDisjointAndNamesItsPartner(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		chats := some("a", 150)
		chats = append(chats, chats[7], chats[8]) // duplicates
		r.log(t, chats...)
		train := r.make(t, dataset.Recipe{Name: "all", Holdout: 20})
		eval := r.get(t, *train.HoldoutID)
		if eval.Name != "all-eval" || eval.Role != dataset.Eval || *eval.HoldoutOf != train.ID || eval.HoldoutID != nil || train.HoldoutOf != nil {
			t.Errorf("%+v", eval)
		}
		if train.Curation != eval.Curation || train.Rows+eval.Rows != 150 || train.Curation.Kept != 150 || eval.Rows < 15 || eval.Rows > 50 {
			t.Errorf("%d and %d rows: %+v", train.Rows, eval.Rows, eval.Curation)
		}
		both := slices.Concat(lines(r.export(t, train)), lines(r.export(t, eval)))
		slices.Sort(both)
		if len(both) != 150 || len(slices.Compact(both)) != 150 {
			t.Errorf("%d lines", len(both))
		}
		again := r.make(t, dataset.Recipe{Name: "again", Holdout: 20})
		if r.export(t, train) != r.export(t, again) || r.export(t, eval) != r.export(t, r.get(t, *again.HoldoutID)) {
			t.Error("the same exchanges split otherwise")
		}
		r.delete(t, train.ID)
		if left := r.get(t, eval.ID); *left.HoldoutOf != train.ID || len(lines(r.export(t, left))) != int(eval.Rows) {
			t.Errorf("the holdout of a deleted dataset: %+v", left)
		}
	})
}

// Whatever is logged: no question of the holdout is in the training set, however it is written and however often it was
// answered, and no turn that was filtered out is continued on both sides.
func TestNoQuestionIsOnBothSidesOfAHoldout(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		for seed := range 2 {
			source, tag := rand.New(rand.NewPCG(uint64(seed), 1)), fmt.Sprint("kept", seed)
			words := func() string {
				all := make([]string, 12)
				for i := range all {
					all[i] = fmt.Sprintf("w%d", source.IntN(10_000))
				}
				return strings.Join(all, " ")
			}
			var chats []chat
			for range 30 {
				first, said := words(), words()
				followed := source.IntN(2) == 0
				if followed { // the first turn is logged, and filtered out
					chats = append(chats, chat{tag: "other", messages: []string{first}, response: said})
				}
				for range 1 + source.IntN(6) {
					next := chat{tag: tag, messages: []string{first}, response: words(), parts: source.IntN(2) == 0}
					if followed {
						next.messages = append(next.messages, said, words())
					}
					chats = append(chats, next)
				}
			}
			source.Shuffle(len(chats), func(i, j int) { chats[i], chats[j] = chats[j], chats[i] })
			r.log(t, chats...)
			train := r.make(t, dataset.Recipe{Name: tag, Holdout: 30, Filters: dataset.Filters{Tag: tag}})
			trained, held := firstQuestions(t, r.export(t, train)), firstQuestions(t, r.export(t, r.get(t, *train.HoldoutID)))
			shared := slices.DeleteFunc(slices.Clone(held), func(q string) bool { return !slices.Contains(trained, q) })
			if len(shared) > 0 || len(held) < 2 || len(trained)+len(held) != 30 {
				t.Errorf("seed %d: %d of %d held out questions are among the %d that are trained on", seed, len(shared), len(held), len(trained))
			}
		}
	})
}

// firstQuestions are the first messages of users in an export, each once.
func firstQuestions(t *testing.T, export string) (all []string) {
	t.Helper()
	for _, line := range lines(export) {
		var example struct {
			Messages []struct{ Content jsontext.Value }
		}
		if err := json.Unmarshal([]byte(line), &example, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		first := example.Messages[1].Content
		var parts []struct{ Text string }
		var text string
		if err := json.Unmarshal(first, &text); err != nil {
			if err := json.Unmarshal(first, &parts, json.MatchCaseInsensitiveNames(true)); err != nil {
				t.Fatal(err)
			}
			text = parts[0].Text
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestContentIsStoredOnceAndFreedWithTheLastThatNamesIt(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 70)...)
		r.log(t, some("b", 80)...)
		a := r.make(t, dataset.Recipe{Name: "a", Filters: dataset.Filters{Tag: "a"}})
		r.has(t, [4]int{1, 70, 70, 0})
		all := r.make(t, dataset.Recipe{Name: "all"})
		r.has(t, [4]int{2, 220, 150, 0})
		split := r.make(t, dataset.Recipe{Name: "split", Holdout: 30})
		r.has(t, [4]int{4, 370, 150, 0})
		text := r.export(t, a)
		r.delete(t, split.ID)
		r.delete(t, all.ID)
		eval := r.get(t, *split.HoldoutID)
		if text != r.export(t, a) {
			t.Error("a dataset has lost what another was made of too")
		}
		left := len(slices.Compact(lines(text + r.export(t, eval))))
		r.has(t, [4]int{2, 70 + int(eval.Rows), left, 0})
		r.delete(t, eval.ID)
		r.has(t, [4]int{1, 70, 70, 0})
		r.delete(t, a.ID)
		r.has(t, [4]int{0, 0, 0, 0})
	})
}

func TestOtherWorkspacesHaveTheirOwn(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		same := some("a", 3)
		r.log(t, same...)
		for i := range same {
			same[i].ws = theirs
		}
		r.log(t, same...)
		d := r.make(t, dataset.Recipe{Name: "all"})
		if _, err := r.fromLogs(t.Context(), theirs, dataset.Recipe{Name: "all"}); err != nil {
			t.Fatal(err)
		}
		r.has(t, [4]int{2, 6, 6, 0})
		if _, err := r.Get(t.Context(), theirs, d.ID); !refused(err, fault.Missing) {
			t.Error(err)
		}
		if err := r.Delete(t.Context(), theirs, ann, d.ID); !refused(err, fault.Missing) {
			t.Error(err)
		}
		r.delete(t, d.ID)
		r.has(t, [4]int{1, 3, 3, 0})
	})
}

func refused(err error, kind fault.Kind) bool {
	var f *fault.Fault
	return errors.As(err, &f) && f.Kind == kind
}

func TestATakenNameIsRefused(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 5)...)
		d := r.make(t, dataset.Recipe{Name: "one"})
		r.make(t, dataset.Recipe{Name: "two-eval"})
		for _, recipe := range []dataset.Recipe{{Name: "one"}, {Name: "one", Holdout: 10}, {Name: "two", Holdout: 10}} {
			if _, err := r.fromLogs(t.Context(), mine, recipe); !refused(err, fault.Conflicting) {
				t.Errorf("%+v: %v", recipe, err)
			}
		}
		r.has(t, [4]int{2, 10, 5, 0})
		r.make(t, dataset.Recipe{Name: "two"})
		r.delete(t, d.ID)
		r.make(t, dataset.Recipe{Name: "one", Holdout: 10})
	})
}

func TestMakingAndDeletingAreAudited(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 20)...)
		d := r.make(t, dataset.Recipe{Name: "all", Holdout: 10})
		r.delete(t, d.ID)
		for id, want := range map[string][]string{d.ID: {"dataset.delete", "dataset.create"}, *d.HoldoutID: {"dataset.create"}} {
			entries, err := audit.History(t.Context(), r.db, mine, "dataset", id, 10, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, e.Action)
				if e.Actor != ann || (e.Action == "dataset.delete") != (string(e.After) == "null") || !strings.Contains(string(e.Before)+string(e.After), id) {
					t.Errorf("%+v", e)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v", id, got)
			}
		}
	})
}

func TestOnlyTheNewestAreLookedAt(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("old", 3)...)
		r.log(t, some("new", 5)...)
		r.Look(5)
		if d := r.make(t, dataset.Recipe{Name: "new"}); !d.Curation.Capped || d.Curation.Scanned != 5 || strings.Contains(r.export(t, d), "askold") {
			t.Errorf("%+v", d.Curation)
		}
		r.Look(8)
		if d := r.make(t, dataset.Recipe{Name: "all"}); d.Curation.Capped || d.Curation.Scanned != 8 || !strings.Contains(r.export(t, d), "askold") {
			t.Errorf("%+v", d.Curation)
		}
	})
}

func TestNothingMakesAnEmptyDataset(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		d := r.make(t, dataset.Recipe{Name: "none", Holdout: 10, Filters: dataset.Filters{Tag: "never"}})
		if d.Rows != 0 || d.Curation != (dataset.Curation{}) || d.Provenance.FirstAt != nil || d.Provenance.Segment != nil || r.export(t, d) != "" {
			t.Errorf("%+v", d)
		}
		r.log(t, some("a", 1)...)
		d = r.make(t, dataset.Recipe{Name: "one", Holdout: 50})
		if eval := r.get(t, *d.HoldoutID); d.Rows != 1 || eval.Rows != 0 || r.export(t, eval) != "" {
			t.Errorf("%+v and %+v", d, eval)
		}
	})
}

func TestABuildIsSeenWholeOrNotAtAllAndLetsOthersWrite(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 2000)...)
		look := repeatedly(t.Context(), func(ctx context.Context) error {
			all, err := r.List(ctx, mine, 10, 0)
			if err != nil {
				return err
			}
			if len(all) != 0 && len(all) != 2 {
				return fmt.Errorf("%d datasets are seen", len(all))
			}
			for _, d := range all {
				if err := r.Export(ctx, mine, &d, io.Discard); err != nil {
					return err
				}
			}
			return nil
		})
		sweep := repeatedly(t.Context(), r.Sweep)
		at := 0
		write := repeatedly(t.Context(), func(ctx context.Context) error {
			at++
			_, err := db.Exec(ctx, r.db.Across("test"), `INSERT INTO users (id, email, created_at) VALUES ($1, $2, 1)`, "usr_"+strconv.Itoa(at), strconv.Itoa(at))
			return err
		})
		d := r.make(t, dataset.Recipe{Name: "all", Holdout: 10})
		writes, err := write()
		if err != nil || writes < 5 {
			t.Errorf("%d writes got through: %v", writes, err)
		}
		for _, stop := range []func() (int, error){look, sweep} {
			if times, err := stop(); err != nil || times == 0 {
				t.Errorf("%d times: %v", times, err)
			}
		}
		r.has(t, [4]int{2, 2000, 2000, 0})
		if n := len(lines(r.export(t, d))) + len(lines(r.export(t, r.get(t, *d.HoldoutID)))); n != 2000 {
			t.Errorf("%d examples", n)
		}
	})
}

func TestDatasetsOfTheSameLogsAreMadeAndDeletedAtOnce(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 300)...)
		for round := range 3 {
			var work sync.WaitGroup
			made := make([]dataset.Dataset, 3)
			for i := range made {
				work.Go(func() {
					var err error
					made[i], err = r.fromLogs(t.Context(), mine, dataset.Recipe{Name: fmt.Sprintf("%d of %d", i, round), Holdout: 10})
					if err != nil {
						t.Error(err)
						return
					}
					if i == 0 {
						for _, id := range []string{made[i].ID, *made[i].HoldoutID} {
							if err := r.Delete(t.Context(), mine, ann, id); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			work.Wait()
			if t.Failed() {
				return
			}
			if err := r.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.has(t, [4]int{4 * (round + 1), 600 * (round + 1), 300, 0})
			for _, d := range made[1:] {
				if n := len(lines(r.export(t, d))) + len(lines(r.export(t, r.get(t, *d.HoldoutID)))); n != 300 {
					t.Errorf("%d examples", n)
				}
			}
		}
	})
}

func TestOfBuildsAtOnceWithOneNameOneIsAdmitted(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 100)...)
		var work sync.WaitGroup
		var made, taken atomic.Int64
		for range 3 {
			work.Go(func() {
				switch _, err := r.fromLogs(t.Context(), mine, dataset.Recipe{Name: "all", Holdout: 10}); {
				case err == nil:
					made.Add(1)
				case refused(err, fault.Conflicting):
					taken.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		work.Wait()
		if made.Load() != 1 || taken.Load() != 2 {
			t.Errorf("%d are made, %d refused", made.Load(), taken.Load())
		}
		r.has(t, [4]int{2, 100, 100, 0})
	})
}

func TestWhatADeadBuildLeftIsSwept(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 100)...)
		kept := r.make(t, dataset.Recipe{Name: "kept", Filters: dataset.Filters{Tag: "a"}})
		r.log(t, some("b", 100)...)
		dead := r.make(t, dataset.Recipe{Name: "dead"})
		// As a process that was killed before its last transaction leaves it.
		for _, statement := range []string{
			`INSERT INTO dataset_loose (workspace_id, dataset_id, since) SELECT workspace_id, id, 1 FROM datasets WHERE name = 'dead'`,
			`DELETE FROM datasets WHERE name = 'dead'`,
		} {
			if _, err := db.Exec(t.Context(), r.db.Across("test"), statement); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Get(t.Context(), mine, dead.ID); !refused(err, fault.Missing) {
			t.Error(err)
		}
		r.has(t, [4]int{1, 300, 200, 1})
		text := r.export(t, kept)
		if err := r.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.has(t, [4]int{1, 100, 100, 0})
		if r.export(t, kept) != text {
			t.Error("a sweep took what is a dataset's")
		}
	})
}

// A sweep may come upon a build in the moment in which it becomes a dataset.
func TestWhatIsADatasetsIsNotDiscarded(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.log(t, some("a", 10)...)
		d := r.make(t, dataset.Recipe{Name: "all"})
		if err := r.Discard(t.Context(), mine, d.ID); err != nil {
			t.Fatal(err)
		}
		r.has(t, [4]int{1, 10, 10, 0})
	})
}

// An export that goes on after its dataset is deleted must not look whole.
func TestAnExportOfADeletedDatasetBreaksOff(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		chats := some("a", 200)
		for i := range chats {
			chats[i].response += strings.Repeat(" more", 300)
		}
		r.log(t, chats...)
		d := r.make(t, dataset.Recipe{Name: "all"})
		err := r.Export(t.Context(), mine, &d, &onWrite{func() { r.delete(t, d.ID) }})
		if err == nil {
			t.Error("half of a dataset was exported as a whole")
		}
	})
}

// onWrite does something when it is first written to.
type onWrite struct{ once func() }

func (w *onWrite) Write(b []byte) (int, error) {
	if w.once != nil {
		w.once()
		w.once = nil
	}
	return len(b), nil
}
