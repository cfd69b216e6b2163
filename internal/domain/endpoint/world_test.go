package endpoint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/serving"
)

// A world is a backend whose engines are rows in memory. Its clock stands until it is moved. It outlives servers.
type world struct {
	mu sync.Mutex

	clock     atomic.Int64
	loading   time.Duration // until an engine is ready
	grace     time.Duration // until an engine ends that was told to
	broken    bool          // engines end as soon as they have started
	blind     bool          // nobody sees engines end
	interrupt func()        // called before and after everything that a server asks for

	deployments map[string]*deployed
	lives       []*engine // of all time
	changed     chan struct{}
}

// deployed is what runs of a spec.
type deployed struct {
	spec    serving.Spec
	engines []*engine
	removed bool
}

// An engine is a life as it really was.
type engine struct {
	serving.Replica
	of     string
	told   clock.Time // when it was told to end; 0 until then
	end    clock.Time // when it really ended; 0 while it runs
	listed clock.Time // when a server last saw it ready
}

func newWorld() *world {
	w := &world{
		loading: 10 * time.Second, deployments: map[string]*deployed{}, changed: make(chan struct{}, 1),
		interrupt: func() {},
	}
	w.clock.Store(int64(clock.Now()))
	return w
}

func (w *world) now() clock.Time { return clock.Time(w.clock.Load()) }

// pass lets time go by, second after second.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; d > 0; d -= time.Second {
		w.clock.Add(min(d, time.Second).Microseconds())
		for _, d := range w.deployments {
			w.run(d)
		}
	}
}

// run lets engines become ready, break, and be replaced.
func (w *world) run(d *deployed) {
	for _, e := range d.engines {
		if e.Asked && e.Phase != serving.Ended && w.now().Sub(e.told) >= w.grace {
			w.die(e)
		}
		if e.Phase == serving.Starting && w.broken && !e.Asked {
			e.Lines = []string{"loading", "out of memory"}
			w.die(e)
		}
		if e.Phase == serving.Starting && w.now().Sub(e.StartedAt) >= w.loading {
			e.Phase, e.ReadyAt, e.BaseURL = serving.Ready, w.now(), "http://127.0.0.1:1/v1"
		}
	}
	w.fit(d)
}

func (d *deployed) alive() (all []*engine) {
	for _, e := range d.engines {
		if e.Phase != serving.Ended && !e.Asked {
			all = append(all, e)
		}
	}
	return all
}

// fit starts what is missing, and ends what is too much: what is not ready first, and then the youngest.
func (w *world) fit(d *deployed) {
	all := d.alive()
	for n := len(all); n < d.spec.Replicas && !d.removed; n++ {
		e := &engine{of: d.spec.Name, Replica: serving.Replica{
			ID: fmt.Sprintf("life-%d", len(w.lives)+1), Phase: serving.Starting, StartedAt: w.now(),
		}}
		d.engines, w.lives = append(d.engines, e), append(w.lives, e)
	}
	slices.SortStableFunc(all, func(x, y *engine) int {
		return cmp.Compare(rank(x.Phase == serving.Ready), rank(y.Phase == serving.Ready))
	})
	for len(all) > d.spec.Replicas || d.removed && len(all) > 0 {
		w.tell(all[len(all)-1])
		all = all[:len(all)-1]
	}
}

// tell tells an engine to end.
func (w *world) tell(e *engine) {
	e.Asked, e.told = true, w.now()
	if w.grace == 0 {
		w.die(e)
	}
}

func (w *world) die(e *engine) {
	e.Phase, e.Reason, e.end = serving.Ended, "exit status 1", w.now()
	if !w.blind {
		e.EndedAt = e.end
	}
}

func (w *world) Apply(_ context.Context, s serving.Spec) error {
	w.interrupt()
	defer w.interrupt()
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.deployments[s.Name]
	if d == nil {
		d = &deployed{}
		w.deployments[s.Name] = d
	}
	d.spec, d.removed = s, false
	w.fit(d)
	return nil
}

func (w *world) Remove(_ context.Context, name string) error {
	w.interrupt()
	defer w.interrupt()
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.deployments[name]; d != nil {
		d.removed = true
		w.fit(d)
		w.tidy(name)
	}
	return nil
}

// tidy drops a deployment that was removed, when everything of it is forgotten.
func (w *world) tidy(name string) {
	if d := w.deployments[name]; d != nil && d.removed && len(d.engines) == 0 {
		delete(w.deployments, name)
	}
}

func (w *world) List(context.Context) (all []serving.Deployment, err error) {
	w.interrupt()
	defer w.interrupt()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.deployments {
		one := serving.Deployment{Spec: d.spec}
		for _, e := range d.engines {
			if e.Phase == serving.Ready {
				e.listed = w.now()
			}
			one.Replicas = append(one.Replicas, e.Replica)
		}
		all = append(all, one)
	}
	return all, nil
}

func (w *world) Forget(_ context.Context, name, id string) error {
	w.interrupt()
	defer w.interrupt()
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.deployments[name]; d != nil {
		d.engines = slices.DeleteFunc(d.engines, func(e *engine) bool { return e.ID == id && e.Phase == serving.Ended })
		w.tidy(name)
	}
	return nil
}

func (w *world) Changed() <-chan struct{} { return w.changed }

func (w *world) Close() {}
