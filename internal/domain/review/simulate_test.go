package review

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// A hold is an item as one person has it, in the model.
type hold struct {
	state   State
	claim   string
	until   clock.Time
	at      int // the step that it was taken in
	verdict judge.Verdict
}

// A model is what a queue should do, without a database.
type model struct {
	graders int
	items   []string                    // in their order
	holds   []map[tenant.UserID]*hold   // by item
	claims  map[tenant.UserID][2]string // the last claim of each that was seen: item and id
}

func newModel(graders int, items []QueueItem) *model {
	m := &model{graders: graders, claims: map[tenant.UserID][2]string{}}
	for _, i := range items {
		m.items = append(m.items, i.ID)
		m.holds = append(m.holds, map[tenant.UserID]*hold{})
	}
	return m
}

func (m *model) graded(item int) (n int) {
	for _, h := range m.holds[item] {
		if h.state == Graded {
			n++
		}
	}
	return n
}

// free reports whether an item has a place beside all but one person.
func (m *model) free(item int, but tenant.UserID, now clock.Time) bool {
	n := 0
	for user, h := range m.holds[item] {
		if user != but && (h.state == Graded || h.state == Claimed && h.until > now) {
			n++
		}
	}
	return n < m.graders
}

// claim returns the item that a person should be offered, or -1.
func (m *model) claim(user tenant.UserID, now clock.Time) int {
	for {
		last := -1
		for i := range m.holds {
			if h := m.holds[i][user]; h != nil && h.state == Claimed && (last < 0 || h.at > m.holds[last][user].at) {
				last = i
			}
		}
		if last < 0 {
			break
		}
		if m.free(last, user, now) && m.graded(last) < m.graders {
			return last
		}
		delete(m.holds[last], user)
	}
	for i := range m.holds {
		if m.holds[i][user] == nil && m.graded(i) < m.graders && m.free(i, user, now) {
			return i
		}
	}
	return -1
}

// mayAct reports whether a person's claim allows to grade or skip.
func (m *model) mayAct(item int, user tenant.UserID, claim string, now clock.Time) bool {
	h := m.holds[item][user]
	return h != nil && h.state == Claimed && h.claim == claim && m.graded(item) < m.graders && m.free(item, user, now)
}

// A simulation does random things to a queue and to its model.
type simulation struct {
	t      *testing.T
	f      fixture
	m      *model
	q      Queue
	random *rand.Rand
	step   int
}

func (s *simulation) now() clock.Time {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return *s.f.now
}

func (s *simulation) check(what string, err error, want bool) bool {
	s.t.Helper()
	if err != nil && fault.From(err).Status != 409 && fault.From(err).Status != 404 {
		s.t.Fatalf("step %d: %s: %v", s.step, what, err)
	}
	if (err == nil) != want {
		s.t.Fatalf("step %d: %s: %v; the model permits it: %v", s.step, what, err, want)
	}
	return err == nil
}

