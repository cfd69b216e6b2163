// Package process runs engines on the machine of the server, as processes with sessions of their own. They go on when
// the server ends, and the next one finds them again by what it reads in its folder.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/serving"
)

// Config is what a backend needs.
type Config struct {
	Folder  string // of its own, in the data folder
	Engines serving.Engines
	GPUs    []string // the machine's GPUs that engines may have
	Log     *slog.Logger

	// Those that are 0 get their usual values.
	Pause    time.Duration // after the first failure of an engine; it doubles up to a minute
	Grace    time.Duration // between SIGTERM and SIGKILL
	Look     time.Duration // between looks at the health of an engine that starts; a ready one has ten times as much
	Hung     time.Duration // how long a ready engine may not answer before it is ended
	LogBytes int64         // what an engine's output may take of the disk

	NoCgroups bool // as on a machine without them
}

// A Backend runs engines on this machine. It implements serving.Backend.
type Backend struct {
	Config
	boot      string
	cgroups   string // the folder for cgroups; empty for none
	sovereign string
	client    *http.Client
	changed   chan struct{}
	said      sync.Map // what was said in the log, once

	done         chan struct{}
	until, ender *os.File // a pipe whose end wakes the goroutines that wait for processes
	work         sync.WaitGroup

	mu          sync.Mutex
	closed      bool
	deployments map[string]*deployment
}

// A deployment is what is wanted of a name, and what runs of it.
type deployment struct {
	name, folder string
	wanted       wanted
	replicas     []*replica
	problem      string
	failures     int // lives in a row that ended by themselves
	notBefore    time.Time
	waits        bool // for that time
}

var _ serving.Backend = (*Backend)(nil)

// Usual values.
const (
	usualPause  = time.Second
	longest     = time.Minute // pause after many failures; a life of this length was no failure
	usualGrace  = 30 * time.Second
	usualLook   = 200 * time.Millisecond
	usualHung   = 2 * time.Minute
	usualLog    = 16 << 20
	keptTail    = 256 << 10 // of the output that is read for its last lines
	maxFailures = 50        // replicas that were never ready, and that nobody forgot
)

// Open returns the backend of a folder. It takes over the engines that run since an earlier server.
func Open(c Config) (*Backend, error) {
	c.Pause, c.Grace = cmp.Or(c.Pause, usualPause), cmp.Or(c.Grace, usualGrace)
	c.Look, c.Hung = cmp.Or(c.Look, usualLook), cmp.Or(c.Hung, usualHung)
	c.LogBytes = cmp.Or(c.LogBytes, usualLog)
	b := &Backend{
		Config: c, changed: make(chan struct{}, 1), done: make(chan struct{}), deployments: map[string]*deployment{},
		client: &http.Client{
			Transport:     &http.Transport{DisableKeepAlives: true}, // and no proxy: engines are on this machine
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Timeout:       10 * time.Second,
		},
	}
	var err error
	if b.boot, err = bootID(); err != nil {
		return nil, err
	}
	if b.sovereign, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find the server's program: %w", err)
	}
	if !c.NoCgroups {
		if b.cgroups, err = cgroupParent(); err != nil {
			b.once("engines run without cgroups of their own: the server may not make any", "err", err)
			b.cgroups = ""
		}
	}
	if err := os.MkdirAll(b.runs(), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of engines: %w", err)
	}
	if err := b.load(); err != nil {
		return nil, err
	}
	if b.until, b.ender, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	if err := b.takeOver(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// takeOver goes on with what earlier servers have left.
func (b *Backend) takeOver() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.deployments {
		for _, r := range d.replicas {
			if err := b.adopt(r); err != nil {
				return err
			}
		}
	}
	b.endStrayCgroups()
	for _, d := range b.deployments {
		b.reconcile(d)
	}
	return nil
}

func (b *Backend) runs() string { return filepath.Join(b.Folder, "run") }

// once says something in the log, if it was not said before.
func (b *Backend) once(text string, args ...any) {
	if _, before := b.said.LoadOrStore(text, true); !before {
		b.Log.Warn(text, args...)
	}
}

func (b *Backend) signal() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// Changed implements serving.Backend.
func (b *Backend) Changed() <-chan struct{} { return b.changed }

