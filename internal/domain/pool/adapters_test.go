package pool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// An engine is what a cache of adapters loads into. It notes what must never happen.
type engine struct {
	mu     sync.Mutex
	slots  int
	loaded map[string]bool
	inUse  map[string]int
	files  int // that are held
	calls  []string
	fails  map[string]error
	wrong  []string
}

func newEngine(slots int, holds ...string) *engine {
	e := &engine{slots: slots, loaded: map[string]bool{}, inUse: map[string]int{}, fails: map[string]error{}}
	for _, id := range holds {
		e.loaded[id] = true
	}
	return e
}

func (e *engine) clear(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, "clear")
	clear(e.loaded)
	return e.fails["clear"]
}

func (e *engine) load(_ context.Context, id string) (func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, "load "+id)
	if err := e.fails[id]; err != nil {
		return nil, err
	}
	if e.loaded[id] = true; len(e.loaded) > e.slots {
		e.wrong = append(e.wrong, fmt.Sprintf("%d versions are loaded", len(e.loaded)))
	}
	e.files++
	return func() { e.mu.Lock(); defer e.mu.Unlock(); e.files-- }, nil
}

func (e *engine) unload(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, "unload "+id)
	if e.inUse[id] > 0 {
		e.wrong = append(e.wrong, id+" is unloaded while it is used")
	}
	delete(e.loaded, id)
	return nil
}

// uses changes how many requests a version answers, which must be loaded.
func (e *engine) uses(id string, by int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inUse[id] += by; !e.loaded[id] {
		e.wrong = append(e.wrong, id+" is used, and is not loaded")
	}
}

func TestAVersionIsLoadedWhileItIsUsedAndPlacesAreNeverExceeded(t *testing.T) {
	e := newEngine(3)
	s := newAdapterCache(3, e)
	var group sync.WaitGroup
	for n := range uint64(8) {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(n, 7))
			for range 200 {
				id := fmt.Sprintf("mv_%d", rng.IntN(6))
				done, err := s.use(t.Context(), id)
				if err != nil {
					t.Error(err)
					return
				}
				e.uses(id, 1)
				e.uses(id, -1)
				done()
			}
		})
	}
	group.Wait()
	if len(e.wrong) > 0 {
		t.Errorf("%q", e.wrong)
	}
	if s.end(); e.files != 0 {
		t.Errorf("the files of %d versions are still held", e.files)
	}
}

func TestTheLeastRecentlyUsedVersionMakesRoom(t *testing.T) {
	e := newEngine(2, "mv_old")
	s := newAdapterCache(2, e)
	for _, id := range []string{"mv_a", "mv_b", "mv_a", "mv_c", "mv_a", "mv_b"} {
		done, err := s.use(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		done()
	}
	want := []string{"clear", "load mv_a", "load mv_b", "unload mv_b", "load mv_c", "unload mv_c", "load mv_b"}
	if !slices.Equal(e.calls, want) {
		t.Errorf("want %q\n got %q", want, e.calls)
	}
}

func TestARequestWaitsWhileEveryPlaceIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(1)
		s := newAdapterCache(1, e)
		done, err := s.use(t.Context(), "mv_a")
		if err != nil {
			t.Fatal(err)
		}
		left, leave := context.WithCancel(t.Context())
		results := make(chan error, 2)
		for _, ctx := range []context.Context{left, t.Context()} {
			go func() {
				_, err := s.use(ctx, "mv_b")
				results <- err
			}()
		}
		synctest.Wait()
		if len(results) > 0 {
			t.Fatalf("a place in use was given away: %v", <-results)
		}
		leave()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that left: %v", err)
		}
		done()
		if err := <-results; err != nil || !e.loaded["mv_b"] || e.loaded["mv_a"] {
			t.Errorf("%v, loaded %v", err, e.loaded)
		}
	})
}

func TestAVersionThatCannotBeLoadedTakesNoPlaceAndIsTriedAgain(t *testing.T) {
	e := newEngine(1)
	s := newAdapterCache(1, e)
	e.fails["clear"] = errors.New("no answer")
	if _, err := s.use(t.Context(), "mv_a"); !errors.Is(err, e.fails["clear"]) {
		t.Errorf("an engine that does not answer: %v", err)
	}
	delete(e.fails, "clear")
	e.fails["mv_a"] = errors.New("torn file")
	if _, err := s.use(t.Context(), "mv_a"); !errors.Is(err, e.fails["mv_a"]) {
		t.Errorf("a torn version: %v", err)
	}
	for _, id := range []string{"mv_b", "mv_a"} {
		delete(e.fails, id)
		done, err := s.use(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		done()
	}
	s.end()
	if _, err := s.use(t.Context(), "mv_a"); !errors.Is(err, errEnded) || e.files != 0 {
		t.Errorf("an engine that has ended: %v, %d files are held", err, e.files)
	}
}
