package usage_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

func TestAMemberReadsTheSeriesOfTheWorkspaceAndNobodyElseDoes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		posted := 0
		days, batch := usage.NewDays(), usage.NewBatch()
		for _, c := range []journal.Charge{
			{Workspace: dbtest.Mine, Model: "m1", Key: "key_1", Cost: money.Dollar},
			{Workspace: dbtest.Mine, Model: "m2", Key: "key_1", Cost: 2 * money.Dollar, Outcome: "died"},
			{Workspace: dbtest.Theirs, Model: "m3", Key: "key_2", Cost: money.Dollar},
		} {
			c.At = clock.Now()
			batch.Add(&c, c.Cost)
		}
		handler := usage.NewHandler(usage.NewStore(d), func(ctx context.Context) error { // the poster's work
			if posted++; posted > 1 {
				return nil
			}
			_, err := d.Tx(ctx, func(tx *db.Tx) error { return days.Write(ctx, tx, batch) })
			return err
		})
		f := feed.New(d, slog.New(slog.DiscardHandler), nil)
		today := usage.DayOf(clock.Now()).String()
		shape := func(text string) string { return strings.ReplaceAll(text, today, "TODAY") }
		c := apitest.NewClient(t, d, f, dbtest.Mine, dbtest.Theirs, handler.Routes(), shape)
		path := c.InWorkspace("/usage/series?by=model&top=1&from=" + today)
		c.WantsSession(t, c.Cookies.Member, http.MethodGet, path, "", 200, `{"object":"series","by":"model","unit":"day","from":"TODAY","to":"TODAY",`+
			`"points":[{"day":"TODAY","group":"m2","requests":1,"errors":1,"input_tokens":0,"cached_input_tokens":0,"output_tokens":0,"cost_usd":2,"charged_usd":2,"rest":false},`+
			`{"day":"TODAY","group":"","requests":1,"errors":0,"input_tokens":0,"cached_input_tokens":0,"output_tokens":0,"cost_usd":1,"charged_usd":1,"rest":true}],`+
			`"groups":[{"group":"m2","rest":false,"requests":1,"errors":1,"input_tokens":0,"cached_input_tokens":0,"output_tokens":0,"cost_usd":2,"charged_usd":2},`+
			`{"group":"","rest":true,"requests":1,"errors":0,"input_tokens":0,"cached_input_tokens":0,"output_tokens":0,"cost_usd":1,"charged_usd":1}],`+
			`"totals":{"requests":2,"errors":1,"input_tokens":0,"cached_input_tokens":0,"output_tokens":0,"cost_usd":3,"charged_usd":3}}`)
		for _, path := range []string{path, c.InWorkspace("/usage/export")} {
			c.RefusesSession(t, c.Cookies.Other, http.MethodGet, path, "", 404)
			c.RefusesSession(t, c.Cookies.Nobody, http.MethodGet, path, "", 404)
			c.RefusesSession(t, "", http.MethodGet, path, "", 401)
		}
		c.RefusesSession(t, c.Cookies.Member, http.MethodGet, c.InWorkspace("/usage/series?by=price"), "", 400)
		c.RefusesSession(t, c.Cookies.Member, http.MethodGet, c.InWorkspace("/usage/series?from=2019-01-01"), "", 400)
		if status, text := c.AskSession(t, c.Cookies.Member, http.MethodGet, c.InWorkspace("/usage/export?model=m1"), ""); status != 200 ||
			!strings.HasSuffix(text, "TODAY,m1,key_1,,1,0,0,0,0,1,1") || strings.Contains(text, "m3") {
			t.Errorf("%d %s", status, text)
		}
	})
}

func TestASeriesNamesTheKeysThatTheCallerMayList(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		days, batch := usage.NewDays(), usage.NewBatch()
		for key, owner := range map[string]string{"key_1": "usr_member", "key_2": "usr_owner", "key_3": "usr_other"} {
			ws := dbtest.Mine
			if owner == "usr_other" {
				ws = dbtest.Theirs
			}
			if _, err := db.Exec(t.Context(), d.Across("test"),
				`INSERT INTO users (id, email, created_at) VALUES ($1, $1, 1)`, owner); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(t.Context(), d.In(ws), `
				INSERT INTO api_keys (workspace_id, id, user_id, name, digest, hint, created_at)
				VALUES ($1, $2, $3, $4, $5, 'h', 1)`, key, owner, "name of "+key, []byte(key)); err != nil {
				t.Fatal(err)
			}
			batch.Add(&journal.Charge{Workspace: dbtest.Mine, Model: "m", Key: tenant.KeyID(key), At: clock.Now()}, 0)
		}
		if _, err := d.Tx(t.Context(), func(tx *db.Tx) error { return days.Write(t.Context(), tx, batch) }); err != nil {
			t.Fatal(err)
		}
		posted := func(context.Context) error { return nil }
		f := feed.New(d, slog.New(slog.DiscardHandler), nil)
		routes := usage.NewHandler(usage.NewStore(d), posted).Routes()
		c := apitest.NewClient(t, d, f, dbtest.Mine, dbtest.Theirs, routes, strings.TrimSpace)
		for _, test := range []struct{ cookie, query, want string }{
			{c.Cookies.Member, "by=key", `"key_names":{"key_1":"name of key_1"}`},
			{c.Cookies.Owner, "by=key", `"key_names":{"key_1":"name of key_1","key_2":"name of key_2"}`},
			{c.Cookies.Admin, "by=model&key=key_2", `"key_names":{"key_2":"name of key_2"}`},
			{c.Cookies.Member, "by=model&key=key_2", `"totals":`},
		} {
			status, text := c.AskSession(t, test.cookie, http.MethodGet, c.InWorkspace("/usage/series?"+test.query), "")
			named := strings.Contains(test.want, "key_names")
			if status != 200 || !strings.Contains(text, test.want) || strings.Contains(text, "key_names") != named {
				t.Errorf("%s: %d %s, want %s", test.query, status, text, test.want)
			}
		}
	})
}
