package app

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

// A visitor is a browser whose cookie is what the server gave it.
type visitor struct {
	i      *instance
	cookie string
}

func (v *visitor) ask(t *testing.T, method, path, body string, status int) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/dashboard/api"+path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
	r.Header.Set("Cookie", v.cookie)
	recorder := httptest.NewRecorder()
	v.i.routers.public.ServeHTTP(recorder, r)
	if recorder.Code != status {
		t.Fatalf("%s %s: want %d, got %d %s", method, path, status, recorder.Code, recorder.Body)
	}
	for _, set := range recorder.Result().Cookies() {
		v.cookie = set.Name + "=" + set.Value
	}
	return recorder.Body.String()
}

// open opens the link of an answer that shows one.
func (v *visitor) open(t *testing.T, answer string, status int) {
	t.Helper()
	var shown struct{ URL string }
	if err := json.Unmarshal([]byte(answer), &shown); err != nil {
		t.Fatal(err)
	}
	_, token, found := strings.Cut(shown.URL, "#link=")
	if !found {
		t.Fatalf("no link in %s", answer)
	}
	v.ask(t, "POST", "/session/link", `{"token":"`+token+`"}`, status)
}

// Nobody proves that an address is theirs. An admin of one workspace invites an address there, and opens the link. Then
// another workspace lets that address review a queue: the admin reads nothing of it.
func TestAnAddressThatWasTakenElsewhereReviewsNothing(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		const address, password = `"email":"expert@field.test"`, "a long enough password"
		mine, theirs := "/w/"+string(c.people.Workspace), "/w/"+string(c.people.Elsewhere)
		evil := &visitor{c.i, c.people.Session("other", false)}
		puppet, owner := &visitor{i: c.i}, &visitor{c.i, c.people.Session("owner", false)}
		puppet.open(t, evil.ask(t, "POST", theirs+"/invitations", `{`+address+`,"role":"member"}`, 201), 200)
		puppet.ask(t, "PUT", "/password", `{"new":"`+password+`"}`, 200)

		var queue struct{ ID string }
		made := owner.ask(t, "POST", mine+"/queues", `{"name":"ours","source":{"kind":"logs"}}`, 201)
		if err := json.Unmarshal([]byte(made), &queue); err != nil {
			t.Fatal(err)
		}
		granted := owner.ask(t, "PUT", mine+"/queues/"+queue.ID+"/reviewers", `{`+address+`}`, 200)
		closed := func(v *visitor) {
			t.Helper()
			v.ask(t, "GET", mine+"/my/queues", "", 404)
			v.ask(t, "POST", mine+"/queues/"+queue.ID+"/claim", "", 404)
			if text := v.ask(t, "GET", "/session", "", 200); strings.Contains(text, queue.ID) {
				t.Errorf("its name is shown: %s", text)
			}
		}
		closed(puppet)
		again := &visitor{i: c.i}
		again.ask(t, "POST", "/session/password", `{`+address+`,"password":"`+password+`"}`, 200)
		closed(again)
		(&visitor{i: c.i}).open(t, granted, 403) // whoever finds the link
		evil.open(t, granted, 403)

		// The operator knows who the person is. What others had of the address ends with that.
		expert := &visitor{i: c.i}
		status, link := operate(t, c.i, "POST", "/admin/dashboard/link", `{`+address+`}`)
		if status != 201 {
			t.Fatal(status, link)
		}
		expert.open(t, link, 200)
		if text := expert.ask(t, "GET", mine+"/my/queues", "", 200); !strings.Contains(text, queue.ID) {
			t.Error(text)
		}
		puppet.ask(t, "GET", "/sessions", "", 401)
		again.ask(t, "GET", "/sessions", "", 401)
		(&visitor{i: c.i}).ask(t, "POST", "/session/password", `{`+address+`,"password":"`+password+`"}`, 403)
	})
}

// A person who is known to another workspace reviews once the link was opened where the person is signed in.
func TestAReviewerOfSeveralWorkspacesOpensTheLinkWhereSignedIn(t *testing.T) {
	eachDashboard(t, func(t *testing.T, c *dashboardClient) {
		mine := "/w/" + string(c.people.Workspace)
		owner := &visitor{c.i, c.people.Session("owner", false)}
		other := &visitor{c.i, c.people.Session("other", false)}
		var queue struct{ ID string }
		made := owner.ask(t, "POST", mine+"/queues", `{"name":"ours","source":{"kind":"logs"}}`, 201)
		if err := json.Unmarshal([]byte(made), &queue); err != nil {
			t.Fatal(err)
		}
		granted := owner.ask(t, "PUT", mine+"/queues/"+queue.ID+"/reviewers", `{"email":"owner@other.test"}`, 200)
		other.ask(t, "GET", mine+"/my/queues", "", 404)
		other.open(t, granted, 200)
		other.ask(t, "GET", mine+"/my/queues", "", 200)
		other.ask(t, "GET", mine+"/members", "", 404)
		second := owner.ask(t, "POST", mine+"/queues", `{"name":"more","source":{"kind":"logs"}}`, 201)
		if err := json.Unmarshal([]byte(second), &queue); err != nil {
			t.Fatal(err)
		}
		owner.ask(t, "PUT", mine+"/queues/"+queue.ID+"/reviewers", `{"email":"owner@other.test"}`, 200)
		if text := other.ask(t, "GET", mine+"/my/queues", "", 200); !strings.Contains(text, queue.ID) {
			t.Errorf("who has shown themselves to the workspace has to do it again: %s", text)
		}
	})
}
