package apitest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

// People are those whose sessions a router under test knows.
type People struct {
	Workspace tenant.ID // in which they have their roles
	Elsewhere tenant.ID // in which another person is the owner
	Key       string    // an API key of an owner
	Digest    string    // the stored digest of a session, as hex
	Ended     string    // the cookie of a session that was ended

	// Session returns the cookie of a session of that person: owner, admin, member, other (an owner elsewhere) or
	// nobody (who belongs to no workspace). A fresh one has not been used before.
	Session func(person string, fresh bool) string
}

// A Browser is a way of sending a request to the dashboard's API, and what it must get from a route. Status 0 is
// anything but 401, 403 and 500; -1 is 404 on routes of a workspace, and like 0 on others.
type Browser struct {
	Name    string
	Person  string   // whose cookie it sends; empty for none
	Headers []string // names and values in turn
	Host    string
	Want    func(r api.Route) (status int, code string)
}

// write reports whether a route changes something.
func write(r api.Route) bool { return r.Method != http.MethodGet }

func unknown(r api.Route) (int, string) {
	if r.Permission == api.Visitor {
		return 0, ""
	}
	return http.StatusUnauthorized, "not_signed_in"
}

// crossed is a browser that shows a session from the page of another site: nothing is written.
func crossed(r api.Route) (int, string) {
	if write(r) {
		return http.StatusForbidden, "cross_origin"
	}
	return 0, ""
}

// crossSite is a browser without a session, on the page of another site: it signs nobody in.
func crossSite(r api.Route) (int, string) {
	if write(r) {
		return crossed(r)
	}
	return unknown(r)
}

func stranger(r api.Route) (int, string) {
	switch r.Permission {
	case api.Visitor, api.SignedIn:
		return 0, ""
	case api.SessionReviewer:
		return -1, "" // the handler finds no grant
	default:
		return http.StatusNotFound, "not_found"
	}
}

// allowed is a person of the workspace, who is refused what is for higher roles.
func allowed(refused ...api.Permission) func(api.Route) (int, string) {
	return func(r api.Route) (int, string) {
		for _, p := range refused {
			if r.Permission == p {
				return http.StatusForbidden, "insufficient_permissions"
			}
		}
		return 0, ""
	}
}

func misdirected(api.Route) (int, string) { return http.StatusForbidden, "cross_origin" }

// Browsers returns every kind of browser.
func Browsers(p People) []Browser {
	garbage := strings.Repeat("A", 43)
	cookie := func(value string) []string { return []string{"Cookie", "__Host-sovereign=" + value} }
	twice := p.Session("owner", false) + "; " + p.Session("owner", false)
	renamed := strings.Replace(p.Session("owner", false), "__Host-", "", 1)
	return []Browser{
		{"no cookie", "", nil, "", unknown},
		{"empty cookie", "", cookie(""), "", unknown},
		{"garbage", "", cookie(garbage), "", unknown},
		{"short garbage", "", cookie("x"), "", unknown},
		{"stored digest", "", cookie(p.Digest), "", unknown},
		{"ended session", "", []string{"Cookie", p.Ended}, "", unknown},
		{"two cookies", "", []string{"Cookie", twice}, "", unknown},
		{"another name", "", []string{"Cookie", renamed}, "", unknown},
		{"a key", "", []string{"Authorization", "Bearer " + p.Key}, "", unknown},
		{"a key as a cookie", "", cookie(p.Key), "", unknown},
		{"nobody", "nobody", nil, "", stranger},
		{"owner elsewhere", "other", nil, "", stranger},
		{"owner elsewhere with a key", "other", []string{"Authorization", "Bearer " + p.Key}, "", stranger},
		{"member", "member", nil, "", allowed(api.Admin, api.SessionAdmin, api.SessionOwner)},
		{"admin", "admin", nil, "", allowed(api.SessionOwner)},
		{"owner", "owner", nil, "", allowed()},
		{"owner on the page", "owner", []string{
			"Origin", "http://localhost", "Sec-Fetch-Site", "same-origin",
		}, "", allowed()},
		{"another origin", "owner", []string{"Origin", "https://evil.test"}, "", crossed},
		{"opaque origin", "owner", []string{"Origin", "null"}, "", crossed},
		{"cross-site", "owner", []string{"Sec-Fetch-Site", "cross-site", "Origin", "http://localhost"}, "", crossed},
		{"same-site", "owner", []string{"Sec-Fetch-Site", "same-site"}, "", crossed},
		{"a form elsewhere", "owner", []string{
			"Content-Type", "text/plain", "Sec-Fetch-Site", "cross-site",
		}, "", crossed},
		{"an old browser's form", "owner", []string{
			"Content-Type", "text/plain", "Origin", "https://evil.test",
		}, "", crossed},
		{"a visitor elsewhere", "", []string{"Origin", "https://evil.test"}, "", crossSite},
		{"a visitor's form elsewhere", "", []string{
			"Content-Type", "text/plain", "Sec-Fetch-Site", "cross-site",
		}, "", crossSite},
		{"another host", "owner", nil, "evil.test", misdirected},
		{"a rebound host", "owner", []string{
			"Origin", "http://evil.test", "Sec-Fetch-Site", "same-origin",
		}, "evil.test", misdirected},
	}
}

