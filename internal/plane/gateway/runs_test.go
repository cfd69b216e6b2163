package gateway

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"sovereign/internal/net/life"
)

// Whoever waits is ended when its patience is over, and not before, whenever others are due.
func TestTheAlarmRingsForEach(t *testing.T) {
	var all runs
	const waiting = 200
	over := make(chan time.Duration, waiting)
	for range waiting {
		patience := time.Duration(rand.N(200)) * time.Millisecond
		begun := time.Now()
		one, try := new(term), new(life.Life)
		one.start(begun, time.Hour)
		all.add(one)
		one.try(try, begun, patience)
		try.OnEnd(func() {
			if !errors.Is(try.Cause(), errSilent) || one.Cause() != nil {
				t.Errorf("the try ended with %v, its request with %v", try.Cause(), one.Cause())
			}
			over <- time.Since(begun) - patience
		})
	}
	for range waiting {
		if late := <-over; late < 0 {
			t.Errorf("ended %v too early", -late)
		}
	}
	for all.alarm.next.Load() == 0 { // it has not been set again yet
		time.Sleep(time.Millisecond)
	}
	if next := moment(all.alarm.next.Load()); next < momentOf(time.Now().Add(time.Minute)) {
		t.Errorf("the alarm rings again at %v, when nobody is due for long", time.Duration(next))
	}
}

func TestARequestEndsWhenItsTimeIsOver(t *testing.T) {
	var all runs
	one, try := new(term), new(life.Life)
	begun := time.Now()
	one.start(begun, 50*time.Millisecond)
	all.add(one)
	one.try(try, begun, time.Hour)
	<-try.Done()
	if took := time.Since(begun); took < 50*time.Millisecond || !errors.Is(one.Cause(), errTooLong) {
		t.Errorf("it ended after %v with %v", took, one.Cause())
	}
}

// A wait that is begun anew has its whole time, and one that nobody is in has none.
func TestAWaitThatGoesOnIsNotOver(t *testing.T) {
	var all runs
	one, first, second := new(term), new(life.Life), new(life.Life)
	one.start(time.Now(), time.Hour)
	all.add(one)
	one.try(first, time.Now(), time.Minute)
	for range 10 {
		time.Sleep(10 * time.Millisecond)
		one.wait(time.Now(), time.Minute)
	}
	one.over(first)
	one.try(second, time.Now(), 30*time.Millisecond)
	<-second.Done()
	if !errors.Is(second.Cause(), errSilent) || errors.Is(first.Cause(), errSilent) {
		t.Errorf("%v, %v", first.Cause(), second.Cause())
	}
	one.over(second)
	time.Sleep(100 * time.Millisecond)
	if one.Cause() != nil {
		t.Errorf("nobody waits, and it ended with %v", one.Cause())
	}
	all.remove(one)
}
