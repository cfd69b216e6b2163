// Package eval compares models on the same cases, and decides whether a candidate may replace a baseline.
//
// An eval is of one of two kinds. A comparison shows a judge both answers to a case, in both orders, and asks which
// meets a rubric better. A criterion's run has a judge decide of each answer by itself whether it passes; where the
// judge has a certificate, what it finds can be corrected for its errors.
package eval

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/job"
	"sovereign/internal/text/redact"
)

// A NewEval says what is to be compared, on which cases, and by which judge.
type NewEval struct {
	Name            string                    `json:"name" doc:"1 to 64 characters that can be seen"`
	Rubric          string                    `json:"rubric,omitempty" doc:"What makes one answer better than another: the judge compares answers in pairs"`
	JudgeModel      string                    `json:"judge_model,omitempty" doc:"Beside a rubric: the model that compares, of the catalog"`
	CriterionID     string                    `json:"criterion_id,omitempty" doc:"In place of a rubric: the judge that says of each answer whether it passes"`
	BaselineModel   string                    `json:"baseline_model" doc:"A chat model of the catalog, or endpoint/<id>"`
	CandidateModels []string                  `json:"candidate_models" minItems:"1" maxItems:"16" nullable:"false" doc:"What may replace it"`
	SampleCount     int                       `json:"sample_count,omitempty" minimum:"1" maximum:"10000" doc:"How many cases are drawn, of logs (100 by default) or of a dataset (all by default)"`
	SampleFilters   *logbook.Selection        `json:"sample_filters,omitempty" doc:"Which logged exchanges, as in the list of logs; by default those of the criterion, or all"`
	DatasetID       string                    `json:"dataset_id,omitempty" doc:"In place of logs"`
	Cases           []NewCase                 `json:"cases,omitempty" maxItems:"1000" doc:"In place of logs"`
	Parameters      map[string]jsontext.Value `json:"parameters,omitempty" doc:"Sent to every model: max_tokens, temperature and the like"`
	Reuse           bool                      `json:"reuse_logged_answers,omitempty" doc:"Take the baseline's answer from the log where it was logged, and pay for none"`
	Seed            *int64                    `json:"seed,omitempty" doc:"The same seed draws the same cases from the same logs, in the same workspace"`
	judging.Spending
}

// A NewCase is a case of a request.
type NewCase struct {
	ID       string         `json:"id,omitempty" pattern:"^[A-Za-z0-9._-]{1,64}$" doc:"Its number in the run by default"`
	Messages jsontext.Value `json:"messages" doc:"What the models are asked"`
	Tools    jsontext.Value `json:"tools,omitempty" doc:"The tools that they are offered"`
}

// SchemaName is the type's name in the OpenAPI document.
func (NewCase) SchemaName() string { return "NewEvalCase" }

// Where cases come from.
const (
	fromLogs    = "logs"
	fromDataset = "dataset"
	inline      = "inline"
)

// source returns where the cases come from.
func (n *NewEval) source() string {
	switch {
	case n.DatasetID != "":
		return fromDataset
	case n.Cases != nil:
		return inline
	}
	return fromLogs
}

// pairwise reports whether answers are compared in pairs, by a rubric.
func (n *NewEval) pairwise() bool { return n.CriterionID == "" }

// models returns the baseline and the candidates.
func (n *NewEval) models() []string { return append([]string{n.BaselineModel}, n.CandidateModels...) }

const (
	maxName       = 64
	maxCases      = 1000    // of a request
	maxSample     = 10_000  // of logs or a dataset
	defaultSample = 100     // of logs
	maxParameters = 8 << 10 // bytes
)

// forbidden are the parameters that an eval sets itself, or that would make an answer something else than one message.
var forbidden = map[string]bool{
	"model": true, "models": true, "messages": true, "tools": true, "functions": true, "stream": true,
	"stream_options": true, "n": true, "store": true, "modalities": true, "audio": true,
}

// clean leaves credentials out.
func (n *NewEval) clean() {
	n.Name, n.Rubric = redact.String(n.Name), redact.String(n.Rubric)
	if n.SampleFilters != nil {
		filters := n.SampleFilters.Clean()
		n.SampleFilters = &filters
	}
	for name, value := range n.Parameters {
		n.Parameters[name], _ = redact.JSON(value)
	}
}

