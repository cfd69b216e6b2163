package reward_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"sovereign/internal/base/apikey"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db/dbtest"
)

// token makes a token of a session.
func (f *fixture) token(t *testing.T, session string) (id, text string) {
	t.Helper()
	made, secret, err := f.store.CreateToken(t.Context(), dbtest.Mine, dbtest.Ann, session, "trainer")
	if err != nil {
		t.Fatal(err)
	}
	return made.ID, secret.Reveal()
}

// post calls an adapter.
func (f *fixture) post(t *testing.T, token, adapter, body string) (int, string) {
	t.Helper()
	got := f.client.Do(t, "none", http.MethodPost, "/rewards/v1/"+token+"/"+adapter, body)
	if text := got.Body.String(); strings.Contains(text, token) {
		t.Errorf("the answer shows the token: %s", text)
	}
	return got.Code, strings.TrimSpace(got.Body.String())
}

func TestTheAdaptersSpeakTheTrainersProtocols(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		f.Models.Say(func(item int) string {
			return judgingtest.Assessment(judge.Pass, map[int]float64{first: 0.75, first + 1: 0.5}[item])
		})
		_, token := f.token(t, s.ID)
		for _, c := range []struct{ adapter, body, want string }{
			{
				"openrlhf", fmt.Sprintf(`{"query":["say red reply to item %d","x reply to item %d"],"prompts":["say red ","x "],"labels":["l",null]}`, first, first+1),
				`{"rewards":[0.75,0.5],"scores":[0.75,0.5],"extra_logs":{}}`,
			},
			{"openrlhf?step=7", fmt.Sprintf(`{"query":["say red reply to item %d"],"prompts":["say red "]}`, first), `{"rewards":[0.75],"scores":[0.75],"extra_logs":{}}`},
			{"slime", fmt.Sprintf(`{"prompt":"say red ","response":"reply to item %d","label":{"a":1}}`, first), `0.75`},
			{"slime", fmt.Sprintf(`{"prompt":[{"role":"user","content":"x"}],"response":"reply to item %d","label":null}`, first+1), `0.5`},
		} {
			if status, got := f.post(t, token, c.adapter, c.body); status != http.StatusOK || got != c.want {
				t.Errorf("%s %s: %d %s, not %s", c.adapter, c.body, status, got, c.want)
			}
		}
		for step, n := range map[string]int64{"default": 4, "7": 1} {
			if got := f.count(t, `SELECT COUNT(*) FROM reward_items WHERE step = $1`, step); got != n {
				t.Errorf("%d items of step %s, not %d", got, step, n)
			}
		}
		labels := f.count(t, `SELECT COUNT(*) FROM reward_items WHERE label = '{"a":1}'`)
		completions := f.count(t, `SELECT COUNT(*) FROM reward_texts WHERE body = $1`, fmt.Sprintf(`"reply to item %d"`, first))
		if labels != 1 || completions != 1 {
			t.Errorf("%d labels, %d completions", labels, completions)
		}
		for body, field := range map[string]string{
			`{"query":["a"],"prompts":[]}`: "prompts", `{"query":[],"prompts":[]}`: "query",
			`{"query":["a"],"prompts":["a"],"labels":[1,2]}`: "labels",
		} {
			f.client.Refuses(t, "none", http.MethodPost, "/rewards/v1/"+token+"/openrlhf", body, 400, "invalid_parameter", field)
		}
		f.client.Refuses(t, "none", http.MethodPost, "/rewards/v1/"+token+"/slime", `{"prompt":5,"response":"x"}`, 400, "invalid_parameter", "prompt")
	})
}

