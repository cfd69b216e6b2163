package canary

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

const (
	maxPending = 1000 // samples that wait for the judge: more draws are taken when it has answered
	maxTries   = 3    // to ask a question while the judge answers others, besides the client's own
)

// take stores the next draws as samples, in the order in which they were drawn: see untaken.
func (s *Store) take(ctx context.Context, ws tenant.ID, e *epoch) error {
	waiting, err := countPending(ctx, s.DB.In(ws), e.ID)
	if err != nil || waiting >= maxPending {
		return err
	}
	was, taken := *e, *e
	samples, err := s.untaken(ctx, ws, &taken, int(maxPending-waiting))
	if err != nil || len(samples) == 0 {
		return err
	}
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		is, err := findEpoch(ctx, tx.In(ws), e.ID)
		if err != nil || is == nil || !maps.Equal(is.Cursors, was.Cursors) {
			return err // they were taken meanwhile
		}
		return saveTaken(ctx, tx, ws, &taken, samples)
	})
	if err == nil {
		*e = taken
	}
	return err
}

// A batch is some samples that are judged together.
type batch struct {
	samples   []sample
	questions map[string]*judging.Question // by position
	exhausted bool                         // the next one may cost more than what is left
}

func key(s *sample) string { return strconv.FormatInt(s.Position, 10) }

// judge asks about the first samples without a result. It returns what went wrong, for the verdict, and as an error
// where it must be tried again later.
func (s *Store) judge(ctx context.Context, ws tenant.ID, st *state) (note, error) {
	b, err := s.prepare(ctx, ws, st)
	if err != nil {
		return troubled(err), err
	}
	keys := make([]string, 0, len(b.questions))
	for i := range b.samples {
		if b.questions[key(&b.samples[i])] != nil {
			keys = append(keys, key(&b.samples[i]))
		}
	}
	question := func(_ context.Context, k string) (*judging.Question, error) { return b.questions[k], nil }
	answers, asking := s.Judges.AskAll(ctx, ws, judging.NewBudget(nil, 0), keys, "", question)
	results, cost, unreached := b.results(answers)
	if len(results) > 0 {
		if err := s.saveResults(ctx, ws, st.epoch, results, cost); err != nil {
			return note{}, err
		}
	}
	n := note{exhausted: b.exhausted && len(keys) == 0}
	switch {
	case asking != nil && ctx.Err() == nil:
		n = troubled(asking)
	case unreached != "":
		n, asking = note{trouble: unreached}, errUnreachable
	}
	return n, asking
}

// errUnreachable lets the loop wait before it tries again.
var errUnreachable = errors.New("the judge cannot be reached")

func troubled(err error) note { return note{trouble: fault.From(err).Message} }

// prepare reads the next samples to judge, as far as what is left of the budget covers the most that they can cost.
func (s *Store) prepare(ctx context.Context, ws tenant.ID, st *state) (*batch, error) {
	in, e, c := s.DB.In(ws), st.epoch, st.judge.criterion
	rows, err := pendingSamples(ctx, in, e.ID, judging.Batch)
	b := &batch{questions: map[string]*judging.Question{}}
	if err != nil || len(rows) == 0 {
		return b, err
	}
	told, err := c.Instructions(ctx, in)
	if err != nil {
		return nil, err
	}
	rest := st.alias.GateMaxCost - e.Spent
	for _, row := range rows {
		step, _, err := s.Logs.Request(ctx, ws, row.RequestID)
		if err != nil {
			if fault.From(err).Status != http.StatusNotFound {
				return nil, err
			}
			row.Result = missing // it was not logged, or is deleted
			b.samples = append(b.samples, row)
			continue
		}
		q := &judging.Question{
			CriterionID: c.ID, Origin: e.ID, Model: c.JudgeModel, Instructions: told,
			Subject: &judge.Subject{Steps: []judge.Step{step}}, ExpiresAt: row.ExpiresAt,
		}
		most, err := s.Judges.Most(ctx, ws, q)
		if err != nil {
			return nil, err
		}
		if most > rest {
			b.exhausted = true
			return b, nil
		}
		rest -= most
		b.samples, b.questions[key(&row)] = append(b.samples, row), q
	}
	return b, nil
}

