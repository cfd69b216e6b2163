package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sovereign/internal/base/secret"
)

// A canary in every secret slot, sent through everything that writes: it is in no log line, no metric, no trace, no
// error, no answer but the one that shows it, and in no file but the root key's own.
func TestSecretsAppearNowhere(t *testing.T) {
	t.Parallel()
	var spans bytes.Buffer
	var mu sync.Mutex
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&spans, r.URL, r.Header)
		_, _ = io.Copy(&spans, body)
	}))
	defer collector.Close()
	eachEngine(t, func(t *testing.T, p instance) {
		operations := freeAddress(t)
		if !p.url.Empty() { // the server trusts everyone on loopback, so any password does
			p.url = secret.New(strings.Replace(p.url.Reveal(), "sovereign@", "sovereign:canarypassword@", 1))
		}
		// Every way in which a provider can repeat the key that it was sent.
		echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, _ := strconv.Atoi(strings.Split(r.URL.Path, "/")[1])
			w.Header().Set("X-Key", r.Header.Get("Authorization"))
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"error":{"message":"bad key %s"}}`, r.Header.Get("Authorization"))
		}))
		defer echo.Close()
		config := filepath.Join(t.TempDir(), "config.yaml")
		var models strings.Builder
		models.WriteString("providers:\n")
		for _, status := range []int{200, 400, 401, 429, 500} {
			fmt.Fprintf(&models, "  - {name: echo%d, kind: openai, base_url: %s/%d, api_key: canaryprovider}\n", status, echo.URL, status)
		}
		models.WriteString("models:\n")
		for _, status := range []int{200, 400, 401, 429, 500} {
			fmt.Fprintf(&models, "  - {id: echo/%d, provider: echo%d, context_window: 1000, max_output_tokens: 10, price: {input_per_mtok_usd: 1, output_per_mtok_usd: 1}}\n", status, status)
		}
		writeFile(t, config, models.String())
		s := p.serve(t, "--log-level", "debug", "--otlp-endpoint", collector.URL, "--operations-listen", operations, "--config", config, "--limits-retries", "0")
		key := s.key()
		unknown := key[:len(key)-20] + "canarycanarycanary00"
		var answers bytes.Buffer
		send := func(method, url string, header http.Header, body string) {
			request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header = header
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			_ = response.Write(&answers)
		}
		for _, value := range []string{"Bearer " + key, "Bearer " + unknown, key, "Basic " + key} {
			for _, path := range []string{"/v1/setup/status", "/v1/nothing", "/api/v1/setup/status?x=1", "//v1"} {
				send("GET", s.address()+path, http.Header{"Authorization": {value}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}, "")
				send("POST", s.address()+path, http.Header{"Authorization": {value}}, `{"api_key":"`+key+`"}`)
			}
		}
		talk := func() {
			for _, status := range []int{200, 400, 401, 429, 500} {
				for _, stream := range []bool{false, true} {
					send("POST", s.address()+"/v1/chat/completions", http.Header{"Authorization": {"Bearer " + key}},
						fmt.Sprintf(`{"model":"echo/%d","stream":%t,"messages":[{"role":"user","content":"x"}]}`, status, stream))
				}
			}
		}
		talk()
		for _, status := range []int{200, 400, 401, 429, 500} { // and the same with a key of the workspace's own
			send("PUT", s.address()+"/v1/provider-keys", http.Header{"Authorization": {"Bearer " + key}, "Idempotency-Key": {strconv.Itoa(status)}},
				fmt.Sprintf(`{"provider":"echo%d","api_key":"canaryown"}`, status))
			send("PUT", s.address()+"/v1/provider-keys", http.Header{"Authorization": {"Bearer " + key}}, fmt.Sprintf(`{"provider":"echo%d","api_key":"canaryown","base_url":{}}`, status))
			send("PUT", s.address()+"/v1/provider-keys", http.Header{"Authorization": {"Bearer " + key}}, `{"provider":"nobody","api_key":"canaryown","odd":1}`)
		}
		talk()
		for _, body := range []string{ // a key of an eval endpoint: kept, changed, and refused in every way
			`{"name":"e","base_url":"https://example.com/v1","model":"m","api_key":"canaryendpoint"}`,
			`{"name":"e","base_url":"https://example.com/v2","model":"m","api_key":"canaryendpoint"}`,
			`{"name":"e","base_url":"http://127.0.0.1","model":"m","api_key":"canaryendpoint"}`,
			`{"name":"e","base_url":{},"model":"m","api_key":"canaryendpoint"}`,
			`{"name":"e","base_url":"https://example.com/v2","model":"m","api_key":"canary endpoint canaryendpoint"}`,
			`{"name":"e","base_url":"https://example.com/v2","model":"m","api_key":"canaryendpoint","odd":1}`,
		} {
			for _, once := range []string{"", "endpoint" + strconv.Itoa(len(body))} {
				send("POST", s.address()+"/v1/endpoints", http.Header{"Authorization": {"Bearer " + key}, "Idempotency-Key": {once}}, body)
			}
		}
		send("GET", s.address()+"/v1/endpoints", http.Header{"Authorization": {"Bearer " + key}}, "")
		send("GET", s.address()+"/v1/provider-keys", http.Header{"Authorization": {"Bearer " + key}}, "")
		p.mustAdmin(t, nil, "backup", filepath.Join(p.data, "backup"))
		send("GET", s.address()+"/v1/models", http.Header{"Authorization": {"Bearer " + key}}, "")
		send("GET", "http://"+operations+"/metrics", http.Header{}, "")
		send("GET", "http://"+operations+"/debug/pprof/cmdline", http.Header{}, "")
		s.stop(t)
		root, err := os.ReadFile(p.root)
		if err != nil {
			t.Fatal(err)
		}
		material := regexp.MustCompile(`"value": *"([^"]+)"`).FindSubmatch(root)
		if material == nil {
			t.Fatal("the root key file has no key material")
		}
		mu.Lock()
		sent := spans.String()
		mu.Unlock()
		if !strings.Contains(sent, "/v1/setup/status") || !strings.Contains(sent, "http.route") {
			t.Errorf("no trace arrived")
		}
		places := map[string]string{"log": s.log.String(), "answers": answers.String(), "traces": sent, "files": contents(t, p.data)}
		for where, text := range places {
			for what, canary := range map[string]string{
				"key": key[13:], "unknown key": "canarycanarycanary", "root key": string(material[1]), "database password": "canarypassword", "provider's key": "canaryprovider", "own key": "canaryown", "endpoint's key": "canaryendpoint",
			} {
				if strings.Contains(text, canary) {
					t.Errorf("the %s is in the %s", what, where)
				}
			}
		}
	})
}

func contents(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Type().IsRegular() {
			text, err := os.ReadFile(filepath.Join(folder, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}