// Trainers take any number for a reward. A missing one is a refusal that they retry, or that ends the run.
func TestAnAdapterNeverInventsAReward(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		f.Models.Say(func(int) string { return "no idea" })
		_, token := f.token(t, s.ID)
		body := fmt.Sprintf(`{"prompt":"q","response":"reply to item %d"}`, first)
		got := f.client.Do(t, "none", http.MethodPost, "/rewards/v1/"+token+"/slime", body)
		if got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" {
			t.Errorf("without a verdict: %d %s", got.Code, got.Body)
		}
		if err := f.store.Hold(t.Context(), dbtest.Mine, s.ID, "the anchor disagrees"); err != nil {
			t.Fatal(err)
		}
		if status, text := f.post(t, token, "slime", body); status != http.StatusPreconditionFailed || !strings.Contains(text, "anchor_held") {
			t.Errorf("held: %d %s", status, text)
		}
		if _, err := f.store.Stop(t.Context(), dbtest.Mine, dbtest.Ann, s.ID); err != nil {
			t.Fatal(err)
		}
		if status, text := f.post(t, token, "slime", body); status != http.StatusConflict || !strings.Contains(text, "session_not_active") {
			t.Errorf("stopped: %d %s", status, text)
		}
	})
}

func TestATokenScoresInItsSessionUntilItIsRevoked(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		id, token := f.token(t, s.ID)
		body := fmt.Sprintf(`{"prompt":"q","response":"reply to item %d"}`, first)
		if status, text := f.post(t, token, "slime", body); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		stranger, _ := apikey.NewReward()
		for name, bad := range map[string]string{
			"malformed": "x", "cut": token[:len(token)-1], "a key": f.client.Owner, "never made": stranger.Reveal(), "its id": id,
		} {
			if status, text := f.post(t, bad, "slime", body); status != http.StatusUnauthorized || !strings.Contains(text, "invalid_api_key") {
				t.Errorf("%s: %d %s", name, status, text)
			}
		}
		// A token is no key.
		if status, _ := f.client.Ask(t, token, http.MethodGet, "/v1/reward/sessions/"+s.ID, ""); status != http.StatusUnauthorized {
			t.Errorf("as a key: %d", status)
		}
		for _, path := range []string{"/rewards/v1/" + token + "/verl", "/rewards/v1/" + token, "/rewards/" + token, "/rewards/v1/" + token + "/slime/x"} {
			if status, text := f.client.Ask(t, "none", http.MethodPost, path, body); status != http.StatusNotFound || strings.Contains(text, token) {
				t.Errorf("%s: %d %s", path, status, text)
			}
		}
		if err := f.store.RevokeToken(t.Context(), dbtest.Mine, dbtest.Ann, s.ID, id); err != nil {
			t.Fatal(err)
		}
		if status, text := f.post(t, token, "slime", body); status != http.StatusUnauthorized {
			t.Errorf("revoked: %d %s", status, text)
		}
	})
}

// Calls of one item that come together are scored together: each gets its own reward, and none is asked for twice.
func TestCallsOfOneItemAreCollected(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		f.Models.Say(func(item int) string { return judgingtest.Assessment(judge.Pass, float64(item-first)/1000) })
		_, token := f.token(t, s.ID)
		asked, rewards := f.Models.Calls(), make([]string, 600)
		var group sync.WaitGroup
		for i := range rewards {
			group.Go(func() {
				_, rewards[i] = f.post(t, token, "slime", fmt.Sprintf(`{"prompt":"q","response":"reply to item %d"}`, first+i/2))
			})
		}
		group.Wait()
		for i, got := range rewards {
			if want := strings.TrimRight(fmt.Sprintf("%v", float64(i/2)/1000), "\n"); got != want {
				t.Fatalf("call %d has %s, not %s", i, got, want)
			}
		}
		if n := f.Models.Calls() - asked; n != 300 {
			t.Errorf("%d questions about 300 completions", n)
		}
		if got := f.get(s.ID); got.Scored != 300 {
			t.Errorf("%d items: an item's id follows from its content", got.Scored)
		}
		f.idle(t)
		f.freed(t)
		if slices.Contains(rewards, "") {
			t.Error("a call without an answer")
		}
	})
}
