package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/panics"
	"sovereign/internal/domain/serving"
	"sovereign/internal/net/kubeapi"
)

// A Backend runs engines as pods. It implements serving.Backend.
type Backend struct {
	config  Config
	client  *kubeapi.Client
	mirrors map[kubeapi.Kind]*kubeapi.Mirror
	changed chan struct{}
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	wanted  map[string]want     // what was asked for since the start
	names   map[string]*state   // what is known of names, beside what is in the cluster
	dirty   map[string]bool     // names to look at
	lines   map[string][]string // of pods that have ended, by their uid
	reading map[string]bool     // the pods whose logs are being read
	away    error               // why the cluster cannot be seen

	applied map[string]applied // objects as they were last applied, by kind and name; the loop's own
}

// applied is an object after it was applied.
type applied struct {
	uid, version string
	digest       [sha256.Size]byte // of what was applied
}

type want struct {
	spec    spec
	removed bool
}

// state is what a name has met. Its slots are used by the loop alone.
type state struct {
	slots   map[int]*slotState
	counted map[string]bool // the pods that ended by themselves and are in a slot's failures
	fresh   bool            // the failures are those of another spec
	births  int             // the highest number of a pod
	problem string          // why the last pass failed
	retries int
	retry   time.Time // when a pass that failed is tried again
	timer   time.Time // when to look again, at the latest
}

type slotState struct {
	failures int       // replicas that ended by themselves, in a row
	next     time.Time // when the next one may begin
}

