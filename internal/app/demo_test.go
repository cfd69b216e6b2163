package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A shownDemo is a demo as its owner reads it.
type shownDemo struct {
	ID          string
	WorkspaceID tenant.ID `json:"workspace_id"`
	Name        string
	Status      string
	Error       *string
	Skipped     []string
	Progress    struct{ Done, Total int }
}

// demo asks for a demo.
func (c *dashboardClient) demo(t *testing.T, person string) (made shownDemo) {
	t.Helper()
	status, text := c.ask(t, person, "POST", "/dashboard/api/demo", "")
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusAccepted {
		t.Fatal(status, text, err)
	}
	return made
}

// ended waits until a job of a workspace has ended, and returns its status.
func (c *dashboardClient) ended(t *testing.T, ws tenant.ID, where string) string {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		status, err := db.Maybe[string](t.Context(), c.i.storage.db.In(ws), `
			SELECT status FROM jobs WHERE workspace_id = $1 AND finished_at IS NOT NULL AND `+where)
		if err != nil {
			t.Fatal(err)
		}
		if status != nil {
			return *status
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not end: " + where)
		}
	}
}

// proves fails the test unless `ledger verify` passes.
func (c *dashboardClient) proves(t *testing.T) {
	t.Helper()
	if err := c.i.state.poster.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := c.i.storage.sealer.Snapshot(t.Context(), func(all db.Scoped, keys chain.Keys) error {
		proof, err := wallet.VerifyChain(t.Context(), all, keys, "")
		if err == nil && !proof.OK {
			t.Errorf("the ledger: %q", proof.Problems)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// tablesWith returns the tables of both databases in which a text stands.
func (c *dashboardClient) tablesWith(t *testing.T, word string) (found []string) {
	t.Helper()
	for _, d := range []*db.DB{c.i.storage.db, c.i.storage.logs} {
		all := d.Across("test")
		tables, err := db.Tables(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			for row, err := range db.Dump(t.Context(), all, table) {
				if err != nil {
					t.Fatal(err)
				}
				if has(row, word) {
					found = append(found, table.Name)
					break
				}
			}
		}
	}
	return found
}

// has reports whether a value of a row holds a text.
func has(row []any, word string) bool {
	for _, v := range row {
		switch v := v.(type) {
		case string:
			if strings.Contains(strings.ToLower(v), word) {
				return true
			}
		case []byte:
			if strings.Contains(strings.ToLower(string(v)), word) {
				return true
			}
		}
	}
	return false
}

func TestADemoFillsEveryPageAndLeavesNothingButItsTrails(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		made := c.demo(t, "owner")
		if status := c.ended(t, made.WorkspaceID, `kind = 'demo'`); status != "DONE" {
			_, text := c.ask(t, "owner", "GET", "/dashboard/api/w/"+string(made.WorkspaceID)+"/demo", "")
			t.Fatal(text)
		}
		inside := *c
		inside.people.Workspace = made.WorkspaceID
		inside.wants(t, "owner", "GET", "/demo", "", 200, `"status":"DONE"`, `"step":""`)
		for path, part := range map[string]string{
			"logs?limit=1": `"total":6`, "traces": `zephyrine-refund-12`, "labels?limit=1": `(demo)`,
			"datasets": `"support-eval"`, "evals": `"status":"DONE"`, "aliases": `"canary_model":"sim/chat-large"`,
			"reward/sessions": `"scored":160`,
		} {
			if status, text := c.ask(t, "owner", "GET", "/dashboard/v1/"+string(made.WorkspaceID)+"/"+path, ""); status != 200 || !strings.Contains(text, part) {
				t.Errorf("%s: %d, without %s: %.600s", path, status, part, text)
			}
		}
		// How well the anchor does depends on which labels the workspace's secret puts in the report half.
		_, text := c.ask(t, "owner", "GET", "/dashboard/v1/"+string(made.WorkspaceID)+"/criteria", "")
		if !strings.Contains(text, `"trust":"calibrated"`) && !strings.Contains(text, `"trust":"certified"`) {
			t.Errorf("no judge is good enough for an anchor: %s", text)
		}
		var queues struct {
			Data []struct {
				Counts struct{ Items int }
				Fill   struct{ Status string }
			}
		}
		if err := json.Unmarshal([]byte(inside.wants(t, "owner", "GET", "/queues", "", 200)), &queues); err != nil || len(queues.Data) != 3 {
			t.Errorf("%+v %v", queues, err)
		}
		for _, q := range queues.Data {
			if q.Fill.Status != "DONE" || q.Counts.Items == 0 {
				t.Errorf("a queue without items to grade: %+v", q)
			}
		}
		inside.wants(t, "owner", "GET", "/demo", "", 200, `"skipped":[]`)
		inside.wants(t, "owner", "GET", "/home", "", 200, `"title":"Calibration of Answers the question"`, `"title":"Items for Answers to customers"`,
			`"title":"Eval Large in place of chat"`, `"title":"Dataset support"`, `"page":"evals/eval_`, `"page":"review/rq_`, `"query":"tab=calibrations&run=cal_`)
		c.proves(t)
		if text := c.tablesWith(t, "zephyrine"); len(text) < 8 {
			t.Errorf("the word to look for is in %q alone", text)
		}

		var key struct {
			APIKey string `json:"api_key"`
		}
		if err := json.Unmarshal([]byte(inside.wants(t, "owner", "POST", "/keys", `{"name":"mine"}`, 201)), &key); err != nil {
			t.Fatal(err)
		}
		inside.wants(t, "owner", "DELETE", "/demo", "", 200, `"deleted":true`)
		if got := statusOf(t, c.i.routers.public, "GET", "/v1/models", key.APIKey); got != http.StatusUnauthorized {
			t.Errorf("a key of a deleted demo gets %d", got)
		}
		inside.wants(t, "owner", "GET", "/demo", "", 404)
		if _, text := c.ask(t, "owner", "GET", "/dashboard/api/session", ""); strings.Contains(text, string(made.WorkspaceID)) {
			t.Errorf("it is still listed: %s", text)
		}
		if status := c.ended(t, made.WorkspaceID, `kind = 'demo_deletion'`); status != "DONE" {
			t.Fatal("the deletion is " + status)
		}
		for _, table := range c.tablesWith(t, "zephyrine") {
			if table != "audit_entries" { // it says who made and deleted what
				t.Errorf("%s has text of the demo", table)
			}
		}
		if b := wallettest.Shown(t, c.i.domains.wallets, made.WorkspaceID); b.Held != 0 {
			t.Errorf("%s is still held", b.Held)
		}
		c.proves(t)
		for _, left := range []string{ // by a deletion that failed long ago
			`INSERT INTO saved_views (workspace_id, id, owner_id, page, name, query, shared, created_at, updated_at)
				VALUES ($1, 'view_1', 'usr_1', 'logs', 'left', '', FALSE, 0, 0)`,
			`UPDATE jobs SET status = 'FAILED' WHERE workspace_id = $1 AND kind = 'demo_deletion'`,
			`UPDATE demos SET deleted_at = 1 WHERE workspace_id = $1`,
		} {
			if _, err := db.Exec(t.Context(), c.i.storage.db.In(made.WorkspaceID), left); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.i.dash.demos.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := dbtest.Count(t, c.i.storage.db, "saved_views"); n != 0 {
			t.Errorf("%d rows are left of a deletion that failed", n)
		}
		if again := c.demo(t, "owner"); again.WorkspaceID == made.WorkspaceID || again.Name != made.Name {
			t.Errorf("%+v after %+v", again, made)
		}
	})
}

func TestADemoIsForOwnersOnceAndSpendsOnSimulatedModelsAlone(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		for _, person := range []string{"admin", "member", "nobody"} {
			if status, text := c.ask(t, person, "POST", "/dashboard/api/demo", ""); status != http.StatusPreconditionFailed {
				t.Errorf("%s: %d %s", person, status, text)
			}
		}
		first, second, others := c.demo(t, "owner"), c.demo(t, "owner"), c.demo(t, "other")
		if first.WorkspaceID != second.WorkspaceID || first.WorkspaceID == others.WorkspaceID || others.Name == first.Name {
			t.Errorf("%+v, %+v, %+v", first, second, others)
		}
		if _, text := c.ask(t, "owner", "GET", "/dashboard/api/session", ""); !strings.Contains(text, `"demo":true`) || !strings.Contains(text, `"demo":false`) {
			t.Errorf("a demo is not told apart: %s", text)
		}
		c.wants(t, "owner", "GET", "/demo", "", 404, "no demo")
		c.wants(t, "owner", "DELETE", "/demo", "", 404, "no demo")
		inside := *c
		inside.people.Workspace = first.WorkspaceID
		for _, person := range []string{"member", "other"} {
			inside.wants(t, person, "GET", "/demo", "", 404)
			inside.wants(t, person, "DELETE", "/demo", "", 404)
		}
		inside.wants(t, "owner", "PATCH", "/limits", `{"models":[]}`, 409, "simulated models alone")
		inside.wants(t, "owner", "PATCH", "/limits", `{"requests_per_minute":100000}`, 200, `"sim/*"`)
		if _, err := c.i.domains.workspaces.AddMember(t.Context(), first.WorkspaceID, tenant.Operator, "member@one.test", tenant.Admin); err != nil {
			t.Fatal(err)
		}
		inside.wants(t, "member", "GET", "/demo", "", 200, fmt.Sprintf(`"workspace_id":%q`, first.WorkspaceID))
		inside.wants(t, "member", "DELETE", "/demo", "", 403)
		inside.wants(t, "member", "POST", "/demo/cancel", "", 403)
		if status, _ := inside.ask(t, "owner", "POST", "/dashboard/api/w/"+string(first.WorkspaceID)+"/demo/cancel", ""); status != 200 && status != 409 {
			t.Errorf("cancelling: %d", status)
		}
		c.ended(t, first.WorkspaceID, `kind = 'demo'`)
		inside.wants(t, "owner", "DELETE", "/demo", "", 200)
		inside.wants(t, "member", "GET", "/demo", "", 404)
		inside.wants(t, "owner", "DELETE", "/demo", "", 404)
	})
}
