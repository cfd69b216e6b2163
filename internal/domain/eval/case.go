package eval

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// A Case is a case of an eval and what came of it for one candidate: everything that one needs to disagree.
type Case struct {
	ID        string         `json:"id"`
	Object    string         `json:"object" enum:"eval_case"`
	EvalID    string         `json:"eval_id"`
	Candidate string         `json:"candidate"`
	Outcome   Outcome        `json:"outcome" enum:"win,loss,tie,failed" doc:"As the candidate sees it"`
	Flipped   bool           `json:"flipped" doc:"The judge changed its mind with the order, which makes a tie"`
	RequestID *string        `json:"request_id" doc:"Of the logged exchange that the case was made of"`
	Segment   *string        `json:"segment"`
	Messages  jsontext.Value `json:"messages" doc:"null once the texts have been deleted, with the log that they come from"`
	Tools     jsontext.Value `json:"tools"`
	Baseline  CaseAnswer     `json:"baseline_answer"`
	Answer    CaseAnswer     `json:"candidate_answer"`
	Verdicts  []CaseVerdict  `json:"verdicts" nullable:"false"`
	ExpiresAt *clock.Time    `json:"expires_at" doc:"When the texts are deleted; null for those that stay"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Case) SchemaName() string { return "EvalCase" }

// A CaseAnswer is a model's answer to a case.
type CaseAnswer struct {
	Model        string         `json:"model"`
	Response     jsontext.Value `json:"response" doc:"The assistant's message; null without one"`
	FinishReason *string        `json:"finish_reason"`
	Failure      *string        `json:"failure" doc:"Why there is no answer"`
	Reused       bool           `json:"reused" doc:"It is the logged answer"`
	RequestID    *string        `json:"request_id"`
	CostUSD      money.Nano     `json:"cost_usd"`
	LatencyMS    *float64       `json:"latency_ms"`
}

// A CaseVerdict is what the judge said: of both answers in one order, or of one answer.
type CaseVerdict struct {
	Of         *string        `json:"of" enum:"baseline,candidate" doc:"In a criterion's run: the answer that it is about"`
	Verdict    *judge.Verdict `json:"verdict" enum:"pass,fail" doc:"In a criterion's run"`
	Grade      *float64       `json:"grade" doc:"In a criterion's run"`
	ShownFirst *string        `json:"shown_first" enum:"baseline,candidate" doc:"In a comparison: the answer that was shown first"`
	Winner     *string        `json:"winner" enum:"baseline,candidate,tie" doc:"In a comparison"`
	Critique   string         `json:"critique"`
	Failure    *string        `json:"failure" doc:"Why there is no verdict"`
	RequestID  *string        `json:"request_id"`
}

// A CaseFilter selects cases. What is empty selects all.
type CaseFilter struct {
	Candidate string  `query:"candidate" doc:"Of one candidate; else a case is listed for each"`
	Outcome   Outcome `query:"outcome" enum:"win,loss,tie,failed"`
	Flipped   *bool   `query:"flipped" doc:"Those in which the judge changed its mind with the order, or the others"`
	Sort      string  `query:"sort" enum:"regression" doc:"The worst for the candidate first; by default as they were drawn"`
}

// The sides of a comparison.
const (
	baselineSide  = "baseline"
	candidateSide = "candidate"
)

// The orders of cases.
const (
	asDrawn    = ` ORDER BY position, model`
	worstFirst = ` ORDER BY regression DESC, position DESC, model DESC`
)

// An outcomeRow is what came of a case, without its texts.
type outcomeRow struct {
	Position, Model int
	Outcome         Outcome
	Flipped         bool
}

const outcomeColumns = `SELECT position, model, outcome, flipped FROM eval_outcomes
	WHERE workspace_id = $1 AND eval_id = $2`

// pageBytes bounds a page. A page that it cuts has fewer cases than were asked for. Tests lower it.
var pageBytes = 32 << 20

// Cases reads cases that are done, with what came of them. cut reports whether the page is shorter than was asked for,
// because it would be too long.
func (s *Store) Cases(ctx context.Context, ws tenant.ID, evalID string, f *CaseFilter, limit, offset int,
) (all []Case, cut bool, err error) {
	in := s.DB.In(ws)
	r, err := find(ctx, in, evalID)
	if err != nil {
		return nil, false, err
	}
	text, args, err := f.query(r)
	if err != nil {
		return nil, false, err
	}
	args = append(args, limit, offset)
	rows, err := db.Query[outcomeRow](ctx, in,
		fmt.Sprintf("%s LIMIT $%d OFFSET $%d", text, len(args), len(args)+1), args...)
	if err != nil {
		return nil, false, fmt.Errorf("find the cases of %s: %w", evalID, err)
	}
	all = make([]Case, 0, len(rows))
	size := 0
	err = showAll(ctx, in, r, rows, f.batch(r), func(c *Case) error {
		if size += c.size(); size > pageBytes && len(all) > 0 {
			return errPageFull
		}
		all = append(all, *c)
		return nil
	})
	if errors.Is(err, errPageFull) {
		return all, true, nil
	}
	return all, false, err
}

var errPageFull = errors.New("the page is full")

// query returns the statement that finds the cases of a filter, and its arguments.
func (f *CaseFilter) query(r *record) (text string, args []any, err error) {
	text, args = outcomeColumns, []any{r.ID}
	also := func(column string, arg any) {
		args = append(args, arg)
		text += fmt.Sprintf(" AND %s = $%d", column, len(args)+1)
	}
	if f.Candidate != "" {
		model, err := r.number(f.Candidate)
		if err != nil {
			return "", nil, err
		}
		also("model", model)
	}
	if f.Outcome != "" {
		also("outcome", string(f.Outcome))
	}
	if f.Flipped != nil {
		also("flipped", *f.Flipped)
	}
	if f.Sort != "" {
		return text + worstFirst, args, nil
	}
	return text + asDrawn, args, nil
}

// size returns how many bytes of text c has.
func (c *Case) size() int {
	return len(c.Messages) + len(c.Tools) + len(c.Baseline.Response) + len(c.Answer.Response)
}

// batch returns how many cases are read at a time. The worst for any candidate are of many cases and many candidates,
// of which all answers are read.
func (f *CaseFilter) batch(r *record) int {
	if f.Candidate == "" && f.Sort != "" {
		return max(loadBatch/len(r.asked.CandidateModels), 1)
	}
	return loadBatch
}

// showAll reads the texts of cases, a few at a time, and calls each with the cases. It reads those of no other
// candidate than the cases are listed for: an answer may have 4 MiB.
func showAll(ctx context.Context, in db.Scoped, r *record, rows []outcomeRow, batch int, each func(*Case) error) error {
	for some := range slices.Chunk(rows, batch) {
		positions := make([]int64, len(some))
		from, to := some[0].Model, some[0].Model
		for i := range some {
			positions[i] = int64(some[i].Position)
			from, to = min(from, some[i].Model), max(to, some[i].Model)
		}
		texts, err := load(ctx, in, r.ID, from, to, positions...)
		if err != nil {
			return err
		}
		for _, row := range some {
			shown := newCase(r, row, texts[row.Position])
			if err := each(&shown); err != nil {
				return err
			}
		}
	}
	return nil
}

// Export writes the cases that are done, one on a line, as they were drawn. It holds a few at a time.
func (s *Store) Export(ctx context.Context, ws tenant.ID, evalID string, to io.Writer) error {
	in := s.DB.In(ws)
	r, err := find(ctx, in, evalID)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(to, 64<<10)
	for position, model := -1, 0; ; {
		rows, err := db.Query[outcomeRow](ctx, in, outcomeColumns+
			` AND (position > $3 OR position = $3 AND model > $4)`+asDrawn+` LIMIT $5`,
			evalID, position, model, loadBatch)
		if err != nil {
			return fmt.Errorf("find the cases of %s: %w", evalID, err)
		}
		if err := showAll(ctx, in, r, rows, loadBatch, func(c *Case) error {
			line, err := json.Marshal(c, lenient)
			if err != nil {
				return fmt.Errorf("write a case: %w", err)
			}
			_, err = out.Write(append(line, '\n'))
			return err
		}); err != nil {
			return err
		}
		if len(rows) < loadBatch {
			return out.Flush()
		}
		position, model = rows[len(rows)-1].Position, rows[len(rows)-1].Model
	}
}

// caseAnswer reads a model's answer to a case, with what was asked. Both must still be there.
func (s *Store) caseAnswer(ctx context.Context, ws tenant.ID, r *record, caseID string, model int,
) (asked testCase, response []byte, err error) {
	type row struct {
		Messages, Tools []byte
		Answer          *[]byte
		ExpiresAt       clock.Time
	}
	c, err := db.Maybe[row](ctx, s.DB.In(ws), `
		SELECT k.messages, k.tools, a.answer, k.expires_at FROM eval_cases k
		LEFT JOIN eval_answers a ON a.workspace_id = $1 AND a.eval_id = $2 AND a.position = k.position AND a.model = $4
			AND a.failure = ''
		WHERE k.workspace_id = $1 AND k.eval_id = $2 AND k.case_id = $3`, r.ID, caseID, model)
	switch {
	case err != nil:
		return testCase{}, nil, fmt.Errorf("read a case: %w", err)
	case c == nil:
		return testCase{}, nil, fault.NotFound("case", caseID)
	case c.ExpiresAt < 0:
		return testCase{}, nil, fault.Conflict("the texts of the case were deleted with the log that they come from")
	case c.Answer == nil:
		return testCase{}, nil, fault.Conflict("the model has no answer to this case")
	}
	return testCase{Messages: c.Messages, Tools: c.Tools}, *c.Answer, nil
}

// newCase returns a case as the API shows it.
func newCase(r *record, row outcomeRow, c *pendingCase) Case {
	shown := Case{
		ID: c.ID, Object: "eval_case", EvalID: r.ID, Candidate: r.asked.CandidateModels[row.Model-1],
		Outcome: row.Outcome, Flipped: row.Flipped, RequestID: judging.Optional(c.RequestID),
		Segment: judging.Optional(c.Segment), Messages: jsonOrNull(c.Messages), Tools: jsonOrNull(c.Tools),
		Baseline: newCaseAnswer(r.asked.BaselineModel, c.answers[0]), Verdicts: []CaseVerdict{},
	}
	shown.Answer = newCaseAnswer(shown.Candidate, c.answers[row.Model])
	if c.ExpiresAt > 0 {
		shown.ExpiresAt = &c.ExpiresAt
	}
	said := c.verdicts[verdictKey{row.Model, false}]
	if r.asked.pairwise() {
		shown.compared(baselineSide, candidateSide, said)
		shown.compared(candidateSide, baselineSide, c.verdicts[verdictKey{row.Model, true}])
		return shown
	}
	shown.graded(baselineSide, c.verdicts[verdictKey{}])
	shown.graded(candidateSide, said)
	return shown
}

func jsonOrNull(text []byte) jsontext.Value {
	if len(text) == 0 {
		return jsontext.Value("null")
	}
	return text
}

func newCaseAnswer(model string, a *answer) CaseAnswer {
	if a == nil {
		return CaseAnswer{Model: model, Response: jsonOrNull(nil)}
	}
	shown := CaseAnswer{
		Model: model, Response: jsonOrNull(a.Answer), FinishReason: judging.Optional(a.FinishReason), Reused: a.Reused,
		Failure: judging.Optional(a.Failure), RequestID: judging.Optional(a.RequestID), CostUSD: a.Cost,
	}
	if a.Failure == "" {
		took := float64(a.Latency) / 1000
		shown.LatencyMS = &took
	}
	return shown
}

// compared adds what a judge said of both answers in one order.
func (c *Case) compared(first, second string, v *verdict) {
	if v == nil {
		return
	}
	shown := CaseVerdict{
		ShownFirst: &first, Critique: v.Critique, Failure: judging.Optional(v.Failure),
		RequestID: judging.Optional(v.RequestID),
	}
	shown.Winner = judging.Optional(map[judge.Winner]string{
		judge.WinnerA: first, judge.WinnerB: second, judge.NoOne: string(judge.NoOne),
	}[judge.Winner(v.Verdict)])
	c.Verdicts = append(c.Verdicts, shown)
}

// graded adds what a judge said of one answer.
func (c *Case) graded(of string, v *verdict) {
	if v == nil {
		return
	}
	shown := CaseVerdict{
		Of: &of, Verdict: judging.Optional(judge.Verdict(v.Verdict)), Critique: v.Critique,
		Failure: judging.Optional(v.Failure), RequestID: judging.Optional(v.RequestID),
	}
	if shown.Verdict != nil {
		shown.Grade = &v.Grade
	}
	c.Verdicts = append(c.Verdicts, shown)
}
