// Package netguard protects against server-side request forgery: it is the only way to dial a URL that a customer has
// set. A Guard checks every IP address right before it is dialled, after name resolution and on every redirect. So
// neither DNS rebinding, nor a redirect, nor another spelling of a host leads to an address that is not public.
package netguard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// The timeouts and limits of connections to customers' URLs.
const (
	connectTimeout = 10 * time.Second // for name resolution and dialling, and again for the TLS handshake
	answerTimeout  = time.Minute      // for a whole response, redirects included
	refusalTime    = time.Second / 2  // the refusal of a name takes a multiple of it
	idleTimeout    = 90 * time.Second
	idlePerHost    = 64
	idleAll        = 1024
	maxHeaderSize  = 64 << 10
)

// A Guard dials public addresses, and those that the operator allows.
type Guard struct {
	allow       []netip.Prefix
	dialer      net.Dialer
	transport   *http.Transport
	refusalTime time.Duration
}

// An Option changes a Guard, for tests.
type Option func(*Guard)

// WithResolver replaces the resolver.
func WithResolver(r *net.Resolver) Option { return func(g *Guard) { g.dialer.Resolver = r } }

// WithRoots replaces the system's certificate authorities.
func WithRoots(roots *x509.CertPool) Option {
	return func(g *Guard) { g.transport.TLSClientConfig.RootCAs = roots }
}

// WithConnectTimeout replaces the timeout for dialling, and that for the TLS handshake.
func WithConnectTimeout(d time.Duration) Option {
	return func(g *Guard) { g.dialer.Timeout, g.transport.TLSHandshakeTimeout = d, d }
}

// WithRefusalTime replaces the time of which the refusal of a name takes a multiple. 0 is none.
func WithRefusalTime(d time.Duration) Option { return func(g *Guard) { g.refusalTime = d } }

// New returns a Guard. The operator's ranges in allow take precedence over the table of blocked ranges.
func New(allow []netip.Prefix, options ...Option) *Guard {
	g := &Guard{refusalTime: refusalTime}
	for _, prefix := range allow {
		g.allow = append(g.allow, unmapPrefix(prefix))
	}
	g.dialer = net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second, ControlContext: g.control}
	g.transport = &http.Transport{
		Proxy:       nil, // a proxy from the environment would dial unchecked addresses
		DialContext: g.dial, TLSHandshakeTimeout: connectTimeout,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		MaxIdleConns: idleAll, MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: maxHeaderSize, DisableCompression: true,
	}
	for _, option := range options {
		option(g)
	}
	return g
}

// Transport returns the guard's transport. It follows no redirects and sets no timeout for a response: that is the
// caller's to do. All callers share its connections.
func (g *Guard) Transport() http.RoundTripper { return g.transport }

// Client returns a client that follows safe redirects and has a timeout of a minute, which the caller may change.
func (g *Guard) Client() *http.Client {
	return &http.Client{Transport: g.transport, CheckRedirect: checkRedirect, Timeout: answerTimeout}
}

// Close closes the idle connections.
func (g *Guard) Close() { g.transport.CloseIdleConnections() }

// dial dials an address. A name that leads to a blocked address is refused exactly as one that leads nowhere: the
// server's resolver may know the names of the operator's network, and a customer must not learn which there are.
func (g *Guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	begun := time.Now()
	conn, err := g.dialer.DialContext(ctx, network, address)
	if err == nil || ctx.Err() != nil {
		return conn, err
	}
	host, _, _ := net.SplitHostPort(address)
	var blocked *Blocked
	var unresolved *net.DNSError
	switch {
	case errors.As(err, &blocked):
		blocked = &Blocked{Host: host, Address: blocked.Address, Why: blocked.Why}
	case errors.As(err, &unresolved):
		blocked = &Blocked{Host: host, Why: "name: " + unresolved.Err}
	default:
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		g.waitToRefuse(ctx, begun)
	}
	return nil, blocked
}

// waitToRefuse waits until a multiple of the refusal time has passed, so that a caller cannot tell by the time whether
// there was an address to check.
func (g *Guard) waitToRefuse(ctx context.Context, begun time.Time) {
	if g.refusalTime <= 0 {
		return
	}
	wait := time.NewTimer(g.refusalTime - time.Since(begun)%g.refusalTime)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// control checks an address right before it is dialled. Package net calls it for each address that a name resolves to.
func (g *Guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return &Blocked{Address: address, Why: network + ": is not TCP"}
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return &Blocked{Address: address, Why: "form: is not an address"}
	}
	if r := g.blockedBy(at.Addr()); r != nil {
		return r.blocked("", at.Addr())
	}
	return nil
}

// Blocked means that a host was not dialled: it has no address, or one that is not public. Its text is for customers,
// and does not depend on the address or the reason, so that it cannot be used to probe a network. The address, if there
// is one, and the reason are for the log.
type Blocked struct {
	Host    string
	Address string
	Why     string
}

func (r *rule) blocked(host string, addr netip.Addr) *Blocked {
	return &Blocked{Host: host, Address: addr.String(), Why: r.name + ": " + r.why}
}

// Error implements error. It names the host alone.
func (b *Blocked) Error() string { return b.Host + " is not a public address" }

// LogValue implements slog.LogValuer, with the address and the reason.
func (b *Blocked) LogValue() slog.Value {
	return slog.GroupValue(slog.String("host", b.Host), slog.String("address", b.Address), slog.String("why", b.Why))
}
