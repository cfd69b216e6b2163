package signin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

// A site is a server of the dashboard's sign-in, on a real store, with one workspace and its owner.
type site struct {
	db         *db.DB
	workspaces *workspace.Store
	store      *Store
	directory  *live.Directory
	sessions   *live.Sessions
	options    atomic.Pointer[Options]
	publisher  *Publisher
	handler    http.Handler
	ws         tenant.ID
	owner      tenant.UserID
}

const ownerEmail = "owner@one.test"

// eachSite runs test with a site on each storage.
func eachSite(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { test(t, newSite(t, d)) })
}

func newSite(t *testing.T, d *db.DB) *site {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s := &site{db: d, directory: live.NewDirectory(), sessions: live.NewSessions()}
	f := feed.New(d, log, nil)
	s.workspaces = workspace.NewStore(d, f)
	s.store = NewStore(d, f, s.workspaces)
	s.options.Store(&Options{URL: "https://models.test", Release: "dev"})
	module := Module(Deps{DB: d, Store: s.store, Sessions: s.sessions, Options: func() Options { return *s.options.Load() }, Log: log})
	s.publisher = NewPublisher(d, s.sessions)
	f.Register(module.Publishers)
	f.Register(workspace.NewPublisher(d, s.directory).Sources())
	if err := f.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	bounds := edge.NewBounds()
	bounds.Body.Store(1 << 20)
	bounds.Buffered.Set(8 << 20)
	bounds.Operations.Set(64)
	bounds.Timeout.Store(int64(time.Minute))
	member := func(ctx context.Context, caller tenant.Caller, _ api.None) (workspace.Member, error) {
		return workspace.Member{UserID: caller.User, Role: caller.Role}, nil
	}
	routes := append(slices.Clone(module.Routes), api.Get("/me", api.SessionMember, member, "Who am I here?"))
	router, err := api.NewRouter(api.Config{DB: d, Feed: f, Log: log, Bounds: bounds}, routes)
	if err != nil {
		t.Fatal(err)
	}
	s.handler = edge.New(edge.Config{
		Directory: s.directory, Bounds: bounds, Log: log, Dashboard: &edge.Dashboard{Sessions: s.sessions, Visitor: router.Visitor},
	}, router)
	ws, owner, err := s.workspaces.Create(t.Context(), tenant.Operator, "one", ownerEmail)
	if err != nil {
		t.Fatal(err)
	}
	s.ws, s.owner = ws.ID, owner.UserID
	return s
}

// A browser keeps a cookie.
type browser struct {
	site   *site
	cookie string
	change func(*http.Request) // of every request
}

func (s *site) browser() *browser { return &browser{site: s} }

// do sends a request as a page of the dashboard does, and keeps the cookie that it gets.
func (b *browser) do(t *testing.T, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/dashboard/api"+path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
	r.Header.Set("User-Agent", "a browser")
	if b.cookie != "" {
		r.Header.Set("Cookie", b.cookie)
	}
	if b.change != nil {
		b.change(r)
	}
	recorder := httptest.NewRecorder()
	b.site.handler.ServeHTTP(recorder, r)
	for _, cookie := range recorder.Result().Cookies() {
		if cookie.Name == "__Host-sovereign" {
			b.cookie = ""
			if cookie.MaxAge > 0 {
				b.cookie = cookie.Name + "=" + cookie.Value
			}
		}
	}
	return recorder
}

// wants fails the test unless the answer has that status.
func (b *browser) wants(t *testing.T, method, path, body string, status int) string {
	t.Helper()
	got := b.do(t, method, path, body)
	if got.Code != status {
		t.Fatalf("%s %s: want %d, got %d %s", method, path, status, got.Code, got.Body)
	}
	return got.Body.String()
}

func (b *browser) state(t *testing.T) SessionState {
	t.Helper()
	var state SessionState
	if err := json.Unmarshal([]byte(b.wants(t, "GET", "/session", "", 200)), &state); err != nil {
		t.Fatal(err)
	}
	return state
}

// link makes a link and returns its token.
func (s *site) link(t *testing.T, kind Kind, email string) string {
	t.Helper()
	made, err := s.store.MakeLink(t.Context(), tenant.Operator, kind, email)
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(made.URL("https://models.test"), "#link=")
	return token
}

func (b *browser) enter(t *testing.T, email string) {
	t.Helper()
	b.wants(t, "POST", "/session/link", `{"token":"`+b.site.link(t, SignIn, email)+`"}`, 200)
}

