package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// front starts nginx with the configuration of deploy/compose before the nodes, and returns its address.
func (f *nodes) front(t *testing.T) string {
	t.Helper()
	folder, address, log := t.TempDir(), freeAddress(t), newTail()
	copyFile(t, "../deploy/compose/nginx/nginx.conf", filepath.Join(folder, "nginx.conf"))
	servers, err := os.ReadFile("../deploy/compose/nginx/servers.conf")
	if err != nil {
		t.Fatal(err)
	}
	here := string(servers)
	for i, one := range f.all {
		here = strings.Replace(here, fmt.Sprintf("sovereign-%d:8080", i+1), one.listen, 1)
	}
	writeFile(t, filepath.Join(folder, "servers.conf"), here)
	writeFile(t, filepath.Join(folder, "listen.conf"), "listen "+address+";\n")
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatal("nginx is missing: scripts/setup test installs it")
	}
	cmd := exec.Command(program, "-p", folder, "-c", "nginx.conf", "-g", "daemon off; pid "+folder+"/pid;")
	cmd.Stdout, cmd.Stderr = log, log
	done := startGroup(t, cmd)
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if text := log.String(); t.Failed() {
			t.Logf("nginx:\n%s", text[max(0, len(text)-8000):])
		}
	})
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return "http://" + address
		}
		select {
		case <-done:
			t.Fatalf("nginx has ended: %s", log)
		default:
		}
	}
	t.Fatalf("nginx does not serve: %s", log)
	return ""
}

// pauseOfRefused is the pause of a caller after a refusal.
const pauseOfRefused = 20 * time.Millisecond

// A visit asks through a load balancer, and counts the answers. refused are those of servers without a lease.
type visit struct {
	good, streams, refused atomic.Int64
}

// ask sends chat requests, whole or streamed, until ctx ends or one fails. Outside the full drills, a refusal by a
// server that has lost its lease is counted, and asked again after a pause.
func (v *visit) ask(ctx context.Context, t *testing.T, at *caller, stream bool) {
	t.Helper()
	body := chat("mock/whole", "rolling", `"max_tokens":20`)
	if stream {
		body = chat("mock/stream", "rolling", `"max_tokens":20`, `"stream":true`)
	}
	for ctx.Err() == nil && !t.Failed() {
		var reused bool
		traced := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
			GotConn: func(conn httptrace.GotConnInfo) { reused = conn.Reused },
		})
		within, cancel := context.WithTimeout(traced, limit)
		a, err := at.post(within, "/v1/chat/completions", body, nil)
		cancel()
		switch {
		case err != nil:
			t.Errorf("on a connection that was used before %t: %v", reused, err)
		case refusedByLease(a.status, a.body):
			v.refused.Add(1)
			time.Sleep(pauseOfRefused)
			continue
		case a.status != http.StatusOK || !a.done:
			t.Errorf("%d, complete %t: %s %v", a.status, a.done, a.body, a.events)
		case stream:
			v.streams.Add(1)
		}
		v.good.Add(1)
	}
}

// Three nodes behind nginx are restarted one after the other, under load. No request fails (short: none but by a lost
// lease).
func TestDrillARollingRestartBehindNginxFailsNoRequest(t *testing.T) {
	t.Parallel()
	f := startNodes(t, 3, drillModels(), "--trusted-proxies", "127.0.0.1/32")
	f.logsWhenFailed(t)
	key := f.all[0].newWorkspace(t, "rolling", 100*money.Dollar)
	f.roll(t, key, drills(1, 7), func(n *node) { n.stop(t); n.restart(t) })
	f.stop(t)
	f.nothingSliced(t)
	f.all[0].verifyLedger(t)
	f.uncomplaining(t)
}

// roll does something to every node in turn, so many times, under load through nginx.
func (f *nodes) roll(t *testing.T, key string, times int, change func(*node)) {
	t.Helper()
	address := f.front(t)
	ctx, stop := context.WithCancel(t.Context())
	var v visit
	var group sync.WaitGroup
	const callers = 6
	for i := range callers {
		at := &caller{address: address, key: key, client: &http.Client{Transport: &http.Transport{}}}
		group.Go(func() {
			defer at.client.CloseIdleConnections()
			v.ask(ctx, t, at, i%2 == 0)
		})
	}
	eventually(t, "requests are answered", func() bool { return v.streams.Load() > 5 })
	for i := 0; i < times && !t.Failed(); i++ {
		for _, one := range f.all {
			change(one)
			time.Sleep(200 * time.Millisecond)
		}
	}
	before := v.good.Load()
	eventually(t, "requests are answered after the last", func() bool { return t.Failed() || v.good.Load() > before+20 })
	stop()
	group.Wait()
	t.Logf("%d requests, %d of them streams, in %d rounds over %d nodes; %d were refused by servers without a lease",
		v.good.Load(), v.streams.Load(), times, len(f.all), v.refused.Load())
	// nginx passes a refusal on only when all servers refuse. That many are ten seconds of all callers, in which a server
	// that is merely starved renews its lease.
	if most := int64(callers * 10 * time.Second / pauseOfRefused); v.refused.Load() > most {
		t.Errorf("more than %d requests were refused by servers without a lease", most)
	}
}

// Three servers start at once on an empty database: one migrates it, and all serve.
func TestDrillManyNodesStartAtOnceOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	for range drills(1, 10) {
		f := newNodes(t, 3)
		f.logsWhenFailed(t)
		first := newInstance(t, secret.Text{}) // which makes the root key that all of them are given
		first.serve(t).stop(t)
		for _, one := range f.all {
			copyFile(t, first.root, one.root)
		}
		for _, one := range f.all {
			one.start(t)
		}
		for _, one := range f.all {
			one.ready(t)
		}
		printed := map[string]bool{}
		for _, one := range f.all {
			for _, key := range keyText.FindAllString(one.server.out.String(), -1) {
				printed[key] = true
			}
		}
		inForce := 0 // a key is printed before it is committed, and a commit may be tried again
		for key := range printed {
			if status(t, "http://"+f.all[0].listen, key) == http.StatusOK {
				inForce++
			}
		}
		if made := f.number(t, `SELECT COUNT(*) FROM workspaces`); made != 1 || inForce != 1 {
			t.Errorf("%d workspaces were made, and %d of %d keys that were printed are in force", made, inForce, len(printed))
		}
		f.stop(t)
		f.all[0].verifyLedger(t)
	}
}
