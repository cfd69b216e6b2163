package endpoint

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/train"
	"sovereign/internal/live"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/db"
)

// The seconds in which an engine was ready are charged, each once. What is to be charged is written to the life's row
// first, with the number of the charge and the hold that pays. Then the charge goes the way of every charge: through
// the journal into the ledger, where its row has the replica's id and the number. When the ledger has that row, the
// seconds count as billed. After a crash in between, the start posts the journal before anything is charged: a charge
// without a row in the ledger was never made.
//
// Where several servers share a database, the charge names the journal that it goes into. It stays with that one, also
// when another server leads the engines: until its row is in the ledger, or the server of that journal has started
// again, has posted it, and hands back what it did not have, or the journal is forgotten. Nothing else of the endpoint
// is charged before; what it has run meanwhile is charged then.

const (
	meterEvery = time.Minute // between two charges of a replica
	holdFor    = time.Hour   // what a hold pays for, with all replicas
	reserve    = 3 * time.Minute
)

// shorter are the times that the next hold pays for when the wallet cannot cover an hour.
var shorter = []time.Duration{holdFor, holdFor / 4, 2 * reserve}

// provider is what the usage rows of endpoints name as the provider.
var provider = &live.Provider{Name: "dedicated"}

// requestID names the present charge of a life in the journal and the ledger.
func (l *life) requestID() string { return l.ID + "." + strconv.FormatInt(l.Charges+1, 10) }

// due returns how many seconds of a life are to be charged now: a whole interval, or the rest after its end.
func (l *life) due() int64 {
	rest := l.seconds() - l.Billed
	if l.EndedAt == 0 && rest < int64(meterEvery/time.Second) {
		return 0
	}
	return max(rest, 0)
}

// bill charges what an endpoint's engines have run, and opens the next hold before the present one is used up. It
// reports whether the wallet cannot pay any longer.
func (s *Store) bill(ctx context.Context, e *record, lives []life) (broke bool, err error) {
	if err := s.chargeAll(ctx, e, lives); err != nil { // what was begun before
		return false, err
	}
	var cost money.Nano
	for i := range lives {
		switch l := &lives[i]; {
		case l.Due > 0:
			return false, nil // the ledger is late: nothing else is charged, and the hold stays
		case !l.Settled:
			cost += e.cost(l.due())
		}
	}
	if e.Price > 0 && e.HoldID != "" {
		left, err := s.Holds.Left(ctx, e.Workspace, e.HoldID, cost+s.margin(e))
		if err != nil {
			return false, fmt.Errorf("read what is left for %s: %w", e.ID, err)
		}
		if left < cost+s.margin(e) {
			if broke, err = s.renew(ctx, e, cost); err != nil {
				return false, err
			}
		}
	}
	if err := s.begin(ctx, e, lives); err != nil {
		return broke, err
	}
	return broke, s.chargeAll(ctx, e, lives)
}

// margin is what a hold must have left for the time until the engines have ended.
func (s *Store) margin(e *record) money.Nano {
	if !e.Status.Serves() {
		return 0
	}
	return e.most(reserve)
}

// renew replaces the hold of an endpoint by one that pays a charge and what follows, as far as the wallet has it. It
// reports whether the wallet cannot.
func (s *Store) renew(ctx context.Context, e *record, cost money.Nano) (broke bool, err error) {
	for _, d := range shorter {
		if !e.Status.Serves() {
			d = 0
		}
		next := *e
		err = s.Feed.Change(ctx, s.fenced(ctx, func(tx *db.Tx) error {
			next = *e
			if err := s.openHold(ctx, tx, &next, cost+e.most(d)); err != nil {
				return err
			}
			if err := s.Holds.End(ctx, tx, e.Workspace, e.HoldID); err != nil {
				return err
			}
			return update(ctx, tx, e, &next)
		}))
		switch {
		case err == nil:
			next.Revision++
			*e = next
			return false, nil
		case fault.From(err).Kind != fault.InsufficientBalance:
			return false, fmt.Errorf("renew the hold of %s: %w", e.ID, err)
		}
	}
	return true, nil
}

