package endpoint

import (
	"cmp"
	"slices"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/serving"
	"sovereign/internal/plane/engines"
)

// How endpoints are scaled, drained and started again.
const (
	perReplica = 16               // requests at once that one replica shall answer
	quietFor   = time.Minute      // how long fewer replicas must do before one ends
	drainFor   = time.Minute      // how long an engine that shall end may still answer
	lasting    = time.Minute      // an engine that was ready for so long has started well
	mostStarts = 5                // failures in a row; then the endpoint has failed
	seenEvery  = 10 * time.Second // how often it is stored that an engine is alive
)

// A life is one life of an engine: what was seen of it, and what of it is charged.
type life struct {
	Workspace  tenant.ID `db:"workspace_id"`
	EndpointID string
	ID         string // of the replica, unique for all time
	StartedAt  clock.Time
	ReadyAt    clock.Time // 0 before
	SeenAt     clock.Time // when it was last seen alive, after it was ready
	DrainAt    clock.Time // since when it gets no new request; 0 while it does
	EndedAt    clock.Time // 0 until then
	Billed     int64      // seconds that are charged
	Charges    int64      // that were made
	Due        int64      // seconds that are being charged
	DueHold    string     // and the hold that pays them
	DueNode    string     // whose journal may have that charge; empty for none
	Settled    bool       // it has ended, and everything is charged
}

// seconds returns how long an engine was ready, as far as it is known.
func (l *life) seconds() int64 {
	end := l.SeenAt
	if l.EndedAt != 0 {
		end = l.EndedAt
	}
	if l.ReadyAt == 0 || end <= l.ReadyAt {
		return 0
	}
	return int64(end.Sub(l.ReadyAt) / time.Second)
}

// observe compares the lives that are known with what the backend lists now. It returns all lives, the oldest first,
// and counts those that ended by themselves.
func observe(e *record, known []life, listed []serving.Replica, now clock.Time) []life {
	all := slices.Clone(known)
	seen := map[string]bool{}
	for i := range listed {
		r := &listed[i]
		seen[r.ID] = true
		at := slices.IndexFunc(all, func(l life) bool { return l.ID == r.ID })
		if at < 0 {
			at = len(all)
			all = append(all, life{
				Workspace: e.Workspace, EndpointID: e.ID, ID: r.ID, StartedAt: min(cmp.Or(r.StartedAt, now), now),
			})
		}
		all[at].look(e, r, now)
	}
	for i := range all {
		if l := &all[i]; l.EndedAt == 0 && !seen[l.ID] {
			l.end(e, &serving.Replica{Asked: l.DrainAt != 0, Reason: "the engine is gone"}, now)
		}
	}
	slices.SortFunc(all, func(x, y life) int {
		return cmp.Or(cmp.Compare(x.StartedAt, y.StartedAt), cmp.Compare(x.ID, y.ID))
	})
	return all
}

// look notes what a replica is now.
func (l *life) look(e *record, r *serving.Replica, now clock.Time) {
	if l.EndedAt != 0 {
		return
	}
	if l.ReadyAt == 0 && (r.ReadyAt != 0 || r.Phase == serving.Ready) {
		l.ReadyAt = min(max(cmp.Or(r.ReadyAt, now), l.StartedAt), now)
	}
	if r.Phase == serving.Ended {
		l.end(e, r, now)
		return
	}
	if l.ReadyAt != 0 {
		l.SeenAt = max(now, l.SeenAt)
	}
	if r.Phase == serving.Ready && l.ReadyAt > e.FailedAt && now.Sub(l.ReadyAt) >= lasting {
		e.Failures = 0
		if e.ErrorCode == codeEngine {
			e.problem("", "", nil)
		}
	}
}

// end notes that a life has ended: when somebody saw it, or else when it was last seen alive.
func (l *life) end(e *record, r *serving.Replica, now clock.Time) {
	l.EndedAt = min(max(cmp.Or(r.EndedAt, l.SeenAt, l.ReadyAt, l.StartedAt), l.ReadyAt), now)
	l.Settled = l.Due == 0 && l.seconds() <= l.Billed
	if r.Asked || l.DrainAt != 0 || !e.Status.Serves() {
		return
	}
	e.Failures++
	e.FailedAt = now
	e.problem(codeEngine, cmp.Or(r.Reason, "the engine has ended"), r.Lines)
}

// facts is what is known of an endpoint's engines at a moment.
type facts struct {
	now     clock.Time
	ready   map[string]bool     // replicas that answer
	asked   map[string]bool     // replicas that were told to end
	busy    func(id string) int // requests that a replica answers
	use     engines.Use         // of all of them
	listed  bool                // the backend has something of it
	problem string              // why none can be started
}

// A plan is what shall be done with an endpoint's engines.
type plan struct {
	serve []string // replicas that get requests
	run   int      // replicas that shall run; of more, those that are not ready end first, and then the youngest
	gone  bool     // the endpoint was deleted, and nothing is left of it
}

