package eval

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
)

// An Estimate is what an eval would cost.
type Estimate struct {
	Object  string     `json:"object" enum:"estimate"`
	Kind    string     `json:"kind" enum:"eval"`
	Cases   int64      `json:"cases"`
	LeftOut int64      `json:"left_out" doc:"Repeats of a question, other turns of a conversation, and what cannot be read"`
	Calls   int64      `json:"calls" doc:"Requests to models, at most: what was answered before is not asked again"`
	CostUSD money.Nano `json:"cost_usd" doc:"About"`
	Needed  *int64     `json:"cases_needed" doc:"About how many cases it takes to pass a gate with the max_regression that was asked about, 4 times in 5, if the models are equally good and 9 of 10 answers pass; null if none was asked about, or the run cannot show it"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Estimate) SchemaName() string { return "EvalEstimate" }

// Estimate estimates what an eval would cost. It starts nothing.
func (s *Store) Estimate(ctx context.Context, ws tenant.ID, n NewEval) (e Estimate, err error) {
	c, err := s.prepare(ctx, ws, &n)
	if err != nil {
		return e, err
	}
	with, err := s.seed(ctx, ws, &n)
	if err != nil {
		return e, err
	}
	err = s.withSource(ctx, ws, &n, func(from source) error {
		drawn, err := draw(ctx, &n, from, with)
		if err != nil {
			return err
		}
		e = Estimate{Object: "estimate", Kind: object, Cases: int64(len(drawn.which)), LeftOut: int64(drawn.leftOut)}
		e.Calls, e.CostUSD, err = s.estimate(ctx, ws, &n, c, drawn)
		return err
	})
	return e, err
}

// A Plan is a gate that an eval shall pass.
type Plan struct {
	MaxRegression *float64 `query:"max_regression" minimum:"0" maximum:"1" doc:"Of a criterion's run: say how many cases a gate with this threshold needs"`
	Confidence    float64  `query:"confidence" default:"0.95" minimum:"0.5" maximum:"0.999999999" doc:"Of that gate"`
}

// needed returns how many cases an eval needs, nil where that is not known.
func (p *Plan) needed(ctx context.Context, in db.Scoped, n *NewEval) (*int64, error) {
	if p.MaxRegression == nil || n.pairwise() {
		return nil, nil //nolint:nilnil // it is not known
	}
	alpha := (1 - p.Confidence) / float64(len(n.CandidateModels))
	const power = 0.8
	needed, err := CasesNeeded(ctx, in, n.CriterionID, *p.MaxRegression, alpha, power)
	if err != nil || needed == 0 {
		return nil, err
	}
	return &needed, nil
}

// assumedRate is the pass rate that a plan assumes of both models.
const assumedRate = 0.9

// CasesNeeded returns about how many cases an eval by a criterion needs to prove, with this power, that a candidate
// which is as good as the baseline is worse by less than maxRegression. It is 0 if the judge's certificate does not
// allow to prove that.
func CasesNeeded(
	ctx context.Context, in db.Scoped, criterionID string, maxRegression, alpha, power float64,
) (int64, error) {
	c, err := calibration.LastCertificate(ctx, in, criterionID)
	if err != nil || c == nil || c.Voided {
		return 0, err
	}
	needed := stat.CasesToGrade(assumedRate, assumedRate, maxRegression, stat.Table(c.Matrix), power, alpha)
	if needed > 0 {
		needed = max(needed, minCases)
	}
	return needed, nil
}

const (
	typicalTokens = 300 // of an answer whose length is not known
	bytesPerToken = 4
	minEstimated  = 4 // cases that an estimate is made from, at least
)

// estimate estimates how many requests an eval sends, and what they cost, from some of its cases.
func (s *Store) estimate(ctx context.Context, ws tenant.ID, n *NewEval, c *criterion.Record, drawn *sample,
) (calls int64, cost money.Nano, err error) {
	var told *judge.Instructions
	if c != nil {
		if told, err = c.Instructions(ctx, s.DB.In(ws)); err != nil {
			return 0, 0, err
		}
	}
	some, sum := 0, money.Nano(0)
	for one, err := range drawn.read(ctx, max(judging.EstimateSamples/len(n.models()), minEstimated)) {
		if err != nil {
			return 0, 0, err
		}
		asked, cost, err := s.estimateCase(ws, n, told, one)
		if err != nil {
			return 0, 0, err
		}
		some, calls, sum = some+1, max(calls, asked), sum+cost
	}
	total := len(drawn.which)
	return calls * int64(total), sum / money.Nano(max(some, 1)) * money.Nano(total), nil
}

// estimateCase estimates one case.
func (s *Store) estimateCase(ws tenant.ID, n *NewEval, told *judge.Instructions, c *testCase,
) (calls int64, cost money.Nano, err error) {
	most, err := n.maxTokens()
	if err != nil {
		return 0, 0, err
	}
	expected := int64(typicalTokens)
	if len(c.Logged) > 0 {
		expected = int64(len(c.Logged))/bytesPerToken + 1
	}
	if most > 0 {
		expected = min(expected, most)
	}
	add := func(model string, body []byte, most, expected, times int64) error {
		calls += times
		if strings.HasPrefix(model, live.EndpointPrefix) {
			return nil
		}
		one, err := s.Judges.EstimateBody(ws, model, body, most, expected)
		if err != nil && fault.From(err).Status == http.StatusBadRequest {
			return nil // the model will not take it either, and charge nothing
		}
		cost += one * money.Nano(times)
		return err
	}
	for i, model := range n.models() {
		if i == 0 && n.reuses(c) {
			continue
		}
		body, err := requestBody(model, c, n.Parameters)
		if err == nil {
			err = add(model, body, most, expected, 1)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	body, times, err := n.judgeBody(told, c, int(expected))
	if err != nil {
		return calls, cost, nil //nolint:nilerr // the judge will not be asked, and the case fails
	}
	return calls, cost, add(n.JudgeModel, body, judging.MaxAnswerTokens, judging.TypicalAnswerTokens, times)
}

// reuses reports whether the baseline's answer to a case is the logged one.
func (n *NewEval) reuses(c *testCase) bool {
	return n.Reuse && len(c.Logged) > 0 && c.LoggedModel == n.BaselineModel
}

// judgeBody returns a question to the judge about answers of that many tokens, and how often such are asked in a case.
func (n *NewEval) judgeBody(told *judge.Instructions, c *testCase, tokens int) ([]byte, int64, error) {
	answer := fmt.Appendf(nil, `{"role":"assistant","content":%q}`, strings.Repeat("word", tokens))
	if n.pairwise() {
		q := judge.Comparison{Rubric: n.Rubric, Messages: c.Messages, Tools: toolsOf(c), A: answer, B: answer}
		body, err := q.Ask(n.JudgeModel, judge.Structured)
		return body, 2 * int64(len(n.CandidateModels)), err
	}
	subject := &judge.Subject{Steps: []judge.Step{{Messages: c.Messages, Tools: toolsOf(c), Response: answer}}}
	body, err := told.Ask(n.JudgeModel, subject, judge.Structured)
	return body, int64(len(n.models())), err
}

// toolsOf returns the tools of a case as judges are shown them.
func toolsOf(c *testCase) jsontext.Value {
	if len(c.Tools) == 0 {
		return nil
	}
	return c.Tools
}

// requestBody makes the chat completion that a model is sent. The most tokens of its answer stand beside it.
func requestBody(model string, c *testCase, parameters map[string]jsontext.Value) ([]byte, error) {
	name, err := json.Marshal(model)
	if err != nil {
		return nil, fmt.Errorf("write a model's name: %w", err)
	}
	members := map[string]jsontext.Value{"model": name, "messages": c.Messages}
	if len(c.Tools) > 0 {
		members["tools"] = c.Tools
	}
	for name, value := range parameters {
		if name != "max_tokens" && name != "max_completion_tokens" {
			members[name] = value
		}
	}
	body, err := json.Marshal(members, lenient, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("write a request: %w", err)
	}
	return body, nil
}
