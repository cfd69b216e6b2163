package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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

func TestHangupReloadsWhatItCanAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	p := newPlace(t, secret.Text{})
	config := filepath.Join(t.TempDir(), "sovereign.yaml")
	writeFile(t, config, "limits: {body: 1KiB}\n")
	s := p.serve(t, "--config", config)
	body := `{"workspace":"default","email":"a@b.test","role":"member"}` + strings.Repeat(" ", 2<<10)
	attempt := func() int {
		code, _, err := post(p.socket(), "/admin/members", body)
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	if got := attempt(); got != http.StatusRequestEntityTooLarge {
		t.Fatalf("over the limit: %d", got)
	}
	hangup := func() {
		if err := s.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, config, "limits: {body: nonsense}\n")
	hangup()
	s.expect(t, `reload: the configuration is kept as it was.*sovereign.yaml:1: limits.body`)
	if got := attempt(); got != http.StatusRequestEntityTooLarge {
		t.Errorf("after a bad reload: %d", got)
	}
	writeFile(t, config, "limits: {body: 1MiB, idle_timeout: 3s}\nlog_level: debug\n")
	hangup()
	s.expect(t, `reload: these need a restart.*limits.idle_timeout`)
	s.expect(t, `msg=reloaded`)
	if got := attempt(); got != http.StatusCreated {
		t.Errorf("after a good reload: %d", got)
	}
	if got := status(t, s.address(), s.key()); got != 200 {
		t.Errorf("after reloads: %d", got)
	}
	s.expect(t, `level=DEBUG msg=request`)
}

// certificate writes a self-signed pair whose serial number tells which one is served.
func certificate(t *testing.T, folder string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	writeFile(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	writeFile(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})))
	return cert, key
}

func TestTLSServesAndReloadsItsCertificate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cert, key := certificate(t, folder, 1)
	s := newPlace(t, secret.Text{}).serve(t, "--tls-cert", cert, "--tls-key", key)
	if s.key() == "" || !strings.HasPrefix(s.address(), "https://") || !strings.Contains(s.out.String(), "curl -sS https://") {
		t.Fatalf("address %s", s.address())
	}
	serial := func() int64 {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.address()+"/v1/setup/status", http.NoBody)
		request.Header.Set("Authorization", "Bearer "+s.key())
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
			t.Errorf("%d over HTTP/%d", response.StatusCode, response.ProtoMajor)
		}
		return response.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Errorf("certificate %d", got)
	}
	certificate(t, folder, 2)
	if err := s.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.expect(t, "msg=reloaded")
	if got := serial(); got != 2 {
		t.Errorf("certificate %d after the reload", got)
	}
}

// slow opens a request on the admin socket whose body is not finished yet.
func slow(t *testing.T, p place, body string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", p.data+"/admin.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /admin/keys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
	if err != nil {
		t.Fatal(err)
	}
	const asked = "HTTP/1.1 100 Continue\r\n\r\n" // which the server sends when the request runs and waits for its body
	head := make([]byte, len(asked))
	if _, err := io.ReadFull(conn, head); err != nil || string(head) != asked {
		t.Fatalf("%q %v", head, err)
	}
	if _, err := io.WriteString(conn, body[:10]); err != nil {
		t.Fatal(err)
	}
	return conn
}

const newKey = `{"workspace":"default","email":"owner@localhost"}`

