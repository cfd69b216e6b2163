package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"sovereign/internal/base/memo"
	"sovereign/internal/live"
	"sovereign/internal/net/http1"
)

// lean reaches a provider over our own client: HTTP/1.1 at less than half of the cost. What needs more than that goes the
// standard way.
type lean struct {
	*standard
	client *http1.Client
	path   string // of the base URL
	heads  memo.Memo[kind, *http1.HeaderTemplate]
}

// A kind is of requests that have all but their id in common.
type kind struct {
	path   string
	stream bool
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
	l := &lean{standard: other, client: client, path: strings.TrimSuffix(base.EscapedPath(), "/")}
	l.heads.Make = l.letterhead
	return l, nil
}

// letterhead is for requests with the server's own key; nil where none can be written, and each request will say why.
func (l *lean) letterhead(of kind) *http1.HeaderTemplate {
	h, err := l.client.HeaderTemplate(http.MethodPost, l.path+of.path, letterhead(l.provider.Protocol, of.stream, l.provider.APIKey)...)
	if err != nil {
		return nil
	}
	return h
}

func (l *lean) Close() {
	l.client.Close()
	l.standard.Close()
}

// Send implements Sender.
func (l *lean) Send(ctx context.Context, r *Request) (*Response, error) {
	if r.Credentials != nil && r.Credentials.BaseURL != "" { // the guard's transport knows where it may lead
		return l.standard.Send(ctx, r)
	}
	response, err := l.client.Do(ctx, l.request(r))
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

// request is what is sent.
func (l *lean) request(r *Request) *http1.Request {
	key := l.provider.APIKey
	if r.Credentials != nil {
		key = r.Credentials.Key
	} else if h := l.heads.Get(kind{r.Path, r.Stream}); h != nil {
		short := &struct {
			http1.Request
			id [1]http1.Field
		}{Request: http1.Request{HeaderTemplate: h, Body: r.Body}, id: [1]http1.Field{named(r)}}
		short.Fields = short.id[:]
		return &short.Request
	}
	return &http1.Request{Method: http.MethodPost, Target: l.path + r.Path, Fields: head(l.provider.Protocol, r, key), Body: r.Body}
}
