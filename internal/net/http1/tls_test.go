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
func echo(l *farEnd) {
	for body, ok := l.request(); ok; body, ok = l.request() {
		l.say(body)
	}
}

func TestACertificateThatIsNotTheOriginsIsRefused(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	named := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{name} }
	}
	for name, test := range map[string]struct {
		server *tls.Config
		trust  func(*Config)
		good   bool
	}{
		"right":          {ours.certify(t), ours.trusted, true},
		"wrong name":     {ours.certify(t, named("other.test")), ours.trusted, false},
		"unknown signer": {others.certify(t), ours.trusted, false},
		"nobody trusted": {ours.certify(t), func(*Config) {}, false},
		"expired":        {ours.certify(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), ours.trusted, false},
		"not yet":        {ours.certify(t, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), ours.trusted, false},
		"not a server's": {ours.certify(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), ours.trusted, false},
		"another name that was asked for": {ours.certify(t, named("other.test")), func(c *Config) {
			ours.trusted(c)
			c.TLS.ServerName = "other.test"
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var read atomic.Int32
			gone := make(chan bool)
			s := serving(t, test.server, func(l *farEnd) {
				defer close(gone)
				if body, ok := l.request(); ok {
					read.Add(1)
					l.say(body)
					return
				}
				_, _ = io.Copy(io.Discard, l.Conn.(*tls.Conn).NetConn())
			})
			got, err := ask(context.Background(), reaching(t, s.base, test.trust), post("secret"))
			if (err == nil && got == "secret") != test.good || (read.Load() > 0) != test.good {
				t.Errorf("%q %v, %d requests", got, err, read.Load())
			}
			<-gone // it is not left open
		})
	}
}

// A server that would rather speak HTTP/2 is not asked to, and one that speaks nothing else is no origin of ours.
func TestNothingButHTTP1IsOffered(t *testing.T) {
	a := newAuthority(t)
	offered := make(chan []string, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.TLS = a.certify(t)
	s.TLS.NextProtos = []string{"h2", "http/1.1"}
	s.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		offered <- hello.SupportedProtos
		return nil, nil //nolint:nilnil // that is how the configuration is left as it is
	}
	s.StartTLS()
	defer s.Close()
	trust := func(c *Config) {
		a.trusted(c)
		c.TLS.NextProtos = []string{"h2", "http/1.1"}
	}
	if got, err := ask(context.Background(), reaching(t, s.URL, trust), get()); got != "HTTP/1.1" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if all := <-offered; len(all) != 1 || all[0] != "http/1.1" {
		t.Errorf("offered %q", all)
	}

	only := a.certify(t)
	only.NextProtos = []string{"another/1"}
	if got, err := ask(context.Background(), reaching(t, serving(t, only, echo).base, a.trusted), get()); err == nil {
		t.Errorf("%q from a server that does not speak it", got)
	}
}

func TestLargeBodiesPassBothWays(t *testing.T) {
	plainlyAndSecurely(t, func(t *testing.T, secure *tls.Config, trust func(*Config)) {
		c := reaching(t, serving(t, secure, echo).base, trust)
		sum := sha256.Sum256(nil)
		for _, size := range []int{1, together - 150, together, together + 1, 1 << 16, 3<<20 + 17} {
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
				got, err := ask(context.Background(), c, &Request{Method: "POST", Target: "/", Body: parts})
				if got != want || err != nil {
					t.Fatalf("%d bytes in %s: %d bytes, %v", size, name, len(got), err)
				}
				for i := range parts {
					if !bytes.Equal(parts[i], copies[i]) {
						t.Fatal("sending changed the body") // it may be sent to another provider
					}
				}
			}
		}
	})
}

func TestAnotherConnectionResumesTheSession(t *testing.T) {
	a := newAuthority(t)
	var resumed, fresh atomic.Int32
	s := serving(t, a.certify(t), func(l *farEnd) {
		body, _ := l.request()
		if l.Conn.(*tls.Conn).ConnectionState().DidResume {
			resumed.Add(1)
		} else {
			fresh.Add(1)
		}
		l.say(body)
	})
	c := reaching(t, s.base, a.trusted, func(c *Config) { c.Idle = 0 })
	for range 4 {
		if got, err := ask(context.Background(), c, post("x")); got != "x" || err != nil {
			t.Fatal(got, err)
		}
	}
	if fresh.Load() != 1 || resumed.Load() != 3 {
		t.Errorf("%d full handshakes, %d resumed", fresh.Load(), resumed.Load())
	}
}

// Over TLS whoever ends a connection says farewell. Without it anybody on the way may have cut the answer, and one that
// ends with its connection would look whole.
func TestAnAnswerCutWithoutFarewellIsBroken(t *testing.T) {
	a := newAuthority(t)
	for name, test := range map[string]struct {
		answer   string
		farewell bool
		whole    bool
	}{
		"by its end":                 {"HTTP/1.1 200 OK\r\n\r\nhello", true, true},
		"by its end, cut":            {"HTTP/1.1 200 OK\r\n\r\nhello", false, false},
		"by its end, cut at once":    {"HTTP/1.1 200 OK\r\n\r\n", false, false},
		"by its length, cut":         {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", false, false},
		"by its length, farewell":    {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", true, false},
		"by its length and whole":    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false, true},
		"by its chunks, cut":         {chunked + "5\r\nhello\r\n", false, false},
		"by its chunks and whole":    {chunked + "5\r\nhello\r\n0\r\n\r\n", false, true},
		"in the middle of its head":  {"HTTP/1.1 200 OK\r\nConten", false, false},
		"before anything of it came": {"", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, a.certify(t), func(l *farEnd) {
				_, _ = l.request()
				_, _ = io.WriteString(l.Conn, test.answer)
				if test.farewell {
					_ = l.Close()
				} else {
					_ = l.Conn.(*tls.Conn).NetConn().Close()
				}
			})
			got, err := ask(context.Background(), reaching(t, s.base, a.trusted), get())
			if test.whole != (err == nil) || !test.whole && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q %v", got, err)
			}
			if test.whole && got != "hello" {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestOtherProtocolsAreNoAnswers(t *testing.T) {
	a := newAuthority(t)
	t.Run("HTTP on the port of HTTPS", func(t *testing.T) {
		s := serving(t, nil, func(l *farEnd) { _, _ = io.WriteString(l.Conn, "HTTP/1.1 400 Bad Request\r\n\r\n") })
		_, err := ask(context.Background(), reaching(t, strings.Replace(s.base, "http:", "https:", 1), a.trusted), get())
		var header tls.RecordHeaderError
		if !errors.As(err, &header) {
			t.Error(err)
		}
	})
	t.Run("HTTPS on the port of HTTP", func(t *testing.T) {
		s := serving(t, a.certify(t), echo)
		if _, err := ask(context.Background(), reaching(t, strings.Replace(s.base, "https:", "http:", 1)), get()); err == nil {
			t.Error("no error")
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = listener.Close()
		if _, err := ask(context.Background(), reaching(t, "http://"+listener.Addr().String()), get()); err == nil {
			t.Error("no error")
		}
	})
}
