package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/db"
)

// A dashboardClient calls the dashboard's routes of a workspace with people's cookies.
type dashboardClient struct {
	i      *instance
	people apitest.People
}

// ask returns the status and the body of the answer to a person.
func (c *dashboardClient) ask(t *testing.T, person, method, path, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
	r.Header.Set("Cookie", c.people.Session(person, false))
	recorder := httptest.NewRecorder()
	c.i.routers.public.ServeHTTP(recorder, r)
	return recorder.Code, recorder.Body.String()
}

// wants fails the test unless the answer has that status, and holds every text.
func (c *dashboardClient) wants(t *testing.T, person, method, path, body string, status int, texts ...string) string {
	t.Helper()
	got, text := c.ask(t, person, method, "/dashboard/api/w/"+string(c.people.Workspace)+path, body)
	if got != status {
		t.Errorf("%s %s as %s: want %d, got %d %s", method, path, person, status, got, text)
	}
	for _, part := range texts {
		if !strings.Contains(text, part) {
			t.Errorf("%s %s as %s: no %s in %s", method, path, person, part, text)
		}
	}
	return text
}

func eachDashboard(t *testing.T, test func(t *testing.T, c *dashboardClient)) {
	t.Helper()
	eachInstance(t, func(t *testing.T, i *instance) { test(t, &dashboardClient{i, addPeople(t, i)}) })
}

// user returns the id of the person with that address.
func (c *dashboardClient) user(t *testing.T, email string) string {
	t.Helper()
	user, err := db.One[string](t.Context(), c.i.storage.db.Across("test"), `SELECT id FROM users WHERE email = $1`, email)
	if err != nil {
		t.Fatal(err)
	}
	return user
}

func TestAdminsManageMembersAndOwnersManageOwners(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		member, admin, owner := c.user(t, "member@one.test"), c.user(t, "admin@one.test"), c.user(t, "owner@one.test")
		c.wants(t, "member", "GET", "/members", "", 200, "owner@one.test", "admin@one.test")
		c.wants(t, "member", "PATCH", "/members/"+member, `{"role":"admin"}`, 403)
		c.wants(t, "admin", "PATCH", "/members/"+member, `{"role":"owner"}`, 403)
		c.wants(t, "admin", "PATCH", "/members/"+owner, `{"role":"member"}`, 403)
		c.wants(t, "admin", "DELETE", "/members/"+owner, "", 403)
		c.wants(t, "admin", "PATCH", "/members/"+member, `{"role":"admin"}`, 200, `"role":"admin"`)
		c.wants(t, "member", "GET", "/audit?action=member.role", "", 200, `"kind":"session"`, `"session_id":"ses_`, `"action":"member.role"`)
		c.wants(t, "owner", "PATCH", "/members/"+member, `{"role":"member"}`, 200)
		c.wants(t, "member", "GET", "/audit", "", 403)
		c.wants(t, "member", "DELETE", "/members/"+admin, "", 403)
		c.wants(t, "owner", "DELETE", "/members/"+owner, "", 409, "at least one owner")
		c.wants(t, "owner", "PATCH", "/members/"+c.user(t, "owner@other.test"), `{"role":"member"}`, 404)
		c.wants(t, "member", "DELETE", "/members/"+member, "", 200) // everybody may leave
		got, _ := c.ask(t, "member", "GET", "/dashboard/api/w/"+string(c.people.Workspace)+"/members", "")
		if got != http.StatusUnauthorized { // it was the last workspace: the session is gone
			t.Errorf("after leaving: %d", got)
		}
	})
}

