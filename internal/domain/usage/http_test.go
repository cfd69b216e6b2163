package usage_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
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
