package reward_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var (
	times       = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	certificate = regexp.MustCompile(`"certificates":\[\{"id":"cert_…".*"jws":"[^"]+"\}\}\]`)
	token       = regexp.MustCompile(`rt_sovereign_[0-9a-z]{47}`)
)

// reduced returns an answer without what differs from run to run, and without the certificate.
func reduced(text string) string {
	text = certificate.ReplaceAllString(times.ReplaceAllString(text, "TIME"), `"certificates":[…]`)
	return token.ReplaceAllString(text, "TOKEN")
}

// The life of a session as SPEC and docs/contract.md say it.
func TestTheLifeOfASessionOnTheWire(t *testing.T) {
	const session = `{"id":"rs_…","object":"reward_session","status":"%s","reason":null,"agentic":true,"reward":{"mode":"single","criterionId":"crit_…"},` +
		`"label":"run 1","budget_usd":0.25,"spent_usd":0,"expires_at":"TIME","created_at":"TIME","stopped_at":%s,"certificates":[…],` +
		`"anchor":{"criterion_id":null,"criterion_name":null,"held":false,"held_at":null,"held_reason":null,"pinned_step":null,"checks":0,"history":[]},` +
		`"task_count":2,"scored":0,"purged_at":null}`
	active, stopped := fmt.Sprintf(session, "ACTIVE", "null"), fmt.Sprintf(session, "STOPPED", `"TIME"`)
	const shown = `"id":"rtok_…","object":"reward_token","session_id":"rs_…","name":"slime","created_at":"TIME"`
	each(t, func(t *testing.T, f *fixture) {
		body := fmt.Sprintf(`{"label":"run 1","reward":{"mode":"single","criterionId":%q},"budget_usd":0.25,"agentic":true,"tasks":[{"q":1},{"q":"2"}]}`, f.certified(30).ID)
		made := f.client.Do(t, f.client.Owner, "POST", "/v1/reward/sessions", body)
		if made.Code != 201 || reduced(shape(strings.TrimSpace(made.Body.String()))) != active {
			t.Fatalf("%d\n%s\nwant\n%s", made.Code, reduced(shape(made.Body.String())), active)
		}
		at := "/v1/reward/sessions/" + decoded[struct {
			ID string `json:"id"`
		}](t, made.Body.String()).ID
		for _, c := range []struct {
			key, method, path, body string
			status                  int
			answer                  string
		}{
			{f.client.Member, "GET", at, "", 200, active},
			{f.client.Member, "GET", "/v1/reward/sessions?status=ACTIVE", "", 200, `{"object":"list","data":[` + active + `],"has_more":false}`},
			{f.client.Member, "GET", at + "/tasks", "", 200, `{"object":"list","data":[{"q":1},{"q":"2"}],"has_more":false}`},
			{f.client.Owner, "POST", at + "/tokens", `{"name":"slime"}`, 201, `{` + shown + `,"token":"TOKEN"}`},
			{f.client.Member, "GET", at + "/tokens", "", 200, `{"object":"list","data":[{` + shown + `}],"has_more":false}`},
			{f.client.Owner, "DELETE", at, "", 200, stopped},
			{f.client.Owner, "DELETE", at, "", 200, stopped},
			{f.client.Member, "GET", at, "", 200, stopped},
			{f.client.Owner, "POST", at + "/complete", "", 409, `{"error":{"message":"the reward session rs_… is STOPPED","type":"invalid_request_error","code":"session_not_active","param":null}}`},
		} {
			status, text := f.client.Ask(t, c.key, c.method, c.path, c.body)
			if text = reduced(text); status != c.status || text != c.answer {
				t.Errorf("%s %s: %d\n%s\nwant %d\n%s", c.method, c.path, status, text, c.status, c.answer)
			}
		}
	})
}
