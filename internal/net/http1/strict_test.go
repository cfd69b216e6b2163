package http1

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/net/http1/http1test"
)

// vectorCaller fills in the vectors for the servers under test.
var vectorCaller = http1test.Caller{
	Target: testTargets[0], Fields: "Authorization: Bearer one\r\n", Body: `{"open":1}`, Hidden: `{"hidden":22}`,
}

// lastBody is the body of the request that ends a connection which was not refused.
const lastBody = `{"last":333}`

func vectors(t testing.TB) []http1test.Vector {
	t.Helper()
	all, err := vectorCaller.Vectors()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 150 {
		t.Fatalf("%d vectors", len(all))
	}
	return all
}

// A countingServer records the bodies that reach its handler whole, by connection.
type countingServer struct {
	mutex  sync.Mutex
	bodies map[string][]string
}

func (s *countingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	if r.Method == http.MethodPost && r.URL.Path == vectorCaller.Target {
		s.mutex.Lock()
		s.bodies[r.RemoteAddr] = append(s.bodies[r.RemoteAddr], string(body))
		s.mutex.Unlock()
	}
	_, _ = io.WriteString(w, "ok")
}

// take returns the bodies of a connection and forgets them: another one may have its port later.
func (s *countingServer) take(conn net.Conn) []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	from := conn.LocalAddr().String()
	bodies := s.bodies[from]
	delete(s.bodies, from)
	return bodies
}

// startLanes starts a handler behind the fast lane, behind net/http's server alone, and behind that with TLS. It
// returns a function for each that opens a connection.
func startLanes(t *testing.T, h http.Handler) map[string]func() (net.Conn, error) {
	t.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	netHTTP := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Minute, ReadTimeout: 5 * time.Minute}
	t.Cleanup(func() { _ = netHTTP.Close() })
	fast, standard, secure := listen(), listen(), listen()
	rest := NewHandover(fast.Addr())
	lane := &Server{
		Handler: h, Targets: testTargets, Fallback: rest.Deliver,
		HeaderTimeout: 5 * time.Minute, BodyTimeout: 5 * time.Minute, IdleTimeout: 5 * time.Minute,
	}
	t.Cleanup(func() { _ = lane.Close() })
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	certificates.Close()
	shaken := NewStrictTLS(secure, &tls.Config{Certificates: certificates.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}, time.Minute)
	for _, serve := range []func(){
		func() { _ = lane.Serve(fast) }, func() { _ = netHTTP.Serve(rest) }, func() { _ = netHTTP.Serve(Strict(standard)) },
		func() { _ = shaken.Serve() }, func() { _ = netHTTP.Serve(shaken) },
	} {
		go serve()
	}
	dial := func(to net.Listener) func() (net.Conn, error) {
		return func() (net.Conn, error) { return net.Dial("tcp", to.Addr().String()) }
	}
	return map[string]func() (net.Conn, error){
		"fast lane": dial(fast), "net/http": dial(standard),
		"TLS": func() (net.Conn, error) {
			return tls.Dial("tcp", secure.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		},
	}
}

// One request is one request, on every lane: what another reader could see as other requests is refused, and the
// connection is closed.
func TestVectorsAreServedOrRefusedOnEveryLane(t *testing.T) {
	server := &countingServer{bodies: map[string][]string{}}
	for name, dial := range startLanes(t, server) {
		t.Run(name, func(t *testing.T) {
			for _, v := range vectors(t) {
				conn, err := dial()
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
				last := vectorCaller.Post(lastBody, "Connection: close\r\n")
				_, _ = io.WriteString(conn, v.Bytes+last) // it fails when the server has closed already
				answers, err := io.ReadAll(conn)
				if len(answers) == 0 && err != nil {
					t.Errorf("%s: %v", v.Name, err)
				}
				want := strings.Repeat(vectorCaller.Body+"\n", v.Served)
				if !v.Refused {
					want += lastBody + "\n"
				}
				if got := strings.Join(append(server.take(conn), ""), "\n"); got != want {
					t.Errorf("%s: these requests were served:\n%swant\n%s", v.Name, got, want)
				}
				if refusals := bytes.Count(answers, []byte("HTTP/1.1 400 ")); v.Refused != (refusals == 1) {
					t.Errorf("%s: %d refusals in\n%s", v.Name, refusals, answers)
				}
				_ = conn.Close()
			}
		})
	}
}

// Where the bytes are cut decides nothing.
func TestTheCheckerDecidesTheSameByteByByte(t *testing.T) {
	for _, v := range vectors(t) {
		wire := []byte(v.Bytes + vectorCaller.Post(lastBody))
		var whole, single requestChecker
		_, wholeErr := whole.check(wire)
		var singleErr error
		for i := 0; i < len(wire) && singleErr == nil; i++ {
			_, singleErr = single.check(wire[i : i+1])
		}
		if (wholeErr != nil) != v.Refused || (singleErr != nil) != v.Refused {
			t.Errorf("%s: %v, byte by byte %v", v.Name, wholeErr, singleErr)
		}
	}
}
