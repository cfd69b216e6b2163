package reward_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/reward"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// first is the number of the first item that scoring is asked about; those of labels are lower.
const first = 5_000_000

// sent is an item about a number. The fake judge knows items by it.
func sent(id string, number int) reward.ScoreItem {
	prompt := fmt.Sprintf("question %d", number)
	return reward.ScoreItem{ID: id, Prompt: &prompt, Completion: fmt.Appendf(nil, `"reply to item %d"`, number)}
}

// numbered are n items with different contents, from a number on.
func numbered(from, n int) []reward.ScoreItem {
	all := make([]reward.ScoreItem, n)
	for i := range all {
		all[i] = sent(fmt.Sprint("item ", from+i), first+from+i)
	}
	return all
}

// score calls score by HTTP, as the owner.
func (f *fixture) score(t *testing.T, id, step string, items ...reward.ScoreItem) (int, reward.Scores) {
	t.Helper()
	body := judgingtest.JSON(t, reward.ScoreRequest{Step: step, Items: items})
	answer := f.client.Do(t, f.client.Owner, http.MethodPost, "/v1/reward/sessions/"+id+"/score", string(body))
	if answer.Code != http.StatusOK {
		return answer.Code, reward.Scores{}
	}
	return answer.Code, decoded[reward.Scores](t, answer.Body.String())
}

// scores is score for a call that must succeed.
func (f *fixture) scores(t *testing.T, id, step string, items ...reward.ScoreItem) reward.Scores {
	t.Helper()
	status, got := f.score(t, id, step, items...)
	if status != http.StatusOK || len(got.Rewards) != len(items) || len(got.Data) != len(items) {
		t.Fatalf("%d: %+v", status, got)
	}
	for i, d := range got.Data {
		if d.ID != items[i].ID || (d.Reward == nil) != (got.Rewards[i] == nil) || d.Reward != nil && *d.Reward != *got.Rewards[i] {
			t.Fatalf("item %d is %+v with reward %v", i, d, got.Rewards[i])
		}
	}
	return got
}

// active makes a session that one judge scores.
func (f *fixture) active(t *testing.T) reward.Session {
	t.Helper()
	return f.create(wanted(f.certified(30).ID))
}

// paysFromHolds lets the fake models take what answers may cost from named holds, as the gateway does.
func (f *fixture) paysFromHolds(worst money.Nano) {
	f.Models.Pay(func(r *infer.Request) (func(money.Nano), error) {
		if r.Hold == "" {
			return func(money.Nano) {}, nil
		}
		hold, err := holdFrom(f.funds, r, worst)
		if err != nil {
			return nil, err
		}
		return func(cost money.Nano) { hold.Settle(cost, clock.Now()) }, nil
	})
}

// holdFrom holds an amount of a request's named hold, as the till does.
func holdFrom(f *funds.Funds, r *infer.Request, worst money.Nano) (funds.Hold, error) {
	hold, free, open, ok := f.HoldFrom(r.Workspace, r.Hold, worst)
	if ok {
		return hold, nil
	}
	from := f.Source()
	if from == nil {
		return hold, &infer.HoldSpent{Hold: r.Hold, Free: free, Ended: !open}
	}
	hold, err := from.Acquire(context.Background(), funds.Payer{Workspace: r.Workspace, Hold: r.Hold}, worst)
	if short := (*funds.Short)(nil); errors.As(err, &short) {
		return hold, &infer.HoldSpent{Hold: r.Hold, Free: short.Free, Ended: short.Ended, Busy: short.Busy}
	}
	return hold, err
}

func (f *fixture) count(t *testing.T, query string, args ...any) int64 {
	t.Helper()
	n, err := db.One[int64](t.Context(), f.DB.Across("test"), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// idle waits until no call is left.
func (f *fixture) idle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); f.store.Desks() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a call has not ended")
		}
	}
}

// freed waits until no memory is reserved. It is given back just after the last question of a call is closed.
func (f *fixture) freed(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); f.bounds.Buffered.Used() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes stay reserved", f.bounds.Buffered.Used())
		}
	}
}

func flags(s reward.Scores) []reward.Flag {
	all := []reward.Flag{}
	for _, d := range s.Data {
		all = append(all, d.Flags...)
	}
	return all
}

