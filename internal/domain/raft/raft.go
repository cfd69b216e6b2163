// Package raft trains a model on the best of its own answers (reward-ranked fine-tuning). A round has five stages: a
// worker samples answers, a certified judge scores them, a fine-tuning job trains on the best, a worker samples the new
// model on prompts that were held out, and the judge compares. Each stage is a training run or a job, and begins in the
// transaction that ends the one before. A next round begins only where the improvement is proven.
package raft

import (
	"cmp"
	"fmt"
	"math"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/finetune"
	"sovereign/internal/domain/train"
)

// A Status is the state of a round.
type Status string

// The states.
const (
	Running   Status = "RUNNING"
	Succeeded Status = "SUCCEEDED"
	Failed    Status = "FAILED"
	Cancelled Status = "CANCELLED"
)

// A Stage is where a round is, or where it ended.
type Stage string

// The stages.
const (
	Sampling  Stage = "sampling"  // a run samples all prompts
	Scoring   Stage = "scoring"   // a job scores the samples, and picks the best
	Training  Stage = "training"  // a fine-tuning job trains on them
	Measuring Stage = "measuring" // a run samples the new model on the held-out prompts
	Comparing Stage = "comparing" // a job scores these too
)

// next is the stage that follows each. A running round may end in any of them; it succeeds after the last.
var next = map[Stage]Stage{Sampling: Scoring, Scoring: Training, Training: Measuring, Measuring: Comparing}

// stages lists the stages in their order.
var stages = []Stage{Sampling, Scoring, Training, Measuring, Comparing}

