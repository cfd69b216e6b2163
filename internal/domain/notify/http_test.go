package notify

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/feed"
)

var varying = regexp.MustCompile(`"(id|created_at|updated_at|next_attempt_at|notice_id|channel_id|secret)":"[^"]*"`)

func TestPeopleManageChannelsOfTheirWorkspace(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		mine, theirs := f.workspace(), f.workspace()
		r := newReceiver(t)
		c := apitest.NewClient(t, f.db, feed.New(f.db, slog.New(slog.DiscardHandler), nil), mine, theirs, (&handler{f.Store}).routes(),
			func(text string) string { return varying.ReplaceAllString(text, `"$1":"…"`) })
		at, admin := c.InWorkspace, c.Cookies.Admin
		body := `{"type":"webhook","address":"` + r.URL + `","kinds":["wallet.low"]}`
		shown := `{"id":"…","object":"channel","type":"webhook","address":"` + r.URL + `","kinds":["wallet.low"],"enabled":true,"failing_since":null,"created_at":"…","updated_at":"…"`
		c.WantsSession(t, admin, "POST", at("/channels"), body, 201, shown+`,"secret":"…"}`)
		c.WantsSession(t, admin, "GET", at("/channels"), "", 200, `{"object":"list","data":[`+shown+`}],"has_more":false}`)
		all, err := f.List(t.Context(), mine, 10, 0)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		one := at("/channels/" + all[0].ID)
		c.WantsSession(t, admin, "POST", one+"/test", "", 202,
			`{"id":"…","object":"delivery","channel_id":"…","notice_id":"…","kind":"channel.test","state":"pending","attempts":0,"next_attempt_at":"…","created_at":"…","ended_at":null}`)
		if f.poll(); len(r.got) != 1 {
			t.Errorf("the test arrived %d times", len(r.got))
		}
		if code, text := c.AskSession(t, admin, "GET", one+"/deliveries", ""); code != 200 || !strings.Contains(text, `"state":"delivered"`) {
			t.Errorf("%d %s", code, text)
		}
		c.WantsSession(t, c.Cookies.Member, "GET", at("/notices"), "", 200, `{"object":"list","data":[],"has_more":false}`)
		if code, text := c.AskSession(t, admin, "PATCH", at("/notifications"), `{"wallet_low_usd":12.5}`); code != 200 || !strings.Contains(text, `"wallet_low_usd":12.5,"email":true,"kinds":[{"kind":"wallet.low"`) {
			t.Errorf("%d %s", code, text)
		}
		for _, refused := range []struct {
			cookie, method, path, body string
			status                     int
		}{
			{c.Cookies.Member, "GET", at("/channels"), "", 403},
			{c.Cookies.Member, "POST", at("/channels"), body, 403},
			{c.Cookies.Member, "PATCH", at("/notifications"), `{"wallet_low_usd":1}`, 403},
			{c.Cookies.Other, "GET", one, "", 404},
			{c.Cookies.Nobody, "GET", at("/notices"), "", 404},
			{"", "GET", at("/notices"), "", 401},
			{admin, "PATCH", one, `{"address":"https://elsewhere.example"}`, 400},
			{admin, "PATCH", one, `{"kinds":["channel.test"]}`, 400},
			{admin, "POST", at("/channels"), `{"type":"webhook","address":"` + r.URL + `","kinds":["all"]}`, 400},
			{admin, "PATCH", at("/notifications"), `{"wallet_low_usd":-1}`, 400},
			{admin, "GET", at("/channels/chan_none/deliveries"), "", 404},
			{admin, "POST", one + "/deliveries/dlv_none/redelivery", "", 404},
		} {
			c.RefusesSession(t, refused.cookie, refused.method, refused.path, refused.body, refused.status)
		}
		c.RefusesSession(t, admin, "DELETE", one, "", 200)
		c.RefusesSession(t, admin, "GET", one, "", 404)
	})
}

// The secret of an answer is not kept: its repetition is refused and makes nothing.
func TestARepeatedCreationShowsNoSecretTwice(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		mine, theirs := f.workspace(), f.workspace()
		r := newReceiver(t)
		c := apitest.NewClient(t, f.db, feed.New(f.db, slog.New(slog.DiscardHandler), nil), mine, theirs, (&handler{f.Store}).routes(),
			func(text string) string { return text })
		body := `{"type":"webhook","address":"` + r.URL + `","kinds":["wallet.low"]}`
		var made Channel
		code, text := c.AskSession(t, c.Cookies.Owner, "POST", c.InWorkspace("/channels"), body, "Idempotency-Key", "once")
		if err := json.Unmarshal([]byte(text), &made); err != nil || code != 201 || !strings.HasPrefix(made.Secret, secretPrefix) {
			t.Fatalf("%d %s %v", code, text, err)
		}
		code, text = c.AskSession(t, c.Cookies.Owner, "POST", c.InWorkspace("/channels"), body, "Idempotency-Key", "once")
		if all, err := f.List(t.Context(), mine, 10, 0); code != 409 || strings.Contains(text, secretPrefix) || err != nil || len(all) != 1 {
			t.Errorf("%d %s, %d channels, %v", code, text, len(all), err)
		}
	})
}
