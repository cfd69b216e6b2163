package reward

import (
	"context"
	"errors"
	"time"

	"sovereign/internal/domain/judging"
	"sovereign/internal/plane/infer"
)

// shortPause is how long a question that the budget does not cover waits before it is asked again.
const shortPause = 20 * time.Millisecond

// longestPause bounds the pauses while questions that other servers ask hold money of the budget.
const longestPause = time.Second

// longer returns the pause after another one, or the first.
func longer(pause time.Duration) time.Duration { return min(max(2*pause, shortPause), longestPause) }

// pay asks a question that belongs to no scoring call, such as the anchor's, and charges it to the session's budget. If
// the budget is short, pay waits while other questions, on any server, hold a part of it. The session is over budget
// when no other question is being asked and this one does not fit.
func (o *openQuestions) pay(ctx context.Context, ask func() (judging.Answer, error)) (judging.Answer, error) {
	began := o.enter()
	defer o.leaveAsked()
	for pause := longer(0); ; pause = longer(pause) {
		answer, err := ask()
		var spent *infer.HoldSpent
		switch {
		case !errors.As(err, &spent):
			return answer, err
		case spent.Ended:
			return answer, errEnded
		}
		if began, err = o.await(ctx, began, spent.Busy, pause); err != nil {
			return answer, err
		}
	}
}

// enter counts a question that is being asked, and returns how many were settled before.
func (o *openQuestions) enter() (settled uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asking++
	return o.settled
}

// leaveAsked counts a question that was asked to its end. What it did not cost may cover another one.
func (o *openQuestions) leaveAsked() {
	o.mu.Lock()
	o.asking--
	o.settled++
	again := o.resume()
	o.mu.Unlock()
	o.queue(again)
}

// await waits until more questions were settled than these, and returns how many. Meanwhile the question does not count
// as being asked. If no other is, the session is over budget, unless other servers are busy: then it waits for a pause.
func (o *openQuestions) await(ctx context.Context, settled uint64, busy bool, pause time.Duration) (uint64, error) {
	o.mu.Lock()
	o.asking--
	o.mu.Unlock()
	for until := time.Now().Add(pause); ; {
		o.mu.Lock()
		alone, changed := o.asking == 0 && !busy, o.settled != settled || busy && !time.Now().Before(until)
		if changed || alone {
			o.asking++
			settled = o.settled
		}
		o.mu.Unlock()
		switch {
		case changed:
			return settled, nil
		case alone:
			return settled, o.overBudget() //nolint:contextcheck // the session ends, whether or not a caller waits
		}
		select {
		case <-time.After(shortPause):
		case <-ctx.Done():
			o.enter()
			return settled, context.Cause(ctx)
		}
	}
}
