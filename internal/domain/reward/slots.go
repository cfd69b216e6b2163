package reward

import (
	"container/list"
	"sync"

	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
)

// slots bounds how many questions are asked at a time, and shares that number fairly: first among workspaces, then
// among the sessions of a workspace, then among the calls of a session. The workspace, and then the session, with the
// fewest busy slots is next, so that a slow judge costs its own workspace. Calls take turns: one of 512 items waits as
// long for its next item as one of a single item.
type slots struct {
	mu    sync.Mutex
	limit int
	busy  int
	root  turns
}

// A task is what a slot does.
type task interface {
	claim() bool // reports whether there still is something to do, and that this slot does it; it must not block
	// run does it, in the slot, and may free the slot before it is done. It returns what follows when the slot is
	// free, or nil.
	run(free func()) (then func())
}

// A place is where a call stands in the order of turns.
type place struct {
	workspace tenant.ID
	session   string
	call      uint64
}

func newSlots(limit int) *slots {
	s := &slots{limit: limit}
	s.root.fewest = true
	return s
}

// setLimit changes the number of slots. Those that are busy stay so to their end.
func (s *slots) setLimit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(1, n)
	s.fill()
}

// call returns the queue of a call. s.mu is held.
func (s *slots) call(at place) *turns {
	return s.root.child(at.workspace, true).child(at.session, false).child(at.call, false)
}

// add queues tasks of a call, which are done in their order as the call's turns come.
func (s *slots) add(at place, tasks ...task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(tasks) > 0 {
		call := s.call(at)
		call.tasks = append(call.tasks, tasks...)
		call.wait()
	}
	s.fill()
}

// drop removes what is queued for a call.
func (s *slots) drop(at place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.call(at)
	call.tasks = nil
	call.tidy()
}

// fill gives free slots to the tasks whose turn it is. One workspace leaves one slot in 32 to others, which
// would otherwise wait for its slowest judge. s.mu is held.
func (s *slots) fill() {
	for s.busy < s.limit {
		t, of := s.root.next(s.limit - s.limit/32)
		if t == nil {
			return
		}
		if !t.claim() {
			of.tidy()
			continue
		}
		s.busy++
		for n := of; n != nil; n = n.parent {
			n.busy++
		}
		go func() {
			defer panics.Contain(nil, "a task of a reward session")
			free := sync.OnceFunc(func() { s.release(of) })
			defer free()
			then := t.run(free)
			free()
			if then != nil {
				then()
			}
		}()
	}
}

func (s *slots) release(of *turns) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	for n := of; n != nil; n = n.parent {
		n.busy--
	}
	of.tidy()
	s.fill()
}

// turns is the queue of a call, or queues that take turns. It exists while something waits or is busy.
type turns struct {
	parent  *turns
	name    any
	fewest  bool // the next is the one with the fewest busy slots, not the first in turn
	busy    int  // slots
	tasks   []task
	byName  map[any]*turns
	order   list.List     // of those where something waits
	element *list.Element // in the parent's order; nil when nothing waits
}

func (t *turns) child(name any, fewest bool) *turns {
	found := t.byName[name]
	if found == nil {
		found = &turns{parent: t, name: name, fewest: fewest}
		if t.byName == nil {
			t.byName = map[any]*turns{}
		}
		t.byName[name] = found
	}
	return found
}

// wait puts t, where something waits, into the order of turns.
func (t *turns) wait() {
	for n := t; n.parent != nil && n.element == nil; n = n.parent {
		n.element = n.parent.order.PushBack(n)
	}
}

// tidy takes t and what it is part of out of the order where nothing waits, and removes what is not busy either.
func (t *turns) tidy() {
	for n := t; n.parent != nil; n = n.parent {
		if len(n.tasks) > 0 || n.order.Len() > 0 {
			return
		}
		if n.element != nil {
			n.parent.order.Remove(n.element)
			n.element = nil
		}
		if n.busy == 0 && len(n.byName) == 0 {
			delete(n.parent.byName, n.name)
		}
	}
}

// next removes the task whose turn it is, and returns it with its call. most bounds the busy slots of a workspace.
func (t *turns) next(most int) (task, *turns) {
	if len(t.tasks) > 0 {
		first := t.tasks[0]
		t.tasks[0], t.tasks = nil, t.tasks[1:]
		return first, t
	}
	chosen := t.choose()
	if chosen == nil || t.parent == nil && chosen.busy >= most {
		return nil, nil
	}
	t.order.MoveToBack(chosen.element)
	found, of := chosen.next(most)
	if len(chosen.tasks) == 0 && chosen.order.Len() == 0 {
		t.order.Remove(chosen.element)
		chosen.element = nil
	}
	return found, of
}

// choose returns the queue whose turn it is, or nil.
func (t *turns) choose() (chosen *turns) {
	for e := t.order.Front(); e != nil; e = e.Next() {
		n := e.Value.(*turns) //nolint:forcetypeassert // nothing else is in the list
		if chosen == nil || n.busy < chosen.busy {
			chosen = n
		}
		if !t.fewest || chosen.busy == 0 {
			return chosen
		}
	}
	return chosen
}
