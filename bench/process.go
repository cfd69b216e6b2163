package main

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
	"syscall"
	"time"
)

// A process is a child of ours, with all that it started itself.
type process struct {
	name    string
	command *exec.Cmd
	log     string
	done    chan struct{}
}

// start runs a program until stop, its output going to a file of the folder. When this process dies, the child gets the
// signal that ends it and its own children.
func start(
	ctx context.Context, folder, name string, end syscall.Signal, program string, args ...string,
) (*process, error) {
	p := &process{name: name, log: filepath.Join(folder, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	p.command = exec.CommandContext(context.WithoutCancel(ctx), program, args...) //nolint:gosec // our own programs
	p.command.Dir, p.command.Stdout, p.command.Stderr = folder, out, out
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: end}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = p.command.Wait(); close(p.done) }()
	return p, nil
}

// again starts this program with another subcommand.
func again(ctx context.Context, folder, name string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(ctx, folder, name, syscall.SIGKILL, self, args...)
}

func (p *process) pid() int { return p.command.Process.Pid }

// pids are the process and its children.
func (p *process) pids() []int { return append([]int{p.pid()}, children(p.pid())...) }

// stop ends the process and waits until it is gone.
func (p *process) stop() {
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_ = syscall.Kill(-p.pid(), how)
		select {
		case <-p.done:
			return
		case <-time.After(10 * time.Second):
		}
	}
}

// failure returns an error with the end of the process's output.
func (p *process) failure(err error) error {
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s: %w\n%s", p.name, err, text[max(0, len(text)-2000):])
}

var errEndedEarly = errors.New("it has ended")

// until asks again and again whether the process is ready.
func (p *process) until(ctx context.Context, most time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.failure(errEndedEarly)
		case <-ctx.Done():
			return p.failure(err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// accepts is ready when something listens on the address.
func accepts(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// freeAddress returns a loopback address with a free port.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// get reads a URL of one of our processes.
func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return send(request)
}

// send sends a request, and returns the body of an answer that is no refusal.
func send(request *http.Request) ([]byte, error) {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%w: %s: %.300s", errStatus, response.Status, body)
	}
	return body, err
}
