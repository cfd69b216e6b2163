package label

import (
	"testing"

	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/quota"
)

func TestAQuotaBoundsTheLabelsOfABatchAsAWhole(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		if _, err := quota.Set(t.Context(), f.db, mine, ann, map[string]int64{"labels": 3}); err != nil {
			t.Fatal(err)
		}
		f.make(t, mine, inline(judge.Pass, "a", "b"), inline(judge.Fail, "c", "d"))
		_, err := f.Create(t.Context(), mine, ann, []New{inline(judge.Pass, "e", "f"), inline(judge.Fail, "g", "h")}, at)
		dbtest.Refused(t, err, 409, "stores 2 labels, and its quota of labels is 3: 2 more do not fit")
		f.make(t, mine, inline(judge.Pass, "e", "f"))
	})
}
