package eval

import (
	"errors"
	"testing"

	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// What a request has stored is stored once. A second try of the same request, whose commit succeeded without a word, is
// no other run's: its answer is charged.
func TestAnAnswerWhoseCommitWasNotConfirmedIsItsOwn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine)
		in := d.In(dbtest.Mine)
		for _, c := range []struct {
			requestID string
			want      error
		}{{"req_1", nil}, {"req_1", nil}, {"req_2", errStored}, {"", errStored}} {
			if err := saveAnswer(t.Context(), in, "eval_1", &answer{RequestID: c.requestID}); !errors.Is(err, c.want) {
				t.Errorf("an answer of %q: %v, want %v", c.requestID, err, c.want)
			}
			if err := saveVerdict(t.Context(), in, "eval_1", &verdict{RequestID: c.requestID, Verdict: "tie"}); !errors.Is(err, c.want) {
				t.Errorf("a verdict of %q: %v, want %v", c.requestID, err, c.want)
			}
		}
		for _, table := range []string{"eval_answers", "eval_verdicts"} {
			if n := dbtest.Count(t, d, table); n != 1 {
				t.Errorf("%d rows in %s", n, table)
			}
		}
	})
}