func (s *simulation) claim(who tenant.Caller) {
	want := s.m.claim(who.User, s.now())
	o, err := s.f.Claim(s.t.Context(), who, s.q.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	switch {
	case want < 0 && o.Item != nil, want >= 0 && (o.Item == nil || o.Item.ID != s.m.items[want]):
		s.t.Fatalf("step %d: %s is offered %+v, the model says item %d", s.step, who.User, o.Item, want)
	case want < 0:
		return
	}
	h := s.m.holds[want][who.User]
	if h == nil {
		h = &hold{state: Claimed, at: s.step}
		s.m.holds[want][who.User] = h
	} else if h.claim != o.Item.Claim.ID {
		s.t.Fatalf("step %d: the claim was renewed with another id", s.step)
	}
	h.claim, h.until = o.Item.Claim.ID, o.Item.Claim.LeaseUntil
	s.m.claims[who.User] = [2]string{o.Item.ID, h.claim}
}

// act grades or skips with the last claim that the person has seen, which may have ended long ago.
func (s *simulation) act(who tenant.Caller, grade bool) {
	last, seen := s.m.claims[who.User]
	if !seen {
		return
	}
	item := 0
	for s.m.items[item] != last[0] {
		item++
	}
	h, v := s.m.holds[item][who.User], []judge.Verdict{judge.Pass, judge.Fail}[s.random.IntN(2)]
	may := s.m.mayAct(item, who.User, last[1], s.now())
	if grade {
		repeat := h != nil && h.state == Graded && h.claim == last[1] && h.verdict == v
		_, err := s.f.Grade(s.t.Context(), who, s.q.ID, last[0], NewGrade{Claim: last[1], Verdict: v})
		if s.check("grade", err, may || repeat) && may {
			h.state, h.verdict = Graded, v
		}
		return
	}
	repeat := h != nil && h.state == Skipped && h.claim == last[1]
	_, err := s.f.Skip(s.t.Context(), who, s.q.ID, last[0], Skip{Claim: last[1]})
	if s.check("skip", err, may || repeat) && may {
		h.state = Skipped
	}
}

func (s *simulation) undo(who tenant.Caller) {
	item := s.random.IntN(len(s.m.items))
	h := s.m.holds[item][who.User]
	claimed := h != nil && h.state == Claimed
	may := h != nil && (claimed || s.m.free(item, who.User, s.now()))
	back, err := s.f.Undo(s.t.Context(), who, s.q.ID, s.m.items[item])
	if s.check("undo", err, may) && !claimed {
		h.state, h.claim, h.until, h.at, h.verdict = Claimed, back.Claim.ID, back.Claim.LeaseUntil, s.step, ""
		s.m.claims[who.User] = [2]string{back.ID, h.claim}
	}
}

// compare compares the queue with the model: every grade has one label, and every label a grade.
func (s *simulation) compare() {
	s.t.Helper()
	all, err := s.f.Items(s.t.Context(), owner, s.q.ID, "", nil, 100, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	labels, want := s.f.labels.given(s.t), 0
	for i, item := range all {
		verdicts := map[judge.Verdict]bool{}
		for user, h := range s.m.holds[i] {
			if h.state != Graded {
				continue
			}
			want++
			verdicts[h.verdict] = true
			if labels[[2]string{*item.RequestID, string(user)}] != h.verdict {
				s.t.Fatalf("step %d: the label of %s by %s is lost or wrong", s.step, item.ID, user)
			}
		}
		n := s.m.graded(i)
		if len(item.Grades) != n || n > s.m.graders || (item.State == itemDone) != (n == s.m.graders) || item.Conflict != (len(verdicts) > 1) {
			s.t.Fatalf("step %d: %+v, the model has %d grades", s.step, item, n)
		}
	}
	if len(labels) != want {
		s.t.Fatalf("step %d: %d labels of %d grades", s.step, len(labels), want)
	}
}

func TestRandomWorkOfSeveralGradersFollowsTheModel(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		people := []tenant.Caller{expert, expert2, person(mine, "expert3", "")}
		for seed := range uint64(3) {
			graders := int(seed%2) + 1
			if _, err := db.Exec(t.Context(), f.DB.Across("test"), `DELETE FROM fake_labels`); err != nil {
				t.Fatal(err)
			}
			q := f.queue(t, graders, 6, people...)
			items, err := f.Items(t.Context(), owner, q.ID, "", nil, 100, 0)
			if err != nil {
				t.Fatal(err)
			}
			s := &simulation{t: t, f: f, m: newModel(graders, items), q: q, random: rand.New(rand.NewPCG(seed, 1))}
			for s.step = range 120 {
				who := people[s.random.IntN(len(people))]
				switch n := s.random.IntN(20); {
				case n < 8:
					s.claim(who)
				case n < 13:
					s.act(who, true)
				case n < 15:
					s.act(who, false)
				case n < 18:
					s.undo(who)
				default:
					f.wait(s.random.Int64N(20))
				}
				if s.step%10 == 9 {
					s.compare()
				}
			}
		}
	})
}

func TestTwoGradersAtOnceGradeEveryItemOnceEach(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		const items = 20
		q := f.queue(t, 2, items, expert, expert2)
		var all sync.WaitGroup
		for _, who := range []tenant.Caller{expert, expert2, expert, expert2} { // each in two windows
			all.Go(func() {
				for {
					o, err := f.Claim(t.Context(), who, q.ID)
					if err != nil {
						t.Error(err)
						return
					}
					if o.Item == nil {
						return
					}
					_, err = f.Grade(t.Context(), who, q.ID, o.Item.ID, NewGrade{Claim: o.Item.Claim.ID, Verdict: judge.Pass})
					if err != nil && fault.From(err).Status != 409 { // the other window was faster
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		v, err := f.Get(t.Context(), owner, q.ID)
		if err != nil || v.Counts != (QueueCounts{Items: items, Done: items}) {
			t.Errorf("%+v, %v", v.Counts, err)
		}
		if n := len(f.labels.given(t)); n != 2*items {
			t.Errorf("%d labels", n)
		}
		for _, who := range []tenant.Caller{expert, expert2} {
			mine, err := f.mine(t.Context(), f.DB.In(mine), who.User, q.ID)
			if err != nil || mine != (MyCounts{Graded: items}) {
				t.Errorf("%s: %s, %v", who.User, fmt.Sprint(mine), err)
			}
		}
	})
}
