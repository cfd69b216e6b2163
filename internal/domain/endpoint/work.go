package endpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/serving"
	"sovereign/internal/plane/engines"
	"sovereign/internal/store/db"
	"sovereign/internal/store/notice"
)

// lookEvery is the interval between two looks at all endpoints, when nothing asks for one before.
const lookEvery = time.Second

// loop makes what runs what the rows say, and charges it, until ctx ends.
func (s *Store) loop(ctx context.Context, serves func() error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.woken:
		case <-s.Backend.Changed():
		}
		if serves() != nil {
			continue
		}
		if err := s.round(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("cannot look after all dedicated endpoints; it is tried again", "err", err)
		}
	}
}

// round looks at all endpoints, if this node leads the engines. Otherwise it gives up the charges that it has begun.
func (s *Store) round(ctx context.Context) error {
	term, leads, err := s.Groups.Leads(ctx)
	if err != nil {
		return fmt.Errorf("learn who leads the engines: %w", err)
	}
	if !leads {
		return s.handBack(ctx)
	}
	s.term = term
	if err := s.Groups.Refresh(ctx); err != nil {
		return err
	}
	return s.reconcile(ctx)
}

// wake asks for a look at all endpoints. It does not block.
func (s *Store) wake() {
	select {
	case s.woken <- struct{}{}:
	default: // one is due
	}
}

// reconcile looks at every endpoint of which something runs, and ends what no endpoint wants.
func (s *Store) reconcile(ctx context.Context) error {
	listed, err := s.Backend.List(ctx)
	if err != nil {
		return fmt.Errorf("list engines: %w", err)
	}
	// The rows are read after the list: what runs of an endpoint that was created in between is not taken for an
	// orphan.
	active, err := readActive(ctx, s.DB)
	if err != nil {
		return err
	}
	var all []error
	wanted := map[string]bool{}
	for i := range active {
		e := &active[i]
		wanted[e.deployment()] = true
		at := slices.IndexFunc(listed, func(d serving.Deployment) bool { return d.Spec.Name == e.deployment() })
		var d *serving.Deployment
		if at >= 0 {
			d = &listed[at]
		}
		switch err := s.step(ctx, e, d); {
		case err == nil:
		case fault.From(err).Kind == fault.Conflicting:
			s.wake() // somebody has changed it meanwhile
		default:
			all = append(all, fmt.Errorf("%s: %w", e.ID, err))
		}
	}
	for i := range listed {
		if d := &listed[i]; strings.HasPrefix(d.Spec.Name, prefix) && !wanted[d.Spec.Name] {
			all = append(all, s.end(ctx, d))
		}
	}
	return errors.Join(all...)
}

// end ends what no endpoint wants.
func (s *Store) end(ctx context.Context, d *serving.Deployment) error {
	all := []error{s.Backend.Remove(ctx, d.Spec.Name)}
	for _, r := range d.Replicas {
		if r.Phase == serving.Ended {
			all = append(all, s.Backend.Forget(ctx, d.Spec.Name, r.ID))
		}
	}
	return errors.Join(all...)
}

// step looks at one endpoint: what its engines do is noted, what becomes of it is decided and stored, then done, and
// what was run is charged.
func (s *Store) step(ctx context.Context, e *record, d *serving.Deployment) error {
	before := *e
	known, err := readLives(ctx, s.DB.In(e.Workspace), e.ID)
	if err != nil {
		return err
	}
	f := s.look(ctx, e, d)
	var listed []serving.Replica
	if d != nil {
		listed = d.Replicas
	}
	lives := observe(e, known, listed, f.now)
	next, lives, do := decide(*e, lives, f)
	if next, do, err = s.store(ctx, &before, next, known, lives, do); err != nil {
		return err
	}
	if d == nil && do.run == 0 {
		s.release(&next)
	}
	if do.gone {
		if err := s.Groups.Drop(ctx, next.deployment()); err != nil {
			return err
		}
		return s.Feed.Change(ctx, s.fenced(ctx, func(tx *db.Tx) error { return s.remove(ctx, tx, &next) }))
	}
	if err := s.act(ctx, &next, d, do); err != nil {
		return err
	}
	if err := s.forget(ctx, &next, lives, f); err != nil {
		return err
	}
	broke, err := s.bill(ctx, &next, lives)
	if err != nil || !broke || !next.Status.Serves() {
		return err
	}
	stopped := next
	stopped.Status = Stopping
	stopped.problem(codeBalance, "the wallet cannot pay for the engines any longer", nil)
	defer s.wake()
	return s.Feed.Change(ctx, s.fenced(ctx, func(tx *db.Tx) error { return s.change(ctx, tx, &next, &stopped) }))
}