// decide returns what becomes of an endpoint, and what shall be done. It depends on its arguments alone. lives are
// sorted, the oldest first.
func decide(e record, lives []life, f facts) (record, []life, plan) {
	was := e.Status
	lives = slices.Clone(lives)
	var alive []*life // without those that were told to end: they do not come back
	ready, ending := 0, 0
	for i := range lives {
		switch l := &lives[i]; {
		case l.EndedAt != 0:
		case f.asked[l.ID]:
			l.DrainAt = cmp.Or(l.DrainAt, f.now)
			ending++
		default:
			alive = append(alive, l)
			if f.ready[l.ID] {
				ready++
			}
		}
	}
	slices.SortStableFunc(alive, func(x, y *life) int { // as a backend ends them, the last one first
		return cmp.Compare(rank(f.ready[x.ID]), rank(f.ready[y.ID]))
	})
	e.move(ready, f)
	e.scale(alive, f)
	p := e.drain(alive, f)
	p.run = min(p.run, max(int(e.MaxReplicas)-ending, 0)) // an engine that ends costs as much as any
	if e.Status == was && !e.Status.Serves() && !f.listed && e.HoldID == "" && settled(lives) {
		if e.Status == Stopping {
			e.Status = Stopped
		}
		p.gone = e.DeletedAt != 0
		e.Active = p.gone
	}
	return e, lives, p
}

// rank orders replicas: those that are ready are kept rather than others.
func rank(ready bool) int {
	if ready {
		return 0
	}
	return 1
}

func settled(lives []life) bool {
	return !slices.ContainsFunc(lives, func(l life) bool { return !l.Settled })
}

// move changes the state by what the engines do.
func (e *record) move(ready int, f facts) {
	if ready > 0 && e.ErrorCode == codeWaits {
		e.problem("", "", nil)
	}
	switch {
	case !e.Status.Serves():
	case e.Status == Pending:
		e.Status, e.Wanted = Starting, max(e.MinReplicas, 1)
	case ready > 0:
		e.Status = Running
	case e.Failures >= mostStarts:
		e.Status = Failed
	case f.problem != "" && (e.ErrorCode == "" || e.ErrorCode == codeWaits):
		e.problem(codeWaits, f.problem, nil)
	}
}

// scale sets how many replicas shall run.
func (e *record) scale(alive []*life, f facts) {
	e.LastUsedAt = max(e.LastUsedAt, f.use.LastUsed)
	switch {
	case !e.Status.Serves():
		e.Wanted, e.QuietAt = 0, 0
		return
	case e.Status != Running:
		return
	}
	load := int64(f.use.Outstanding + f.use.Waiting)
	need := min(max((load+perReplica-1)/perReplica, e.MinReplicas), e.MaxReplicas)
	if need == 0 && e.Wanted > 0 && !e.idle(alive, f) {
		need = 1
	}
	switch {
	case need >= e.Wanted:
		e.Wanted, e.QuietAt = need, 0
	case need == 0: // it was idle for long enough
		e.Wanted, e.QuietAt = 0, 0
	case e.QuietAt == 0:
		e.QuietAt = f.now
	case f.now.Sub(e.QuietAt) >= quietFor:
		e.Wanted, e.QuietAt = need, 0
	}
}

// idle reports whether nobody has used the endpoint for its timeout, since an engine was ready.
func (e *record) idle(alive []*life, f facts) bool {
	last := max(e.LastUsedAt, e.StartedAt)
	for _, l := range alive {
		if last = max(last, l.ReadyAt); l.ReadyAt == 0 {
			return false // it was woken for somebody
		}
	}
	return f.use.Outstanding+f.use.Waiting == 0 && f.now.Sub(last) >= time.Duration(e.IdleTimeout)*time.Second
}

// drain takes the last replicas out of service when they are too many, and ends them when they answer nothing more.
func (e *record) drain(alive []*life, f facts) (p plan) {
	extra := max(len(alive)-int(e.Wanted), 0)
	stay := alive[:len(alive)-extra]
	for _, l := range stay {
		l.DrainAt = 0
		if f.ready[l.ID] {
			p.serve = append(p.serve, l.ID)
		}
	}
	leaving := alive[len(stay):]
	for _, l := range leaving {
		l.DrainAt = cmp.Or(l.DrainAt, f.now)
	}
	p.run = len(alive)
	for _, l := range slices.Backward(leaving) {
		if !e.drained(l, f) {
			break // those before it wait: the last one ends first
		}
		p.run--
	}
	if extra == 0 {
		p.run = int(e.Wanted)
	}
	return p
}

// drained reports whether an engine that shall end may end now. One that was taken out of service at this moment may
// still have been given a request.
func (e *record) drained(l *life, f facts) bool {
	return l.ReadyAt == 0 || e.ErrorCode == codeBalance || f.now.Sub(l.DrainAt) >= drainFor ||
		f.now > l.DrainAt && f.busy(l.ID) == 0
}
