// Package e2e tests the built binary from outside: as its users use it, and as it is killed and cut off.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "sovereign/internal/app" // what is built below: without it a cached result would outlive a change
	"sovereign/internal/base/secret"
	"sovereign/internal/store/db/dbtest"
)

var binary string

func TestMain(m *testing.M) {
	if binary = os.Getenv("SOVEREIGN_TEST_BINARY"); binary != "" { // a test of this package built it
		os.Exit(m.Run())
	}
	folder, err := os.MkdirTemp("", "sovereign-e2e-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(folder, "sovereign")
	if out, err := build(binary, "../cmd/sovereign").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// build compiles a command as `make build` does, so that the packages are compiled once for both.
func build(to, from string) *exec.Cmd {
	cmd := exec.Command("go", "build", "-trimpath", "-o", to, from)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}

// limit bounds every wait. It is no promise: a test that waits that long hangs. The promises that name a time are
// measured by the drills, which make faults runs on a machine that is not busy.
const limit = 3 * time.Minute

// measured reports whether the times that are promised are measured.
func measured() bool { return os.Getenv("SOVEREIGN_DRILLS") == "full" }

// drills is how often an accident is repeated: a few times in every test run, many in the fault suite.
func drills(few, many int) int {
	if measured() {
		return many
	}
	return few
}

// An instance is one installation: a data folder, a root key and a database. An empty URL means SQLite in the folder.
type instance struct {
	data, root string
	url        secret.Text
}

func newInstance(t *testing.T, url secret.Text) instance {
	t.Helper()
	folder, err := os.MkdirTemp("", "e2e") // short: the admin socket's path has a bound
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return instance{data: folder + "/data", root: folder + "/root.key", url: url}
}

func eachEngine(t *testing.T, test func(t *testing.T, p instance)) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, _ string, url secret.Text) { test(t, newInstance(t, url)) })
}

func (p instance) flags() []string {
	flags := []string{"--data-dir", p.data, "--root-key-file", p.root}
	if !p.url.Empty() {
		flags = append(flags, "--database-url", p.url.Reveal())
	}
	return flags
}

// admin runs an admin command to its end.
func (p instance) admin(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return run(t, append(append([]string{"admin"}, p.flags()...), args...)...)
}

// mustAdmin runs an admin command that must succeed, and reads its JSON answer.
func (p instance) mustAdmin(t *testing.T, out any, args ...string) {
	t.Helper()
	stdout, stderr, code := p.admin(t, args...)
	if code != 0 {
		t.Fatalf("admin %v: exit %d: %s", args, code, stderr)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(stdout), out); err != nil {
			t.Fatalf("admin %v: %v in %q", args, err, stdout)
		}
	}
}

// read reads an admin route of the running server. Without a server it runs the admin command that shows the same.
// The tests read the wallet again and again, and a process for each time would be most of what they cost.
func (p instance) read(t *testing.T, out any, route string, command ...string) {
	t.Helper()
	client := p.socket()
	defer client.CloseIdleConnections()
	response, err := client.Get("http://admin" + route)
	if err != nil {
		p.mustAdmin(t, out, command...)
		return
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", route, response.StatusCode, text, err)
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%s: %v in %q", route, err, text)
	}
}

func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	<-startChild(t, cmd)
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// A process is a running server.
type process struct {
	*exec.Cmd
	instance
	out, log *tail
	done     chan struct{}
}

// start runs a server on a free port and does not wait for it.
func (p instance) start(t *testing.T, args ...string) *process {
	t.Helper()
	s := &process{instance: p, out: newTail(), log: newTail()}
	all := append([]string{"serve", "--listen", "127.0.0.1:0", "--operations-listen", "off", "--bootstrap"}, p.flags()...)
	s.Cmd = exec.Command(binary, append(all, args...)...)
	s.Stdout, s.Stderr = s.out, s.log
	s.done = startChild(t, s.Cmd)
	t.Cleanup(s.kill)
	return s
}

// serve runs a server and waits until it serves.
func (p instance) serve(t *testing.T, args ...string) *process {
	t.Helper()
	s := p.start(t, args...)
	s.await(t)
	return s
}

func (s *process) await(t *testing.T) {
	t.Helper()
	if s.log.find(serving, s.done) == "" {
		t.Fatalf("the server does not serve:\n%s", s.log)
	}
}

var (
	serving = regexp.MustCompile(`msg=serving address=(\S+)`)
	keyText = regexp.MustCompile(`sk_sovereign_[0-9a-z]{47}`)
)

func (s *process) address() string { return serving.FindStringSubmatch(s.log.String())[1] }

// key is the key that the first start printed; its output may come a little after the log's.
func (s *process) key() string { return s.out.find(keyText, s.done) }

func (s *process) kill() {
	_ = s.Process.Signal(syscall.SIGKILL)
	<-s.done
}

func (s *process) stop(t *testing.T) int {
	t.Helper()
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return s.ended(t)
}

// ended waits until the server has ended, and returns its exit status.
func (s *process) ended(t *testing.T) int {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(limit):
		t.Fatal("the server does not end")
	}
	return s.ProcessState.ExitCode()
}

// socket is a client of the server's admin socket.
func (p instance) socket() *http.Client {
	return &http.Client{Timeout: limit, Transport: &http.Transport{
		MaxIdleConnsPerHost: 16,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", p.data+"/admin.sock")
		},
	}}
}

func status(t *testing.T, address, key string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, address+"/v1/setup/status", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// verifyLedger fails the test unless the ledger verifies.
func (p instance) verifyLedger(t *testing.T) {
	t.Helper()
	var proof struct {
		OK      bool
		Entries int
		Sum     json.Number
	}
	p.read(t, &proof, "/admin/ledger/verification", "ledger", "verify", "--json")
	if !proof.OK || proof.Sum != "0" {
		t.Errorf("the ledger does not verify: %+v", proof)
	}
}

// verifyTrail fails the test unless the audit trail verifies.
func (p instance) verifyTrail(t *testing.T) {
	t.Helper()
	var proof struct {
		OK       bool
		Entries  int
		Problems []string
	}
	p.read(t, &proof, "/admin/audit/verification", "audit", "verify", "--json")
	if !proof.OK || proof.Entries == 0 {
		t.Errorf("the audit trail does not verify: %+v", proof)
	}
}

// A tail holds a process's output, and can be read while the process runs.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newTail() *tail { return &tail{} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// find waits for a match. It is empty when the process ends without one, or the limit is over.
func (t *tail) find(what *regexp.Regexp, done <-chan struct{}) string {
	return t.findWithin(what, done, limit)
}

func (t *tail) findWithin(what *regexp.Regexp, done <-chan struct{}, within time.Duration) string {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if found := what.FindString(t.String()); found != "" {
			return found
		}
		select {
		case <-done:
			return what.FindString(t.String())
		default:
		}
	}
	return ""
}

func post(client *http.Client, path, body string) (int, string, error) {
	response, err := client.Post("http://admin"+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// transport is the HTTP client with which the servers reach their providers. `make transports` runs the tests with the
// other one.
func transport() string { return cmp.Or(os.Getenv("SOVEREIGN_TEST_TRANSPORT"), "lean") }
