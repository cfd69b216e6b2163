package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/secret"
)

// slow sends a request to the admin socket and leaves its body unfinished. It returns when the server waits for the
// body.
func slow(t *testing.T, p instance, body string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", p.data+"/admin.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /admin/keys HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
	if err != nil {
		t.Fatal(err)
	}
	const asked = "HTTP/1.1 100 Continue\r\n\r\n" // which the server sends when the request runs and waits for its body
	head := make([]byte, len(asked))
	if _, err := io.ReadFull(conn, head); err != nil || string(head) != asked {
		t.Fatalf("%q %v", head, err)
	}
	if _, err := io.WriteString(conn, body[:10]); err != nil {
		t.Fatal(err)
	}
	return conn
}

const newKey = `{"workspace":"default","email":"owner@localhost"}`

func TestRunningRequestsFinishWithinTheDrain(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	operations := freeAddress(t)
	s := p.serve(t, "--operations-listen", operations)
	ready := func() int {
		response, err := http.Get("http://" + operations + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if got := ready(); got != http.StatusOK {
		t.Errorf("ready: %d", got)
	}
	conn := slow(t, p, newKey)
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a stopping server says that it is not ready", func() bool { return ready() == http.StatusServiceUnavailable })
	if err := s.Process.Signal(syscall.SIGHUP); err != nil { // a reload that comes too late changes nothing
		t.Fatal(err)
	}
	eventually(t, "a stopping server takes no new connections", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if _, err := io.WriteString(conn, newKey[10:]); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("the running request: %v %v", response, err)
	}
	_ = response.Body.Close()
	<-s.done
	if code := s.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.log)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// A second signal ends the drain. One that follows the first within a second, as from a shell that signals the process
// group too, does not count. Only the drill tests that second, since a busy machine may take longer between two
// signals.
func TestDrillASecondSignalEndsTheDrain(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	s := p.serve(t, "--limits-drain", "10m")
	slow(t, p, newKey)
	signal := func() {
		if err := s.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	signal()
	s.expect(t, "msg=stopping")
	if measured() {
		signal()
	}
	select {
	case <-s.done:
		t.Fatalf("ended by a repetition of the first signal\n%s", s.log)
	case <-time.After(1200 * time.Millisecond):
	}
	signal()
	<-s.done
	if s.ProcessState.ExitCode() != 1 {
		t.Errorf("exit %d", s.ProcessState.ExitCode())
	}
}

func TestDrillTheDrainIsBounded(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	s := p.serve(t, "--limits-drain", "300ms")
	slow(t, p, newKey)
	began := time.Now()
	if code := s.stop(t); code != 0 || measured() && time.Since(began) > 5*time.Second {
		t.Errorf("exit %d after %v", code, time.Since(began))
	}
	s.expect(t, "requests were cut off after the drain")
}

// A parent holds the listening socket, as systemd does, and restarts the server under load. New connections wait in the
// kernel for the next process, so that none is refused. An open connection may bring one more request within a second,
// which is answered with Connection: close. One that stays idle for longer is closed. A request that crosses with that
// close is lost, as at every HTTP server; clients send it again on a new connection, and so does this test. The drill
// allows that only after an idle second, which a busy machine cannot promise.
func TestDrillRestartWithAnInheritedSocketFailsNoRequest(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close() // the descriptor in file keeps the socket open
	defer func() { _ = file.Close() }()
	address := "http://" + listener.Addr().String()
	inherit := func() *process {
		s := &process{instance: p, out: newTail(), log: newTail()}
		line := `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve --bootstrap --listen 127.0.0.1:1 --operations-listen off "$@"`
		s.Cmd = exec.Command("sh", append([]string{"-c", line, binary}, p.flags()...)...)
		s.Stdout, s.Stderr, s.ExtraFiles = s.out, s.log, []*os.File{file}
		s.done = startChild(t, s.Cmd)
		t.Cleanup(s.kill)
		s.await(t)
		return s
	}
	s := inherit()
	key := s.key()
	ctx, cancel := context.WithCancel(t.Context())
	var good, bad, crossed atomic.Int64
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			// Half keep their connections, and send what Go's client does not repeat by itself when one breaks.
			client, method, want := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, http.MethodGet, http.StatusOK
			if i%2 == 0 {
				client, method, want = &http.Client{Transport: &http.Transport{}}, http.MethodPost, http.StatusMethodNotAllowed
			}
			answered := time.Now()
			for ctx.Err() == nil {
				var reused, began bool
				tracing := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
					GotConn:              func(conn httptrace.GotConnInfo) { reused = conn.Reused },
					GotFirstResponseByte: func() { began = true },
				})
				request, _ := http.NewRequestWithContext(tracing, method, address+"/v1/setup/status", http.NoBody)
				request.Header.Set("Authorization", "Bearer "+key)
				idle := time.Since(answered)
				response, err := client.Do(request)
				if err != nil && reused && !began && (!measured() || idle > time.Second) {
					crossed.Add(1)
					request, _ = http.NewRequestWithContext(context.Background(), method, address+"/v1/setup/status", http.NoBody)
					request.Header.Set("Authorization", "Bearer "+key)
					request.Close = true
					client.CloseIdleConnections()
					response, err = client.Do(request)
				}
				answered = time.Now()
				if err != nil {
					bad.Add(1)
					t.Errorf("after %v on a connection that was used before: %t: %v", idle, reused, err)
					continue
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode != want {
					bad.Add(1)
					t.Error(response.Status)
				}
				good.Add(1)
			}
		})
	}
	for range drills(3, 20) {
		time.Sleep(150 * time.Millisecond)
		if code := s.stop(t); code != 0 {
			t.Errorf("exit %d\n%s", code, s.log)
		}
		s = inherit()
	}
	time.Sleep(100 * time.Millisecond)
	cancel()
	group.Wait()
	t.Logf("%d requests answered over %d restarts, %d failed, %d crossed with a close", good.Load(), drills(3, 20), bad.Load(), crossed.Load())
	if good.Load() < 100 || crossed.Load() > good.Load()/20 {
		t.Errorf("%d of %d requests crossed with a close", crossed.Load(), good.Load())
	}
}

