package eval

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/money"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
)

// Figures are what an eval has found. They are estimates with intervals at 95 %; what they prove is the gate's to say.
type Figures struct {
	FlipRate   *float64 `json:"flip_rate" doc:"Of a comparison: how often the judge changed its mind with the order; such a case is a tie"`
	Failed     Failures `json:"failed" doc:"What could not be had after retries"`
	Baseline   Result   `json:"baseline"`
	Candidates []Result `json:"candidates" nullable:"false"`
}

// Failures count what could not be had.
type Failures struct {
	Judge  int64   `json:"judge" doc:"Cases without a judgement, of all candidates"`
	Models byModel `json:"models" nullable:"false" doc:"Cases without an answer, by model"`
}

// byModel counts something by model. It is always written in the same order.
type byModel map[string]int64

// MarshalJSONTo writes the counts in the order of their names.
func (m byModel) MarshalJSONTo(to *jsontext.Encoder) error {
	return json.MarshalEncode(to, map[string]int64(m), json.Deterministic(true))
}

// SchemaName is the type's name in the OpenAPI document.
func (Failures) SchemaName() string { return "EvalFailures" }

// A Result is what an eval has found about one model. What its kind of eval does not have is null.
type Result struct {
	Model        string         `json:"model"`
	Failure      *string        `json:"failure" doc:"Why it failed as a whole: its other cases were not generated"`
	Cases        int64          `json:"cases" doc:"That are done"`
	Failed       int64          `json:"failed" doc:"Of them without a judgement; they are in no other figure, and count against it in the gate"`
	Wins         *int64         `json:"wins" doc:"Cases in which it is better than the baseline"`
	Losses       *int64         `json:"losses"`
	Ties         *int64         `json:"ties"`
	Flipped      *int64         `json:"flipped" doc:"Ties because the judge changed its mind with the order"`
	WinRate      *float64       `json:"win_rate" doc:"A tie counts half"`
	WinRateCI    *stat.Interval `json:"win_rate_ci" doc:"Tango's score interval"`
	PassRate     *float64       `json:"pass_rate" doc:"As the judge says"`
	PassRateCI   *stat.Interval `json:"pass_rate_ci" doc:"Wilson's interval, of the judge's own rate and not of the truth"`
	Corrected    *float64       `json:"corrected_pass_rate" doc:"Corrected for the errors that the judge's certificate tells of (Rogan–Gladen)"`
	CorrectedCI  *stat.Interval `json:"corrected_pass_rate_ci" doc:"Lang–Reiczigel: with the sampling error of the calibration"`
	NotCorrected *string        `json:"not_corrected" enum:"no_verdicts,no_certificate,few_labels,judge_not_proven,contradicted" doc:"Why it is not corrected"`
	Difference   *float64       `json:"difference" doc:"Its pass rate minus the baseline's, as the judge sees it"`
	DifferenceCI *stat.Interval `json:"difference_ci" doc:"Newcombe's paired interval"`
	PValue       *float64       `json:"p_value" doc:"McNemar's mid-p: how often two equal models would differ by as much"`
	CostUSD      money.Nano     `json:"cost_usd" doc:"Of its answers; of reused ones what they cost when they were logged"`
	LatencyMS    *float64       `json:"latency_ms" doc:"The median"`
	Reused       int64          `json:"reused" doc:"Answers that were taken from the log"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Result) SchemaName() string { return "EvalResult" }

// noFigures are the figures of an eval of which nothing is known.
func noFigures(models []string) Figures {
	f := Figures{Failed: Failures{Models: byModel{}}, Candidates: make([]Result, len(models)-1)}
	for i, model := range models {
		f.result(i).Model, f.Failed.Models[model] = model, 0
	}
	return f
}

// result returns the result of a model by its number.
func (f *Figures) result(model int) *Result {
	if model == 0 {
		return &f.Baseline
	}
	return &f.Candidates[model-1]
}

// A tally counts the outcomes of a candidate.
type tally struct {
	stat.Outcomes
	stat.Pairs
	failed, flipped int64
	passes, judged  int64 // of the candidate's answers
}

// add counts n cases with the same outcome.
func (t *tally) add(outcome Outcome, flipped bool, baseline, candidate judge.Verdict, n int64) {
	if flipped {
		t.flipped += n
	}
	if candidate != "" {
		t.judged += n
		if candidate == judge.Pass {
			t.passes += n
		}
	}
	switch outcome {
	case Win:
		t.Wins += n
	case Loss:
		t.Losses += n
	case Tie:
		t.Ties += n
	default:
		t.failed += n
		return
	}
	if cell := t.cell(candidate, baseline); cell != nil {
		*cell += n
	}
}

// cell returns the count of a pair of verdicts, the candidate's first; nil in a comparison.
func (t *tally) cell(candidate, baseline judge.Verdict) *int64 {
	switch [2]judge.Verdict{candidate, baseline} {
	case [2]judge.Verdict{judge.Pass, judge.Pass}:
		return &t.Both
	case [2]judge.Verdict{judge.Pass, judge.Fail}:
		return &t.First
	case [2]judge.Verdict{judge.Fail, judge.Pass}:
		return &t.Second
	case [2]judge.Verdict{judge.Fail, judge.Fail}:
		return &t.Neither
	}
	return nil
}

// cases returns how many were counted.
func (t *tally) cases() int64 { return t.N() + t.failed }

// tallies counts the outcomes of candidates, from one number to another, by their numbers.
func tallies(ctx context.Context, in db.Scoped, evalID string, from, to int) (map[int]*tally, error) {
	type row struct {
		Model               int
		Outcome             Outcome
		Flipped             bool
		Baseline, Candidate judge.Verdict
		N                   int64
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT model, outcome, flipped, baseline, candidate, COUNT(*) AS n FROM eval_outcomes
		WHERE workspace_id = $1 AND eval_id = $2 AND model BETWEEN $3 AND $4
			GROUP BY model, outcome, flipped, baseline, candidate`, evalID, from, to)
	if err != nil {
		return nil, fmt.Errorf("count the outcomes of %s: %w", evalID, err)
	}
	all := map[int]*tally{}
	for _, r := range rows {
		if all[r.Model] == nil {
			all[r.Model] = &tally{}
		}
		all[r.Model].add(r.Outcome, r.Flipped, r.Baseline, r.Candidate, r.N)
	}
	return all, nil
}

