package app

import (
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/endpoint"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/store/module"
)

// endpoints returns the module of dedicated endpoints.
func (d *domains) endpoints(i *instance, versions *modelversion.Store) module.Module {
	s := endpoint.NewStore(endpoint.Config{
		DB: i.storage.db, Feed: i.state.feed, Holds: i.state.poster.Holds, Till: i.plane.till,
		Drain: i.state.poster.Drain, Artifacts: i.artifacts, Versions: versions, Prices: i.gpuPrices, Own: i.state.own,
		Registry: i.plane.engines, Groups: i.groups, Backend: i.engines, Engines: i.templates, Choose: i.chooseEngine,
		Folders: i.folders, Log: i.log,
	})
	return endpoint.Module(s, endpoint.Deps{Serving: i.gate, ColdStart: i.serving.ColdStart})
}

// chooseEngine returns the engine that serves a base model on GPUs of a type, by default the engine's first.
func (i *instance) chooseEngine(baseModel, gpuType string) (engine, gpu string, err error) {
	found := i.templates.For(baseModel, gpuType)
	switch {
	case found != nil && gpuType == "":
		return found.Name, found.GPUTypes[0], nil
	case found != nil:
		return found.Name, gpuType, nil
	case i.templates.For(baseModel, "") != nil:
		return "", "", fault.Invalid("gpuType",
			fmt.Sprintf("%q is none on which an engine of the server serves %s", gpuType, baseModel))
	default:
		return "", "", fault.Invalid("baseModel", fmt.Sprintf("%q can be served by no engine of the server", baseModel))
	}
}
