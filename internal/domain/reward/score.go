package reward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// DefaultCalls is how many questions of reward sessions are asked at a time.
const DefaultCalls = 64

// scoreTime is how long a call of score may take. What is not judged by then goes on in the background.
const scoreTime = 110 * time.Second

// A scorer scores the items of all sessions in this process.
type scorer struct {
	slots  *slots
	keeper *db.Group[[]*keptItem]
	time   time.Duration // of a call, as scoreTime; tests shorten it
	calls  atomic.Uint64 // that there were
	life   context.Context
	stop   context.CancelFunc

	mu   sync.Mutex
	open map[ref]*openQuestions
}

func newScorer(d *db.DB) *scorer {
	s := &scorer{
		slots: newSlots(DefaultCalls), keeper: db.NewGroup(d, keepItems), time: scoreTime,
		open: map[ref]*openQuestions{},
	}
	s.life, s.stop = context.WithCancel(context.Background())
	return s
}

// runUntil lets calls be scored until ctx ends. Then it ends those that outlived their requests, and returns when no
// question is being asked any more.
func (s *scorer) runUntil(ctx context.Context) {
	<-ctx.Done()
	s.stop()
	for range time.Tick(10 * time.Millisecond) {
		s.mu.Lock()
		open := len(s.open)
		s.mu.Unlock()
		if open == 0 {
			return
		}
	}
}

// SetCalls sets how many questions of reward sessions are asked at a time.
func (s *Store) SetCalls(n int64) { s.scorer.slots.setLimit(int(n)) }

// A scoreCall is one call of score. It lasts until its items have results, which may be longer than its request.
type scoreCall struct {
	store     *Store
	ws        tenant.ID
	session   *session
	step      string
	told      []*judge.Instructions // one for each judge
	models    []string              // of the judges
	place     place
	questions *openQuestions
	items     []*scored // each once
	memory    memory    // beside the texts
	done      chan struct{}

	mu   sync.Mutex
	open int // items without a result
}

// A scored item has a result, or waits for its judges' answers. The fields after call are guarded by call.mu.
type scored struct {
	item
	call    *scoreCall
	answers []judging.Answer
	missing int // answers
	result  *outcome
	err     error // why there is no result
}

// score scores items, which were checked. It returns when all have a result, when its time is up, or when ctx ends.
// release is called when nothing of the call is left in memory, which may be later.
func (s *Store) score(
	ctx context.Context, ws tenant.ID, id, step string, items func(*session) ([]item, error), release func(),
) (Scores, error) {
	c := &scoreCall{store: s, ws: ws, step: step, done: make(chan struct{})}
	c.questions = s.openQuestions(ws, id)
	end := func() { c.questions.close(); c.memory.release(); release() }
	var byPlace []*scored
	err := panics.Call(s.Log, "reading items to score", func() (err error) {
		byPlace, err = c.begin(ctx, id, items)
		return err
	}, "session", id)
	if err != nil {
		end()
		return Scores{}, err
	}
	c.start(end)
	c.wait(ctx)
	return c.answer(ctx, byPlace)
}

var errChanging error = fault.Unavailable.New("a criterion of the reward session is being changed").In(time.Second)

// begin reads the session, what its judges are told, and which items have been scored before.
func (c *scoreCall) begin(ctx context.Context, id string, items func(*session) ([]item, error)) ([]*scored, error) {
	var err error
	if c.session, err = c.store.ready(ctx, c.ws, id); err != nil {
		return nil, err
	}
	c.place = place{c.ws, id, c.store.scorer.calls.Add(1)}
	in := c.store.DB.In(c.ws)
	for _, j := range c.session.Judges {
		record, err := criterion.Find(ctx, in, j.CriterionID)
		if err == nil && record.Version != j.Version { // it has changed since ready
			err = cmp.Or(c.store.checkJudges(ctx, c.ws, c.session), errChanging)
		}
		if err != nil {
			return nil, err
		}
		told, err := record.Instructions(ctx, in)
		if err != nil {
			return nil, err
		}
		c.told, c.models = append(c.told, told), append(c.models, record.JudgeModel)
	}
	all, err := items(c.session)
	if err != nil {
		return nil, err
	}
	byPlace := c.add(all)
	if c.memory, err = c.store.reserve(c.ws, c.size()); err != nil {
		return nil, err
	}
	return byPlace, readItems(ctx, in, id, c.step, c.items)
}

// What an item, and a question about it, take in memory beside the texts.
const (
	itemSize     = 512
	questionSize = 512
)

