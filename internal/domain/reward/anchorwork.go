package reward

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
)

const (
	anchorInterval = time.Second      // in which pending checks are looked for
	anchorPause    = 20 * time.Second // of a check, after an error of ours

	maxChecks            = 16 // that are judged at a time
	maxChecksOfWorkspace = 4
)

// outages are the pauses after which an anchor that cannot be reached is asked again. Then what it was not asked counts
// as its fail: a session must not go on unchecked.
var outages = []time.Duration{5 * time.Second, 20 * time.Second, time.Minute}

// anchors are the checks that are judged in this process.
type anchors struct {
	wake       chan struct{}
	random     func() *rand.Rand // unpredictable, except in tests
	outages    []time.Duration   // outages, except in tests
	candidates int64             // maxCandidates, except in tests

	mu     sync.Mutex
	active map[ref]bool
	of     map[tenant.ID]int
	paused map[ref]time.Time
}

func newAnchors() *anchors {
	return &anchors{
		wake: make(chan struct{}, 1), random: unpredictable, outages: outages, candidates: maxCandidates,
		active: map[ref]bool{}, of: map[tenant.ID]int{}, paused: map[ref]time.Time{},
	}
}

// notify has the loop look for pending checks now.
func (a *anchors) notify() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// acquire claims the session of a check for this process, if there is room.
func (a *anchors) acquire(at ref, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	full := len(a.active) >= maxChecks || a.of[at.WorkspaceID] >= maxChecksOfWorkspace
	if a.active[at] || full || now.Before(a.paused[at]) {
		return false
	}
	delete(a.paused, at)
	a.active[at] = true
	a.of[at.WorkspaceID]++
	return true
}

// release ends a claim. After an error the session is left alone for a while.
func (a *anchors) release(at ref, failed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.active, at)
	if a.of[at.WorkspaceID]--; a.of[at.WorkspaceID] == 0 {
		delete(a.of, at.WorkspaceID)
	}
	if failed {
		a.paused[at] = time.Now().Add(anchorPause)
	}
	a.notify()
}

// runAnchors judges pending checks until ctx ends. A check is a row: what another process left is judged too.
func (s *Store) runAnchors(ctx context.Context, d Deps) {
	tick := time.NewTicker(anchorInterval)
	defer tick.Stop()
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.anchors.wake:
		}
		if d.Serving() != nil {
			continue
		}
		all, err := s.pendingChecks(ctx)
		if err != nil && ctx.Err() == nil {
			d.Log.Warn("cannot look for checks of reward sessions; it is tried again", "err", err)
		}
		for i := range all {
			s.startCheck(ctx, &all[i], &working, d)
		}
	}
}

func (s *Store) startCheck(ctx context.Context, c *pendingCheck, working *sync.WaitGroup, d Deps) {
	at := ref{c.WorkspaceID, c.SessionID}
	if !s.anchors.acquire(at, time.Now()) {
		return
	}
	working.Go(func() {
		err := panics.Call(d.Log, "checking a reward session", func() error { return s.check(ctx, c) },
			"session", c.SessionID)
		s.anchors.release(at, err != nil)
		if err != nil && ctx.Err() == nil {
			d.Log.Warn("cannot check a reward session; it is tried again", "session", c.SessionID, "err", err)
		}
	})
}

// check has the anchor judge what a check has drawn, and concludes it. The answers are stored before they are charged,
// so that a check which is resumed pays for nothing twice. Then the next check begins, if it is due by now.
func (s *Store) check(ctx context.Context, c *pendingCheck) error {
	err := s.judgeCheck(ctx, c)
	if err != nil {
		kept := context.WithoutCancel(ctx)
		r, finding := s.find(kept, s.DB.In(c.WorkspaceID), c.SessionID)
		if finding != nil || r.refusal() == nil && r.Process == c.Process {
			return err // it is tried again
		}
		return s.dropCheck(kept, s.DB.In(c.WorkspaceID), c)
	}
	step, err := lastStep(ctx, s.DB.In(c.WorkspaceID), c.SessionID)
	if err != nil {
		return err
	}
	return s.checkIfDue(ctx, c.WorkspaceID, c.SessionID, step)
}

