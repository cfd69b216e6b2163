package reward_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/domain/reward"
	"sovereign/internal/store/db/dbtest"
)

// Scoring needs ACTIVE, and no state follows another one.
func TestOnlyAnActiveSessionMoves(t *testing.T) {
	all := []reward.Status{reward.Active, reward.Completed, reward.Overbudget, reward.Stopped, reward.Failed}
	if len(reward.Next) != len(all) {
		t.Errorf("the table has %d states, and there are %d", len(reward.Next), len(all))
	}
	for _, from := range all {
		if _, ok := reward.Next[from]; !ok {
			t.Errorf("%s is not in the table", from)
		}
		for _, to := range all {
			if want := from == reward.Active && to != reward.Active; from.May(to) != want {
				t.Errorf("%s to %s: %v", from, to, from.May(to))
			}
		}
	}
}

// A walk is what one call does to a session in one state: the code of its refusal, and the state afterwards.
type walk struct {
	refusal string
	after   reward.Status
}

// states are every state that a session can be in, and how it gets there.
var states = map[string]func(f *fixture, id string){
	"ACTIVE":     func(*fixture, string) {},
	"HELD":       func(f *fixture, id string) { f.ok(f.store.Hold(f.t.Context(), dbtest.Mine, id, "for a reason")) },
	"EXPIRED":    func(f *fixture, _ string) { f.pass(25 * time.Hour) }, // and no loop has ended it yet
	"COMPLETED":  func(f *fixture, id string) { f.move(id, reward.Completed, "") },
	"OVERBUDGET": func(f *fixture, id string) { f.move(id, reward.Overbudget, "") },
	"STOPPED":    func(f *fixture, id string) { f.move(id, reward.Stopped, "") },
	"FAILED":     func(f *fixture, id string) { f.move(id, reward.Failed, "a judge is gone") },
	"PURGED": func(f *fixture, id string) {
		f.move(id, reward.Stopped, "")
		f.ok(f.store.Purge(f.t.Context(), dbtest.Mine, dbtest.Ann, id))
	},
}

const (
	ended = "session_not_active"
	spent = "session_overbudget"
	gone  = "not_found"
)

// calls are every call, with what it does in every state.
var calls = map[string]struct {
	do   func(f *fixture, id, token string) string // returns the code of the refusal
	want map[string]walk
}{
	"get":    {asks("GET", ""), unchanged(nil)},
	"tasks":  {asks("GET", "/tasks"), unchanged(map[string]string{"PURGED": gone})},
	"tokens": {asks("GET", "/tokens"), unchanged(nil)},
	"stop": {asks("DELETE", ""), with(unchanged(nil), map[string]walk{
		"ACTIVE": {"", reward.Stopped}, "HELD": {"", reward.Stopped}, "EXPIRED": {"", reward.Stopped},
	})},
	"complete": {asks("POST", "/complete"), with(unchanged(map[string]string{
		"OVERBUDGET": spent, "STOPPED": ended, "FAILED": ended, "PURGED": ended,
	}), map[string]walk{
		"ACTIVE": {"", reward.Completed}, "HELD": {"", reward.Completed}, "EXPIRED": {ended, reward.Stopped},
	})},
	"make a token": {asksWith("POST", "/tokens", `{"name":"x"}`), with(unchanged(map[string]string{
		"COMPLETED": ended, "OVERBUDGET": spent, "STOPPED": ended, "FAILED": ended, "PURGED": ended,
	}), map[string]walk{"EXPIRED": {ended, reward.Stopped}})},
	"revoke a token": {func(f *fixture, id, token string) string {
		return asks("DELETE", "/tokens/"+token)(f, id, "")
	}, unchanged(map[string]string{"PURGED": gone})},
	"score": {func(f *fixture, id, _ string) string {
		return code(f.store.Ready(f.t.Context(), dbtest.Mine, id))
	}, with(unchanged(map[string]string{
		"HELD": "anchor_held", "COMPLETED": ended, "OVERBUDGET": spent, "STOPPED": ended, "FAILED": ended, "PURGED": ended,
	}), map[string]walk{"EXPIRED": {ended, reward.Stopped}})},
	"hold": {func(f *fixture, id, _ string) string {
		return code(f.store.Hold(f.t.Context(), dbtest.Mine, id, "again"))
	}, unchanged(nil)},
	"purge": {func(f *fixture, id, _ string) string {
		return code(f.store.Purge(f.t.Context(), dbtest.Mine, dbtest.Ann, id))
	}, with(unchanged(map[string]string{"ACTIVE": "conflict", "HELD": "conflict"}), map[string]walk{"EXPIRED": {"", reward.Stopped}})},
	"read the anchor": {asks("GET", "/anchor"), unchanged(nil)},
	"export":          {asks("GET", "/export"), unchanged(map[string]string{"PURGED": gone})},
	"check": {asksWith("POST", "/anchor/checks", `{"step":"1"}`), with(unchanged(map[string]string{
		"ACTIVE": "conflict", "HELD": "anchor_held", "COMPLETED": ended, "OVERBUDGET": spent, "STOPPED": ended, "FAILED": ended,
		"PURGED": ended,
	}), map[string]walk{"EXPIRED": {ended, reward.Stopped}})},
	"release": {asksWith("POST", "/anchor/release", `{"note":"looked at it"}`), with(unchanged(map[string]string{
		"ACTIVE": "conflict", "COMPLETED": ended, "OVERBUDGET": spent, "STOPPED": ended, "FAILED": ended, "PURGED": ended,
	}), map[string]walk{"EXPIRED": {ended, reward.Stopped}})},
	"go over budget": moves(reward.Overbudget), "fail": moves(reward.Failed), "expire": {func(f *fixture, _, _ string) string {
		return code(f.store.ExpireDue(f.t.Context()))
	}, with(unchanged(nil), map[string]walk{"EXPIRED": {"", reward.Stopped}})},
}

