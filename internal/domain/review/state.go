package review

import (
	"sovereign/internal/base/fault"
)

// A State is what an item is for one person.
type State string

// The states. An item without a row is open.
const (
	Open    State = "open"
	Claimed State = "claimed" // the person holds a lease of it
	Graded  State = "graded"
	Skipped State = "skipped"
)

// An event changes the state of an item for one person.
type event string

const (
	claims  event = "claimed"
	grades  event = "graded"
	skips   event = "skipped"
	undoes  event = "undone"
	expires event = "given back" // the lease ends, or the grant
)

// next is every permitted change. To claim a claimed item renews its lease, and to undo twice is fine.
var next = map[State]map[event]State{
	Open:    {claims: Claimed},
	Claimed: {claims: Claimed, grades: Graded, skips: Skipped, undoes: Claimed, expires: Open},
	Graded:  {undoes: Claimed},
	Skipped: {undoes: Claimed},
}

// move returns the state after an event, and refuses one that is not permitted.
func (s State) move(e event) (State, error) {
	if to, ok := next[s][e]; ok {
		return to, nil
	}
	if s == Open {
		return s, fault.Conflict("the item is not yours: claim one first, and it cannot be %s before", e)
	}
	return s, fault.Conflict("you have %s the item: it cannot be %s before that is undone", s, e)
}

// The states of an item for everybody.
const (
	itemOpen    = "open"
	itemDone    = "done"    // as many people as the queue asks for have graded it
	itemExpired = "expired" // what was to be graded is gone
)

// settle returns the state of an item that is not expired, and whether its grades differ.
func settle(passes, fails, graders int64) (state string, conflict bool) {
	state = itemOpen
	if passes+fails >= graders {
		state = itemDone
	}
	return state, passes > 0 && fails > 0
}
