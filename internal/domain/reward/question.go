package reward

import (
	"context"
	"errors"

	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/plane/infer"
)

// A questionKey identifies a question within a session: the judge at its version, the prompt and the completion.
type questionKey struct {
	criterion          string
	version            int64
	prompt, completion digest
}

// The states of a question. Only a queued one is claimed by a slot.
type questionState int

const (
	queued   questionState = iota
	asked                  // now
	short                  // of money: queued again when another one has been settled
	answered               // or given up
)

// A question asks one judge about a prompt and a completion. Every item that needs its answer waits for it, whichever
// call the item is from.
type question struct {
	questions *openQuestions
	key       questionKey
	call      *scoreCall // that was the first to ask it
	about     *item
	judge     int // its place among the session's

	// Guarded by questions.mu.
	state questionState
	began uint64 // questions that were settled when this one was asked
	waits []waiter
}

// A waiter is an item that needs an answer, and the place of its judge.
type waiter struct {
	item  *scored
	judge int
}

// claim implements task.
func (q *question) claim() bool {
	o := q.questions
	o.mu.Lock()
	defer o.mu.Unlock()
	if q.state != queued {
		return false
	}
	q.state, q.began = asked, o.settled
	o.asking++
	return true
}

// run implements task. The slot is free when the judge has answered: storing the answer must not keep the judge idle.
// Another slot may run a question that is short of money at once, so nothing is done with it then.
func (q *question) run(free func()) (then func()) {
	o := q.questions
	answer, err := q.ask(free)
	for spent := (*infer.HoldSpent)(nil); errors.As(err, &spent); answer, err = q.ask(free) {
		if spent.Ended {
			err = errEnded
			break
		}
		next := o.refused(q, spent.Busy)
		if next == later {
			return nil
		}
		if next == never {
			err = o.overBudget()
		}
		if next != now {
			break
		}
	}
	if err != nil && o.ctx.Err() != nil {
		err = errEnded
	}
	waits := o.settle(q)
	return func() { o.store.deliver(waits, answer, err) }
}

// ask asks the judge, at the session's cost.
func (q *question) ask(free func()) (answer judging.Answer, err error) {
	o, c := q.questions, q.call
	asked := &judging.Question{
		CriterionID: q.key.criterion, Origin: o.session, Hold: o.session, Model: c.models[q.judge],
		Instructions: c.told[q.judge], Answered: free,
	}
	ctx, cancel := context.WithTimeout(o.ctx, scoreTime)
	defer cancel()
	panicked := panics.Call(o.store.Log, "asking for a reward", func() error {
		if asked.Subject, err = subject(q.about.Prompt, q.about.Completion); err == nil {
			answer, err = o.store.Judges.Ask(ctx, o.ws, asked)
		}
		return nil
	}, "session", o.session)
	switch {
	case panicked != nil:
		return answer, panicked
	case err != nil && ctx.Err() != nil && o.ctx.Err() == nil:
		return judging.Answer{Failure: "unreachable: no answer in time"}, nil
	}
	return answer, err
}

// deliver gives items an answer. Those that have all their answers are stored, and then have a result.
func (s *Store) deliver(to []waiter, answer judging.Answer, err error) {
	var complete []*scored
	for _, w := range to {
		if w.item.answered(w.judge, answer, err) {
			complete = append(complete, w.item)
		}
	}
	s.finish(complete)
}

// overBudget ends the session because nothing fits into its budget any more. It returns why there is no answer.
func (o *openQuestions) overBudget() error {
	_, _, err := o.store.move(context.WithoutCancel(o.ctx), o.ws, tenant.Operator, o.session, Overbudget, "")
	if err != nil {
		return err
	}
	return errEnded
}

// finish stores items that have all their answers, and gives them their results.
func (s *Store) finish(items []*scored) {
	var kept []*keptItem
	var waits []*scored
	for _, i := range items {
		if i.err != nil {
			i.finish(nil, i.err)
			continue
		}
		made := combine(i.call.session.Mode, i.call.session.Judges, i.answers)
		kept, waits = append(kept, &keptItem{i.call, &i.item, made}), append(waits, i)
	}
	if len(kept) == 0 {
		return
	}
	err := s.scorer.keeper.Do(kept)
	for at, i := range waits {
		if err != nil {
			i.finish(nil, err)
		} else {
			i.finish(&kept[at].outcome, nil)
		}
	}
}
