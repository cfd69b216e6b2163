package apitest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

// A Resident is a workspace with the cookie of its owner.
type Resident struct {
	Workspace tenant.ID
	Cookie    string
}

// ForeignIDs asks every route for sessions that names a thing by its id, with the ids of full, a workspace that has
// things of every kind. The owner of full opens them; the owner of other finds none of them in other. It returns how
// many routes the owner of full has opened.
func ForeignIDs(t *testing.T, server string, routes []api.Route, full, other Resident, ids []string) int {
	t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{} // the id of full's that a path up to its first wildcard opens
	paths := func(template string) (all []string) {
		before, after, _ := strings.Cut(template, "{")
		_, after, _ = strings.Cut(after, "}")
		if !strings.Contains(after, "{") {
			for _, id := range ids {
				all = append(all, before+id+after)
			}
			return all
		}
		for _, id := range ids {
			all = append(all, before+known[before]+wildcard.ReplaceAllString(after, id))
		}
		return all
	}
	opened := 0
	for _, wildcards := range []int{1, 2} {
		for _, r := range routes {
			template, ok := named(r)
			if !ok || r.Method != http.MethodGet || min(strings.Count(template, "{"), 2) != wildcards {
				continue
			}
			found := false
			for i, path := range paths(template) {
				got := Browser{}.ask(t, address.Host, r.Method, at(path, full.Workspace), full.Cookie)
				if got.status == http.StatusOK {
					before, _, _ := strings.Cut(template, "{")
					if wildcards == 1 && strings.HasSuffix(template, "}") {
						known[before] = ids[i]
					}
					found = true
				}
			}
			if found {
				opened++
			}
		}
	}
	for _, r := range routes {
		template, ok := named(r)
		if !ok {
			continue
		}
		for _, path := range paths(template) {
			got := Browser{}.ask(t, address.Host, r.Method, at(path, other.Workspace), other.Cookie)
			if got.status < http.StatusBadRequest || got.status >= http.StatusInternalServerError {
				t.Errorf("%s %s elsewhere: %d %.300s", r.Method, path, got.status, got.body)
			}
		}
	}
	return opened
}

// named returns the path of a route of a workspace in which a thing is named.
func named(r api.Route) (string, bool) {
	path, ok := strings.CutPrefix(strings.Replace(sessionPath(r), "{workspace}", "*", 1), "/dashboard/")
	return "/dashboard/" + path, ok && strings.Contains(path, "*") && strings.Contains(path, "{")
}

func at(path string, ws tenant.ID) string { return strings.Replace(path, "*", string(ws), 1) }
