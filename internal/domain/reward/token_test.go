package reward_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/reward"
	"sovereign/internal/live"
	"sovereign/internal/store/db/dbtest"
)

// A token is shown once, by the call that makes it. Nothing else holds it: no table, no audit entry, no later answer.
func TestATokenIsShownOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create(wanted(f.certified(30).ID))
		at := "/v1/reward/sessions/" + made.ID + "/tokens"
		body := f.client.Do(t, f.client.Owner, "POST", at, `{"name":"openrlhf"}`, "Idempotency-Key", "k").Body.String()
		shown := decoded[struct {
			ID     string `json:"id"`
			Object string `json:"object"`
			Name   string `json:"name"`
			Token  string `json:"token"`
		}](t, body)
		if _, ok := apikey.ParseReward(shown.Token); !ok || shown.Object != "reward_token" || shown.Name != "openrlhf" {
			t.Fatalf("%+v", shown)
		}
		ws, session, err := f.store.ByToken(t.Context(), shown.Token)
		if err != nil || ws != dbtest.Mine || session != made.ID {
			t.Errorf("%s %s %v", ws, session, err)
		}
		secret := strings.TrimPrefix(shown.Token, apikey.RewardPrefix)
		for what, text := range map[string]string{
			"the database":   f.dump(),
			"the list":       f.client.Do(t, f.client.Member, "GET", at, "").Body.String(),
			"the session":    f.client.Do(t, f.client.Member, "GET", "/v1/reward/sessions/"+made.ID, "").Body.String(),
			"a replay":       f.client.Do(t, f.client.Owner, "POST", at, `{"name":"openrlhf"}`, "Idempotency-Key", "k").Body.String(),
			"stored answers": strconv.Itoa(dbtest.Count(t, f.DB, `idempotency_keys WHERE answer IS NOT NULL`)),
		} {
			if strings.Contains(text, secret) || strings.Contains(text, secret[:20]) || what == "stored answers" && text != "0" {
				t.Errorf("%s has the token: %s", what, text)
			}
		}
		if n := dbtest.Count(t, f.DB, "reward_tokens"); n != 1 {
			t.Errorf("%d tokens", n)
		}
		if actions := f.audited(made.ID); !slices.Equal(actions, []string{"create", "token.create"}) {
			t.Errorf("audited %q", actions)
		}
	})
}

// A token opens nothing once it is revoked, or once its maker could no longer start what it does.
func TestATokenIsRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.certified(30)
		made := f.create(wanted(c.ID))
		mint := func(by tenant.Actor) (reward.Token, string) {
			token, text, err := f.store.CreateToken(t.Context(), dbtest.Mine, by, made.ID, "x")
			f.ok(err)
			return token, text.Reveal()
		}
		opens := func(text string) string {
			_, _, err := f.store.ByToken(t.Context(), text)
			return code(err)
		}
		role := func(to tenant.Role) { f.exec(`UPDATE members SET role = $1 WHERE user_id = $2`, to, dbtest.Ann.User) }
		token, text := mint(dbtest.Ann)
		_, other := mint(dbtest.Ann)
		role(tenant.Member)
		if got := opens(text); got != "invalid_api_key" {
			t.Errorf("the token of a member: %q", got)
		}
		role(tenant.Admin)
		if got := opens(text); got != "" {
			t.Errorf("the token of an admin: %q", got)
		}
		f.limits.Put(string(dbtest.Mine), &live.Limits{ExpiresAt: clock.Now().Add(time.Hour)})
		if got := opens(text); got != "" {
			t.Errorf("before the workspace expires: %q", got)
		}
		f.pass(2 * time.Hour)
		if got := opens(text); got != "api_key_expired" {
			t.Errorf("of a workspace that expired: %q", got)
		}
		f.limits.Put(string(dbtest.Mine), &live.Limits{InferenceOnly: true})
		if got := opens(text); got != "insufficient_scope" {
			t.Errorf("of a workspace for inference: %q", got)
		}
		f.limits.Put(string(dbtest.Mine), nil)
		f.ok(f.store.RevokeToken(t.Context(), dbtest.Mine, dbtest.Ann, made.ID, token.ID))
		if got := opens(text); got != "invalid_api_key" {
			t.Errorf("revoked: %q", got)
		}
		if got := opens(other); got != "" {
			t.Errorf("another token of the session: %q", got)
		}
		dbtest.Refused(t, f.store.RevokeToken(t.Context(), dbtest.Mine, dbtest.Ann, made.ID, token.ID), 404)
		second := f.create(wanted(c.ID))
		kept, err := f.store.Tokens(t.Context(), dbtest.Mine, made.ID, 10, 0)
		f.ok(err)
		dbtest.Refused(t, f.store.RevokeToken(t.Context(), dbtest.Mine, dbtest.Ann, second.ID, kept[0].ID), 404) // of another session
		f.exec(`DELETE FROM members WHERE user_id = $1`, dbtest.Ann.User)
		if got := opens(other); got != "invalid_api_key" {
			t.Errorf("of a user who left: %q", got)
		}
		unknown, _ := apikey.NewReward()
		if got := opens(unknown.Reveal()); got != "invalid_api_key" {
			t.Errorf("unknown: %q", got)
		}
	})
}

// A malformed token is refused without a query: a context that has ended would fail one.
func TestAMalformedTokenCostsNoQuery(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		good, _ := apikey.NewReward()
		key, _, _ := apikey.New()
		for _, text := range []string{"", "x", key.Reveal(), good.Reveal() + "0", strings.Repeat("a", 1<<20)} {
			if _, _, err := f.store.ByToken(over, text); code(err) != "invalid_api_key" || strings.Contains(err.Error(), text) && text != "" && text != "x" {
				t.Errorf("%.80q: %v", text, err)
			}
		}
		if _, _, err := f.store.ByToken(over, good.Reveal()); err == nil || code(err) == "invalid_api_key" {
			t.Errorf("a well-formed one is not looked up: %v", err)
		}
	})
}

func TestTokensAreBoundedAndNamed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create(wanted(f.certified(30).ID))
		for _, name := range []string{"", strings.Repeat("x", 65), "a\nb", "\x1b[31m"} {
			_, _, err := f.store.CreateToken(t.Context(), dbtest.Mine, dbtest.Ann, made.ID, name)
			dbtest.Refused(t, err, 400, "name")
		}
		for i := range 100 {
			if _, _, err := f.store.CreateToken(t.Context(), dbtest.Mine, dbtest.Ann, made.ID, strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		_, text, err := f.store.CreateToken(t.Context(), dbtest.Mine, dbtest.Ann, made.ID, "one more")
		dbtest.Refused(t, err, 409, "at most 100 tokens")
		if !text.Empty() {
			t.Error("a token that was refused is shown")
		}
		page, err := f.store.Tokens(t.Context(), dbtest.Mine, made.ID, 1000, 0)
		if err != nil || len(page) != 100 || page[0].Name != "99" || page[0].SessionID != made.ID {
			t.Errorf("%d %v", len(page), err)
		}
	})
}