func (s *Store) judgeCheck(ctx context.Context, c *pendingCheck) error {
	open := s.openQuestions(c.WorkspaceID, c.SessionID)
	defer open.close()
	r, err := s.ready(ctx, c.WorkspaceID, c.SessionID)
	if err != nil {
		return err
	}
	if r.Process != c.Process {
		return errEnded // a release has begun another process
	}
	a, err := r.pinned()
	if err != nil {
		return err
	}
	x := &examination{store: s, check: c, questions: open, judge: &a.Judge, tally: tally{masked: c.Masked}}
	if err := x.prepare(ctx); err != nil {
		return err
	}
	if err := x.ask(ctx); err != nil {
		return err
	}
	return s.conclude(ctx, c, &a.Judge.Certificate, &x.tally)
}

// An examination is a check that is being judged.
type examination struct {
	store     *Store
	check     *pendingCheck
	questions *openQuestions
	judge     *Judge
	told      *judge.Instructions
	model     string

	mu    sync.Mutex
	tally tally
}

func (x *examination) prepare(ctx context.Context) error {
	in := x.store.DB.In(x.check.WorkspaceID)
	c, err := criterion.Find(ctx, in, x.judge.CriterionID)
	if err == nil && c.Version != x.judge.Version { // it has changed since ready
		err = errChanging
	}
	if err != nil {
		return err
	}
	x.model = c.JudgeModel
	x.told, err = c.Instructions(ctx, in)
	return err
}

// ask asks the anchor about everything that was drawn. What it cannot be asked because it cannot be reached is asked
// again after a while.
func (x *examination) ask(ctx context.Context) error {
	left, err := drawnOf(ctx, x.store.DB.In(x.check.WorkspaceID), x.check)
	for round := 0; err == nil && len(left) > 0; round++ {
		last := round == len(x.store.anchors.outages)
		if left, err = x.askAll(ctx, left, last); err != nil || len(left) == 0 {
			break
		}
		select {
		case <-time.After(x.store.anchors.outages[round]):
		case <-x.questions.ctx.Done():
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}

// askAll asks about items, several at a time, and counts the answers. It returns the items that the anchor could not be
// asked about; the last time they count as its fails.
func (x *examination) askAll(ctx context.Context, items []int64, last bool) (again []int64, _ error) {
	limit := int64(x.store.Judges.Concurrency())
	err := judging.ForEach(ctx, limit, items, func(ctx context.Context, position int64) error {
		i, err := drawnAt(ctx, x.store.DB.In(x.check.WorkspaceID), x.check.SessionID, position)
		if err != nil {
			return err
		}
		answer, err := x.askOne(ctx, &i)
		if err != nil {
			return err
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if judging.IsUnreachable(answer.Failure) && !last {
			again = append(again, position)
			return nil
		}
		if answer.Failure != "" {
			x.tally.failed++
		}
		x.tally.add(i.Passed, answer.Failure == "" && answer.Verdict == judge.Pass)
		return nil
	})
	return again, err
}

// askOne asks about one item, at the session's cost. It returns errEnded when the session has ended, also because its
// budget is spent.
func (x *examination) askOne(ctx context.Context, i *drawnItem) (judging.Answer, error) {
	about, err := subject(jsontext.Value(i.Prompt), jsontext.Value(i.Completion))
	if err != nil {
		return judging.Answer{}, err
	}
	q := &judging.Question{
		CriterionID: x.judge.CriterionID, Origin: x.check.SessionID, Hold: x.check.SessionID, Model: x.model,
		Instructions: x.told, Subject: about,
	}
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	//nolint:contextcheck // the end of the session cancels
	defer context.AfterFunc(x.questions.ctx, func() { cancel(errEnded) })()
	answer, err := x.questions.pay(both, func() (judging.Answer, error) {
		return x.store.Judges.Ask(both, x.check.WorkspaceID, q)
	})
	switch f := fault.From(err); {
	case err == nil || ctx.Err() != nil:
		return answer, err
	case x.questions.ctx.Err() != nil:
		return answer, errEnded
	case f.Status < http.StatusInternalServerError: // the session cannot be served: the anchor is as good as unreachable
		return judging.Answer{Failure: judging.UnreachableBecause(f.Message)}, nil
	}
	return answer, err
}