func TestRunningRequestsFinishWithinTheDrain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, secret.Text{})
	operations := freeAddress(t)
	s := p.serve(t, "--operations-listen", operations)
	ready := func() int {
		response, err := http.Get("http://" + operations + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if got := ready(); got != http.StatusOK {
		t.Errorf("ready: %d", got)
	}
	conn := slow(t, p, newKey)
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a stopping server says that it is not ready", func() bool { return ready() == http.StatusServiceUnavailable })
	if err := s.Process.Signal(syscall.SIGHUP); err != nil { // a reload that comes too late changes nothing
		t.Fatal(err)
	}
	eventually(t, "a stopping server takes no new connections", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if _, err := io.WriteString(conn, newKey[10:]); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("the running request: %v %v", response, err)
	}
	_ = response.Body.Close()
	<-s.done
	if code := s.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.log)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// A second signal ends the drain. One that follows the first within a second, as from a shell that signals the process
// group too, does not count; the drill tells that second, which a busy machine may outlast.
func TestDrillASecondSignalEndsTheDrain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, secret.Text{})
	s := p.serve(t, "--limits-drain", "10m")
	slow(t, p, newKey)
	signal := func() {
		if err := s.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	signal()
	s.expect(t, "msg=stopping")
	if measured() {
		signal()
	}
	select {
	case <-s.done:
		t.Fatalf("ended by a repetition of the first signal\n%s", s.log)
	case <-time.After(1200 * time.Millisecond):
	}
	signal()
	<-s.done
	if s.ProcessState.ExitCode() != 1 {
		t.Errorf("exit %d", s.ProcessState.ExitCode())
	}
}

// Clients that ask and never read: their connections are given up, and others get in.
func TestClientsThatDoNotReadAreGivenUp(t *testing.T) {
	t.Parallel()
	s := newPlace(t, secret.Text{}).serve(t, "--limits-connections", "3", "--limits-operation-timeout", "500ms")
	host := strings.TrimPrefix(s.address(), "http://")
	for range 3 {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, strings.Repeat("GET /docs HTTP/1.1\r\nHost: x\r\n\r\n", 5000))
	}
	eventually(t, "another client is served", func() bool {
		response, err := http.Get(s.address() + "/healthz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

func TestDrillTheDrainIsBounded(t *testing.T) {
	t.Parallel()
	p := newPlace(t, secret.Text{})
	s := p.serve(t, "--limits-drain", "300ms")
	slow(t, p, newKey)
	began := time.Now()
	if code := s.stop(t); code != 0 || measured() && time.Since(began) > 5*time.Second {
		t.Errorf("exit %d after %v", code, time.Since(began))
	}
	s.expect(t, "requests were cut off after the drain")
}

// A parent holds the listening socket, as systemd does, and restarts the server under load. New connections wait in the
// kernel for the next process, so that none is refused. An open connection may bring one more request within a second,
// which is answered with Connection: close. One that stays idle for longer is closed. A request that crosses with that
// close is lost, as at every HTTP server; clients send it again on a new connection, and so does this test. The drill
// allows that only after an idle second, which a busy machine cannot promise.
func TestDrillRestartWithAnInheritedSocketFailsNoRequest(t *testing.T) {
	t.Parallel()
	p := newPlace(t, secret.Text{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close() // the descriptor in file keeps the socket open
	defer func() { _ = file.Close() }()
	address := "http://" + listener.Addr().String()
	inherit := func() *process {
		s := &process{place: p, out: newTail(), log: newTail()}
		line := `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve --bootstrap --listen 127.0.0.1:1 --operations-listen off "$@"`
		s.Cmd = exec.Command("sh", append([]string{"-c", line, binary}, p.flags()...)...)
		s.Stdout, s.Stderr, s.ExtraFiles = s.out, s.log, []*os.File{file}
		s.done = startChild(t, s.Cmd)
		t.Cleanup(s.kill)
		s.await(t)
		return s
	}
	s := inherit()
	key := s.key()
	ctx, cancel := context.WithCancel(t.Context())
	var good, bad, crossed atomic.Int64
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			// Half keep their connections, and send what Go's client does not repeat by itself when one breaks.
			client, method, want := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, http.MethodGet, http.StatusOK
			if i%2 == 0 {
				client, method, want = &http.Client{Transport: &http.Transport{}}, http.MethodPost, http.StatusMethodNotAllowed
			}
			answered := time.Now()
			for ctx.Err() == nil {
				var reused, began bool
				tracing := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
					GotConn:              func(conn httptrace.GotConnInfo) { reused = conn.Reused },
					GotFirstResponseByte: func() { began = true },
				})
				request, _ := http.NewRequestWithContext(tracing, method, address+"/v1/setup/status", http.NoBody)
				request.Header.Set("Authorization", "Bearer "+key)
				idle := time.Since(answered)
				response, err := client.Do(request)
				if err != nil && reused && !began && (!measured() || idle > time.Second) {
					crossed.Add(1)
					request, _ = http.NewRequestWithContext(context.Background(), method, address+"/v1/setup/status", http.NoBody)
					request.Header.Set("Authorization", "Bearer "+key)
					request.Close = true
					client.CloseIdleConnections()
					response, err = client.Do(request)
				}
				answered = time.Now()
				if err != nil {
					bad.Add(1)
					t.Errorf("after %v on a connection that was used before: %t: %v", idle, reused, err)
					continue
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode != want {
					bad.Add(1)
					t.Error(response.Status)
				}
				good.Add(1)
			}
		})
	}
	for range drills(3, 20) {
		time.Sleep(150 * time.Millisecond)
		if code := s.stop(t); code != 0 {
			t.Errorf("exit %d\n%s", code, s.log)
		}
		s = inherit()
	}
	time.Sleep(100 * time.Millisecond)
	cancel()
	group.Wait()
	t.Logf("%d requests answered over %d restarts, %d failed, %d crossed with a close", good.Load(), drills(3, 20), bad.Load(), crossed.Load())
	if good.Load() < 100 || crossed.Load() > good.Load()/20 {
		t.Errorf("%d of %d requests crossed with a close", crossed.Load(), good.Load())
	}
}

func TestConnectionsOverTheLimitAreShed(t *testing.T) {
	t.Parallel()
	s := newPlace(t, secret.Text{}).serve(t, "--limits-connections", "2")
	host := strings.TrimPrefix(s.address(), "http://")
	ask := func(conn net.Conn) (*http.Response, error) {
		_ = conn.SetDeadline(time.Now().Add(limit))
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return nil, err
		}
		return http.ReadResponse(bufio.NewReader(conn), nil)
	}
	var conns []net.Conn
	for i := range 4 {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
		response, err := ask(conn)
		if err != nil {
			t.Fatal(err)
		}
		want := http.StatusOK
		if i >= 2 {
			want = http.StatusTooManyRequests
		}
		if response.StatusCode != want || (want == 429 && (response.Header.Get("Retry-After") == "" || !response.Close)) {
			t.Errorf("connection %d: %d, closes %v", i+1, response.StatusCode, response.Close)
		}
	}
	_ = conns[0].Close()
	eventually(t, "another connection is served after one was closed", func() bool {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		response, err := ask(conn)
		return err == nil && response.StatusCode == http.StatusOK
	})
}

