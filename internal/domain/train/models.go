package train

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
)

// Suffix is a part of the name of a model that is made.
var Suffix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// ModelName is the id of the model that a run makes.
func ModelName(baseModel, suffix, runID string) string {
	parts := []string{baseModel[strings.LastIndexByte(baseModel, '/')+1:]}
	if suffix != "" {
		parts = append(parts, suffix)
	}
	return "ft/" + strings.Join(append(parts, runID[len(runID)-8:]), "-")
}

// BaseName names a base model beside the models that were trained from it, as the engines of those serve it. No trained
// model has such a name.
func BaseName(baseModel string) string { return "ft/base/" + baseModel }

// A Model is a base model that some worker can train.
type Model struct {
	Base
	Methods  []string `json:"methods" nullable:"false"`
	GPUTypes []string `json:"gpu_types" nullable:"false"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Model) SchemaName() string { return "TrainableModel" }

// awayAfter is how long a worker is counted after it last asked for work.
const awayAfter = 24 * time.Hour

// Models lists the base models that workers of the last day can train for a workspace, and those that are started when
// there is work.
func (s *Store) Models(ctx context.Context, ws tenant.ID) ([]Model, error) {
	workers, err := s.Workers(ctx)
	if err != nil {
		return nil, err
	}
	all, since := []Model{}, s.now().Add(-awayAfter)
	known := slices.Clone(s.Offers)
	for _, w := range workers {
		if w.Seen >= since && (w.Workspace == "" || w.Workspace == ws) {
			known = append(known, w.Info)
		}
	}
	for _, info := range known {
		for _, b := range info.Models {
			at := slices.IndexFunc(all, func(m Model) bool { return m.ID == b.ID })
			if at < 0 {
				at = len(all)
				all = append(all, Model{Base: b, Methods: []string{}, GPUTypes: []string{}})
			}
			for _, method := range info.Methods {
				all[at].Methods = addOnce(all[at].Methods, method)
			}
			all[at].GPUTypes = addOnce(all[at].GPUTypes, info.GPUType)
		}
	}
	slices.SortFunc(all, func(a, b Model) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

func addOnce(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

// CheckModel refuses a base model that no worker can train so, and names those that some can.
func (s *Store) CheckModel(ctx context.Context, ws tenant.ID, baseModel, method, gpuType string) error {
	all, err := s.Models(ctx, ws)
	if err != nil {
		return err
	}
	var names []string
	for _, m := range all {
		if names = append(names, m.ID); m.ID != baseModel {
			continue
		}
		switch {
		case !slices.Contains(m.Methods, method):
			return fault.Invalid("method", fmt.Sprintf("%s is not one that a worker trains %s with: %s", method, m.ID,
				strings.Join(m.Methods, ", ")))
		case gpuType != "" && !slices.Contains(m.GPUTypes, gpuType):
			return fault.Invalid("gpuType", fmt.Sprintf("is not one that a worker trains %s on: %s", m.ID,
				strings.Join(m.GPUTypes, ", ")))
		}
		return nil
	}
	if len(names) == 0 {
		return fault.Invalid("baseModel", "cannot be trained: no worker has asked for work in the last day. "+
			"The operator starts one with sovereign train worker")
	}
	return fault.Invalid("baseModel", fmt.Sprintf("is not one that a worker can train: %s", strings.Join(names, ", ")))
}

// CheckRoom refuses a run, which was added, beyond the quota of runs, or where no room is left for the model that it
// makes: a model that was paid for is never refused.
func CheckRoom(ctx context.Context, in db.Scoped) error {
	if err := quota.Check(ctx, in, quota.TrainingRuns, 1); err != nil {
		return err
	}
	return quota.Check(ctx, in, quota.ModelVersions, 1)
}
