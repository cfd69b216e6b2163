package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db/dbtest"
)

// nodes are servers that share one PostgreSQL database and a root key. Each has a data folder, an address that it
// keeps, and a link to the database.
type nodes struct {
	all      []*node
	provider string
	key      string  // of the workspace that the first start made
	books    *sql.DB // past the links
}

// A node is one of them: an instance whose database is behind its link.
type node struct {
	instance
	name    string
	link    *link
	listen  string
	program string
	args    []string

	mu     sync.Mutex
	server *process
	past   []*process // that have ended
}

// startNodes starts so many servers on an empty database, with models at a mock provider.
func startNodes(t *testing.T, n int, models map[string]string, args ...string) *nodes {
	t.Helper()
	provider := startProvider(t)
	f := newNodes(t, n, append([]string{"--config", mockConfig(t, provider, models)}, args...)...)
	f.provider = provider
	f.all[0].start(t)
	f.all[0].ready(t)
	f.key = f.all[0].server.key()
	for _, one := range f.all[1:] {
		one.start(t)
	}
	for _, one := range f.all {
		one.ready(t)
	}
	return f
}

// newNodes prepares servers that do not run yet.
func newNodes(t *testing.T, n int, args ...string) *nodes {
	t.Helper()
	database := dbtest.Postgres(t)
	at, err := url.Parse(database.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	f := &nodes{}
	if f.books, err = sql.Open("pgx", database.Reveal()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.books.Close() })
	root := newInstance(t, secret.Text{}).root
	for i := range n {
		l, through := newLink(t, at.Host), *at
		through.Host = l.address()
		one := &node{
			instance: newInstance(t, secret.New(through.String())), name: fmt.Sprintf("node %d", i+1), link: l,
			listen: lastingAddress(t), program: binary, args: args,
		}
		one.root = root
		f.all = append(f.all, one)
	}
	return f
}

// lastingAddress returns a free address whose port no outgoing connection gets while its server is down.
func lastingAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 12_000+rand.N(18_000))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

// start starts the node's server and does not wait for it.
func (n *node) start(t *testing.T) {
	t.Helper()
	s := &process{instance: n.instance, out: newTail(), log: newTail()}
	args := append([]string{"serve", "--listen", n.listen, "--operations-listen", "off", "--bootstrap"}, n.flags()...)
	s.Cmd = exec.Command(n.program, append(args, n.args...)...)
	s.Stdout, s.Stderr = s.out, s.log
	s.done = startChild(t, s.Cmd)
	t.Cleanup(s.kill)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server != nil {
		n.past = append(n.past, n.server)
	}
	n.server = s
}

// ready waits until the node serves.
func (n *node) ready(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		code, err := n.readiness()
		if code == http.StatusOK {
			return
		}
		select {
		case <-n.server.done:
			t.Errorf("%s has ended:\n%s", n.name, n.server.log)
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Errorf("%s does not serve within %s: %d %v\n%s", n.name, limit, code, err, n.server.log)
			return
		}
	}
}

// probe asks for readiness on a connection of its own, which a paused server does not answer.
var probe = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (n *node) readiness() (int, error) {
	response, err := probe.Get("http://" + n.listen + "/readyz")
	if err != nil {
		return 0, err
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}

// caller is a caller of this node, with connections of its own that it keeps.
func (n *node) caller(key string) *caller {
	return &caller{address: "http://" + n.listen, key: key, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
}

func (n *node) kill() { n.server.kill() }

// restart starts the server again in the same folder, once the last has ended.
func (n *node) restart(t *testing.T) {
	t.Helper()
	n.start(t)
	n.ready(t)
}

// stop stops the server cleanly.
func (n *node) stop(t *testing.T) {
	t.Helper()
	if code := n.server.stop(t); code != 0 {
		t.Errorf("%s: exit %d\n%s", n.name, code, n.server.log)
	}
}

func (n *node) pause()  { _ = n.server.Process.Signal(syscall.SIGSTOP) }
func (n *node) resume() { _ = n.server.Process.Signal(syscall.SIGCONT) }

// logs are the last lines of all the node's servers.
func (n *node) logs() string {
	var text strings.Builder
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range append(n.past, n.server) {
		if s != nil {
			all := s.log.String()
			_, _ = fmt.Fprintf(&text, "--- %s, process %d\n%s", n.name, s.Process.Pid, all[max(0, len(all)-8000):])
		}
	}
	return text.String()
}

// logsWhenFailed shows what the servers said, if the test failed.
func (f *nodes) logsWhenFailed(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			for _, one := range f.all {
				t.Log(one.logs())
			}
		}
	})
}

// complaints are lines that no server may write, whatever happens to it.
var complaints = regexp.MustCompile(`(?m)^.*(panic|DATA RACE|invariant|does not balance).*$`)

// uncomplaining fails the test if a server wrote such a line.
func (f *nodes) uncomplaining(t *testing.T) {
	t.Helper()
	for _, one := range f.all {
		for _, s := range append(one.past, one.server) {
			if line := complaints.FindString(s.log.String()); line != "" {
				t.Errorf("%s: %s", one.name, line)
			}
		}
	}
}

// number reads one number from the database.
func (f *nodes) number(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	if err := f.books.QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
		t.Errorf("%s: %v", query, err)
	}
	return n
}

// heal undoes what was done to the links and to processes that are paused.
func (f *nodes) heal() {
	for _, one := range f.all {
		one.link.mend()
		one.resume()
	}
}

// stop stops all servers cleanly, at once.
func (f *nodes) stop(t *testing.T) {
	t.Helper()
	var group sync.WaitGroup
	for _, one := range f.all {
		group.Go(func() { one.stop(t) })
	}
	group.Wait()
}
