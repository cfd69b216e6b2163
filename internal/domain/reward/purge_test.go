package reward_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/reward"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/quota"
)

// keeps are the tables that have what a session keeps, by the column of its id.
var keeps = map[string]string{
	"reward_items": "session_id", "reward_texts": "session_id", "reward_tasks": "session_id", "reward_checks": "session_id",
	"reward_tokens": "session_id", "judge_answers": "origin",
}

// scored makes a session that keeps rows rows in every table.
func (f *fixture) scored(criterionID string, rows int) reward.Session {
	f.t.Helper()
	n := wanted(criterionID)
	for i := range rows {
		n.Tasks = append(n.Tasks, jsontext.Value(fmt.Sprintf(`{"n":%d}`, i)))
	}
	made := f.create(n)
	for i := range rows {
		f.judged(made.ID, criterionID, i)
		f.exec(`INSERT INTO reward_texts (workspace_id, session_id, digest, body) VALUES ($1, $2, $3, 'x')`, dbtest.Mine, made.ID, fmt.Append(nil, i))
		f.exec(`INSERT INTO reward_items (workspace_id, session_id, step, item_id, content, position, prompt, completion, label, reward, verdict, grades, flags, scored_at, checked)
			VALUES ($1, $2, 's', $3, $4, $5, $4, $4, '', 1, 'pass', '[]', '[]', 1, 0)`, dbtest.Mine, made.ID, strconv.Itoa(i), fmt.Append(nil, i), i)
		f.exec(`INSERT INTO reward_checks (workspace_id, session_id, number, process, step, requested, at, done_at, n, masked,
				reward_passes, anchor_passes, anchor_failed, only_reward, only_anchor, corrected, anchor_rate, lowest, highest,
				evidence, held)
			VALUES ($1, $2, $3, 1, 's', FALSE, 1, 1, 1, 0, 1, 1, 0, 0, 0, FALSE, 1, 0, 1, 1, FALSE)`, dbtest.Mine, made.ID, i)
	}
	_, _, err := f.store.CreateToken(f.t.Context(), dbtest.Mine, dbtest.Ann, made.ID, "x")
	f.ok(err)
	return made
}

// judged stores an answer of a judge that a session paid for.
func (f *fixture) judged(origin, criterionID string, n int) {
	f.t.Helper()
	f.exec(`INSERT INTO judge_answers (workspace_id, question, criterion_id, origin, request_id, opinion, failure, cost, created_at, expires_at)
		VALUES ($1, $2, $3, $4, '', '{}', '', 1, 1, 0)`, dbtest.Mine, fmt.Append(nil, origin, n), criterionID, origin)
}

// kept counts what a session keeps.
func (f *fixture) kept(id string) (n int) {
	f.t.Helper()
	for table, column := range keeps {
		n += dbtest.Count(f.t, f.DB, table+` WHERE `+column+` = $1`, id)
	}
	return n
}

// A purge deletes all that a session keeps, and nothing of another one. The session stays as it was.
func TestAPurgeDeletesWhatWasScored(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.certified(30)
		answers := dbtest.Count(t, f.DB, "judge_answers")
		made, other := f.scored(c.ID, 450), f.scored(c.ID, 3) // more than two batches
		dbtest.Refused(t, f.store.Purge(t.Context(), dbtest.Mine, dbtest.Ann, made.ID), 409, "stop it first")
		dbtest.Refused(t, f.store.Purge(t.Context(), dbtest.Theirs, dbtest.Ann, made.ID), 404)
		if n := f.kept(made.ID); n != 5*450+1 {
			t.Fatalf("it keeps %d rows", n)
		}
		f.move(made.ID, reward.Completed, "")
		before := f.get(made.ID)
		f.ok(f.store.Purge(t.Context(), dbtest.Mine, dbtest.Ann, made.ID))
		f.ok(f.store.Purge(t.Context(), dbtest.Mine, dbtest.Ann, made.ID))
		if n, others := f.kept(made.ID), f.kept(other.ID); n != 0 || others != 5*3+1 {
			t.Errorf("%d rows are left, and %d of the other", n, others)
		}
		if n := dbtest.Count(t, f.DB, "judge_answers"); n != answers+3 {
			t.Errorf("%d answers of judges, want %d", n, answers+3)
		}
		after := f.get(made.ID)
		if after.PurgedAt == nil || after.Status != reward.Completed || after.TaskCount != 450 || after.Spent != before.Spent || *after.StoppedAt != *before.StoppedAt {
			t.Errorf("%+v", after)
		}
		if actions := f.audited(made.ID); !slices.Equal(actions, []string{"create", "token.create", "complete", "purge"}) {
			t.Errorf("audited %q", actions)
		}
	})
}

