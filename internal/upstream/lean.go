package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"sovereign/internal/http1"
	"sovereign/internal/live"
)

// lean reaches a provider over our own client: HTTP/1.1 at less than half of the cost. What needs more than that goes the
// standard way.
type lean struct {
	*standard
	client *http1.Client
	path   string // of the base URL
}

// newDirect reaches a provider in its own wire, by the transport that its entry names. Our own is the default; behind a proxy, which the
// environment names, it is net/http's.
func newDirect(p *live.Provider, guarded http.RoundTripper) (Sender, error) {
	other, err := newStandard(p, guarded)
	if err != nil || p.Transport == live.Standard {
		return other, err
	}
	base, err := url.Parse(p.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("provider %s: base_url: %w", p.Name, err)
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: base}); err != nil || proxy != nil {
		return other, err
	}
	client, err := http1.New(base, http1.Config{
		TLS: other.transport.TLSClientConfig, DialTimeout: dialTimeout, IdleTimeout: idleTimeout, Idle: idlePerHost, MaxHead: maxHeaderSize,
	})
	if err != nil {
		return nil, fmt.Errorf("provider %s: base_url: %w", p.Name, err)
	}
	return &lean{standard: other, client: client, path: strings.TrimSuffix(base.EscapedPath(), "/")}, nil
}

func (l *lean) Close() {
	l.client.Close()
	l.standard.Close()
}

// Send implements Sender.
func (l *lean) Send(ctx context.Context, r *Request) (*Response, error) {
	key := l.provider.APIKey
	if r.Own != nil {
		if r.Own.BaseURL != "" { // the guard's transport knows where it may lead
			return l.standard.Send(ctx, r)
		}
		key = r.Own.Key
	}
	response, err := l.client.Do(ctx, &http1.Request{
		Method: http.MethodPost, Target: l.path + r.Path, Fields: head(l.provider.Protocol, r, key), Body: r.Body,
	})
	if errors.Is(err, http1.ErrMalformed) {
		return nil, fmt.Errorf("%w: %w", ErrGarbage, err)
	}
	if err != nil {
		return nil, err
	}
	if err := encoded(response.ContentEncoding); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return &Response{
		Status: response.Status, ContentType: response.ContentType, Length: max(0, response.Length), Body: response.Body,
		RetryAfter: retryAfter(response.RetryAfterMs, response.RetryAfter, response.Date),
	}, nil
}
