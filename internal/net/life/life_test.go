package life_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/net/life"
)

var (
	errFirst  = errors.New("first")
	errSecond = errors.New("second")
)

func TestALifeEndsOnceAndWithItsFirstCause(t *testing.T) {
	var l life.Life
	if l.Cause() != nil || l.Err() != nil {
		t.Error("it has ended before it began")
	}
	early := l.Done()
	l.End(errFirst)
	l.End(errSecond)
	if !errors.Is(l.Cause(), errFirst) || !errors.Is(l.Err(), context.Canceled) {
		t.Errorf("%v, %v", l.Cause(), l.Err())
	}
	<-early
	<-l.Done()
}

func TestEveryoneWhoWaitsIsToldUnlessTheyStopped(t *testing.T) {
	var l life.Life
	var told [5]atomic.Int64
	var stops [5]func() bool
	for i := range told {
		stops[i] = l.AfterFunc(func() { told[i].Add(1) })
	}
	for _, i := range []int{0, 3} {
		if !stops[i]() || stops[i]() {
			t.Errorf("%d cannot be stopped, or twice", i)
		}
	}
	again := l.AfterFunc(func() { told[0].Add(10) })
	if stops[0]() {
		t.Error("who stopped long ago has stopped another")
	}
	l.End(errFirst)
	for i, want := range []int64{10, 1, 1, 0, 1} {
		if got := told[i].Load(); got != want {
			t.Errorf("%d was told %d times, want %d", i, got, want)
		}
	}
	if again() || stops[1]() {
		t.Error("what has run is said to be stopped")
	}
	late := make(chan struct{})
	if stop := l.AfterFunc(func() { close(late) }); stop() {
		t.Error("what has ended is said not to have")
	}
	<-late
}

func TestWhatIsWithinEndsWithIt(t *testing.T) {
	var outer, inner, other, late life.Life
	outer.Hold(&inner)
	outer.Hold(&other) // in its place
	outer.End(errFirst)
	if inner.Cause() != nil || !errors.Is(other.Cause(), errFirst) {
		t.Errorf("%v, %v", inner.Cause(), other.Cause())
	}
	outer.Hold(&late)
	if !errors.Is(late.Cause(), errFirst) {
		t.Errorf("what is put into what has ended lasts: %v", late.Cause())
	}
	outer.Hold(nil)
}

// A Life is a context to package context, and to whoever derives one from it.
func TestContextsThatStandOnALifeEndWithIt(t *testing.T) {
	var l life.Life
	ctx, cancel := context.WithTimeout(&l, time.Hour)
	defer cancel()
	told := make(chan struct{})
	context.AfterFunc(&l, func() { close(told) })
	stop := life.After(ctx, func() { t.Error("told, and had stopped") })
	if !stop.Stop() {
		t.Error("cannot be stopped")
	}
	l.End(errFirst)
	<-ctx.Done()
	<-told
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error(ctx.Err())
	}
}

// Who stops in time is never told, and who does not is told once, however the two race.
func TestStoppingAndEndingAtOnce(t *testing.T) {
	for range 2000 {
		var l life.Life
		var told, stopped atomic.Int64
		var all sync.WaitGroup
		for range 3 {
			stop := l.AfterFunc(func() { told.Add(1) })
			all.Go(func() {
				if stop() {
					stopped.Add(1)
				}
			})
		}
		all.Go(func() { l.End(errFirst) })
		all.Wait()
		if told.Load()+stopped.Load() != 3 {
			t.Fatalf("%d were told and %d had stopped, of 3", told.Load(), stopped.Load())
		}
	}
}
