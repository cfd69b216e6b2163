package breaker

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	usual = Settings{Failures: 3, Pause: 10 * time.Second, Longest: 35 * time.Second}
)

// breakerIn returns a breaker with a circuit in a given state, whose pause or probe's timeout ends at noon.
func breakerIn(state State) *Breaker {
	b := New(usual)
	for range usual.Failures - 1 {
		b.Done("k", noon.Add(-2*usual.Pause), noon.Add(-2*usual.Pause), false)
	}
	switch state {
	case Open:
		b.Done("k", noon.Add(-usual.Pause), noon.Add(-usual.Pause), false)
	case HalfOpen:
		b.Done("k", noon.Add(-2*usual.Pause), noon.Add(-2*usual.Pause), false)
		b.Allow("k", noon.Add(-usual.Pause))
	case Closed:
	}
	return b
}

// stored returns the state as it is stored, which State derives from the time.
func (b *Breaker) stored() State {
	if c, ok := b.circuits.Load("k"); ok {
		return c.(*circuit).state
	}
	return Closed
}

func TestEveryTransition(t *testing.T) {
	trigger := map[event]func(*Breaker){
		succeeded: func(b *Breaker) { b.Done("k", noon, noon, true) },
		failed:    func(b *Breaker) { b.Done("k", noon, noon, false) },
		probed:    func(b *Breaker) { b.Allow("k", noon) },
		cancelled: func(b *Breaker) { b.Cancel("k", noon.Add(-usual.Pause)) },
	}
	want := map[State]map[event]State{
		Closed:   {succeeded: Closed, failed: Open, probed: Closed, cancelled: Closed},
		Open:     {succeeded: Closed, failed: Open, probed: HalfOpen, cancelled: Open},
		HalfOpen: {succeeded: Closed, failed: Open, probed: HalfOpen, cancelled: Open},
	}
	for state, row := range want {
		if len(row) != len(trigger) || len(want) != len(next) || len(next[state]) != len(trigger) {
			t.Fatalf("%s: the table is incomplete", state)
		}
		for e, becomes := range row {
			b := breakerIn(state)
			if got := b.stored(); got != state {
				t.Fatalf("%s cannot be reached: %s", state, got)
			}
			trigger[e](b)
			if got := b.stored(); got != becomes || next[state][e] != becomes {
				t.Errorf("%s, %s: %s, want %s", state, e, got, becomes)
			}
		}
	}
}

func TestACircuitOpensAfterFailuresInARow(t *testing.T) {
	b := New(usual)
	for _, ok := range []bool{false, false, true, false, false} {
		b.Done("k", noon, noon, ok)
		if !b.Allow("k", noon) || b.State("k", noon) != Closed {
			t.Fatal("it opened too early")
		}
	}
	b.Done("k", noon, noon, false)
	if b.Allow("k", noon) || b.State("k", noon) != Open || !slices.Equal(b.Open(), []string{"k"}) {
		t.Error("it did not open")
	}
	if !b.Allow("other", noon) || b.State("other", noon) != Closed {
		t.Error("the circuit of another upstream is affected")
	}
}

func TestThePauseDoublesUpToTheLongest(t *testing.T) {
	b, now := New(usual), noon
	for range usual.Failures {
		b.Done("k", now, now, false)
	}
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, usual.Longest, usual.Longest} {
		if b.Allow("k", now.Add(pause-1)) || b.State("k", now.Add(pause-1)) != Open {
			t.Fatalf("a request is allowed before %s are over", pause)
		}
		now = now.Add(pause)
		if b.State("k", now) != HalfOpen || !b.Allow("k", now) || b.Allow("k", now) {
			t.Fatalf("after %s there is no probe, or two", pause)
		}
		b.Done("k", now, now, false)
	}
	b.Allow("k", now.Add(usual.Longest))
	b.Done("k", now.Add(usual.Longest), now.Add(usual.Longest), true)
	for range usual.Failures {
		b.Done("k", now, now, false)
	}
	if b.Allow("k", now.Add(usual.Pause-1)) || !b.Allow("k", now.Add(usual.Pause)) {
		t.Error("after a success the pause is not reset")
	}
}