func TestScoringIsIdempotentByStepIDAndContent(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		asked := f.Models.Calls()
		again := func(step string, questions int, scored int64, items ...reward.ScoreItem) {
			t.Helper()
			got := f.scores(t, s.ID, step, items...)
			if slices.Contains(got.Rewards, nil) || got.Status != reward.Active || got.Held {
				t.Errorf("%+v", got)
			}
			if n := f.Models.Calls() - asked; n != questions {
				t.Errorf("%d questions, not %d", n, questions)
			}
			if now := f.get(s.ID).Scored; now != scored {
				t.Errorf("%d items are scored, not %d", now, scored)
			}
		}
		one, two := sent("a", first+1), sent("b", first+2)
		again("1", 2, 2, one, two)
		again("1", 2, 2, one, two)           // a retry
		again("1", 2, 2, two, one, two, two) // in another order, and twice in one call
		again("1", 3, 3, sent("a", first+3)) // the same id with other content
		again("1", 3, 4, sent("c", first+1)) // another id with the same content: another item, no other question
		again("2", 3, 5, one)                // another step
		f.exec(`DELETE FROM judge_answers`)
		again("1", 3, 5, one, two, sent("a", first+3), sent("c", first+1)) // what is scored needs no judge's answer
		if n := f.count(t, `SELECT COUNT(*) FROM reward_texts`); n != 6 {
			t.Errorf("%d texts of 3 prompts and 3 completions", n)
		}
		positions, err := db.Query[int64](t.Context(), f.DB.Across("test"), `SELECT position FROM reward_items ORDER BY position`)
		if err != nil || !slices.Equal(positions, []int64{1, 2, 3, 4, 5}) {
			t.Errorf("positions %v, %v", positions, err)
		}
	})
}

// Many calls with the same items at once: every question is asked once, and every item stored once.
func TestIdenticalQuestionsAreAskedOnceAlsoAtOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		asked := f.Models.Calls()
		items := numbered(0, 40)
		var group sync.WaitGroup
		for range 16 {
			group.Go(func() {
				if got := f.scores(t, s.ID, "1", items...); slices.Contains(got.Rewards, nil) {
					t.Errorf("%v", flags(got))
				}
			})
		}
		group.Wait()
		if n := f.Models.Calls() - asked; n != 40 {
			t.Errorf("%d questions about 40 completions", n)
		}
		if got := f.get(s.ID); got.Scored != 40 {
			t.Errorf("%d items are counted", got.Scored)
		}
		f.idle(t)
	})
}

// What is not judged in time is null and pending. Its questions go on, and a retry gets their answers without asking.
func TestWhatIsNotJudgedInTimeGoesOnInTheBackground(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		gate, quick := judgingtest.NewGate(t), first
		f.Models.Say(func(item int) string {
			if item != quick {
				gate.Wait()
			}
			return judgingtest.Assessment(judge.Pass, 0.8)
		})
		f.store.SetCalls(2)
		items := numbered(0, 8)
		f.scores(t, s.ID, "0", items[0])
		f.store.SetScoreTime(time.Millisecond)
		asked := f.Models.Calls()
		got := f.scores(t, s.ID, "1", items...)
		if n := len(slices.DeleteFunc(flags(got), func(g reward.Flag) bool { return g != reward.FlagPending })); n < 7 {
			t.Errorf("%v", flags(got))
		}
		for _, d := range got.Data {
			if d.Reward != nil && d.ID != items[0].ID {
				t.Errorf("%+v without an answer", d)
			}
		}
		gate.Open()
		f.idle(t)
		if n := f.Models.Calls() - asked; n != 7 {
			t.Errorf("%d questions were asked in the background", n)
		}
		f.store.SetScoreTime(time.Hour)
		if got = f.scores(t, s.ID, "1", items...); slices.Contains(got.Rewards, nil) || f.Models.Calls()-asked != 7 {
			t.Errorf("%v after %d questions", flags(got), f.Models.Calls()-asked)
		}
	})
}