// SessionMatrix calls every route of the dashboard, and every route of /v1 on the dashboard's mount, as every browser.
// What a workspace's people may not know is 404 whether it exists or not.
func SessionMatrix(t *testing.T, base string, routes []api.Route, p People) {
	t.Helper()
	address, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	browsers, checked := Browsers(p), 0
	for _, route := range routes {
		path := sessionPath(route)
		if path == "" {
			checked += absent(t, address.Host, route, p)
			continue
		}
		path = placed(path, p.Workspace)
		for _, b := range browsers {
			cookie := ""
			if b.Person != "" {
				cookie = p.Session(b.Person, route.Permission == api.SignedIn && write(route))
			}
			got := b.ask(t, address.Host, route.Method, path, cookie)
			status, code := b.Want(route)
			what := fmt.Sprintf("%s %s as %s", route.Method, path, b.Name)
			if status < 0 {
				if got.status < http.StatusBadRequest || got.status == http.StatusInternalServerError {
					t.Errorf("%s: %d %s", what, got.status, got.body)
				}
			} else {
				got.must(t, what, status, code)
			}
			checked++
		}
		checked += spellings(t, address.Host, route, path, p)
	}
	t.Logf("%d routes, %d requests", len(routes), checked)
}

// sessionPath returns the path of a route for sessions. It is empty where a session has none.
func sessionPath(r api.Route) string {
	switch r.Permission {
	case api.Reader, api.Admin:
		return r.CookieURL()
	case api.Public, api.Token, api.Worker, api.Operator:
		return ""
	default:
		return r.URL()
	}
}

func placed(path string, ws tenant.ID) string {
	return wildcard.ReplaceAllString(strings.Replace(path, "{workspace}", string(ws), 1), "some-id")
}

// absent checks that a route which sessions do not have is not there for an owner's: inference, and what operators do.
// A cookie is no key.
func absent(t *testing.T, host string, r api.Route, p People) int {
	t.Helper()
	paths := []string{
		"/dashboard/api" + r.Path, "/dashboard/api/w/" + string(p.Workspace) + r.Pattern(),
		"/dashboard/v1/" + string(p.Workspace) + r.Pattern(),
	}
	if r.Permission == api.Reader || r.Permission == api.Admin { // operators share paths with keys
		paths = append(
			paths, "/dashboard/v1/"+string(p.Workspace)+r.Path, "/dashboard/v1/"+string(p.Workspace)+"/v1"+r.Path,
		)
	}
	for _, path := range paths {
		if r.Permission == api.Public && strings.HasPrefix(path, "/dashboard/api/openapi.json") {
			continue // the dashboard has its own
		}
		got := Browser{}.ask(t, host, r.Method, placed(path, p.Workspace), p.Session("owner", false))
		if got.status != http.StatusNotFound {
			t.Errorf("%s %s as owner: %d %s", r.Method, path, got.status, got.body)
		}
	}
	return len(paths)
}

// spellings checks that no unusual spelling of a path opens it to a browser that the plain path refuses, that a method
// in a header is no method, and that a cookie opens nothing outside of the dashboard.
func spellings(t *testing.T, host string, r api.Route, path string, p People) int {
	t.Helper()
	n := 0
	other, member := p.Session("other", false), p.Session("member", false)
	for _, odd := range oddSession(path) {
		for name, cookie := range map[string]string{"no cookie": "", "owner elsewhere": other} {
			if (r.Permission == api.SignedIn || r.Permission == api.Visitor) &&
				(cookie != "" || r.Permission == api.Visitor) {
				continue // the plain path is open to it
			}
			got := Browser{}.ask(t, host, r.Method, odd, cookie)
			if got.status < http.StatusBadRequest && !got.page {
				t.Errorf("%s %s as %s: %d %s", r.Method, odd, name, got.status, got.body)
			}
			n++
		}
	}
	if write(r) && r.Permission != api.Visitor {
		plain := Browser{}.ask(t, host, http.MethodGet, path, member)
		over := Browser{Headers: []string{
			"X-HTTP-Method-Override", r.Method, "X-Method-Override", r.Method,
		}}.ask(t, host, http.MethodGet, path, member)
		if plain.status != over.status {
			t.Errorf("GET %s with a method in a header: %d, without %d", path, over.status, plain.status)
		}
		n += 2
	}
	if r.CookieURL() != "" {
		key := wildcard.ReplaceAllString(r.Pattern(), "some-id")
		Browser{}.ask(t, host, r.Method, key, p.Session("owner", false)).must(
			t, r.Method+" "+key+" with a cookie", http.StatusUnauthorized, "invalid_api_key",
		)
		n++
	}
	return n
}

// oddSession returns spellings of a path that must never reach what the plain path reaches without its cookie.
func oddSession(path string) []string {
	const mount = "/dashboard"
	tail := strings.TrimPrefix(path, mount+"/")
	first, rest, _ := strings.Cut(tail, "/")
	return []string{
		"/" + path, mount + "//" + tail, mount + "/./" + tail, mount + "/x/../" + tail, "/x/.." + path,
		mount + "%2F" + tail, mount + "/" + first + "%2F" + rest, mount + "/" + first + "//" + rest,
		mount + "/" + first + "/./" + rest, path + "/", path + "/.", path + "%2F", path + "%00", path + ";x=1",
		"/api" + path, "/v1" + path, strings.ToUpper(mount) + "/" + tail,
		mount + "/" + strings.ToUpper(first) + "/" + rest, "/%64ashboard/" + tail, mount + "/%61pi/" + rest,
		mount + "/%76" + "1/" + rest, strings.Replace(path, "/ws_", "/ws%5F", 1),
		strings.Replace(path, "/w/ws_", "/w//ws_", 1), strings.Replace(path, "/w/ws_", "/w/../w/ws_", 1),
	}
}

// ask sends a request with a cookie, unchanged.
func (b Browser) ask(t *testing.T, address, method, path, cookie string) got {
	t.Helper()
	headers := b.Headers
	if cookie != "" {
		headers = append([]string{"Cookie", cookie}, headers...)
	}
	host := b.Host
	if host == "" {
		host = "localhost"
	}
	return askWith(t, address, method, path, host, headers)
}