// check reports the first rule that n breaks, naming the field.
func (n *NewEval) check() error {
	switch length := utf8.RuneCountInString(n.Name); {
	case length < 1 || length > maxName:
		return fault.Invalid("name", "must be 1 to 64 characters")
	case strings.ContainsFunc(n.Name, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return fault.Invalid("name", "must not contain control characters or others that cannot be seen")
	case n.CriterionID == "" && n.Rubric == "":
		return fault.Invalid("rubric", "or criterion_id is required")
	case n.CriterionID != "" && n.Rubric != "":
		return fault.Invalid("rubric", "has no place beside criterion_id")
	case n.CriterionID != "" && n.JudgeModel != "":
		return fault.Invalid("judge_model", "has no place beside criterion_id: the criterion has its own")
	case n.CriterionID == "" && n.JudgeModel == "":
		return fault.Invalid("judge_model", "is required beside rubric")
	}
	if n.Rubric != "" {
		told := judge.Instructions{Rubric: n.Rubric, Scale: judge.Binary, Threshold: 0.5}
		if err := told.Check(); err != nil {
			return err
		}
	}
	if err := n.checkModels(); err != nil {
		return err
	}
	if err := n.checkSource(); err != nil {
		return err
	}
	return n.checkParameters()
}

func (n *NewEval) checkModels() error {
	if len(n.CandidateModels) < 1 || len(n.CandidateModels) > 16 {
		return fault.Invalid("candidate_models", "must be 1 to 16 models")
	}
	seen := map[string]bool{}
	for i, model := range n.CandidateModels {
		if seen[model] {
			return fault.Invalid(fmt.Sprintf("candidate_models[%d]", i), "is named twice")
		}
		seen[model] = true
	}
	return nil
}

func (n *NewEval) checkSource() error {
	switch {
	case n.DatasetID != "" && n.Cases != nil:
		return fault.Invalid("cases", "has no place beside dataset_id")
	case n.source() != fromLogs && n.SampleFilters != nil:
		return fault.Invalid("sample_filters", "selects logs, and has no place beside dataset_id or cases")
	case n.source() != fromLogs && n.Reuse:
		return fault.Invalid("reuse_logged_answers", "needs cases of logs")
	case n.Cases != nil && n.SampleCount != 0:
		return fault.Invalid("sample_count", "has no place beside cases: all of them are used")
	case n.Cases != nil && (len(n.Cases) < 1 || len(n.Cases) > maxCases):
		return fault.Invalid("cases", fmt.Sprintf("must be 1 to %d cases", maxCases))
	case n.SampleCount < 0 || n.SampleCount > maxSample:
		return fault.Invalid("sample_count", fmt.Sprintf("must be 1 to %d", maxSample))
	case n.SampleFilters != nil:
		return n.SampleFilters.Check("sample_filters.")
	}
	return nil
}

func (n *NewEval) checkParameters() error {
	size := 0
	for name, value := range n.Parameters {
		if forbidden[name] {
			return fault.Invalid("parameters."+name, "cannot be set")
		}
		size += len(name) + len(value)
	}
	if size > maxParameters {
		return fault.Invalid("parameters", "are longer than 8 KiB")
	}
	_, err := n.maxTokens()
	return err
}

// maxTokens returns the most tokens of an answer, 0 for the workspace's default.
func (n *NewEval) maxTokens() (most int64, _ error) {
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		value, given := n.Parameters[name]
		if !given {
			continue
		}
		if err := json.Unmarshal(value, &most); err != nil || most < 1 {
			return 0, fault.Invalid("parameters."+name, "must be a positive integer")
		}
	}
	return most, nil
}

