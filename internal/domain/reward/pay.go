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

// pay asks a question that belongs to no scoring call from the budget of the session. While others are being asked that
// hold money of it, it waits for them. The session is over budget when nothing else is asked and it does not fit.
func (d *desk) pay(ctx context.Context, ask func() (judging.Answer, error)) (judging.Answer, error) {
	began := d.enter()
	defer d.leaveAsked()
	for {
		answer, err := ask()
		var spent *infer.HoldSpent
		switch {
		case !errors.As(err, &spent):
			return answer, err
		case spent.Ended:
			return answer, errEnded
		}
		if began, err = d.await(ctx, began); err != nil {
			return answer, err
		}
	}
}

// enter counts a question that is being asked, and returns how many were settled before.
func (d *desk) enter() (settled uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asking++
	return d.settled
}

// leaveAsked counts a question that was asked to its end. What it did not cost may cover another one.
func (d *desk) leaveAsked() {
	d.mu.Lock()
	d.asking--
	d.settled++
	again := d.resume()
	d.mu.Unlock()
	d.queue(again)
}

// await waits until more questions were settled than these, and returns how many. Meanwhile the question does not count
// as being asked. If no other is, the session is over budget.
func (d *desk) await(ctx context.Context, settled uint64) (uint64, error) {
	d.mu.Lock()
	d.asking--
	d.mu.Unlock()
	for {
		d.mu.Lock()
		alone, changed := d.asking == 0, d.settled != settled
		if changed || alone {
			d.asking++
			settled = d.settled
		}
		d.mu.Unlock()
		switch {
		case changed:
			return settled, nil
		case alone:
			return settled, d.overBudget() //nolint:contextcheck // the session ends, whoever waits
		}
		select {
		case <-time.After(shortPause):
		case <-ctx.Done():
			d.enter()
			return settled, context.Cause(ctx)
		}
	}
}
