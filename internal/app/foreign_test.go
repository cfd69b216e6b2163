package app

import (
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

var anID = regexp.MustCompile(`^[a-z]+_[0-9a-z]{20,}$`)

// idsOf returns the ids that stand in the rows of a workspace, the first of each kind, and the names of its aliases.
func (c *dashboardClient) idsOf(t *testing.T, ws tenant.ID) []string {
	t.Helper()
	kinds := map[string]string{}
	for _, d := range []*db.DB{c.i.storage.db, c.i.storage.logs} {
		tables, err := db.Tables(t.Context(), d.Across("test"))
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			for row, err := range db.Dump(t.Context(), d.Across("test"), table) {
				if err != nil {
					t.Fatal(err)
				}
				if !has(row, string(ws)) {
					continue
				}
				for _, v := range row {
					text, _ := v.(string)
					if kind, _, _ := strings.Cut(text, "_"); anID.MatchString(text) && kinds[kind] == "" {
						kinds[kind] = text
					}
				}
			}
		}
	}
	names, err := db.Query[string](t.Context(), c.i.storage.db.In(ws),
		`SELECT name FROM aliases WHERE workspace_id = $1`)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range kinds {
		names = append(names, id)
	}
	slices.Sort(names)
	return names
}

// The owner of one workspace tries the ids of another's things, of every kind, on every route.
func TestSerialNoIDOfAnotherWorkspaceOpensAnything(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		made := c.demo(t, "owner")
		if status := c.ended(t, made.WorkspaceID, `kind = 'demo'`); status != "DONE" {
			t.Fatal(status)
		}
		server := httptest.NewServer(c.i.routers.public)
		defer server.Close()
		changes := "audit_entries WHERE actor_kind = 'session' AND action <> 'session.begin'"
		before := dbtest.Count(t, c.i.storage.db, changes)
		ids := c.idsOf(t, made.WorkspaceID)
		opened := apitest.ForeignIDs(t, server.URL, c.i.routers.routes,
			apitest.Resident{Workspace: made.WorkspaceID, Cookie: c.people.Session("owner", false)},
			apitest.Resident{Workspace: c.people.Elsewhere, Cookie: c.people.Session("other", false)}, ids)
		t.Logf("%d kinds of ids, %d routes opened by their owner", len(ids), opened)
		if len(ids) < 12 || opened < 20 {
			t.Errorf("the demo has %d kinds of ids, and they open %d routes: too few to tell", len(ids), opened)
		}
		// All that was read, and all that was refused, has changed nothing.
		if after := dbtest.Count(t, c.i.storage.db, changes); after != before {
			t.Errorf("%d entries of the audit trail, and %d before", after, before)
		}
	})
}
