package deadline

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"sovereign/internal/net/life"
)

// Every wait ends at its own timeout, and not before, whenever others are due.
func TestEveryWaitEndsAtItsTimeoutAndNotBefore(t *testing.T) {
	var all Registry
	const waiting = 200
	late := make(chan time.Duration, waiting)
	for range waiting {
		timeout := time.Duration(rand.N(200)) * time.Millisecond
		begun := time.Now()
		one, attempt := new(Deadline), new(life.Life)
		one.Start(begun, time.Hour)
		all.Add(one)
		one.BeginAttempt(attempt, begun, timeout)
		attempt.OnEnd(func() {
			if !errors.Is(attempt.Cause(), ErrSilent) || one.Cause() != nil {
				t.Errorf("the attempt ended with %v, its request with %v", attempt.Cause(), one.Cause())
			}
			late <- time.Since(begun) - timeout
		})
	}
	for range waiting {
		if by := <-late; by < 0 {
			t.Errorf("ended %v too early", -by)
		}
	}
	for all.timer.next.Load() == 0 { // it is not set again yet
		time.Sleep(time.Millisecond)
	}
	if next := instant(all.timer.next.Load()); next < instantOf(time.Now().Add(time.Minute)) {
		t.Errorf("the timer fires again at %v, when nothing is due for long", time.Duration(next))
	}
}

func TestARequestEndsWhenItsTotalTimeIsOver(t *testing.T) {
	var all Registry
	one, attempt := new(Deadline), new(life.Life)
	begun := time.Now()
	one.Start(begun, 50*time.Millisecond)
	all.Add(one)
	one.BeginAttempt(attempt, begun, time.Hour)
	<-attempt.Done()
	if took := time.Since(begun); took < 50*time.Millisecond || !errors.Is(one.Cause(), ErrTooLong) {
		t.Errorf("it ended after %v with %v", took, one.Cause())
	}
}

// A renewed wait has its whole timeout again, and no timeout applies between two attempts.
func TestAWaitThatIsRenewedDoesNotTimeOut(t *testing.T) {
	var all Registry
	one, first, second := new(Deadline), new(life.Life), new(life.Life)
	one.Start(time.Now(), time.Hour)
	all.Add(one)
	one.BeginAttempt(first, time.Now(), time.Second)
	for range 10 {
		time.Sleep(10 * time.Millisecond)
		one.LimitWait(time.Now(), time.Second)
	}
	one.EndAttempt(first)
	one.BeginAttempt(second, time.Now(), 30*time.Millisecond)
	<-second.Done()
	if !errors.Is(second.Cause(), ErrSilent) || errors.Is(first.Cause(), ErrSilent) {
		t.Errorf("%v, %v", first.Cause(), second.Cause())
	}
	one.EndAttempt(second)
	time.Sleep(100 * time.Millisecond)
	if one.Cause() != nil {
		t.Errorf("no attempt runs, and it ended with %v", one.Cause())
	}
	all.Remove(one)
}