func TestAStreamFinishesWithinTheDrainOrIsToldOfItsEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		model, drain string
		done         bool
	}{
		"finishes":    {model: "mock?chunks=60&chunk_delay=20ms&in=10&out=60", drain: "2m", done: true},
		"is cut off":  {model: "mock?chunks=2000&chunk_delay=20ms&in=10&out=2000", drain: "500ms"},
		"is quiet":    {model: "mock?chunks=9&hang_after=3", drain: "500ms"},
		"never began": {model: "mock?hang", drain: "500ms"},
	} {
		t.Run(name, func(t *testing.T) {
			provider := startProvider(t)
			p := newInstance(t, secret.Text{})
			config := mockConfig(t, provider, map[string]string{"chat": test.model})
			s := p.serve(t, "--config", config, "--limits-drain", test.drain)
			c := s.caller()
			got, begun := make(chan *answer, 1), make(chan struct{})
			var begin sync.Once
			go func() {
				a, _ := c.post(context.Background(), "/v1/chat/completions", chat("mock/chat", "drained", `"stream":true`), func([]string) bool {
					begin.Do(func() { close(begun) })
					return false
				})
				got <- a
			}()
			eventually(t, "it runs", func() bool { return len(seenBy(t, provider, "drained")) == 1 })
			if name != "never began" {
				<-begun
			}
			if code := s.stop(t); code != 0 {
				t.Errorf("exit %d", code)
			}
			a := <-got
			switch {
			case name == "never began":
				if a == nil || a.status != 503 || a.code() != "unavailable" {
					t.Errorf("%+v", a)
				}
			case a == nil || a.status != 200 || a.done != test.done:
				t.Fatalf("%+v", a)
			case !test.done:
				if end := a.events[len(a.events)-1]; !strings.Contains(end, `"code":"unavailable"`) {
					t.Errorf("the stream ends with %s", end)
				}
			}
			rows := p.usage(t, "default") // without a server
			want := map[string]string{"finishes": "finished", "is cut off": "died", "is quiet": "died"}[name]
			if got := rows[a.id()].Outcome; got != want {
				t.Errorf("charged as %q, want %q", got, want)
			}
			p.verifyLedger(t)
		})
	}
}
