package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/panics"
	"sovereign/internal/domain/serving"
)

// A replica is one life of an engine.
type replica struct {
	record
	d     *deployment
	pidfd int
	stop  chan struct{} // closed when it is told to end
	gone  chan struct{} // closed when its process has ended
}

// waitForRecord is a shell script that starts an engine when a line comes on its input: its record is written then. If
// the server is killed before, the input ends, and no process is left.
const waitForRecord = `read -r go && exec "$@" </dev/null`

// passed are the variables of the server that engines get. All others, and the server's secrets with them, they do not.
var passed = []string{
	"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "XDG_DATA_HOME",
	"CUDA_HOME", "HF_HOME", "NVIDIA_DRIVER_CAPABILITIES",
}

// stamp is the time as records keep it: a server that starts reads the same one.
func stamp() clock.Time { return clock.Of(time.Now().Truncate(time.Millisecond)) }

// start starts a replica. It is called with the lock.
func (b *Backend) start(d *deployment) error {
	spec := template(d.wanted.Spec)
	engine := b.Engines.Find(spec.Engine)
	if engine == nil {
		return fmt.Errorf("the engine %q is not configured (serving.engines)", spec.Engine)
	}
	devices, err := b.devices(spec)
	if err != nil {
		return err
	}
	port, err := b.port()
	if err != nil {
		return err
	}
	const host = "127.0.0.1"
	now := stamp()
	r := &replica{d: d, record: record{
		ID: id.New("rep"), Spec: spec, Boot: b.boot, URL: fmt.Sprintf("http://%s:%d", host, port), API: engine.API,
		Health: engine.Health, Devices: devices, StartedAt: now, HealthyBy: now.Add(engine.StartTimeout),
	}}
	work := filepath.Join(b.Folder, "work", engine.Name)
	if err := os.MkdirAll(work, 0o700); err != nil {
		return fmt.Errorf("make the folder of an engine: %w", err)
	}
	launch, err := engine.Launch(spec, serving.Place{
		Host: host, Port: port, Work: work, Sovereign: b.sovereign, Folder: spec.Folder,
	})
	if err != nil {
		return err
	}
	if err := b.fork(r, engine, launch, work); err != nil {
		_ = os.Remove(r.log())
		_ = os.Remove(r.file())
		return fmt.Errorf("start the engine %s: %w", engine.Name, err)
	}
	d.replicas = append(d.replicas, r)
	b.signal()
	b.watch(r)
	return nil
}

// fork makes the process of a replica, records it, and lets it begin.
func (b *Backend) fork(r *replica, engine *serving.Engine, launch serving.Launch, work string) error {
	out, err := os.OpenFile(r.log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	in, begin, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = in.Close(), begin.Close() }()
	started, err := b.begin(r, engine.Memory, func() *exec.Cmd {
		c := exec.Command("/bin/sh", append([]string{"-c", waitForRecord, "sh"}, launch.Args...)...) //nolint:gosec,noctx // it outlives us
		c.Stdin, c.Stdout, c.Stderr, c.Dir, c.Env = in, out, out, work, environ(r, launch.Env)
		return c
	})
	if err != nil {
		return err
	}
	r.PID = started.Pid
	_ = started.Release() // its end is awaited by its pidfd
	if err := r.admit(begin); err != nil {
		_ = begin.Close() // it ends without a record
		_, _ = unix.Wait4(r.PID, nil, 0, nil)
		endCgroup(r.Cgroup)
		return err
	}
	return nil
}

// admit records a process that waits for its record, and lets it begin.
func (r *replica) admit(begin *os.File) error {
	now, err := statOf(r.PID)
	if err != nil {
		return err
	}
	r.Start = now.start
	if r.pidfd, err = hold(r.PID, r.Start); err != nil {
		return err
	}
	if r.pidfd < 0 {
		return errors.New("it ended before it began")
	}
	if err = r.save(); err == nil {
		_, err = begin.WriteString("go\n")
	}
	if err != nil {
		_ = unix.Close(r.pidfd)
	}
	return err
}