// A caller that leaves lets the questions end that are being asked. No other is asked.
func TestACallerThatLeavesStartsNoMoreQuestions(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		gate := judgingtest.NewGate(t)
		began := make(chan struct{}, 100)
		f.Models.Say(func(int) string {
			began <- struct{}{}
			gate.Wait()
			return judgingtest.Assessment(judge.Pass, 0.8)
		})
		f.store.SetCalls(3)
		asked := f.Models.Calls()
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := f.store.Score(ctx, dbtest.Mine, s.ID, "1", numbered(0, 50))
			done <- err
		}()
		for range 3 {
			<-began
		}
		leave()
		if err := <-done; err != nil {
			t.Error(err)
		}
		gate.Open()
		f.idle(t)
		if n := f.Models.Calls() - asked; n != 3 {
			t.Errorf("%d questions were asked, not 3", n)
		}
		if got := f.get(s.ID); got.Scored != 3 {
			t.Errorf("%d of 3 answers were kept", got.Scored)
		}
	})
}

// Two calls wait for the same question. That one caller leaves does not take it from the other.
func TestAQuestionOfACallerThatLeftIsAskedForTheOther(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		gate := judgingtest.NewGate(t)
		began := make(chan struct{}, 100)
		f.Models.Say(func(int) string {
			began <- struct{}{}
			gate.Wait()
			return judgingtest.Assessment(judge.Pass, 0.8)
		})
		f.store.SetCalls(1)
		ctx, leave := context.WithCancel(t.Context())
		left, stays := make(chan error), make(chan reward.Scores)
		go func() {
			_, err := f.store.Score(ctx, dbtest.Mine, s.ID, "1", numbered(0, 4))
			left <- err
		}()
		<-began
		go func() { stays <- f.scores(t, s.ID, "2", numbered(0, 4)...) }()
		for f.store.Waiting(dbtest.Mine, s.ID) < 8 {
			time.Sleep(time.Millisecond)
		}
		leave()
		<-left
		gate.Open()
		if got := <-stays; slices.Contains(got.Rewards, nil) {
			t.Errorf("%v", flags(got))
		}
		f.idle(t)
	})
}

// A malformed answer is paid for once, and is null for the rest of the session. A judge that could not be reached is
// asked again when the item is sent again. Neither is ever 0.
func TestAFailedJudgeIsNullAndNeverZero(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		down := atomic.Bool{}
		down.Store(true)
		f.Models.Do(func(item int, _ *infer.Request) (string, error) {
			switch {
			case item == first+1:
				return "I would rather not say", nil
			case item == first+2 && down.Load():
				return "", fault.Upstream.New("the provider is down")
			}
			return judgingtest.Assessment(judge.Fail, 0), nil
		})
		bad, away, fine := sent("bad", first+1), sent("away", first+2), sent("fine", first+3)
		got := f.scores(t, s.ID, "1", bad, away, fine)
		if got.Rewards[0] != nil || got.Rewards[1] != nil || got.Rewards[2] == nil || *got.Rewards[2] != 0 {
			t.Errorf("%+v", got)
		}
		for _, d := range got.Data[:2] {
			if !slices.Equal(d.Flags, []reward.Flag{reward.FlagJudgeFailed}) || d.Verdict != nil || len(d.Grades) != 1 ||
				d.Grades[0].Failure == "" || d.Grades[0].Grade != nil {
				t.Errorf("%+v", d)
			}
		}
		if now := f.get(s.ID); now.Scored != 1 {
			t.Errorf("%d items have a reward", now.Scored)
		}
		down.Store(false)
		asked := f.Models.Calls()
		got = f.scores(t, s.ID, "1", bad, away, fine)
		if got.Rewards[0] != nil || got.Rewards[1] == nil || f.Models.Calls()-asked != 1 {
			t.Errorf("%+v after %d questions", got, f.Models.Calls()-asked)
		}
		if now, rows := f.get(s.ID), f.count(t, `SELECT COUNT(*) FROM reward_items`); now.Scored != 2 || rows != 3 {
			t.Errorf("%d items have a reward in %d rows", now.Scored, rows)
		}
		other := f.create(wanted(s.Reward.CriterionID))
		if f.scores(t, other.ID, "1", bad); f.Models.Calls()-asked != 2 {
			t.Errorf("another session asked %d questions", f.Models.Calls()-asked-1)
		}
	})
}