func TestALostProbeTimesOut(t *testing.T) {
	b := breakerIn(Open)
	if !b.Allow("k", noon) || b.Allow("k", noon.Add(usual.Pause-1)) {
		t.Fatal("there is no probe, or a second one before the timeout")
	}
	if !b.Allow("k", noon.Add(usual.Pause)) {
		t.Error("there is no probe after the timeout")
	}
	if b.Cancel("k", noon); b.Allow("k", noon.Add(usual.Pause)) {
		t.Error("the Cancel of a lost probe ends another")
	}
	if b.Cancel("k", noon.Add(usual.Pause)); !b.Allow("k", noon.Add(usual.Pause+1)) {
		t.Error("there is no probe after a Cancel")
	}
	if b.Allow("k", noon.Add(usual.Pause+1)) {
		t.Error("there are two probes after a Cancel")
	}
	b.Cancel("unknown", noon)
}

func TestFailuresDoNotExtendThePause(t *testing.T) {
	b := breakerIn(Open)
	for range 10 { // requests that were allowed before
		b.Done("k", noon, noon, false)
	}
	if !b.Allow("k", noon) {
		t.Error("the pause grew")
	}
}

func TestAClockThatIsSetBackEndsThePause(t *testing.T) {
	b := New(Settings{Failures: 1, Pause: usual.Pause})
	b.Done("k", noon, noon, false)
	if b.Allow("k", noon.Add(-time.Second)) {
		t.Error("a request a moment before the pause is allowed")
	}
	if !b.Allow("k", noon.Add(-24*time.Hour)) {
		t.Error("the pause lasts a day")
	}
}

func TestApplyChangesCircuitsInUse(t *testing.T) {
	b := breakerIn(Open)
	b.Apply(Settings{})
	if !b.Allow("k", noon.Add(-1)) || b.Open() != nil || b.stored() != Closed {
		t.Error("an open circuit stays when the breaker is turned off")
	}
	for range 100 {
		b.Done("k", noon, noon, false)
	}
	if !b.Allow("k", noon) || b.State("k", noon) != Closed {
		t.Error("a breaker that is off opens a circuit")
	}
	b.Apply(Settings{Failures: 1, Pause: time.Second})
	b.Done("k", noon, noon, false)
	if b.Allow("k", noon.Add(time.Second-1)) || !b.Allow("k", noon.Add(time.Second)) {
		t.Error("the new settings are not used")
	}
	b.Done("k", noon, noon, true)
	b.Apply(Settings{Failures: 1, Pause: time.Hour})
	b.Done("k", noon, noon, false)
	b.Apply(Settings{Failures: 1, Pause: time.Second, Longest: time.Minute})
	if !b.Allow("k", noon) {
		t.Error("a pause of the old settings exceeds the longest of the new")
	}
}

// A request was allowed and has not ended.
type request struct {
	probe bool
	since time.Time
}