// Close implements serving.Backend.
func (b *Backend) Close() {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.closed = true
	b.mu.Unlock()
	close(b.done)
	_ = b.ender.Close()
	b.work.Wait()
	_ = b.until.Close()
}

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

var errClosed = errors.New("the backend of engines is closed")

// Apply implements serving.Backend.
func (b *Backend) Apply(_ context.Context, s serving.Spec) error {
	switch engine := b.Engines.Find(s.Engine); {
	case !label.MatchString(s.Name):
		return fmt.Errorf("%q is no name of a deployment", s.Name)
	case engine == nil:
		return fmt.Errorf("the engine %q is not configured (serving.engines)", s.Engine)
	case s.Replicas < 0 || s.GPUCount < 0:
		return errors.New("replicas and GPUs must be 0 or more")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	d := b.deployments[s.Name]
	if d == nil {
		d = &deployment{name: s.Name, folder: filepath.Join(b.runs(), s.Name)}
		if err := os.MkdirAll(d.folder, 0o700); err != nil {
			return fmt.Errorf("make the folder of an engine: %w", err)
		}
	}
	if next := (wanted{Spec: s}); d.wanted != next {
		if err := keep(filepath.Join(d.folder, wantedFile), next); err != nil {
			return err
		}
		if template(d.wanted.Spec) != template(s) {
			d.failures, d.notBefore = 0, time.Time{}
		}
		d.wanted = next
		b.deployments[s.Name] = d
		b.signal()
	}
	b.reconcile(d)
	return nil
}

// template is what all replicas of a spec have in common.
func template(s serving.Spec) serving.Spec {
	s.Replicas = 0
	return s
}

// Remove implements serving.Backend.
func (b *Backend) Remove(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.deployments[name]
	switch {
	case b.closed:
		return errClosed
	case d == nil || d.wanted.Removed:
		return nil
	}
	next := wanted{Spec: d.wanted.Spec, Removed: true}
	if err := keep(filepath.Join(d.folder, wantedFile), next); err != nil {
		return err
	}
	d.wanted = next
	b.signal()
	b.reconcile(d)
	return nil
}

// List implements serving.Backend.
func (b *Backend) List(context.Context) ([]serving.Deployment, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []serving.Deployment
	for _, name := range slices.Sorted(maps.Keys(b.deployments)) {
		d := b.deployments[name]
		shown := serving.Deployment{Spec: d.wanted.Spec, Problem: d.problem}
		for _, r := range d.replicas {
			shown.Replicas = append(shown.Replicas, r.shown())
		}
		slices.SortFunc(shown.Replicas, func(x, y serving.Replica) int {
			return cmp.Or(cmp.Compare(x.StartedAt, y.StartedAt), strings.Compare(x.ID, y.ID))
		})
		all = append(all, shown)
	}
	return all, nil
}

// shown is a replica as List has it.
func (r *replica) shown() serving.Replica {
	shown := serving.Replica{
		ID: r.ID, Phase: serving.Starting, BaseURL: r.URL + r.API, StartedAt: r.StartedAt, ReadyAt: r.ReadyAt,
		EndedAt: r.EndedAt, Asked: r.Asked, Reason: r.Reason, Lines: r.Lines,
	}
	switch {
	case r.Ended:
		shown.Phase = serving.Ended
	case r.ReadyAt != 0:
		shown.Phase = serving.Ready
	}
	if !r.Ended {
		shown.Lines = r.tail()
	}
	return shown
}

// Forget implements serving.Backend.
func (b *Backend) Forget(_ context.Context, name, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.deployments[name]
	if d == nil {
		return nil
	}
	for _, r := range d.replicas {
		if r.ID == id {
			if !r.Ended {
				return fmt.Errorf("the replica %s runs", id)
			}
			if err := b.drop(r); err != nil {
				return err
			}
			break
		}
	}
	b.reconcile(d)
	return nil
}

// drop deletes what is kept of a replica.
func (b *Backend) drop(r *replica) error {
	for _, at := range []string{r.log(), r.file()} {
		if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("forget a replica: %w", err)
		}
	}
	r.d.replicas = slices.DeleteFunc(r.d.replicas, func(other *replica) bool { return other == r })
	b.signal()
	return nil
}