func TestSeveralJudgesMakeOneReward(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		polite, brief := f.certified(30), f.certified(30, func(d *criterion.Definition) { d.Rubric = judgingtest.Ptr("It is brief.") })
		three := 3.0
		s := f.create(&reward.NewSession{Budget: money.Dollar, Reward: reward.Rule{Mode: reward.Weighted, Criteria: []reward.Criterion{
			{CriterionID: polite.ID, Weight: &three}, {CriterionID: brief.ID},
		}}})
		f.Models.Do(func(item int, r *infer.Request) (string, error) {
			isBrief := strings.Contains(string(r.Body), "It is brief.")
			switch {
			case isBrief && item == first+1:
				return "no", nil
			case isBrief:
				return judgingtest.Assessment(judge.Fail, 0.2), nil
			}
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		got := f.scores(t, s.ID, "1", numbered(0, 2)...)
		if d := got.Data[0]; d.Reward == nil || *d.Reward != 0.8 || *d.Verdict != judge.Pass || len(d.Grades) != 2 ||
			!slices.Equal(d.Flags, []reward.Flag{reward.FlagDisagree}) {
			t.Errorf("%+v", d)
		}
		if d := got.Data[1]; d.Reward != nil || !slices.Contains(d.Flags, reward.FlagJudgeFailed) || d.Grades[0].Grade == nil || d.Grades[1].Grade != nil {
			t.Errorf("%+v", d)
		}
	})
}

// A session that is stopped ends its scoring at once: what has a reward is answered, the rest is null.
func TestAStoppedSessionStopsScoring(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		began := make(chan struct{}, 100)
		f.Models.Do(func(item int, r *infer.Request) (string, error) {
			if item < first+3 {
				return judgingtest.Assessment(judge.Pass, 0.8), nil
			}
			began <- struct{}{}
			return "", fault.Upstream.New("the provider is down").In(time.Hour) // it is asked again until its context ends
		})
		done := make(chan reward.Scores)
		go func() { done <- f.scores(t, s.ID, "1", numbered(0, 100)...) }()
		<-began
		for f.get(s.ID).Scored < 3 {
			time.Sleep(time.Millisecond)
		}
		if _, err := f.store.Stop(t.Context(), dbtest.Mine, dbtest.Ann, s.ID); err != nil {
			t.Fatal(err)
		}
		got := <-done
		if got.Status != reward.Stopped || slices.Contains(got.Rewards[:3], nil) {
			t.Errorf("%s: %v", got.Status, got.Rewards[:3])
		}
		for _, d := range got.Data[3:] {
			if d.Reward != nil || !slices.Equal(d.Flags, []reward.Flag{reward.FlagStopped}) {
				t.Errorf("%+v", d)
			}
		}
		if status, _ := f.score(t, s.ID, "1", numbered(0, 1)...); status != http.StatusConflict {
			t.Errorf("a later call: %d", status)
		}
		f.idle(t)
	})
}

// A held session scores nothing. One that is held while it scores gives no reward away.
func TestAHeldSessionGivesNoReward(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		f.Models.Say(func(int) string {
			if err := f.store.Hold(t.Context(), dbtest.Mine, s.ID, "the anchor disagrees"); err != nil {
				t.Error(err)
			}
			return judgingtest.Assessment(judge.Pass, 0.8)
		})
		path := "/v1/reward/sessions/" + s.ID + "/score"
		body := string(judgingtest.JSON(t, reward.ScoreRequest{Step: "1", Items: numbered(0, 1)}))
		for range 2 {
			f.client.Refuses(t, f.client.Owner, http.MethodPost, path, body, http.StatusPreconditionFailed, "anchor_held", "")
		}
		if got := f.get(s.ID); got.Scored != 1 {
			t.Errorf("%d items are kept", got.Scored)
		}
	})
}

