package engines

import (
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/fault"
	"sovereign/internal/net/life"
)

// A result is what became of a request of the model.
type result struct {
	lease *Lease
	err   error
}

// A request is one that the property test has made.
type request struct {
	life   *life.Life
	result chan result
	lease  *Lease // while it is answered
	began  bool   // it has a result
}

// A machine is a group beside a model of it.
type machine struct {
	group    *Group
	wakes    atomic.Int64
	set      []string       // replicas in force
	busy     map[string]int // outstanding by replica
	running  []*request
	waiting  []*request // in their order
	failed   bool
	expected int64 // wakes
	woken    bool
}

func newMachine() *machine {
	m := &machine{busy: map[string]int{}}
	m.group = NewRegistry().Open(GroupConfig{Name: "g", Wait: time.Hour, Wake: func() { m.wakes.Add(1) }})
	return m
}

// acquire makes a request, and waits until the group has it: with a replica, refused, or waiting.
func (m *machine) acquire(t *rapid.T) {
	q := &request{life: &life.Life{}, result: make(chan result, 1)}
	if len(m.set) == 0 && !m.woken {
		m.woken = true
		m.expected++
	}
	if len(m.set) > 0 || m.failed {
		l, err := m.group.Acquire(q.life, "m")
		m.take(t, q, result{l, err})
		return
	}
	go func() {
		l, err := m.group.Acquire(q.life, "m")
		q.result <- result{l, err}
	}()
	m.waiting = append(m.waiting, q)
	late := time.Now().Add(5 * time.Minute)
	for m.group.Use().Waiting < len(m.waiting) || m.wakes.Load() < m.expected { // its goroutine is on its way
		if runtime.Gosched(); time.Now().After(late) {
			t.Fatalf("%+v and %d wakes, want %d waiting and %d wakes", m.group.Use(), m.wakes.Load(), len(m.waiting), m.expected)
		}
	}
}

// take checks the result of a request that the model says is decided now.
func (m *machine) take(t *rapid.T, q *request, r result) {
	switch {
	case q.began:
		t.Fatal("a request has a second result")
	case m.failed:
		if r.err == nil || fault.From(r.err).Kind != fault.Unavailable {
			t.Fatalf("a request of a failed group: %v", r.err)
		}
		return
	case r.err != nil:
		t.Fatal(r.err)
	}
	q.began, q.lease = true, r.lease
	id := r.lease.Replica().ID
	if !slices.Contains(m.set, id) {
		t.Fatalf("%s was left out, and got a request", id)
	}
	m.busy[id]++
	m.running = append(m.running, q)
}

// sendWaiting takes the results of the requests that waited.
func (m *machine) sendWaiting(t *rapid.T) {
	for _, q := range m.waiting {
		m.take(t, q, <-q.result)
	}
	m.waiting = nil
}

// TestAGroupMatchesAModel compares a group with a model under any sequence of calls: a request goes to a replica with
// the fewest outstanding ones, none to a replica that was left out, and every waiting one is answered exactly once.
func TestAGroupMatchesAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine()
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				least := 1 << 30
				for _, id := range m.set {
					least = min(least, m.busy[id])
				}
				before := len(m.running)
				m.acquire(t)
				if len(m.running) > before {
					if id := m.running[before].lease.Replica().ID; m.busy[id] != least+1 {
						t.Fatalf("%s had %d outstanding, the least is %d", id, m.busy[id]-1, least)
					}
				}
			},
			"release": func(t *rapid.T) {
				if len(m.running) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(m.running)-1).Draw(t, "request")
				q := m.running[i]
				m.running = slices.Delete(m.running, i, i+1)
				m.busy[q.lease.Replica().ID]--
				q.lease.Release(false)
			},
			"set": func(t *rapid.T) {
				m.set = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(t, "replicas")
				var all []Replica
				for _, id := range m.set {
					all = append(all, Replica{ID: id, BaseURL: "http://127.0.0.1:1"})
				}
				m.group.Set(all)
				if len(all) > 0 {
					m.failed, m.woken = false, false
					m.sendWaiting(t)
				}
			},
			"fail": func(t *rapid.T) {
				if len(m.set) > 0 {
					t.Skip()
				}
				m.group.Fail(errors.New("no GPU is free"))
				m.failed, m.woken = true, false
				m.sendWaiting(t)
			},
			"hope": func(*rapid.T) {
				if m.failed {
					m.group.Fail(nil)
					m.failed, m.woken = false, false
				}
			},
			"leave": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(m.waiting)-1).Draw(t, "request")
				q := m.waiting[i]
				m.waiting = slices.Delete(m.waiting, i, i+1)
				q.life.End(errors.New("left"))
				if r := <-q.result; r.err == nil || r.lease != nil {
					t.Fatal("a caller that has left has a replica")
				}
				if len(m.waiting) == 0 { // the next one wakes it again, in case nothing is done for nobody
					m.woken = false
				}
			},
			"": func(t *rapid.T) { m.check(t) },
		})
		m.group.close()
		m.failed = true // for good
		m.sendWaiting(t)
	})
}

// check compares what the group says of itself with the model.
func (m *machine) check(t *rapid.T) {
	use := m.group.Use()
	if use.Outstanding != len(m.running) || use.Waiting != len(m.waiting) || m.wakes.Load() != m.expected {
		t.Fatalf("%+v and %d wakes, want %d outstanding, %d waiting, %d wakes", use, m.wakes.Load(), len(m.running), len(m.waiting), m.expected)
	}
	for _, id := range []string{"a", "b", "c"} {
		if got := m.group.Busy(id); got != m.busy[id] {
			t.Fatalf("%s has %d outstanding, want %d", id, got, m.busy[id])
		}
	}
	for _, q := range m.waiting {
		select {
		case r := <-q.result:
			t.Fatalf("a waiting request has a result: %v", r)
		default:
		}
	}
}

// A thousand callers wait, some leave, the replicas change, and everybody has one result.
func TestWaitingCallersAreAnsweredOnceWhateverHappensAtOnce(t *testing.T) {
	const callers = 1000
	r := NewRegistry()
	g := r.Open(GroupConfig{Name: "g", Wait: time.Hour, Wake: func() {}})
	lives, served, refused := make([]life.Life, callers), atomic.Int64{}, atomic.Int64{}
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			l, err := r.Acquire(&lives[i], "g", "m")
			if err != nil {
				refused.Add(1)
				return
			}
			served.Add(1)
			l.Release(i%3 == 0)
		})
	}
	group.Go(func() {
		for i := range callers / 4 {
			lives[4*i].End(errors.New("left"))
		}
	})
	group.Go(func() {
		for i := range 100 {
			g.Set([]Replica{{ID: strconv.Itoa(i), BaseURL: "http://127.0.0.1:1"}})
			g.Set(nil)
		}
		g.Set([]Replica{{ID: "last", BaseURL: "http://127.0.0.1:1"}})
	})
	group.Wait()
	if served.Load()+refused.Load() != callers || served.Load() < callers-callers/4 {
		t.Errorf("%d served and %d refused of %d", served.Load(), refused.Load(), callers)
	}
	if u := g.Use(); u.Outstanding != 0 || u.Waiting != 0 || u.LastUsed == 0 || len(g.leaving) != 0 {
		t.Errorf("afterwards %+v, and %d are draining", u, len(g.leaving))
	}
}