// openHold sets an amount aside, and makes it the hold of the endpoint.
func (s *Store) openHold(ctx context.Context, tx *db.Tx, e *record, amount money.Nano) error {
	if amount <= 0 {
		return nil // engines of this type cost nothing
	}
	e.Holds++
	e.HoldID = e.ID + "." + strconv.FormatInt(e.Holds, 10)
	if err := s.Holds.Open(ctx, tx, e.Workspace, e.HoldID, object, amount); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, tx.In(e.Workspace),
		`INSERT INTO endpoint_holds (workspace_id, endpoint_id, hold_id) VALUES ($1, $2, $3)`, e.ID, e.HoldID); err != nil {
		return fmt.Errorf("note the hold of an endpoint: %w", err)
	}
	return nil
}

// begin writes what is charged next. Seconds that cost nothing count as billed at once.
func (s *Store) begin(ctx context.Context, e *record, lives []life) error {
	var begun []life
	for i := range lives {
		l := &lives[i]
		n := l.due()
		if l.Settled || l.Due > 0 || n == 0 && l.EndedAt == 0 {
			continue
		}
		if e.HoldID == "" {
			l.Billed += n
			l.Settled = l.EndedAt != 0
		} else {
			l.Due, l.DueHold, l.DueNode = n, e.HoldID, s.Groups.Node()
			l.Settled = l.EndedAt != 0 && n == 0
		}
		begun = append(begun, *l)
	}
	if len(begun) == 0 {
		return nil
	}
	return s.write(ctx, e, begun)
}

