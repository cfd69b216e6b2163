package app

import (
	"encoding/hex"
	"net/http/httptest"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/db"
)

// addPeople fills a workspace with people of every kind, and their sessions.
func addPeople(t *testing.T, i *instance) apitest.People {
	t.Helper()
	ws, keys := addCallers(t, i)
	elsewhere, err := i.domains.find(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	for _, logged := range []tenant.ID{ws, elsewhere} {
		i.state.settings.Put(logged, live.Settings{LogDays: 7})
	}
	all := i.storage.db.Across("test")
	if _, err := db.Exec(t.Context(), all, `INSERT INTO users (id, email, created_at) VALUES ('usr_nobody', 'nobody@nowhere.test', 1)`); err != nil {
		t.Fatal(err)
	}
	users := map[string]tenant.UserID{}
	for person, email := range map[string]string{
		"owner": "owner@one.test", "admin": "admin@one.test", "member": "member@one.test", "other": "owner@other.test", "nobody": "nobody@nowhere.test",
	} {
		if users[person], err = db.One[tenant.UserID](t.Context(), all, `SELECT id FROM users WHERE email = $1`, email); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(person string) (cookie string, digest live.SessionDigest) {
		cookie, digest = apitest.NewCookie()
		session, now := tenant.SessionID(id.New("ses")), clock.Now()
		if _, err := db.Exec(t.Context(), all, `
			INSERT INTO sessions (id, user_id, digest, method, address, agent, created_at, last_seen_at, expires_at)
			VALUES ($1, $2, $3, 'link', '', '', $4, $4, $5)`, session, users[person], digest[:], now, now.Add(3600*1e9)); err != nil {
			t.Fatal(err)
		}
		i.dash.edge.Sessions.Put(digest, live.NewSession(session, users[person], now, now.Add(3600*1e9), 0))
		return cookie, digest
	}
	kept := map[string]string{}
	p := apitest.People{Workspace: ws, Elsewhere: elsewhere, Key: keys.Owner}
	p.Session = func(person string, fresh bool) string {
		if fresh { // what is done with it may end the others
			clear(kept)
			cookie, _ := begin(person)
			return cookie
		}
		if kept[person] == "" {
			kept[person], _ = begin(person)
		}
		return kept[person]
	}
	_, digest := begin("owner")
	p.Digest = hex.EncodeToString(digest[:])
	p.Ended, digest = begin("owner")
	i.dash.edge.Sessions.Drop(digest)
	return p
}

// Every route of the dashboard, and every route of /v1 on its mount, as every kind of browser.
func TestSerialSessionMatrixOfEveryRegisteredRoute(t *testing.T) {
	eachInstance(t, func(t *testing.T, i *instance) {
		people := addPeople(t, i)
		server := httptest.NewServer(i.routers.public)
		defer server.Close()
		apitest.SessionMatrix(t, server.URL, i.routers.routes, people)
	})
}
