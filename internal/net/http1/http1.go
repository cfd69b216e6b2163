// Package http1 is HTTP/1.1 of our own: a client, and a server for the plainest requests that stands before net/http's.
//
// A Client is for one origin: synchronous, on the caller's own goroutine, with a pool of connections. It speaks what the APIs of model providers need, a request with a body of known length and any answer,
// and it reads strictly: where two readers could differ about where an answer ends, it is refused.
//
// They exist for their cost. What the client does not do: proxies, redirects, HTTP/2, compression, cookies, caller's trailers.
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

// A Config is how an origin is reached.
type Config struct {
	TLS         *tls.Config   // for https; the server's name is the origin's unless it says another
	DialTimeout time.Duration // for a connection, and again for its handshake
	IdleTimeout time.Duration // for which a connection is kept unused
	Idle        int           // how many are
	MaxHead     int           // bytes of an answer's head, and of its trailers
}

// A Client reaches one origin. It is safe for use by many goroutines.
type Client struct {
	config Config
	origin origin
	dialer net.Dialer
	idle   pool
}

// An origin is where a client's connections lead.
type origin struct {
	address string // to dial
	host    string // as the head says it
	secure  *tls.Config
}

// ErrOrigin says that a URL names nothing that the client could reach.
var ErrOrigin = errors.New("is no http or https origin")

// New reaches the origin of a URL, whose path does not matter.
func New(base *url.URL, c Config) (*Client, error) {
	ports := map[string]string{"http": "80", "https": "443"}
	port, ok := ports[base.Scheme]
	if !ok || base.Hostname() == "" {
		return nil, fmt.Errorf("%q %w", base.Redacted(), ErrOrigin)
	}
	if base.Port() != "" {
		port = base.Port()
	}
	if !valueIs(base.Host) {
		return nil, fmt.Errorf("%q %w", base.Redacted(), ErrOrigin)
	}
	client := &Client{
		config: c,
		origin: origin{address: net.JoinHostPort(base.Hostname(), port), host: base.Host},
		dialer: net.Dialer{Timeout: c.DialTimeout, KeepAlive: 30 * time.Second},
		idle:   pool{most: c.Idle, patience: c.IdleTimeout},
	}
	if base.Scheme == "https" {
		client.origin.secure = secured(c.TLS, base.Hostname())
	}
	return client, nil
}

// secured is a configuration that offers nothing but HTTP/1.1.
func secured(from *tls.Config, host string) *tls.Config {
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

// A Field is one line of a head.
type Field struct{ Name, Value string }

// A Request has a body of known length, in parts. Host and Content-Length are the client's to say.
type Request struct {
	HeaderTemplate *HeaderTemplate // in place of method and target, where there is one
	Method         string
	Target         string // path and query, escaped
	Fields         []Field
	Body           [][]byte
}

// A Letterhead is what the heads of many requests have in common, checked and written once.
type HeaderTemplate struct{ text secret.Text }

// Letterhead makes one, for requests of this client.
func (c *Client) HeaderTemplate(method, target string, fields ...Field) (*HeaderTemplate, error) {
	r := Request{Method: method, Target: target, Fields: fields}
	if err := r.check(); err != nil {
		return nil, err
	}
	return &HeaderTemplate{secret.New(string(r.begin(nil, c.origin.host)))}, nil
}

// A Response is the head of an answer, as far as it is of use, and its body. Of a field that comes twice the first counts.
// Whoever gets one closes its Body.
type Response struct {
	Status          int
	ContentType     string
	ContentEncoding string
	RetryAfter      string
	RetryAfterMs    string
	Date            string
	Length          int64 // of the body; -1 when it is not known beforehand
	Body            *Body
}

// Do sends a request and returns when the head of its answer is there. When ctx ends, so does the exchange, and reading the
// body fails. A request is sent again only when a connection that was kept turns out to be closed before all of the
// request was written: then nobody can have taken it.
func (c *Client) Do(ctx context.Context, r *Request) (*Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	for link := c.idle.get(); link != nil; link = c.idle.get() {
		response, err := c.exchange(ctx, link, r)
		if errors.Is(err, errUnsent) {
			break
		}
		if !errors.Is(err, errStale) {
			return response, err
		}
	}
	link, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return c.exchange(ctx, link, r)
}

// errUnsent says that a connection was closed before a request was written whole.
var errUnsent = errors.New("the connection was closed before the request was sent")

// exchange sends a request over a link and reads the head of the answer. The link is the body's from then on; after an
// error it is closed.
func (c *Client) exchange(ctx context.Context, l *clientConn, r *Request) (response *Response, err error) {
	stop := life.AfterFunc(ctx, l.abort)
	defer func() {
		if err == nil {
			return
		}
		stop.Stop()
		l.close()
		if ended := ctx.Err(); ended != nil { // a deadline in the past is how an end is told to a link
			err = ended
		}
	}()
	if unsent := l.send(c.origin.host, r); unsent != nil {
		if errors.Is(unsent, errStale) {
			return nil, unsent
		}
		// A server may refuse a request, and close, before it has read all of it.
		if ctx.Err() != nil || !l.answered() || ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", errUnsent, unsent)
		}
		l.spoiled = true
	}
	answer := &answer{}
	h := &answer.head
	if err := l.readHead(h, c.config.MaxHead); err != nil {
		return nil, err
	}
	answer.body = Body{conn: l, client: c, stop: stop, ctx: ctx, framing: h.framing(), left: max(0, h.length), keepAlive: h.keep, patience: h.patience}
	answer.response = h.response(&answer.body)
	return &answer.response, nil
}

// An answer is made at once of what belongs to it.
type answer struct {
	head     responseHead
	response Response
	body     Body
}

// Close gives up the connections that are not in use. Running exchanges go on.
func (c *Client) Close() { c.idle.close() }