// begin starts a command in a session of its own, and in a cgroup of its own where that may be.
func (b *Backend) begin(r *replica, memory int64, build func() *exec.Cmd) (*os.Process, error) {
	switch {
	case b.cgroups != "":
		started, bounded, err := inCgroup(filepath.Join(b.cgroups, cgroupPrefix(b.Folder)+r.ID), r, memory, build())
		if err == nil {
			if !bounded {
				b.once("the memory of engines is not bounded: the server's cgroup has no memory controller")
			}
			return started, nil
		}
		b.once("engines run without cgroups of their own: the server may not make any", "err", err)
	case memory > 0:
		b.once("the memory of engines is not bounded: they run without cgroups")
	}
	command := build()
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := command.Start()
	return command.Process, err
}

// inCgroup starts a command in a cgroup of its own, from its first instruction on.
func inCgroup(at string, r *replica, memory int64, command *exec.Cmd) (*os.Process, bool, error) {
	bounded, err := makeCgroup(at, memory)
	if err != nil {
		return nil, false, err
	}
	folder, err := os.Open(at) //nolint:gosec // our own folder
	if err == nil {
		command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(folder.Fd())}
		err = command.Start()
		_ = folder.Close()
	}
	if err != nil {
		endCgroup(at)
		return nil, false, err
	}
	r.Cgroup = at
	return command.Process, bounded, nil
}

// environ is the environment of an engine.
func environ(r *replica, own map[string]string) []string {
	var all []string
	for _, name := range passed {
		if value, set := os.LookupEnv(name); set {
			all = append(all, name+"="+value)
		}
	}
	all = append(all, "CUDA_VISIBLE_DEVICES="+strings.Join(r.Devices, ","))
	for name, value := range own {
		all = append(all, name+"="+value)
	}
	return append(all, marker+"="+r.ID)
}

// errFree says that there is no room now. When a replica ends, there may be.
var errFree = errors.New("free")

// devices returns GPUs for a replica, which no other one has.
func (b *Backend) devices(s serving.Spec) ([]string, error) {
	if s.GPUType == serving.CPU || s.GPUCount == 0 {
		return nil, nil
	}
	free := slices.Clone(b.GPUs)
	for _, d := range b.deployments {
		for _, r := range d.replicas {
			if !r.Ended {
				free = slices.DeleteFunc(free, func(gpu string) bool { return slices.Contains(r.Devices, gpu) })
			}
		}
	}
	if len(free) < s.GPUCount {
		return nil, fmt.Errorf(
			"a replica needs %d GPUs, and %d of the machine's %d are %w", s.GPUCount, len(free), len(b.GPUs), errFree,
		)
	}
	return free[:s.GPUCount], nil
}

// port returns a port of this machine that is free, and that no other replica was given.
func (b *Backend) port() (int, error) {
	taken := map[string]bool{}
	for _, d := range b.deployments {
		for _, r := range d.replicas {
			taken[r.URL] = !r.Ended || taken[r.URL]
		}
	}
	for range 100 {
		trial, err := net.Listen("tcp4", "127.0.0.1:0") //nolint:noctx // it does not block
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		port := trial.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one
		_ = trial.Close()
		if !taken[fmt.Sprintf("http://127.0.0.1:%d", port)] {
			return port, nil
		}
	}
	return 0, errors.New("no port is free")
}

// adopt takes over a replica of an earlier server. It is called with the lock.
func (b *Backend) adopt(r *replica) error {
	if r.Ended {
		return nil
	}
	r.pidfd = -1
	if r.Boot == b.boot {
		var err error
		if r.pidfd, err = hold(r.PID, r.Start); err != nil {
			return fmt.Errorf("take over the engine of the replica %s: %w", r.ID, err)
		}
	}
	if r.pidfd >= 0 {
		b.watch(r)
		return nil
	}
	// It ended while no server ran: when, nobody saw.
	if r.Boot == b.boot {
		b.sweep(r)
	}
	r.Ended, r.Lines = true, r.tail()
	if r.Reason == "" {
		r.Reason = "the engine ended while the server did not run"
	}
	b.signal()
	return r.save()
}

