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
	"strconv"
	"strings"
	"time"

	"sovereign/internal/fault"
	"sovereign/internal/live"
	"sovereign/internal/netguard"
)

// standard reaches a provider over net/http's Transport.
type standard struct {
	provider  *live.Provider
	transport *http.Transport
	guarded   http.RoundTripper // for the base URL that a workspace has set
}

// authorize puts a key where a provider looks for it, with what else its wire wants in every head.
var authorize = map[live.Protocol]func(http.Header, string){
	live.OpenAI: bearer,
	live.Cohere: bearer,
	live.Anthropic: func(h http.Header, key string) {
		h.Set("Anthropic-Version", "2023-06-01")
		if key != "" {
			h.Set("X-Api-Key", key)
		}
	},
	live.Gemini: func(h http.Header, key string) {
		if key != "" {
			h.Set("X-Goog-Api-Key", key)
		}
	},
}

func bearer(h http.Header, key string) {
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}

// How connections to a provider are made and kept.
const (
	dialTimeout   = 10 * time.Second
	idleTimeout   = 90 * time.Second
	idlePerHost   = 512
	maxHeaderSize = 64 << 10
)

func newStandard(p *live.Provider, guarded http.RoundTripper) (*standard, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.CAFile != "" {
		text, err := os.ReadFile(p.CAFile)
		if err != nil {
			return nil, fmt.Errorf("provider %s: ca_file: %w", p.Name, err)
		}
		if secure.RootCAs = x509.NewCertPool(); !secure.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("provider %s: ca_file %s holds no certificate", p.Name, p.CAFile)
		}
	}
	return &standard{provider: p, guarded: guarded, transport: &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext, TLSHandshakeTimeout: dialTimeout,
		TLSClientConfig: secure, ForceAttemptHTTP2: true,
		MaxIdleConns: 4 * idlePerHost, MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: maxHeaderSize, DisableCompression: true,
	}}, nil
}

func (s *standard) Close() { s.transport.CloseIdleConnections() }

// Send implements Sender. The head is built here from nothing: no header of a caller's can reach a provider. Redirects
// are answers like any other; following one would take the provider's key elsewhere.
func (s *standard) Send(ctx context.Context, r *Request) (*Response, error) {
	base, key, way := s.provider.BaseURL, s.provider.APIKey, http.RoundTripper(s.transport)
	if r.Own != nil {
		key = r.Own.Key
		if r.Own.BaseURL != "" {
			base, way = r.Own.BaseURL, s.guarded
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
		return io.NopCloser(io.MultiReader(parts...)), nil
	}
	if request.Body, err = request.GetBody(); err != nil {
		return nil, err
	}
	header := request.Header
	header.Set("Content-Type", "application/json")
	header.Set("User-Agent", "sovereign")
	header.Set("X-Client-Request-Id", r.ID)
	header.Set("Accept", "application/json")
	if r.Stream {
		header.Set("Accept", "text/event-stream")
	}
	authorize[s.provider.Protocol](header, key.Reveal())
	response, err := way.RoundTrip(request)
	var blocked *netguard.Blocked
	if errors.As(err, &blocked) {
		return nil, fault.UnknownProvider.Because(err, "the workspace's own URL for %s cannot be used: %s", s.provider.Name, blocked)
	}
	if err != nil {
		return nil, err
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%w: it is encoded as %q, which was not asked for", ErrGarbage, encoding)
	}
	return &Response{
		Status: response.StatusCode, ContentType: response.Header.Get("Content-Type"),
		RetryAfter: retryAfter(response.Header), Body: response.Body,
	}, nil
}

// ErrGarbage says that an answer is not what its protocol allows.
var ErrGarbage = errors.New("the provider's answer cannot be read")

// retryAfter is how long a provider asks to be left alone. Its clock is not ours: a date counts from its own.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseInt(h.Get("Retry-After-Ms"), 10, 64); err == nil && ms >= 0 {
		return bounded(ms, time.Millisecond)
	}
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds >= 0 {
		return bounded(seconds, time.Second)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(0, at.Sub(now)), maxRetryAfter)
}

// maxRetryAfter bounds what is believed.
const maxRetryAfter = time.Hour

func bounded(n int64, unit time.Duration) time.Duration {
	if n > int64(maxRetryAfter/unit) {
		return maxRetryAfter
	}
	return time.Duration(n) * unit
}