func TestALinkSignsInOnceAndTheCookieIsForTheBrowserAlone(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		b := s.browser()
		if state := b.state(t); state.SignedIn || !state.SignIn.Secure || !state.SignIn.Password || len(state.Workspaces) != 0 {
			t.Errorf("a visitor: %+v", state)
		}
		body := `{"token":"` + s.link(t, SignIn, ownerEmail) + `"}`
		answer := b.do(t, "POST", "/session/link", body)
		cookie := answer.Header().Get("Set-Cookie")
		for _, part := range []string{"__Host-sovereign=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Max-Age="} {
			if !strings.Contains(cookie, part) {
				t.Errorf("the cookie lacks %q: %s", part, cookie)
			}
		}
		if secret, _, _ := strings.Cut(strings.TrimPrefix(cookie, "__Host-sovereign="), ";"); len(secret) != 43 || strings.Contains(answer.Body.String(), secret) {
			t.Errorf("256 bits, in the cookie alone: %s %s", cookie, answer.Body)
		}
		state := b.state(t)
		if !state.SignedIn || state.Email != ownerEmail || len(state.Workspaces) != 1 || state.Workspaces[0] != (SessionWorkspace{s.ws, "one", tenant.Owner, false}) || state.ExpiresAt == nil {
			t.Errorf("%+v", state)
		}
		s.browser().wants(t, "POST", "/session/link", body, 403)
		if n := dbtest.Count(t, s.db, "audit_entries WHERE action = 'session.begin' AND actor_kind = 'session'"); n != 1 {
			t.Errorf("%d entries of the audit trail", n)
		}
	})
}

// Only digests are stored: whoever reads the database cannot sign in with what is in it.
func TestNoSecretIsStored(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		b := s.browser()
		token := s.link(t, SignIn, ownerEmail)
		b.wants(t, "POST", "/session/link", `{"token":"`+token+`"}`, 200)
		secret := strings.TrimPrefix(b.cookie, "__Host-sovereign=")
		all := s.db.Across("test")
		tables, err := db.Tables(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			for row, err := range db.Dump(t.Context(), all, table) {
				if err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(row)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(text), secret) || strings.Contains(string(text), token) {
					t.Errorf("a secret is in %s", table.Name)
				}
			}
		}
	})
}

func TestALinkWorksForTwoOfManyConcurrentVisitorsNever(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		body := `{"token":"` + s.link(t, SignIn, ownerEmail) + `"}`
		var group sync.WaitGroup
		var entered atomic.Int64
		for range 8 {
			group.Go(func() {
				if s.browser().do(t, "POST", "/session/link", body).Code == 200 {
					entered.Add(1)
				}
			})
		}
		group.Wait()
		if entered.Load() != 1 {
			t.Errorf("%d entered with one link", entered.Load())
		}
	})
}

func TestALinkThatIsOldReplacedOrOfAPersonWhoLeftIsRefused(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		post := func(token string) int {
			return s.browser().do(t, "POST", "/session/link", `{"token":"`+token+`"}`).Code
		}
		replaced := s.link(t, SignIn, ownerEmail)
		old := s.link(t, SignIn, ownerEmail)
		if got := post(replaced); got != 403 {
			t.Errorf("a link that was replaced: %d", got)
		}
		if _, err := db.Exec(ctx, s.db.Across("test"), `UPDATE signin_links SET expires_at = $1`, clock.Now()); err != nil {
			t.Fatal(err)
		}
		if got := post(old); got != 403 {
			t.Errorf("a link whose time is over: %d", got)
		}
		if got := post("x"); got != 403 {
			t.Errorf("no link: %d", got)
		}
		if _, err := s.workspaces.AddMember(ctx, s.ws, tenant.Operator, "two@one.test", tenant.Member); err != nil {
			t.Fatal(err)
		}
		left := s.link(t, SignIn, "two@one.test")
		if _, err := s.workspaces.RemoveMember(ctx, s.ws, tenant.Operator, "two@one.test", ""); err != nil {
			t.Fatal(err)
		}
		if got := post(left); got != 403 {
			t.Errorf("a link of a person who left: %d", got)
		}
		for _, email := range []string{"two@one.test", "stranger@nowhere.test"} {
			var refusal *fault.Fault
			if _, err := s.store.MakeLink(ctx, tenant.Operator, SignIn, email); !errors.As(err, &refusal) || refusal.Status != 403 {
				t.Errorf("a link for %s: %v", email, err)
			}
		}
	})
}

func TestSigningInAgainEndsTheSessionThatTheBrowserHad(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		b := s.browser()
		b.enter(t, ownerEmail)
		fixed := &browser{site: s, cookie: b.cookie}
		b.enter(t, ownerEmail)
		if b.cookie == fixed.cookie {
			t.Error("the cookie stayed")
		}
		fixed.wants(t, "GET", "/sessions", "", 401)
		b.wants(t, "GET", "/sessions", "", 200)
	})
}

