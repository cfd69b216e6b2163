package view

import (
	"log/slog"
	"net/http"
	"regexp"
	"testing"

	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/feed"
)

var changing = regexp.MustCompile(`view_[0-9a-z]+|\d{4}-\d\d-\d\dT[0-9:.]+Z`)

func TestMembersManageTheirViewsWithASessionAlone(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		shape := func(text string) string { return changing.ReplaceAllString(text, "X") }
		f := feed.New(s.db, slog.New(slog.DiscardHandler), nil)
		c := apitest.NewClient(t, s.db, f, "ws_mine", "ws_theirs", Module(s).Routes, shape)
		views := c.InWorkspace("/views")
		const shown = `{"id":"X","object":"view","page":"logs","name":"slow","query":"tag=a","shared":true,"owner_id":"usr_member","created_at":"X","updated_at":"X"}`
		c.WantsSession(t, c.Cookies.Member, http.MethodPost, views, `{"page":"logs","name":"slow","query":"tag=a","shared":true}`, 201, shown)
		c.WantsSession(t, c.Cookies.Owner, http.MethodGet, views+"?page=logs", "", 200, `{"object":"list","data":[`+shown+`],"has_more":false}`)
		all, err := s.List(t.Context(), ann, "", 10, 0)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		one := views + "/" + all[0].ID
		c.WantsSession(t, c.Cookies.Admin, http.MethodPatch, one, `{"name":"slow"}`, 200, shown)
		c.RefusesSession(t, c.Cookies.Other, http.MethodGet, one, "", 404)
		c.RefusesSession(t, c.Cookies.Other, http.MethodDelete, "/dashboard/api/w/ws_theirs/views/"+all[0].ID, "", 404)
		c.RefusesSession(t, "", http.MethodGet, one, "", 401)
		c.RefusesSession(t, c.Cookies.Member, http.MethodPost, views, `{"page":"logs","name":"a","sql":"x"}`, 400)
		if status, _ := c.Ask(t, c.Owner, http.MethodGet, views, ""); status < 400 {
			t.Errorf("a key gets %d", status)
		}
		c.WantsSession(t, c.Cookies.Owner, http.MethodDelete, one, "", 200, `{"id":"X","object":"view","deleted":true}`)
	})
}
