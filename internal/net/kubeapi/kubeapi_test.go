package kubeapi_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/net/kubeapi"
)

const patience = time.Minute

// An apiServer answers as its test says, and keeps what it was asked.
type apiServer struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string
	answer func(w http.ResponseWriter, r *http.Request)
}

func serve(t *testing.T, answer func(http.ResponseWriter, *http.Request)) (*apiServer, kubeapi.Cluster) {
	t.Helper()
	s := &apiServer{answer: answer}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Header.Get("Authorization")+" "+r.Method+" "+r.URL.String())
		s.mu.Unlock()
		s.answer(w, r)
	}))
	t.Cleanup(s.Close)
	folder := t.TempDir()
	ca, token := filepath.Join(folder, "ca.crt"), filepath.Join(folder, "token")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, kubeapi.Cluster{URL: s.URL, Namespace: "engines", TokenFile: token, CAFile: ca}
}

func (s *apiServer) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func open(t *testing.T, c kubeapi.Cluster) *kubeapi.Client {
	t.Helper()
	client, err := kubeapi.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestTheTokenIsReadAgainForEveryRequest(t *testing.T) {
	s, cluster := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"metadata":{"name":"a"}}`)) })
	client := open(t, cluster)
	for _, token := range []string{"one", "two"} {
		if err := os.WriteFile(cluster.TokenFile, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Get(t.Context(), kubeapi.Pods, "a"); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"Bearer one GET /api/v1/namespaces/engines/pods/a", "Bearer two GET /api/v1/namespaces/engines/pods/a"}
	if got := s.calls(); !slices.Equal(got, want) {
		t.Errorf("asked %q", got)
	}
}

func TestARefusalHasItsCodeAndMessage(t *testing.T) {
	_, cluster := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/odd") {
			http.Error(w, "<html>", http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","code":403,"reason":"Forbidden","message":"exceeded quota: gpus"}`))
	})
	client := open(t, cluster)
	_, err := client.Apply(t.Context(), kubeapi.Pods, "a", map[string]any{})
	if !kubeapi.Is(err, http.StatusForbidden) || !strings.Contains(err.Error(), "exceeded quota: gpus") {
		t.Errorf("got %v", err)
	}
	if _, err := client.Get(t.Context(), kubeapi.Pods, "odd"); !kubeapi.Is(err, http.StatusBadGateway) {
		t.Errorf("got %v", err)
	}
}

func TestAClusterWithoutTLSIsRefused(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:80", "https://user@127.0.0.1", "https://127.0.0.1/api", ""} {
		if _, err := kubeapi.Open(kubeapi.Cluster{URL: url, Namespace: "a", TokenFile: "b"}); err == nil {
			t.Errorf("%q is taken", url)
		}
	}
}

// A script answers lists and watches one after another.
type script struct {
	mu    sync.Mutex
	steps []func(w http.ResponseWriter, r *http.Request) // the last one is repeated
}

func (s *script) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	step := s.steps[0]
	if len(s.steps) > 1 {
		s.steps = s.steps[1:]
	}
	s.mu.Unlock()
	step(w, r)
}

func list(version string, names ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		var items []string
		for _, name := range names {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"%s","resourceVersion":"%s"}}`, name, version))
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%s"},"items":[%s]}`, version, strings.Join(items, ","))
	}
}

// events sends events and then ends the connection: cleanly, or broken.
func events(broken bool, all ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Join(all, "\n") + "\n"))
		_ = http.NewResponseController(w).Flush()
		if broken {
			panic(http.ErrAbortHandler)
		}
	}
}

func event(kind, name, version string) string {
	return fmt.Sprintf(`{"type":"%s","object":{"metadata":{"name":"%s","resourceVersion":"%s"}}}`, kind, name, version)
}

func quiet(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func TestAMirrorFollowsAndGoesOnWhereAWatchBroke(t *testing.T) {
	gone := `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`
	sc := &script{steps: []func(http.ResponseWriter, *http.Request){
		list("10", "a", "b"),
		events(true, event("ADDED", "c", "11"), event("DELETED", "a", "12"), `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"20"}}}`),
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		events(false, event("MODIFIED", "b", "21"), gone),
		list("30", "b", "d"),
		func(w http.ResponseWriter, _ *http.Request) { // an HTTP status says the same
			w.WriteHeader(http.StatusGone)
			_, _ = w.Write([]byte(`{"code":410,"reason":"Expired"}`))
		},
		list("40", "d", "e"),
		quiet,
	}}
	s, cluster := serve(t, sc.answer)
	client := open(t, cluster)
	changed := make(chan string, 100)
	m := client.Mirror(kubeapi.Pods, func(o kubeapi.Object) bool { return o.Meta.Name != "hidden" },
		func(o kubeapi.Object) { changed <- o.Meta.Name }, func(error) {})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	defer func() { stop(); <-done }()
	limit := time.After(patience)
	for {
		all := m.All()
		if _, d := all["d"]; d && len(all) == 2 && all["e"].Meta.ResourceVersion == "40" {
			break
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("the mirror has %v", all)
		}
	}
	var versions []string
	for _, call := range s.calls() {
		if _, rest, ok := strings.Cut(call, "resourceVersion="); ok {
			versions = append(versions, rest[:strings.IndexByte(rest+"&", '&')])
		} else {
			versions = append(versions, "list")
		}
	}
	// The bookmark's version is where the broken watch goes on.
	want := []string{"list", "10", "20", "20", "list", "30", "list", "40"}
	if got := versions[:min(len(versions), len(want))]; !slices.Equal(got, want[:len(got)]) || len(got) < len(want)-1 {
		t.Errorf("asked from %q, not %q", versions, want)
	}
}

func TestAListOfManyPagesIsReadWhole(t *testing.T) {
	_, cluster := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("watch") != "":
			quiet(w, r)
		case r.URL.Query().Get("continue") == "":
			_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"1","continue":"next"},"items":[{"metadata":{"name":"a"}}]}`))
		default:
			_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"b"}}]}`))
		}
	})
	m := open(t, cluster).Mirror(kubeapi.Pods, func(kubeapi.Object) bool { return true }, func(kubeapi.Object) {}, func(error) {})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	defer func() { stop(); <-done }()
	select {
	case <-m.Synced():
	case <-time.After(patience):
		t.Fatal("it is not read")
	}
	if all := m.All(); len(all) != 2 {
		t.Errorf("the mirror has %v", all)
	}
}
