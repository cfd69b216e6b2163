package audit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

var ann = tenant.Caller{Workspace: "ws_1", User: "usr_ann", Key: "key_1"}.Actor()

// record writes one entry in a transaction of its own.
func record(ctx context.Context, t *testing.T, d *db.DB, ws tenant.ID, action, subject string, before, after any) {
	t.Helper()
	if _, err := d.Tx(ctx, func(tx *db.Tx) error {
		return audit.Record(ctx, tx, ws, ann, action, subject, before, after)
	}); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, d *db.DB, ws tenant.ID, action string, limit, offset int) []audit.Entry {
	t.Helper()
	entries, err := audit.List(t.Context(), d, ws, action, limit, offset)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func subjects(entries []audit.Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Subject)
	}
	return all
}

func TestAnEntryCommitsAndRollsBackWithItsChange(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		boom := errors.New("boom")
		for _, outcome := range []error{boom, nil} {
			_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
				if _, err := db.Exec(t.Context(), tx.In("ws_1"), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, 'a', 1)`); err != nil {
					return err
				}
				if err := audit.Record(t.Context(), tx, "ws_1", ann, "workspace.create", "ws_1", nil, "a"); err != nil {
					return err
				}
				if entries := list(t, d, "ws_1", "", 10, 0); len(entries) != 0 {
					t.Errorf("others see the entry before its change commits: %v", entries)
				}
				return outcome
			})
			if !errors.Is(err, outcome) {
				t.Fatal(err)
			}
			changes, err := db.One[int](t.Context(), d.Across("test"), `SELECT COUNT(*) FROM workspaces`)
			if entries := list(t, d, "ws_1", "", 10, 0); err != nil || len(entries) != changes || (outcome == nil) != (changes == 1) {
				t.Errorf("%d changes and %d entries, %v", changes, len(entries), err)
			}
		}
	})
}

func TestAnEntryHoldsActorTimeBeforeAndAfter(t *testing.T) {
	type role struct {
		Role tenant.Role `json:"role"`
		Key  secret.Text `json:"key"`
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, start := audit.WithRequest(t.Context(), "req_1"), clock.Now()
		record(ctx, t, d, "ws_1", "member.role", "usr_bob", role{Role: tenant.Member, Key: secret.New("canary")}, &role{Role: tenant.Admin})
		e := list(t, d, "ws_1", "", 10, 0)[0]
		if !id.Has("aud", e.ID) || e.At < start || e.At > clock.Now() {
			t.Errorf("id %s at %s", e.ID, e.At)
		}
		if before, after := string(e.Before), string(e.After); before != `{"role":"member","key":"[redacted]"}` || after != `{"role":"admin","key":"[redacted]"}` {
			t.Errorf("before %s after %s", before, after)
		}
		e.ID, e.At, e.Before, e.After = "", 0, nil, nil
		want := audit.Entry{Object: "audit_entry", Actor: ann, RequestID: "req_1", Action: "member.role", Subject: "usr_bob"}
		if fmt.Sprint(e) != fmt.Sprint(want) {
			t.Errorf("want %v, got %v", want, e)
		}
	})
}

func TestNothingBeforeOrAfterIsNull(t *testing.T) {
	var none *struct{}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		record(t.Context(), t, d, "ws_1", "a", "untyped", nil, nil)
		record(t.Context(), t, d, "ws_1", "a", "typed", none, none)
		for _, e := range list(t, d, "ws_1", "", 10, 0) {
			if string(e.Before) != "null" || string(e.After) != "null" || e.RequestID != "" {
				t.Errorf("%s: before %s after %s", e.Subject, e.Before, e.After)
			}
		}
		if n, err := db.One[int](t.Context(), d.Across("test"), `SELECT COUNT(*) FROM audit_entries WHERE before_json IS NULL AND after_json IS NULL`); err != nil || n != 2 {
			t.Errorf("%d of 2 are NULL, %v", n, err)
		}
	})
}

func TestAValueThatCannotBeEncodedFailsTheChange(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, pair := range [][2]any{{make(chan int), nil}, {nil, make(chan int)}} {
			_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
				return audit.Record(t.Context(), tx, "ws_1", ann, "a", "s", pair[0], pair[1])
			})
			if err == nil {
				t.Error("recorded")
			}
		}
	})
}

func TestListIsNewestFirstByActionAndOfOneWorkspace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for i := range 6 {
			record(t.Context(), t, d, "ws_1", []string{"key.create", "key.revoke"}[i%2], strconv.Itoa(i), nil, i)
			record(t.Context(), t, d, "ws_2", "key.create", "another's", nil, i)
			time.Sleep(2 * time.Microsecond)
		}
		for _, c := range []struct {
			action        string
			limit, offset int
			want          []string
		}{
			{"", 10, 0, []string{"5", "4", "3", "2", "1", "0"}},
			{"", 2, 1, []string{"4", "3"}},
			{"key.create", 10, 0, []string{"4", "2", "0"}},
			{"key.revoke", 1, 2, []string{"1"}},
			{"", 10, 6, nil},
			{"key", 10, 0, nil},
		} {
			if got := subjects(list(t, d, "ws_1", c.action, c.limit, c.offset)); !slices.Equal(got, c.want) {
				t.Errorf("%q limit %d offset %d: want %v, got %v", c.action, c.limit, c.offset, c.want, got)
			}
		}
		if entries, err := audit.List(t.Context(), d, "", "", 10, 0); err == nil {
			t.Errorf("no workspace lists %v", entries)
		}
	})
}

func TestHistoryIsOfOneSubjectAndKindNewestFirst(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for i, action := range []string{"alias.put", "alias.put", "key.revoke", "alias.delete", "aliases.put", "alias"} {
			record(t.Context(), t, d, "ws_1", action, "key_1", nil, i)
			record(t.Context(), t, d, "ws_1", action, "key_2", nil, "another subject's")
			record(t.Context(), t, d, "ws_2", action, "key_1", nil, "another workspace's")
			time.Sleep(2 * time.Microsecond)
		}
		for _, c := range []struct {
			kind          string
			limit, offset int
			want          []string
		}{
			{"alias", 10, 0, []string{"3", "1", "0"}},
			{"alias", 1, 1, []string{"1"}},
			{"alias", 10, 3, nil},
			{"key", 10, 0, []string{"2"}},
			{"", 10, 0, nil},
		} {
			entries, err := audit.History(t.Context(), d, "ws_1", c.kind, "key_1", c.limit, c.offset)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, string(e.After))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q limit %d offset %d: want %v, got %v", c.kind, c.limit, c.offset, c.want, got)
			}
		}
		if entries, err := audit.History(t.Context(), d, "", "alias", "key_1", 10, 0); err == nil {
			t.Errorf("no workspace reads %v", entries)
		}
	})
}

func TestEntriesOfTheSameTimeHaveAStableOrder(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for i := range 20 {
			record(t.Context(), t, d, "ws_1", "a", strconv.Itoa(i), nil, nil)
		}
		if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE audit_entries SET at = 1`); err != nil {
			t.Fatal(err)
		}
		var paged []audit.Entry
		for offset := range 20 {
			paged = append(paged, list(t, d, "ws_1", "", 1, offset)...)
		}
		if !slices.IsSortedFunc(paged, func(a, b audit.Entry) int { return strings.Compare(b.ID, a.ID) }) || len(paged) != 20 {
			t.Errorf("pages are in the order %v", subjects(paged))
		}
	})
}
