package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/secret"
)

func TestHangupReloadsWhatItCanAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
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
	s := newInstance(t, secret.Text{}).serve(t, "--tls-cert", cert, "--tls-key", key)
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

func TestAHangupPutsModelsInForceAndLeavesRunningStreamsAlone(t *testing.T) {
	t.Parallel()
	provider := startProvider(t)
	p := newInstance(t, secret.Text{})
	config := mockConfig(t, provider, map[string]string{"old": "mock?chunks=40&chunk_delay=25ms&in=10&out=40"})
	s := p.serve(t, "--config", config)
	c := s.caller()
	got := make(chan *answer, 1)
	go func() {
		a, _ := c.post(context.Background(), "/v1/chat/completions", chat("mock/old", "running", `"stream":true`), nil)
		got <- a
	}()
	eventually(t, "it runs", func() bool { return len(seenBy(t, provider, "running")) == 1 })
	if a := c.must(t, chat("mock/new", "too early")); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	next, err := os.ReadFile(mockConfig(t, provider, map[string]string{"new": "mock?in=1&out=1"}))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, config, string(next))
	if err := s.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new model answers", func() bool { return c.must(t, chat("mock/new", "now")).status == http.StatusOK })
	if a := c.must(t, chat("mock/old", "too late")); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := <-got; a == nil || !a.done {
		t.Errorf("the running stream was not left alone: %+v", a)
	}
	writeFile(t, config, "models: [{id: broken}]\n")
	if err := s.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bad file is refused", func() bool { return strings.Contains(s.log.String(), "kept as it was") })
	if a := c.must(t, chat("mock/new", "still")); a.status != http.StatusOK {
		t.Errorf("a bad file changed something: %d %s", a.status, a.body)
	}
	s.verifyLedger(t)
}
