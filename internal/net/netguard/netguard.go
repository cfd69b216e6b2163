// Package netguard is the one way to a URL that a customer has set. It judges the very address that is about to be
// dialled, after every resolution and on every hop, so that neither a name that changes its address nor a redirect nor
// another way of writing a host leads to a machine that is not public.
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

// How connections to customers' URLs are made and kept.
const (
	connectTimeout = 10 * time.Second // for resolving and dialling, and as much again for TLS
	answerTimeout  = time.Minute      // for all of an answer, redirects included
	idleTimeout    = 90 * time.Second
	idlePerHost    = 64
	idleAll        = 1024
	maxHeaderSize  = 64 << 10
)

// A Guard lets requests out to public addresses and to what the operator allows.
type Guard struct {
	allow     []netip.Prefix
	dialer    net.Dialer
	transport *http.Transport
}

// An Option sets what tests have of their own.
type Option func(*Guard)

// WithResolver resolves names by another resolver.
func WithResolver(r *net.Resolver) Option { return func(g *Guard) { g.dialer.Resolver = r } }

// WithRoots trusts these authorities instead of the system's.
func WithRoots(roots *x509.CertPool) Option {
	return func(g *Guard) { g.transport.TLSClientConfig.RootCAs = roots }
}

// WithConnectTimeout gives up earlier, or later, on a connection that does not come about.
func WithConnectTimeout(d time.Duration) Option {
	return func(g *Guard) { g.dialer.Timeout, g.transport.TLSHandshakeTimeout = d, d }
}

// New guards. The ranges of allow are the operator's, and win over the table of what is not public.
func New(allow []netip.Prefix, options ...Option) *Guard {
	g := &Guard{}
	for _, prefix := range allow {
		g.allow = append(g.allow, plain(prefix))
	}
	g.dialer = net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second, ControlContext: g.control}
	g.transport = &http.Transport{
		Proxy:       nil, // a proxy of the environment's would dial for us, unseen
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

// Transport sends a request and returns its answer, a redirect too: following one is its caller's business. How long
// an answer may take is its caller's business as well. Everybody shares its connections.
func (g *Guard) Transport() http.RoundTripper { return g.transport }

// Client follows redirects as far as that is safe, and waits a minute for an answer. Its caller may set another Timeout.
func (g *Guard) Client() *http.Client {
	return &http.Client{Transport: g.transport, CheckRedirect: follow, Timeout: answerTimeout}
}

// Close closes the connections that nobody uses.
func (g *Guard) Close() { g.transport.CloseIdleConnections() }

// dial says which host a refused address is of, in place of net's error, whose text holds the address.
func (g *Guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := g.dialer.DialContext(ctx, network, address)
	var blocked *Blocked
	if errors.As(err, &blocked) {
		host, _, _ := net.SplitHostPort(address)
		return nil, &Blocked{Host: host, Address: blocked.Address, Why: blocked.Why}
	}
	return conn, err
}

// control judges an address in the moment before it is dialled; net calls it for each that a name resolves to.
func (g *Guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return &Blocked{Address: address, Why: network + ": is not TCP"}
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return &Blocked{Address: address, Why: "form: is not an address"}
	}
	if r := g.judge(at.Addr()); r != nil {
		return r.blocked("", at.Addr())
	}
	return nil
}

// Blocked says that a host is not dialled. Its text is for customers, and the same whatever stands behind the host: one
// who probes a network learns nothing from it. The address and the reason are for the log.
type Blocked struct {
	Host    string
	Address string
	Why     string
}

func (r *rule) blocked(host string, addr netip.Addr) *Blocked {
	return &Blocked{Host: host, Address: addr.String(), Why: r.name + ": " + r.why}
}

// Error names the host alone.
func (b *Blocked) Error() string { return b.Host + " is not a public address" }

// LogValue implements slog.LogValuer, with all that is known.
func (b *Blocked) LogValue() slog.Value {
	return slog.GroupValue(slog.String("host", b.Host), slog.String("address", b.Address), slog.String("why", b.Why))
}
