package netguard

import (
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var redirects = []int{301, 302, 303, 307, 308}

// redirecting redirects /<status>/<URL> to the URL with the status.
func redirecting(w http.ResponseWriter, r *http.Request) {
	status, to, _ := strings.Cut(strings.TrimPrefix(r.RequestURI, "/"), "/")
	code, _ := strconv.Atoi(status)
	w.Header().Set("Location", to)
	w.WriteHeader(code)
}

func TestRedirectsToBlockedAddressesAreRefused(t *testing.T) {
	server := serve(t, public, portOfAll(t), redirecting)
	port, reached := startVictim(t, portOf(server))
	z := newZone(t, map[string][][]netip.Addr{
		"start.test": {answers(public)}, "inside.test": {answers(inside)}, "metadata.test": {answers("169.254.169.254")}, "six.test": {answers("::1")},
	})
	for _, status := range redirects {
		for _, host := range []string{
			inside, "[::1]", "localhost", "inside.test", "six.test", "0.0.0.0", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "10.0.0.1", "192.168.1.1",
			"169.254.169.254", "metadata.test", "[fd00:ec2::254]",
		} {
			to := "http://" + host + ":" + port + "/latest/meta-data"
			for _, start := range []string{server.URL, "http://start.test:" + port} {
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					request, err := http.NewRequestWithContext(t.Context(), method, start+"/"+strconv.Itoa(status)+"/"+to, strings.NewReader("{}"))
					if err != nil {
						t.Fatal(err)
					}
					g := New(allowPublic, WithResolver(z.Resolver()), WithConnectTimeout(5*time.Second), WithRefusalTime(0))
					_, err = g.Client().Do(request)
					var blocked *Blocked
					if !errors.As(err, &blocked) || blocked.Host != strings.Trim(host, "[]") {
						t.Errorf("%s %d to %s: %v", method, status, to, err)
					}
					g.Close()
				}
			}
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestTheTransportFollowsNoRedirects(t *testing.T) {
	server := serve(t, public, "0", redirecting)
	for _, status := range redirects {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/"+strconv.Itoa(status)+"/"+server.URL, nil)
		response, err := New(allowPublic).Transport().RoundTrip(request)
		if err != nil || response.StatusCode != status || response.Header.Get("Location") != server.URL {
			t.Errorf("%d: got %+v, %v", status, response, err)
		}
	}
}

func TestFiveRedirectsAreFollowedAndNotSix(t *testing.T) {
	var hops atomic.Int64
	server := serve(t, public, "0", func(w http.ResponseWriter, r *http.Request) {
		hops.Add(1)
		left, _ := strconv.Atoi(r.URL.Path[1:])
		if left == 0 {
			ok(w, r)
			return
		}
		http.Redirect(w, r, "/"+strconv.Itoa(left-1), http.StatusTemporaryRedirect)
	})
	if _, err := New(allowPublic).Client().Get(server.URL + "/5"); err != nil || hops.Swap(0) != 6 {
		t.Errorf("five: %v", err)
	}
	if _, err := New(allowPublic).Client().Get(server.URL + "/6"); !errors.Is(err, ErrRedirect) || hops.Load() != 6 {
		t.Errorf("six: %v after %d requests", err, hops.Load())
	}
}

// serverPair starts a TLS server and a plain one, behind a name that the guard may dial.
func serverPair(t *testing.T, handler http.HandlerFunc) (g *Guard, secure, plain string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	z := newZone(t, map[string][][]netip.Addr{
		"example.com": {answers(inside)},
	})
	g = New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, WithResolver(z.Resolver()), WithRoots(roots))
	t.Cleanup(g.Close)
	return g, "https://example.com:" + portOf(server), "http://example.com:" + portOf(serve(t, inside, "0", handler))
}

func TestRedirectsFromHTTPSToHTTPAndToOtherProtocolsAreRefused(t *testing.T) {
	g, secure, plain := serverPair(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			ok(w, r)
			return
		}
		redirecting(w, r)
	})
	for _, status := range redirects {
		prefix := "/" + strconv.Itoa(status) + "/"
		if response, err := g.Client().Get(plain + prefix + secure + "/end"); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%d from http to https: %v", status, err)
		}
		for from, to := range map[string]string{
			"https to http":         secure + prefix + plain + "/end",
			"http to https to http": plain + prefix + secure + prefix + plain + "/end",
			"a file":                plain + prefix + "file:///etc/passwd",
			"another protocol":      plain + prefix + "gopher://example.com/",
			"a socket":              plain + prefix + "unix:///run/admin.sock",
			"a user and password":   plain + prefix + strings.Replace(plain, "http://", "http://user:pw@", 1) + "/end",
		} {
			if _, err := g.Client().Get(to); !errors.Is(err, ErrRedirect) {
				t.Errorf("%d, %s: %v", status, from, err)
			}
		}
	}
}

func TestNoSecretHeaderGoesToAnotherHost(t *testing.T) {
	const canary = "canary-7f3a"
	var leaked, seen, arrived atomic.Int64
	other := serve(t, public, "0", func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		for name, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), canary) || name == "Referer" {
				leaked.Add(1)
			}
		}
		ok(w, r)
	})
	server := serve(t, public, "0", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			for _, values := range r.Header {
				if strings.Contains(strings.Join(values, " "), canary) {
					seen.Add(1)
				}
			}
			ok(w, r)
			return
		}
		redirecting(w, r)
	})
	z := newZone(t, map[string][][]netip.Addr{"a.test": {answers(public)}, "sub.a.test": {answers(public)}, "b.test": {answers(public)}})
	g := New(allowPublic, WithResolver(z.Resolver()), WithRefusalTime(0))
	send := func(header string, status int, to string) error {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.test:"+portOf(server)+"/"+strconv.Itoa(status)+"/"+to, strings.NewReader("{}"))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("User-Agent", "sovereign")
		if header != "" {
			request.Header[header] = []string{canary}
		}
		response, err := g.Client().Do(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		return err
	}
	secrets := []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key", "x-api-key", "X-Goog-Api-Key", "Api-Key", "X-Anything-Else"}
	for _, status := range redirects {
		for _, secret := range secrets {
			for _, host := range []string{"b.test", "sub.a.test", "a.test", public} { // the same name on another port is another host
				if err := send(secret, status, "http://"+host+":"+portOf(other)); !errors.Is(err, ErrRedirect) {
					t.Errorf("%d to %s with %s: %v", status, host, secret, err)
				}
			}
			for _, to := range []string{"/end", "http://a.test:" + portOf(server) + "/end"} {
				if err := send(secret, status, to); err != nil || seen.Swap(0) != 1 {
					t.Errorf("%d on the same host with %s: %v", status, secret, err)
				}
			}
		}
		if err := send("", status, "http://b.test:"+portOf(other)); err != nil {
			t.Errorf("%d without a secret: %v", status, err)
		}
	}
	if leaked.Load() != 0 || arrived.Load() != int64(len(redirects)) {
		t.Errorf("%d secrets leaked, %d requests arrived", leaked.Load(), arrived.Load())
	}
}
