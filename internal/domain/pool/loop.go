package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sovereign/internal/domain/serving"
	"sovereign/internal/plane/engines"
	"sovereign/internal/store/module"
)

const (
	// lookEvery is the interval between two looks at all engines, when nothing asks for one before.
	lookEvery = time.Second
	// maxFailures is how many engines in a row may end before they are ready. Then requests are refused with the
	// reason, and after giveUp the next one has another engine started.
	maxFailures = 5
	giveUp      = time.Minute
)

// Module publishes trained models, and looks after their engines.
func Module(p *Pool, serves func() error) module.Module {
	p.Groups.OnWaiting(p.look)
	return module.Module{
		Name: "the engine pool", Publishers: p.Sources(), Sweep: p.pins.sweep,
		Background: []module.Loop{{Name: "engine pool", Run: func(ctx context.Context) { p.run(ctx, serves) }}},
	}
}

// run makes what runs what requests need, until ctx ends.
func (p *Pool) run(ctx context.Context, serves func() error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.woken:
		case <-p.Backend.Changed():
		}
		if serves() != nil {
			continue
		}
		if err := p.round(ctx); err != nil && ctx.Err() == nil {
			p.Log.Warn("cannot look after all engines of the pool; it is tried again", "err", err)
		}
	}
}

// round looks at every engine, if this node leads the engines. What this node alone has is looked after in any case.
func (p *Pool) round(ctx context.Context) error {
	tended := p.pins.tend(ctx)
	_, leads, err := p.Groups.Leads(ctx)
	if err != nil {
		return fmt.Errorf("learn who leads the engines: %w", err)
	}
	if !leads {
		p.prune()
		return tended
	}
	if err := p.Groups.Refresh(ctx); err != nil {
		return err
	}
	return errors.Join(tended, p.reconcile(ctx))
}

// prune closes the groups that no published model needs, at a node that does not lead.
func (p *Pool) prune() {
	p.mu.Lock()
	defer p.mu.Unlock()
	served := p.served()
	for name := range p.units {
		if !served[name] {
			p.Registry.Close(name)
			delete(p.units, name)
		}
	}
}

// reconcile looks at every engine of the pool once.
func (p *Pool) reconcile(ctx context.Context) error {
	listed, err := p.Backend.List(ctx)
	if err != nil {
		return fmt.Errorf("list engines: %w", err)
	}
	runs := map[string]*serving.Deployment{}
	var all []error
	p.mu.Lock()
	units, served := make(map[string]*unit, len(p.units)), p.served()
	for name, u := range p.units {
		units[name] = u
	}
	p.mu.Unlock()
	for i := range listed {
		d := &listed[i]
		if !strings.HasPrefix(d.Spec.Name, prefix) {
			continue
		}
		if u := units[d.Spec.Name]; u == nil {
			all = append(all, p.Backend.Remove(ctx, d.Spec.Name), p.forget(ctx, d))
		} else {
			runs[d.Spec.Name] = d
			all = append(all, p.observe(ctx, u, d))
		}
	}
	for name, u := range units {
		if !served[name] {
			all = append(all, p.remove(ctx, u, runs[name] != nil))
		} else if runs[name] == nil {
			all = append(all, p.set(ctx, u, nil, nil))
		}
		if runs[name] == nil && p.Groups.Use(name).Waiting > 0 {
			p.want(u) // at another node
		}
	}
	return errors.Join(append(all, p.start(ctx, runs))...)
}

// served returns the units that some published model needs. The caller holds the lock.
func (p *Pool) served() map[string]bool {
	all := map[string]bool{}
	for _, v := range p.versions {
		all[p.unit(v.BaseModel, v).name] = true
		all[p.unit(v.BaseModel, nil).name] = true
	}
	return all
}

// want notes that a request waits for a unit's engine.
func (p *Pool) want(u *unit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u.wanted = true
}

