package criterion_test

import (
	"testing"

	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/quota"
)

func TestAQuotaBoundsTheCriteria(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		if _, err := quota.Set(t.Context(), e.DB, mine, ann, map[string]int64{"criteria": 1}); err != nil {
			t.Fatal(err)
		}
		create := func() error {
			d := criterion.Definition{Name: judgingtest.Ptr("x"), Rubric: judgingtest.Ptr("x"), JudgeModel: judgingtest.Ptr(judgingtest.Model)}
			_, err := e.Criteria.Create(t.Context(), mine, ann, &d, judgingtest.Catalog{})
			return err
		}
		if err := create(); err != nil {
			t.Fatal(err)
		}
		dbtest.Refused(t, create(), 409, "quota of criteria is 1")
	})
}
