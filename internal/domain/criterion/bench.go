package criterion

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// A Bench asks judges. What was answered is kept by what was asked, before it is paid for, so that nothing is paid for twice, whatever
// dies when.
type Bench struct {
	db     *db.DB
	models infer.Completer
	plain  sync.Map // asker → true: its model refuses structured answers
	flying flights
	asking crowd
	pause  time.Duration
	atOnce atomic.Int64
}

// NewBench asks models, and keeps their answers in d.
func NewBench(d *db.DB, models infer.Completer) *Bench {
	b := &Bench{db: d, models: models, pause: time.Second}
	b.AtOnce(usually)
	return b
}

// usually is how many questions of one run are asked at a time.
const usually = 8

// AtOnce sets how many questions of one run are asked at a time, from the next batch on.
func (b *Bench) AtOnce(n int64) { b.atOnce.Store(max(1, n)) }

// A question is something to be judged.
type question struct {
	criterionID string
	origin      string // of the run that asks
	model       string
	brief       *judge.Brief
	subject     *judge.Subject
	expires     clock.Time // when the answer must be forgotten; 0 for never
	fresh       bool       // what others were answered does not count
}

// A finding is what came of a question: an opinion or, where the failure says why, none.
type finding struct {
	judge.Opinion
	Failure   string
	Cost      money.Nano // 0 when it was remembered
	RequestID string

	remembered bool
}

// maxAnswer is how long a judge's answer may be, in tokens: reasoning counts.
const maxAnswer = 4096

// usual is how long it is, about.
const usual = 160

// patience is how often a model that cannot be reached is asked, beyond what the gateway tries.
const patience = 3

// maxWaits is how often a question waits for what others hold.
const maxWaits = 300

// ask judges. An error says that nothing can be found out now: the wallet is empty, the model is gone, the run is over. Everything
// else that can go wrong is a finding without an opinion.
func (b *Bench) ask(ctx context.Context, ws tenant.ID, q *question) (finding, error) {
	digest, err := q.brief.Digest(q.model, q.subject)
	if err != nil {
		return finding{Failure: "unreadable: " + err.Error()}, nil
	}
	end, err := b.flying.take(ctx, string(ws)+string(digest[:])) // who asks the same at once is answered once
	if err != nil {
		return finding{}, err
	}
	defer end()
	if known, ok, err := b.recall(ctx, ws, digest[:], q.origin, q.fresh); ok || err != nil {
		return known, err
	}
	for attempt, waits := 1, 0; ; attempt++ {
		done := b.asking.enter(ws)
		found, err := b.once(ctx, ws, q, digest[:])
		others := done()
		if err == nil {
			return found, nil
		}
		f := fault.From(err)
		switch {
		case f.Code == fault.InsufficientBalance.Code && others > 0 && waits < maxWaits && ctx.Err() == nil: // what they hold may be enough when they are done
			waits++
			if err := b.wait(ctx, 1, 0); err != nil {
				return finding{}, err
			}
			attempt--
			continue
		case ctx.Err() != nil:
			return finding{}, context.Cause(ctx)
		case f.Status == http.StatusBadRequest && f.Code != fault.UnknownProvider.Code:
			return finding{Failure: "not_taken: " + f.Message}, nil
		case !transient(f):
			return finding{}, err
		case attempt == patience:
			return finding{Failure: unreachable + ": " + f.Message}, nil
		}
		if err := b.wait(ctx, attempt, f.RetryAfter); err != nil {
			return finding{}, err
		}
	}
}

// unreachable is how the failure begins of a judge that gave no answer at all.
const unreachable = "unreachable"

// transient reports whether a refusal may be gone the next time.
func transient(f *fault.Fault) bool {
	switch f.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
		return true
	}
	return false
}

