package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
)

// A customer's own server is a candidate: it is called once for each case, with its key, and costs nothing. The gate
// lets the better one through and refuses the worse one. Once it is deleted, no eval can name it, and results stay.
func TestACustomersServerIsACandidateOfAnEval(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		var calls atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Header.Get("Authorization") != "Bearer canaryendpoint" || !strings.Contains(string(body), `"tuned-7b"`) {
				t.Errorf("called with %v: %s", r.Header, body)
			}
			n, quality := calls.Add(1), strings.Split(r.URL.Path, "/")[1]
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"Answer %d, %s. [sim quality=%s]"},"finish_reason":"stop"}]}`,
				n, "canaryendpoint", quality)
		}))
		defer server.Close()
		s := p.serve(t, "--guard-allow", "127.0.0.1/32")
		keyFile := filepath.Join(t.TempDir(), "key")
		writeFile(t, keyFile, s.key())
		var shown bytes.Buffer
		call := func(method, path, body string, want int) (out struct{ ID string }) {
			t.Helper()
			request, err := http.NewRequestWithContext(t.Context(), method, s.address()+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header = http.Header{"Authorization": {"Bearer " + s.key()}, "Content-Type": {"application/json"}}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			text, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != want {
				t.Fatalf("%s %s: %d %s %v", method, path, response.StatusCode, text, err)
			}
			shown.Write(text)
			_ = json.Unmarshal(text, &out, json.MatchCaseInsensitiveNames(true))
			return out
		}
		const cases = 30
		var asked []string
		for i := range cases {
			asked = append(asked, fmt.Sprintf(`{"messages":[{"role":"user","content":"Where is order %d?"}]}`, i))
		}
		start := func(endpoint string, want int) string {
			t.Helper()
			return call("POST", "/v1/evals", `{"name":"e","rubric":"It helps.","judge_model":"sim/judge","baseline_model":"sim/chat","candidate_models":["endpoint/`+
				endpoint+`"],"cases":[`+strings.Join(asked, ",")+`]}`, want).ID
		}
		for quality, want := range map[string]int{"0.99": 0, "0.01": 1} {
			at := call("POST", "/v1/endpoints", `{"name":"tuned","base_url":"`+server.URL+`/`+quality+`","model":"tuned-7b","api_key":"canaryendpoint"}`, 201).ID
			calls.Store(0)
			eval := start(at, 202)
			gate := func() (string, int) {
				out, errs, code := run(t, "gate", eval, "--url", s.address(), "--key-file", keyFile, "--min-win-rate", "0.5")
				return out + errs, code
			}
			if text, code := gate(); code != want || calls.Load() != cases {
				t.Errorf("quality %s: exits with %d after %d calls, want %d:\n%s", quality, code, calls.Load(), want, text)
			}
			call("GET", "/v1/evals/"+eval+"/cases?limit=1000", "", 200)
			call("DELETE", "/v1/endpoints/"+at, "", 200)
			start(at, 404)
			if text, code := gate(); code != want {
				t.Errorf("quality %s, deleted: exits with %d:\n%s", quality, code, text)
			}
		}
		if !strings.Contains(shown.String(), "Answer 1, [redacted]") || strings.Contains(shown.String()+s.log.String(), "canaryendpoint") {
			t.Errorf("the key is in an answer or in the log")
		}
		p.verifyLedger(t)
	})
}
