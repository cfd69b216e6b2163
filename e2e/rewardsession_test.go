package e2e

import (
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/base/money"
)

// A rewardSession is what the tests read of a session.
type rewardSession struct {
	ID        string     `json:"id"`
	Status    string     `json:"status"`
	Spent     money.Nano `json:"spent_usd"`
	PurgedAt  string     `json:"purged_at"`
	TaskCount int        `json:"task_count"`
}

// A session and its hold outlive kill -9. Its end releases the hold to the cent. Its token is in no log line and no
// file.
func TestARewardSessionSurvivesKill9(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		provider := startProvider(t)
		flags := []string{"--log-level", "debug", "--config", judgeConfig(t, provider, map[string]string{"judges": "mock?judge"}, nil)}
		first := p.serve(t, flags...)
		c := first.caller()
		judge := calibratedJudge(t, p, c, "mock/judges")
		before := p.wallet(t, "default")
		var made, got rewardSession
		c.call(t, http.MethodPost, "/v1/reward/sessions", object{
			"label": "run", "reward": object{"mode": "single", "criterionId": judge}, "budget_usd": 2, "tasks": []object{{"n": 1}},
		}, http.StatusCreated, &made)
		var token struct {
			ID    string `json:"id"`
			Token string `json:"token"`
		}
		at := "/v1/reward/sessions/" + made.ID
		c.call(t, http.MethodPost, at+"/tokens", object{"name": "slime"}, http.StatusCreated, &token)
		first.kill()
		second := p.serve(t, flags...)
		c = second.callerWith(c.key)
		if b := p.wallet(t, "default"); b.Held != before.Held+2*money.Dollar || b.Balance != before.Balance {
			t.Errorf("after kill -9 the wallet has %+v, and had %+v", b, before)
		}
		if _, stderr, code := p.admin(t, "reward", "purge", "--workspace", "default", "--session", made.ID); code == 0 || !strings.Contains(stderr, "stop it first") {
			t.Errorf("an active session is purged: %d %s", code, stderr)
		}
		c.call(t, http.MethodDelete, at, nil, http.StatusOK, &got)
		if b := p.wallet(t, "default"); got.Status != "STOPPED" || b.Held != before.Held {
			t.Errorf("%+v, and the wallet has %+v", got, b)
		}
		p.mustAdmin(t, nil, "reward", "purge", "--workspace", "default", "--older-than", "0d", "--json")
		var all struct {
			Data []rewardSession `json:"data"`
		}
		p.mustAdmin(t, &all, "reward", "list", "--workspace", "default", "--status", "STOPPED", "--json")
		if len(all.Data) != 1 || all.Data[0].ID != made.ID || all.Data[0].PurgedAt == "" || all.Data[0].TaskCount != 1 {
			t.Errorf("%+v", all.Data)
		}
		c.call(t, http.MethodGet, at+"/tasks", nil, http.StatusNotFound, nil)
		p.verifyLedger(t)
		second.stop(t)
		for where, text := range map[string]string{"log": first.log.String() + second.log.String(), "files": contents(t, p.data)} {
			if strings.Contains(text, strings.TrimPrefix(token.Token, "rt_sovereign_")) || len(token.Token) != 60 {
				t.Errorf("the token is in the %s", where)
			}
		}
	})
}