// chargeAll makes the charges that were begun, and counts those that the ledger has.
func (s *Store) chargeAll(ctx context.Context, e *record, lives []life) error {
	var all []error
	made := false
	for i := range lives {
		if l := &lives[i]; l.Due > 0 {
			if posted, err := s.posted(ctx, e, l); err != nil || posted {
				all = append(all, err)
				continue
			}
			if bound, err := s.bind(ctx, e, l); err != nil || !bound {
				all = append(all, err)
				continue
			}
			all = append(all, s.charge(ctx, e, l))
			made = true
		}
	}
	if err := errors.Join(all...); err != nil || !made {
		return err
	}
	if err := s.Drain(ctx); err != nil {
		return fmt.Errorf("post the charges of %s: %w", e.ID, err)
	}
	for i := range lives {
		if l := &lives[i]; l.Due > 0 {
			if _, err := s.posted(ctx, e, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// write stores lives, unless another node leads by now.
func (s *Store) write(ctx context.Context, e *record, some []life) error {
	_, err := s.DB.Tx(ctx, s.fenced(ctx, func(tx *db.Tx) error { return writeLives(ctx, tx.In(e.Workspace), some) }))
	return err
}

// bind reports whether this process's journal may take a charge: that of no other may have it. It takes over a charge
// that nobody has.
func (s *Store) bind(ctx context.Context, e *record, l *life) (bool, error) {
	node := s.Groups.Node()
	if node == "" || l.DueNode == node {
		return true, nil
	}
	forgotten, err := db.Maybe[bool](ctx, s.DB.Across(ofAll), `SELECT forgotten FROM nodes WHERE id = $1`, l.DueNode)
	if err != nil {
		return false, fmt.Errorf("look for the node of the charge %s: %w", l.requestID(), err)
	}
	if l.DueNode != "" && (forgotten == nil || !*forgotten) {
		return false, nil
	}
	next := *l
	next.DueNode = node
	if err := s.write(ctx, e, []life{next}); err != nil {
		return false, err
	}
	*l = next
	return true, nil
}

// handBack gives up the charges that were bound to this node's journal and never came into it.
func (s *Store) handBack(ctx context.Context) error {
	node := s.Groups.Node()
	mine, err := db.Query[life](ctx, s.DB.Across(ofAll), `SELECT `+lifeColumns+` WHERE due > 0 AND due_node = $1
		AND NOT EXISTS (SELECT 1 FROM usage_rows u WHERE u.workspace_id = endpoint_replicas.workspace_id
			AND u.hold_id = endpoint_replicas.due_hold AND u.hold_id <> ''
			AND u.request_id = endpoint_replicas.id || '.' || CAST(endpoint_replicas.charges + 1 AS TEXT))`, node)
	if err != nil {
		return fmt.Errorf("find the charges of this node: %w", err)
	}
	for i := range mine {
		l := &mine[i]
		if s.charged[l.requestID()] {
			continue // the ledger is to have it soon
		}
		_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
			_, err := db.Exec(ctx, tx.In(l.Workspace), `UPDATE endpoint_replicas SET due_node = ''
				WHERE workspace_id = $1 AND endpoint_id = $2 AND id = $3 AND due_node = $4 AND charges = $5`,
				l.EndpointID, l.ID, node, l.Charges)
			return err
		})
		if err != nil {
			return fmt.Errorf("hand the charge %s back: %w", l.requestID(), err)
		}
	}
	return nil
}

// posted reports whether the ledger has the charge of a life, and counts it if so.
func (s *Store) posted(ctx context.Context, e *record, l *life) (found bool, err error) {
	next := *l
	_, err = s.DB.Tx(ctx, s.fenced(ctx, func(tx *db.Tx) error {
		row, err := db.Maybe[int64](ctx, tx.In(e.Workspace), `SELECT 1 FROM usage_rows
			WHERE workspace_id = $1 AND hold_id = $2 AND hold_id <> '' AND request_id = $3`, l.DueHold, l.requestID())
		if found = row != nil; err != nil || !found {
			return err
		}
		next = *l
		next.Billed, next.Charges, next.Due, next.DueHold, next.DueNode = l.Billed+l.Due, l.Charges+1, 0, "", ""
		next.Settled = l.EndedAt != 0 && next.seconds() <= next.Billed
		return writeLives(ctx, tx.In(e.Workspace), []life{next})
	}))
	if err != nil {
		return false, fmt.Errorf("look for the charge %s: %w", l.requestID(), err)
	}
	if found {
		delete(s.charged, l.requestID())
		*l = next
	}
	return found, nil
}

// charge records a charge in the journal, unless this process has: at most what is left in the hold.
func (s *Store) charge(ctx context.Context, e *record, l *life) error {
	name := l.requestID()
	if s.charged[name] {
		return nil
	}
	left, err := s.Holds.Left(ctx, e.Workspace, l.DueHold, e.cost(l.Due))
	if err != nil {
		return fmt.Errorf("charge %s: %w", name, err)
	}
	tab, err := s.Till.Open(ctx, journal.Charge{
		Request: name, Workspace: e.Workspace, Key: tenant.KeyID(e.ID), Route: object, Requested: e.model(),
		Hold: l.DueHold,
	}, min(e.cost(l.Due), left))
	if err != nil {
		return fmt.Errorf("charge %s: %w", name, err)
	}
	price := live.Price{Rates: live.Rates{GPUSecond: train.Rate(e.Price)}}
	tab.SetModel(&live.Model{ID: e.model(), Provider: provider}, price, false)
	err = tab.Settle(till.Settlement{ //nolint:contextcheck // a settlement outlives its request
		Outcome: outcome.Finished, Usage: live.Usage{GPUSeconds: l.Due * e.GPUCount}, Counted: true, Capped: true,
	})
	if err != nil {
		tab.Drop() //nolint:contextcheck // a settlement outlives its request
		return fmt.Errorf("charge %s: %w", name, err)
	}
	s.charged[name] = true
	return nil
}
