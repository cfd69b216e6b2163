package wallet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// poison makes posting any batch panic in which a charge of a request is. (No values of a charge are known to do so.)
func (b *process) poison(isPoisonous func(request string) bool) {
	b.poster.insert = func(ctx context.Context, tx *db.Tx, charges map[tenant.ID][]*journal.Charge) (map[payer]money.Nano, error) {
		paid, err := postUsage(ctx, tx, usage.NewDays(), charges, b.poster.within) // what was written before the panic is rolled back
		for _, some := range charges {
			for _, c := range some {
				if isPoisonous(c.Request) {
					panic("a poisonous charge")
				}
			}
		}
		return paid, err
	}
}

func isRequest(name string) func(string) bool {
	return func(request string) bool { return request == name }
}

// proofOf is what an operator is shown.
func (b *process) proofOf() Proof {
	b.t.Helper()
	if b.sealer == nil {
		b.sealer, _ = newSealer(b.t, b.db)
	}
	o := &Operator{store: NewStore(b.db, nil, b.funds), poster: b.poster, sealer: b.sealer}
	proof, err := o.verify(b.t.Context(), tenant.Caller{}, chain.Kept{})
	if err != nil {
		b.t.Fatal(err)
	}
	return proof
}

func (b *process) requests() string {
	var all []string
	for _, row := range b.rows() {
		all = append(all, row.RequestID)
	}
	return strings.Join(all, " ")
}

// A charge whose posting panics is set aside: its bytes are kept, the proof names it, its wallet is not charged, and
// all others are posted. A start after it succeeds.
func TestAChargeWhosePostingPanicsIsSetAsideAndNotForgotten(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.poison(isRequest("req_2"))
		b.fund("ws_a", 1000)
		b.fund("ws_b", 1000)
		for i, ws := range []tenant.ID{"ws_a", "ws_a", "ws_b"} {
			b.spend(ws, fmt.Sprint("req_", i+1), 10)
		}
		b.drain()
		b.spend("ws_b", "req_4", 10)
		b.drain()
		if got := b.requests(); got != "req_1 req_3 req_4" {
			t.Errorf("%s are posted", got)
		}
		b.checkProof()
		if got := b.balance("ws_a"); got.Balance != 990 || got.Spent != 10 {
			t.Errorf("%+v", got)
		}
		checkSetAside(t, b)

		next := b.killed()
		next.poison(isRequest("req_2"))
		next.recover()
		next.checkProof()
		checkSetAside(t, next)
	})
}

func checkSetAside(t *testing.T, b *process) {
	t.Helper()
	aside, err := b.poster.SetAside()
	if err != nil || len(aside) != 1 || aside[0].Request != "req_2" || aside[0].Charged != 10 || b.poster.SetAsideCount() != 1 {
		t.Errorf("set aside: %+v (%d), %v", aside, b.poster.SetAsideCount(), err)
	}
	if proof := b.proofOf(); proof.OK || len(proof.Problems) != 1 || !strings.Contains(proof.Problems[0], "req_2 of ws_a") {
		t.Errorf("%+v", proof)
	}
}

// A server whose last process left a poisonous charge starts.
func TestAStartSetsAPoisonousChargeAside(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.spend("ws_a", "req_1", 10)
		b.spend("ws_a", "req_2", 10)
		next := b.killed()
		next.poison(isRequest("req_2"))
		next.recover()
		if got := next.requests(); got != "req_1" {
			t.Errorf("%s are posted", got)
		}
		checkSetAside(t, next)
	})
}

// Values that the database refuses are set aside too: PostgreSQL holds no NUL in a text.
func TestAChargeThatTheDatabaseRefusesIsSetAside(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine == db.SQLite {
			t.Skip("SQLite holds any text")
		}
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.spend("ws_a", "req_1", 10)
		b.spend("ws_a", "req_2\x00", 10)
		b.drain()
		if aside, err := b.poster.SetAside(); err != nil || len(aside) != 1 || b.requests() != "req_1" {
			t.Errorf("%+v, %v; %s are posted", aside, err, b.requests())
		}
		b.checkProof()
	})
}

// If nothing can be posted, it is not the charges that are wrong: they wait in the journal.
func TestWhenNoChargeCanBePostedNoneIsSetAside(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		working := b.poster.insert
		b.poison(func(string) bool { return true })
		b.fund("ws_a", 1000)
		for i := range maxSetAside + 1 {
			b.spend("ws_a", fmt.Sprint("req_", i), 10)
		}
		if err := b.poster.Drain(t.Context()); err == nil || b.poster.Lag() == 0 {
			t.Errorf("%v, %v behind", err, b.poster.Lag())
		}
		if aside, err := b.poster.SetAside(); err != nil || len(aside) > 0 {
			t.Errorf("%+v, %v", aside, err)
		}
		b.poster.insert = working
		b.drain()
		if n := len(b.rows()); n != maxSetAside+1 {
			t.Errorf("%d are posted", n)
		}
		b.checkProof()
	})
}

// A charge that cannot be kept is not passed over.
func TestAChargeThatCannotBeSetAsideIsPostedLater(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.poison(isRequest("req_2"))
		b.fund("ws_a", 1000)
		b.spend("ws_a", "req_2", 10)
		if err := b.journal.Sync(); err != nil {
			t.Fatal(err)
		}
		b.disk.Fail = func(operation string, size int) (int, error) {
			if operation == "write" {
				return size / 2, journaltest.ErrDisk
			}
			return size, nil
		}
		if err := b.poster.Drain(t.Context()); !errors.Is(err, journaltest.ErrDisk) {
			t.Errorf("%v", err)
		}
		b.disk.Fail = nil
		b.drain()
		checkSetAside(t, b)
		b.checkProof()
	})
}
