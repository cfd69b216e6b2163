package finetune

import (
	"context"
	"fmt"
	"slices"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/db"
)

// An Estimate is what a job will probably take and cost.
type Estimate struct {
	Rows    int64       `json:"rows"`
	Steps   int64       `json:"steps"`
	Tokens  int64       `json:"tokens" doc:"Of all epochs, estimated from the bytes"`
	Seconds *float64    `json:"seconds" doc:"Null where nothing is known of the model on that GPU"`
	Cost    *money.Nano `json:"estimated_cost_usd"`
	Basis   string      `json:"basis" enum:"measured,computed,unknown" doc:"measured: by earlier jobs of the same model and GPU. computed: from the model's size and the GPU's speed"`
	GPUType string      `json:"gpu_type"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Estimate) SchemaName() string { return "FineTuningEstimate" }

func (e *Estimate) stored() int64 {
	if e == nil || e.Cost == nil {
		return -1
	}
	return int64(*e.Cost)
}

// bytesPerToken is what English text has, about.
const bytesPerToken = 4

// flops are the operations in a second that a GPU reaches in training, about a third of its peak in bf16.
var flops = map[string]float64{"h200": 330e12, "h100": 330e12, "a100": 105e12, "l40s": 120e12, "a10": 40e12, "cpu": 5e9}

// startSeconds is what a worker takes before the first step.
const startSeconds = 30

// Estimate estimates a request whose data is a file or a dataset.
func (s *Store) Estimate(ctx context.Context, ws tenant.ID, in Request) (Estimate, error) {
	in.defaults()
	if in.Budget == 0 {
		in.Budget = money.Dollar // none is asked for
	}
	if err := in.Check(); err != nil {
		return Estimate{}, err
	}
	start, err := s.Versions.Start(ctx, s.DB.In(ws), in.BaseModel)
	if err != nil {
		return Estimate{}, err
	}
	in.BaseModel = start.BaseModel
	if err := s.Train.CheckModel(ctx, ws, in.BaseModel, in.Method, in.GPUType); err != nil {
		return Estimate{}, err
	}
	rows := int64(-1)
	switch {
	case in.TrainingFile != "":
		f, err := s.File(ctx, s.DB.In(ws), in.TrainingFile)
		if err != nil {
			return Estimate{}, err
		}
		rows = f.Rows
	case in.DatasetID != "":
		d, err := s.Datasets.Get(ctx, ws, in.DatasetID)
		if err != nil {
			return Estimate{}, err
		}
		rows = d.Rows
	}
	e, err := s.estimate(ctx, ws, s.DB.In(ws), &in, rows)
	if e == nil {
		e = &Estimate{Rows: max(rows, 0), Basis: "unknown"}
	}
	return *e, err
}

// estimate returns what a request will probably cost: nil where nothing is known of its data.
func (s *Store) estimate(
	ctx context.Context, ws tenant.ID, scope db.Scoped, in *Request, rows int64,
) (*Estimate, error) {
	if rows < 0 {
		return nil, nil //nolint:nilnil // nothing is known
	}
	h := &in.Hyperparameters
	e := &Estimate{Rows: rows, Steps: h.steps(rows), Basis: "unknown"}
	perRow := h.MaxLength / 2
	if in.TrainingFile != "" {
		f, err := s.File(ctx, scope, in.TrainingFile)
		if err != nil {
			return nil, err
		}
		perRow = min(max(f.Bytes/f.Rows/bytesPerToken, 1), h.MaxLength)
	}
	e.Tokens = e.Steps * h.BatchSize * h.GradientAccumulation * perRow
	models, err := s.Train.Models(ctx, ws)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(models, func(m train.Model) bool { return m.ID == in.BaseModel })
	if at < 0 {
		return e, nil
	}
	if e.GPUType = in.GPUType; e.GPUType == "" && len(models[at].GPUTypes) > 0 {
		e.GPUType = models[at].GPUTypes[0]
	}
	speed, err := s.Train.Speed(ctx, in.BaseModel, e.GPUType)
	if err != nil {
		return nil, fmt.Errorf("estimate a fine-tuning job: %w", err)
	}
	switch each := flops[e.GPUType]; {
	case speed > 0:
		e.Basis = "measured"
	case each > 0 && models[at].Parameters > 0:
		e.Basis, speed = "computed", each/(6*float64(models[at].Parameters))
	default:
		return e, nil
	}
	seconds := startSeconds + float64(e.Tokens)/speed/float64(in.GPUCount)
	cost, ok := s.Train.Cost(e.GPUType, int64(seconds*float64(in.GPUCount)))
	if e.Seconds = &seconds; ok {
		e.Cost = &cost
	}
	return e, nil
}