// reconcile starts and ends replicas until there are as many as wanted. It is called with the lock.
func (b *Backend) reconcile(d *deployment) {
	if b.closed {
		return
	}
	if d.wanted.Removed && len(d.replicas) == 0 {
		if err := os.RemoveAll(d.folder); err != nil {
			b.Log.Error("cannot remove the folder of an engine", "folder", d.folder, "err", err)
			return
		}
		delete(b.deployments, d.name)
		b.signal()
		return
	}
	n := d.wanted.Spec.Replicas
	if d.wanted.Removed {
		n = 0
	}
	want := template(d.wanted.Spec)
	for _, r := range d.replicas {
		if r.Spec != want {
			b.ask(r)
		}
	}
	runs := d.running()
	for _, r := range runs[min(n, len(runs)):] {
		b.ask(r)
	}
	problem := ""
	for missing := n - len(runs); missing > 0; missing-- {
		if wait := time.Until(d.notBefore); wait > 0 {
			b.later(d, wait)
			problem = d.problem // what it was is still so
			break
		}
		if err := b.start(d); err != nil {
			problem = err.Error()
			if !errors.Is(err, errFree) {
				b.failed(d)
				b.later(d, time.Until(d.notBefore))
			}
			break
		}
	}
	if problem != d.problem {
		d.problem = problem
		if problem != "" {
			b.Log.Warn("an engine cannot be started", "deployment", d.name, "problem", problem)
		}
		b.signal()
	}
}

// running returns the replicas that run and were not told to end, in the order in which they are kept: those that are
// ready, the oldest first.
func (d *deployment) running() []*replica {
	return slices.SortedFunc(slices.Values(slices.DeleteFunc(slices.Clone(d.replicas), func(r *replica) bool {
		return r.Ended || r.Asked
	})), func(x, y *replica) int {
		if (x.ReadyAt == 0) != (y.ReadyAt == 0) {
			return cmp.Compare(y.ReadyAt, x.ReadyAt)
		}
		return cmp.Or(cmp.Compare(x.StartedAt, y.StartedAt), strings.Compare(x.ID, y.ID))
	})
}

// failed notes a life that ended by itself, or a start that did not succeed: the next one waits longer.
func (b *Backend) failed(d *deployment) {
	pause := min(b.Pause<<min(d.failures, 30), longest)
	d.failures++
	d.notBefore = time.Now().Add(pause)
}

// later reconciles a deployment after a while.
func (b *Backend) later(d *deployment, wait time.Duration) {
	if d.waits {
		return
	}
	d.waits = true
	b.work.Go(func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-b.done:
		case <-timer.C:
			b.mu.Lock()
			defer b.mu.Unlock()
			d.waits = false
			if b.deployments[d.name] == d {
				b.reconcile(d)
			}
		}
	})
}

// ended records the end of a replica, and lets another one take its place.
func (b *Backend) ended(r *replica, reason string, seen clock.Time) {
	lines := r.tail()
	b.mu.Lock()
	defer b.mu.Unlock()
	d := r.d
	r.Ended, r.EndedAt, r.Lines = true, seen, lines
	if r.Reason == "" {
		r.Reason = reason
	}
	if err := r.save(); err != nil {
		b.Log.Error("cannot record the end of an engine", "replica", r.ID, "err", err)
	}
	if !r.Asked {
		b.Log.Warn("an engine has ended", "deployment", d.name, "replica", r.ID, "reason", r.Reason)
		if r.ReadyAt != 0 && seen.Sub(r.ReadyAt) >= longest {
			d.failures = 0
		}
		b.failed(d)
	}
	b.prune(d)
	b.signal()
	for _, other := range b.deployments { // its GPUs are free
		b.reconcile(other)
	}
}

// prune forgets the oldest of many replicas that were never ready: nobody pays for them.
func (b *Backend) prune(d *deployment) {
	var useless []*replica
	for _, r := range d.replicas {
		if r.Ended && r.ReadyAt == 0 {
			useless = append(useless, r)
		}
	}
	for _, r := range useless[:max(0, len(useless)-maxFailures)] {
		if err := b.drop(r); err != nil {
			b.Log.Error("cannot forget a replica", "replica", r.ID, "err", err)
			return
		}
	}
}