// Open begins to follow what runs in a cluster. It makes no request before it returns: a cluster that is away is one
// whose engines cannot be listed until it is back.
func Open(c Config) (*Backend, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	client, err := kubeapi.Open(c.Cluster)
	if err != nil {
		return nil, err
	}
	c.Times.complete()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	b := &Backend{
		config: c, client: client, mirrors: map[kubeapi.Kind]*kubeapi.Mirror{},
		changed: make(chan struct{}, 1),
		wanted:  map[string]want{}, names: map[string]*state{}, dirty: map[string]bool{}, lines: map[string][]string{},
		reading: map[string]bool{}, applied: map[string]applied{}, away: errors.New("the cluster was not reached yet"),
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	for _, k := range []kubeapi.Kind{
		kubeapi.ConfigMaps, kubeapi.Pods, kubeapi.Services, kubeapi.NetworkPolicies, kubeapi.Budgets,
	} {
		b.mirrors[k] = client.Mirror(k, ours, func(o kubeapi.Object) {
			b.mark(belongs(k, o))
			b.signal()
		}, b.noteReach)
	}
	for k, m := range b.mirrors {
		b.done.Go(func() {
			defer panics.Contain(c.Log, "watch "+k.Plural)
			m.Run(ctx)
		})
	}
	b.done.Go(func() { b.loop(ctx) })
	return b, nil
}

// noteReach notes whether the cluster can be seen.
func (b *Backend) noteReach(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if (err == nil) != (b.away == nil) {
		if err == nil {
			b.config.Log.Info("the Kubernetes cluster answers")
		} else {
			b.config.Log.Warn("the Kubernetes cluster does not answer", "err", err)
		}
	}
	b.away = err
}

// mark makes the loop look at a name.
func (b *Backend) mark(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dirty[name] = true
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
	b.stop()
	b.done.Wait()
	b.client.Close()
}

// synced waits until the cluster was read once.
func (b *Backend) synced(ctx context.Context) error {
	for _, m := range b.mirrors {
		select {
		case <-m.Synced():
		case <-ctx.Done():
			b.mu.Lock()
			defer b.mu.Unlock()
			return fmt.Errorf("read what runs in the Kubernetes cluster: %w", cmp.Or(b.away, context.Cause(ctx)))
		}
	}
	return nil
}

// Apply implements serving.Backend. When it returns, the cluster knows what is asked for.
func (b *Backend) Apply(ctx context.Context, asked serving.Spec) error {
	s := spec(asked)
	if _, _, err := b.podSpec(s); err != nil {
		return err
	}
	b.mu.Lock()
	before, known := b.wanted[s.Name]
	b.wanted[s.Name] = want{s, false}
	if st := b.names[s.Name]; st != nil && (!known || before.removed || before.spec.shape() != s.shape()) {
		st.fresh, st.retry = true, time.Time{} // what failed was something else
	}
	b.mu.Unlock()
	defer b.mark(s.Name)
	if known && before == (want{s, false}) {
		return nil // the loop keeps it so
	}
	return b.applyRoot(ctx, s, false)
}

func (b *Backend) applyRoot(ctx context.Context, s spec, removed bool) error {
	object, err := root(s, removed)
	if err != nil {
		return err
	}
	_, err = b.client.Apply(ctx, kubeapi.ConfigMaps, object.Meta.Name, object)
	return err
}

// Remove implements serving.Backend. When it returns, the cluster knows that nothing of the name is to run.
func (b *Backend) Remove(ctx context.Context, name string) error {
	if err := b.synced(ctx); err != nil {
		return err
	}
	s, ok := b.specOf(name)
	if !ok {
		return nil
	}
	s.Replicas = 0
	b.mu.Lock()
	b.wanted[name] = want{s, true}
	if st := b.names[name]; st != nil {
		st.retry = time.Time{}
	}
	b.mu.Unlock()
	defer b.mark(name)
	return b.applyRoot(ctx, s, true)
}

// specOf returns what is to run of a name: what was asked for, or what the cluster has of it.
func (b *Backend) specOf(name string) (spec, bool) {
	b.mu.Lock()
	w, ok := b.wanted[name]
	b.mu.Unlock()
	if ok {
		return w.spec, true
	}
	if o, found := b.mirrors[kubeapi.ConfigMaps].Find(prefix + name); found {
		var s spec
		if json.Unmarshal([]byte(o.Data["spec"]), &s) == nil && s.Name == name {
			return s, true
		}
	}
	for _, o := range b.mirrors[kubeapi.Pods].All() {
		var s spec
		text := []byte(o.Meta.Annotations[specNote])
		if belongs(kubeapi.Pods, o) == name && json.Unmarshal(text, &s) == nil && s.Name == name {
			return s, true
		}
	}
	return spec{}, false
}

// lives returns the pods of a name, those that began first before the others.
func (b *Backend) lives(name string) []*life {
	var all []*life
	now := time.Now()
	for _, o := range b.mirrors[kubeapi.Pods].All() {
		if belongs(kubeapi.Pods, o) != name {
			continue
		}
		l, err := read(o, now, b.config.Times.Lost)
		if err != nil {
			b.config.Log.Warn("a pod cannot be read", "pod", o.Meta.Name, "err", err)
			continue
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(x, y *life) int {
		return cmp.Or(x.object.Meta.CreationTimestamp.Compare(y.object.Meta.CreationTimestamp),
			cmp.Compare(x.object.Meta.Name, y.object.Meta.Name))
	})
	return all
}

// List implements serving.Backend.
func (b *Backend) List(ctx context.Context) ([]serving.Deployment, error) {
	if err := b.synced(ctx); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	b.mu.Lock()
	for name, w := range b.wanted {
		names[name] = !w.removed
	}
	b.mu.Unlock()
	for _, k := range []kubeapi.Kind{kubeapi.ConfigMaps, kubeapi.Pods} {
		for _, o := range b.mirrors[k].All() {
			names[belongs(k, o)] = true
		}
	}
	var all []serving.Deployment
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if d, ok := b.describe(name); ok && names[name] {
			all = append(all, d)
		}
	}
	return all, nil
}

// describe returns what runs of a name.
func (b *Backend) describe(name string) (serving.Deployment, bool) {
	s, ok := b.specOf(name)
	if !ok {
		return serving.Deployment{}, false
	}
	d := serving.Deployment{Spec: serving.Spec(s)}
	api := "/v1"
	if engine := b.config.Engines.Find(s.Engine); engine != nil {
		api = engine.API
	}
	for _, l := range b.lives(name) {
		r := l.replica
		if r.Phase == serving.Ended {
			var known bool
			if r.Lines, known = b.linesOf(l); !known { // its log is being read
				r.Phase = serving.Starting
			}
		} else {
			r.BaseURL = b.address(l, api)
			if d.Problem == "" && !r.Asked {
				d.Problem = l.problem
			}
		}
		d.Replicas = append(d.Replicas, r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if st := b.names[name]; st != nil && d.Problem == "" {
		d.Problem = st.problem
	}
	return d, true
}

// linesOf returns the last lines of a pod that has ended, when they were read, or could not be.
func (b *Backend) linesOf(l *life) (lines []string, known bool) {
	if l.replica.Asked {
		return serving.LastLines([]byte(l.message), len(l.message) > messageWhole), true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	lines, known = b.lines[l.object.Meta.UID]
	return lines, known
}

// Forget implements serving.Backend. A replica that runs is not forgotten.
func (b *Backend) Forget(ctx context.Context, name, replica string) error {
	if err := b.synced(ctx); err != nil {
		return err
	}
	for _, l := range b.lives(name) {
		if l.object.Meta.UID != replica {
			continue
		}
		if l.replica.Phase != serving.Ended {
			return fmt.Errorf("the replica %s of %s still runs", replica, name)
		}
		return b.release(ctx, l.object.Meta)
	}
	return nil
}

// release deletes a pod that has ended. The deletion comes first: whatever happens between, the pod is still known as
// one that has ended.
func (b *Backend) release(ctx context.Context, m kubeapi.Meta) error {
	if err := b.client.Delete(ctx, kubeapi.Pods, kubeapi.Meta{Name: m.Name, UID: m.UID}, 0); err != nil {
		return err
	}
	for {
		now, err := b.client.Get(ctx, kubeapi.Pods, m.Name)
		switch {
		case kubeapi.Is(err, http.StatusNotFound) || err == nil && now.Meta.UID != m.UID:
			return nil
		case err != nil:
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(now.Meta.Finalizers), func(f string) bool { return f == finalizer })
		err = b.client.Merge(ctx, kubeapi.Pods, m.Name, map[string]any{"metadata": map[string]any{
			"finalizers": rest, "uid": m.UID, "resourceVersion": now.Meta.ResourceVersion,
		}})
		if err == nil || kubeapi.Is(err, http.StatusNotFound) {
			return nil
		}
		if !kubeapi.Is(err, http.StatusConflict) {
			return err
		}
	}
}