// An Eval is a comparison of models on the same cases.
type Eval struct {
	ID              string             `json:"id"`
	Object          string             `json:"object" enum:"eval"`
	Name            string             `json:"name"`
	Kind            string             `json:"kind" enum:"comparison,criterion"`
	Rubric          *string            `json:"rubric" doc:"Of a comparison"`
	JudgeModel      string             `json:"judge_model"`
	CriterionID     *string            `json:"criterion_id" doc:"Of a criterion's run"`
	Version         *int64             `json:"criterion_version"`
	CertificateID   *string            `json:"certificate_id" doc:"The judge's last certificate when the eval began"`
	Trust           trust.Tier         `json:"trust" enum:"none,provisional,measured,calibrated,certified" doc:"Of the judge, now; none for a rubric"`
	BaselineModel   string             `json:"baseline_model"`
	CandidateModels []string           `json:"candidate_models" nullable:"false"`
	Source          string             `json:"source" enum:"logs,dataset,inline" doc:"Where the cases come from"`
	SampleCount     *int               `json:"sample_count" doc:"How many were asked for"`
	SampleFilters   *logbook.Selection `json:"sample_filters"`
	DatasetID       *string            `json:"dataset_id"`
	Parameters      jsontext.Value     `json:"parameters" doc:"Sent to every model"`
	Reuse           bool               `json:"reuse_logged_answers"`
	Seed            int64              `json:"seed"`
	MaxCostUSD      *money.Nano        `json:"max_cost_usd"`
	Cases           int64              `json:"cases"`
	LeftOut         int64              `json:"left_out" doc:"Of what could have been cases: repeats of a question, other turns of a conversation, and what cannot be read"`
	Figures
	CreatedBy tenant.UserID `json:"created_by"`
	job.Job
}

// A record is an eval as the table has it.
type record struct {
	ID, Name      string
	Source        string // of the cases
	Request       string // JSON, without the cases
	CriterionID   string
	Version       int64
	CertificateID string
	Cases         int64
	LeftOut       int64
	Result        string // JSON; "" until there is one
	CreatedBy     tenant.UserID
	job.Job

	asked NewEval // the request, decoded
}

// decode reads the request.
func (r *record) decode() error {
	if err := json.Unmarshal([]byte(r.Request), &r.asked); err != nil {
		return fmt.Errorf("read the request of %s: %w", r.ID, err)
	}
	return nil
}

// eval returns r as the API shows it, with its stored figures.
func (r *record) eval(tier trust.Tier) (e Eval, err error) {
	e = Eval{
		ID: r.ID, Object: object, Name: r.Name, Kind: kindName(r.asked.pairwise()),
		Rubric: judging.Optional(r.asked.Rubric), JudgeModel: r.asked.JudgeModel,
		CriterionID: judging.Optional(r.CriterionID), CertificateID: judging.Optional(r.CertificateID), Trust: tier,
		BaselineModel: r.asked.BaselineModel, CandidateModels: r.asked.CandidateModels, Source: r.Source,
		SampleFilters: r.asked.SampleFilters, DatasetID: judging.Optional(r.asked.DatasetID), Reuse: r.asked.Reuse,
		MaxCostUSD: r.asked.MaxCostUSD, Cases: r.Cases, LeftOut: r.LeftOut, CreatedBy: r.CreatedBy, Job: r.Job,
	}
	if r.asked.SampleCount > 0 {
		e.SampleCount = &r.asked.SampleCount
	}
	if r.CriterionID != "" {
		e.Version = &r.Version
	}
	if r.asked.Seed != nil {
		e.Seed = *r.asked.Seed
	}
	if e.Parameters, err = parametersOf(&r.asked); err != nil {
		return e, err
	}
	e.Figures = noFigures(r.asked.models())
	if r.Result != "" {
		if err := json.Unmarshal([]byte(r.Result), &e.Figures); err != nil {
			return e, fmt.Errorf("read the result of %s: %w", r.ID, err)
		}
	}
	return e, nil
}

// parametersOf returns the parameters as they are shown.
func parametersOf(n *NewEval) (jsontext.Value, error) {
	if n.Parameters == nil {
		return jsontext.Value("{}"), nil
	}
	text, err := encode(n.Parameters)
	return jsontext.Value(text), err
}

const object = "eval"

// The kinds of evals.
const (
	comparison   = "comparison"
	criterionRun = "criterion"
)

func kindName(pairwise bool) string {
	if pairwise {
		return comparison
	}
	return criterionRun
}

// encode returns v as JSON for a column: the same value is the same text.
func encode(v any) (string, error) {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("write %T: %w", v, err)
	}
	return string(text), nil
}