// look reads what is known of an endpoint's engines beside their lives.
func (s *Store) look(ctx context.Context, e *record, d *serving.Deployment) facts {
	f := facts{now: s.now(), ready: map[string]bool{}, asked: map[string]bool{}}
	f.use = s.Groups.Use(e.deployment())
	f.busy = func(id string) int { return s.Groups.Busy(e.deployment(), id) }
	if d != nil {
		f.listed, f.problem = true, d.Problem
		for _, r := range d.Replicas {
			f.ready[r.ID] = r.Phase == serving.Ready && r.BaseURL != ""
			f.asked[r.ID] = r.Asked
		}
	}
	if e.ModelVersionID != "" && e.Wanted > 0 && f.problem == "" {
		_, f.problem = s.folder(ctx, e)
	}
	return f
}

// store stores what has become of an endpoint and the lives of its engines. Engines are paid from a hold, which is
// opened before the first and ended after the last; where the wallet cannot cover one, the endpoint stops.
func (s *Store) store(
	ctx context.Context, before *record, next record, known, lives []life, do plan,
) (record, plan, error) {
	opens := do.run > 0 && next.HoldID == "" && next.hourly() > 0
	if !opens {
		stored, err := s.storeWith(ctx, before, next, known, lives, 0)
		return stored, do, err
	}
	for _, d := range shorter {
		stored, err := s.storeWith(ctx, before, next, known, lives, d)
		if err == nil || fault.From(err).Kind != fault.InsufficientBalance {
			return stored, do, err
		}
	}
	next.Status, next.Wanted = Stopping, 0
	next.problem(codeBalance, "the wallet cannot pay for an engine", nil)
	stored, err := s.storeWith(ctx, before, next, known, lives, 0)
	return stored, plan{}, err
}

// storeWith stores what has changed, with a hold that pays for a time, or none.
func (s *Store) storeWith(
	ctx context.Context, before *record, next record, known, lives []life, d time.Duration,
) (record, error) {
	moved := changedLives(known, lives)
	idle := next.HoldID != "" && next.Wanted == 0 && settled(lives)
	if d == 0 && !idle && len(moved) == 0 && !differs(before, &next) {
		return *before, nil
	}
	made := next
	err := s.Feed.Change(ctx, s.fenced(ctx, func(tx *db.Tx) error {
		made = next
		if d > 0 {
			if err := s.openHold(ctx, tx, &made, made.most(d)); err != nil {
				return err
			}
		}
		if idle {
			if err := s.Holds.End(ctx, tx, made.Workspace, made.HoldID); err != nil {
				return err
			}
			made.HoldID = ""
		}
		if err := writeLives(ctx, tx.In(made.Workspace), moved); err != nil {
			return err
		}
		return s.change(ctx, tx, before, &made)
	}))
	made.Revision++
	s.wake() // there may be more to do
	return made, err
}

// change stores a change that the engines made, and tells people of a failure.
func (s *Store) change(ctx context.Context, tx *db.Tx, before, next *record) error {
	if err := update(ctx, tx, before, next); err != nil {
		return err
	}
	failed := next.Status == Failed && before.Status != Failed
	broke := next.ErrorCode == codeBalance && before.ErrorCode != codeBalance
	if !failed && !broke {
		return nil
	}
	return notice.Add(ctx, tx, next.Workspace, notice.Notice{
		Kind: notice.EndpointFailed, Subject: next.ID,
		Title: fmt.Sprintf("The dedicated endpoint %s has stopped", next.Name), Text: next.ErrorMessage,
		Link: "endpoints/" + next.ID,
	})
}

