package e2e

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"sovereign/internal/base/secret"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *process) expect(t *testing.T, pattern string) {
	t.Helper()
	if s.log.find(regexp.MustCompile(pattern), s.done) == "" {
		t.Errorf("the log does not say %s:\n%s", pattern, s.log)
	}
}

func TestForwardedAddressIsBelievedOfTrustedProxiesAlone(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{"": "client=127.0.0.1", "--trusted-proxies=127.0.0.0/8,10.0.0.0/8": "client=203.0.113.7"} {
		args := []string{"--log-level", "debug"}
		if flag != "" {
			args = append(args, flag)
		}
		s := newInstance(t, secret.Text{}).serve(t, args...)
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.address()+"/healthz", http.NoBody)
		request.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.7, 10.1.2.3")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		s.expect(t, want+`\b`)
	}
}

func TestVerifyAndVersion(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := run(t, "version")
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "sovereign ") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	stdout, stderr, code = run(t, "verify", "/nowhere.json", "--jwks", "/nowhere.jwks")
	fails(t, stdout, stderr, code, "no such file")
	stdout, stderr, code = run(t, "verify", "/nowhere.json")
	fails(t, stdout, stderr, code, "--jwks")
	stdout, stderr, code = run(t)
	fails(t, stdout, stderr, code, "expected one of")
}