func TestSlowSendersAreClosedInTime(t *testing.T) {
	t.Parallel()
	p := newPlace(t, secret.Text{})
	s := p.serve(t, "--limits-header-timeout", "300ms", "--limits-body-timeout", "600ms")
	for name, head := range map[string]string{
		"head":    "GET /healthz HTTP/1.1\r\nHost:",
		"body":    "GET /v1/setup/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.key() + "\r\nContent-Length: 10\r\n\r\n{",
		"options": "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("slow %s: not closed in time: %v", name, err)
		}
		if want := map[string]string{"head": "", "body": "HTTP/1.1 408", "options": "HTTP/1.1 404"}[name]; !strings.HasPrefix(string(answer), want) {
			t.Errorf("slow %s: %s", name, answer)
		}
	}
}

// Both lengths, duplicate lengths, bare line feeds: one request is one request, whatever a raw socket says.
func TestHiddenRequestsAreNotAnswered(t *testing.T) {
	t.Parallel()
	s := newPlace(t, secret.Text{}).serve(t)
	hidden := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, raw := range map[string]string{
		"two lengths":         "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: " + strconv.Itoa(len(hidden)) + "\r\n\r\n" + hidden,
		"list of lengths":     "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0, 35\r\n\r\n" + hidden,
		"signed length":       "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: +0\r\n\r\n" + hidden,
		"odd encoding":        "POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n" + hidden,
		"space before colon":  "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length : 0\r\n\r\n" + hidden,
		"two hosts":           "GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"no host":             "GET /healthz HTTP/1.1\r\n\r\n",
		"bad chunk":           "POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + hidden,
		"length and encoding": "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(limit))
		if _, err := io.WriteString(conn, raw); err != nil {
			t.Fatal(err)
		}
		if closer, ok := conn.(*net.TCPConn); ok {
			_ = closer.CloseWrite()
		}
		all, _ := io.ReadAll(conn)
		_ = conn.Close()
		if n := bytes.Count(all, []byte("HTTP/1.1 2")); n != 0 {
			t.Errorf("%s: a hidden request was answered:\n%s", name, all)
		}
	}
}

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
	eachPlace(t, func(t *testing.T, p place) {
		operations := freeAddress(t)
		if !p.url.Empty() { // the server trusts everyone on loopback, so any password does
			p.url = secret.New(strings.Replace(p.url.Reveal(), "sovereign@", "sovereign:canarypassword@", 1))
		}
		// Every way in which a provider can repeat the key that it was sent.
		gossip := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, _ := strconv.Atoi(strings.Split(r.URL.Path, "/")[1])
			w.Header().Set("X-Key", r.Header.Get("Authorization"))
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"error":{"message":"bad key %s"}}`, r.Header.Get("Authorization"))
		}))
		defer gossip.Close()
		config := filepath.Join(t.TempDir(), "config.yaml")
		var models strings.Builder
		models.WriteString("providers:\n")
		for _, status := range []int{200, 400, 401, 429, 500} {
			fmt.Fprintf(&models, "  - {name: gossip%d, kind: openai, base_url: %s/%d, api_key: canaryprovider}\n", status, gossip.URL, status)
		}
		models.WriteString("models:\n")
		for _, status := range []int{200, 400, 401, 429, 500} {
			fmt.Fprintf(&models, "  - {id: gossip/%d, provider: gossip%d, context_window: 1000, max_output_tokens: 10, price: {input_per_mtok_usd: 1, output_per_mtok_usd: 1}}\n", status, status)
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
						fmt.Sprintf(`{"model":"gossip/%d","stream":%t,"messages":[{"role":"user","content":"x"}]}`, status, stream))
				}
			}
		}
		talk()
		for _, status := range []int{200, 400, 401, 429, 500} { // and the same with a key of the workspace's own
			send("PUT", s.address()+"/v1/provider-keys", http.Header{"Authorization": {"Bearer " + key}, "Idempotency-Key": {strconv.Itoa(status)}},
				fmt.Sprintf(`{"provider":"gossip%d","api_key":"canaryown"}`, status))
			send("PUT", s.address()+"/v1/provider-keys", http.Header{"Authorization": {"Bearer " + key}}, fmt.Sprintf(`{"provider":"gossip%d","api_key":"canaryown","base_url":{}}`, status))
			send("PUT", s.address()+"/v1/provider-keys", http.Header{"Authorization": {"Bearer " + key}}, `{"provider":"nobody","api_key":"canaryown","odd":1}`)
		}
		talk()
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
				"key": key[13:], "unknown key": "canarycanarycanary", "root key": string(material[1]), "database password": "canarypassword", "provider's key": "canaryprovider", "own key": "canaryown",
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

func TestForwardedAddressIsBelievedOfTrustedProxiesAlone(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{"": "client=127.0.0.1", "--trusted-proxies=127.0.0.0/8,10.0.0.0/8": "client=203.0.113.7"} {
		args := []string{"--log-level", "debug"}
		if flag != "" {
			args = append(args, flag)
		}
		s := newPlace(t, secret.Text{}).serve(t, args...)
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
