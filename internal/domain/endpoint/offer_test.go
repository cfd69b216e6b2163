package endpoint

import (
	"reflect"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/api"
)

func TestWhatCanBeServedIsOfferedWithItsPricesAndNothingWithoutABackend(t *testing.T) {
	engines := serving.Engines{
		{Name: "small", BaseModels: []string{"tiny/*"}, GPUTypes: []string{"cpu", "unpriced"}},
		{Name: "vllm", BaseModels: []string{"org/large"}, GPUTypes: []string{"unpriced"}},
	}
	prices := train.Prices{"cpu": money.Dollar, "h200": 4 * money.Dollar}
	for _, c := range []struct {
		backend serving.Backend
		want    []Offer
	}{
		{newWorld(), []Offer{
			{"small", []string{"tiny/*"}, []GPU{{"cpu", money.Dollar}}}, {"vllm", []string{"org/large"}, []GPU{}},
		}},
		{nil, []Offer{}},
	} {
		h := &handler{NewStore(Config{Engines: engines, Prices: prices, Backend: c.backend})}
		if got, err := h.offers(t.Context(), tenant.Caller{}, api.None{}); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("with the backend %v it offers %+v, %v, not %+v", c.backend != nil, got, err, c.want)
		}
	}
}
