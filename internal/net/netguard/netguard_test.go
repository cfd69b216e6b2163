package netguard

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/net/netguard/netguardtest"
)

var newZone, answers = netguardtest.NewZone, netguardtest.Answers

// In these tests 127.0.0.2 stands for the public network: the guard allows it, and nothing else of the loopback.
// Servers on 127.0.0.1 must not see a connection.
const (
	public = "127.0.0.2"
	inside = "127.0.0.1"
)

var allowPublic = []netip.Prefix{netip.MustParsePrefix(public + "/32")}

// proxied counts the connections to the proxy that the environment names. net/http reads the environment once, so that
// TestMain sets it.
var proxied atomic.Int64

func TestMain(m *testing.M) {
	proxy, err := net.Listen("tcp", public+":0")
	if err != nil {
		panic(err)
	}
	go countConnections(proxy, &proxied)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		_ = os.Setenv(name, "http://"+proxy.Addr().String())
	}
	_ = os.Unsetenv("NO_PROXY")
	_ = os.Unsetenv("no_proxy")
	os.Exit(m.Run())
}

func countConnections(l net.Listener, connections *atomic.Int64) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		connections.Add(1)
		_ = conn.Close()
	}
}

// serve starts a server on an address. Port 0 is any port.
func serve(t *testing.T, host, port string, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// portOfAll returns a port that is free on all addresses of these tests. It is not one of those that the kernel gives
// to other processes (net.ipv4.ip_local_port_range), so that none of them takes it on one of the addresses meanwhile.
func portOfAll(t *testing.T) string {
	t.Helper()
	for range 100 {
		port, free := strconv.Itoa(20_000+rand.IntN(10_000)), true
		for _, host := range []string{public, inside} {
			listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
			if free = free && err == nil; err == nil {
				_ = listener.Close()
			}
		}
		if free {
			return port
		}
	}
	t.Fatal("no port is free on all addresses")
	return ""
}

// startVictim counts the connections to a port of the loopback addresses that the guard must block.
func startVictim(t *testing.T, port string) (string, *atomic.Int64) {
	t.Helper()
	var connections atomic.Int64
	for _, host := range []string{inside, "::1"} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			if host == "::1" {
				continue // the machine has no IPv6
			}
			t.Fatal(err)
		}
		go countConnections(listener, &connections)
		t.Cleanup(func() { _ = listener.Close() })
		_, port, _ = net.SplitHostPort(listener.Addr().String())
	}
	return port, &connections
}

func portOf(s *httptest.Server) string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return port
}

func ok(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }

func get(t *testing.T, transport http.RoundTripper, url string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestNoSpellingOfAHostReachesABlockedAddress(t *testing.T) {
	port, reached := startVictim(t, "0")
	// Names that look like numbers resolve to the address that some resolvers read from them.
	loopback := [][]netip.Addr{answers(inside)}
	z := newZone(t, map[string][][]netip.Addr{
		"0x7f.1": loopback, "127.1": loopback, "0x7f000001": loopback, "0177.0.0.1": loopback, "inside.test": loopback,
		"long.inside.test": loopback, "mapped.test": {answers("::ffff:127.0.0.1")}, "six.test": {answers("::1")},
		"zero.test": {answers("0.0.0.0")}, "any.test": {answers("::")}, "metadata.test": {answers("169.254.169.254")}, "nat.test": {answers("64:ff9b::7f00:1")},
	})
	g := New(allowPublic, WithResolver(z.Resolver()), WithConnectTimeout(5*time.Second), WithRefusalTime(0))
	for _, host := range []string{
		"127.0.0.1", "127.255.0.1", "0.0.0.0", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]",
		"[64:ff9b:1::127.0.0.1]", "[2002:7f00:1::]", "[fe80::1%25lo]", "[::1%25lo]", "localhost", "10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1",
		"169.254.169.254", "[fd00:ec2::254]", "168.63.129.16", "255.255.255.255", "224.0.0.1", "0x7f.1", "0x7f000001", "inside.test", "long.inside.test",
		"INSIDE.test.", "mapped.test", "six.test", "zero.test", "any.test", "metadata.test", "nat.test",
	} {
		_, err := get(t, g.Transport(), "http://"+host+":"+port+"/")
		var blocked *Blocked
		if !errors.As(err, &blocked) {
			t.Errorf("%s: got %v", host, err)
			continue
		}
		if name := strings.Trim(strings.Replace(host, "%25", "%", 1), "[]"); blocked.Host != name || err.Error() != name+" is not a public address" {
			t.Errorf("%s: the error is %q, of host %q", host, err, blocked.Host)
		}
		if blocked.Why == "" || blocked.Address == "" {
			t.Errorf("%s: logged as %+v", host, blocked)
		}
	}
	for _, host := range []string{"2130706433", "0", "127.1", "0177.0.0.1"} { // Go's resolver refuses such names
		if _, err := get(t, g.Transport(), "http://"+host+":"+port+"/"); err == nil {
			t.Errorf("%s was dialled", host)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestDNSRebindingIsBlocked(t *testing.T) {
	server := serve(t, public, portOfAll(t), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // so that the next request dials again
		ok(w, r)
	})
	port, reached := startVictim(t, portOf(server))
	for _, name := range []string{"rebind.test", "long.rebind.test"} {
		z := newZone(t, map[string][][]netip.Addr{name: {answers(public), answers(inside)}})
		g := New(allowPublic, WithResolver(z.Resolver()), WithConnectTimeout(5*time.Second), WithRefusalTime(0))
		if body, err := get(t, g.Transport(), "http://"+name+":"+port); err != nil || body != "HTTP/1.1" {
			t.Fatalf("%s: the first response is %q, %v", name, body, err)
		}
		for range 3 {
			var blocked *Blocked
			if _, err := get(t, g.Transport(), "http://"+name+":"+port); !errors.As(err, &blocked) || blocked.Address != inside {
				t.Errorf("%s: after rebinding: %v", name, err)
			}
		}
		if z.QueryCount(name) != 4 {
			t.Errorf("%s was resolved %d times", name, z.QueryCount(name))
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestOnlyThePublicAddressesOfANameAreDialled(t *testing.T) {
	port, reached := startVictim(t, portOfAll(t)) // nothing listens on this port of the public address
	names := map[string][][]netip.Addr{
		"dead-then-inside.test": {answers(public, inside)}, "inside-then-dead.test": {answers(inside, public)}, "both.test": {answers(public, inside, "::1")},
	}
	z := newZone(t, names)
	g := New(allowPublic, WithResolver(z.Resolver()), WithConnectTimeout(5*time.Second), WithRefusalTime(0))
	for name := range names {
		if _, err := get(t, g.Transport(), "http://"+name+":"+port); err == nil {
			t.Errorf("%s was answered", name)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
	server := serve(t, public, port, ok)
	for name := range names {
		if body, err := get(t, g.Transport(), "http://"+name+":"+portOf(server)); err != nil || body != "HTTP/1.1" {
			t.Errorf("%s with its public address alive: %q, %v", name, body, err)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestOnlyTCPIsDialled(t *testing.T) {
	g := New(allowPublic)
	for _, network := range []string{"udp", "unix", "ip4:icmp"} {
		address := map[string]string{"udp": public + ":53", "unix": t.TempDir() + "/socket", "ip4:icmp": public}[network]
		conn, err := g.dial(t.Context(), network, address)
		var blocked *Blocked
		if !errors.As(err, &blocked) && !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: got %v, %v", network, conn, err)
		}
	}
	for _, network := range []string{"tcp", "udp4", "unix", "", "ip4"} {
		if err := g.control(t.Context(), network, public+":80", nil); err == nil {
			t.Errorf("%q was accepted", network)
		}
	}
	if err := g.control(t.Context(), "tcp4", "example.com:80", nil); err == nil {
		t.Error("a name was accepted")
	}
	if _, err := get(t, g.Transport(), "ftp://"+public+"/"); err == nil {
		t.Error("another protocol was accepted")
	}
}

func TestProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	server := serve(t, public, "0", ok)
	z := newZone(t, map[string][][]netip.Addr{"public.test": {answers(public)}})
	g := New(allowPublic, WithResolver(z.Resolver()))
	if body, err := get(t, g.Transport(), "http://public.test:"+portOf(server)); err != nil || body != "HTTP/1.1" {
		t.Errorf("got %q, %v", body, err)
	}
	if n := proxied.Load(); n != 0 {
		t.Errorf("the proxy saw %d connections", n)
	}
}

func TestConnectionsAreReusedAndTLSUsesHTTP2(t *testing.T) {
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("the client asks for compression")
		}
		ok(w, r)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // it logs the handshakes that fail on purpose
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	z := newZone(t, map[string][][]netip.Addr{"example.com": {answers(inside)}})
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	g := New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, WithResolver(z.Resolver()), WithRoots(roots))
	t.Cleanup(g.Close)
	for range 5 {
		if body, err := get(t, g.Transport(), "https://example.com:"+portOf(server)); err != nil || body != "HTTP/2.0" {
			t.Errorf("got %q, %v", body, err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	if _, err := get(t, New(allowPublic).Transport(), server.URL); err == nil {
		t.Error("a guard that allows less was answered")
	}
	strict := New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, WithResolver(z.Resolver()))
	if _, err := get(t, strict.Transport(), server.URL); err == nil {
		t.Error("an unknown certificate authority was trusted")
	}
}

// startSilent starts a server that accepts connections and sends nothing.
func startSilent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", public+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

func TestResolvingDiallingAndHandshakesTimeOut(t *testing.T) {
	address := startSilent(t)
	mute := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", address) // nothing answers packets there
	}}
	g := New(allowPublic, WithResolver(mute), WithConnectTimeout(50*time.Millisecond))
	for _, url := range []string{"https://" + address, "http://mute.test"} {
		begun := time.Now()
		if _, err := get(t, g.Transport(), url); err == nil || time.Since(begun) > time.Minute {
			t.Errorf("%s: %v after %v", url, err, time.Since(begun))
		}
	}
	if d := New(nil); d.dialer.Timeout <= 0 || d.transport.TLSHandshakeTimeout <= 0 || d.transport.IdleConnTimeout <= 0 || d.Client().Timeout <= 0 {
		t.Error("a timeout is missing")
	}
}

func TestResponseHeadersAreBounded(t *testing.T) {
	server := serve(t, public, "0", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 2*maxHeaderSize))
	})
	if _, err := get(t, New(allowPublic).Transport(), server.URL); err == nil {
		t.Error("a header over the limit was read")
	}
}

func TestTheBlockedAddressIsLoggedAndNotReturned(t *testing.T) {
	z := newZone(t, map[string][][]netip.Addr{"probe.test": {answers("10.1.2.3")}})
	g := New(nil, WithResolver(z.Resolver()))
	_, err := g.Client().Get("http://probe.test/secret")
	var blocked *Blocked
	if !errors.As(err, &blocked) || strings.Contains(err.Error(), "10.1.2.3") || strings.Contains(err.Error(), "private") {
		t.Fatalf("the error is %v", err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Warn("refused", "blocked", blocked)
	for _, part := range []string{"blocked.host=probe.test", "blocked.address=10.1.2.3", `blocked.why="private: is a private network's"`} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log lacks %s: %s", part, log.String())
		}
	}
}
