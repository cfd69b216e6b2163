package label

import (
	"fmt"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db/dbtest"
)

func TestExchangesThatAJudgeIsShownAlikeAreOneItem(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		say := func(messages, response string) New {
			return New{CriterionID: "crit_1", Verdict: judge.Pass, Messages: jsontext.Value(messages), Response: jsontext.Value(response)}
		}
		first := f.make(t, mine, say(`[{"role":"user","content":"Hello?"}]`, `{"role":"assistant","content":"Hi."}`))[0]
		for _, same := range []New{
			say(`[{"content":"Hello?","role":"user"}]`, `{"content":"Hi.","role":"assistant"}`),
			say(`[{"x":1,"role":"user","content":"Hello?"}]`, `{"role":"assistant","content":"Hi."}`),
			say(`[{"role":"user","content":[{"type":"text","text":"Hello?","cache_control":{"type":"ephemeral"}}]}]`, `{"role":"assistant","content":"Hi."}`),
			say(`[{"role":"user","content":"Hello?"}]`, `{"role":"assistant","content":"Hi.","annotations":[{"a":1}],"reasoning":"hm"}`),
		} {
			same.Verdict = judge.Fail
			_, err := f.Create(t.Context(), mine, ann, []New{same}, at)
			dbtest.Refused(t, err, 409, first.ID)
		}
		image := func(data string) New {
			return say(fmt.Sprintf(`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]`, data), `{"role":"assistant","content":"A cat."}`)
		}
		f.make(t, mine, image("AAAA"), image("AAAB"))
	})
}

// A run that has continued is the same run.
func TestARunIsGradedOnce(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.log("req_run_0", "run", "1", "one")
		first := f.make(t, mine, New{TraceID: "run", CriterionID: "crit_1", Verdict: judge.Pass})[0]
		f.log("req_run_1", "run", "2", "two")
		_, err := f.Create(t.Context(), mine, ann, []New{{TraceID: "run", CriterionID: "crit_1", Verdict: judge.Fail}}, at)
		dbtest.Refused(t, err, 409, first.ID)
	})
}

func TestLabelsAreCreatedConcurrently(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		var group sync.WaitGroup
		for w := range 8 {
			group.Go(func() {
				for b := range 4 {
					var batch []New
					for i := range 10 {
						batch = append(batch, turns(fmt.Sprintf("%d-%d-%d", w, b, i), 3)...)
					}
					if _, err := f.Create(t.Context(), mine, ann, batch, at); err != nil {
						t.Errorf("%v", err)
					}
				}
			})
		}
		group.Wait()
		if n := dbtest.Count(t, f.db, "labels"); n != 8*4*30 {
			t.Errorf("%d labels", n)
		}
	})
}
