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

func TestLifeEndsOnceWithTheFirstCause(t *testing.T) {
	var l life.Life
	if l.Cause() != nil || l.Err() != nil {
		t.Error("a new Life has ended")
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

func TestEveryCallbackRunsUnlessStopped(t *testing.T) {
	var l life.Life
	var ran [5]atomic.Int64
	var stops [5]func() bool
	for i := range ran {
		stops[i] = l.AfterFunc(func() { ran[i].Add(1) })
	}
	for _, i := range []int{0, 3} {
		if !stops[i]() || stops[i]() {
			t.Errorf("callback %d cannot be stopped, or can be stopped twice", i)
		}
	}
	again := l.AfterFunc(func() { ran[0].Add(10) })
	if stops[0]() {
		t.Error("a stopped callback has stopped the one that took its slot")
	}
	l.End(errFirst)
	for i, want := range []int64{10, 1, 1, 0, 1} {
		if got := ran[i].Load(); got != want {
			t.Errorf("callback %d ran %d times, want %d", i, got, want)
		}
	}
	if again() || stops[1]() {
		t.Error("Stop reports success for a callback that has run")
	}
	late := make(chan struct{})
	if stop := l.AfterFunc(func() { close(late) }); stop() {
		t.Error("Stop reports success on a Life that has ended")
	}
	<-late
}

func TestAChildEndsWithItsParent(t *testing.T) {
	var outer, inner, other, late life.Life
	outer.SetChild(&inner)
	outer.SetChild(&other) // replaces inner
	outer.End(errFirst)
	if inner.Cause() != nil || !errors.Is(other.Cause(), errFirst) {
		t.Errorf("%v, %v", inner.Cause(), other.Cause())
	}
	outer.SetChild(&late)
	if !errors.Is(late.Cause(), errFirst) {
		t.Errorf("the child of a Life that has ended goes on: %v", late.Cause())
	}
	outer.SetChild(nil)
}

// Package context treats a Life as a parent like any other.
func TestDerivedContextsEndWithTheLife(t *testing.T) {
	var l life.Life
	ctx, cancel := context.WithTimeout(&l, time.Hour)
	defer cancel()
	ran := make(chan struct{})
	context.AfterFunc(&l, func() { close(ran) })
	stop := life.AfterFunc(ctx, func() { t.Error("a stopped callback ran") })
	if !stop.Stop() {
		t.Error("the callback cannot be stopped")
	}
	l.End(errFirst)
	<-ctx.Done()
	<-ran
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error(ctx.Err())
	}
}

// A callback either runs once or is stopped, however Stop and End race.
func TestStopAndEndRace(t *testing.T) {
	for range 2000 {
		var l life.Life
		var ran, stopped atomic.Int64
		var all sync.WaitGroup
		for range 3 {
			stop := l.AfterFunc(func() { ran.Add(1) })
			all.Go(func() {
				if stop() {
					stopped.Add(1)
				}
			})
		}
		all.Go(func() { l.End(errFirst) })
		all.Wait()
		if ran.Load()+stopped.Load() != 3 {
			t.Fatalf("%d ran and %d were stopped, of 3", ran.Load(), stopped.Load())
		}
	}
}
