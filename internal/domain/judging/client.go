package judging

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// A Client asks judge models, and stores their answers. It is safe for concurrent use.
type Client struct {
	store       store
	models      infer.Completer
	plain       sync.Map // workspace and model → true: the model refuses structured answers
	inFlight    inFlight
	active      activeCounter
	pause       time.Duration // before the first retry
	concurrency atomic.Int64
	parse       func(*judge.Instructions, []byte) (judge.Assessment, error) // Instructions.Read, except in tests
}

// NewClient returns a client that asks models and stores their answers in d.
func NewClient(d *db.DB, models infer.Completer) *Client {
	c := &Client{store: newStore(d), models: models, pause: time.Second, parse: (*judge.Instructions).Read}
	c.SetConcurrency(DefaultConcurrency)
	return c
}

// DefaultConcurrency is how many questions of one run are asked at a time.
const DefaultConcurrency = 8

// SetConcurrency sets how many questions of one run are asked at a time, from its next batch on.
func (c *Client) SetConcurrency(n int64) { c.concurrency.Store(max(1, n)) }

// Batch is how many questions of a run are asked, and their answers written, together.
const Batch = 32

// Concurrency returns how many questions of one run are asked at a time.
func (c *Client) Concurrency() int { return int(c.concurrency.Load()) }

// FirstBatch is how many questions of a run are asked together at first: as many as are asked at a time, so that there
// is progress to see after the first answers.
func (c *Client) FirstBatch() int64 { return min(c.concurrency.Load(), Batch) }

// MaxAttempts is how often a model that cannot be reached is asked, besides the gateway's own retries.
const MaxAttempts = 3

// SetPause sets the pause before the first retry, which is a second. Tests shorten it.
func (c *Client) SetPause(d time.Duration) { c.pause = d }

// MaxAnswerTokens bounds one answer of a judge; reasoning counts. An estimate assumes TypicalAnswerTokens.
const (
	MaxAnswerTokens     = 4096
	TypicalAnswerTokens = 160
)

const maxBalanceWaits = 300 // for other questions to release what they hold

// Ask asks a judge model. An error means that no answer can be had now: the wallet is empty, the model is not in the
// catalog, the run has ended. Every other problem is an answer with a failure. A named hold that cannot cover the
// question is an *infer.HoldSpent, at once.
//
// The same question at the same time is asked once by a server. If two servers ask it at the same time, one answer is
// stored and charged. A stored assessment answers every later question of the workspace. A stored failure answers later
// questions of the same origin; between calibrations it is shared as well, because a judge must not improve by being
// calibrated again until its failures are gone.
func (c *Client) Ask(ctx context.Context, ws tenant.ID, q *Question) (Answer, error) {
	structured, err := q.Instructions.Ask(q.Model, q.Subject, judge.Structured)
	if err != nil {
		return Answer{Failure: "unreadable: " + err.Error()}, nil
	}
	digest := sha256.Sum256(structured) // as Instructions.Digest
	release, err := c.inFlight.acquire(ctx, string(ws)+string(digest[:]))
	if err != nil {
		return Answer{}, err
	}
	defer release()
	if known, ok, err := c.store.answer(ctx, ws, digest[:], q.Origin, q.Fresh); ok || err != nil {
		return known, err
	}
	var answer Answer
	failure, err := c.Retry(ctx, ws, q.Model, func() error {
		answer, err = c.askOnce(ctx, ws, q, structured, digest[:])
		return err
	})
	if errors.Is(err, errAnswered) {
		known, ok, reading := c.store.answer(ctx, ws, digest[:], q.Origin, q.Fresh)
		if ok || reading != nil {
			return known, reading
		}
	}
	if err != nil || failure != "" {
		return Answer{Failure: failure}, err
	}
	return answer, nil
}

// Retry calls ask until the model has answered. It tries again while the model cannot be reached, and while the wallet
// cannot cover the question because of what other questions hold. failure says why there is no answer to this question;
// an error means that no answer can be had now. It does not wait for a named hold: its owner knows what else spends it.
func (c *Client) Retry(ctx context.Context, ws tenant.ID, model string, ask func() error) (failure string, _ error) {
	for attempt, waits := 1, 0; ; attempt++ {
		others, err := c.counted(ws, model, ask)
		if err == nil {
			return "", nil
		}
		if errors.As(err, new(*panics.Error)) {
			return "unreadable: internal error", nil
		}
		if errors.As(err, new(*infer.HoldSpent)) {
			return "", err
		}
		f := fault.From(err)
		switch {
		case f.Code == fault.InsufficientBalance.Code && others > 0 && waits < maxBalanceWaits && ctx.Err() == nil:
			// The balance may suffice when the other questions have released what they hold.
			waits++
			if err := c.wait(ctx, 1, 0); err != nil {
				return "", err
			}
			attempt--
			continue
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case f.Status == http.StatusBadRequest && f.Code != fault.UnknownProvider.Code:
			return "not_taken: " + f.Message, nil
		case !transient(f):
			return "", err
		case attempt == MaxAttempts:
			return UnreachableBecause(f.Message), nil
		}
		if err := c.wait(ctx, attempt, f.RetryAfter); err != nil {
			return "", err
		}
	}
}

