package reward_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/reward"
	"sovereign/internal/store/db/dbtest"
)

// However many end a session at once, it ends once, and its money is released once.
func TestASessionEndsOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		other := f.create(wanted(f.certified(30).ID)) // its hold must stay
		for range 3 {
			made := f.create(&reward.NewSession{Reward: other.Reward, Budget: 2 * money.Dollar, ExpiresIn: 60})
			f.pass(time.Hour)
			var moved atomic.Int64
			var group sync.WaitGroup
			for i := range 50 {
				group.Go(func() {
					var err error
					switch i % 4 {
					case 0:
						_, err = f.store.Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
					case 1:
						_, err = f.store.Complete(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
					case 2:
						err = f.store.ExpireDue(t.Context())
					case 3:
						var once bool
						if once, err = f.store.Move(t.Context(), dbtest.Mine, made.ID, reward.Overbudget, ""); once {
							moved.Add(1)
						}
					}
					if err != nil && code(err) != ended && code(err) != spent {
						t.Error(err)
					}
				})
			}
			group.Wait()
			got, ends := f.get(made.ID), f.ends(made.ID)
			if len(ends) != 1 || got.Status == reward.Active || (got.Status == reward.Overbudget) != (moved.Load() == 1) || moved.Load() > 1 {
				t.Errorf("it ended by %q and is %s; %d moved it", ends, got.Status, moved.Load())
			}
			left, err := f.poster.Holds.Left(t.Context(), dbtest.Mine, made.ID, 0)
			if f.held() != money.Dollar || left != 0 || err != nil {
				t.Errorf("$%s are held, $%s for the session that has ended: %v", f.held(), left, err)
			}
			if again, err := f.store.Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID); err != nil || !equal(got, again) {
				t.Errorf("stopped again: %+v %v", again, err)
			}
		}
		proof, err := f.wallets.Verify(t.Context())
		if err != nil || !proof.OK {
			t.Errorf("%+v %v", proof, err)
		}
	})
}

// A session ends at its time: by the loop, after a restart, and for every call although the loop is late.
func TestASessionEndsAtItsTime(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.certified(30)
		n := wanted(c.ID)
		n.ExpiresIn = 60
		made := f.create(n)
		long := f.create(wanted(c.ID))
		if got := made.ExpiresAt.Sub(made.CreatedAt); got != time.Minute {
			t.Errorf("it lasts %v", got)
		}
		if got := long.ExpiresAt.Sub(long.CreatedAt); got != 24*time.Hour {
			t.Errorf("it lasts %v by default", got)
		}
		f.ok(f.store.Ready(t.Context(), dbtest.Mine, made.ID))
		f.ok(f.store.ExpireDue(t.Context()))
		if got := f.get(made.ID); got.Status != reward.Active {
			t.Fatalf("before its time it is %s", got.Status)
		}
		f.pass(time.Minute)
		restarted := f.newStore()
		f.ok(restarted.ExpireDue(t.Context()))
		got := f.get(made.ID)
		if got.Status != reward.Stopped || text(got.Reason) != "expired" || f.held() != money.Dollar || got.Anchor.Held {
			t.Errorf("%s %q, $%s held", got.Status, text(got.Reason), f.held())
		}
		if actions := f.audited(made.ID); !slices.Equal(actions, []string{"create", "expire"}) {
			t.Errorf("audited %q", actions)
		}
		late := f.create(n)
		f.pass(time.Minute)
		dbtest.Refused(t, f.store.Ready(t.Context(), dbtest.Mine, late.ID), 409, "is STOPPED: expired")
		if got := f.get(late.ID); got.Status != reward.Stopped || f.held() != money.Dollar {
			t.Errorf("%s, $%s held", got.Status, f.held())
		}
		if got := f.get(long.ID); got.Status != reward.Active {
			t.Errorf("the longer one is %s", got.Status)
		}
	})
}

// The loop of a running server ends sessions without a request.
func TestTheLoopEndsSessions(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create(wanted(f.certified(30).ID))
		for _, loop := range f.module.Background {
			f.run(loop.Run)
		}
		f.pass(25 * time.Hour)
		for deadline := time.Now().Add(5 * time.Minute); f.get(made.ID).Status == reward.Active; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it is still active")
			}
		}
	})
}

