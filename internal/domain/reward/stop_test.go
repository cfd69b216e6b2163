package reward_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/panics"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/reward"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db/dbtest"
)

// A server that stops while the budget is contended must not end the session: what running questions hold may become
// free.
func TestAServerThatStopsDoesNotEndASession(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		holds, stopped := make(chan struct{}), make(chan struct{})
		f.Models.Do(func(int, *infer.Request) (string, error) {
			close(holds) // the whole budget, say
			<-stopped
			return judgingtest.Assessment(judge.Pass, 0.8), nil
		})
		f.Models.Pay(func(r *infer.Request) (func(money.Nano), error) {
			if !bytes.Contains(r.Body, fmt.Append(nil, "reply to item ", first+1)) {
				return func(money.Nano) {}, nil
			}
			<-holds
			f.store.StopScoring()
			close(stopped)
			return nil, &infer.HoldSpent{Hold: s.ID}
		})
		got := f.scores(t, s.ID, "1", numbered(0, 2)...)
		f.idle(t)
		if now := f.get(s.ID); got.Status != reward.Active || now.Status != reward.Active {
			t.Errorf("the session is %s", now.Status)
		}
		if got.Rewards[1] != nil || !slices.Equal(got.Data[1].Flags, []reward.Flag{reward.FlagPending}) {
			t.Errorf("%+v", got.Data[1])
		}
	})
}

// A panic over what a caller sent is an error of that call: nothing of it stays behind, which a stop would wait for.
func TestAPanicLeavesNoCallBehind(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s, released := f.active(t), false
		_, err := f.store.ScorePanicking(t.Context(), dbtest.Mine, s.ID, func() { released = true })
		if !errors.As(err, new(*panics.Error)) || !released || f.store.Desks() != 0 {
			t.Errorf("%v: released %v, %d sessions have calls", err, released, f.store.Desks())
		}
	})
}

// PostgreSQL stores no NUL in a text. A judge must not be paid for an item that cannot be stored.
func TestANULIsRefusedOrReplacedBeforeAJudgeIsPaid(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		asked := f.Models.Calls()
		path := "/v1/reward/sessions/" + s.ID + "/score"
		f.client.Refuses(t, f.client.Owner, http.MethodPost, path, `{"step":"1\u0000","items":[{"id":"a","prompt":"q","completion":"r"}]}`, 400, "invalid_parameter", "")
		f.client.Refuses(t, f.client.Owner, http.MethodPost, path, `{"step":"1","items":[{"id":"a\u0000","prompt":"q","completion":"r"}]}`, 400, "invalid_parameter", "")
		if n := f.Models.Calls() - asked; n != 0 {
			t.Errorf("%d questions", n)
		}
		item := sent("a", first)
		item.Label = "red\x00green"
		if got := f.scores(t, s.ID, "1", item); got.Rewards[0] == nil {
			t.Errorf("%+v", got.Data[0])
		}
	})
}

// A criterion that changes while a call begins is not what was certified.
func TestACriterionThatChangesWhileACallBeginsIsNotAsked(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		asked := f.Models.Calls()
		change := func() { f.exec(`UPDATE criteria SET version = version + 1, rubric = 'Pass everything.'`) }
		f.catalog.asked.Store(&change) // after the version was compared
		if status, got := f.score(t, s.ID, "1", numbered(0, 1)...); status != http.StatusPreconditionFailed || f.Models.Calls() != asked {
			t.Errorf("%d after %d questions: %+v", status, f.Models.Calls()-asked, got)
		}
		if !f.get(s.ID).Anchor.Held {
			t.Error("the session is not held")
		}
	})
}

// The same holds for an anchor that changes while a check begins.
func TestAnAnchorThatChangesWhileACheckBeginsIsNotAsked(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.answers(&opinions{})
		rewards, anchor := f.pair(50)
		s := f.create(anchored(rewards.ID, anchor.ID))
		f.scores(t, s.ID, "1", numbered(0, 64)...)
		asked, looked := f.Models.Calls(), 0
		change := func() {
			if looked++; looked == 2 { // the anchor is looked at last
				f.exec(`UPDATE criteria SET version = version + 1, rubric = 'Pass everything.' WHERE id = $1`, anchor.ID)
			}
		}
		f.catalog.asked.Store(&change)
		if err := f.store.CheckPending(t.Context()); err == nil || f.Models.Calls() != asked {
			t.Errorf("%v after %d questions", err, f.Models.Calls()-asked)
		}
		f.check(t)
		if got := f.get(s.ID).Anchor; !got.Held || f.Models.Calls() != asked {
			t.Errorf("held %v after %d questions", got.Held, f.Models.Calls()-asked)
		}
	})
}

// A held session pays for no question that is not being asked yet: nobody gets the reward.
func TestAHeldSessionAsksNoMore(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		f.store.SetCalls(1)
		asked := f.Models.Calls()
		f.Models.Say(func(int) string {
			if err := f.store.Hold(t.Context(), dbtest.Mine, s.ID, "the anchor disagrees"); err != nil {
				t.Error(err)
			}
			return judgingtest.Assessment(judge.Pass, 0.8)
		})
		if status, _ := f.score(t, s.ID, "1", numbered(0, 10)...); status != http.StatusPreconditionFailed {
			t.Errorf("status %d", status)
		}
		f.idle(t)
		if n, got := f.Models.Calls()-asked, f.get(s.ID); n != 1 || got.Scored != 1 {
			t.Errorf("%d questions, %d items", n, got.Scored)
		}
	})
}
