package eval

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/live"
	"sovereign/internal/plane/infer"
	"sovereign/internal/text/redact"
)

// errEnded ends what a slot does when another slot has failed the run.
var errEnded = errors.New("the run has failed")

// maxFree bounds the answers of an eval's endpoints together, in bytes: they cost nothing, so that no budget bounds
// them. Tests lower it.
var maxFree int64 = 1 << 30

// errTooLong says that endpoints have answered more than an eval stores.
var errTooLong = errors.New("the answers of this eval's endpoints are longer than it stores")

// mayAsk refuses to send another request when the run has failed or its budget is spent.
func (w *worker) mayAsk() error {
	if w.err() != nil {
		return errEnded
	}
	return w.budget.Check()
}

// settle has every model answer a case that has not, has the judge decide, and returns what came of it.
func (w *worker) settle(ctx context.Context, c *pendingCase) (*doneCase, error) {
	if !c.gone() {
		for model := range w.models {
			if err := w.answer(ctx, c, model); err != nil {
				return nil, err
			}
		}
	}
	done := &doneCase{position: c.Position, expired: c.expired}
	if w.eval.asked.pairwise() {
		return done, w.compareAll(ctx, c, done)
	}
	return done, w.gradeAll(ctx, c, done)
}

// answer has a model answer a case, unless its answer is stored, or it has failed as a whole.
func (w *worker) answer(ctx context.Context, c *pendingCase, model int) error {
	m := w.models[model]
	if c.answers[model] != nil || m.failure.Load() != nil {
		return nil
	}
	if model == 0 && w.eval.asked.reuses(&c.testCase) {
		a := &answer{
			Position: c.Position, Answer: c.Logged, Reused: true, RequestID: c.RequestID, Cost: c.LoggedCost,
			Latency: c.LoggedLatency,
		}
		c.answers[model] = a
		return ignoreStored(w.keepAnswer(&c.testCase, a))
	}
	if err := w.mayAsk(); err != nil {
		return err
	}
	a, failure, err := w.generate(ctx, c, model)
	switch {
	case errors.Is(err, errStored):
		return w.reload(ctx, c)
	case errors.Is(err, errTooLong):
		return w.lose(ctx, model, err.Error())
	case err != nil && missing(err):
		return w.lose(ctx, model, fault.From(err).Message)
	case err != nil:
		return err
	}
	if failure != "" {
		a = &answer{Position: c.Position, Model: model, Failure: failure}
		if err := ignoreStored(w.keepAnswer(&c.testCase, a)); err != nil {
			return err
		}
	}
	c.answers[model] = a
	w.budget.Add(a.Cost)
	if !judging.IsUnreachable(failure) {
		m.silent.Store(0)
		return nil
	}
	if m.silent.Add(1) < judging.MaxUnreachable {
		return nil
	}
	reason := fmt.Sprintf("%d requests in a row were not answered; %s", judging.MaxUnreachable, failure)
	return w.lose(ctx, model, reason)
}

// missing reports whether an error says that a model is not there, or may not be called.
func missing(err error) bool {
	f := fault.From(err)
	return f.Status == http.StatusNotFound || f.Kind == fault.UnknownProvider || f.Kind == fault.ModelNotAllowed
}

// ignoreStored returns nil in place of errStored: the same was stored before.
func ignoreStored(err error) error {
	if errors.Is(err, errStored) {
		return nil
	}
	return err
}

// reload reads a case again of which another run has stored something meanwhile.
func (w *worker) reload(ctx context.Context, c *pendingCase) error {
	again, err := w.load(ctx, int64(c.Position))
	if err == nil {
		*c = *again
	}
	return err
}

