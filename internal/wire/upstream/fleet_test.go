package upstream_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/live"
	"sovereign/internal/wire/upstream"
)

// countingSender records its provider and how often it was closed.
type countingSender struct {
	provider *live.Provider
	closed   int
}

func (c *countingSender) Send(context.Context, *upstream.Request) (*upstream.Response, error) {
	return nil, errors.New("not in this test")
}

func (c *countingSender) Close() { c.closed++ }

// protocolsWith returns protocols with a factory for simulated providers.
func protocolsWith(m upstream.SenderFactory) upstream.Protocols {
	return upstream.Protocols{Factories: map[live.Protocol]upstream.SenderFactory{live.Sim: m}}
}

// newFleet creates a fleet whose providers have one model each.
func newFleet(t *testing.T, before *upstream.Fleet, providers ...live.Provider) (*upstream.Fleet, map[string]upstream.Sender) {
	t.Helper()
	protocols := protocolsWith(func(p *live.Provider) (upstream.Sender, error) { return &countingSender{provider: p}, nil })
	var all []*live.Provider
	var models []*live.Model
	for i := range providers {
		all = append(all, &providers[i])
		models = append(models, &live.Model{ID: providers[i].Name + "/m", Provider: &providers[i]})
	}
	f, err := upstream.NewFleet(live.NewCatalog(all, models), protocols, before)
	if err != nil {
		t.Fatal(err)
	}
	senders := map[string]upstream.Sender{}
	for _, m := range models {
		senders[m.Provider.Name] = f.Sender(m)
	}
	return f, senders
}

func TestAReloadKeepsUnchangedSendersAndClosesTheOthers(t *testing.T) {
	base := live.Provider{Protocol: live.Sim, BaseURL: "http://a", APIKey: secret.New("k")}
	provider := func(name string, change func(*live.Provider)) live.Provider {
		p := base
		p.Name, p.APIKey = name, secret.New("k") // another copy of the same key
		change(&p)
		return p
	}
	same := func(*live.Provider) {}
	first, before := newFleet(t, nil, provider("same", same), provider("moved", same), provider("rekeyed", same), provider("gone", same), provider("certified", same))
	second, after := newFleet(t, first, provider("same", same), provider("moved", func(p *live.Provider) { p.BaseURL = "http://b" }),
		provider("rekeyed", func(p *live.Provider) { p.APIKey = secret.New("l") }), provider("certified", func(p *live.Provider) { p.CAFile = "ca.pem" }), provider("new", same))
	if before["same"] != after["same"] {
		t.Error("an unchanged provider lost its connections")
	}
	for _, name := range []string{"moved", "rekeyed", "certified"} {
		if before[name] == after[name] {
			t.Errorf("%s is reached as before", name)
		}
	}
	if got := after["rekeyed"].(*countingSender).provider.APIKey.Reveal(); got != "l" {
		t.Errorf("the old key is used: %s", got)
	}
	first.Retire(second)
	for name, s := range before {
		want := 1
		if name == "same" {
			want = 0
		}
		if got := s.(*countingSender).closed; got != want {
			t.Errorf("%s was closed %d times, want %d", name, got, want)
		}
	}
	for name, s := range after {
		if s.(*countingSender).closed != 0 {
			t.Errorf("%s is in use and was closed", name)
		}
	}
	third, last := newFleet(t, second, provider("same", same))
	second.Retire(third)
	if last["same"] != before["same"] || after["new"].(*countingSender).closed != 1 {
		t.Error("a second reload does not do as the first")
	}
}

func TestAChangedProtocolReplacesTheSender(t *testing.T) {
	p := live.Provider{Name: "up", Protocol: live.Sim, BaseURL: "http://127.0.0.1:1"}
	first, before := newFleet(t, nil, p)
	p.Protocol = live.OpenAI
	second, after := newFleet(t, first, p)
	if first.Retire(second); before["up"] == after["up"] || before["up"].(*countingSender).closed != 1 {
		t.Error("the sender of another protocol is used")
	}
}

func TestAFailedReloadKeepsTheOldSenders(t *testing.T) {
	p := live.Provider{Name: "up", Protocol: live.Sim}
	first, before := newFleet(t, nil, p)
	odd := live.Provider{Name: "odd", Protocol: "gopher"}
	_, err := upstream.NewFleet(live.NewCatalog([]*live.Provider{&p, &odd}, nil), upstream.Protocols{}, first)
	if err == nil || !strings.Contains(err.Error(), "provider odd: nothing speaks gopher") {
		t.Error(err)
	}
	failing := protocolsWith(func(*live.Provider) (upstream.Sender, error) { return nil, io.ErrUnexpectedEOF })
	if _, err := upstream.NewFleet(live.NewCatalog([]*live.Provider{{Name: "new", Protocol: live.Sim}}, nil), failing, first); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if before["up"].(*countingSender).closed != 0 {
		t.Error("the fleet in force was closed")
	}
}

func TestConnectionsAndRunningRequestsSurviveAReload(t *testing.T) {
	goOn := make(chan struct{})
	peers := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peers <- r.RemoteAddr
		if r.URL.Path == "/slow/chat/completions" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-goOn
			_, _ = io.WriteString(w, "the end")
		}
	}))
	defer server.Close()
	kept, changed := live.Provider{Name: "kept", Protocol: live.OpenAI, BaseURL: server.URL}, live.Provider{Name: "changed", Protocol: live.OpenAI, BaseURL: server.URL + "/slow"}
	first, senders := newFleet(t, nil, kept, changed)
	send(t, senders["kept"], newRequest(&live.Model{}, "{}"))
	running, err := senders["changed"].Send(t.Context(), newRequest(&live.Model{}, "{}"))
	if err != nil {
		t.Fatal(err)
	}
	changed.BaseURL = server.URL
	second, senders := newFleet(t, first, kept, changed)
	first.Retire(second)
	send(t, senders["kept"], newRequest(&live.Model{}, "{}"))
	close(goOn)
	if body, err := io.ReadAll(running.Body); err != nil || string(body) != "the end" {
		t.Errorf("a running request was cut off: %q %v", body, err)
	}
	_ = running.Body.Close()
	if a, _, b := <-peers, <-peers, <-peers; a != b {
		t.Errorf("an unchanged provider was dialled again: %s and %s", a, b)
	}
}

func TestAReloadReadsTheCAFileAgain(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, unrelatedCertificate(t), 0o600); err != nil {
		t.Fatal(err)
	}
	p := live.Provider{Name: "up", Protocol: live.OpenAI, BaseURL: server.URL, CAFile: file}
	first, senders := newFleet(t, nil, p)
	if _, err := senders["up"].Send(t.Context(), newRequest(&live.Model{}, "{}")); err == nil {
		t.Error("another authority's word was taken")
	}
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	_, senders = newFleet(t, first, p)
	if response, _ := send(t, senders["up"], newRequest(&live.Model{}, "{}")); response.Status != http.StatusOK {
		t.Errorf("%d", response.Status)
	}
}

// unrelatedCertificate returns a CA certificate that has signed nothing.
func unrelatedCertificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
