package reward

import (
	"container/list"
	"sync"

	"sovereign/internal/base/tenant"
)

// slots bounds how many questions are asked at a time, and shares that number fairly. Workspaces take turns, then the
// sessions of a workspace, then the calls of a session: a call of 512 items waits no less for a call of one item than
// that one for it.
type slots struct {
	mu    sync.Mutex
	limit int
	busy  int
	root  turns
}

// A task is what a slot does.
type task interface {
	claim() bool // reports whether there still is something to do, and that this slot does it; it must not block
	run()        // does it, in the slot
	settle()     // follows when the slot is free again
}

// A place is where a call stands in the order of turns.
type place struct {
	workspace tenant.ID
	session   string
	call      uint64
}

func newSlots(limit int) *slots { return &slots{limit: limit} }

// setLimit changes the number of slots. Those that are busy stay so to their end.
func (s *slots) setLimit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(1, n)
	s.fill()
}

// add queues tasks of a call, which are done in their order as the call's turns come.
func (s *slots) add(at place, tasks ...task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(tasks) > 0 {
		s.root.add([]any{at.workspace, at.session, at.call}, tasks)
	}
	s.fill()
}

// drop removes what is queued for a call, and returns it.
func (s *slots) drop(at place) []task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.root.drop([]any{at.workspace, at.session, at.call})
}

// fill gives free slots to the tasks whose turn it is. s.mu is held.
func (s *slots) fill() {
	for s.busy < s.limit {
		t := s.root.next()
		if t == nil {
			return
		}
		if !t.claim() {
			continue
		}
		s.busy++
		go func() {
			t.run()
			s.release()
			t.settle()
		}()
	}
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.fill()
}

// turns is a queue of tasks, or of queues that take turns. Empty ones are removed.
type turns struct {
	name    any
	tasks   []task        // of a call
	order   list.List     // of *turns: the first is next
	byName  map[any]*turns
	element *list.Element // in the order of its parent
}

// add queues tasks below a path of names.
func (t *turns) add(path []any, tasks []task) {
	if len(path) == 0 {
		t.tasks = append(t.tasks, tasks...)
		return
	}
	child := t.byName[path[0]]
	if child == nil {
		child = &turns{name: path[0]}
		if t.byName == nil {
			t.byName = map[any]*turns{}
		}
		t.byName[child.name], child.element = child, t.order.PushBack(child)
	}
	child.add(path[1:], tasks)
}

// next removes and returns the task whose turn it is, or nil.
func (t *turns) next() task {
	if len(t.tasks) > 0 {
		first := t.tasks[0]
		t.tasks[0], t.tasks = nil, t.tasks[1:]
		return first
	}
	front := t.order.Front()
	if front == nil {
		return nil
	}
	child := front.Value.(*turns) //nolint:forcetypeassert // nothing else is in the list
	found := child.next()
	if child.empty() {
		t.remove(child)
	} else {
		t.order.MoveToBack(front)
	}
	return found
}

// drop removes the tasks at a path, and returns them.
func (t *turns) drop(path []any) (dropped []task) {
	if len(path) == 0 {
		dropped, t.tasks = t.tasks, nil
		return dropped
	}
	child := t.byName[path[0]]
	if child == nil {
		return nil
	}
	dropped = child.drop(path[1:])
	if child.empty() {
		t.remove(child)
	}
	return dropped
}

func (t *turns) remove(child *turns) {
	t.order.Remove(child.element)
	delete(t.byName, child.name)
}

func (t *turns) empty() bool { return len(t.tasks) == 0 && t.order.Len() == 0 }