// figures computes what the cases that are done have shown.
func (r *record) figures(ctx context.Context, in db.Scoped, c *calibration.Certificate) (Figures, error) {
	f := noFigures(r.asked.models())
	counted, err := tallies(ctx, in, r.ID, 1, len(f.Candidates))
	if err != nil {
		return f, err
	}
	lost, err := failures(ctx, in, r.ID)
	if err != nil {
		return f, err
	}
	var judged, flipped int64
	for i := range f.Candidates {
		t, result := counted[i+1], &f.Candidates[i]
		if t == nil {
			t = &tally{}
		}
		result.Failure = judging.Optional(lost[i+1])
		result.fill(t, r.asked.pairwise(), c)
		f.Failed.Judge += t.failed
		judged, flipped = judged+t.N(), flipped+t.flipped
	}
	if r.asked.pairwise() && judged > 0 {
		rate := float64(flipped) / float64(judged)
		f.FlipRate = &rate
	}
	if err := r.fillBaseline(ctx, in, &f.Baseline, c); err != nil {
		return f, err
	}
	return f, r.fillAnswers(ctx, in, &f)
}

// fill computes the figures of a candidate.
func (r *Result) fill(t *tally, pairwise bool, c *calibration.Certificate) {
	r.Cases, r.Failed = t.cases(), t.failed
	r.Wins, r.Losses, r.Ties = &t.Wins, &t.Losses, &t.Ties
	if t.N() > 0 {
		p := stat.McNemar(t.Wins, t.Losses)
		r.PValue = &p
	}
	if pairwise {
		r.Flipped = &t.flipped
		if t.N() > 0 {
			rate, interval := t.Rate(), t.Interval(trust.Confidence)
			r.WinRate, r.WinRateCI = &rate, &interval
		}
		return
	}
	r.fillRates(t.passes, t.judged, c)
	if t.N() > 0 {
		difference, interval := t.Difference(trust.Confidence)
		r.Difference, r.DifferenceCI = &difference, &interval
	}
}

