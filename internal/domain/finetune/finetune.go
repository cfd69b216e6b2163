// Package finetune trains models on examples: files that were uploaded, datasets of logs, or what a reward session
// scored. A job is a run of package train; what it makes is a model version.
package finetune

import (
	"cmp"
	"math"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/train"
)

// A Request is what a job is asked for.
type Request struct {
	BaseModel       string          `json:"baseModel" doc:"A model of GET /v1/fine-tuning/models, or a version of one: its id (mv_…) or its name (ft/…)"`
	TrainingFile    string          `json:"trainingFile,omitempty" doc:"The id of an uploaded file; or datasetId, or rewardSessionId"`
	DatasetID       string          `json:"datasetId,omitempty" doc:"A dataset; its holdout, if it has one, validates"`
	RewardSessionID string          `json:"rewardSessionId,omitempty" doc:"A reward session: its passing completions for sft, its pairs for dpo"`
	ValidationFile  string          `json:"validationFile,omitempty" doc:"The id of an uploaded file"`
	Method          string          `json:"method,omitempty" default:"sft" enum:"sft,dpo"`
	Suffix          string          `json:"suffix,omitempty" doc:"A part of the name of the model that is made"`
	Seed            *int64          `json:"seed,omitempty" minimum:"0" maximum:"2147483647" doc:"By default a random one, which the job shows"`
	Budget          money.Nano      `json:"budgetUsd,omitempty" doc:"What it may cost at most; set aside from the wallet. An estimate needs none"`
	GPUType         string          `json:"gpuType,omitempty" doc:"By default any"`
	GPUCount        int64           `json:"gpuCount,omitempty" default:"1" minimum:"1" maximum:"64"`
	Hyperparameters Hyperparameters `json:"hyperparameters,omitempty"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Request) SchemaName() string { return "FineTuningRequest" }

// Hyperparameters are how a job trains.
type Hyperparameters struct {
	Epochs                int64   `json:"epochs,omitempty" default:"3" minimum:"1" maximum:"100"`
	MaxSteps              int64   `json:"maxSteps,omitempty" minimum:"0" maximum:"1000000" doc:"Ends earlier than the epochs; 0 for no bound"`
	BatchSize             int64   `json:"batchSize,omitempty" default:"8" minimum:"1" maximum:"1024"`
	GradientAccumulation  int64   `json:"gradientAccumulation,omitempty" default:"1" minimum:"1" maximum:"256"`
	LearningRate          float64 `json:"learningRate,omitempty" default:"0.0002" exclusiveMinimum:"0" maximum:"1"`
	WarmupRatio           float64 `json:"warmupRatio,omitempty" minimum:"0" maximum:"0.5"`
	WeightDecay           float64 `json:"weightDecay,omitempty" minimum:"0" maximum:"1"`
	MaxLength             int64   `json:"maxLength,omitempty" default:"1024" minimum:"16" maximum:"131072" doc:"Tokens of an example; longer ones are cut"`
	LoRARank              *int64  `json:"loraRank,omitempty" default:"16" minimum:"0" maximum:"256" doc:"0 trains the full weights"`
	LoRAAlpha             float64 `json:"loraAlpha,omitempty" minimum:"0" maximum:"1024" doc:"By default twice the rank"`
	LoRADropout           float64 `json:"loraDropout,omitempty" minimum:"0" maximum:"0.5"`
	Beta                  float64 `json:"beta,omitempty" default:"0.1" exclusiveMinimum:"0" maximum:"10" doc:"Of DPO: how close it stays to the base model"`
	CheckpointEvery       int64   `json:"checkpointEvery,omitempty" default:"50" minimum:"1" maximum:"10000" doc:"Steps between two checkpoints"`
	EarlyStoppingPatience int64   `json:"earlyStoppingPatience,omitempty" minimum:"0" maximum:"100" doc:"Ends after so many checkpoints without a lower validation loss; 0 never does"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Hyperparameters) SchemaName() string { return "FineTuningHyperparameters" }