// counted calls ask, and returns how many other questions of the workspace are being asked. A panic is an error: the
// next question may be a better one.
func (c *Client) counted(ws tenant.ID, model string, ask func() error) (others int, err error) {
	done := c.active.enter(ws)
	err = panics.Call(nil, "asking a model", ask, "workspace", ws, "model", model)
	return done(), err
}

// read parses a judge's answer. If that panics, the answer is malformed: it is stored as such, and not asked for again.
func (c *Client) read(told *judge.Instructions, body []byte) (assessment judge.Assessment, err error) {
	err = panics.Call(nil, "parsing a judge's answer", func() error {
		assessment, err = c.parse(told, body)
		return err
	})
	if errors.As(err, new(*panics.Error)) {
		err = &judge.Failure{Kind: judge.Malformed, Detail: "internal error"}
	}
	return assessment, err
}

// askOnce asks the model once, and stores its answer before it is charged. structured is the body of the question in
// that mode.
func (c *Client) askOnce(ctx context.Context, ws tenant.ID, q *Question, structured, digest []byte) (Answer, error) {
	var answer Answer
	body := func(mode judge.Mode) ([]byte, error) {
		if mode == judge.Structured {
			return structured, nil
		}
		return q.Instructions.Ask(q.Model, q.Subject, mode)
	}
	err := c.complete(ctx, ws, &Completion{
		Origin: q.Origin, Hold: q.Hold, Model: q.Model, MaxTokens: MaxAnswerTokens, Body: body,
		Keep: func(a *infer.Answer) error {
			answer = Answer{Cost: a.Cost, RequestID: a.RequestID}
			if q.Answered != nil {
				q.Answered()
			}
			var failed *judge.Failure
			clean, _ := redact.JSON(a.Body) // it is stored, and a judge may quote what it was shown
			assessment, err := c.read(q.Instructions, clean)
			switch {
			case errors.As(err, &failed):
				answer.Failure = string(failed.Kind) + ": " + failed.Detail
			case err != nil:
				return err
			default:
				answer.Assessment = assessment
			}
			return c.store.saveAnswer(ws, q, digest, &answer)
		},
	})
	return answer, err
}

// AskAll asks a question for each key, several at a time, until the budget is spent. load returns the question of a
// key, or nil when its subject was deleted; the answer then is the failure missing. The answers that came before an
// error are returned with it.
func (c *Client) AskAll(ctx context.Context, ws tenant.ID, budget *Budget, keys []string, missing string,
	load func(ctx context.Context, key string) (*Question, error),
) (map[string]Answer, error) {
	var mu sync.Mutex
	answers := make(map[string]Answer, len(keys))
	err := ForEach(ctx, c.concurrency.Load(), keys, func(ctx context.Context, key string) error {
		if err := budget.Check(); err != nil {
			return err
		}
		question, err := load(ctx, key)
		answer := Answer{Failure: missing}
		if err == nil && question != nil {
			answer, err = c.Ask(ctx, ws, question)
		}
		if err != nil {
			return err
		}
		budget.Add(answer.Cost)
		mu.Lock()
		defer mu.Unlock()
		answers[key] = answer
		return nil
	})
	return answers, err
}

// A Completion is a question to a model that is not about a single subject, such as one for a draft.
type Completion struct {
	Origin, Model string
	Hold          string // the named hold that pays; empty for the wallet
	MaxTokens     int64
	Body          func(judge.Mode) ([]byte, error)
	Keep          func(*infer.Answer) error // stores the answer before it is charged
}

// Complete asks a model. It retries while the model cannot be reached.
func (c *Client) Complete(ctx context.Context, ws tenant.ID, q *Completion) error {
	for attempt := 1; ; attempt++ {
		err := c.complete(ctx, ws, q)
		if err == nil || ctx.Err() != nil || attempt == MaxAttempts || !transient(fault.From(err)) {
			return err
		}
		if err := c.wait(ctx, attempt, fault.From(err).RetryAfter); err != nil {
			return err
		}
	}
}

