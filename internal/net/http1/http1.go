// Package http1 has an HTTP/1.1 client and an HTTP/1.1 server for the request path. Both do less than those of
// net/http, with fewer allocations, goroutines and system calls. Like package socket, it builds on Linux only.
//
// A Client talks to one origin, on the caller's goroutine and with a pool of keep-alive connections. It sends what the
// APIs of model providers need, a request with a body of known length, and reads any response. It reads strictly: a
// response whose end two readers could see in different places is ErrMalformed. There are no proxies, redirects,
// HTTP/2, compression, cookies or request trailers.
//
// A Server answers plain POST requests itself and hands every other connection to net/http's server.
package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/net/life"
)

// A Config says how a Client connects to its origin.
type Config struct {
	TLS         *tls.Config   // for https; ServerName is the origin's host unless it is set
	DialTimeout time.Duration // for connecting, and again for the TLS handshake
	IdleTimeout time.Duration // after which an idle connection is closed
	Idle        int           // the most idle connections that are kept
	MaxHead     int           // the most bytes of a response's head, and of its trailers
}

// A Client sends requests to one origin. It is safe for concurrent use.
type Client struct {
	config Config
	origin origin
	dialer net.Dialer
	idle   pool
}

// An origin is the server that a Client connects to.
type origin struct {
	address string      // host:port, to dial
	host    string      // the value of the Host header
	tls     *tls.Config // nil for http
}

// ErrOrigin means that a URL is not that of an http or https origin.
var ErrOrigin = errors.New("is no http or https origin")

// New returns a client for the origin of a URL. The URL's path is ignored.
func New(base *url.URL, c Config) (*Client, error) {
	ports := map[string]string{"http": "80", "https": "443"}
	port, ok := ports[base.Scheme]
	if !ok || base.Hostname() == "" {
		return nil, fmt.Errorf("%q %w", base.Redacted(), ErrOrigin)
	}
	if base.Port() != "" {
		port = base.Port()
	}
	if !validFieldValue(base.Host) {
		return nil, fmt.Errorf("%q %w", base.Redacted(), ErrOrigin)
	}
	client := &Client{
		config: c,
		origin: origin{address: net.JoinHostPort(base.Hostname(), port), host: base.Host},
		dialer: net.Dialer{Timeout: c.DialTimeout, KeepAlive: 30 * time.Second},
		idle:   pool{maxIdle: c.Idle, timeout: c.IdleTimeout},
	}
	if base.Scheme == "https" {
		client.origin.tls = clientTLS(c.TLS, base.Hostname())
	}
	return client, nil
}

// clientTLS returns a copy of a configuration that offers HTTP/1.1 alone and resumes sessions.
func clientTLS(from *tls.Config, host string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if from != nil {
		c = from.Clone()
	}
	if c.ServerName == "" {
		c.ServerName = host
	}
	c.NextProtos = []string{"http/1.1"}
	if c.ClientSessionCache == nil {
		c.ClientSessionCache = tls.NewLRUClientSessionCache(64)
	}
	return c
}

// A Field is one header field.
type Field struct{ Name, Value string }

// A Request has a body of known length, in parts. The client sets Host and Content-Length itself.
type Request struct {
	HeaderTemplate *HeaderTemplate // replaces Method and Target if set
	Method         string
	Target         string // path and query, escaped
	Fields         []Field
	Body           [][]byte
}

// A HeaderTemplate is the beginning of the head of many requests, validated and encoded once. It is secret because its
// fields may hold an API key.
type HeaderTemplate struct{ text secret.Text }

// HeaderTemplate makes a template for requests of this client.
func (c *Client) HeaderTemplate(method, target string, fields ...Field) (*HeaderTemplate, error) {
	r := Request{Method: method, Target: target, Fields: fields}
	if err := r.validate(); err != nil {
		return nil, err
	}
	return &HeaderTemplate{secret.New(string(r.appendTemplate(nil, c.origin.host)))}, nil
}

// A Response is what the gateway needs of a response's head, and the body. If a field is repeated, its first value
// counts. The caller must close Body.
type Response struct {
	Status          int
	ContentType     string
	ContentEncoding string
	RetryAfter      string
	RetryAfterMs    string
	Date            string
	Length          int64 // of the body; -1 if it is not known beforehand
	Body            *Body
}

// Do sends a request and returns when the head of its response has arrived. The end of ctx ends the exchange: Do fails,
// or reading the body does.
//
// A request is sent again only if a keep-alive connection turns out to be closed before all of the request was written.
// Then the server cannot have acted on it.
func (c *Client) Do(ctx context.Context, r *Request) (*Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	for cc := c.idle.get(); cc != nil; cc = c.idle.get() {
		response, err := c.exchange(ctx, cc, r)
		if errors.Is(err, errUnsent) {
			break
		}
		if !errors.Is(err, errStale) {
			return response, err
		}
	}
	cc, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return c.exchange(ctx, cc, r)
}

// errUnsent means that a connection was closed before all of a request was written.
var errUnsent = errors.New("the connection was closed before the request was sent")

// exchange sends a request over a connection and reads the head of the response. On success the Body owns the
// connection; on an error it is closed.
func (c *Client) exchange(ctx context.Context, cc *clientConn, r *Request) (response *Response, err error) {
	onEnd := life.AfterFunc(ctx, cc.abort)
	defer func() {
		if err == nil {
			return
		}
		onEnd.Stop()
		cc.close()
		if ended := ctx.Err(); ended != nil { // err is the deadline that abort has set
			err = ended
		}
	}()
	if unsent := cc.send(c.origin.host, r); unsent != nil {
		if errors.Is(unsent, errStale) {
			return nil, unsent
		}
		// A server may refuse a request, and close, before it has read all of it. Its response counts.
		if ctx.Err() != nil || !cc.awaitResponse() || ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", errUnsent, unsent)
		}
		cc.noReuse = true
	}
	state := &exchangeState{}
	h := &state.head
	if err := cc.readHead(h, c.config.MaxHead); err != nil {
		return nil, err
	}
	state.body = Body{
		conn: cc, client: c, onEnd: onEnd, ctx: ctx, framing: h.framing(), remaining: max(0, h.length),
		keepAlive: h.keepAlive, keepAliveTimeout: h.keepAliveTimeout,
	}
	state.response = h.response(&state.body)
	return &state.response, nil
}

// An exchangeState holds all that a response needs, in one allocation.
type exchangeState struct {
	head     responseHead
	response Response
	body     Body
}

// Close closes the idle connections. Exchanges under way go on.
func (c *Client) Close() { c.idle.close() }