// Shown are hyperparameters as the API shows them: in snake case, like everything that it answers.
type Shown struct {
	Epochs                int64   `json:"epochs"`
	MaxSteps              int64   `json:"max_steps"`
	BatchSize             int64   `json:"batch_size"`
	GradientAccumulation  int64   `json:"gradient_accumulation"`
	LearningRate          float64 `json:"learning_rate"`
	WarmupRatio           float64 `json:"warmup_ratio"`
	WeightDecay           float64 `json:"weight_decay"`
	MaxLength             int64   `json:"max_length"`
	LoRARank              int64   `json:"lora_rank"`
	LoRAAlpha             float64 `json:"lora_alpha"`
	LoRADropout           float64 `json:"lora_dropout"`
	Beta                  float64 `json:"beta"`
	CheckpointEvery       int64   `json:"checkpoint_every"`
	EarlyStoppingPatience int64   `json:"early_stopping_patience"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Shown) SchemaName() string { return "FineTuningHyperparametersInForce" }

// defaults fills in what was not given.
func (r *Request) defaults() {
	r.Method = cmp.Or(r.Method, "sft")
	r.GPUCount = cmp.Or(r.GPUCount, 1)
	h := &r.Hyperparameters
	h.Epochs = cmp.Or(h.Epochs, 3)
	h.BatchSize = cmp.Or(h.BatchSize, 8)
	h.GradientAccumulation = cmp.Or(h.GradientAccumulation, 1)
	h.LearningRate = cmp.Or(h.LearningRate, 2e-4)
	h.MaxLength = cmp.Or(h.MaxLength, 1024)
	h.Beta = cmp.Or(h.Beta, 0.1)
	h.CheckpointEvery = cmp.Or(h.CheckpointEvery, 50)
	if h.LoRARank == nil {
		rank := int64(16)
		h.LoRARank = &rank
	}
	h.LoRAAlpha = cmp.Or(h.LoRAAlpha, float64(2**h.LoRARank))
}

// Check reports the first rule that a request breaks, naming the field.
func (r *Request) Check() error {
	given := 0
	for _, source := range []string{r.TrainingFile, r.DatasetID, r.RewardSessionID} {
		if source != "" {
			given++
		}
	}
	switch {
	case r.BaseModel == "":
		return fault.Invalid("baseModel", "is missing: GET /v1/fine-tuning/models lists what can be trained")
	case given != 1:
		return fault.Invalid("trainingFile", "or datasetId or rewardSessionId must be given, and only one of them")
	}
	return r.checkTraining()
}

// checkTraining is Check, of what does not concern the model and the data.
func (r *Request) checkTraining() error {
	h := &r.Hyperparameters
	switch {
	case r.Method != "sft" && r.Method != "dpo":
		return fault.Invalid("method", "must be sft or dpo")
	case r.Method == "dpo" && r.DatasetID != "":
		return fault.Invalid("datasetId", "has no preferences: dpo needs a file of preferences, or a reward session")
	case r.Suffix != "" && !train.Suffix.MatchString(r.Suffix):
		return fault.Invalid("suffix", "must be 1 to 40 lower-case letters, digits and dashes")
	case r.Budget < money.Dollar/100:
		return fault.Invalid("budgetUsd", "must be at least 0.01")
	case r.GPUCount < 1 || r.GPUCount > 64:
		return fault.Invalid("gpuCount", "must be 1 to 64")
	}
	return train.CheckBounds(
		train.Within("hyperparameters.epochs", float64(h.Epochs), 1, 100),
		train.Within("hyperparameters.maxSteps", float64(h.MaxSteps), 0, 1e6),
		train.Within("hyperparameters.batchSize", float64(h.BatchSize), 1, 1024),
		train.Within("hyperparameters.gradientAccumulation", float64(h.GradientAccumulation), 1, 256),
		train.Within("hyperparameters.learningRate", h.LearningRate, math.SmallestNonzeroFloat64, 1),
		train.Within("hyperparameters.warmupRatio", h.WarmupRatio, 0, 0.5),
		train.Within("hyperparameters.weightDecay", h.WeightDecay, 0, 1),
		train.Within("hyperparameters.maxLength", float64(h.MaxLength), 16, 131072),
		train.Within("hyperparameters.loraRank", float64(*h.LoRARank), 0, 256),
		train.Within("hyperparameters.loraAlpha", h.LoRAAlpha, 0, 1024),
		train.Within("hyperparameters.loraDropout", h.LoRADropout, 0, 0.5),
		train.Within("hyperparameters.beta", h.Beta, math.SmallestNonzeroFloat64, 10),
		train.Within("hyperparameters.checkpointEvery", float64(h.CheckpointEvery), 1, 10000),
		train.Within("hyperparameters.earlyStoppingPatience", float64(h.EarlyStoppingPatience), 0, 100),
	)
}

// steps returns how many steps a number of examples takes.
func (h *Hyperparameters) steps(rows int64) int64 {
	batch := h.BatchSize * h.GradientAccumulation
	steps := (rows + batch - 1) / batch * h.Epochs
	if h.MaxSteps > 0 {
		steps = min(steps, h.MaxSteps)
	}
	return steps
}

// A spec is what the worker of a job is told.
type spec struct {
	train.Spec
	Format          Format     `json:"format"`
	Seed            int64      `json:"seed"`
	Method          string     `json:"method"`
	LoRA            *lora      `json:"lora"`
	Hyperparameters workerSide `json:"hyperparameters"`
	CheckpointEvery int64      `json:"checkpoint_every"`
	Patience        int64      `json:"early_stopping_patience"`
	Validation      bool       `json:"validation"`
}

type lora struct {
	Rank    int64   `json:"rank"`
	Alpha   float64 `json:"alpha"`
	Dropout float64 `json:"dropout"`
}

// workerSide is Hyperparameters as workers read them.
type workerSide struct {
	Epochs               int64   `json:"epochs"`
	MaxSteps             int64   `json:"max_steps"`
	BatchSize            int64   `json:"batch_size"`
	GradientAccumulation int64   `json:"gradient_accumulation"`
	LearningRate         float64 `json:"learning_rate"`
	WarmupRatio          float64 `json:"warmup_ratio"`
	WeightDecay          float64 `json:"weight_decay"`
	MaxLength            int64   `json:"max_length"`
	Beta                 float64 `json:"beta"`
}

// The names of the inputs.
const (
	trains    = "train.jsonl"
	validates = "validation.jsonl"
)

// newSpec returns what the worker of a request is told.
func newSpec(r *Request, format Format, inputs []train.Input) spec {
	h := &r.Hyperparameters
	s := spec{
		Spec: train.Spec{Inputs: inputs}, Format: format, Seed: *r.Seed, Method: r.Method,
		CheckpointEvery: h.CheckpointEvery, Patience: h.EarlyStoppingPatience,
		Validation: slices.ContainsFunc(inputs, func(f train.Input) bool { return f.Name == validates }),
		Hyperparameters: workerSide{
			h.Epochs, h.MaxSteps, h.BatchSize, h.GradientAccumulation, h.LearningRate, h.WarmupRatio, h.WeightDecay,
			h.MaxLength, h.Beta,
		},
	}
	if *h.LoRARank > 0 {
		s.LoRA = &lora{*h.LoRARank, h.LoRAAlpha, h.LoRADropout}
	}
	return s
}

// A File is a file of training examples.
type File struct {
	ID        string     `json:"id"`
	Object    string     `json:"object" db:"-" enum:"file"`
	Name      string     `json:"filename"`
	Purpose   string     `json:"purpose" db:"-" enum:"fine-tune"`
	Format    Format     `json:"format" enum:"chat,prompt_completion,preference"`
	Bytes     int64      `json:"bytes"`
	Rows      int64      `json:"rows" db:"row_count"`
	Digest    string     `json:"sha256"`
	CreatedAt clock.Time `json:"created_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (File) SchemaName() string { return "TrainingFile" }

// A Job is a fine-tuning job as the API shows it.
type Job struct {
	ID              string       `json:"id"`
	Object          string       `json:"object" enum:"fine_tuning.job"`
	Status          train.Status `json:"status" enum:"QUEUED,VALIDATING,RUNNING,PAUSED,SUCCEEDED,FAILED,CANCELLED"`
	BaseModel       string       `json:"base_model"`
	ParentID        *string      `json:"parent_id" doc:"The model version whose weights it begins with; null for the base model"`
	Method          string       `json:"method"`
	Hyperparameters Shown        `json:"hyperparameters"`
	TrainingFile    *string      `json:"training_file"`
	ValidationFile  *string      `json:"validation_file"`
	DatasetID       *string      `json:"dataset_id"`
	RewardSessionID *string      `json:"reward_session_id"`
	Seed            int64        `json:"seed"`
	OutputModel     *string      `json:"output_model"`
	ModelVersionID  *string      `json:"model_version_id"`
	TrainedTokens   int64        `json:"trained_tokens"`
	Step            int64        `json:"step"`
	TotalSteps      int64        `json:"total_steps" doc:"0 until it is known"`
	Progress        float64      `json:"progress" doc:"0 to 1"`
	GPUType         *string      `json:"gpu_type" doc:"Of the worker"`
	GPUCount        int64        `json:"gpu_count"`
	GPUSeconds      int64        `json:"gpu_seconds" doc:"Metered in attempts that are or will be charged"`
	Budget          money.Nano   `json:"budget_usd"`
	Estimate        *money.Nano  `json:"estimated_cost_usd" doc:"Before it began; null where nothing is known of the model on that GPU"`
	Spent           money.Nano   `json:"spent_usd" doc:"According to the ledger: an attempt is charged when it has ended"`
	Accrued         money.Nano   `json:"accrued_usd" doc:"Of the attempt that runs, not charged yet"`
	Attempt         int64        `json:"attempt"`
	PausedReason    *string      `json:"paused_reason"`
	Error           *JobError    `json:"error"`
	CreatedAt       clock.Time   `json:"created_at"`
	StartedAt       *clock.Time  `json:"started_at"`
	FinishedAt      *clock.Time  `json:"finished_at"`
	EstimatedFinish *clock.Time  `json:"estimated_finish_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Job) SchemaName() string { return "FineTuningJob" }

// A JobError is why a job failed.
type JobError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// SchemaName is the type's name in the OpenAPI document.
func (JobError) SchemaName() string { return "FineTuningError" }

// A Checkpoint is a state of a job as the API shows it.
type Checkpoint struct {
	ID             string         `json:"id"`
	Object         string         `json:"object" enum:"fine_tuning.job.checkpoint"`
	Step           int64          `json:"step"`
	Metrics        jsontext.Value `json:"metrics"`
	ModelVersionID *string        `json:"model_version_id"`
	Bytes          int64          `json:"bytes"`
	SHA256         string         `json:"sha256" doc:"Of the manifest of its files"`
	CreatedAt      clock.Time     `json:"created_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Checkpoint) SchemaName() string { return "FineTuningCheckpoint" }
