package demo

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
)

// made is what was created, as far as a fill needs it.
type made struct {
	ID string `json:"id"`
}

// post makes something once.
func (f *fill) post(ctx context.Context, path, once string, body any, into any) error {
	return f.api.do(ctx, call{method: http.MethodPost, path: path, body: body, once: f.run.ID + "-" + once}, into)
}

const rubric = "The answer does what was asked, with nothing made up. An answer that talks of something else fails."

// judges makes three judges: one to be calibrated, one of another model as an anchor, and one that has too few labels
// yet.
func (f *fill) judges(ctx context.Context) error {
	var main, anchor, tone made
	if err := f.post(ctx, "/v1/criteria", "criterion", object{
		"name": "Answers the question", "rubric": rubric, "judge_model": judgeModel,
	}, &main); err != nil {
		return err
	}
	if err := f.post(ctx, "/v1/criteria", "anchor", object{
		"name": "Answers the question (anchor)", "rubric": rubric, "judge_model": largeModel,
	}, &anchor); err != nil {
		return err
	}
	if err := f.post(ctx, "/v1/criteria", "tone", object{
		"name": "Friendly and brief", "rubric": "The answer is friendly, and has at most three sentences.",
		"judge_model": judgeModel,
	}, &tone); err != nil {
		return err
	}
	f.state.Criterion, f.state.Anchor, f.state.Tone = main.ID, anchor.ID, tone.ID
	return nil
}

// A logged is an exchange that is to be graded.
type logged struct {
	RequestID string         `json:"request_id"`
	Tag       *string        `json:"tag"`
	TraceID   *string        `json:"trace_id"`
	Model     string         `json:"model"`
	CreatedAt string         `json:"created_at"`
	Response  jsontext.Value `json:"response"`
}

// mark begins the quality that simulated answers state of themselves.
const mark = "[sim quality="

// quality reads the mark of an answer.
func (l *logged) quality() (float64, bool) {
	var said struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(l.Response, &said) != nil {
		return 0, false
	}
	at := strings.LastIndex(said.Content, mark)
	if at < 0 {
		return 0, false
	}
	number, _, _ := strings.Cut(said.Content[at+len(mark):], "]")
	q, err := strconv.ParseFloat(number, 64)
	return q, err == nil
}

// toGrade returns the exchanges that people grade, in the order in which they were sent.
func (f *fill) toGrade(ctx context.Context) (all []logged, err error) {
	for offset := 0; ; {
		var page struct {
			Data    []logged `json:"data"`
			HasMore bool     `json:"has_more"`
		}
		path := fmt.Sprintf("/v1/logs?finish_reason=stop&model=%s&limit=200&offset=%d", chatModel, offset)
		if err := f.api.do(ctx, call{method: http.MethodGet, path: path}, &page); err != nil {
			return nil, err
		}
		for _, l := range page.Data {
			if _, marked := l.quality(); marked && l.TraceID == nil {
				all = append(all, l)
			}
		}
		if offset += len(page.Data); !page.HasMore || len(page.Data) == 0 {
			break
		}
	}
	slices.SortFunc(all, func(a, b logged) int { return cmp.Compare(a.RequestID, b.RequestID) }) // ids sort by time
	return all[:min(len(all), graded)], nil
}

// grade grades logged exchanges as one person, for both judges, a few for the third, and three whole runs.
func (f *fill) grade(ctx context.Context) error {
	all, err := f.toGrade(ctx)
	if err != nil {
		return err
	}
	if err := f.label(ctx, "main", f.labels(all, &graders[0], f.state.Criterion)); err != nil {
		return err
	}
	if err := f.label(ctx, "anchor", f.labels(all, &graders[0], f.state.Anchor)); err != nil {
		return err
	}
	few := graders[0]
	few.share = graded / 8
	if err := f.label(ctx, "tone", f.labels(all, &few, f.state.Tone)); err != nil {
		return err
	}
	var whole []object
	for run := range 3 {
		whole = append(whole, object{
			"trace_id": traceOf(run), "verdict": verdict(run != 1), "author": graders[0].name, "source": "demo",
			"critique": "Zephyrine: the whole run was read, from the lookup to the refund.",
		})
	}
	return f.label(ctx, "runs", whole)
}

// gradeAgain grades some of the exchanges as a second person, who does not always agree with the first.
func (f *fill) gradeAgain(ctx context.Context) error {
	all, err := f.toGrade(ctx)
	if err != nil {
		return err
	}
	return f.label(ctx, "second", f.labels(all, &graders[1], f.state.Criterion))
}

func verdict(pass bool) string {
	if pass {
		return "pass"
	}
	return "fail"
}