func TestThereIsAtMostOneProbe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Settings{Failures: rapid.IntRange(1, 4).Draw(t, "failures"), Pause: time.Duration(rapid.IntRange(1, 20).Draw(t, "pause"))}
		s.Longest = s.Pause * time.Duration(rapid.IntRange(1, 10).Draw(t, "longest"))
		b, now := New(s), noon
		var inFlight []request
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 15).Draw(t, "later")))
			if len(inFlight) == 0 || rapid.Bool().Draw(t, "asks") {
				before := b.State("k", now)
				allowed := b.Allow("k", now)
				if before == Closed && !allowed || before == Open && allowed {
					t.Fatalf("%s: %v", before, allowed)
				}
				if allowed {
					inFlight = append(inFlight, request{probe: before != Closed, since: now})
				}
			} else {
				i := rapid.IntRange(0, len(inFlight)-1).Draw(t, "which")
				r := inFlight[i]
				inFlight = slices.Delete(inFlight, i, i+1)
				switch rapid.IntRange(0, 3).Draw(t, "end") {
				case 0:
					b.Done("k", now, now, true)
					if b.State("k", now) != Closed || b.Open() != nil || !b.Allow("k", now) {
						t.Fatal("it is not closed after a success")
					}
					for i := range inFlight { // the circuit was removed
						inFlight[i].probe = false
					}
				case 1:
					b.Cancel("k", r.since)
				default:
					b.Done("k", now, now, false)
					if r := b.State("k", now); s.Failures == 1 && r == Closed {
						t.Fatal("it is closed after a failure")
					}
					for i := range inFlight { // a failure of any request ends the probing
						inFlight[i].probe = false
					}
				}
			}
			probes := 0
			for _, r := range inFlight {
				if r.probe && now.Sub(r.since) < s.Pause {
					probes++
				}
			}
			if probes > 1 {
				t.Fatalf("%d probes", probes)
			}
		}
	})
}

func TestConcurrentCallersGetOneProbe(t *testing.T) {
	for range 200 {
		b := breakerIn(Open)
		var probes atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				if b.Allow("k", noon) {
					probes.Add(1)
				}
			})
		}
		if all.Wait(); probes.Load() != 1 {
			t.Fatalf("%d probes", probes.Load())
		}
	}
}

func TestAFailureIsNotLostToAConcurrentSuccess(t *testing.T) {
	for range 200 {
		b := New(Settings{Failures: 8, Pause: time.Second})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { b.Done("k", noon, noon, true) })
			all.Go(func() {
				b.Done("k", noon, noon, false)
				b.Allow("k", noon)
				b.Cancel("k", noon)
				b.Open()
			})
		}
		all.Wait()
		b.Done("k", noon, noon, true)
		for range 8 {
			all.Go(func() { b.Done("k", noon, noon, false) })
		}
		if all.Wait(); b.State("k", noon) != Open {
			t.Fatal("eight failures did not open it")
		}
	}
}

func TestARemovedCircuitCountsNoFailures(t *testing.T) {
	b := breakerIn(Closed)
	c, _ := b.circuits.Load("k")
	b.Done("k", noon, noon, true)
	if c.(*circuit).with(func(*circuit) {}) {
		t.Error("a failure would be counted in a removed circuit")
	}
}

func TestNothingIsStoredForUpstreamsWithoutFailures(t *testing.T) {
	b := New(usual)
	for i := range 1000 {
		key := strconv.Itoa(i)
		b.Allow(key, noon)
		b.Done(key, noon, noon, false)
		b.Done(key, noon, noon, true)
		b.Cancel(key, noon)
	}
	b.circuits.Range(func(key, _ any) bool {
		t.Errorf("%v is stored", key)
		return true
	})
}

func BenchmarkClosedCircuit(b *testing.B) {
	for _, others := range []int{0, 10} {
		b.Run(fmt.Sprintf("%d other circuits open", others), func(b *testing.B) {
			breaker := New(usual)
			for i := range others {
				for range usual.Failures {
					breaker.Done(strconv.Itoa(i), noon, noon, false)
				}
			}
			key := fmt.Sprint("a provider", others)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					breaker.Allow(key, noon)
					breaker.Done(key, noon, noon, true)
				}
			})
		})
	}
}

func TestAFailureFromBeforeTheProbeDoesNotEndIt(t *testing.T) {
	b := New(Settings{Failures: 1, Pause: time.Second, Longest: time.Minute})
	b.Allow("k", noon)
	b.Allow("k", noon) // a slow one
	b.Done("k", noon, noon, false)
	later := noon.Add(2 * time.Second)
	b.Allow("k", later) // the probe
	b.Done("k", noon, later, false)
	if !b.Allow("k", later.Add(1500*time.Millisecond)) {
		t.Error("a failure from before it opened ended the probe and doubled the pause")
	}
}