// generate has a model answer a case. The answer is stored before it is charged. failure says why there is none.
func (w *worker) generate(ctx context.Context, c *pendingCase, model int) (a *answer, failure string, err error) {
	name, ws := w.models[model].name, w.run.Workspace
	body, err := requestBody(name, &c.testCase, w.eval.asked.Parameters)
	if err != nil {
		return nil, "unreadable: " + err.Error(), nil //nolint:nilerr // it is the model's failure
	}
	keep := func(completion []byte) error {
		a.Answer, a.FinishReason, a.Failure = readAnswer(completion)
		return w.keepAnswer(&c.testCase, a)
	}
	if endpoint, ok := strings.CutPrefix(name, live.EndpointPrefix); ok {
		if w.Endpoints == nil {
			return nil, "", fault.NotFound("endpoint", endpoint)
		}
		body, err := w.withMaximum(body)
		if err != nil {
			return nil, "", err
		}
		failure, err = w.Judges.Retry(ctx, ws, name, func() error {
			completion, latency, err := w.Endpoints.Complete(ctx, ws, endpoint, body)
			if err != nil {
				return err
			}
			if w.free.Add(int64(len(completion))) > maxFree {
				return errTooLong
			}
			a = &answer{Position: c.Position, Model: model, Latency: latency.Microseconds()}
			return keep(completion)
		})
		return a, failure, err
	}
	failure, err = w.Judges.Generate(ctx, &infer.Request{
		Workspace: ws, Origin: w.eval.ID, Model: name, Body: body, MaxTokens: w.maxTokens,
		Keep: func(got *infer.Answer) error {
			a = &answer{
				Position: c.Position, Model: model, RequestID: got.RequestID, Cost: got.Cost,
				Latency: got.Latency.Microseconds(),
			}
			return keep(got.Body)
		},
	})
	return a, failure, err
}

// withMaximum adds the most tokens of an answer, which requests to models of the catalog have beside the body.
func (w *worker) withMaximum(body []byte) ([]byte, error) {
	if w.maxTokens == 0 {
		return body, nil
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members, lenient); err != nil {
		return nil, fmt.Errorf("read a request: %w", err)
	}
	members["max_tokens"] = fmt.Appendf(nil, "%d", w.maxTokens)
	return json.Marshal(members, lenient, json.Deterministic(true))
}

// readAnswer reads the message in a chat completion, without credentials. failure says why there is none.
func readAnswer(completion []byte) (message []byte, finish, failure string) {
	var read struct {
		Choices []struct {
			Message      jsontext.Value `json:"message"`
			FinishReason string         `json:"finish_reason"`
		} `json:"choices"`
	}
	switch err := json.Unmarshal(completion, &read, lenient); {
	case err != nil:
		return nil, "", "unreadable: the answer is not a chat completion"
	case len(read.Choices) == 0 || read.Choices[0].Message.Kind() != '{':
		return nil, "", "unreadable: the answer has no message"
	}
	message, _ = redact.JSON(read.Choices[0].Message)
	return message, read.Choices[0].FinishReason, ""
}

// compareAll has the judge compare every candidate's answer with the baseline's.
func (w *worker) compareAll(ctx context.Context, c *pendingCase, done *doneCase) error {
	for model := 1; model < len(w.models); model++ {
		base, candidate := c.answers[0], c.answers[model]
		if c.gone() && (base == nil || candidate == nil) {
			done.settled = append(done.settled, settled{model: model, outcome: Failed, regression: 0.5})
			continue
		}
		if candidate == nil { // it failed as a whole
			continue
		}
		var asked [2]preference
		if base.Failure == "" && candidate.Failure == "" {
			for i, swapped := range []bool{false, true} {
				v, err := w.compare(ctx, c, model, swapped)
				if err != nil {
					return err
				}
				asked[i] = preference{judge.Winner(v.Verdict), v.Failure != ""}
			}
		}
		done.settled = append(done.settled, settleComparison(model, base, candidate, asked[0], asked[1]))
	}
	return nil
}

// compare has the judge compare two answers in one order, unless what it said is stored.
func (w *worker) compare(ctx context.Context, c *pendingCase, model int, swapped bool) (*verdict, error) {
	if v := c.verdicts[verdictKey{model, swapped}]; v != nil {
		return v, nil
	}
	if err := w.mayAsk(); err != nil {
		return nil, err
	}
	v := &verdict{Position: c.Position, Model: model, Swapped: swapped}
	q := &judge.Comparison{
		Rubric: w.eval.asked.Rubric, Messages: c.Messages, Tools: toolsOf(&c.testCase),
		A: c.answers[0].Answer, B: c.answers[model].Answer,
	}
	if swapped {
		q = q.Swap()
	}
	failure, err := w.ask(ctx, c, q, v)
	if errors.Is(err, errStored) {
		if err := w.reload(ctx, c); err != nil {
			return nil, err
		}
		return c.verdicts[verdictKey{model, swapped}], nil
	}
	if err != nil {
		return nil, err
	}
	if failure != "" {
		v = &verdict{Position: c.Position, Model: model, Swapped: swapped, Failure: failure}
		if err := ignoreStored(w.keepVerdict(&c.testCase, v)); err != nil {
			return nil, err
		}
	}
	w.budget.Add(v.Cost)
	return v, w.heard(failure)
}