// results returns the samples with what the judge says of them, and what that cost. A sample whose judge could not be
// reached has no result until that happened several times while the judge answered others; unreached is why. A judge
// that answers nothing is waited for: its outage says nothing about the samples.
func (b *batch) results(answers map[string]judging.Answer) (all []sample, cost money.Nano, unreached string) {
	reached := judging.Reached(answers)
	for _, row := range b.samples {
		a, asked := answers[key(&row)]
		switch {
		case row.Result == missing:
		case !asked:
			continue
		case judging.IsUnreachable(a.Failure) && !reached:
			unreached = a.Failure
			continue
		case a.Verdict == judge.Pass:
			row.Result = passed
		case a.Verdict == judge.Fail:
			row.Result = rejected
		case judging.IsUnreachable(a.Failure) && row.Tries+1 < maxTries:
			row.Tries++
			unreached = a.Failure
		default:
			row.Result = missing
		}
		cost += a.Cost
		all = append(all, row)
	}
	return all, cost, unreached
}

// enterBatch is how many samples one transaction adds to a tally.
const enterBatch = 1000

// evaluate adds the samples whose results are known to the tally, in the order in which they were drawn and up to the
// first without one, and stores the verdict. It reports whether there may be more.
func (s *Store) evaluate(ctx context.Context, ws tenant.ID, name, epochID string, n note) (more bool, err error) {
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		more = false
		in := tx.In(ws)
		st, err := load(ctx, in, name)
		if err != nil || st == nil || st.epoch == nil || st.epoch.ID != epochID {
			return err // another epoch has begun
		}
		e := st.epoch
		if e.DecidedAt == 0 {
			next, err := nextSamples(ctx, in, e.ID, e.Entered, enterBatch)
			if err != nil {
				return err
			}
			for i := range next {
				e.enter(&next[i])
			}
			e.Entered += int64(len(next))
			more = len(next) == enterBatch
		}
		decided := e.DecidedAt
		if err := s.conclude(ctx, in, ws, st, n); err != nil || decided != 0 || e.DecidedAt == 0 {
			return err
		}
		return tellVerdict(ctx, tx, ws, st)
	})
	return more, err
}

// conclude stores the verdict of a state.
func (s *Store) conclude(ctx context.Context, in db.Scoped, ws tenant.ID, st *state, n note) error {
	e, f := st.epoch, s.facts(ws, st, n)
	if e.settled(f.splits) {
		r, err := e.shown(st.alias, f.now)
		if err != nil {
			return err
		}
		e.Automatic = st.judge.certificate.automatic()
		return saveEpoch(ctx, in, e, r)
	}
	r := e.report(f)
	if e.DecidedAt == 0 && slices.Contains([]Verdict{Promote, RollBack}, Verdict(r.Verdict)) {
		e.DecidedAt = f.now
	}
	e.Verdict, e.Automatic, e.EvaluatedAt = Verdict(r.Verdict), st.judge.certificate.automatic(), f.now
	return saveEpoch(ctx, in, e, r)
}

// outdated reports whether a state must be evaluated: samples can be added, the verdict is another one, or it is a
// minute old and may still change.
func (s *Store) outdated(ctx context.Context, in db.Scoped, ws tenant.ID, st *state, n note) (bool, error) {
	e, f := st.epoch, s.facts(ws, st, n)
	if e.Automatic != st.judge.certificate.automatic() {
		return true, nil
	}
	if e.settled(f.splits) {
		return false, nil
	}
	if e.DecidedAt == 0 && f.splits {
		if f.now.Sub(e.EvaluatedAt) >= time.Minute {
			return true, nil
		}
		if next, err := nextSamples(ctx, in, e.ID, e.Entered, 1); err != nil || len(next) > 0 {
			return true, err
		}
	}
	shown, err := e.shown(st.alias, f.now)
	if err != nil {
		return false, err
	}
	verdict, reason := f.verdict()
	return shown.Verdict != string(verdict) || shown.Reason != reason || shown.Spent != e.Spent, nil
}