func TestPeopleMintAndRevokeTheirOwnKeysAndAdminsAnybodys(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		var made struct {
			ID     string
			APIKey string `json:"api_key"`
			UserID string `json:"user_id"`
		}
		if err := json.Unmarshal([]byte(c.wants(t, "member", "POST", "/keys", `{"name":"mine","requests_per_minute":5}`, 201)), &made); err != nil {
			t.Fatal(err)
		}
		if made.UserID != c.user(t, "member@one.test") || statusOf(t, c.i.routers.public, "GET", "/v1/models", made.APIKey) != 200 {
			t.Errorf("%+v", made)
		}
		if statusOf(t, c.i.routers.public, "PUT", "/v1/aliases", made.APIKey) != 403 {
			t.Error("a member's key manages")
		}
		own, all := c.wants(t, "member", "GET", "/keys", "", 200, made.ID), c.wants(t, "admin", "GET", "/keys", "", 200, made.ID)
		if strings.Contains(own, "owner@one.test") || !strings.Contains(all, "owner@one.test") || strings.Contains(all, made.APIKey) {
			t.Errorf("%s\n%s", own, all)
		}
		var others struct{ Data []struct{ ID, Email string } }
		if err := json.Unmarshal([]byte(all), &others); err != nil {
			t.Fatal(err)
		}
		for _, key := range others.Data {
			if key.Email != "member@one.test" {
				c.wants(t, "member", "POST", "/keys/"+key.ID+"/revocation", "", 404, `in this workspace`)
			}
		}
		c.wants(t, "member", "PATCH", "/keys/"+made.ID, `{"requests_per_minute":0}`, 403)
		c.wants(t, "admin", "PATCH", "/keys/"+made.ID, `{"requests_per_minute":7}`, 200, `"requests_per_minute":7`)
		c.wants(t, "member", "POST", "/keys/"+made.ID+"/revocation", "", 200, `"revoked_at":"20`)
		if statusOf(t, c.i.routers.public, "GET", "/v1/models", made.APIKey) != 401 {
			t.Error("a revoked key works")
		}
	})
}

func TestSettingsLimitsEvidenceAndQuotasAreReadByAllAndChangedByFew(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		c.wants(t, "member", "PATCH", "/settings", `{"log_retention_days":30}`, 403)
		c.wants(t, "admin", "PATCH", "/settings", `{"log_retention_days":31}`, 400)
		c.wants(t, "admin", "PATCH", "/settings", `{"log_retention_days":30}`, 200, `"log_retention_days":30`)
		if c.i.state.settings.Of(c.people.Workspace).LogDays != 30 {
			t.Error("the consent is not in force")
		}
		c.wants(t, "member", "GET", "/settings", "", 200, `"log_retention_days":30`)
		c.wants(t, "admin", "PATCH", "/limits", `{"requests_per_minute":9}`, 403)
		c.wants(t, "owner", "PATCH", "/limits", `{"allowed_addresses":["10.0.0.0/8"]}`, 400, "127.0.0.1")
		c.wants(t, "owner", "PATCH", "/limits", `{"requests_per_minute":9,"allowed_addresses":["127.0.0.0/8"]}`, 200)
		c.wants(t, "member", "GET", "/limits", "", 200, `"requests_per_minute":9`)
		c.wants(t, "admin", "PATCH", "/evidence", `{"required":true}`, 403)
		c.wants(t, "owner", "PATCH", "/evidence", `{"required":true}`, 200, `"required":true`)
		c.wants(t, "member", "GET", "/evidence", "", 200, `"required":true`)
		c.wants(t, "member", "GET", "/quotas", "", 200, `"kind":"members"`, `"kind":"invitations"`)
		c.wants(t, "member", "GET", "/providers", "", 200, `"name":"anthropic"`, `"own_key":false`)
	})
}

func TestAnAddressThatTheWorkspaceRefusesIsRefusedToSessionsToo(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		if code, text := operate(t, c.i, "PATCH", "/admin/limits?workspace=one", `{"allowed_addresses":["10.0.0.0/8"]}`); code != 200 {
			t.Fatal(code, text)
		}
		c.wants(t, "owner", "GET", "/members", "", 403, "address_not_allowed")
		if got, _ := c.ask(t, "nobody", "GET", "/dashboard/api/w/"+string(c.people.Workspace)+"/members", ""); got != 404 {
			t.Errorf("a stranger learns of the workspace: %d", got)
		}
	})
}

// operate calls a route of the operator.
func operate(t *testing.T, i *instance, method, path, body string) (int, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	i.routers.operators.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return recorder.Code, recorder.Body.String()
}

