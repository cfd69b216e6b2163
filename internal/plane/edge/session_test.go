package edge

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

// An answer that lasts asks whether its session still stands.
func TestASessionEndsForRunningAnswersWhenItIsDroppedOrItsRoleIsLost(t *testing.T) {
	for _, lose := range []string{"nothing", "the session", "the role", "a part of the role"} {
		directory, sessions := live.NewDirectory(), live.NewSessions()
		member := live.Member{Workspace: "ws_1", User: "usr_1"}
		directory.PutMember(member, tenant.Admin)
		secret, digest := NewSecret([32]byte{1})
		sessions.Put(digest, live.NewSession("ses_1", "usr_1", clock.Now(), clock.Now().Add(time.Hour), time.Hour))
		served := false
		e := New(Config{
			Directory: directory, Bounds: NewBounds(), Log: slog.New(slog.DiscardHandler), Dashboard: &Dashboard{Sessions: sessions},
		}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served = true
			caller := Caller(r.Context())
			if caller.Workspace != "ws_1" || caller.Role != tenant.Admin || caller.Session != "ses_1" || r.URL.Path != "/v1/logs" {
				t.Errorf("%+v %s", caller, r.URL.Path)
			}
			switch lose {
			case "the session":
				sessions.Drop(digest)
			case "the role":
				directory.DropMember(member)
			case "a part of the role":
				directory.PutMember(member, tenant.Member)
			}
			if SessionEnded(r.Context()) != (lose != "nothing") {
				t.Errorf("%s is lost: ended = %v", lose, SessionEnded(r.Context()))
			}
		}))
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/dashboard/v1/ws_1/logs", http.NoBody)
		request.Host = "localhost"
		request.AddCookie(&http.Cookie{Name: sessionName, Value: secret})
		e.ServeHTTP(httptest.NewRecorder(), request)
		if !served {
			t.Fatal("not served")
		}
	}
}

// A reviewer has no role. The addresses of the workspace bind the reviewer as they bind its members.
func TestTheAddressesOfAWorkspaceBindItsReviewersToo(t *testing.T) {
	directory, sessions, limits := live.NewDirectory(), live.NewSessions(), live.NewLimits()
	directory.PutMember(live.Member{Workspace: "ws_1", User: "usr_member"}, tenant.Member)
	limits.Put("ws_1", &live.Limits{Addresses: live.AddressRange{netip.MustParsePrefix("203.0.113.0/24")}})
	e := New(Config{
		Directory: directory, Limits: limits, Bounds: NewBounds(), Log: slog.New(slog.DiscardHandler), Dashboard: &Dashboard{Sessions: sessions},
	}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for i, c := range []struct {
		user   tenant.UserID
		from   string
		status int
	}{
		{"usr_member", "203.0.113.7", http.StatusOK},
		{"usr_member", "198.51.100.7", http.StatusForbidden},
		{"usr_reviewer", "203.0.113.7", http.StatusOK},
		{"usr_reviewer", "198.51.100.7", http.StatusNotFound},
	} {
		secret, digest := NewSecret([32]byte{byte(i)})
		sessions.Put(digest, live.NewSession("ses_1", c.user, clock.Now(), clock.Now().Add(time.Hour), time.Hour))
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/dashboard/api/w/ws_1/my/queues", http.NoBody)
		request.Host, request.RemoteAddr = "localhost", c.from+":1"
		request.AddCookie(&http.Cookie{Name: sessionName, Value: secret})
		recorder := httptest.NewRecorder()
		if e.ServeHTTP(recorder, request); recorder.Code != c.status {
			t.Errorf("%s from %s: %d %s", c.user, c.from, recorder.Code, recorder.Body)
		}
	}
}

func TestPlainHTTPIsSecureWithinTheMachineAndBehindATrustedProxyThatSaysSo(t *testing.T) {
	b := NewBounds()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	b.Proxies.Store(&proxies)
	for _, c := range []struct {
		peer, host, proto, forwarded string
		want                         bool
	}{
		{"127.0.0.1:1", "localhost:8080", "", "", true},
		{"[::1]:1", "[::1]:8080", "", "", true},
		{"127.0.0.1:1", "models.test", "", "", false}, // a proxy that is not trusted
		{"127.0.0.1:1", "models.test", "https", "", false},
		{"192.0.2.1:1", "localhost", "https", "", false},
		{"10.0.0.1:1", "models.test", "https", "192.0.2.1", true},
		{"10.0.0.1:1", "models.test", "http", "192.0.2.1", false},
		{"10.0.0.1:1", "models.test", "", "192.0.2.1", false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/dashboard/api/session", http.NoBody)
		r.RemoteAddr, r.Host = c.peer, c.host
		r.Header.Set("X-Forwarded-Proto", c.proto)
		r.Header.Set("X-Forwarded-For", c.forwarded)
		if got := b.secure(r); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
