package canary

import (
	"context"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/store/api"
)

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Get("/aliases/{name}/gate", api.Reader, h.gate,
			"Read what a gate knows about a canary: its verdict, the evidence over time, earlier epochs"),
	}
}

type gateQuery struct {
	Name  string `path:"name"`
	Epoch string `query:"epoch" doc:"Whose points are shown; those of the last one by default"`
}

// A History is what a gate knows, and knew.
type History struct {
	Object string `json:"object" enum:"gate"`
	Alias  string `json:"alias"`
	alias.GateReport
	Points []Point `json:"points" nullable:"false" doc:"The evidence over time, the oldest first: a few hundred at most"`
	Epochs []Epoch `json:"epochs" nullable:"false" doc:"The last 50, the newest first"`
}

// SchemaName is the type's name in the OpenAPI document. It hides that of the embedded report.
func (History) SchemaName() string { return "GateHistory" }

// An Epoch is what a gate knew at the end of an epoch, or knows now.
type Epoch struct {
	alias.GateReport
	EndedAt *clock.Time `json:"ended_at" doc:"null for the current one"`
}

// SchemaName is the type's name in the OpenAPI document. It hides that of the embedded report.
func (Epoch) SchemaName() string { return "GateEpoch" }

func (h *handler) gate(ctx context.Context, caller tenant.Caller, in gateQuery) (History, error) {
	return h.store.History(ctx, caller.Workspace, in.Name, in.Epoch)
}

// History reads what the gate of an alias knows, with the points of an epoch, or of the last one.
func (s *Store) History(ctx context.Context, ws tenant.ID, name, epochID string) (History, error) {
	scope := s.DB.In(ws)
	a, err := alias.Find(ctx, scope, name)
	switch {
	case err != nil:
		return History{}, err
	case a == nil:
		return History{}, fault.NotFound("alias", name)
	case !a.Gated():
		return History{}, fault.Missing.New("the alias %q has no gate: set its gate_criterion_id", name)
	}
	all, err := epochs(ctx, scope, name)
	if err != nil {
		return History{}, err
	}
	one := []alias.Alias{*a}
	if err := s.Show(ctx, scope, one); err != nil {
		return History{}, err
	}
	found := History{
		Object: "gate", Alias: name, GateReport: *one[0].Gate, Points: []Point{}, Epochs: make([]Epoch, len(all)),
	}
	for i := range all {
		shown, err := all[i].shown(a, s.now())
		if err != nil {
			return found, err
		}
		if found.Epochs[i].GateReport = *shown; all[i].EndedAt > 0 {
			found.Epochs[i].EndedAt = &all[i].EndedAt
		}
	}
	if epochID == "" {
		epochID = a.GateEpoch
	} else if !slices.ContainsFunc(all, func(e epoch) bool { return e.ID == epochID }) {
		return found, fault.NotFound("epoch", epochID)
	}
	if some, err := points(ctx, scope, epochID); err != nil {
		return found, err
	} else if some != nil {
		found.Points = some
	}
	return found, nil
}
