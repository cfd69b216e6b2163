package e2e

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var linkText = regexp.MustCompile(`(https?://[^\s"]+)/dashboard/#link=([A-Za-z0-9_-]{43})`)

// dashboard sends a request to the dashboard's API with a cookie, and returns the status, the body and the cookie
// afterwards.
func (s *process) dashboard(t *testing.T, cookie, method, path, body string) (status int, text, after string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.address()+"/dashboard/api"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Cookie", cookie)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range response.Cookies() {
		cookie = set.Name + "=" + set.Value
	}
	return response.StatusCode, string(answer), cookie
}

// The first start prints a link that opens the dashboard once. What it opens survives kill -9, and another link is a
// command.
func TestTheFirstStartPrintsALinkThatSignsInOnce(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		s := p.serve(t)
		found := linkText.FindStringSubmatch(s.out.find(linkText, s.done))
		if len(found) != 3 || found[1] != s.address() {
			t.Fatalf("no link of %s in %s", s.address(), s.out)
		}
		body := `{"token":"` + found[2] + `"}`
		status, text, cookie := s.dashboard(t, "", "POST", "/session/link", body)
		if status != 200 || !strings.Contains(text, `"email":"owner@localhost"`) || !strings.Contains(text, `"role":"owner"`) {
			t.Fatalf("%d %s", status, text)
		}
		if status, text, _ := s.dashboard(t, "", "POST", "/session/link", body); status != 403 {
			t.Errorf("a second time: %d %s", status, text)
		}
		s.kill()
		again := p.serve(t)
		if linkText.MatchString(again.out.String()) {
			t.Error("a second start prints a link")
		}
		if status, text, _ := again.dashboard(t, cookie, "GET", "/sessions", ""); status != 200 {
			t.Errorf("after kill -9: %d %s", status, text)
		}
		var made struct{ URL, Email string }
		p.mustAdmin(t, &made, "dashboard", "link", "--email", "owner@localhost", "--json")
		token := linkText.FindStringSubmatch(made.URL)
		if len(token) != 3 {
			t.Fatalf("%+v", made)
		}
		status, _, other := again.dashboard(t, "", "POST", "/session/link", `{"token":"`+token[2]+`"}`)
		if status != 200 || other == cookie {
			t.Errorf("another link: %d", status)
		}
		if _, stderr, code := p.admin(t, "dashboard", "link", "--email", "stranger@nowhere.test"); code == 0 || !strings.Contains(stderr, "no member") {
			t.Errorf("a link for a stranger: %d %s", code, stderr)
		}
		for _, log := range []string{s.log.String(), again.log.String()} {
			for _, secret := range []string{found[2], token[2], strings.TrimPrefix(cookie, "__Host-sovereign=")} {
				if strings.Contains(log, secret) {
					t.Error("a secret is in the log")
				}
			}
		}
	})
}
