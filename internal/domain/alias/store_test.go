package alias_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/live"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

const (
	mine   tenant.ID = "ws_mine"
	theirs tenant.ID = "ws_theirs"
)

var ann = tenant.Caller{Workspace: mine, User: "usr_ann", Key: "key_1"}.Actor()

// A fixture is the aliases of one database with two workspaces, published.
type fixture struct {
	*alias.Store
	db   *db.DB
	feed *feed.Feed
	live *live.Aliases
	pub  *alias.Publisher
}

// eachStorage runs test with a fixture on each engine, whose feed runs.
func eachStorage(t *testing.T, test func(t *testing.T, r fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newFixture(t, d)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); r.feed.Run(ctx) }()
		t.Cleanup(func() { stop(); <-done })
		test(t, r)
	})
}

// newFixture makes a fixture whose feed does not run.
func newFixture(t *testing.T, d *db.DB) fixture {
	t.Helper()
	for _, ws := range []tenant.ID{mine, theirs} {
		if _, err := db.Exec(t.Context(), d.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, ws); err != nil {
			t.Fatal(err)
		}
	}
	aliases := live.NewAliases()
	pub := alias.NewPublisher(d, aliases)
	f := feed.New(d, slog.New(slog.DiscardHandler), pub.Sources())
	return fixture{Store: alias.NewStore(d, f), db: d, feed: f, live: aliases, pub: pub}
}

func (r fixture) put(t *testing.T, ws tenant.ID, a alias.Alias) alias.Alias {
	t.Helper()
	kept, err := r.Put(t.Context(), ws, ann, a)
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func (r fixture) history(t *testing.T, ws tenant.ID, name string) []audit.Entry {
	t.Helper()
	entries, err := r.History(t.Context(), ws, name, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// target is what the name routes to, or empty when it is unknown.
func (r fixture) target(ws tenant.ID, name string) string {
	if a, ok := r.live.Find(ws, name); ok {
		return a.Target
	}
	return ""
}

func missing(t *testing.T, what string, err error) {
	t.Helper()
	var f *fault.Fault
	if !errors.As(err, &f) || f.Kind != fault.Missing {
		t.Errorf("%s: want not_found, got %v", what, err)
	}
}

// text is v as it stands on the wire and in the audit trail.
func text(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestAnAliasIsKeptAndInForceAsItWasPut(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		start := clock.Now()
		for _, want := range []alias.Alias{
			{Name: "support", TargetModel: "sim/chat", FallbackModels: alias.Models{}},
			{Name: "support", TargetModel: "sim/chat", Description: "é\n'\"\\", CanaryModel: "sim/c", CanaryPercent: 100, FallbackModels: alias.Models{"sim/d", `odd "id", [x]`}},
			{Name: "support", TargetModel: "sim/c", FallbackModels: alias.Models{}}, // what is not given again is gone
		} {
			kept := r.put(t, mine, want)
			if kept.CreatedAt < start || kept.UpdatedAt < kept.CreatedAt {
				t.Errorf("created %s, updated %s", kept.CreatedAt, kept.UpdatedAt)
			}
			want.Object, want.CreatedAt, want.UpdatedAt = "alias", kept.CreatedAt, kept.UpdatedAt
			got, err := r.Get(t.Context(), mine, "support")
			if err != nil || text(t, got) != text(t, want) || text(t, kept) != text(t, want) {
				t.Errorf("want %+v, got %+v and %+v, %v", want, kept, got, err)
			}
			in, ok := r.live.Find(mine, "support")
			wanted := live.Alias{Name: "support", Target: want.TargetModel, Canary: want.CanaryModel, CanaryPercent: want.CanaryPercent, Fallbacks: want.FallbackModels, Created: kept.CreatedAt}
			if !ok || fmt.Sprint(*in) != fmt.Sprint(wanted) {
				t.Errorf("in force is %+v", in)
			}
		}
	})
}

func TestARepointKeepsWhenItWasCreatedAndMovesWhenItWasUpdated(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		first := r.put(t, mine, alias.Alias{Name: "support", TargetModel: "sim/chat"})
		time.Sleep(time.Millisecond)
		second := r.put(t, mine, alias.Alias{Name: "support", TargetModel: "sim/c"})
		if second.CreatedAt != first.CreatedAt || second.UpdatedAt <= first.UpdatedAt {
			t.Errorf("first %+v, second %+v", first, second)
		}
		if err := r.Delete(t.Context(), mine, ann, "support"); err != nil {
			t.Fatal(err)
		}
		if again := r.put(t, mine, alias.Alias{Name: "support", TargetModel: "sim/c"}); again.CreatedAt <= second.UpdatedAt {
			t.Errorf("made again, it was created at %s", again.CreatedAt)
		}
	})
}

