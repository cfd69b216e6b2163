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

// http1Sender sends over net/http1, which costs less than half of net/http's Transport. Requests to a base URL of a
// workspace go through the embedded netHTTPSender.
type http1Sender struct {
	*netHTTPSender
	client    *http1.Client
	path      string // path of the base URL
	templates memo.Memo[templateKey, *http1.HeaderTemplate]
}

// templateKey identifies requests whose headers differ in the request id only.
type templateKey struct {
	path   string
	stream bool
}

// newDirect returns a sender that speaks the provider's own wire format over the transport that the provider's entry
// names. The default is net/http1; behind a proxy set in the environment it is net/http. Engines are never behind one.
func newDirect(p *live.Provider, guarded http.RoundTripper) (Sender, error) {
	fallback, err := newNetHTTPSender(p, guarded)
	if err != nil || p.Transport == live.Standard {
		return fallback, err
	}
	base, err := url.Parse(p.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("provider %s: base_url: %w", p.Name, err)
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: base}); p.Protocol != live.Engine &&
		(err != nil || proxy != nil) {
		return fallback, err
	}
	client, err := http1.New(base, http1.Config{
		TLS: fallback.transport.TLSClientConfig, DialTimeout: dialTimeout, IdleTimeout: idleTimeout, Idle: idlePerHost,
		MaxHead: maxHeaderSize,
	})
	if err != nil {
		return nil, fmt.Errorf("provider %s: base_url: %w", p.Name, err)
	}
	l := &http1Sender{netHTTPSender: fallback, client: client, path: strings.TrimSuffix(base.EscapedPath(), "/")}
	l.templates.Make = l.headerTemplate
	return l, nil
}

// headerTemplate encodes the headers of requests with the server's key. It returns nil when they cannot be encoded;
// each request then reports the error.
func (l *http1Sender) headerTemplate(key templateKey) *http1.HeaderTemplate {
	h, err := l.client.HeaderTemplate(http.MethodPost, l.path+key.path,
		commonHeaders(l.provider.Protocol, key.stream, l.provider.APIKey)...)
	if err != nil {
		return nil
	}
	return h
}

func (l *http1Sender) Close() {
	l.client.Close()
	l.netHTTPSender.Close()
}

// Send implements Sender.
func (l *http1Sender) Send(ctx context.Context, r *Request) (*Response, error) {
	if r.Credentials != nil && r.Credentials.BaseURL != "" { // a customer's URL: only the guarded transport may be used
		return l.netHTTPSender.Send(ctx, r)
	}
	response, err := l.client.Do(ctx, l.request(r))
	if errors.Is(err, http1.ErrMalformed) {
		return nil, fmt.Errorf("%w: %w", ErrInvalidAnswer, err)
	}
	if err != nil {
		return nil, err
	}
	if err := checkEncoding(response.ContentEncoding); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return &Response{
		Status: response.Status, ContentType: response.ContentType, Length: max(0, response.Length),
		Body: response.Body, RetryAfter: retryAfter(response.RetryAfterMs, response.RetryAfter, response.Date),
	}, nil
}

// request builds the HTTP request, from a header template where the server's key is used.
func (l *http1Sender) request(r *Request) *http1.Request {
	key := l.provider.APIKey
	if r.Credentials != nil {
		key = r.Credentials.Key
	} else if h := l.templates.Get(templateKey{r.Path, r.Stream}); h != nil {
		templated := &struct {
			http1.Request
			id [1]http1.Field
		}{Request: http1.Request{HeaderTemplate: h, Body: r.Body}, id: [1]http1.Field{requestIDHeader(r)}}
		templated.Fields = templated.id[:]
		return &templated.Request
	}
	return &http1.Request{
		Method: http.MethodPost, Target: l.path + r.Path,
		Fields: requestHeaders(l.provider.Protocol, r, key), Body: r.Body,
	}
}
