// Package reward sells rewards to trainers that run elsewhere. A session pins certified judges, holds a budget, scores
// completions, and keeps every scored item. An independent judge, the anchor, checks a sample of them: when the rewards
// are no longer confirmed, it holds the session.
package reward

import (
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/grade/stat"
)

// A Status is the state of a session.
type Status string

// The states. Scoring needs Active; the others are final.
const (
	Active     Status = "ACTIVE"
	Completed  Status = "COMPLETED"  // by the caller: the run is done
	Overbudget Status = "OVERBUDGET" // an item did not fit into the budget
	Stopped    Status = "STOPPED"    // by the caller, or expired
	Failed     Status = "FAILED"     // a judge can no longer run
)

// next lists the states that follow each state.
var next = map[Status][]Status{
	Active:     {Completed, Overbudget, Stopped, Failed},
	Completed:  {},
	Overbudget: {},
	Stopped:    {},
	Failed:     {},
}

// May reports whether a session may move from one state to another.
func (s Status) May(to Status) bool { return slices.Contains(next[s], to) }

// A Mode says how the verdicts of several judges make one reward.
type Mode string

// The modes.
const (
	Single Mode = "single" // one judge: its grade is the reward
	// the mean of the grades by weight; the verdict is that of a mean at the threshold of 0.5
	Weighted Mode = "weighted"
	All      Mode = "all" // the lowest grade; a pass of every judge is a pass
)

// A Rule names the judges of a session, and how their verdicts make a reward.
type Rule struct {
	Mode        Mode        `json:"mode" enum:"single,weighted,all"`
	CriterionID string      `json:"criterionId,omitempty" doc:"The judge, for the mode single"`
	Criteria    []Criterion `json:"criteria,omitempty" doc:"The judges, for the modes weighted and all"`
}

// A Criterion is one of several judges.
type Criterion struct {
	CriterionID string   `json:"criterionId"`
	Weight      *float64 `json:"weight,omitempty" exclusiveMinimum:"0" maximum:"1000" doc:"For the mode weighted; 1 by default"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Criterion) SchemaName() string { return "RewardCriterion" }

// SchemaName is the type's name in the OpenAPI document.
func (Rule) SchemaName() string { return "RewardRule" }

// A Judge is a criterion that a session is scored by, at the version and with the certificate that are pinned.
type Judge struct {
	CriterionID string                  `json:"criterion_id"`
	Version     int64                   `json:"version"`
	Weight      float64                 `json:"weight"`
	Certificate calibration.Certificate `json:"certificate"` // as it was signed
}

// A Session is a reward session as the API shows it.
type Session struct {
	ID           string                    `json:"id"`
	Object       string                    `json:"object" enum:"reward_session"`
	Status       Status                    `json:"status" enum:"ACTIVE,COMPLETED,OVERBUDGET,STOPPED,FAILED"`
	Reason       *string                   `json:"reason" doc:"Why it ended, where the status does not say"`
	Agentic      bool                      `json:"agentic" doc:"Completions are trajectories: messages with tool calls and results"`
	Reward       Rule                      `json:"reward"`
	Label        string                    `json:"label"`
	Budget       money.Nano                `json:"budget_usd"`
	Spent        money.Nano                `json:"spent_usd" doc:"What its judges were paid, according to the ledger"`
	ExpiresAt    clock.Time                `json:"expires_at"`
	CreatedAt    clock.Time                `json:"created_at"`
	StoppedAt    *clock.Time               `json:"stopped_at"`
	Certificates []calibration.Certificate `json:"certificates" nullable:"false" doc:"One per judge, pinned"`
	Anchor       AnchorState               `json:"anchor"`
	TaskCount    int64                     `json:"task_count" doc:"Tasks stored on the session; 0 when the trainer keeps its own"`
	Scored       int64                     `json:"scored" doc:"Items with a reward"`
	PurgedAt     *clock.Time               `json:"purged_at" doc:"When its tasks and scored items were deleted"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Session) SchemaName() string { return "RewardSession" }

// An AnchorState is what the anchor has found so far.
type AnchorState struct {
	CriterionID   *string     `json:"criterion_id" doc:"Null without an anchor"`
	CriterionName *string     `json:"criterion_name"`
	Held          bool        `json:"held"`
	HeldAt        *clock.Time `json:"held_at"`
	HeldReason    *string     `json:"held_reason"`
	PinnedStep    *string     `json:"pinned_step" doc:"The last step that passed a check"`
	Checks        int64       `json:"checks"`
	History       []Check     `json:"history" nullable:"false"`
}

// A Check is one look of the anchor at a sample of the scored items.
type Check struct {
	Step            string        `json:"step"`
	At              clock.Time    `json:"at"`
	N               int64         `json:"n" doc:"Completions with a reward that the anchor was asked about, each of another prompt"`
	RewardRate      float64       `json:"reward_rate" doc:"The share that the session's judges pass"`
	AnchorRate      float64       `json:"anchor_rate" doc:"The share that the anchor passes, corrected for its errors where anchor_corrected says so"`
	AnchorCI        stat.Interval `json:"anchor_ci" doc:"At 95 %"`
	AnchorCorrected bool          `json:"anchor_corrected"`
	AnchorFailed    int64         `json:"anchor_failed" doc:"Completions of which the anchor gave no verdict; they count as its fails"`
	Masked          int64         `json:"masked" doc:"Drawn, but without a reward to compare"`
	Evidence        float64       `json:"evidence" doc:"Against a healthy run, after this check; 25 holds the session"`
	Process         int64         `json:"process" doc:"The session's e-process: a release begins the next"`
	Requested       bool          `json:"requested" doc:"Somebody asked for it; the others are made by count"`
	Held            bool          `json:"held" doc:"It held the session"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Check) SchemaName() string { return "AnchorCheck" }