func TestEveryChangeIsAuditedBeforeAndAfterAndReadableAfterDeletion(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		first := r.put(t, mine, alias.Alias{Name: "support", TargetModel: "sim/chat"})
		second := r.put(t, mine, alias.Alias{Name: "support", TargetModel: "sim/c", Description: "cheaper"})
		r.put(t, mine, alias.Alias{Name: "other", TargetModel: "sim/chat"})
		r.put(t, theirs, alias.Alias{Name: "support", TargetModel: "sim/chat"})
		if err := r.Delete(audit.WithRequest(t.Context(), "req_1"), mine, ann, "support"); err != nil {
			t.Fatal(err)
		}
		want := []audit.Entry{
			{Action: "alias.delete", RequestID: "req_1", Before: []byte(text(t, second)), After: []byte("null")},
			{Action: "alias.put", Before: []byte(text(t, first)), After: []byte(text(t, second))},
			{Action: "alias.put", Before: []byte("null"), After: []byte(text(t, first))},
		}
		got := r.history(t, mine, "support")
		if len(got) != len(want) {
			t.Fatalf("want %d entries, got %v", len(want), got)
		}
		for i, w := range want {
			w.ID, w.At, w.Object, w.Actor, w.Subject = got[i].ID, got[i].At, "audit_entry", ann, "support"
			if text(t, got[i]) != text(t, w) {
				t.Errorf("want %s, got %s", text(t, w), text(t, got[i]))
			}
		}
		page, err := r.History(t.Context(), mine, "support", 1, 1)
		if err != nil || len(page) != 1 || page[0].ID != got[1].ID {
			t.Errorf("the second page is %v, %v", page, err)
		}
		if behind, err := r.History(t.Context(), mine, "support", 1, 3); err != nil || len(behind) != 0 {
			t.Errorf("behind the end is %v, %v", behind, err)
		}
	})
}

func TestAPutThatMakesNoDifferenceIsNotAuditedAndChangesNoTime(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		a := alias.Alias{Name: "support", TargetModel: "sim/chat", CanaryModel: "sim/c", FallbackModels: alias.Models{"sim/d", "sim/e"}}
		first := r.put(t, mine, a)
		time.Sleep(time.Millisecond)
		if again := r.put(t, mine, a); text(t, again) != text(t, first) {
			t.Errorf("first %+v, again %+v", first, again)
		}
		if entries := r.history(t, mine, "support"); len(entries) != 1 {
			t.Errorf("audited: %v", entries)
		}
		for n, change := range []func(*alias.Alias){
			func(a *alias.Alias) { a.TargetModel = "sim/f" },
			func(a *alias.Alias) { a.Description = "x" },
			func(a *alias.Alias) { a.CanaryModel = "sim/f" },
			func(a *alias.Alias) { a.CanaryPercent = 1 },
			func(a *alias.Alias) { a.FallbackModels = alias.Models{"sim/e", "sim/d"} },
		} {
			change(&a)
			r.put(t, mine, a)
			if entries := r.history(t, mine, "support"); len(entries) != n+2 {
				t.Errorf("change %d is not audited: %v", n, entries)
			}
		}
	})
}

func TestADeletedAliasIsUnknownWhenDeleteReturns(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		for range 10 {
			r.put(t, mine, alias.Alias{Name: "support", TargetModel: "sim/chat"})
			if got := r.target(mine, "support"); got != "sim/chat" {
				t.Fatalf("routes to %q", got)
			}
			if err := r.Delete(t.Context(), mine, ann, "support"); err != nil {
				t.Fatal(err)
			}
			if got := r.target(mine, "support"); got != "" {
				t.Fatalf("deleted, it routes to %q", got)
			}
			_, err := r.Get(t.Context(), mine, "support")
			missing(t, "get", err)
			missing(t, "delete again", r.Delete(t.Context(), mine, ann, "support"))
		}
		if entries := r.history(t, mine, "support"); len(entries) != 20 {
			t.Errorf("%d entries", len(entries))
		}
	})
}

