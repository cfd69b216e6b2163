package http1

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// echo answers every request with its body.
func echo(oc *originConn) {
	for body, ok := oc.readRequest(); ok; body, ok = oc.readRequest() {
		oc.respond(body)
	}
}

func TestCertificatesAreVerified(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	named := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{name} }
	}
	for name, test := range map[string]struct {
		server *tls.Config
		trust  func(*Config)
		good   bool
	}{
		"right":          {ours.serverConfig(t), ours.trust, true},
		"wrong name":     {ours.serverConfig(t, named("other.test")), ours.trust, false},
		"unknown signer": {others.serverConfig(t), ours.trust, false},
		"no authority":   {ours.serverConfig(t), func(*Config) {}, false},
		"expired":        {ours.serverConfig(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), ours.trust, false},
		"not yet":        {ours.serverConfig(t, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), ours.trust, false},
		"not a server's": {ours.serverConfig(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), ours.trust, false},
		"another name that was asked for": {ours.serverConfig(t, named("other.test")), func(c *Config) {
			ours.trust(c)
			c.TLS.ServerName = "other.test"
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var read atomic.Int32
			closed := make(chan bool)
			s := newOrigin(t, test.server, func(oc *originConn) {
				defer close(closed)
				if body, ok := oc.readRequest(); ok {
					read.Add(1)
					oc.respond(body)
					return
				}
				_, _ = io.Copy(io.Discard, oc.Conn.(*tls.Conn).NetConn())
			})
			got, err := roundTrip(context.Background(), newClient(t, s.url, test.trust), post("secret"))
			if (err == nil && got == "secret") != test.good || (read.Load() > 0) != test.good {
				t.Errorf("%q %v, %d requests", got, err, read.Load())
			}
			<-closed // it is not left open
		})
	}
}

// The client offers HTTP/1.1 alone, to servers that prefer HTTP/2 too. A server that speaks another protocol only is
// refused.
func TestOnlyHTTP1IsOffered(t *testing.T) {
	a := newAuthority(t)
	offered := make(chan []string, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.TLS = a.serverConfig(t)
	s.TLS.NextProtos = []string{"h2", "http/1.1"}
	s.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		offered <- hello.SupportedProtos
		return nil, nil //nolint:nilnil // that is how the configuration is left as it is
	}
	s.StartTLS()
	defer s.Close()
	trust := func(c *Config) {
		a.trust(c)
		c.TLS.NextProtos = []string{"h2", "http/1.1"}
	}
	if got, err := roundTrip(context.Background(), newClient(t, s.URL, trust), getRoot()); got != "HTTP/1.1" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if all := <-offered; len(all) != 1 || all[0] != "http/1.1" {
		t.Errorf("offered %q", all)
	}

	only := a.serverConfig(t)
	only.NextProtos = []string{"another/1"}
	if got, err := roundTrip(context.Background(), newClient(t, newOrigin(t, only, echo).url, a.trust), getRoot()); err == nil {
		t.Errorf("%q from a server that does not speak it", got)
	}
}

func TestLargeBodiesAreSentAndReceived(t *testing.T) {
	eachTransport(t, func(t *testing.T, secure *tls.Config, trust func(*Config)) {
		c := newClient(t, newOrigin(t, secure, echo).url, trust)
		sum := sha256.Sum256(nil)
		for _, size := range []int{1, maxCoalesced - 150, maxCoalesced, maxCoalesced + 1, 1 << 16, 3<<20 + 17} {
			var body bytes.Buffer
			for body.Len() < size {
				sum = sha256.Sum256(sum[:])
				body.Write(sum[:])
			}
			want := body.String()[:size]
			for name, parts := range map[string][][]byte{
				"one":  {[]byte(want)},
				"many": {nil, []byte(want[:size/3]), {}, []byte(want[size/3 : size/2]), []byte(want[size/2:]), nil},
			} {
				copies := make([][]byte, len(parts))
				copy(copies, parts)
				got, err := roundTrip(context.Background(), c, &Request{Method: "POST", Target: "/", Body: parts})
				if got != want || err != nil {
					t.Fatalf("%d bytes in %s: %d bytes, %v", size, name, len(got), err)
				}
				for i := range parts {
					if !bytes.Equal(parts[i], copies[i]) {
						t.Fatal("sending changed the body") // a retry may send it to another provider
					}
				}
			}
		}
	})
}