// ask asks the judge to compare. What it says is stored before it is charged.
func (w *worker) ask(ctx context.Context, c *pendingCase, q *judge.Comparison, v *verdict) (failure string, err error) {
	model := w.eval.asked.JudgeModel
	structured, err := q.Ask(model, judge.Structured)
	if err != nil {
		return "unreadable: " + err.Error(), nil //nolint:nilerr // it is the judge's failure
	}
	return w.Judges.Compare(ctx, w.run.Workspace, &judging.Completion{
		Origin: w.eval.ID, Model: model, MaxTokens: judging.MaxAnswerTokens,
		Body: func(mode judge.Mode) ([]byte, error) {
			if mode == judge.Structured {
				return structured, nil
			}
			return q.Ask(model, mode)
		},
		Keep: func(a *infer.Answer) error {
			*v = verdict{
				Position: v.Position, Model: v.Model, Swapped: v.Swapped, Cost: a.Cost, RequestID: a.RequestID,
			}
			clean, _ := redact.JSON(a.Body) // it is stored, and a judge may quote what it was shown
			said, err := judge.ReadPreference(clean)
			var failed *judge.Failure
			switch {
			case errors.As(err, &failed):
				v.Failure = string(failed.Kind) + ": " + failed.Detail
			case err != nil:
				return err
			default:
				v.Verdict, v.Critique = string(said.Winner), said.Critique
			}
			return w.keepVerdict(&c.testCase, v)
		},
	})
}

// heard counts the questions in a row that the judge did not answer. After many the run fails: the judge is down.
func (w *worker) heard(failure string) error {
	if !judging.IsUnreachable(failure) {
		w.silent.Store(0)
		return nil
	}
	if w.silent.Add(1) >= judging.MaxUnreachable {
		return fault.Precondition.New("the judge model %s gives no answers", w.eval.asked.JudgeModel)
	}
	return nil
}

// gradeAll has the criterion's judge decide of every answer whether it passes.
func (w *worker) gradeAll(ctx context.Context, c *pendingCase, done *doneCase) error {
	graded := make([]*grading, len(w.models))
	for model := range w.models {
		a := c.answers[model]
		switch {
		case a == nil && c.gone():
			graded[model] = &grading{}
		case a == nil: // it failed as a whole
		case a.Failure != "":
			graded[model] = &grading{verdict: judge.Fail}
		default:
			v, err := w.grade(ctx, c, model)
			if err != nil {
				return err
			}
			done.verdicts = append(done.verdicts, *v)
			graded[model] = &grading{judge.Verdict(v.Verdict), v.Grade}
		}
	}
	done.baseline = graded[0].verdict
	for model := 1; model < len(w.models); model++ {
		if graded[model] != nil {
			done.settled = append(done.settled, settleCriterion(model, *graded[0], *graded[model]))
		}
	}
	return nil
}

// grade asks the criterion's judge about an answer. What it says is stored by what was asked, and shared.
func (w *worker) grade(ctx context.Context, c *pendingCase, model int) (*verdict, error) {
	if err := w.mayAsk(); err != nil {
		return nil, err
	}
	step := judge.Step{Messages: c.Messages, Response: c.answers[model].Answer, Tools: toolsOf(&c.testCase)}
	said, err := w.Judges.Ask(ctx, w.run.Workspace, &judging.Question{
		CriterionID: w.eval.CriterionID, Origin: w.eval.ID, Model: w.eval.asked.JudgeModel, Instructions: w.told,
		Subject: &judge.Subject{Steps: []judge.Step{step}}, ExpiresAt: max(c.ExpiresAt, 0),
	})
	if err != nil {
		return nil, err
	}
	w.budget.Add(said.Cost)
	return &verdict{
		Model: model, Verdict: string(said.Verdict), Grade: said.Grade, Critique: said.Critique, Failure: said.Failure,
		RequestID: said.RequestID, Cost: said.Cost,
	}, w.heard(said.Failure)
}
