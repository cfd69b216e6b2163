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

// netHTTPSender sends over net/http's Transport.
type netHTTPSender struct {
	provider  *live.Provider
	transport *http.Transport
	guarded   http.RoundTripper // transport for a base URL that a workspace has set
}

// Limits of connections to a provider.
const (
	dialTimeout   = 10 * time.Second
	idleTimeout   = 90 * time.Second
	idlePerHost   = 512
	maxHeaderSize = 64 << 10
)

func newNetHTTPSender(p *live.Provider, guarded http.RoundTripper) (*netHTTPSender, error) {
	config, err := tlsConfig(p)
	if err != nil {
		return nil, err
	}
	return &netHTTPSender{provider: p, guarded: guarded, transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		TLSClientConfig:     config, ForceAttemptHTTP2: true,
		MaxIdleConns: 4 * idlePerHost, MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: maxHeaderSize, DisableCompression: true,
	}}, nil
}

// tlsConfig returns the TLS settings of a provider, with the certificate authorities of its ca_file.
func tlsConfig(p *live.Provider) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.CAFile == "" {
		return config, nil
	}
	certificates, err := os.ReadFile(p.CAFile)
	if err != nil {
		return nil, fmt.Errorf("provider %s: ca_file: %w", p.Name, err)
	}
	if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("provider %s: ca_file %s holds no certificate", p.Name, p.CAFile)
	}
	return config, nil
}

func (s *netHTTPSender) Close() { s.transport.CloseIdleConnections() }

// Send implements Sender. It does not follow redirects: that would send the provider's key to another host.
func (s *netHTTPSender) Send(ctx context.Context, r *Request) (*Response, error) {
	baseURL, key, transport := s.provider.BaseURL, s.provider.APIKey, http.RoundTripper(s.transport)
	if r.Credentials != nil {
		key = r.Credentials.Key
		if r.Credentials.BaseURL != "" {
			baseURL, transport = r.Credentials.BaseURL, s.guarded
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, baseURL+r.Path, nil)
	if err != nil {
		return nil, err
	}
	request.ContentLength = r.Length()
	request.GetBody = func() (io.ReadCloser, error) {
		parts := make([]io.Reader, len(r.Body))
		for i, part := range r.Body {
			parts[i] = bytes.NewReader(part)
		}
		return r.bodyReader(io.MultiReader(parts...)), nil
	}
	if request.Body, err = request.GetBody(); err != nil {
		return nil, err
	}
	for _, f := range requestHeaders(s.provider.Protocol, r, key) {
		request.Header.Set(f.Name, f.Value)
	}
	response, err := transport.RoundTrip(request)
	var blocked *netguard.Blocked
	if errors.As(err, &blocked) {
		cause := fmt.Errorf("%w: %s %s", err, blocked.Address, blocked.Why) // only for the log
		return nil, fault.UnknownProvider.Because(cause, "the workspace's own URL for %s cannot be used: %s",
			s.provider.Name, blocked)
	}
	if err != nil {
		return nil, err
	}
	if err := checkEncoding(response.Header.Get("Content-Encoding")); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	header := response.Header
	return &Response{
		Status: response.StatusCode, ContentType: response.Header.Get("Content-Type"),
		RetryAfter: retryAfter(header.Get("Retry-After-Ms"), header.Get("Retry-After"), header.Get("Date")),
		Body:       response.Body,
	}, nil
}

// bodyReader returns a reader of the body that holds a reference. The transport closes it when it needs the bytes no
// more, which may be after the answer has been read.
func (r *Request) bodyReader(from io.Reader) io.ReadCloser {
	if r.BodyRef == nil {
		return io.NopCloser(from)
	}
	r.BodyRef.Retain()
	return &refReader{reader: from, ref: r.BodyRef}
}

// refReader reads a buffer until its reference is released. The transport may call Close while another of its
// goroutines is in Read.
type refReader struct {
	mutex  sync.Mutex
	reader io.Reader
	ref    RefCounted // nil after Close
}

func (l *refReader) Read(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.ref == nil {
		return 0, errReleased
	}
	return l.reader.Read(p)
}

var errReleased = errors.New("the body was closed")

func (l *refReader) Close() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.ref != nil {
		l.ref.Release()
		l.ref = nil
	}
	return nil
}