func TestTheAuditTrailIsSearchedFromACursor(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		for range 5 {
			c.wants(t, "owner", "PATCH", "/settings", `{"cache":true}`, 200)
		}
		type page struct {
			Data    []struct{ ID, Action string }
			HasMore bool `json:"has_more"`
		}
		read := func(query string) (p page) {
			if err := json.Unmarshal([]byte(c.wants(t, "owner", "GET", "/audit?"+query, "", 200)), &p); err != nil {
				t.Fatal(err)
			}
			return p
		}
		all := read("limit=1000")
		seen, before := []string{}, ""
		for {
			p := read("limit=3" + before)
			for _, e := range p.Data {
				seen = append(seen, e.ID)
			}
			if !p.HasMore {
				break
			}
			before = "&before=" + p.Data[len(p.Data)-1].ID
		}
		if len(seen) != len(all.Data) || len(seen) < 10 {
			t.Fatalf("%d of %d entries", len(seen), len(all.Data))
		}
		for i := range seen {
			if seen[i] != all.Data[i].ID {
				t.Fatalf("entry %d differs", i)
			}
		}
		newer := read("limit=3&after=" + seen[6])
		if len(newer.Data) != 3 || newer.Data[0].ID != seen[3] || newer.Data[2].ID != seen[5] || !newer.HasMore {
			t.Errorf("%+v", newer)
		}
		if p := read("action=workspace."); len(p.Data) != 6 {
			t.Errorf("%d entries of a kind", len(p.Data))
		}
		if p := read("action=workspace_"); len(p.Data) != 0 {
			t.Errorf("%d entries of none", len(p.Data))
		}
		if p := read("actor=" + c.user(t, "owner@one.test")); len(p.Data) != 5 {
			t.Errorf("%d entries of the owner", len(p.Data))
		}
		c.wants(t, "owner", "GET", "/audit?before=aud_x", "", 404)
		other := c.people
		other.Workspace = c.people.Elsewhere
		(&dashboardClient{c.i, other}).wants(t, "other", "GET", "/audit?before="+seen[0], "", 404)
	})
}

func TestTheLedgerIsListedAndProved(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		for range 4 {
			if code, text := operate(t, c.i, "POST", "/admin/wallet/topups", `{"workspace":"one","amount_usd":1.5,"memo":"more"}`); code != 201 {
				t.Fatal(code, text)
			}
		}
		c.wants(t, "member", "GET", "/wallet", "", 200, `"free_usd":31`, `"balance_usd":31`, `"holds":[]`)
		type page struct {
			Data []struct {
				ID, Kind, Memo string
				Amount         float64 `json:"amount_usd"`
				Lines          []struct {
					Account string
					Amount  float64 `json:"amount_usd"`
				}
			}
			HasMore bool `json:"has_more"`
		}
		var first, rest page
		if err := json.Unmarshal([]byte(c.wants(t, "member", "GET", "/ledger?limit=2", "", 200)), &first); err != nil || len(first.Data) != 2 || !first.HasMore {
			t.Fatal(err, first)
		}
		if d := first.Data[0]; d.Kind != "topup" || d.Memo != "more" || d.Amount != 1.5 || len(d.Lines) != 2 || d.Lines[0].Amount+d.Lines[1].Amount != 0 {
			t.Errorf("%+v", d)
		}
		if err := json.Unmarshal([]byte(c.wants(t, "member", "GET", "/ledger?before="+first.Data[1].ID, "", 200)), &rest); err != nil || len(rest.Data) != 3 || rest.HasMore {
			t.Fatal(err, rest)
		}
		if err := c.i.storage.sealer.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.wants(t, "member", "GET", "/ledger/proof", "", 200, `"ok":true`, `"entries":10`, `"sum_usd":0`, `"chain":"ledger"`, `"jws":"`)
		if _, err := db.Exec(t.Context(), c.i.storage.db.In(c.people.Workspace),
			`UPDATE ledger_balances SET amount = amount + 1 WHERE workspace_id = $1 AND account = 'wallet'`); err != nil {
			t.Fatal(err)
		}
		c.wants(t, "member", "GET", "/ledger/proof", "", 200, `"ok":false`)
		other := c.people
		other.Workspace = c.people.Elsewhere
		(&dashboardClient{c.i, other}).wants(t, "other", "GET", "/ledger?before="+first.Data[0].ID, "", 404)
	})
}