// ask tells a replica to end. It is called with the lock.
func (b *Backend) ask(r *replica) {
	if r.Ended || r.Asked {
		return
	}
	r.Asked, r.Reason = true, "it was told to end"
	if err := r.save(); err != nil {
		b.Log.Error("cannot record that an engine is to end", "replica", r.ID, "err", err)
	}
	close(r.stop)
	b.signal()
}

// watch follows a replica until its end, or until the backend is closed. It is called with the lock.
func (b *Backend) watch(r *replica) {
	r.stop, r.gone = make(chan struct{}), make(chan struct{})
	if r.Asked {
		close(r.stop)
	}
	waited := make(chan struct{})
	b.work.Go(func() {
		defer close(waited)
		defer panics.Contain(b.Log, "wait for an engine")
		if exited, err := awaitExit(r.pidfd, int(b.until.Fd())); err != nil {
			b.Log.Error("cannot wait for an engine", "replica", r.ID, "err", err)
		} else if exited {
			close(r.gone)
		}
	})
	b.work.Go(func() {
		defer panics.Contain(b.Log, "follow an engine")
		defer func() {
			<-waited
			_ = unix.Close(r.pidfd)
		}()
		if b.follow(r) {
			seen := stamp()
			reason := reap(r.PID, r.Start)
			b.sweep(r)
			b.ended(r, reason, seen)
		}
	})
}

// follow looks at a replica's health. It returns true when the process has ended, and false when the backend closes.
func (b *Backend) follow(r *replica) bool {
	every := b.Look
	if r.ReadyAt != 0 {
		every *= 10
	}
	healthy := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.done:
			return false
		case <-r.gone:
			return true
		case <-r.stop:
			return b.end(r)
		case <-timer.C:
		}
		b.trim(r)
		ok := b.healthy(r)
		switch {
		case ok && r.ReadyAt == 0:
			b.becomesReady(r)
			every *= 10
			healthy = time.Now()
		case ok:
			healthy = time.Now()
		case r.ReadyAt == 0 && clock.Now() > r.HealthyBy:
			return b.giveUp(
				r, fmt.Sprintf("the engine was not healthy %v after its start", r.HealthyBy.Sub(r.StartedAt)),
			)
		case r.ReadyAt != 0 && time.Since(healthy) > b.Hung:
			return b.giveUp(r, fmt.Sprintf("the engine did not answer for %v", b.Hung))
		}
		timer.Reset(every)
	}
}

// giveUp ends a replica that does not serve, without having been told to.
func (b *Backend) giveUp(r *replica, reason string) bool {
	b.mu.Lock()
	if r.Reason == "" {
		r.Reason = reason
	}
	b.mu.Unlock()
	return b.end(r)
}

func (b *Backend) becomesReady(r *replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.ReadyAt = stamp()
	if err := r.save(); err != nil {
		b.Log.Error("cannot record that an engine is ready", "replica", r.ID, "err", err)
	}
	b.signal()
}

// healthy asks an engine whether it can serve.
func (b *Backend) healthy(r *replica) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // an answer that does not come must not keep the end from being seen
		select {
		case <-b.done:
		case <-r.gone:
		case <-r.stop:
		case <-ctx.Done():
		}
		cancel()
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+r.Health, nil)
	if err != nil {
		return false
	}
	answer, err := b.client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16))
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// end asks the process to end, and kills it after the grace. It returns false if the backend closes before.
func (b *Backend) end(r *replica) bool {
	_ = unix.PidfdSendSignal(r.pidfd, unix.SIGTERM, nil, 0)
	grace := time.NewTimer(b.Grace)
	defer grace.Stop()
	for {
		select {
		case <-b.done:
			return false
		case <-r.gone:
			return true
		case <-grace.C:
			_ = unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
		}
	}
}

// sweep ends what a replica's process has started and left behind.
func (b *Backend) sweep(r *replica) {
	for range 100 {
		if killMembers(r.ID, r.PID, r.Start) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond) // a killed process is there for a moment
	}
	endCgroup(r.Cgroup)
}
