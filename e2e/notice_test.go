package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A hook is a webhook that keeps what it got, and answers with a status that the test sets.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	key    []byte
	status int
	got    map[string][]string // the ids of deliveries, by the kind of notice
	forged []string
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{status: http.StatusOK, got: map[string][]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		id, stamp := r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp")
		mac := hmac.New(sha256.New, h.key)
		mac.Write([]byte(id + "." + stamp + "." + string(body)))
		if r.Header.Get("Webhook-Signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
			h.forged = append(h.forged, string(body))
		}
		var of struct{ Type string }
		_ = json.Unmarshal(body, &of)
		h.got[of.Type] = append(h.got[of.Type], id)
		w.WriteHeader(h.status)
	}))
	t.Cleanup(h.Close)
	return h
}

// seen returns the ids that came of a kind.
func (h *hook) seen(kind string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got[kind])
}

func (h *hook) answer(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// watched makes a channel of the first workspace that leads to a hook, and returns the cookie of its owner with the
// paths of the workspace and the channel.
func (h *hook) watched(t *testing.T, s *process, kinds ...string) (cookie, place, channel string) {
	t.Helper()
	found := linkText.FindStringSubmatch(s.out.find(linkText, s.done))
	status, text, cookie := s.dashboard(t, "", "POST", "/session/link", `{"token":"`+found[2]+`"}`)
	var session struct{ Workspaces []struct{ ID string } }
	if err := json.Unmarshal([]byte(text), &session); status != 200 || err != nil {
		t.Fatalf("signed in: %d %s %v", status, text, err)
	}
	place = "/w/" + session.Workspaces[0].ID
	body, err := json.Marshal(object{"type": "webhook", "address": h.URL, "kinds": kinds})
	if err != nil {
		t.Fatal(err)
	}
	status, text, _ = s.dashboard(t, cookie, "POST", place+"/channels", string(body))
	var made struct{ ID, Secret string }
	if err := json.Unmarshal([]byte(text), &made); status != http.StatusCreated || err != nil {
		t.Fatalf("a channel: %d %s %v", status, text, err)
	}
	if h.key, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(made.Secret, "whsec_")); err != nil {
		t.Fatal(err)
	}
	return cookie, place, place + "/channels/" + made.ID
}

// What a wallet and a budget say arrives signed, and once. What did not arrive before kill -9 arrives afterwards, under
// the id that it had.
func TestANoticeArrivesSignedOnceAndSurvivesAKill(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		h, flags := newHook(t), []string{"--guard-allow", "127.0.0.1/32"}
		s := p.serve(t, flags...)
		cookie, place, channel := h.watched(t, s, "wallet.low", "budget.reached")
		var key struct {
			APIKey string `json:"api_key"`
		}
		p.mustAdmin(t, &key, "key", "create", "--workspace", "default", "--email", "owner@localhost",
			"--budget-usd", "0.000001/day", "--json")
		for range 3 {
			a := s.callerWith(key.APIKey).must(t, chat("sim/chat", "Hello"))
			if a.status != http.StatusPaymentRequired {
				t.Fatalf("over the budget: %d %s", a.status, a.body)
			}
		}
		eventually(t, "the budget is told of", func() bool { return len(h.seen("budget.reached")) > 0 })

		h.answer(http.StatusInternalServerError)
		status, text, _ := s.dashboard(t, cookie, "PATCH", place+"/notifications", `{"wallet_low_usd":1000}`)
		if status != http.StatusOK {
			t.Fatalf("a mark: %d %s", status, text)
		}
		eventually(t, "a delivery fails", func() bool { // and that is written: otherwise its claim has to end first
			_, text, _ := s.dashboard(t, cookie, "GET", channel+"/deliveries", "")
			return strings.Contains(text, "answered 500")
		})
		s.kill()
		failed := h.seen("wallet.low")
		h.answer(http.StatusOK)
		s = p.serve(t, flags...)
		eventually(t, "it is delivered again", func() bool { return len(h.seen("wallet.low")) > len(failed) })
		s.stop(t)
		if ids := h.seen("budget.reached"); len(ids) != 1 {
			t.Errorf("the budget was told of %d times", len(ids))
		}
		again := map[string]bool{}
		for _, id := range h.seen("wallet.low") {
			again[id] = true
		}
		if len(again) != 1 || !strings.HasPrefix(failed[0], "ntc_") {
			t.Errorf("one notice came as %v", slices.Collect(maps.Keys(again)))
		}
		if len(h.forged) != 0 {
			t.Errorf("%d deliveries are not signed: %q", len(h.forged), h.forged)
		}
	})
}