// set gives a unit the replicas that are ready, at all nodes, and forgets what those had loaded that are not alive.
func (p *Pool) set(ctx context.Context, u *unit, ready []engines.Replica, alive []string) error {
	if len(ready) > 0 {
		u.failure = nil
	}
	err := p.Groups.Set(ctx, u.name, ready, u.failure)
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, s := range u.loaded {
		if !slices.Contains(alive, id) {
			s.end()
			delete(u.loaded, id)
		}
	}
	return err
}

// observe notes what became of the engines of a unit, and stops one that nobody has asked for a while.
func (p *Pool) observe(ctx context.Context, u *unit, d *serving.Deployment) error {
	var ready []engines.Replica
	var alive []string
	starting, reason := false, d.Problem
	for _, r := range d.Replicas {
		if r.Phase != serving.Ended {
			alive = append(alive, r.ID)
		}
		switch {
		case r.Phase == serving.Ready && r.BaseURL != "":
			ready = append(ready, engines.Replica{ID: r.ID, BaseURL: r.BaseURL})
		case r.Phase != serving.Ended:
			starting = true
		case !r.Asked && r.ReadyAt == 0:
			u.failures++
			reason = cmp.Or(r.Reason, "it ended")
		}
	}
	now := p.now()
	if len(ready) > 0 {
		u.failures = 0
		if u.since.IsZero() {
			u.since = now
		}
	} else {
		u.since = time.Time{}
	}
	u.leaving = u.leaving && p.Groups.Use(u.name).Waiting == 0
	if len(ready) > 0 && (u.leaving || p.idle(u, now)) {
		if err := p.set(ctx, u, nil, alive); err != nil { // what comes now waits, and wakes it again
			return err
		}
		if p.quiet(u, ready) {
			return errors.Join(p.stop(ctx, u), p.forget(ctx, d))
		}
		return p.forget(ctx, d) // the next look gives it its engine again, or stops it
	}
	switch {
	case len(ready) > 0:
	case u.failures >= maxFailures:
		u.failed, u.failure = now, errors.New(reason)
		p.Log.Error("an engine of the pool does not start", "base_model", u.base, "reason", reason)
		return errors.Join(p.stop(ctx, u), p.forget(ctx, d))
	case d.Problem != "" && !starting:
		u.failure = errors.New(d.Problem)
	}
	if err := p.set(ctx, u, ready, alive); err != nil {
		return err
	}
	if err := p.hold(ctx, u, len(alive) > 0); err != nil {
		return err
	}
	return p.forget(ctx, d)
}

// quiet reports whether no node answers with a unit's replicas, or may still send them a request.
func (p *Pool) quiet(u *unit, of []engines.Replica) bool {
	for _, r := range of {
		if p.Groups.Busy(u.name, r.ID) > 0 {
			return false
		}
	}
	return true
}

// idle reports whether nobody has asked an engine for so long that it is stopped.
func (p *Pool) idle(u *unit, now time.Time) bool {
	use := p.Groups.Use(u.name)
	quiet := now.Sub(use.LastUsed.Std())
	return use.Outstanding+use.Waiting == 0 && quiet > p.Idle && now.Sub(u.since) > p.Idle
}

// forget lets go of the engines that have ended.
func (p *Pool) forget(ctx context.Context, d *serving.Deployment) error {
	var all []error
	for _, r := range d.Replicas {
		if r.Phase == serving.Ended {
			all = append(all, p.Backend.Forget(ctx, d.Spec.Name, r.ID))
		}
	}
	return errors.Join(all...)
}

// stop ends the engines of a unit.
func (p *Pool) stop(ctx context.Context, u *unit) error {
	u.failures, u.since, u.leaving = 0, time.Time{}, false
	if err := p.set(ctx, u, nil, nil); err != nil {
		return err
	}
	if err := p.Backend.Remove(ctx, u.name); err != nil {
		return err
	}
	if u.release != nil {
		u.release()
		u.folder, u.release = "", nil
	}
	return nil
}

