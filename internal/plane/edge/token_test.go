package edge

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

// A token in the path stands in place of a key: the limits of its workspace and the serving lock apply, and it is in no
// log line and no answer.
func TestATokenIsLimitedLikeAKeyAndNotLogged(t *testing.T) {
	const token = "rt_sovereign_canary"
	var log bytes.Buffer
	limits, bounds := live.NewLimits(), NewBounds()
	bounds.Timeout.Store(int64(time.Minute))
	limits.Put("ws_far", &live.Limits{Addresses: live.AddressRange{netip.MustParsePrefix("203.0.113.0/24")}})
	var gate error
	e := New(Config{
		Directory: live.NewDirectory(), Limits: limits, Bounds: bounds, Gate: func() error { return gate },
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws := tenant.ID(r.URL.Query().Get("ws"))
		if ws == "" {
			Refuse(w, r, Unidentified(r, fault.InvalidKey.New("no such token")))
			return
		}
		if err := Identify(r, tenant.Caller{Workspace: ws}); err != nil {
			Refuse(w, r, err)
			return
		}
		if Caller(r.Context()).Workspace != ws {
			t.Errorf("the caller is %+v", Caller(r.Context()))
		}
		Refuse(w, r, errors.New("a bug"))
	}))
	ask := func(path string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
		if w.Code != want || strings.Contains(w.Body.String(), token) {
			t.Errorf("%d, not %d: %s", w.Code, want, w.Body)
		}
	}
	ask("/rewards/v1/"+token+"/slime", http.StatusUnauthorized)
	ask("/rewards/v1/"+token+"/slime?ws=ws_far", http.StatusForbidden)
	ask("/rewards/v1/"+token+"/slime?ws=ws_near", http.StatusInternalServerError)
	ask("//rewards/v1/"+token+"/slime", http.StatusNotFound)
	ask("/%72ewards//v1/"+token+"/slime", http.StatusNotFound)
	gate = fault.Unavailable.New("another server owns the data")
	ask("/rewards/v1/"+token+"/slime?ws=ws_near", http.StatusServiceUnavailable)
	if text := log.String(); strings.Contains(text, token) || !strings.Contains(text, "request failed") {
		t.Errorf("the log:\n%s", text)
	}
}