// What ended long enough ago is purged by itself, counted from the end. What is active is never purged.
func TestRetentionCountsFromTheEnd(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.certified(30)
		n := wanted(c.ID)
		n.ExpiresIn = 30 * 24 * 3600
		active, first, second := f.create(n), f.scored(c.ID, 2), f.scored(c.ID, 2)
		f.move(first.ID, reward.Stopped, "")
		f.pass(10 * 24 * time.Hour)
		f.move(second.ID, reward.Stopped, "")
		purged := func() (all []string) {
			f.ok(f.store.Sweep(t.Context()))
			for _, id := range []string{active.ID, first.ID, second.ID} {
				if f.get(id).PurgedAt != nil {
					all = append(all, id)
				}
			}
			return all
		}
		if got := purged(); got != nil {
			t.Errorf("without a retention, %v", got)
		}
		f.store.SetRetention(15)
		if got := purged(); got != nil {
			t.Errorf("after 10 days, %v", got)
		}
		f.pass(6 * 24 * time.Hour)
		if got := purged(); !slices.Equal(got, []string{first.ID}) || f.kept(first.ID) != 0 || f.kept(second.ID) == 0 {
			t.Errorf("after 16 days, %v", got)
		}
		if entries := f.audited(first.ID); entries[len(entries)-1] != "purge" {
			t.Errorf("audited %q", entries)
		}
		f.pass(13 * 24 * time.Hour)
		if got := purged(); !slices.Equal(got, []string{first.ID, second.ID}) {
			t.Errorf("after 29 days, %v", got)
		}
	})
}

// An operator purges what ended before a time.
func TestPurgeBeforeATime(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.certified(30)
		old, young, active := f.scored(c.ID, 1), f.scored(c.ID, 1), f.scored(c.ID, 1)
		f.move(old.ID, reward.Stopped, "")
		f.pass(time.Hour)
		before := clock.Now().Add(30 * time.Minute)
		f.move(young.ID, reward.Stopped, "")
		for _, want := range []int64{1, 0} {
			if n, err := f.store.PurgeBefore(t.Context(), dbtest.Mine, dbtest.Ann, before); err != nil || n != want {
				t.Errorf("%d %v, want %d", n, err, want)
			}
		}
		if f.get(old.ID).PurgedAt == nil || f.get(young.ID).PurgedAt != nil || f.get(active.ID).PurgedAt != nil {
			t.Error("others were purged")
		}
		if n, err := f.store.PurgeBefore(t.Context(), dbtest.Theirs, dbtest.Ann, before.Add(time.Hour)); err != nil || n != 0 {
			t.Errorf("of another workspace: %d %v", n, err)
		}
	})
}

// A purge that was interrupted goes on, and what arrives after it is deleted too.
func TestAnInterruptedPurgeGoesOn(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.certified(30)
		made := f.scored(c.ID, 5)
		f.move(made.ID, reward.Stopped, "")
		killed, kill := context.WithCancel(t.Context())
		f.exec(`UPDATE reward_sessions SET purged_at = 1, purging = TRUE WHERE id = $1`, made.ID) // and then the server was killed
		kill()
		if err := f.store.Sweep(killed); err == nil {
			t.Error("a sweep that was killed says that it is done")
		}
		f.ok(f.store.Sweep(t.Context()))
		if n := f.kept(made.ID); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		f.judged(made.ID, c.ID, 99) // the model had been asked before the end
		f.ok(f.store.Sweep(t.Context()))
		if n := f.kept(made.ID); n != 0 {
			t.Errorf("%d late answers are left", n)
		}
		f.pass(2 * time.Hour)
		f.ok(f.store.Sweep(t.Context()))
		if n := dbtest.Count(t, f.DB, `reward_sessions WHERE purging`); n != 0 {
			t.Errorf("%d purges go on for ever", n)
		}
	})
}

// Tasks cost nothing, so that their size is bounded too.
func TestTheSizeOfTasksIsBounded(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		_, err := quota.Set(t.Context(), f.DB, dbtest.Mine, tenant.Operator, map[string]int64{"reward_tasks_kib": 3})
		f.ok(err)
		n := wanted(f.certified(30).ID)
		n.Tasks = []jsontext.Value{jsontext.Value(`{"x":"` + strings.Repeat("y", 1500) + `"}`)}
		made := f.create(n)
		_, err = f.store.Create(t.Context(), dbtest.Mine, dbtest.Ann, n)
		dbtest.Refused(t, err, 409, "stores 2 reward_tasks_kib, and its quota of reward_tasks_kib is 3: 2 more")
		f.create(wanted(made.Reward.CriterionID)) // without tasks
		f.move(made.ID, reward.Stopped, "")
		f.ok(f.store.Purge(t.Context(), dbtest.Mine, dbtest.Ann, made.ID))
		f.create(n)
		if f.held() != 2*money.Dollar {
			t.Errorf("$%s are held", f.held())
		}
	})
}

// A session that was purged does not count for the quota.
func TestAPurgedSessionLeavesRoom(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create(wanted(f.certified(30).ID))
		f.quota(1)
		_, err := f.store.Create(t.Context(), dbtest.Mine, dbtest.Ann, wanted(made.Reward.CriterionID))
		dbtest.Refused(t, err, 409, "quota")
		f.move(made.ID, reward.Stopped, "")
		_, err = f.store.Create(t.Context(), dbtest.Mine, dbtest.Ann, wanted(made.Reward.CriterionID))
		dbtest.Refused(t, err, 409, "quota")
		f.ok(f.store.Purge(t.Context(), dbtest.Mine, dbtest.Ann, made.ID))
		f.create(wanted(made.Reward.CriterionID))
	})
}
