// Package compose holds nginx.conf against a real nginx.
package compose

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const timeout = time.Minute // it bounds every wait

// A server counts the requests that reach it, and behaves as it is told.
type server struct {
	*httptest.Server
	posts, gets atomic.Int64
	behaviour   atomic.Pointer[http.HandlerFunc]
}

func newServer(t *testing.T) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.posts.Add(1)
		} else {
			s.gets.Add(1)
		}
		if do := s.behaviour.Load(); do != nil {
			(*do)(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) behave(do http.HandlerFunc) { s.behaviour.Store(&do) }

func refuse(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }

// hangUp ends the connection without an answer, as a server that is killed does.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = c.Close()
}

// front starts nginx with our nginx.conf in front of addresses, and returns its URL.
func front(t *testing.T, addresses ...string) string {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Skip("there is no nginx: make setup installs it")
		}
	}
	folder := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := l.Addr().String()
	_ = l.Close()
	config, err := os.ReadFile("nginx/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("nginx/servers.conf")
	if err != nil {
		t.Fatal(err)
	}
	_, settings, _ := strings.Cut(string(ours), "server sovereign-1:8080")
	settings, _, _ = strings.Cut(settings, "\n")
	var servers strings.Builder
	for _, address := range addresses {
		servers.WriteString("server " + strings.TrimPrefix(address, "http://") + settings + "\n")
	}
	for name, text := range map[string]string{
		"nginx.conf": string(config), "servers.conf": servers.String(), "listen.conf": "listen " + own + ";\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, "-p", folder, "-c", "nginx.conf", "-g", "daemon off; pid "+folder+"/pid;")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	var dialer net.Dialer
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if c, err := dialer.DialContext(t.Context(), "tcp", own); err == nil {
			_ = c.Close()
			return "http://" + own
		}
	}
	text, _ := os.ReadFile(log.Name())
	t.Fatalf("nginx does not listen: %s", text)
	return ""
}

func ask(t *testing.T, method, url string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	body := strings.NewReader("")
	if method == http.MethodPost {
		body = strings.NewReader(`{"model": "x"}`)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

var inference = []string{"/v1/chat/completions", "/v1/embeddings", "/v1/rerank", "/v1/responses", "/v2/rerank"}

// A connection that breaks while an answer is awaited must not have the request asked again.
func TestNginxSendsARequestThatWasSentToNobodyElse(t *testing.T) {
	a, b := newServer(t), newServer(t)
	url := front(t, a.URL, b.URL)
	a.behave(hangUp)
	b.behave(hangUp)
	for i, path := range append(inference, "/v1/keys") {
		if status := ask(t, http.MethodPost, url+path); status != http.StatusBadGateway {
			t.Errorf("%s: %d", path, status)
		}
		if asked := a.posts.Load() + b.posts.Load(); asked > int64(i+1) {
			t.Fatalf("%s: asked %d times for %d requests", path, asked, i+1)
		}
	}
}

func TestNginxPassesByAServerThatRefusesConnections(t *testing.T) {
	a, b := newServer(t), newServer(t)
	url := front(t, a.URL, b.URL)
	a.Close()
	for range 20 {
		for _, path := range append(inference, "/v1/keys") {
			if status := ask(t, http.MethodPost, url+path); status != http.StatusOK {
				t.Errorf("%s: %d", path, status)
			}
		}
	}
	if asked := b.posts.Load(); asked != int64(20*(len(inference)+1)) {
		t.Errorf("asked %d times", asked)
	}
}

// A server without its lease refuses faster than others answer, so that least_conn would prefer it.
func TestNginxPassesByAServerThatRefusesInference(t *testing.T) {
	a, b, c := newServer(t), newServer(t), newServer(t)
	url := front(t, a.URL, b.URL, c.URL)
	a.behave(refuse)
	slow := func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) }
	b.behave(slow)
	c.behave(slow)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 25 {
				if status := ask(t, http.MethodPost, url+inference[i%len(inference)]); status != http.StatusOK {
					t.Errorf("%d", status)
				}
			}
		})
	}
	all.Wait()
	if served := b.posts.Load() + c.posts.Load(); served != 200 || a.posts.Load() > 100 {
		t.Errorf("served %d of 200, and asked the server that refuses %d times", served, a.posts.Load())
	}
}

// What the server may have done before it answered 503 is not done again.
func TestNginxRepeatsNoChangeThatWasAnsweredWith503(t *testing.T) {
	a, b := newServer(t), newServer(t)
	url := front(t, a.URL, b.URL)
	a.behave(refuse)
	b.behave(refuse)
	if status := ask(t, http.MethodPost, url+"/v1/keys"); status != http.StatusServiceUnavailable {
		t.Error(status)
	}
	if asked := a.posts.Load() + b.posts.Load(); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	status, asked := ask(t, http.MethodGet, url+"/v1/models"), a.gets.Load()+b.gets.Load()
	if status != http.StatusServiceUnavailable || asked != 2 {
		t.Error(status, asked)
	}
	late := func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(3 * time.Second) // longer than proxy_next_upstream_timeout
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	c, d := newServer(t), newServer(t)
	url = front(t, c.URL, d.URL)
	c.behave(late)
	d.behave(late)
	status, asked = ask(t, http.MethodPost, url+inference[0]), c.posts.Load()+d.posts.Load()
	if status != http.StatusServiceUnavailable || asked != 1 {
		t.Error(status, asked)
	}
}

// Streams, the callers' addresses and idle connections, as the servers see them.
func TestNginxStreamsAndSaysWhoCalls(t *testing.T) {
	a := newServer(t)
	url := front(t, a.URL)
	more := make(chan struct{})
	connections := sync.Map{}
	a.behave(func(w http.ResponseWriter, r *http.Request) {
		connections.Store(r.RemoteAddr, true)
		if got := r.Header.Get("X-Forwarded-For"); got != "127.0.0.1" || r.Host == "sovereign" {
			t.Errorf("X-Forwarded-For %q, Host %q", got, r.Host)
		}
		for range 3 {
			_, _ = fmt.Fprint(w, "event")
			w.(http.Flusher).Flush()
			<-more
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+inference[0], strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	for range 3 { // each comes before the server goes on
		if n, err := answer.Body.Read(make([]byte, 5)); n != 5 {
			t.Fatal(n, err)
		}
		more <- struct{}{}
	}
	close(more)
	for range 20 {
		ask(t, http.MethodPost, url+inference[0])
	}
	count := 0
	connections.Range(func(any, any) bool { count++; return true })
	if count > 20 { // on a busy machine an answer can be sent on before its connection is idle
		t.Errorf("%d connections for 21 requests: none was used again", count)
	}
}
