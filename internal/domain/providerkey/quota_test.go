package providerkey_test

import (
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/domain/providerkey"
	"sovereign/internal/store/quota"
)

func TestAQuotaBoundsTheProviderKeysAndNotTheirRotation(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		if _, err := quota.Set(t.Context(), r.db, mine, ann, map[string]int64{"provider_keys": 1}); err != nil {
			t.Fatal(err)
		}
		r.put(t, mine, "up", "sk-one", "")
		r.put(t, mine, "up", "sk-two", "")
		_, err := r.Put(t.Context(), mine, ann, providerkey.New{Provider: "other", APIKey: secret.New("sk-three")})
		if f := fault.From(err); f == nil || f.Kind != fault.QuotaExceeded || r.live.Find(mine, "other") != nil {
			t.Errorf("one too many: %v", err)
		}
	})
}