func asks(method, path string) func(f *fixture, id, token string) string {
	return asksWith(method, path, "")
}

func asksWith(method, path, body string) func(f *fixture, id, token string) string {
	return func(f *fixture, id, _ string) string {
		status, text := f.client.Ask(f.t, f.client.Owner, method, "/v1/reward/sessions/"+id+path, body)
		if status < 300 {
			return ""
		}
		return decoded[struct {
			Error struct {
				Code string `json:"code"`
			} `json:"error"`
		}](f.t, text).Error.Code
	}
}

func moves(to reward.Status) (call struct {
	do   func(f *fixture, id, token string) string
	want map[string]walk
},
) {
	call.do = func(f *fixture, id, _ string) string {
		_, err := f.store.Move(f.t.Context(), dbtest.Mine, id, to, "")
		return code(err)
	}
	call.want = with(unchanged(nil), map[string]walk{"ACTIVE": {"", to}, "HELD": {"", to}, "EXPIRED": {"", to}})
	return call
}

// unchanged is a call that changes no state, and is refused in some.
func unchanged(refusals map[string]string) map[string]walk {
	all := map[string]walk{}
	for name := range states {
		after := reward.Status(name)
		switch name {
		case "HELD", "EXPIRED":
			after = reward.Active
		case "PURGED":
			after = reward.Stopped
		}
		all[name] = walk{refusals[name], after}
	}
	return all
}

func with(all, others map[string]walk) map[string]walk {
	for name, w := range others {
		all[name] = w
	}
	return all
}

func (f *fixture) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) move(id string, to reward.Status, reason string) {
	f.t.Helper()
	if moved, err := f.store.Move(f.t.Context(), dbtest.Mine, id, to, reason); err != nil || !moved {
		f.t.Fatalf("%s: %v %v", to, moved, err)
	}
}

// Every call in every state does what the table says, and a session that has ended holds no money.
func TestEveryCallInEveryState(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.certified(30)
		for state, arrive := range states {
			for name, call := range calls {
				made := f.create(wanted(c.ID))
				token, _, err := f.store.CreateToken(t.Context(), dbtest.Mine, dbtest.Ann, made.ID, "first")
				f.ok(err)
				arrive(f, made.ID)
				before := f.get(made.ID)
				refusal := call.do(f, made.ID, token.ID)
				after, want := f.get(made.ID), call.want[state]
				if refusal != want.refusal || after.Status != want.after {
					t.Errorf("%s a session that is %s: %q and %s, want %q and %s", name, state, refusal, after.Status, want.refusal, want.after)
				}
				if after.Status == before.Status && !slices.Contains([]string{"purge", "hold", "release"}, name) && !equal(before, after) {
					t.Errorf("%s changes a session that is %s: %+v, before %+v", name, state, after, before)
				}
				if held := f.held(); (after.Status == reward.Active) != (held == money.Dollar) || held != 0 && held != money.Dollar {
					t.Errorf("%s a session that is %s: $%s are held, and it is %s", name, state, held, after.Status)
				}
				if ends := f.ends(made.ID); (len(ends) == 1) != (after.Status != reward.Active) || len(ends) > 1 {
					t.Errorf("%s a session that is %s: it ended by %q", name, state, ends)
				}
				_, err = f.store.Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
				f.ok(err)
			}
		}
		if held := f.held(); held != 0 {
			t.Errorf("$%s are still held", held)
		}
	})
}

// equal compares what may not change by itself.
func equal(a, b reward.Session) bool {
	return a.Status == b.Status && text(a.Reason) == text(b.Reason) && (a.StoppedAt == nil) == (b.StoppedAt == nil) &&
		(a.StoppedAt == nil || *a.StoppedAt == *b.StoppedAt) && a.Anchor.Held == b.Anchor.Held &&
		text(a.Anchor.HeldReason) == text(b.Anchor.HeldReason) && (a.PurgedAt == nil) == (b.PurgedAt == nil) && a.Spent == b.Spent
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// ends returns the actions of the audit trail that ended a session.
func (f *fixture) ends(id string) []string {
	f.t.Helper()
	return slices.DeleteFunc(f.audited(id), func(action string) bool {
		return strings.HasPrefix(action, "token.") || slices.Contains([]string{"create", "hold", "release", "purge"}, action)
	})
}