// labels are the grades that a person gives some exchanges.
func (f *fill) labels(all []logged, by *grader, criterion string) (labels []object) {
	for n := 0; n < len(all); n += by.share {
		q, _ := all[n].quality()
		pass := (q >= 0.5) == by.right(n)
		critique := "Zephyrine: it answers what was asked."
		if !pass {
			critique = "Zephyrine: it talks past the question."
		}
		labels = append(labels, object{
			"request_id": all[n].RequestID, "criterion_id": criterion, "verdict": verdict(pass), "critique": critique,
			"author": by.name, "source": "demo",
		})
	}
	return labels
}

// labelBatch is how many labels are made at once.
const labelBatch = 100

// label makes labels, once.
func (f *fill) label(ctx context.Context, what string, labels []object) error {
	for n := 0; n < len(labels); n += labelBatch {
		batch := labels[n:min(n+labelBatch, len(labels))]
		err := f.post(ctx, "/v1/labels", fmt.Sprintf("labels-%s-%d", what, n), object{"labels": batch}, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// calibrate measures the judge by the labels.
func (f *fill) calibrate(ctx context.Context) error { return f.calibrateOne(ctx, f.state.Criterion) }

// calibrateAnchor measures the anchor by the same exchanges.
func (f *fill) calibrateAnchor(ctx context.Context) error { return f.calibrateOne(ctx, f.state.Anchor) }

func (f *fill) calibrateOne(ctx context.Context, criterion string) error {
	path := "/v1/criteria/" + criterion + "/calibrations"
	var begun made
	if err := f.post(ctx, path, "calibration-"+criterion, nil, &begun); err != nil {
		return err
	}
	return f.api.await(ctx, path+"/"+begun.ID)
}

// freeze makes a dataset of what customers asked, and holds a part of it out.
func (f *fill) freeze(ctx context.Context) error {
	return f.post(ctx, "/v1/datasets/from_logs", "dataset", object{
		"name": "support", "holdout_pct": 20, "filters": object{"tag": "support"},
	}, nil)
}

// compare runs two evals: a better model that may replace the one in use, and a cheaper one that may not.
func (f *fill) compare(ctx context.Context) error {
	for _, e := range []struct{ name, baseline, candidate string }{
		{"Large in place of chat", chatModel, largeModel},
		{"Chat in place of large", largeModel, chatModel},
	} {
		var begun made
		if err := f.post(ctx, "/v1/evals", "eval-"+e.candidate, object{
			"name": e.name, "criterion_id": f.state.Criterion, "baseline_model": e.baseline,
			"candidate_models": []string{e.candidate}, "sample_count": 150, "sample_filters": object{"tag": "support"},
			"parameters": object{"max_tokens": 300},
		}, &begun); err != nil {
			return err
		}
		if err := f.api.await(ctx, "/v1/evals/"+begun.ID); err != nil {
			return err
		}
	}
	return nil
}

// split gives the alias a canary, with a gate that recommends.
func (f *fill) split(ctx context.Context) error {
	for _, alias := range []object{
		{
			"name": "search", "target_model": chatModel, "description": "Zephyrine's search, on the cheap model",
			"fallback_models": []string{largeModel},
		},
		{
			"name": assistant, "target_model": chatModel, "canary_model": largeModel, "canary_percent": 50,
			"description": "Zephyrine's assistant", "gate_criterion_id": f.state.Criterion, "gate_mode": "recommend",
			"gate_min_samples": 30, "gate_rollback_threshold": 0.1, "gate_max_cost_usd": 2,
		},
	} {
		if err := f.api.do(ctx, call{method: http.MethodPut, path: "/v1/aliases", body: alias}, nil); err != nil {
			return err
		}
	}
	return nil
}

// The reward session: how many steps a trainer makes, and how many completions are scored in each.
const (
	rewardSteps = 5
	rewardItems = 32
)

// score scores completions in a reward session with an anchor, as a trainer would.
func (f *fill) score(ctx context.Context) error {
	var session made
	if err := f.post(ctx, "/v1/reward/sessions", "session", object{
		"label": "Zephyrine's policy", "budget_usd": 1, "expires_in_seconds": 7 * 86_400,
		"reward": object{"mode": "single", "criterionId": f.state.Criterion},
		"anchor": object{"criterion_id": f.state.Anchor, "sample_size": 16, "every": rewardItems},
	}, &session); err != nil {
		return err
	}
	for step := range rewardSteps {
		items := make([]object, rewardItems)
		for n := range items {
			items[n] = rewardItem(step, n)
		}
		if err := f.api.do(ctx, call{
			method: http.MethodPost, path: "/v1/reward/sessions/" + session.ID + "/score",
			body: object{"step": strconv.Itoa(step), "items": items},
		}, nil); err != nil {
			return err
		}
	}
	return nil
}

// queue makes a review queue, where the server has them.
func (f *fill) queue(ctx context.Context) error {
	if f.Queue == nil {
		return fault.Conflict("this server has no review queues")
	}
	return f.Queue(ctx, f.run.Workspace, f.user, f.state.Criterion)
}
