package endpoint

import (
	"context"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

// An Offer is an engine that endpoints may use.
type Offer struct {
	Name       string   `json:"name"`
	BaseModels []string `json:"base_models" nullable:"false" doc:"What it serves, besides versions trained from them: ids, or patterns such as tiny/*"`
	GPUTypes   []GPU    `json:"gpu_types" nullable:"false" doc:"What it runs on; the first is taken when none is asked for"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Offer) SchemaName() string { return "DedicatedEngine" }

// A GPU is a type of GPUs with its price.
type GPU struct {
	Type   string     `json:"gpu_type"`
	Hourly money.Nano `json:"hourly_usd" doc:"What an hour of one costs"`
}

// SchemaName is the type's name in the OpenAPI document.
func (GPU) SchemaName() string { return "DedicatedGPU" }

// offers lists the engines of the server, with the GPU types that have a price. A server that runs no engines has none.
func (h *handler) offers(context.Context, tenant.Caller, api.None) ([]Offer, error) {
	all := []Offer{}
	if h.s.Backend == nil {
		return all, nil
	}
	for _, e := range h.s.Engines {
		o := Offer{Name: e.Name, BaseModels: e.BaseModels, GPUTypes: []GPU{}}
		for _, gpu := range e.GPUTypes {
			if price, ok := h.s.Prices[gpu]; ok {
				o.GPUTypes = append(o.GPUTypes, GPU{gpu, price})
			}
		}
		all = append(all, o)
	}
	return all, nil
}
