package label

import (
	"context"
	"fmt"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

type handler struct{ store *Store }

func (h *handler) routes() []api.Route {
	return []api.Route{
		api.Post("/labels", api.Admin, h.create, "Grade an exchange or a run, or many at once", api.Creates, api.Long),
		api.Get("/labels", api.Reader, h.list, "List labels"),
		api.Get("/labels/{id}", api.Reader, h.get, "Read a label with what it grades",
			api.Shapes(reflect.TypeFor[Label](), reflect.TypeFor[Blind]())),
		api.Delete("/labels/{id}", api.Admin, h.delete,
			"Delete a label; a certificate that it was measured by is void"),
		api.Post("/labels/{id}/adjudication", api.Admin, h.adjudicate,
			"Rule on a label that a judge disagrees with, or review one blindly"),
		api.Get("/criteria/{id}/agreement", api.Reader, h.agreement,
			"Measure how far people agree with each other on what several of them graded"),
	}
}

// maxLabels is how many labels one request may have.
const maxLabels = 1000

// posted is the body of a request: one label, or a list of them.
type posted struct {
	New
	Labels []New `json:"labels,omitempty" nullable:"true" doc:"Many labels, in place of one: all of them are kept, or none"`
}

// Created is the answer to posted: the label, or the list of them.
type Created struct {
	Label
	Data    []Label `json:"data,omitempty" doc:"Where several were posted: they stand here, and the object is list"`
	HasMore bool    `json:"has_more,omitempty"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Created) SchemaName() string { return "Made" }

// MarshalJSONTo writes a label, or a list.
func (c Created) MarshalJSONTo(to *jsontext.Encoder) error {
	if c.Data != nil {
		return json.MarshalEncode(to, api.List[Label]{Object: "list", Data: c.Data}, lenient)
	}
	return json.MarshalEncode(to, c.Label, lenient)
}

func (h *handler) create(ctx context.Context, caller tenant.Caller, in posted) (Created, error) {
	if in.Labels == nil {
		created, err := h.store.Create(ctx, caller.Workspace, caller.Actor(), []New{in.New}, func(int) string {
			return ""
		})
		if err != nil {
			return Created{}, err
		}
		return Created{Label: created[0]}, nil
	}
	switch one, _ := json.Marshal(in.New); {
	case string(one) != "{}":
		return Created{}, fault.Invalid("labels", "stands alone: each label has its own fields")
	case len(in.Labels) == 0 || len(in.Labels) > maxLabels:
		return Created{}, fault.Invalid("labels", fmt.Sprintf("must be a list of 1 to %d labels", maxLabels))
	}
	created, err := h.store.Create(ctx, caller.Workspace, caller.Actor(), in.Labels, func(i int) string {
		return fmt.Sprintf("labels[%d].", i)
	})
	return Created{Data: created}, err
}

type listQuery struct {
	Filters
	api.Page
}

func (h *handler) list(ctx context.Context, caller tenant.Caller, in listQuery) (api.List[Label], error) {
	all, err := h.store.List(ctx, caller.Workspace, &in.Filters, in.More(), in.Offset)
	return api.NewList(in.Page, all), err
}

type one struct {
	ID string `path:"id"`
}

type reading struct {
	ID    string `path:"id"`
	Blind bool   `query:"blind" doc:"true leaves the grade out: for whoever reviews it without knowing it"`
}

func (h *handler) get(ctx context.Context, caller tenant.Caller, in reading) (Reading, error) {
	l, err := h.store.Get(ctx, caller.Workspace, in.ID)
	return Reading{Label: l, blind: in.Blind}, err
}

// A Reading is a label as a caller reads it. A blind one leaves the grade out.
type Reading struct {
	Label
	blind bool
}

// Blind is a label without its grade. No member tells what the grade is.
type Blind struct {
	ID          string  `json:"id"`
	Object      string  `json:"object" enum:"label"`
	RequestID   *string `json:"request_id" doc:"The exchange that was graded; null for a trace, and for what was sent along"`
	TraceID     *string `json:"trace_id" doc:"The whole run that was graded; null for an exchange"`
	CriterionID *string `json:"criterion_id" doc:"The judge that the grade is for, if it is for one"`
	Subject     *Frozen `json:"subject" doc:"What was graded, as it was then"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Blind) SchemaName() string { return "BlindLabel" }

// MarshalJSONTo writes the label, or the part of it that a blind review may see.
func (r Reading) MarshalJSONTo(to *jsontext.Encoder) error {
	if !r.blind {
		return json.MarshalEncode(to, r.Label, lenient)
	}
	return json.MarshalEncode(to, Blind{r.ID, r.Object, r.RequestID, r.TraceID, r.CriterionID, r.Subject}, lenient)
}

func (h *handler) delete(ctx context.Context, caller tenant.Caller, in one) (api.Deleted, error) {
	return api.Deleted{ID: in.ID, Object: object, Deleted: true}, h.store.Delete(ctx, caller.Workspace, caller.Actor(),
		in.ID)
}

func (h *handler) agreement(ctx context.Context, caller tenant.Caller, in one) (Agreement, error) {
	return h.store.Agreement(ctx, caller.Workspace, in.ID)
}

type ruling struct {
	ID   string `path:"id"`
	Body Ruling
}

func (h *handler) adjudicate(ctx context.Context, caller tenant.Caller, in ruling) (Label, error) {
	return h.store.Adjudicate(ctx, caller.Workspace, caller.Actor(), in.ID, in.Body)
}
