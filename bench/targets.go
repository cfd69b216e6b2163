package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// A target is what is measured: a process between the load and the mock.
type target struct {
	name    string
	address string
	process *process // nil for the mock itself
	senders func(kind string) senders
	server  *sovereign // of a target that keeps books
	cannot  []string   // scenarios that it fails at

	others   []*sovereign // further servers on the same database, which share the load
	database *postgres    // nil without one

	followed *atomic.Int64 // rows that live tails have had; nil without tails
}

// Names of targets.
const (
	nameDirect   = "direct"
	nameNginx    = "nginx"
	nameBare     = "bare"
	nameOurs     = "sovereign"
	nameStandard = "sovereign-standard"
	nameLogging  = "sovereign-logging"
	nameTails    = "sovereign-tails"
	nameLimits   = "sovereign-limits"
	nameSplit    = "sovereign-split"
	nameGated    = "sovereign-gated"
	nameBefore   = "before"
)

// A stage is the mock and the targets in front of it.
type stage struct {
	folder  string
	mock    *process
	address string // of the mock
	targets []*target
	ends    []func()
}

// newStage starts a mock in a new folder.
func newStage(ctx context.Context) (*stage, error) {
	folder, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	s := &stage{folder: folder}
	s.ends = append(s.ends, func() { _ = os.RemoveAll(folder) })
	if err := s.startMock(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) startMock(ctx context.Context) (err error) {
	if s.address, err = freeAddress(ctx); err != nil {
		return err
	}
	if s.mock, err = again(ctx, s.folder, "mock", "mock", s.address); err != nil {
		return err
	}
	s.ends = append(s.ends, s.mock.stop)
	return s.mock.until(ctx, 10*time.Second, accepts(s.address))
}

// close stops everything, the last first.
func (s *stage) close() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// control changes the mock's behaviour and tells how many requests it has had.
func (s *stage) control(ctx context.Context, query string) (int64, error) {
	text, err := get(ctx, "http://"+s.address+"/control?"+query)
	if err != nil {
		return 0, fmt.Errorf("control the mock: %w", err)
	}
	var counts struct{ Requests int64 }
	return counts.Requests, json.Unmarshal(text, &counts)
}

// add starts the targets of these names. What is not installed is left out, and said.
func (s *stage) add(ctx context.Context, o *options, names []string) error {
	for _, name := range names {
		make, ok := makers[name]
		if !ok {
			return fmt.Errorf("there is no target %q", name)
		}
		t, err := make(ctx, s, o)
		if errors.Is(err, errNotInstalled) {
			o.say("%-10s left out: %v", name, err)
			continue
		}
		if err != nil {
			return err
		}
		s.targets = append(s.targets, t)
	}
	return nil
}

var errNotInstalled = errors.New("it is not installed")

// makers start targets.
var makers = map[string]func(context.Context, *stage, *options) (*target, error){
	nameDirect: func(_ context.Context, s *stage, _ *options) (*target, error) {
		return &target{name: nameDirect, address: s.address, senders: anonymousSenders}, nil
	},
	nameBare:  startBare,
	nameNginx: startNginx,
	nameOurs:  func(ctx context.Context, s *stage, o *options) (*target, error) { return startOurs(ctx, s, o, "") },
	nameStandard: func(ctx context.Context, s *stage, o *options) (*target, error) {
		return startOurs(ctx, s, o, "standard-")
	},
	nameLogging: startLogging,
	nameTails:   startTails,
	nameLimits:  startLimits,
	nameSplit: func(ctx context.Context, s *stage, o *options) (*target, error) {
		return startSplit(ctx, s, o, nameSplit, false)
	},
	nameGated: func(ctx context.Context, s *stage, o *options) (*target, error) {
		return startSplit(ctx, s, o, nameGated, true)
	},
	nameBefore:  startBefore,
	namePortkey: startPortkey,
	nameLiteLLM: startLiteLLM,
}

// anonymousSenders returns senders for a target that checks neither keys nor models. Requests have the same size.
func anonymousSenders(kind string) senders {
	return senders{
		keys:   []string{"sk_sovereign_0123456789abcdefghjkmnpqrstvwxyz0123456789abcde"},
		models: []string{alias(kind, 0)},
	}
}

func startBare(ctx context.Context, s *stage, _ *options) (*target, error) {
	return s.startOn(ctx, nameBare, func(address string) (*process, error) {
		return again(ctx, s.folder, nameBare, "proxy", address, s.address)
	})
}

// startOn starts a process on a free address and waits until it listens.
func (s *stage) startOn(ctx context.Context, name string, run func(address string) (*process, error)) (*target, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	p, err := run(address)
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, p.stop)
	return &target{
		name: name, address: address, process: p, senders: anonymousSenders,
	}, p.until(ctx, 2*time.Minute, accepts(address))
}

const nginxConfig = `daemon off; worker_processes 2; worker_rlimit_nofile 65536; pid nginx.pid; error_log nginx.err;
events { worker_connections 32768; }
http {
  access_log off; client_max_body_size 64m; client_body_buffer_size 512k; keepalive_requests 1000000000;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  upstream mock { server %s; keepalive 4096; keepalive_requests 1000000000; }
  server { listen %s backlog=4096; location / { proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } }
}
`

func startNginx(ctx context.Context, s *stage, _ *options) (*target, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return nil, errNotInstalled
	}
	return s.startOn(ctx, nameNginx, func(address string) (*process, error) {
		folder, err := os.MkdirTemp(s.folder, "nginx")
		if err != nil {
			return nil, err
		}
		if err := os.Chmod(s.folder, 0o755); err != nil { //nolint:gosec // its workers run as another user
			return nil, err
		}
		if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // as above
			return nil, err
		}
		file := filepath.Join(folder, "nginx.conf")
		if err := os.WriteFile(file, fmt.Appendf(nil, nginxConfig, s.address, address), 0o600); err != nil {
			return nil, err
		}
		return start(ctx, folder, nameNginx, syscall.SIGTERM, program, "-p", folder, "-c", file)
	})
}

// special are the targets that take part where a scenario names them.
var special = []string{nameDirect, nameStandard, nameLogging, nameTails, nameLimits, nameSplit, nameGated}

// takes reports whether a target takes part in a scenario.
func (t *target) takes(sc *scenario) bool {
	if slices.Contains(special, t.name) {
		return slices.Contains(sc.also, t.name)
	}
	return !slices.Contains(t.cannot, sc.name)
}

// pids are the processes that a target's work is done in.
func (t *target) pids() []int {
	if t.process == nil {
		return nil
	}
	all := t.process.pids()
	for _, other := range t.others {
		all = append(all, other.pids()...)
	}
	return all
}

// addresses are those of all the target's servers.
func (t *target) addresses() []string {
	all := []string{t.address}
	for _, other := range t.others {
		all = append(all, other.address)
	}
	return all
}

// query is a setting of the mock.
func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}
