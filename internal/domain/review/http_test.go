package review

import (
	"context"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// client serves the routes of f to sessions.
func (f fixture) client(t *testing.T) apitest.Client {
	t.Helper()
	return apitest.NewClient(t, f.DB, feed.New(f.DB, nil, nil), mine, theirs, (&handler{f.Store}).routes(), func(s string) string { return s })
}

// asked decodes the answer to a session's request.
func asked[T any](t *testing.T, c apitest.Client, cookie, method, path, body string, status int) (v T) {
	t.Helper()
	got, text := c.AskSession(t, cookie, method, c.InWorkspace(path), body)
	if got != status {
		t.Fatalf("%s %s: %d %s, want %d", method, path, got, text, status)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAnExpertWithoutARoleWorksTheQueueOfItsGrant(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		c := f.client(t)
		expert, admin, plain, other := c.Cookies.Nobody, c.Cookies.Admin, c.Cookies.Member, c.Cookies.Other
		q := f.queue(t, 1, 2)
		at := "/queues/" + q.ID
		for _, path := range []string{at, at + "/progress", at + "/agreement"} {
			c.RefusesSession(t, expert, "GET", c.InWorkspace(path), "", 404)
			c.RefusesSession(t, other, "GET", c.InWorkspace(path), "", 404)
		}
		c.RefusesSession(t, expert, "GET", c.InWorkspace("/my/queues"), "", 404)
		granted := asked[GrantedReviewer](t, c, admin, "PUT", at+"/reviewers", `{"email":"`+string(apitest.NobodyUser)+`@example.test"}`, 200)
		if granted.UserID != apitest.NobodyUser || granted.URL != nil {
			t.Errorf("%+v", granted)
		}
		if all := asked[api.List[Queue]](t, c, expert, "GET", "/my/queues", "", 200); len(all.Data) != 1 || all.Data[0].Mine.Waiting != 2 {
			t.Errorf("%+v", all)
		}
		if all := asked[api.List[Queue]](t, c, plain, "GET", "/queues", "", 200); len(all.Data) != 1 || all.Data[0].MayGrade {
			t.Errorf("%+v", all)
		}
		if all := asked[api.List[Queue]](t, c, plain, "GET", "/my/queues", "", 200); len(all.Data) != 0 {
			t.Errorf("%+v", all)
		}
		o := asked[Offer](t, c, expert, "POST", at+"/claim", "", 200)
		item := at + "/items/" + o.Item.ID
		body := `{"claim":"` + o.Item.Claim.ID + `","verdict":"pass","grade":0.75,"critique":"<img src=x onerror=alert(1)>","unsure":true}`
		done := asked[QueueItem](t, c, expert, "POST", item+"/grade", body, 200)
		if done.Grade == nil || *done.Grade.Grade != 0.75 || !done.Grade.Unsure || done.Grade.Critique != "<img src=x onerror=alert(1)>" {
			t.Errorf("%+v", done.Grade)
		}
		asked[QueueItem](t, c, expert, "POST", item+"/grade", body, 200)
		c.RefusesSession(t, expert, "POST", c.InWorkspace(item+"/grade"), strings.Replace(body, "pass", "fail", 1), 409)
		c.RefusesSession(t, expert, "POST", c.InWorkspace(item+"/grade"), `{"claim":"x","verdict":"maybe"}`, 400)
		c.RefusesSession(t, plain, "POST", c.InWorkspace(item+"/undo"), "", 403)
		undone := asked[QueueItem](t, c, expert, "POST", item+"/undo", "", 200)
		asked[QueueItem](t, c, expert, "POST", item+"/skip", `{"claim":"`+undone.Claim.ID+`","reason":"not mine"}`, 200)
		if p := asked[QueueProgress](t, c, expert, "GET", at+"/progress", "", 200); p.Mine.Skipped != 1 || p.Counts.Open != 2 {
			t.Errorf("%+v", p)
		}
		// What only managers do, and everything else of the workspace, is closed to the expert.
		for _, one := range [][3]string{
			{"PATCH", at, `{"blind":false}`},
			{"DELETE", at, ""},
			{"GET", at + "/items", ""},
			{"POST", at + "/items", `{"kind":"logs"}`},
			{"GET", at + "/reviewers", ""},
			{"PUT", at + "/reviewers", `{"email":"x@example.test"}`},
			{"PUT", at + "/assignments", `{"user_ids":[]}`},
			{"POST", "/queues", `{"name":"x","source":{"kind":"logs"}}`},
			{"GET", "/queues", ""},
		} {
			if got, text := c.AskSession(t, expert, one[0], c.InWorkspace(one[1]), one[2]); got != 404 && got != 403 {
				t.Errorf("%s %s: %d %s", one[0], one[1], got, text)
			}
			if one[1] != "/queues" || one[0] != "GET" {
				c.RefusesSession(t, plain, one[0], c.InWorkspace(one[1]), one[2], 403)
			}
		}
		asked[struct{}](t, c, admin, "DELETE", at+"/reviewers/"+string(apitest.NobodyUser), "", 200)
		c.RefusesSession(t, expert, "POST", c.InWorkspace(at+"/claim"), "", 404)
		c.RefusesSession(t, expert, "GET", c.InWorkspace(item), "", 404)
		if closed := asked[Closed](t, c, admin, "DELETE", at, "", 200); !closed.Closed || closed.Deleted {
			t.Errorf("%+v", closed)
		}
		if all := asked[api.List[Queue]](t, c, admin, "GET", "/queues?closed=true", "", 200); len(all.Data) != 1 {
			t.Errorf("%+v", all)
		}
		c.RefusesSession(t, other, "DELETE", c.InWorkspace(at+"?purge=true"), "", 404)
		if gone := asked[Closed](t, c, admin, "DELETE", at+"?purge=true", "", 200); !gone.Deleted {
			t.Errorf("%+v", gone)
		}
		c.RefusesSession(t, admin, "GET", c.InWorkspace(at), "", 404)
	})
}

// links count the links that were made.
type links struct{ made []tenant.UserID }

func (l *links) Invite(
	_ context.Context, _ *db.Tx, _ tenant.ID, _ tenant.Actor, user tenant.UserID,
) (string, bool, error) {
	l.made = append(l.made, user)
	return "https://example.test/dashboard/#link=secret", false, nil
}

func TestOnlyPeopleOutsideOfTheWorkspaceGetALink(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		made := &links{}
		f.Links = made
		q := f.queue(t, 1, 1)
		given, err := f.Grant(t.Context(), owner, q.ID, "usr_expert@example.test")
		if err != nil || given.URL == nil || len(made.made) != 1 {
			t.Errorf("%+v, %v", given, err)
		}
		for _, text := range []string{
			`INSERT INTO users (id, email, created_at) VALUES ('usr_boss', 'usr_boss@example.test', 1)`,
			`INSERT INTO members (workspace_id, user_id, role, created_at, updated_at) VALUES ('ws_mine', 'usr_boss', 'owner', 1, 1)`,
		} {
			if _, err := db.Exec(t.Context(), f.DB.Across("test"), text); err != nil {
				t.Fatal(err)
			}
		}
		if given, err = f.Grant(t.Context(), owner, q.ID, "usr_boss@example.test"); err != nil || given.URL != nil || len(made.made) != 1 {
			t.Errorf("an admin becomes an owner: %+v, %v", given, err)
		}
	})
}
