// Package apitest tests that a router denies by default: every route it lists, every kind of invalid caller, every
// unusual spelling of the path. Its Client calls one domain's routes as callers of each kind.
package apitest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"sovereign/internal/store/api"
)

// Keys are callers that a router under test knows.
type Keys struct {
	Owner, Admin, Member string // in force
	Revoked, Departed    string // once in force
	Other                string // in force, in another workspace
	Stranger             string // well formed, never minted
	Digest               string // the stored digest of Owner, as hex
}

// A Caller is a way of authenticating, and what it must get from a route of a permission.
type Caller struct {
	Name   string
	Header []string // the Authorization headers that are sent
	Want   func(api.Permission) (status int, code string)
}

func denied(api.Permission) (int, string) { return http.StatusUnauthorized, "invalid_api_key" }

func departed(api.Permission) (int, string) {
	return http.StatusForbidden, "insufficient_permissions"
}

func granted(api.Permission) (int, string) { return 0, "" }

func member(p api.Permission) (int, string) {
	if p == api.Admin {
		return http.StatusForbidden, "insufficient_permissions"
	}
	return 0, ""
}

// Callers returns every kind of caller.
func Callers(k Keys) []Caller {
	bearer := func(key string) []string { return []string{"Bearer " + key} }
	mistyped := k.Owner[:len(k.Owner)-1] + string(k.Owner[len(k.Owner)-1]^1)
	return []Caller{
		{"no key", nil, denied},
		{"empty", []string{""}, denied},
		{"no scheme", []string{k.Owner}, denied},
		{"another scheme", []string{"Basic " + k.Owner}, denied},
		{"two headers", []string{"Bearer " + k.Owner, "Bearer " + k.Owner}, denied},
		{"two keys", bearer(k.Owner + ", Bearer " + k.Owner), denied},
		{"trailing text", bearer(k.Owner + " x"), denied},
		{"mistyped", bearer(mistyped), denied},
		{"upper case", bearer(strings.ToUpper(k.Owner)), denied},
		{"prefix alone", bearer("sk_sovereign_"), denied},
		{"half a key", bearer(k.Owner[:len(k.Owner)/2]), denied},
		{"stored digest", bearer(k.Digest), denied},
		{"stored digest as a key", bearer("sk_sovereign_" + k.Digest), denied},
		{"never minted", bearer(k.Stranger), denied},
		{"revoked", bearer(k.Revoked), denied},
		{"departed user", bearer(k.Departed), departed},
		{"member", bearer(k.Member), member},
		{"admin", bearer(k.Admin), granted},
		{"owner", bearer(k.Owner), granted},
		{"owner of another workspace", bearer(k.Other), granted},
		{"scheme in lower case", []string{"bearer " + k.Owner}, granted},
	}
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// Matrix calls every route as every caller, on both mounts and in every unusual spelling, over raw connections so
// that no client cleans the path. A route accepts a valid caller when it answers anything but 401 and 403.
func Matrix(t *testing.T, base string, routes []api.Route, k Keys) {
	t.Helper()
	address, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, route := range routes {
		if route.Permission >= api.Visitor {
			continue // see SessionMatrix
		}
		path := wildcard.ReplaceAllString(route.Pattern(), "some-id")
		if route.Permission == api.Public {
			got := ask(t, address.Host, route.Method, path, "localhost", nil)
			if got.status != http.StatusOK && got.status != http.StatusServiceUnavailable {
				t.Errorf("%s %s without a key: %d", route.Method, path, got.status)
			}
			checked++
			continue
		}
		// whatever key is sent: a path without a valid token opens nothing
		if route.Permission == api.Token || route.Permission == api.Worker {
			for _, caller := range Callers(k) {
				got := ask(t, address.Host, route.Method, path, "localhost", caller.Header)
				got.must(t, fmt.Sprintf("%s %s as %s", route.Method, path, caller.Name),
					http.StatusUnauthorized, "invalid_api_key")
				checked++
			}
			continue
		}
		for _, caller := range Callers(k) {
			status, code := caller.Want(route.Permission)
			for _, spelling := range []string{path, "/api" + path} {
				for _, host := range []string{"localhost", "evil.test", "127.0.0.1:1", "[::1]"} {
					got := ask(t, address.Host, route.Method, spelling, host, caller.Header)
					got.must(
						t, fmt.Sprintf("%s %s as %s at %s", route.Method, spelling, caller.Name, host), status, code,
					)
					checked++
				}
			}
			for _, spelling := range odd(path) {
				got := ask(t, address.Host, route.Method, spelling, "localhost", caller.Header)
				// A valid caller may reach a route that takes the unusual text for an id; no caller is redirected.
				reached := status == 0 && got.status < 300 && wildcard.MatchString(route.Path)
				refused := got.status >= http.StatusBadRequest && got.status <= http.StatusMethodNotAllowed
				if !refused && !reached {
					t.Errorf("%s %s as %s: %d", route.Method, spelling, caller.Name, got.status)
				}
				checked++
			}
		}
	}
	t.Logf("%d routes, %d requests", len(routes), checked)
}

// odd returns spellings of a path that must never reach what the plain path reaches.
func odd(path string) []string {
	mount, tail := path[:len("/v1")], path[len("/v1/"):]
	return []string{
		"/" + path, "//api" + path, mount + "//" + tail, mount + "/./" + tail, mount + "/x/../" + tail, "/x/.." + path,
		"/.." + path, mount + "%2F" + tail, "/%2F" + mount[1:] + "/" + tail, mount + "/%2e%2e" + mount + "/" + tail,
		mount + "/x%2F..%2F" + tail, strings.ToUpper(mount) + "/" + tail, "/api/api" + path,
		"/api%2F" + mount[1:] + "/" + tail, "/api" + mount + "%2F" + tail, path + "/", path + "/..", path + "%00",
		path + "%2F", "/api/" + mount + "/" + tail, mount + "/" + tail + ";x=1",
		"/%76" + mount[2:] + "%2f" + tail,
	}
}

type got struct {
	status int
	body   []byte
	id     string
	page   bool // HTML
}

func (g got) must(t *testing.T, what string, status int, code string) {
	t.Helper()
	if !strings.HasPrefix(g.id, "req_") {
		t.Errorf("%s: request id %q", what, g.id)
	}
	if status == 0 {
		if g.status == http.StatusUnauthorized || g.status == http.StatusForbidden ||
			g.status == http.StatusInternalServerError {
			t.Errorf("%s: %d %s", what, g.status, g.body)
		}
		return
	}
	var body struct {
		Error struct{ Type, Code, Message string }
	}
	err := json.Unmarshal(g.body, &body)
	if err != nil || g.status != status || body.Error.Code != code || body.Error.Type != "invalid_request_error" ||
		body.Error.Message == "" {
		t.Errorf("%s: want %d %s, got %d %s", what, status, code, g.status, g.body)
	}
}

// ask sends a request with Authorization headers.
func ask(t *testing.T, address, method, path, host string, authorization []string) got {
	t.Helper()
	var headers []string
	for _, value := range authorization {
		headers = append(headers, "Authorization", value)
	}
	return askWith(t, address, method, path, host, headers)
}

// askWith sends a request until the server serves: on a machine with much else to do it may lose its lease on the
// database for a moment, and then refuses everything. Headers are names and values in turn.
func askWith(t *testing.T, address, method, path, host string, headers []string) got {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		answer := send(t, address, method, path, host, headers)
		refused := answer.status == http.StatusServiceUnavailable && bytes.Contains(answer.body, []byte("not serving: "))
		if !refused || time.Now().After(end) {
			return answer
		}
	}
}

// send writes the request unchanged; net/http's client would clean it.
func send(t *testing.T, address, method, path, host string, headers []string) got {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	var request strings.Builder
	fmt.Fprintf(
		&request, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 0\r\n", method, path, host,
	)
	for i := 0; i < len(headers); i += 2 {
		fmt.Fprintf(&request, "%s: %s\r\n", headers[i], headers[i+1])
	}
	request.WriteString("\r\n")
	if _, err := io.WriteString(conn, request.String()); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	var body []byte
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		_ = conn.Close() // events have no end
	} else if body, err = io.ReadAll(response.Body); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	page := strings.HasPrefix(response.Header.Get("Content-Type"), "text/html")
	return got{status: response.StatusCode, body: body, id: response.Header.Get("X-Request-Id"), page: page}
}