// differs reports whether a row is to be written. When it was last used is written now and then.
func differs(before, next *record) bool {
	other := *next
	if next.LastUsedAt.Sub(before.LastUsedAt) < seenEvery {
		other.LastUsedAt = before.LastUsedAt
	}
	return *before != other
}

// changedLives returns the lives that are to be written. When an engine was last seen is written now and then.
func changedLives(known, lives []life) (moved []life) {
	for _, l := range lives {
		at := slices.IndexFunc(known, func(k life) bool { return k.ID == l.ID })
		if at >= 0 {
			same := l
			if l.SeenAt.Sub(known[at].SeenAt) < seenEvery {
				same.SeenAt = known[at].SeenAt
			}
			if same == known[at] {
				continue
			}
		}
		moved = append(moved, l)
	}
	return moved
}

// keepLives is how long a life is remembered that is charged: longer than a backend lists it after Forget.
const keepLives = 24 * time.Hour

// forget deletes lives that need not be remembered any longer.
func (s *Store) forget(ctx context.Context, e *record, lives []life, f facts) error {
	for _, l := range lives {
		if _, listed := f.ready[l.ID]; listed || !l.Settled || f.now.Sub(l.EndedAt) <= keepLives {
			continue
		}
		if err := deleteLife(ctx, s.DB.In(e.Workspace), l); err != nil {
			return err
		}
	}
	return nil
}

// act makes what runs what was decided.
func (s *Store) act(ctx context.Context, e *record, d *serving.Deployment, do plan) error {
	if err := s.serve(ctx, e, d, do.serve); err != nil {
		return err
	}
	if d != nil {
		for _, r := range d.Replicas {
			if r.Phase == serving.Ended { // its end is stored
				if err := s.Backend.Forget(ctx, d.Spec.Name, r.ID); err != nil {
					return fmt.Errorf("forget an engine: %w", err)
				}
			}
		}
	}
	if do.run == 0 {
		if d == nil {
			return nil
		}
		if err := s.Backend.Remove(ctx, d.Spec.Name); err != nil {
			return fmt.Errorf("end engines: %w", err)
		}
		return nil
	}
	spec := e.spec(do.run)
	if e.ModelVersionID != "" {
		if spec.Folder, _ = s.folder(ctx, e); spec.Folder == "" {
			return nil // its files are being fetched
		}
	}
	if d != nil && d.Spec == spec && running(d) == do.run {
		return nil
	}
	if err := s.Backend.Apply(ctx, spec); err != nil {
		return fmt.Errorf("start engines: %w", err)
	}
	return nil
}

// running counts the replicas that were not told to end.
func running(d *serving.Deployment) (n int) {
	for _, r := range d.Replicas {
		if r.Phase != serving.Ended && !r.Asked {
			n++
		}
	}
	return n
}

// serve gives the data planes of all nodes the replicas that answer.
func (s *Store) serve(ctx context.Context, e *record, d *serving.Deployment, ids []string) error {
	var all []engines.Replica
	for _, one := range ids {
		for _, r := range d.Replicas {
			if r.ID == one {
				all = append(all, engines.Replica{ID: r.ID, BaseURL: r.BaseURL})
			}
		}
	}
	return s.Groups.Set(ctx, e.deployment(), all, e.refusal())
}

// retryLater is when a caller of an endpoint that does not serve may try again.
const retryLater = time.Minute

// refusal is what callers of an endpoint are told that does not serve; nil for one that does.
func (e *record) refusal() error {
	if e.Status.Serves() {
		return nil
	}
	return fault.Unavailable.New("the dedicated endpoint %s is %s", e.RoutingKey, e.Status).In(retryLater)
}

// spec is what shall run of an endpoint.
func (e *record) spec(replicas int) serving.Spec {
	return serving.Spec{
		Name: e.deployment(), Workspace: e.Workspace, Engine: e.Engine, BaseModel: e.BaseModel,
		Version: e.ModelVersionID, Model: e.model(), GPUType: e.GPUType, GPUCount: int(e.GPUCount), Replicas: replicas,
	}
}