// A Request is what a round is asked for.
type Request struct {
	BaseModel        string                   `json:"baseModel" doc:"A model of GET /v1/fine-tuning/models that a worker can sample, or a version of one: its id (mv_…) or its name (ft/…)"`
	DatasetID        string                   `json:"datasetId" doc:"Its conversations, without the last answers, are the prompts"`
	CriterionID      string                   `json:"criterionId" doc:"The judge that scores: it needs a certificate"`
	PromptCount      int64                    `json:"promptCount,omitempty" minimum:"0" maximum:"5000" doc:"How many prompts, of which a fifth is held out; 0 for all, up to 5000"`
	SamplesPerPrompt int64                    `json:"samplesPerPrompt,omitempty" default:"4" minimum:"1" maximum:"64"`
	MinGrade         *float64                 `json:"minGrade,omitempty" default:"0.7" minimum:"0" maximum:"1" doc:"The lowest grade of a sample that is trained on"`
	Budget           money.Nano               `json:"budgetUsd" doc:"For GPUs and judges, of all rounds together. Each round has an equal part, which is set aside when it begins"`
	Rounds           int64                    `json:"rounds,omitempty" default:"1" minimum:"1" maximum:"10" doc:"How many rounds, at most: the next one starts from the new model, if the improvement is proven"`
	Temperature      float64                  `json:"temperature,omitempty" default:"1" exclusiveMinimum:"0" maximum:"2"`
	MaxTokens        int64                    `json:"maxCompletionTokens,omitempty" default:"256" minimum:"1" maximum:"32768"`
	Seed             *int64                   `json:"seed,omitempty" minimum:"0" maximum:"2147483647" doc:"By default a random one, which the round shows"`
	Suffix           string                   `json:"suffix,omitempty" doc:"A part of the names of the models that are made"`
	GPUType          string                   `json:"gpuType,omitempty" doc:"By default any"`
	GPUCount         int64                    `json:"gpuCount,omitempty" default:"1" minimum:"1" maximum:"64"`
	Hyperparameters  finetune.Hyperparameters `json:"hyperparameters,omitempty" doc:"Of the fine-tuning job"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Request) SchemaName() string { return "RAFTRequest" }

// Bounds of a request.
const (
	maxPrompts = 5000
	maxSamples = 20_000
	minBudget  = money.Dollar / 10 // of a round
)

// defaults fills in what was not given.
func (r *Request) defaults() {
	r.SamplesPerPrompt = cmp.Or(r.SamplesPerPrompt, 4)
	r.Rounds = cmp.Or(r.Rounds, 1)
	r.Temperature = cmp.Or(r.Temperature, 1)
	r.MaxTokens = cmp.Or(r.MaxTokens, 256)
	r.GPUCount = cmp.Or(r.GPUCount, 1)
	if r.MinGrade == nil {
		grade := 0.7
		r.MinGrade = &grade
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
		return fault.Invalid("criterionId", "is missing: a certified judge scores the samples")
	case r.Suffix != "" && !train.Suffix.MatchString(r.Suffix):
		return fault.Invalid("suffix", "must be 1 to 40 lower-case letters, digits and dashes")
	}
	return train.CheckBounds(
		train.Within("promptCount", float64(r.PromptCount), 0, maxPrompts),
		train.Within("samplesPerPrompt", float64(r.SamplesPerPrompt), 1, 64),
		train.Within("minGrade", *r.MinGrade, 0, 1),
		train.Within("rounds", float64(r.Rounds), 1, 10),
		train.Within("temperature", r.Temperature, math.SmallestNonzeroFloat64, 2),
		train.Within("maxCompletionTokens", float64(r.MaxTokens), 1, 32768),
		train.Within("gpuCount", float64(r.GPUCount), 1, 64),
	)
}

// budget is the part of one round.
func (r *Request) budget() money.Nano { return r.Budget / money.Nano(r.Rounds) }

// seed is that of one round.
func (r *Request) seed(round int64) int64 { return (*r.Seed + round - 1) & math.MaxInt32 }

// job returns the fine-tuning job of a round.
func (r *Request) job(round int64, budget money.Nano) finetune.Request {
	seed := r.seed(round)
	return finetune.Request{
		BaseModel: r.BaseModel, Suffix: r.Suffix, Seed: &seed, Budget: budget, GPUType: r.GPUType, GPUCount: r.GPUCount,
		Hyperparameters: r.Hyperparameters,
	}
}

// shares divides what a round has for GPUs.
func shares(gpu money.Nano) (sampling, training, measuring money.Nano) {
	sampling, measuring = gpu*3/10, gpu*2/10
	return sampling, gpu - sampling - measuring, measuring
}

// A spec is what the worker of a sampling run is told.
type spec struct {
	train.Spec
	Method          string          `json:"method"`
	Seed            int64           `json:"seed"`
	Hyperparameters hyperparameters `json:"hyperparameters"`
	CheckpointEvery int64           `json:"checkpoint_every"`
}

type hyperparameters struct {
	SamplesPerPrompt int64   `json:"samples_per_prompt"`
	Temperature      float64 `json:"temperature"`
	MaxTokens        int64   `json:"max_completion_tokens"`
}

// checkpointEvery is how many prompts are sampled between two checkpoints.
const checkpointEvery = 64

func newSpec(r *Request, round int64, inputs []train.Input) spec {
	return spec{
		Spec: train.Spec{Inputs: inputs}, Method: method, Seed: r.seed(round), CheckpointEvery: checkpointEvery,
		Hyperparameters: hyperparameters{r.SamplesPerPrompt, r.Temperature, r.MaxTokens},
	}
}

// A Round is a RAFT round as the API shows it.
type Round struct {
	ID               string           `json:"id"`
	Object           string           `json:"object" enum:"raft.round"`
	CampaignID       string           `json:"campaign_id" doc:"The first of the rounds that follow each other"`
	Round            int64            `json:"round" doc:"Counts from 1"`
	Rounds           int64            `json:"rounds" doc:"How many there will be, at most"`
	Status           Status           `json:"status" enum:"RUNNING,SUCCEEDED,FAILED,CANCELLED"`
	Stage            Stage            `json:"stage" enum:"sampling,scoring,training,measuring,comparing" doc:"Where it is, or where it ended"`
	Progress         float64          `json:"progress" doc:"0 to 1, over all stages"`
	BaseModel        string           `json:"base_model"`
	ParentID         *string          `json:"parent_id" doc:"The model version that it starts from; null for the base model"`
	DatasetID        string           `json:"dataset_id"`
	CriterionID      string           `json:"criterion_id"`
	PromptCount      int64            `json:"prompt_count"`
	HeldOutCount     int64            `json:"held_out_count" doc:"Prompts that are not trained on, and measure the improvement"`
	SamplesPerPrompt int64            `json:"samples_per_prompt"`
	MinGrade         float64          `json:"min_grade"`
	Seed             int64            `json:"seed"`
	Accepted         int64            `json:"accepted" doc:"Samples that are trained on: at most one of a prompt"`
	Rejected         map[string]int64 `json:"rejected_by_reason" doc:"Of the other samples: below_min_grade, not_best, not_scored, empty, duplicate"`
	RewardBefore     *Measure         `json:"reward_before" doc:"On the held-out prompts"`
	RewardAfter      *Measure         `json:"reward_after"`
	Improvement      *Measure         `json:"improvement" doc:"After minus before, paired by prompt. A grade that is missing counts against it"`
	RewardSessionID  string           `json:"reward_session_id"`
	FineTuningJobID  string           `json:"fine_tuning_job_id"`
	SamplingRunID    string           `json:"sampling_run_id"`
	MeasuringRunID   string           `json:"measuring_run_id"`
	ModelVersionID   *string          `json:"model_version_id"`
	NextRoundID      *string          `json:"next_round_id"`
	StoppedReason    *string          `json:"stopped_reason" doc:"Why no round follows, where more were asked for"`
	Budget           money.Nano       `json:"budget_usd" doc:"Of this round"`
	Spent            money.Nano       `json:"spent_usd" doc:"According to the ledger"`
	Error            *RoundError      `json:"error"`
	CreatedAt        clock.Time       `json:"created_at"`
	FinishedAt       *clock.Time      `json:"finished_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Round) SchemaName() string { return "RAFTRound" }

// A Measure is a mean over prompts, with an interval of its expectation at 95 %.
type Measure struct {
	Mean  float64 `json:"mean"`
	Lower float64 `json:"lower"`
	Upper float64 `json:"upper"`
	N     int64   `json:"n" doc:"Prompts"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Measure) SchemaName() string { return "RAFTMeasure" }

// A RoundError is why a round failed.
type RoundError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// SchemaName is the type's name in the OpenAPI document.
func (RoundError) SchemaName() string { return "RAFTError" }

// A Plan is what a round will do and cost, before it is started.
type Plan struct {
	PromptCount  int64      `json:"prompt_count"`
	HeldOutCount int64      `json:"held_out_count"`
	Samples      int64      `json:"samples" doc:"That are scored in a round, of both models"`
	Scoring      money.Nano `json:"estimated_scoring_usd" doc:"What the judge is probably paid in a round"`
	Rewards      money.Nano `json:"reward_budget_usd" doc:"What the judge may be paid at most in a round"`
	GPU          money.Nano `json:"gpu_budget_usd" doc:"What is left for GPUs in a round"`
	Least        money.Nano `json:"least_budget_usd" doc:"The lowest budgetUsd that is not refused"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Plan) SchemaName() string { return "RAFTPlan" }

// upToCents rounds up to whole cents.
func upToCents(amount money.Nano) money.Nano {
	const cent = money.Dollar / 100
	return (amount + cent - 1) / cent * cent
}

// divide divides the budget of a round between the judge and GPUs. The judge gets half, or what scoring needs if that
// is more, but at most four fifths.
func (p *Plan) divide(budget money.Nano, rounds int64, most money.Nano) error {
	needed := p.Scoring*5/4 + most
	p.Least = upToCents(max(needed*5/4, minBudget) * money.Nano(rounds))
	if p.Rewards = max(budget/2, needed); budget < minBudget || needed > budget*4/5 {
		return fault.Invalid("budgetUsd", fmt.Sprintf(
			"must be at least %s: the judge scores about %d samples in each of %d rounds, for about $%s", p.Least,
			p.Samples, rounds,
			upToCents(p.Scoring)))
	}
	p.GPU = budget - p.Rewards
	return nil
}
