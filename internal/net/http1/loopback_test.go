package http1

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A far end is a connection as the server has it.
type originConn struct {
	net.Conn
	*bufio.Reader
	number int // which connection it is, from 1
}

func (l *originConn) Read(p []byte) (int, error) { return l.Reader.Read(p) }

// request reads one request whole; false at the end.
func (l *originConn) readRequest() (body string, ok bool) {
	r, err := http.ReadRequest(l.Reader)
	if err != nil {
		return "", false
	}
	text, err := io.ReadAll(r.Body)
	return string(text), err == nil
}

// say answers with a body of known length.
func (l *originConn) respond(body string) {
	_, _ = fmt.Fprintf(l.Conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// reset closes with what nobody has read lost, as a process that dies does.
func (l *originConn) reset() {
	if c, ok := l.Conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	_ = l.Close()
}

// A server is an origin that does what a test tells it. It closes a connection when its handler returns.
type testOrigin struct {
	url      string
	accepted atomic.Int32 // that have been taken
	trust    func(*Config)
}

// serving is an origin on loopback; secure when it has a configuration.
func newOrigin(t testing.TB, secure *tls.Config, handle func(*originConn)) *testOrigin {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &testOrigin{url: "http://" + listener.Addr().String(), trust: func(*Config) {}}
	if secure != nil {
		s.url = "https://" + listener.Addr().String()
	}
	var running sync.WaitGroup
	var mutex sync.Mutex
	open := map[net.Conn]bool{}
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mutex.Lock()
			open[conn] = true
			mutex.Unlock()
			turn := int(s.accepted.Add(1))
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				way := conn
				if secure != nil {
					way = tls.Server(conn, secure)
				}
				handle(&originConn{Conn: way, Reader: bufio.NewReader(way), number: turn})
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mutex.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		mutex.Unlock()
		running.Wait()
	})
	return s
}

// An authority signs certificates for servers.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	text, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, key}
}

// certify is a server's configuration for 127.0.0.1, or for what change makes of the certificate.
func (a *authority) serverConfig(t testing.TB, change ...func(*x509.Certificate)) *tls.Config {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, f := range change {
		f(template)
	}
	text, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{text}, PrivateKey: a.key}}}
}

// trusted makes a client trust an authority.
func (a *authority) trust(c *Config) {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	c.TLS = &tls.Config{RootCAs: pool}
}

// plainly and securely runs a test over both kinds of connection.
func eachTransport(t *testing.T, f func(t *testing.T, secure *tls.Config, trust func(*Config))) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { f(t, nil, func(*Config) {}) })
	t.Run("TLS", func(t *testing.T) {
		a := newAuthority(t)
		f(t, a.serverConfig(t), a.trust)
	})
}

// ask makes one exchange and reads the body to its end.
func roundTrip(ctx context.Context, c *Client, r *Request) (string, error) {
	response, err := c.Do(ctx, r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// post is a request with a body, in two parts.
func post(body string) *Request {
	half := len(body) / 2
	return &Request{Method: "POST", Target: "/v1", Fields: []Field{{"Content-Type", "text/plain"}}, Body: [][]byte{[]byte(body[:half]), []byte(body[half:])}}
}