func (b *Bench) wait(ctx context.Context, attempt int, asked time.Duration) error {
	timer := time.NewTimer(max(b.pause<<(2*(attempt-1)), min(asked, time.Minute)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// recall is what was answered before. A verdict is one for everybody. A failure is one for the run that has it already, and of a
// calibration for every other: who calibrates again until the failures are gone has measured nothing.
func (b *Bench) recall(ctx context.Context, ws tenant.ID, digest []byte, origin string, fresh bool) (found finding, ok bool, err error) {
	type row struct{ Origin, RequestID, Opinion, Failure string }
	r, err := db.Maybe[row](ctx, b.db.In(ws), `SELECT origin, request_id, opinion, failure FROM judge_answers WHERE workspace_id = $1 AND question = $2`, digest)
	if err != nil {
		return found, false, fmt.Errorf("recall an answer: %w", err)
	}
	shared := r != nil && !fresh && (r.Failure == "" || calibrating(origin) && calibrating(r.Origin))
	if r == nil || r.Origin != origin && !shared {
		return found, false, nil
	}
	found = finding{Failure: r.Failure, RequestID: r.RequestID, remembered: true}
	if r.Failure == "" {
		if err := json.Unmarshal([]byte(r.Opinion), &found.Opinion); err != nil {
			return found, false, fmt.Errorf("recall an answer: %w", err)
		}
	}
	return found, true, nil
}

// calibrating reports whether a calibration asks.
func calibrating(origin string) bool { return id.Has(calibration, origin) }

// once asks a model, in the form that it takes.
func (b *Bench) once(ctx context.Context, ws tenant.ID, q *question, digest []byte) (finding, error) {
	var found finding
	err := b.complete(ctx, ws, q.origin, q.model, maxAnswer, func(mode judge.Mode) ([]byte, error) { return q.brief.Ask(q.model, q.subject, mode) }, func(a *infer.Answer) error {
		found = finding{Cost: a.Cost, RequestID: a.RequestID}
		var failed *judge.Failure
		opinion, err := q.brief.Read(a.Body)
		switch {
		case errors.As(err, &failed):
			found.Failure = string(failed.Kind) + ": " + failed.Detail
		case err != nil:
			return err
		default:
			found.Opinion = opinion
		}
		return b.keep(ctx, ws, q, digest, &found)
	})
	return found, err
}

// complete asks a model for so many tokens at most, structured if it takes that and plainly if not. keep gets the answer before it is charged.
func (b *Bench) complete(ctx context.Context, ws tenant.ID, origin, model string, most int64, body func(judge.Mode) ([]byte, error), keep func(*infer.Answer) error) error {
	modes := []judge.Mode{judge.Structured, judge.Plain}
	asker := string(ws) + " " + model // another workspace may reach another model by the same name
	if _, plain := b.plain.Load(asker); plain {
		modes = modes[1:]
	}
	var err error
	for _, mode := range modes {
		text, bad := body(mode)
		if bad != nil {
			return bad
		}
		_, err = b.models.Complete(ctx, &infer.Request{Workspace: ws, Origin: origin, Model: model, Body: text, MaxTokens: most, Keep: keep})
		if err == nil {
			if mode == judge.Plain {
				b.plain.Store(asker, true)
			}
			return nil
		}
		if f := fault.From(err); f.Status != http.StatusBadRequest || f.Code == fault.UnknownProvider.Code {
			return err
		}
	}
	return err
}

// keep writes an answer down.
func (b *Bench) keep(ctx context.Context, ws tenant.ID, q *question, digest []byte, f *finding) error {
	opinion, err := json.Marshal(f.Opinion)
	if err != nil {
		return fmt.Errorf("write an opinion: %w", err)
	}
	_, err = db.Exec(context.WithoutCancel(ctx), b.db.In(ws), `
		INSERT INTO judge_answers (workspace_id, question, criterion_id, origin, request_id, opinion, failure, cost, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (workspace_id, question) DO UPDATE SET origin = excluded.origin, request_id = excluded.request_id, opinion = excluded.opinion,
			failure = excluded.failure, cost = excluded.cost, created_at = excluded.created_at, expires_at = excluded.expires_at`,
		digest, q.criterionID, q.origin, f.RequestID, string(opinion), storable(f.Failure), f.Cost, clock.Now(), q.expires)
	if err != nil {
		return fmt.Errorf("keep an answer: %w", err)
	}
	return nil
}

// catchUp lets a run tell of every answer that it has paid for: a server may have died between an answer and the row that it is for.
func (b *Bench) catchUp(ctx context.Context, run *job.Run, criterionID string, purse *purse) error {
	paid, err := db.One[money.Nano](ctx, b.db.In(run.Workspace), `
		SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT) FROM judge_answers WHERE workspace_id = $1 AND criterion_id = $2 AND origin = $3`, criterionID, run.ID)
	if err != nil {
		return fmt.Errorf("sum up what %s has paid: %w", run.ID, err)
	}
	return run.Tx(ctx, func(_ *db.Tx, tally *job.Tally) error {
		tally.Cost = max(tally.Cost, paid)
		purse.spent.Store(int64(tally.Cost))
		return nil
	})
}

// price is what it costs to judge something, about: nothing, if it was judged before.
func (b *Bench) price(ctx context.Context, ws tenant.ID, model string, told *judge.Brief, s *judge.Subject, fresh bool) (money.Nano, error) {
	digest, err := told.Digest(model, s)
	if err != nil {
		return 0, nil //nolint:nilerr // it will be a failure, and cost nothing
	}
	if _, known, err := b.recall(ctx, ws, digest[:], "", fresh); known || err != nil {
		return 0, err
	}
	body, err := told.Ask(model, s, judge.Structured)
	if err != nil {
		return 0, fmt.Errorf("ask a judge: %w", err)
	}
	return b.models.Estimate(&infer.Request{Workspace: ws, Origin: "estimate", Model: model, Body: body, MaxTokens: maxAnswer}, usual)
}

// foresee is what so many judgements cost, about, if they are like some.
func (b *Bench) foresee(ctx context.Context, ws tenant.ID, model string, told *judge.Brief, some []judge.Subject, total int64, fresh bool) (money.Nano, error) {
	var sum money.Nano
	for i := range some {
		cost, err := b.price(ctx, ws, model, told, &some[i], fresh)
		if err != nil {
			return 0, err
		}
		sum += cost
	}
	return sum / money.Nano(max(1, len(some))) * money.Nano(total), nil
}

// each calls do for every one of some, so many at a time, and returns the first error. After one no other begins; those that have begun
// are let end.
func each[T any](ctx context.Context, atOnce int64, some []T, do func(context.Context, T) error) error {
	var group sync.WaitGroup
	var failed atomic.Pointer[error]
	next := make(chan T)
	for range min(int(atOnce), len(some)) {
		group.Go(func() {
			for one := range next {
				if failed.Load() != nil {
					continue
				}
				if err := do(ctx, one); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	for _, one := range some {
		if ctx.Err() != nil || failed.Load() != nil {
			break
		}
		next <- one
	}
	close(next)
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return context.Cause(ctx)
}

// flights are the questions that are being asked.
type flights struct {
	mu  sync.Mutex
	all map[string]chan struct{}
}

// take waits until nobody asks a question, and lets nobody else ask it until end.
func (f *flights) take(ctx context.Context, question string) (end func(), err error) {
	for {
		f.mu.Lock()
		if f.all == nil {
			f.all = map[string]chan struct{}{}
		}
		over, taken := f.all[question]
		if !taken {
			over = make(chan struct{})
			f.all[question] = over
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				delete(f.all, question)
				f.mu.Unlock()
				close(over)
			}, nil
		}
		f.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// A crowd counts who asks for each workspace.
type crowd struct {
	mu  sync.Mutex
	all map[tenant.ID]int
}

// enter counts one more, until done, which says how many others there are.
func (c *crowd) enter(ws tenant.ID) (done func() (others int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[tenant.ID]int{}
	}
	c.all[ws]++
	return func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.all[ws]--; c.all[ws] == 0 {
			delete(c.all, ws)
		}
		return c.all[ws]
	}
}
