package reward

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/limit"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
)

// scoreRoutes are the routes that score. They have limits of their own: a body of 64 MiB, whose memory is a part of the
// workspace's share, and 110 seconds.
func (s *Store) scoreRoutes() []api.Route {
	return []api.Route{
		api.Raw[scoring, Scores]("/reward/sessions/{id}/score", api.Admin, s.serveScore,
			"Score 1 to 512 completions, within 110 seconds. It is idempotent by step, id and content: what has a reward costs nothing again. It takes no Idempotency-Key",
			api.Management),
		api.Raw[openRLHFCall, OpenRLHFScores]("/rewards/v1/{token}/openrlhf", api.Token, s.serveOpenRLHF,
			"Score as OpenRLHF's remote reward models do (--remote_rm_url)"),
		api.Raw[slimeCall, float64]("/rewards/v1/{token}/slime", api.Token, s.serveSlime,
			"Score as slime's remote reward models do (--rm-type remote_rm, --rm-url)"),
	}
}

type scoring struct {
	ID   string `path:"id"`
	Body ScoreRequest
}

// serveScore answers POST /v1/reward/sessions/{id}/score.
func (s *Store) serveScore(w http.ResponseWriter, r *http.Request) error {
	edge.SkipAccessLog(r.Context())
	if r.URL.RawQuery != "" {
		return fault.InvalidParameter.New("this operation takes no parameters in the query string")
	}
	return s.ServeScore(w, r, edge.Caller(r.Context()).Workspace, r.PathValue("id"))
}

// ServeScore scores what the body of a request asks for, in a session of a workspace.
func (s *Store) ServeScore(w http.ResponseWriter, r *http.Request, ws tenant.ID, id string) error {
	if r.Header.Get("Idempotency-Key") != "" {
		return fault.UnsupportedParameter.New("Idempotency-Key cannot be honoured here: scoring is idempotent by step, id and content")
	}
	var in ScoreRequest
	held, err := s.readScoring(r, ws, &in)
	if err != nil {
		return err
	}
	scores, err := s.score(r.Context(), ws, id, in.Step, in.check, held.release)
	if err != nil {
		return err
	}
	return send(w, scores)
}

// Score scores for another domain of the server, as a call of the API does.
func (s *Store) Score(ctx context.Context, ws tenant.ID, id, step string, items []ScoreItem) (Scores, error) {
	in, size := &ScoreRequest{step, items}, int64(0)
	for i := range items {
		size += int64(len(items[i].Completion))
		for _, m := range items[i].Messages {
			size += int64(len(m))
		}
	}
	held, err := s.reserve(ws, size)
	if err != nil {
		return Scores{}, err
	}
	return s.score(ctx, ws, id, step, in.check, held.release)
}

// Estimate estimates what a criterion's judge is paid for a number of items like these, and the most for one of them.
func (s *Store) Estimate(
	ctx context.Context, ws tenant.ID, criterionID string, some []ScoreItem, total int64,
) (cost, most money.Nano, err error) {
	in := s.DB.In(ws)
	c, err := criterion.Find(ctx, in, criterionID)
	if err != nil {
		return 0, 0, err
	}
	told, err := c.Instructions(ctx, in)
	if err != nil {
		return 0, 0, err
	}
	var shown []judge.Subject
	for i := range some {
		checked, err := some[i].check(fmt.Sprintf("items[%d].", i), false)
		if err != nil {
			return 0, 0, err
		}
		one, err := subject(checked.Prompt, checked.Completion)
		if err != nil {
			return 0, 0, err
		}
		shown = append(shown, *one)
		worst, err := s.Judges.Most(ctx, ws, &judging.Question{
			Model: c.JudgeModel, Instructions: told, Subject: one, Fresh: true,
		})
		if err != nil {
			return 0, 0, err
		}
		most = max(most, worst)
	}
	cost, err = s.Judges.EstimateAll(ctx, ws, c.JudgeModel, told, shown, total, true)
	return cost, most, err
}

// A memory is what a call holds of its workspace's share of the memory for bodies.
type memory struct {
	share *limit.Share
	bytes int64
}

// reserve takes memory of a workspace's share.
func (s *Store) reserve(ws tenant.ID, bytes int64) (memory, error) {
	m := memory{s.Bounds.Buffered.Of(ws), bytes}
	if !m.share.Take(bytes) {
		return memory{}, fault.RateLimited.New("too many bytes in flight").In(time.Second)
	}
	return m, nil
}

// release gives the memory back. It is called once.
func (m memory) release() {
	if m.share != nil {
		m.share.Give(m.bytes)
	}
}

// readScoring reads a body into something. What it takes in memory afterwards stays reserved until it is released.
func (s *Store) readScoring(r *http.Request, ws tenant.ID, into any) (memory, error) {
	body, err := s.Bounds.Read(r, scoreBody)
	if err != nil {
		return memory{}, err
	}
	defer body.Release()
	held, err := s.reserve(ws, int64(len(body.Bytes)))
	if err != nil {
		return memory{}, err
	}
	if err := api.Decode(body.Bytes, into); err != nil {
		held.release()
		return memory{}, err
	}
	return held, nil
}

// send writes an answer.
func send(w http.ResponseWriter, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // a caller that disconnected has no use for an error
	return nil
}