func TestANewConnectionResumesTheTLSSession(t *testing.T) {
	a := newAuthority(t)
	var resumed, fresh atomic.Int32
	s := newOrigin(t, a.serverConfig(t), func(oc *originConn) {
		body, _ := oc.readRequest()
		if oc.Conn.(*tls.Conn).ConnectionState().DidResume {
			resumed.Add(1)
		} else {
			fresh.Add(1)
		}
		oc.respond(body)
	})
	c := newClient(t, s.url, a.trust, func(c *Config) { c.Idle = 0 })
	for range 4 {
		if got, err := roundTrip(context.Background(), c, post("x")); got != "x" || err != nil {
			t.Fatal(got, err)
		}
	}
	if fresh.Load() != 1 || resumed.Load() != 3 {
		t.Errorf("%d full handshakes, %d resumed", fresh.Load(), resumed.Load())
	}
}

// TLS ends a connection with a close_notify. Without one, the response may have been truncated on the network path, and
// one that ends with its connection would look whole.
func TestAResponseTruncatedWithoutCloseNotifyIsAnError(t *testing.T) {
	a := newAuthority(t)
	for name, test := range map[string]struct {
		answer string
		notify bool // the server sends a close_notify
		whole  bool
	}{
		"by its end":                 {"HTTP/1.1 200 OK\r\n\r\nhello", true, true},
		"by its end, cut":            {"HTTP/1.1 200 OK\r\n\r\nhello", false, false},
		"by its end, cut at once":    {"HTTP/1.1 200 OK\r\n\r\n", false, false},
		"by its length, cut":         {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", false, false},
		"by its length, notified":    {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", true, false},
		"by its length and whole":    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false, true},
		"by its chunks, cut":         {chunked + "5\r\nhello\r\n", false, false},
		"by its chunks and whole":    {chunked + "5\r\nhello\r\n0\r\n\r\n", false, true},
		"in the middle of its head":  {"HTTP/1.1 200 OK\r\nConten", false, false},
		"before anything of it came": {"", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOrigin(t, a.serverConfig(t), func(oc *originConn) {
				_, _ = oc.readRequest()
				_, _ = io.WriteString(oc.Conn, test.answer)
				if test.notify {
					_ = oc.Close()
				} else {
					_ = oc.Conn.(*tls.Conn).NetConn().Close()
				}
			})
			got, err := roundTrip(context.Background(), newClient(t, s.url, a.trust), getRoot())
			if test.whole != (err == nil) || !test.whole && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q %v", got, err)
			}
			if test.whole && got != "hello" {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestOtherProtocolsAreErrors(t *testing.T) {
	a := newAuthority(t)
	t.Run("HTTP on the port of HTTPS", func(t *testing.T) {
		s := newOrigin(t, nil, func(oc *originConn) { _, _ = io.WriteString(oc.Conn, "HTTP/1.1 400 Bad Request\r\n\r\n") })
		_, err := roundTrip(context.Background(), newClient(t, strings.Replace(s.url, "http:", "https:", 1), a.trust), getRoot())
		var header tls.RecordHeaderError
		if !errors.As(err, &header) {
			t.Error(err)
		}
	})
	t.Run("HTTPS on the port of HTTP", func(t *testing.T) {
		s := newOrigin(t, a.serverConfig(t), echo)
		if _, err := roundTrip(context.Background(), newClient(t, strings.Replace(s.url, "https:", "http:", 1)), getRoot()); err == nil {
			t.Error("no error")
		}
	})
	t.Run("no listener", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = listener.Close()
		if _, err := roundTrip(context.Background(), newClient(t, "http://"+listener.Addr().String()), getRoot()); err == nil {
			t.Error("no error")
		}
	})
}
