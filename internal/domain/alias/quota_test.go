package alias_test

import (
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/alias"
	"sovereign/internal/store/quota"
)

func TestAQuotaBoundsTheAliasesAndNotTheirRepoints(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		if _, err := quota.Set(t.Context(), r.db, mine, ann, map[string]int64{"aliases": 1}); err != nil {
			t.Fatal(err)
		}
		r.put(t, mine, alias.Alias{Name: "one", TargetModel: "sim/chat"})
		_, err := r.Put(t.Context(), mine, ann, alias.Alias{Name: "two", TargetModel: "sim/chat"})
		if f := fault.From(err); f == nil || f.Kind != fault.QuotaExceeded || r.target(mine, "two") != "" {
			t.Errorf("one too many: %v", err)
		}
		r.put(t, mine, alias.Alias{Name: "one", TargetModel: "sim/c"})
		r.put(t, theirs, alias.Alias{Name: "two", TargetModel: "sim/chat"})
		if err := r.Delete(t.Context(), mine, ann, "one"); err != nil {
			t.Fatal(err)
		}
		r.put(t, mine, alias.Alias{Name: "two", TargetModel: "sim/chat"})
	})
}