// Many callers, and a budget that does not suffice: every question that fits is asked, no more is spent than there is,
// and the session ends once.
func TestTheBudgetIsSpentToTheLastQuestionThatFitsAndOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		const worst, fit = 5 * judgingtest.Price, 30
		n := wanted(f.certified(30).ID)
		n.Budget = (fit-1)*judgingtest.Price + worst // the last one needs its worst case
		s, before := f.create(n), f.held()
		f.paysFromHolds(worst)
		var group sync.WaitGroup
		var mu sync.Mutex
		rewards, over := 0, 0
		for i := range 20 {
			group.Go(func() {
				status, got := f.score(t, s.ID, "1", numbered(10*i, 10)...)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case status == http.StatusConflict:
					over += 10
				case status != http.StatusOK:
					t.Errorf("status %d", status)
				}
				for _, d := range got.Data {
					switch {
					case d.Reward != nil:
						rewards++
					case slices.Equal(d.Flags, []reward.Flag{reward.FlagOverBudget}) && got.Status == reward.Overbudget:
						over++
					default:
						t.Errorf("%s: %+v", got.Status, d)
					}
				}
				if got.Spent > n.Budget {
					t.Errorf("spent %s of %s", got.Spent, n.Budget)
				}
			})
		}
		group.Wait()
		f.idle(t)
		got := f.get(s.ID)
		if rewards != fit || over != 200-fit || got.Scored != fit || got.Status != reward.Overbudget || got.Spent != fit*judgingtest.Price {
			t.Errorf("%d rewards, %d over the budget: %+v", rewards, over, got)
		}
		if actions := f.audited(s.ID); !slices.Equal(actions, []string{"create", "overbudget"}) {
			t.Errorf("%v", actions)
		}
		if released := before - f.held(); released != n.Budget-fit*judgingtest.Price && released != n.Budget {
			t.Errorf("%s of %s were released", released, n.Budget)
		}
		f.client.Refuses(t, f.client.Owner, http.MethodPost, "/v1/reward/sessions/"+s.ID+"/score",
			string(judgingtest.JSON(t, reward.ScoreRequest{Step: "2", Items: numbered(0, 1)})), http.StatusConflict, "session_overbudget", "")
	})
}

// An item that does not fit while others are being asked waits for what they leave.
func TestAnItemThatDoesNotFitWaitsForRunningOnes(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		n := wanted(f.certified(30).ID)
		const worst = 10 * judgingtest.Price
		n.Budget = worst + 3*judgingtest.Price // one at a time, and four in all
		s := f.create(n)
		f.paysFromHolds(worst)
		if got := f.scores(t, s.ID, "1", numbered(0, 4)...); slices.Contains(got.Rewards, nil) || got.Status != reward.Active {
			t.Fatalf("%s: %v", got.Status, flags(got))
		}
		got := f.scores(t, s.ID, "1", numbered(0, 5)...)
		if got.Status != reward.Overbudget || slices.Contains(got.Rewards[:4], nil) || got.Rewards[4] != nil {
			t.Errorf("%s: %v", got.Status, flags(got))
		}
	})
}

func TestAnErrorOfOursIsARefusalAndTheRestIsKept(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		broken := atomic.Bool{}
		broken.Store(true)
		f.Models.Do(func(item int, _ *infer.Request) (string, error) {
			if item == first && broken.Load() {
				return "", errors.New("a bug")
			}
			return judgingtest.Assessment(judge.Pass, 0.8), nil
		})
		if status, _ := f.score(t, s.ID, "1", numbered(0, 5)...); status != http.StatusInternalServerError {
			t.Errorf("status %d", status)
		}
		broken.Store(false)
		asked := f.Models.Calls()
		if got := f.scores(t, s.ID, "1", numbered(0, 5)...); slices.Contains(got.Rewards, nil) || f.Models.Calls()-asked != 1 {
			t.Errorf("%v after %d questions", flags(got), f.Models.Calls()-asked)
		}
	})
}

func TestScoringIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		asked := f.Models.Calls()
		path := "/v1/reward/sessions/" + s.ID + "/score"
		good := `{"step":"1","items":[{"id":"a","prompt":"q","completion":"r"}]}`
		for _, c := range []struct {
			key, path, body string
			status          int
			code, param     string
		}{
			{f.client.Member, path, good, 403, "insufficient_permissions", ""},
			{f.client.Other, path, good, 404, "not_found", ""},
			{f.client.Owner, "/v1/reward/sessions/rs_none/score", good, 404, "not_found", ""},
			{f.client.Owner, path + "?step=1", good, 400, "invalid_parameter", ""},
			{f.client.Owner, path, ``, 400, "invalid_body", ""},
			{f.client.Owner, path, `[]`, 400, "invalid_body", ""},
			{f.client.Owner, path, `{"step":"1","items":[]}`, 400, "invalid_parameter", "items"},
			{f.client.Owner, path, `{"step":"1","items":[{"id":"a","prompt":"q","completion":"r","x":1}]}`, 400, "invalid_parameter", "items.0.x"},
			{f.client.Owner, path, `{"step":"1","items":[{"id":"a","prompt":"q","completion":"r"},{"id":"a","prompt":"q"}]}`, 400, "invalid_parameter", "items[1].completion"},
			{f.client.Owner, path, `{"step":"1","items":[{"id":"a","id":"b","prompt":"q","completion":"r"}]}`, 400, "invalid_body", ""},
			{f.client.Owner, path, `{"step":1,"items":[]}`, 400, "invalid_parameter", "step"},
		} {
			f.client.Refuses(t, c.key, http.MethodPost, c.path, c.body, c.status, c.code, c.param)
		}
		if got := f.client.Do(t, f.client.Owner, http.MethodPost, path, good, "Idempotency-Key", "k"); got.Code != http.StatusBadRequest {
			t.Errorf("an Idempotency-Key: %d %s", got.Code, got.Body)
		}
		f.bounds.Buffered.Set(1 << 10)
		if got := f.client.Do(t, f.client.Owner, http.MethodPost, path, good); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" {
			t.Errorf("without memory: %d %s", got.Code, got.Body)
		}
		if f.Models.Calls() != asked || f.bounds.Buffered.Used() != 0 {
			t.Errorf("%d questions, %d bytes are held", f.Models.Calls()-asked, f.bounds.Buffered.Used())
		}
	})
}

// The wire, byte by byte.
func TestTheWireOfScoring(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		f.Models.Do(func(item int, _ *infer.Request) (string, error) {
			if item == first+1 {
				return "no idea", nil
			}
			return judgingtest.Assessment(judge.Pass, 0.75), nil
		})
		body := fmt.Sprintf(`{"step":"7","items":[
			{"id":"a","prompt":"q","completion":"reply to item %d","label":"gold"},
			{"id":"b","messages":[{"role":"user","content":"q"}],"completion":"reply to item %d"}]}`, first, first+1)
		f.client.Wants(t, f.client.Owner, http.MethodPost, "/v1/reward/sessions/"+s.ID+"/score", body, http.StatusOK,
			`{"rewards":[0.75,null],"data":[`+
				`{"id":"a","reward":0.75,"verdict":"pass","grades":[{"criterion_id":"crit_…","grade":0.75,"verdict":"pass","critique":"as I see it"}],"flags":[]},`+
				`{"id":"b","reward":null,"verdict":null,"grades":[{"criterion_id":"crit_…","grade":null,"verdict":null,"failure":"malformed: it is no JSON object: no idea"}],"flags":["judge_failed"]}],`+
				`"held":false,"status":"ACTIVE","spent_usd":0}`)
	})
}

// A trajectory is judged whole, in an agentic session alone.
func TestAgenticSessionsScoreTrajectories(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		n := wanted(f.certified(30).ID)
		n.Agentic = true
		s, prompt := f.create(n), "Book a flight."
		item := reward.ScoreItem{ID: "a", Prompt: &prompt, Completion: []byte(`[
			{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"search","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"Flight AZ1"},
			{"role":"assistant","content":"reply to item 1"}]`)}
		if got := f.scores(t, s.ID, "1", item, sent("b", first)); slices.Contains(got.Rewards, nil) {
			t.Errorf("%+v", got)
		}
		if n := f.count(t, `SELECT COUNT(*) FROM reward_texts WHERE body LIKE '[{"role":"assistant"%Flight AZ1%'`); n != 1 {
			t.Errorf("%d trajectories are stored", n)
		}
	})
}

// Calls that were judged at the same time store an item once. It keeps its first reward, its place and its count.
func TestAnItemIsStoredOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		for _, r := range []float64{0.5, 0.7, 0.9} {
			if err := f.store.Keep(dbtest.Mine, s.ID, "1", sent("a", first), r); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.store.Keep(dbtest.Mine, s.ID, "1", sent("b", first+1), 0.1); err != nil {
			t.Fatal(err)
		}
		rewards, err := db.Query[float64](t.Context(), f.DB.Across("test"), `SELECT reward FROM reward_items ORDER BY position`)
		if got := f.get(s.ID); err != nil || got.Scored != 2 || !slices.Equal(rewards, []float64{0.5, 0.1}) {
			t.Errorf("%d items with %v, %v", got.Scored, rewards, err)
		}
	})
}
