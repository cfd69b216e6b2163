package wallet

import (
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/db"
)

func inputOf(cost money.Nano) live.Usage { return live.Usage{Input: int64(cost)} }

// free returns what is free of a payer, everywhere together: what nobody holds, has settled without posting it, or has
// taken and cannot give back. open is false for a hold that has ended.
func (s *servers) free(p payer) (free money.Nano, open bool) {
	s.t.Helper()
	s.arrivePostings()
	found, err := readPot(s.t.Context(), s.db.In(p.ws), p, "")
	if err != nil {
		s.t.Fatal(err)
	}
	free = found.Total
	pot := s.potOf(p)
	for _, v := range s.all {
		switch {
		case v.forgotten:
		case !v.serves():
			rows := v.rows()
			for _, of := range pot {
				free -= rows[of]
			}
		default:
			posted := v.postedInDoubt()
			for _, of := range pot {
				is := v.funds.Look(of.funds())
				free -= is.Held + is.Unposted - posted[of]
			}
		}
	}
	return free, found.Open
}

// potOf returns a payer and, for a wallet, its holds that have ended.
func (s *servers) potOf(p payer) []payer {
	all := []payer{p}
	if p.hold != "" {
		return all
	}
	ended, err := db.Query[string](s.t.Context(), s.db.In(p.ws),
		`SELECT id FROM named_holds WHERE workspace_id = $1 AND ended_at <> 0`)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, id := range ended {
		all = append(all, payer{p.ws, id})
	}
	return all
}

// rows returns a server's slices.
func (v *server) rows() map[payer]money.Nano {
	v.t.Helper()
	all, err := readSlices(v.t.Context(), v.db.Across("test"), v.journal.ID, v.spaces, "")
	if err != nil {
		v.t.Fatal(err)
	}
	return all
}

// postedInDoubt returns what a server has posted and does not know of.
func (v *server) postedInDoubt() map[payer]money.Nano {
	all := map[payer]money.Nano{}
	b := v.poster.inDoubt
	if b == nil {
		return all
	}
	at, err := readCursor(v.t.Context(), v.db, v.journal.ID)
	if err != nil {
		v.t.Fatal(err)
	}
	if at == b.next {
		for ws, charges := range b.charges {
			for _, c := range charges {
				all[payer{ws, c.Hold}] += c.Charged
			}
		}
	}
	return all
}

// invariants hold at every moment: what a server has in memory is what it has taken, and it holds no more.
func (s *servers) invariants(rules bool) {
	s.arrivePostings()
	for i, v := range s.all {
		if !v.up || v.forgotten {
			continue
		}
		rows, posted := v.rows(), v.postedInDoubt()
		for _, slot := range v.poster.Escrow.all() {
			if _, there := rows[slot.payer]; !there {
				rows[slot.payer] = 0
			}
		}
		for p, amount := range rows {
			is := v.funds.Look(p.funds())
			has := is.Amount - posted[p]
			if is.Held < 0 || is.Unposted < 0 || is.Free < 0 || is.Idle < 0 || is.Held+is.Unposted-posted[p] > amount || has > amount {
				s.t.Errorf("server %d has %+v (%d posted) of %v, and has taken %d", i, is, posted[p], p, amount)
			}
			if slot := slotOf(v.poster.Escrow, p); slot.doubt == 0 && has != amount {
				s.t.Errorf("server %d has %+v (%d posted) of %v, and the ledger says %d", i, is, posted[p], p, amount)
			}
		}
	}
	if !rules {
		return
	}
	for _, rule := range sliceInvariants {
		broken, err := db.Query[string](s.t.Context(), s.db.Across("test"), rule.violations)
		if err != nil || len(broken) > 0 {
			s.t.Errorf("%s: not so for %v %v", rule.rule, broken, err)
		}
	}
}

// prove compares the ledger with what callers were told.
func (s *servers) prove() {
	s.t.Helper()
	s.arriveAll()
	proof, err := NewStore(s.db, nil, funds.New()).Verify(s.t.Context())
	if err != nil || !proof.OK {
		s.t.Errorf("the ledger does not prove: %+v %v", proof, err)
	}
	type row struct {
		WorkspaceID   tenant.ID
		RequestID     string
		HoldID        string
		Cost, Charged money.Nano
	}
	rows, err := db.Query[row](s.t.Context(), s.db.Across("test"),
		`SELECT workspace_id, request_id, hold_id, cost, charged FROM usage_rows`)
	if err != nil {
		s.t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		g := s.requests[r.RequestID]
		switch {
		case g == nil || seen[r.RequestID] || !g.there:
			s.t.Errorf("%+v is charged, for nothing or once more", r)
		case g.from != (payer{r.WorkspaceID, r.HoldID}), g.cost != r.Cost, g.charged != r.Charged && !g.by.forgotten, g.charged < r.Charged:
			s.t.Errorf("%+v is charged, and its caller was told %d of %d from %v", r, g.charged, g.cost, g.from)
		}
		seen[r.RequestID] = true
	}
}

// finish ends all accidents, and then all servers, and checks that nothing is missing.
func (s *servers) finish() {
	s.arriveAll()
	for _, v := range s.all {
		v.heal()
		v.lose = kept
		if v.restart(); v.over {
			v.rejoin()
		}
		v.publish()
		if v.up {
			v.leaveNow()
		}
	}
	for _, v := range s.all { // what others have recalled meanwhile
		if v.up && !v.forgotten {
			v.leaveNow()
		}
	}
	s.invariants(true)
	s.prove()
	if sum := s.sliced(""); sum != 0 {
		s.t.Errorf("%d are in slices after everybody has left", sum)
	}
	posted := map[string]bool{}
	ids, err := db.Query[string](s.t.Context(), s.db.Across("test"), `SELECT request_id FROM usage_rows`)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, id := range ids {
		posted[id] = true
	}
	for id, g := range s.requests {
		if g.there && !g.by.forgotten && !posted[id] {
			s.t.Errorf("%s was charged %d of %d and is not in the ledger", id, g.charged, g.cost)
		}
	}
}

// clear empties the ledger for the next seed.
func (s *servers) clear() {
	s.arriveAll()
	for _, table := range []string{
		"usage_rows", "ledger_entries", "ledger_balances", "ledger_days", "named_holds", "usage_days", "usage_sums", "usage_closed",
		"wallet_slices", "wallet_recalls", "wallet_losses", "wallet_debts", "nodes", "journal_cursors", "chain_links",
		"feed_changes", "audit_entries", "workspaces",
	} {
		s.exec("DELETE FROM " + table)
	}
}

// show logs what everybody has of a payer.
func (s *servers) show(p payer) {
	s.t.Helper()
	found, err := readPot(s.t.Context(), s.db.In(p.ws), p, "")
	s.t.Logf("%v: %+v %v", p, found, err)
	for i, v := range s.all {
		rows := v.rows()
		for _, of := range s.potOf(p) {
			slot := slotOf(v.poster.Escrow, of)
			s.t.Logf("server %d (up %v, over %v, cut %v, forgotten %v) has %d of %v, and in memory %+v, %d in doubt", i, v.up, v.over,
				v.cut, v.forgotten, rows[of], of, v.funds.Look(of.funds()), slot.doubt)
		}
	}
}

// slotOf returns the slot of a payer.
func slotOf(e *Escrow, p payer) *slot {
	s, done := e.use(p)
	done()
	return s
}