// Generate has a model answer a request, with the retries of Ask. failure says why there is no answer to this request;
// an error means that no answer can be had now.
func (c *Client) Generate(ctx context.Context, r *infer.Request) (failure string, _ error) {
	return c.Retry(ctx, r.Workspace, r.Model, func() error {
		_, err := c.models.Complete(ctx, r)
		return err
	})
}

// Compare asks a model for a structured answer, as Complete does, with the retries and the failures of Ask.
func (c *Client) Compare(ctx context.Context, ws tenant.ID, q *Completion) (failure string, _ error) {
	return c.Retry(ctx, ws, q.Model, func() error { return c.complete(ctx, ws, q) })
}

// complete asks for a structured answer, and for a plain one when the model refuses that. The refusal is remembered.
func (c *Client) complete(ctx context.Context, ws tenant.ID, q *Completion) error {
	modes := []judge.Mode{judge.Structured, judge.Plain}
	reached := string(ws) + " " + q.Model // another workspace may reach another model by the same name
	if _, plain := c.plain.Load(reached); plain {
		modes = modes[1:]
	}
	var err error
	for _, mode := range modes {
		body, bad := q.Body(mode)
		if bad != nil {
			return bad
		}
		_, err = c.models.Complete(ctx, &infer.Request{
			Workspace: ws, Origin: q.Origin, Hold: q.Hold, Model: q.Model, Body: body, MaxTokens: q.MaxTokens,
			Keep: q.Keep,
		})
		if err == nil {
			if mode == judge.Plain {
				c.plain.Store(reached, true)
			}
			return nil
		}
		if f := fault.From(err); f.Status != http.StatusBadRequest || f.Code == fault.UnknownProvider.Code {
			return err
		}
	}
	return err
}

// transient reports whether a refusal may be gone at the next attempt.
func transient(f *fault.Fault) bool {
	switch f.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// wait pauses before the next attempt: four times as long after each, and no shorter than retryAfter, up to a minute.
func (c *Client) wait(ctx context.Context, attempt int, retryAfter time.Duration) error {
	timer := time.NewTimer(max(c.pause<<(2*(attempt-1)), min(retryAfter, time.Minute)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// EstimateSamples is how many subjects an estimate is made from.
const EstimateSamples = 32

// EstimateAll estimates the cost of total questions from some of their subjects.
func (c *Client) EstimateAll(ctx context.Context, ws tenant.ID, model string, told *judge.Instructions,
	some []judge.Subject, total int64, fresh bool,
) (money.Nano, error) {
	var sum money.Nano
	for i := range some {
		cost, err := c.estimate(ctx, ws, model, told, &some[i], fresh, TypicalAnswerTokens)
		if err != nil {
			return 0, err
		}
		sum += cost
	}
	return sum / money.Nano(max(1, len(some))) * money.Nano(total), nil
}

// Most estimates the most that a question can cost: an answer of the greatest length. It is 0 where the answer is
// stored.
func (c *Client) Most(ctx context.Context, ws tenant.ID, q *Question) (money.Nano, error) {
	return c.estimate(ctx, ws, q.Model, q.Instructions, q.Subject, q.Fresh, MaxAnswerTokens)
}

// estimate estimates the cost of one question with an answer of that length. It is 0 where the answer is stored.
func (c *Client) estimate(ctx context.Context, ws tenant.ID, model string, told *judge.Instructions, s *judge.Subject,
	fresh bool, tokens int64,
) (money.Nano, error) {
	digest, err := told.Digest(model, s)
	if err != nil {
		return 0, nil //nolint:nilerr // the answer will be a failure, and cost nothing
	}
	if _, known, err := c.store.answer(ctx, ws, digest[:], "", fresh); known || err != nil {
		return 0, err
	}
	body, err := told.Ask(model, s, judge.Structured)
	if err != nil {
		return 0, fmt.Errorf("ask a judge: %w", err)
	}
	return c.EstimateBody(ws, model, body, MaxAnswerTokens, tokens)
}

// EstimateBody estimates the cost of one request with at most maxTokens, and probably expected tokens of output.
func (c *Client) EstimateBody(ws tenant.ID, model string, body []byte, maxTokens, expected int64) (money.Nano, error) {
	return c.models.Estimate(&infer.Request{
		Workspace: ws, Origin: "estimate", Model: model, Body: body,
		MaxTokens: maxTokens,
	}, expected)
}