func TestAnotherWorkspacesAliasDoesNotExist(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		kept := r.put(t, theirs, alias.Alias{Name: "support", TargetModel: "sim/chat"})
		_, err := r.Get(t.Context(), mine, "support")
		missing(t, "get", err)
		_, err = r.History(t.Context(), mine, "support", 10, 0)
		missing(t, "history", err)
		missing(t, "delete", r.Delete(t.Context(), mine, ann, "support"))
		if all, err := r.List(t.Context(), mine, 10, 0); err != nil || len(all) != 0 {
			t.Errorf("list: %v, %v", all, err)
		}
		if got := r.target(mine, "support"); got != "" {
			t.Errorf("routes to %q", got)
		}
		r.put(t, mine, alias.Alias{Name: "support", TargetModel: "sim/c"})
		if err := r.Delete(t.Context(), mine, ann, "support"); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Get(t.Context(), theirs, "support"); err != nil || text(t, got) != text(t, kept) || r.target(theirs, "support") != "sim/chat" {
			t.Errorf("theirs is %+v, %v", got, err)
		}
	})
}

// A name may look like the id of something else that is audited.
func TestTheHistoryOfANameIsThatOfAliasesAlone(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		if _, err := r.db.Tx(t.Context(), func(tx *db.Tx) error {
			return audit.Record(t.Context(), tx, mine, ann, "key.revoke", "key_1", nil, "a key")
		}); err != nil {
			t.Fatal(err)
		}
		_, err := r.History(t.Context(), mine, "key_1", 10, 0)
		missing(t, "history", err)
		r.put(t, mine, alias.Alias{Name: "key_1", TargetModel: "sim/chat"})
		if entries := r.history(t, mine, "key_1"); len(entries) != 1 || entries[0].Action != "alias.put" {
			t.Errorf("%v", entries)
		}
	})
}

func TestListIsNewestFirstAndByNameWithinAnInstant(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		for _, name := range []string{"old", "bbb", "aaa", "ccc", "new"} {
			r.put(t, mine, alias.Alias{Name: name, TargetModel: "sim/chat"})
			at := map[string]int{"old": 1, "new": 3}[name]
			if _, err := db.Exec(t.Context(), r.db.In(mine), `UPDATE aliases SET created_at = $3 WHERE workspace_id = $1 AND name = $2`, name, cmp.Or(at, 2)); err != nil {
				t.Fatal(err)
			}
		}
		r.put(t, mine, alias.Alias{Name: "old", TargetModel: "sim/c"}) // a repoint makes nothing newer
		var paged []string
		for offset := range 6 {
			page, err := r.List(t.Context(), mine, 1, offset)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range page {
				paged = append(paged, a.Name)
			}
		}
		if want := []string{"new", "aaa", "bbb", "ccc", "old"}; !slices.Equal(paged, want) {
			t.Errorf("want %v, got %v", want, paged)
		}
	})
}

// A change and its audit entry are one: when the entry cannot be written, the change has not happened.
func TestNoChangeWithoutItsAuditEntry(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		kept := r.put(t, mine, alias.Alias{Name: "support", TargetModel: "sim/chat"})
		if _, err := db.Exec(t.Context(), r.db.Across("test"), `ALTER TABLE audit_entries RENAME TO elsewhere`); err != nil {
			t.Fatal(err)
		}
		for what, change := range map[string]func() error{
			"repoint": func() error {
				_, err := r.Put(t.Context(), mine, ann, alias.Alias{Name: "support", TargetModel: "sim/c"})
				return err
			},
			"create": func() error {
				_, err := r.Put(t.Context(), mine, ann, alias.Alias{Name: "other", TargetModel: "sim/c"})
				return err
			},
			"delete": func() error { return r.Delete(t.Context(), mine, ann, "support") },
		} {
			if err := change(); err == nil {
				t.Errorf("%s happened without an audit entry", what)
			}
		}
		if err := r.feed.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		all, err := r.List(t.Context(), mine, 10, 0)
		if err != nil || len(all) != 1 || text(t, all[0]) != text(t, kept) || r.target(mine, "support") != "sim/chat" || r.target(mine, "other") != "" {
			t.Errorf("%+v, %v", all, err)
		}
	})
}