func TestSessionsAreListedAndEndOneByOneOrTogether(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		a, b, c := s.browser(), s.browser(), s.browser()
		for _, each := range []*browser{a, b, c} {
			each.enter(t, ownerEmail)
		}
		var list api.List[Session]
		if err := json.Unmarshal([]byte(a.wants(t, "GET", "/sessions", "", 200)), &list); err != nil || len(list.Data) != 3 {
			t.Fatal(err, list)
		}
		current := 0
		for _, session := range list.Data {
			if session.Current {
				current++
			}
			if session.Agent != "a browser" || session.Address != "127.0.0.1" || session.Method != ByLink {
				t.Errorf("%+v", session)
			}
		}
		if current != 1 {
			t.Errorf("%d sessions ask", current)
		}
		a.wants(t, "DELETE", "/sessions/"+string(b.state(t).SessionID), "", 200)
		b.wants(t, "GET", "/sessions", "", 401)
		a.wants(t, "DELETE", "/sessions/ses_unknown", "", 404)
		if text := a.wants(t, "DELETE", "/sessions", "", 200); !strings.Contains(text, `"ended":1`) {
			t.Error(text)
		}
		c.wants(t, "GET", "/sessions", "", 401)
		old := *a
		a.wants(t, "DELETE", "/session", "", 200)
		if a.cookie != "" {
			t.Error("the cookie stays after signing out")
		}
		old.wants(t, "GET", "/sessions", "", 401)
	})
}

func TestNobodySeesOrEndsAnothersSession(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		if _, err := s.workspaces.AddMember(t.Context(), s.ws, tenant.Operator, "two@one.test", tenant.Owner); err != nil {
			t.Fatal(err)
		}
		a, b := s.browser(), s.browser()
		a.enter(t, ownerEmail)
		b.enter(t, "two@one.test")
		b.wants(t, "DELETE", "/sessions/"+string(a.state(t).SessionID), "", 404)
		b.wants(t, "DELETE", "/sessions", "", 200)
		a.wants(t, "GET", "/sessions", "", 200)
		if text := b.wants(t, "GET", "/sessions", "", 200); strings.Contains(text, string(a.state(t).SessionID)) {
			t.Error("another's session is listed")
		}
	})
}

// The role is read at each request: no session knows one.
func TestADemotionAndARemovalAreInForceAtOnce(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		if _, err := s.workspaces.AddMember(ctx, s.ws, tenant.Operator, "two@one.test", tenant.Admin); err != nil {
			t.Fatal(err)
		}
		other, _, err := s.workspaces.Create(ctx, tenant.Operator, "other", "two@one.test")
		if err != nil {
			t.Fatal(err)
		}
		b := s.browser()
		b.enter(t, "two@one.test")
		path := "/w/" + string(s.ws) + "/me"
		if text := b.wants(t, "GET", path, "", 200); !strings.Contains(text, `"role":"admin"`) {
			t.Error(text)
		}
		if _, err := s.workspaces.SetRole(ctx, s.ws, tenant.Operator, "two@one.test", tenant.Member); err != nil {
			t.Fatal(err)
		}
		if text := b.wants(t, "GET", path, "", 200); !strings.Contains(text, `"role":"member"`) {
			t.Error(text)
		}
		if _, err := s.workspaces.RemoveMember(ctx, s.ws, tenant.Operator, "two@one.test", ""); err != nil {
			t.Fatal(err)
		}
		b.wants(t, "GET", path, "", 404)
		b.wants(t, "GET", "/w/"+string(other.ID)+"/me", "", 200)
	})
}

func TestLeavingTheLastWorkspaceEndsTheSessionsUnlessAQueueIsLeft(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		granted := true
		s.store.Queues = func(context.Context, tenant.UserID) ([]SessionQueue, error) {
			if granted {
				return []SessionQueue{{s.ws, "rq_1", "a queue"}}, nil
			}
			return nil, nil
		}
		for _, left := range []bool{true, false} {
			granted = left
			if _, err := s.workspaces.AddMember(ctx, s.ws, tenant.Operator, "two@one.test", tenant.Member); err != nil {
				t.Fatal(err)
			}
			b := s.browser()
			b.enter(t, "two@one.test")
			if _, err := s.workspaces.RemoveMember(ctx, s.ws, tenant.Operator, "two@one.test", ""); err != nil {
				t.Fatal(err)
			}
			if !left {
				b.wants(t, "GET", "/sessions", "", 401)
				continue
			}
			if state := b.state(t); !state.SignedIn || len(state.Queues) != 1 || len(state.Workspaces) != 0 {
				t.Errorf("%+v", state)
			}
		}
	})
}