// remove ends a unit whose models are gone, when its last requests are answered.
func (p *Pool) remove(ctx context.Context, u *unit, runs bool) error {
	if err := p.set(ctx, u, nil, nil); err != nil || runs && p.Groups.Use(u.name).Outstanding > 0 {
		return err
	}
	if err := p.stop(ctx, u); err != nil {
		return err
	}
	if err := p.Groups.Drop(ctx, u.name); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.served()[u.name] {
		p.Registry.Close(u.name)
		delete(p.units, u.name)
	}
	return nil
}

// start starts the engines that requests wait for, and makes room for those of one version.
func (p *Pool) start(ctx context.Context, runs map[string]*serving.Deployment) error {
	p.mu.Lock()
	var wanted []*unit
	for _, u := range p.units {
		if u.wanted {
			wanted = append(wanted, u)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(wanted, func(a, b *unit) int { return strings.Compare(a.name, b.name) })
	var all []error
	for _, u := range wanted {
		if !u.failed.IsZero() && p.now().Sub(u.failed) < giveUp {
			continue // it stays wanted
		}
		room, err := p.room(ctx, u, runs)
		if err == nil && room {
			err = p.apply(ctx, u) // also one that is listed: it may be about to end
		}
		if err != nil || !room {
			all = append(all, err)
			continue
		}
		runs[u.name] = &serving.Deployment{}
		p.taken(u)
	}
	return errors.Join(all...)
}

// taken clears the flag that asks for the unit's engine.
func (p *Pool) taken(u *unit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u.wanted = false
}

// apply starts the engine of a unit.
func (p *Pool) apply(ctx context.Context, u *unit) error {
	if err := p.hold(ctx, u, true); err != nil {
		u.failure = errors.New("the files of the model cannot be read")
		u.group.Fail(u.failure)
		p.taken(u)
		return err
	}
	u.failed, u.failure = time.Time{}, nil
	u.group.Fail(nil)
	return p.Backend.Apply(ctx, p.spec(u))
}

// hold keeps the files of a version while its engine runs, also of one that runs since before the server.
func (p *Pool) hold(ctx context.Context, u *unit, runs bool) error {
	if u.version == nil || u.release != nil || !runs {
		return nil
	}
	folder, release, err := p.Folders.Get(ctx, u.version.WorkspaceID, u.version.ID)
	if err == nil {
		u.folder, u.release = folder, release
	}
	return err
}

// room reports whether an engine may be started. Engines that load versions always may; of those of one version there
// are so many at once, and the least recently used one that answers nothing makes room.
func (p *Pool) room(ctx context.Context, u *unit, runs map[string]*serving.Deployment) (bool, error) {
	if !p.single(u) {
		return true, nil
	}
	p.mu.Lock()
	var others []*unit
	for name := range runs {
		if other := p.units[name]; other != nil && other != u && p.single(other) {
			others = append(others, other)
		}
	}
	p.mu.Unlock()
	if len(others) < p.Slots {
		return true, nil
	}
	slices.SortFunc(others, func(a, b *unit) int {
		return cmp.Compare(p.Groups.Use(a.name).LastUsed, p.Groups.Use(b.name).LastUsed)
	})
	for _, other := range others {
		if use := p.Groups.Use(other.name); use.Outstanding+use.Waiting > 0 {
			continue
		}
		if err := p.set(ctx, other, nil, nil); err != nil {
			return false, err
		}
		if !p.quiet(other, ready(runs[other.name])) {
			if p.pins == nil {
				continue // a request came in between; the next look gives it its engine again
			}
			other.leaving = true // other nodes have to hear of it first
			return false, nil
		}
		delete(runs, other.name)
		return true, p.stop(ctx, other)
	}
	return false, nil
}

// ready returns the replicas of a deployment that answer.
func ready(d *serving.Deployment) (all []engines.Replica) {
	for _, r := range d.Replicas {
		if r.Phase == serving.Ready && r.BaseURL != "" {
			all = append(all, engines.Replica{ID: r.ID, BaseURL: r.BaseURL})
		}
	}
	return all
}

// single reports whether a unit's engine serves one model alone.
func (p *Pool) single(u *unit) bool {
	return u.version != nil || p.Engine.Adapters != serving.AdaptersLoad
}
