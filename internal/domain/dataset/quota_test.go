package dataset_test

import (
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/store/quota"
)

// A dataset with a holdout counts as two, from the beginning of its build.
func TestAQuotaBoundsTheDatasets(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		if _, err := quota.Set(t.Context(), r.db, mine, ann, map[string]int64{"datasets": 2}); err != nil {
			t.Fatal(err)
		}
		r.stop() // nothing is built
		if _, err := r.Start(t.Context(), mine, ann, dataset.Recipe{Name: "one", Holdout: 10}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Start(t.Context(), mine, ann, dataset.Recipe{Name: "two"}); !refused(err, fault.QuotaExceeded) {
			t.Errorf("one too many: %v", err)
		}
		if _, err := r.Start(t.Context(), theirs, ann, dataset.Recipe{Name: "two"}); err != nil {
			t.Error(err)
		}
	})
}
