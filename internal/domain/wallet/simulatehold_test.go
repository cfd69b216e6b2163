package wallet

import (
	"errors"
	"fmt"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// A simulatedHold is a named hold, as its owner knows it.
type simulatedHold struct {
	ws     tenant.ID
	id     string
	amount money.Nano
	spent  money.Nano // the most that was seen in this process

	doubt  bool // its owner was not told whether it was opened
	exists bool // it was opened, or will have been when everything has arrived
	ended  bool // its owner has ended it
}

// holdSteps are what the owners of named holds do.
var holdSteps = []step{
	{6, (*simulation).openHold},
	{3, (*simulation).openHoldInVain},
	{4, (*simulation).openHoldAndLoseTheCommit},
	{4, (*simulation).endHold},
	{8, (*simulation).publish},
	{3, (*simulation).resolve},
}

// newHold makes a hold that does not exist yet.
func (s *simulation) newHold() *simulatedHold {
	s.made++
	ws := s.spaces[s.random.IntN(len(s.spaces))]
	return &simulatedHold{ws: ws, id: fmt.Sprintf("rs_%s_%d", ws, s.made), amount: money.Nano(1 + s.random.IntN(300))}
}

// tryOpen opens a hold, and returns what end says when it fits.
func (s *simulation) tryOpen(h *simulatedHold, end error) error {
	free := s.funds.Free(h.ws)
	_, err := s.db.Tx(s.t.Context(), func(tx *db.Tx) error {
		if err := s.poster.Holds.Open(s.t.Context(), tx, h.ws, h.id, "reward", h.amount); err != nil {
			return err
		}
		return end
	})
	if fits := h.amount <= free; fits != (err == nil || end != nil && errors.Is(err, end)) {
		s.t.Errorf("a hold of %d of %d free: %v", h.amount, free, err)
	}
	return err
}

func (s *simulation) openHold() {
	if h := s.newHold(); s.tryOpen(h, nil) == nil {
		h.exists = true
		s.holds = append(s.holds, h)
	}
}

// openHoldInVain opens a hold in a transaction that is rolled back.
func (s *simulation) openHoldInVain() {
	h := s.newHold()
	free := s.funds.Free(h.ws)
	if s.tryOpen(h, errUndone) != nil && s.funds.Free(h.ws) != free {
		s.t.Errorf("%d are free after an opening that was rolled back, and %d were before", s.funds.Free(h.ws), free)
	}
}

// openHoldAndLoseTheCommit opens a hold over a connection that drops around COMMIT.
func (s *simulation) openHoldAndLoseTheCommit() {
	s.arriveLate()
	h, end := s.newHold(), s.random.IntN(3)
	h.doubt, h.exists = true, end != undone
	s.poster.Holds.onEnd = func(tx *db.Tx, told func(db.Outcome)) { tx.OnEnd(func(db.Outcome) { told(db.InDoubt) }) }
	defer func() { s.poster.Holds.onEnd = (*db.Tx).OnEnd }()
	var lost error
	if end != committed {
		lost = errUndone
	}
	if err := s.tryOpen(h, lost); err != nil && !errors.Is(err, errUndone) {
		return // it did not fit
	}
	if end == committedLater {
		s.late = func() {
			if err := insertHold(s.t.Context(), s.db.In(h.ws), h.id, "reward", h.amount); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	s.holds = append(s.holds, h)
}

var errUndone = errors.New("undone")

// resolve finds out what became of the holds in doubt. The probe waits for what is still on its way.
func (s *simulation) resolve() {
	s.arriveLate()
	if err := s.poster.Holds.Resolve(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	for _, h := range s.holds {
		if _, known := s.funds.SpentOf(h.ws, h.id); h.doubt && known != h.exists {
			s.t.Errorf("%+v is set aside in memory: %v", h, known)
		}
	}
	s.settleDoubts()
}

// settleDoubts notes that everything is known of every hold.
func (s *simulation) settleDoubts() {
	var kept []*simulatedHold
	for _, h := range s.holds {
		if h.doubt = false; h.exists {
			kept = append(kept, h)
		}
	}
	s.holds = kept
}

func (s *simulation) endHold() {
	h := s.pickHold(func(h *simulatedHold) bool { return !h.doubt })
	if h == nil {
		return
	}
	s.end(h)
	s.changes = append(s.changes, db.Change{Kind: changedHold, Workspace: h.ws, Subject: h.id})
}

// end ends a hold, and publishes nothing.
func (s *simulation) end(h *simulatedHold) {
	_, err := s.db.Tx(s.t.Context(), func(tx *db.Tx) error { return s.poster.Holds.End(s.t.Context(), tx, h.ws, h.id) })
	if err != nil {
		s.t.Fatal(err)
	}
	h.ended = true
}

// publish does what the feed does.
func (s *simulation) publish() {
	for _, c := range s.changes {
		if err := s.poster.Apply(s.t.Context(), c); err != nil {
			s.t.Fatal(err)
		}
		if left := s.funds.Left(c.Workspace, c.Subject); left != 0 {
			s.t.Errorf("%s has ended, and %d are free in it", c.Subject, left)
		}
	}
	s.changes = nil
}

func (s *simulation) pickHold(fits func(*simulatedHold) bool) *simulatedHold {
	var some []*simulatedHold
	for _, h := range s.holds {
		if fits(h) {
			some = append(some, h)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[s.random.IntN(len(some))]
}

// payerOf picks what pays for a request: a hold of the workspace, open or not, or the wallet.
func (s *simulation) payerOf(ws tenant.ID) string {
	if s.random.IntN(2) == 0 {
		return ""
	}
	if h := s.pickHold(func(h *simulatedHold) bool { return h.ws == ws && !h.doubt }); h != nil {
		return h.id
	}
	return ""
}

// checkHolds compares the rows of the holds with what their owners know, right after a start, and returns what the open
// ones have left of each wallet.
func (s *simulation) checkHolds() map[tenant.ID]money.Nano {
	s.settleDoubts() // what was in doubt is in its row, or is not
	reserved, rows := map[tenant.ID]money.Nano{}, 0
	for _, h := range s.holds {
		row, err := findHold(s.t.Context(), s.db.In(h.ws), h.id)
		if err != nil {
			s.t.Fatal(err)
		}
		if row == nil || row.Amount != h.amount || (row.EndedAt != 0) != h.ended {
			s.t.Errorf("%+v is %+v in the ledger", h, row)
			continue
		}
		if rows++; !h.ended {
			reserved[h.ws] += row.Amount - row.Spent
		}
		h.spent = 0
	}
	for _, ws := range s.spaces {
		n, err := db.One[int](s.t.Context(), s.db.In(ws), `SELECT COUNT(*) FROM named_holds WHERE workspace_id = $1`)
		if rows -= n; err != nil {
			s.t.Fatal(err)
		}
	}
	if rows != 0 {
		s.t.Errorf("there are %d rows too few of %d holds", rows, len(s.holds))
	}
	return reserved
}

// holdInvariants hold at every moment.
func (s *simulation) holdInvariants() {
	for _, h := range s.holds {
		if h.doubt {
			continue
		}
		spent, err := s.poster.Holds.Spent(s.t.Context(), h.ws, h.id)
		if err != nil || spent < h.spent || spent > h.amount || s.funds.Left(h.ws, h.id) > h.amount-spent {
			s.t.Errorf("%+v has spent %d: %v", h, spent, err)
		}
		h.spent = spent
	}
}