// size is what the items take in memory beside their texts, however short these are.
func (c *scoreCall) size() int64 { return int64(len(c.items) * (itemSize + len(c.told)*questionSize)) }

// add adds items, each once, and returns the item for each place of the request.
func (c *scoreCall) add(items []item) []*scored {
	known, byPlace := map[itemKey]*scored{}, make([]*scored, len(items))
	for i := range items {
		k := items[i].key()
		if known[k] == nil {
			known[k] = &scored{item: items[i], call: c}
			c.items = append(c.items, known[k])
		}
		byPlace[i] = known[k]
	}
	return byPlace
}

// start queues the questions about the items without a result. end is called when all have one.
func (c *scoreCall) start(end func()) {
	var tasks []task
	c.mu.Lock()
	for _, i := range c.items {
		if i.result == nil {
			c.open++
			i.missing, i.answers = len(c.told), make([]judging.Answer, len(c.told))
		}
	}
	if c.open == 0 {
		close(c.done)
	}
	for _, i := range c.items {
		for judge := range i.missing {
			if q := c.questions.attach(i, judge); q != nil {
				tasks = append(tasks, q)
			}
		}
	}
	c.mu.Unlock()
	c.store.scorer.slots.add(c.place, tasks...)
	stop := context.AfterFunc(c.questions.ctx, func() { c.drop(errEnded) })
	go func() {
		<-c.done
		stop()
		end()
	}()
}

// errLeft is why the questions of a caller that left are not asked.
var errLeft = errors.New("the caller has left")

// wait returns when all items have a result or when the time is up. A caller that leaves lets the questions run that
// are being asked, and has no other asked.
func (c *scoreCall) wait(ctx context.Context) {
	timer := time.NewTimer(c.store.scorer.time)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	case <-ctx.Done():
		c.drop(errLeft)
	}
}

// drop gives up the call's questions that are not being asked.
func (c *scoreCall) drop(why error) {
	c.store.scorer.slots.drop(c.place)
	c.questions.drop(c, why)
}

// answered takes the answer of one judge about an item, and reports whether the item has all of them.
func (i *scored) answered(judge int, a judging.Answer, err error) (complete bool) {
	i.call.mu.Lock()
	defer i.call.mu.Unlock()
	i.answers[judge] = a
	if err != nil {
		i.err = err
	}
	i.missing--
	return i.missing == 0
}

// finish ends an item with its outcome, or with the reason why there is none.
func (i *scored) finish(o *outcome, err error) {
	c := i.call
	c.mu.Lock()
	defer c.mu.Unlock()
	i.result, i.err = o, err
	if c.open--; c.open == 0 {
		close(c.done)
	}
}

// answer makes the answer of what there is now.
func (c *scoreCall) answer(ctx context.Context, items []*scored) (made Scores, err error) {
	ctx = context.WithoutCancel(ctx)
	if err := c.store.checkIfDue(ctx, c.ws, c.session.ID, c.step); err != nil {
		return made, err
	}
	now, err := c.store.find(ctx, c.store.DB.In(c.ws), c.session.ID)
	if err != nil {
		return made, err
	}
	if now.HeldAt > 0 {
		return made, heldFor(now.ID, now.HeldReason)
	}
	if made.Spent, err = c.store.Holds.Spent(ctx, c.ws, c.session.ID); err != nil {
		return made, fmt.Errorf("read what %s has spent: %w", c.session.ID, err)
	}
	made.Status = now.Status
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range items {
		if i.result == nil && i.err != nil && !errors.Is(i.err, errEnded) && !errors.Is(i.err, errLeft) {
			return made, i.err // of ours: what has a result is stored, and a retry asks for the rest
		}
		score := i.score(now.Status)
		made.Data, made.Rewards = append(made.Data, score), append(made.Rewards, score.Reward)
	}
	return made, nil
}

// score returns an item as the API shows it. Without a result, a flag says why. call.mu is held.
func (i *scored) score(now Status) ItemScore {
	if o := i.result; o != nil {
		return ItemScore{
			ID: i.ID, Reward: o.Reward, Verdict: judging.Optional(o.Verdict), Grades: o.Grades, Flags: o.Flags,
		}
	}
	flag := FlagPending
	switch now {
	case Active:
	case Overbudget:
		flag = FlagOverBudget
	default:
		flag = FlagStopped
	}
	return ItemScore{ID: i.ID, Grades: []JudgeGrade{}, Flags: []Flag{flag}}
}