// When DELETE has answered, nothing is scored any more, whichever server ended the session.
func TestTheEndCancelsWhatIsBeingScored(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.certified(30)
		made, other := f.create(wanted(c.ID)), f.create(wanted(c.ID))
		scoring, leave := f.store.Enter(t.Context(), dbtest.Mine, made.ID)
		beside, leaveBeside := f.store.Enter(t.Context(), dbtest.Mine, other.ID)
		_, err := f.newStore().Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		f.ok(err)
		if scoring.Err() == nil || !errors.Is(context.Cause(scoring), reward.ErrEnded) {
			t.Errorf("it is still scored: %v", context.Cause(scoring))
		}
		if beside.Err() != nil {
			t.Errorf("another session is not scored: %v", context.Cause(beside))
		}
		dbtest.Refused(t, f.store.Ready(t.Context(), dbtest.Mine, made.ID), 409, "STOPPED")
		leave()
		leaveBeside()
		if n := f.store.Scoring(); n != 0 {
			t.Errorf("%d sessions are still scored", n)
		}
	})
}

// A session whose judge is no longer what was pinned scores nothing: it is held, or it has failed.
func TestAJudgeThatChangedHoldsOrFailsTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *fixture, criterionID string)
		status int
		words  string
		after  reward.Status
	}{
		"a new version":         {func(f *fixture, id string) { f.ChangeRubric(f.t, id, "Another one.") }, 412, "version 1 was pinned, and it has version 2", reward.Active},
		"a void certificate":    {voidByLabel, 412, "is void: the label lbl_", reward.Active},
		"a deleted criterion":   {func(f *fixture, id string) { f.ok(f.Criteria.Delete(f.t.Context(), dbtest.Mine, dbtest.Ann, id)) }, 409, "was deleted", reward.Failed},
		"a model that is gone":  {func(f *fixture, _ string) { f.catalog.gone.Store(true) }, 409, "the judge model sim/judge cannot be called", reward.Failed},
		"a newer certificate":   {func(f *fixture, id string) { f.recalibrate(id, 5) }, 0, "", reward.Active},
		"an older one was void": {func(f *fixture, id string) { f.recalibrate(id, 5); voidByLabel(f, id) }, 412, "is void", reward.Active},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f *fixture) {
				judge := f.certified(30)
				made := f.create(wanted(judge.ID))
				f.ok(f.store.Ready(t.Context(), dbtest.Mine, made.ID))
				c.change(f, judge.ID)
				err := f.store.Ready(t.Context(), dbtest.Mine, made.ID)
				got := f.get(made.ID)
				if got.Status != c.after || got.Anchor.Held != (c.status == 412) || (f.held() == 0) != (c.after == reward.Failed) {
					t.Errorf("%s, held %v, $%s held", got.Status, got.Anchor.Held, f.held())
				}
				if c.status == 0 {
					f.ok(err)
					return
				}
				dbtest.Refused(t, err, c.status, c.words)
				why := text(got.Reason) + text(got.Anchor.HeldReason)
				if !strings.Contains(why, c.words) {
					t.Errorf("the session says %q", why)
				}
				f.catalog.gone.Store(false)
				dbtest.Refused(t, f.store.Ready(t.Context(), dbtest.Mine, made.ID), c.status, c.words) // as before
				want := map[int][]string{412: {"create", "hold"}, 409: {"create", "fail"}}[c.status]
				if actions := f.audited(made.ID); !slices.Equal(actions, want) {
					t.Errorf("audited %q", actions)
				}
			})
		})
	}
}

// voidByLabel deletes a label that the certificates of a criterion were measured by.
func voidByLabel(f *fixture, id string) {
	f.t.Helper()
	all, err := f.Labels.List(f.t.Context(), dbtest.Mine, &label.Filters{CriterionID: id}, 1000, 0)
	f.ok(err)
	for _, l := range all {
		f.DeleteLabel(f.t, l.ID)
	}
}

// A session is held once, for its first reason, and one that has ended is not held.
func TestAHoldKeepsItsFirstReason(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create(wanted(f.certified(30).ID))
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				if err := f.store.Hold(t.Context(), dbtest.Mine, made.ID, "first"); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		f.ok(f.store.Hold(t.Context(), dbtest.Mine, made.ID, "second"))
		got := f.get(made.ID)
		if actions := f.audited(made.ID); !slices.Equal(actions, []string{"create", "hold"}) || text(got.Anchor.HeldReason) != "first" || got.Anchor.HeldAt == nil {
			t.Errorf("audited %q, held for %q", actions, text(got.Anchor.HeldReason))
		}
		f.ok(f.store.Hold(t.Context(), dbtest.Theirs, made.ID, "another workspace"))
		if f.held() != money.Dollar {
			t.Errorf("$%s are held", f.held())
		}
	})
}
