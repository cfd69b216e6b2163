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

// An originConn is the server's end of a connection.
type originConn struct {
	net.Conn
	*bufio.Reader
	number int // of the connection, from 1
}

func (oc *originConn) Read(p []byte) (int, error) { return oc.Reader.Read(p) }

// readRequest reads a request and returns its body; ok is false at the end of the connection.
func (oc *originConn) readRequest() (body string, ok bool) {
	r, err := http.ReadRequest(oc.Reader)
	if err != nil {
		return "", false
	}
	text, err := io.ReadAll(r.Body)
	return string(text), err == nil
}

// respond answers with a body of known length.
func (oc *originConn) respond(body string) {
	_, _ = fmt.Fprintf(oc.Conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// reset closes the connection with a reset, as a dying process does.
func (oc *originConn) reset() {
	if c, ok := oc.Conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	_ = oc.Close()
}

// A testOrigin is a server whose connections are handled by a function of the test. It closes a connection when that
// returns.
type testOrigin struct {
	url      string
	accepted atomic.Int32 // connections
	trust    func(*Config)
}

// newOrigin starts an origin on the loopback, with TLS if secure is set.
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
			number := int(s.accepted.Add(1))
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				stream := conn
				if secure != nil {
					stream = tls.Server(conn, secure)
				}
				handle(&originConn{Conn: stream, Reader: bufio.NewReader(stream), number: number})
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

// serverConfig returns a server's configuration, with a certificate for 127.0.0.1 that change may alter.
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

// trust makes a client trust the authority.
func (a *authority) trust(c *Config) {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	c.TLS = &tls.Config{RootCAs: pool}
}

// eachTransport runs a test over TCP and over TLS.
func eachTransport(t *testing.T, f func(t *testing.T, secure *tls.Config, trust func(*Config))) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { f(t, nil, func(*Config) {}) })
	t.Run("TLS", func(t *testing.T) {
		a := newAuthority(t)
		f(t, a.serverConfig(t), a.trust)
	})
}

// roundTrip makes one exchange and reads the body to its end.
func roundTrip(ctx context.Context, c *Client, r *Request) (string, error) {
	response, err := c.Do(ctx, r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// post returns a request with a body in two parts.
func post(body string) *Request {
	half := len(body) / 2
	return &Request{Method: "POST", Target: "/v1", Fields: []Field{{"Content-Type", "text/plain"}}, Body: [][]byte{[]byte(body[:half]), []byte(body[half:])}}
}
