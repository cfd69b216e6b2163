package logbook

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook/logbooktest"
	"sovereign/internal/live"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

// awaitListener waits until the tail has a listener.
func awaitListener(t *testing.T, tail *Tail) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !tail.listening(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody listens")
		}
	}
}

// Each way in which the right to read ends, ends the tail, and nothing of what is ingested afterwards is sent.
func TestATailEndsWithTheRightToReadIt(t *testing.T) {
	dbtest.EachWithLogs(t, func(t *testing.T, d, logs *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		c, settings := newIngester(t, logs), live.NewSettings()
		settings.Put(dbtest.Mine, live.Settings{LogDays: 7})
		h := NewHandler(NewStore(logs), c, settings)
		f := feed.New(d, slog.New(slog.DiscardHandler), nil)
		client := apitest.NewClient(t, d, f, dbtest.Mine, dbtest.Theirs, h.Routes(), strings.TrimSpace)
		member := live.Member{Workspace: dbtest.Mine, User: apitest.MemberUser}
		source, path := logbooktest.New(home, 20, clock.Now()), client.InWorkspace("/logs/tail?tag=seen")
		row := func(ws tenant.ID, tag string) string {
			r := source.Next(24 * time.Hour)
			r.Workspace, r.Tag = ws, tag
			spooled(t, c, r)
			if err := c.Ingest(t.Context()); err != nil {
				t.Fatal(err)
			}
			return r.ID
		}
		for _, end := range []struct {
			reason   string
			do, undo func()
		}{
			{"logging_disabled", func() { settings.Put(dbtest.Mine, live.Settings{}) }, func() { settings.Put(dbtest.Mine, live.Settings{LogDays: 7}) }},
			{"session_ended", func() { client.Directory.DropMember(member) }, func() { client.Directory.PutMember(member, tenant.Member) }},
		} {
			answered := make(chan string)
			go func() {
				_, text := client.AskSession(t, client.Cookies.Member, http.MethodGet, path, "")
				answered <- text
			}()
			awaitListener(t, &c.Tail)
			seen := row(dbtest.Mine, "seen")
			row(dbtest.Mine, "other")
			row(dbtest.Theirs, "seen")
			for waiting := true; waiting; time.Sleep(time.Millisecond) { // until it is sent
				c.Tail.mu.Lock()
				for l := range c.Tail.all[dbtest.Mine] {
					l.mu.Lock()
					waiting = len(l.rows) > 0
					l.mu.Unlock()
				}
				c.Tail.mu.Unlock()
			}
			end.do()
			late := row(dbtest.Mine, "seen")
			text := <-answered
			end.undo()
			if strings.Count(text, "event: log\n") != 1 || !strings.Contains(text, "id: "+seen+"\n") || strings.Contains(text, late) ||
				!strings.HasSuffix(text, "event: end\ndata: {\"reason\":\""+end.reason+"\"}") {
				t.Errorf("%s: %s", end.reason, text)
			}
			if c.Tail.listening() {
				t.Errorf("%s: it still listens", end.reason)
			}
		}
		for _, path := range []string{path, client.InWorkspace("/logs/histogram"), client.InWorkspace("/logs/facets")} {
			client.RefusesSession(t, client.Cookies.Other, http.MethodGet, path, "", 404)
			client.RefusesSession(t, "", http.MethodGet, path, "", 401)
			settings.Put(dbtest.Mine, live.Settings{})
			client.RefusesSession(t, client.Cookies.Member, http.MethodGet, path, "", 409)
			settings.Put(dbtest.Mine, live.Settings{LogDays: 7})
		}
	})
}