func TestASessionEndsWhenItIsIdleAndWhenItIsOld(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		for _, c := range []struct{ seen, expires time.Duration }{{-idle, time.Hour}, {-time.Minute, -time.Second}} {
			b := s.browser()
			b.enter(t, ownerEmail)
			b.wants(t, "GET", "/sessions", "", 200)
			now := clock.Now()
			if _, err := db.Exec(t.Context(), s.db.Across("test"), `UPDATE sessions SET last_seen_at = $1, expires_at = $2`, now.Add(c.seen), now.Add(c.expires)); err != nil {
				t.Fatal(err)
			}
			s.sessions.Replace(nil) // what a start does
			if err := s.publisher.Fill(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.wants(t, "GET", "/sessions", "", 401)
		}
	})
}

func TestUsesAreWrittenAndKeepASessionAlive(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		b := s.browser()
		b.enter(t, ownerEmail)
		old := clock.Now().Add(-idle / 2)
		if _, err := db.Exec(t.Context(), s.db.Across("test"), `UPDATE sessions SET last_seen_at = $1`, old); err != nil {
			t.Fatal(err)
		}
		s.sessions.Replace(nil)
		if err := s.publisher.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			b.wants(t, "GET", "/sessions", "", 200)
		}
		if uses := s.sessions.Uses(); len(uses) != 1 {
			t.Fatalf("%d uses in a minute", len(uses))
		}
		if _, err := db.Exec(t.Context(), s.db.Across("test"), `UPDATE sessions SET last_seen_at = $1`, old); err != nil {
			t.Fatal(err)
		}
		s.sessions.Replace(nil)
		if err := s.publisher.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.wants(t, "GET", "/sessions", "", 200)
		if err := s.publisher.writeUses(t.Context()); err != nil {
			t.Fatal(err)
		}
		if seen, err := db.One[clock.Time](t.Context(), s.db.Across("test"), `SELECT last_seen_at FROM sessions`); err != nil || seen <= old {
			t.Errorf("%v %v", seen, err)
		}
	})
}

func TestAPersonHasABoundedNumberOfSessions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d)
		first := s.browser()
		first.enter(t, ownerEmail)
		for range mostSessions {
			s.browser().enter(t, ownerEmail)
		}
		first.wants(t, "GET", "/sessions", "", 401)
		if n := s.sessions.Len(); n != mostSessions {
			t.Errorf("%d sessions", n)
		}
	})
}

func TestPlainHTTPFromAnotherMachineRefusesToSignInAndSaysWhy(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		for _, c := range []struct {
			name   string
			change func(*http.Request)
			want   int
		}{
			{"another machine", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }, 403},
			{"a forged header", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1"; r.Header.Set("X-Forwarded-Proto", "https") }, 403},
			{"another host", func(r *http.Request) { r.Host = "models.test" }, 403},
			{"this machine", func(*http.Request) {}, 200},
		} {
			b := s.browser()
			b.change = c.change
			got := b.do(t, "POST", "/session/link", `{"token":"`+s.link(t, SignIn, ownerEmail)+`"}`)
			if got.Code != c.want || c.want == 403 && c.name != "another host" && !strings.Contains(got.Body.String(), "HTTPS") {
				t.Errorf("%s: %d %s", c.name, got.Code, got.Body)
			}
		}
	})
}

func TestEndedSessionsAndLinksAreDeletedInTheEnd(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		b := s.browser()
		b.enter(t, ownerEmail)
		s.browser().enter(t, ownerEmail)
		b.wants(t, "DELETE", "/session", "", 200)
		long := clock.Now().Add(-48 * time.Hour)
		all := s.db.Across("test")
		if _, err := db.Exec(t.Context(), all, `UPDATE sessions SET ended_at = $1 WHERE ended_at > 0`, long); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), all, `UPDATE signin_links SET expires_at = $1`, long); err != nil {
			t.Fatal(err)
		}
		if err := s.store.DeleteOld(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, m := dbtest.Count(t, s.db, "sessions"), dbtest.Count(t, s.db, "signin_links"); n != 1 || m != 0 {
			t.Errorf("%d sessions and %d links are left", n, m)
		}
	})
}

func TestSessionsThatHaveEndedDoNotStayInMemory(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		sessions := live.NewSessions()
		for i, expires := range []time.Duration{-time.Hour, time.Hour} {
			sessions.Put(live.SessionDigest{byte(i)},
				live.NewSession(tenant.SessionID(fmt.Sprint("ses_", i)), "user_1", clock.Now(), clock.Now().Add(expires), idle))
		}
		if err := NewPublisher(d, sessions).tend(t.Context()); err != nil || sessions.Len() != 1 {
			t.Errorf("%d sessions, %v", sessions.Len(), err)
		}
	})
}
