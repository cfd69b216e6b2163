package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/net/netguard"
)

// standard reaches a provider over net/http's Transport.
type standard struct {
	provider  *live.Provider
	transport *http.Transport
	guarded   http.RoundTripper // for the base URL that a workspace has set
}

// How connections to a provider are made and kept.
const (
	dialTimeout   = 10 * time.Second
	idleTimeout   = 90 * time.Second
	idlePerHost   = 512
	maxHeaderSize = 64 << 10
)

func newStandard(p *live.Provider, guarded http.RoundTripper) (*standard, error) {
	secure, err := trust(p)
	if err != nil {
		return nil, err
	}
	return &standard{provider: p, guarded: guarded, transport: &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext, TLSHandshakeTimeout: dialTimeout,
		TLSClientConfig: secure, ForceAttemptHTTP2: true,
		MaxIdleConns: 4 * idlePerHost, MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: maxHeaderSize, DisableCompression: true,
	}}, nil
}

// trust is whom a provider's certificate must come from.
func trust(p *live.Provider) (*tls.Config, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.CAFile == "" {
		return secure, nil
	}
	text, err := os.ReadFile(p.CAFile)
	if err != nil {
		return nil, fmt.Errorf("provider %s: ca_file: %w", p.Name, err)
	}
	if secure.RootCAs = x509.NewCertPool(); !secure.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("provider %s: ca_file %s holds no certificate", p.Name, p.CAFile)
	}
	return secure, nil
}

func (s *standard) Close() { s.transport.CloseIdleConnections() }

// Send implements Sender. Redirects are answers like any other; following one would take the provider's key elsewhere.
func (s *standard) Send(ctx context.Context, r *Request) (*Response, error) {
	base, key, way := s.provider.BaseURL, s.provider.APIKey, http.RoundTripper(s.transport)
	if r.Credentials != nil {
		key = r.Credentials.Key
		if r.Credentials.BaseURL != "" {
			base, way = r.Credentials.BaseURL, s.guarded
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+r.Path, nil)
	if err != nil {
		return nil, err
	}
	request.ContentLength = r.Length()
	request.GetBody = func() (io.ReadCloser, error) {
		parts := make([]io.Reader, len(r.Body))
		for i, part := range r.Body {
			parts[i] = bytes.NewReader(part)
		}
		return r.leased(io.MultiReader(parts...)), nil
	}
	if request.Body, err = request.GetBody(); err != nil {
		return nil, err
	}
	for _, f := range head(s.provider.Protocol, r, key) {
		request.Header.Set(f.Name, f.Value)
	}
	response, err := way.RoundTrip(request)
	var blocked *netguard.Blocked
	if errors.As(err, &blocked) {
		return nil, fault.UnknownProvider.Because(err, "the workspace's own URL for %s cannot be used: %s", s.provider.Name, blocked)
	}
	if err != nil {
		return nil, err
	}
	if err := encoded(response.Header.Get("Content-Encoding")); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return &Response{
		Status: response.StatusCode, ContentType: response.Header.Get("Content-Type"),
		RetryAfter: retryAfter(response.Header.Get("Retry-After-Ms"), response.Header.Get("Retry-After"), response.Header.Get("Date")), Body: response.Body,
	}, nil
}

// leased is a reader of the body's bytes. The transport closes it when it needs them no more, which may be after the answer is over.
func (r *Request) leased(from io.Reader) io.ReadCloser {
	if r.Lease == nil {
		return io.NopCloser(from)
	}
	r.Lease.Take()
	return &leased{from: from, lease: r.Lease}
}

// leased lets nobody read what was released: the transport may close it while another of its goroutines reads.
type leased struct {
	mutex sync.Mutex
	from  io.Reader
	lease Lease // nil when it was released
}

func (l *leased) Read(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.lease == nil {
		return 0, errReleased
	}
	return l.from.Read(p)
}

var errReleased = errors.New("the body was closed")

func (l *leased) Close() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.lease != nil {
		l.lease.Release()
		l.lease = nil
	}
	return nil
}
