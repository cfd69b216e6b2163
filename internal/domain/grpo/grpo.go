// Package grpo trains a model by reinforcement: the worker samples groups of completions, a certified reward session
// scores them, and the session's anchor holds the run when the reward no longer means what it meant. A run is a run of
// package train. What it ends with is a candidate: a model version that waits for an eval against its base.
package grpo

import (
	"cmp"
	"math"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/train"
)

// kind is what the runs, holds and usage rows are called.
const kind = "grpo_run"

// A Request is what a run is asked for.
type Request struct {
	BaseModel         string     `json:"baseModel" doc:"A model of GET /v1/fine-tuning/models, or a version of one: its id (mv_…) or its name (ft/…)"`
	DatasetID         string     `json:"datasetId" doc:"Its conversations, without the last answers, are the prompts"`
	PromptCount       int64      `json:"promptCount,omitempty" minimum:"0" maximum:"100000" doc:"How many of them; 0 for all"`
	CriterionID       string     `json:"criterionId" doc:"The judge that rewards: it needs a certificate"`
	AnchorCriterionID string     `json:"anchorCriterionId,omitempty" doc:"An independent judge that holds the run when the reward diverges from it"`
	EnvironmentTools  []string   `json:"environmentToolIds,omitempty" maxItems:"16" doc:"Tools that the model may call in a rollout"`
	GroupSize         int64      `json:"groupSize,omitempty" default:"8" minimum:"2" maximum:"64" doc:"Completions of a prompt, which are compared with each other"`
	PromptsPerStep    int64      `json:"promptsPerStep,omitempty" default:"4" minimum:"1" maximum:"256"`
	MaxSteps          int64      `json:"maxSteps,omitempty" default:"100" minimum:"1" maximum:"100000"`
	KLBeta            *float64   `json:"klBeta,omitempty" default:"0.02" minimum:"0" maximum:"10" doc:"How much it costs to move away from the base model"`
	LearningRate      float64    `json:"learningRate,omitempty" default:"0.00001" exclusiveMinimum:"0" maximum:"1"`
	Temperature       float64    `json:"temperature,omitempty" default:"1" exclusiveMinimum:"0" maximum:"2"`
	MaxTokens         int64      `json:"maxCompletionTokens,omitempty" default:"256" minimum:"1" maximum:"32768"`
	MaxTurns          int64      `json:"maxTurns,omitempty" default:"4" minimum:"1" maximum:"32" doc:"Answers of the model in a rollout with tools"`
	LoRARank          *int64     `json:"loraRank,omitempty" default:"16" minimum:"0" maximum:"256" doc:"0 trains the full weights"`
	CheckpointEvery   int64      `json:"checkpointEvery,omitempty" default:"10" minimum:"1" maximum:"10000"`
	Seed              *int64     `json:"seed,omitempty" minimum:"0" maximum:"2147483647"`
	Suffix            string     `json:"suffix,omitempty"`
	GPUType           string     `json:"gpuType,omitempty"`
	GPUCount          int64      `json:"gpuCount,omitempty" default:"1" minimum:"1" maximum:"64"`
	Budget            money.Nano `json:"budgetUsd" doc:"For GPUs and rewards together; set aside from the wallet"`
	RewardBudget      money.Nano `json:"rewardBudgetUsd,omitempty" doc:"The part that the judges may cost; by default half of the budget"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Request) SchemaName() string { return "GRPORequest" }

// defaults fills in what was not given.
func (r *Request) defaults() {
	r.GroupSize = cmp.Or(r.GroupSize, 8)
	r.PromptsPerStep = cmp.Or(r.PromptsPerStep, 4)
	r.MaxSteps = cmp.Or(r.MaxSteps, 100)
	r.LearningRate = cmp.Or(r.LearningRate, 1e-5)
	r.Temperature = cmp.Or(r.Temperature, 1)
	r.MaxTokens = cmp.Or(r.MaxTokens, 256)
	r.MaxTurns = cmp.Or(r.MaxTurns, 4)
	r.CheckpointEvery = cmp.Or(r.CheckpointEvery, 10)
	r.GPUCount = cmp.Or(r.GPUCount, 1)
	r.RewardBudget = cmp.Or(r.RewardBudget, r.Budget/2)
	if r.KLBeta == nil {
		beta := 0.02
		r.KLBeta = &beta
	}
	if r.LoRARank == nil {
		rank := int64(16)
		r.LoRARank = &rank
	}
}

// Check reports the first rule that a request breaks, naming the field.
func (r *Request) Check() error {
	switch {
	case r.BaseModel == "":
		return fault.Invalid("baseModel", "is missing: GET /v1/fine-tuning/models lists what can be trained")
	case r.DatasetID == "":
		return fault.Invalid("datasetId", "is missing: its conversations are the prompts")
	case r.CriterionID == "":
		return fault.Invalid("criterionId", "is missing: a certified judge gives the reward")
	case r.Budget < money.Dollar/50:
		return fault.Invalid("budgetUsd", "must be at least 0.02")
	case r.RewardBudget <= 0 || r.RewardBudget >= r.Budget:
		return fault.Invalid("rewardBudgetUsd", "must be above 0 and below budgetUsd: the rest pays for GPUs")
	case len(r.EnvironmentTools) > 16:
		return fault.Invalid("environmentToolIds", "must be at most 16 tools")
	case r.Suffix != "" && !train.Suffix.MatchString(r.Suffix):
		return fault.Invalid("suffix", "must be 1 to 40 lower-case letters, digits and dashes")
	}
	if err := train.CheckBounds(
		train.Within("promptCount", float64(r.PromptCount), 0, 1e5),
		train.Within("groupSize", float64(r.GroupSize), 2, 64),
		train.Within("promptsPerStep", float64(r.PromptsPerStep), 1, 256),
		train.Within("maxSteps", float64(r.MaxSteps), 1, 1e5),
		train.Within("klBeta", *r.KLBeta, 0, 10),
		train.Within("learningRate", r.LearningRate, math.SmallestNonzeroFloat64, 1),
		train.Within("temperature", r.Temperature, math.SmallestNonzeroFloat64, 2),
		train.Within("maxCompletionTokens", float64(r.MaxTokens), 1, 32768),
		train.Within("maxTurns", float64(r.MaxTurns), 1, 32),
		train.Within("loraRank", float64(*r.LoRARank), 0, 256),
		train.Within("checkpointEvery", float64(r.CheckpointEvery), 1, 1e4),
		train.Within("gpuCount", float64(r.GPUCount), 1, 64),
	); err != nil {
		return err
	}
	if r.GroupSize*r.PromptsPerStep > 512 {
		return fault.Invalid("promptsPerStep", "times groupSize must be at most 512: that many are scored in one call")
	}
	return nil
}

// A spec is what the worker of a run is told.
type spec struct {
	train.Spec
	Seed            int64           `json:"seed"`
	Method          string          `json:"method"`
	LoRA            *lora           `json:"lora"`
	Hyperparameters hyperparameters `json:"hyperparameters"`
	Tools           []tool          `json:"tools"`
	CheckpointEvery int64           `json:"checkpoint_every"`
}

type lora struct {
	Rank  int64   `json:"rank"`
	Alpha float64 `json:"alpha"`
}

type hyperparameters struct {
	MaxSteps       int64   `json:"max_steps"`
	GroupSize      int64   `json:"group_size"`
	PromptsPerStep int64   `json:"prompts_per_step"`
	KLBeta         float64 `json:"kl_beta"`
	LearningRate   float64 `json:"learning_rate"`
	Temperature    float64 `json:"temperature"`
	MaxTokens      int64   `json:"max_completion_tokens"`
	MaxTurns       int64   `json:"max_turns"`
}

// A tool is an environment tool as the model is told of it.
type tool struct {
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
}

func newSpec(r *Request, tools []tool, inputs []train.Input) spec {
	s := spec{
		Spec: train.Spec{Inputs: inputs}, Seed: *r.Seed, Method: "grpo", Tools: tools,
		CheckpointEvery: r.CheckpointEvery,
		Hyperparameters: hyperparameters{
			r.MaxSteps, r.GroupSize, r.PromptsPerStep, *r.KLBeta, r.LearningRate, r.Temperature, r.MaxTokens,
			r.MaxTurns,
		},
	}
	if *r.LoRARank > 0 {
		s.LoRA = &lora{*r.LoRARank, float64(2 * *r.LoRARank)}
	}
	return s
}

// A Run is a GRPO run as the API shows it.
type Run struct {
	ID              string       `json:"id"`
	Object          string       `json:"object" enum:"grpo.run"`
	Status          train.Status `json:"status" enum:"QUEUED,VALIDATING,RUNNING,PAUSED,SUCCEEDED,FAILED,CANCELLED"`
	BaseModel       string       `json:"base_model"`
	ParentID        *string      `json:"parent_id" doc:"The model version whose weights it begins with; null for the base model"`
	DatasetID       string       `json:"dataset_id"`
	CriterionID     string       `json:"criterion_id"`
	AnchorID        *string      `json:"anchor_criterion_id"`
	Tools           []string     `json:"environment_tool_ids" nullable:"false"`
	GroupSize       int64        `json:"group_size"`
	KLBeta          float64      `json:"kl_beta"`
	Seed            int64        `json:"seed"`
	Step            int64        `json:"step"`
	MaxSteps        int64        `json:"max_steps"`
	Progress        float64      `json:"progress" doc:"0 to 1"`
	RewardMean      *float64     `json:"reward_mean" doc:"Of the last step"`
	RewardStd       *float64     `json:"reward_std"`
	KL              *float64     `json:"kl"`
	RewardSessionID string       `json:"reward_session_id"`
	Held            bool         `json:"held" doc:"By the anchor of its reward session"`
	HeldReason      *string      `json:"held_reason"`
	Candidate       *Candidate   `json:"candidate"`
	TrainedTokens   int64        `json:"trained_tokens"`
	GPUType         *string      `json:"gpu_type"`
	GPUCount        int64        `json:"gpu_count"`
	GPUSeconds      int64        `json:"gpu_seconds"`
	Budget          money.Nano   `json:"budget_usd" doc:"For GPUs and rewards together"`
	Spent           money.Nano   `json:"spent_usd" doc:"For both, according to the ledger"`
	RewardSpent     money.Nano   `json:"reward_spent_usd" doc:"The part of the judges"`
	Accrued         money.Nano   `json:"accrued_usd" doc:"Of the attempt that runs, not charged yet"`
	Attempt         int64        `json:"attempt"`
	PausedReason    *string      `json:"paused_reason"`
	Error           *RunError    `json:"error"`
	CreatedAt       clock.Time   `json:"created_at"`
	StartedAt       *clock.Time  `json:"started_at"`
	FinishedAt      *clock.Time  `json:"finished_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Run) SchemaName() string { return "GRPORun" }

// A RunError is why a run failed.
type RunError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// SchemaName is the type's name in the OpenAPI document.
func (RunError) SchemaName() string { return "GRPOError" }

// A Candidate is a model version that may replace the base model.
type Candidate struct {
	ID             string     `json:"id"`
	RunID          string     `json:"run_id"`
	Step           int64      `json:"step"`
	ModelVersionID string     `json:"model_version_id"`
	EvalID         *string    `json:"eval_id" doc:"Null while it waits for its eval against the base: it needs an engine that serves it"`
	Gate           *string    `json:"gate" enum:"pass,refused" doc:"Whether its eval proves that it is no worse than the base, on the terms of the evidence policy; null while it waits"`
	GateReason     *string    `json:"gate_reason" doc:"Why the gate refused it, or what it waits for"`
	CreatedAt      clock.Time `json:"created_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Candidate) SchemaName() string { return "GRPOCandidate" }

// Runs is the answer to a list.
type Runs struct {
	Runs    []Run      `json:"runs" nullable:"false"`
	Waiting int64      `json:"candidates_waiting" doc:"Candidates without an eval"`
	Active  int64      `json:"active_runs" doc:"Runs that have not ended"`
	Spent   money.Nano `json:"spent_usd" doc:"By the listed runs"`
	HasMore bool       `json:"has_more"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Runs) SchemaName() string { return "GRPORuns" }
