package e2e

import (
	"net/http"
	"testing"

	"sovereign/internal/base/secret"
)

// The operations listener answers to its own names alone: no web page reads it by a name that it rebinds.
func TestTheOperationsListenerChecksTheHost(t *testing.T) {
	t.Parallel()
	operations := freeAddress(t)
	newInstance(t, secret.Text{}).serve(t, "--operations-listen", operations, "--operations-hosts", "metrics.test")
	for host, want := range map[string]int{operations: 200, "localhost": 200, "metrics.test:9090": 200, "evil.test": 403} {
		for _, path := range []string{"/metrics", "/healthz", "/debug/pprof/"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+operations+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s of %s: %d, want %d", path, host, response.StatusCode, want)
			}
		}
	}
}