// fillRates computes the pass rates of x passes among n verdicts.
func (r *Result) fillRates(x, n int64, c *calibration.Certificate) {
	if n > 0 {
		rate, interval := float64(x)/float64(n), stat.Wilson(x, n, trust.Confidence)
		r.PassRate, r.PassRateCI = &rate, &interval
	}
	reason := "no_certificate"
	if c != nil {
		correction, refusal := stat.Correctable(stat.Table(c.Matrix), trust.Confidence)
		if refusal == "" {
			var rate float64
			var interval stat.Interval
			if rate, interval, refusal = correction.RoganGladen(x, n); refusal == "" {
				r.Corrected, r.CorrectedCI = &rate, &interval
				return
			}
		}
		reason = string(refusal)
	}
	r.NotCorrected = &reason
}

// fillBaseline computes the figures of the baseline.
func (r *record) fillBaseline(ctx context.Context, in db.Scoped, b *Result, c *calibration.Certificate) error {
	type row struct{ Cases, Passes, Judged int64 }
	n, err := db.One[row](ctx, in, `
		SELECT COUNT(*) AS cases, COUNT(CASE WHEN baseline = 'pass' THEN 1 END) AS passes,
			COUNT(CASE WHEN baseline <> '' THEN 1 END) AS judged
		FROM eval_cases WHERE workspace_id = $1 AND eval_id = $2 AND NOT pending`, r.ID)
	if err != nil {
		return fmt.Errorf("count the cases of %s: %w", r.ID, err)
	}
	b.Cases = n.Cases
	if !r.asked.pairwise() {
		b.Failed = n.Cases - n.Judged
		b.fillRates(n.Passes, n.Judged, c)
	}
	return nil
}

// fillAnswers computes what the answers of every model cost, and how long they took.
func (r *record) fillAnswers(ctx context.Context, in db.Scoped, f *Figures) error {
	type row struct {
		Model   int
		Failed  bool
		Reused  bool
		Cost    money.Nano
		Latency int64
	}
	latencies := make([][]float64, len(r.asked.models()))
	for a, err := range db.Rows[row](ctx, in, `
		SELECT model, failure <> '' AS failed, reused, cost, latency FROM eval_answers
		WHERE workspace_id = $1 AND eval_id = $2`, r.ID) {
		if err != nil {
			return fmt.Errorf("read the answers of %s: %w", r.ID, err)
		}
		result := f.result(a.Model)
		result.CostUSD += a.Cost
		switch {
		case a.Failed:
			f.Failed.Models[result.Model]++
		default:
			latencies[a.Model] = append(latencies[a.Model], float64(a.Latency)/1000)
		}
		if a.Reused {
			result.Reused++
		}
	}
	for model, all := range latencies {
		f.result(model).LatencyMS = finite(stat.Median(all))
	}
	return nil
}

// finish stores the figures of an eval whose cases are all done.
func (r *record) finish(ctx context.Context, in db.Scoped) error {
	c, _, err := r.certificate(ctx, in)
	if err != nil {
		return err
	}
	f, err := r.figures(ctx, in, c)
	if err != nil {
		return err
	}
	text, err := encode(f)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, in,
		`UPDATE evals SET result = $3 WHERE workspace_id = $1 AND id = $2`, r.ID, text); err != nil {
		return fmt.Errorf("store the result of %s: %w", r.ID, err)
	}
	return nil
}
