package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sovereign/internal/base/panics"
	"sovereign/internal/domain/serving"
	"sovereign/internal/net/kubeapi"
)

// passEvery is the least time between two passes. Whoever else changes the same fields is not chased faster.
const passEvery = 100 * time.Millisecond

// lookAgain is after which time all names are looked at, though nothing was heard of them.
const lookAgain = time.Minute

// loop makes what runs what is asked for, until ctx ends.
func (b *Backend) loop(ctx context.Context) {
	if b.synced(ctx) != nil {
		return
	}
	b.markAll()
	all := time.NewTicker(lookAgain)
	defer all.Stop()
	tick := time.NewTicker(passEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-all.C:
			b.markAll()
		case <-tick.C:
		}
		for _, name := range b.due() {
			panics.Contain("engines of "+name, func() { b.pass(ctx, name) })
		}
	}
}

func (b *Backend) markAll() {
	names := map[string]bool{}
	for _, m := range b.mirrors {
		for _, o := range m.All() {
			names[o.Meta.Labels[engineLabel]] = true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.wanted {
		names[name] = true
	}
	for name := range names {
		b.dirty[name] = true
	}
}

// due returns the names to look at now.
func (b *Backend) due() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var all []string
	for name, st := range b.names {
		if !st.timer.IsZero() && !now.Before(st.timer) || !st.retry.IsZero() && !now.Before(st.retry) {
			b.dirty[name] = true
		}
	}
	for name := range b.dirty {
		if st := b.names[name]; st != nil && now.Before(st.retry) {
			continue
		}
		delete(b.dirty, name)
		if name != "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// pass looks at a name once, and notes when to look again.
func (b *Backend) pass(ctx context.Context, name string) {
	st := b.state(name)
	again, err := b.reconcile(ctx, name, st)
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	was := st.problem
	st.retry, st.timer, st.problem = time.Time{}, again, ""
	if err == nil {
		st.retries = 0
	} else {
		st.problem = err.Error()
		st.retry = time.Now().Add(pause(st.retries, b.config.Times))
		st.retries++
	}
	changed := was != st.problem
	b.mu.Unlock()
	if changed {
		if err != nil {
			b.config.Log.Warn("cannot make engines what they should be; it is tried again", "name", name, "err", err)
		}
		b.signal()
	}
}

func (b *Backend) state(name string) *state {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names[name] == nil {
		b.names[name] = &state{counted: map[string]bool{}}
	}
	return b.names[name]
}

// pause is the time after the n-th failure in a row.
func pause(n int, t Times) time.Duration {
	return min(t.LeastPause<<min(n, 16), t.MostPause)
}

// reconcile makes what runs of a name what is asked for, as far as one pass can. It returns when to look again; zero when
// a change will tell.
func (b *Backend) reconcile(ctx context.Context, name string, st *state) (again time.Time, err error) {
	b.mu.Lock()
	w, asked := b.wanted[name]
	b.mu.Unlock()
	top, hasRoot := b.mirrors[kubeapi.ConfigMaps].Find(prefix + name)
	if !asked {
		s, ok := b.specOf(name)
		if !ok {
			return time.Time{}, nil
		}
		// Pods without the root are what is left of a name: they end.
		w = want{s, !hasRoot || top.Meta.Annotations[removedNote] != ""}
	}
	lives := b.lives(name)
	b.readLogs(ctx, lives)
	b.count(st, lives)
	if w.removed {
		return b.clear(ctx, name, lives, top, hasRoot)
	}
	owner, err := b.keepSurroundings(ctx, w.spec, top, hasRoot)
	if err != nil {
		return time.Time{}, err
	}
	return b.keepPods(ctx, w.spec, owner, st, lives)
}

// clear ends the pods of a name, and deletes its root when none is left.
func (b *Backend) clear(
	ctx context.Context, name string, lives []*life, top kubeapi.Object, hasRoot bool,
) (again time.Time, err error) {
	for _, l := range lives {
		if l.live() {
			if err := b.end(ctx, l); err != nil {
				return time.Time{}, err
			}
		}
		again = b.watchLost(again, l)
	}
	if len(lives) > 0 {
		return again, nil
	}
	if hasRoot {
		if err := b.client.Delete(ctx, kubeapi.ConfigMaps, prefix+name, top.Meta.UID, -1); err != nil {
			return time.Time{}, err
		}
		return time.Time{}, nil // the mirror tells when it has gone
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wanted[name].removed {
		delete(b.wanted, name)
	}
	delete(b.names, name)
	return time.Time{}, nil
}

func (b *Backend) end(ctx context.Context, l *life) error {
	return b.client.Delete(ctx, kubeapi.Pods, l.object.Meta.Name, l.object.Meta.UID, -1)
}

// watchLost returns when a pod that was told to end counts as lost, if that is sooner than the time given.
func (b *Backend) watchLost(again time.Time, l *life) time.Time {
	if !l.replica.Asked || l.replica.Phase == serving.Ended {
		return again
	}
	at := l.object.Meta.DeletionTimestamp.Add(b.config.Times.Lost + time.Second)
	if again.IsZero() || at.Before(again) {
		return at
	}
	return again
}

// keepSurroundings applies the root of a name and what stands around its pods, where they are not as they were applied.
func (b *Backend) keepSurroundings(ctx context.Context, s spec, top kubeapi.Object, hasRoot bool) (kubeapi.Owner, error) {
	object, err := root(s, false)
	if err != nil {
		return kubeapi.Owner{}, err
	}
	made, err := b.keep(ctx, kubeapi.ConfigMaps, top, hasRoot, object)
	if err != nil {
		return kubeapi.Owner{}, err
	}
	owner := kubeapi.ConfigMaps.Owner(made.Meta)
	for kind, object := range b.surroundings(s, owner) {
		now, there := b.mirrors[kind].Find(prefix + s.Name)
		if _, err := b.keep(ctx, kind, now, there, object); err != nil {
			return kubeapi.Owner{}, err
		}
	}
	return owner, nil
}

// keep applies an object unless it is as it was last applied. now is the object as the mirror has it.
func (b *Backend) keep(ctx context.Context, k kubeapi.Kind, now kubeapi.Object, there bool, object any) (kubeapi.Object, error) {
	name := now.Meta.Name
	if !there {
		name = nameOf(object)
	}
	fingerprint, err := hashOf(object)
	if err != nil {
		return kubeapi.Object{}, err
	}
	key := k.Plural + "/" + name
	b.mu.Lock()
	same := there && b.applied[key] == now.Meta.UID+" "+now.Meta.ResourceVersion+" "+fingerprint
	b.mu.Unlock()
	if same {
		return now, nil
	}
	made, err := b.client.Apply(ctx, k, name, object)
	if err != nil {
		return kubeapi.Object{}, err
	}
	b.mu.Lock()
	b.applied[key] = made.Meta.UID + " " + made.Meta.ResourceVersion + " " + fingerprint
	b.mu.Unlock()
	return made, nil
}

// count notes the replicas that ended by themselves, each once, and when one was ready.
func (b *Backend) count(st *state, lives []*life) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := map[string]bool{}
	for _, l := range lives {
		uid := l.object.Meta.UID
		there[uid] = true
		st.births = max(st.births, birth(l.object.Meta.Name))
		switch {
		case l.replica.Phase == serving.Ready:
			st.failures = 0
		case l.replica.Phase == serving.Ended && !l.replica.Asked && !st.counted[uid]:
			st.counted[uid] = true
			ended := time.Now()
			if l.replica.EndedAt != 0 {
				ended = l.replica.EndedAt.Std()
			}
			if at := ended.Add(pause(st.failures, b.config.Times)); at.After(st.next) {
				st.next = at
			}
			st.failures++
		}
	}
	for uid := range st.counted {
		if !there[uid] {
			delete(st.counted, uid)
		}
	}
}

// birth is the number at the end of a pod's name.
func birth(pod string) int {
	n, _ := strconv.Atoi(pod[strings.LastIndexByte(pod, '-')+1:]) // 0 for a pod that is not ours
	return n
}

// keepPods ends the pods that are too many or are not what the spec says, and makes those that are missing.
func (b *Backend) keepPods(
	ctx context.Context, s spec, owner kubeapi.Owner, st *state, lives []*life,
) (again time.Time, err error) {
	_, hash, err := b.podSpec(s)
	if err != nil {
		return time.Time{}, err
	}
	var good []*life
	for _, l := range lives {
		again = b.watchLost(again, l)
		switch {
		case !l.live():
		case l.hash != hash || l.slot < 0:
			if err := b.end(ctx, l); err != nil {
				return again, err
			}
		default:
			good = append(good, l)
		}
	}
	// Those that are not ready end first, and then those that began last.
	slices.SortStableFunc(good, func(x, y *life) int {
		return cmp.Compare(rank(x), rank(y))
	})
	for len(good) > s.Replicas {
		if err := b.end(ctx, good[len(good)-1]); err != nil {
			return again, err
		}
		good = good[:len(good)-1]
	}
	taken := map[int]bool{}
	for _, l := range good {
		taken[l.slot] = true
		if err := b.keepPod(ctx, s, owner, l); err != nil {
			return again, err
		}
	}
	missing := s.Replicas - len(good)
	if missing > 0 && time.Now().Before(st.next) {
		if again.IsZero() || st.next.Before(again) {
			again = st.next
		}
		return again, nil
	}
	for slot := 0; missing > 0; slot++ {
		if taken[slot] {
			continue
		}
		missing--
		st.births++
		name := fmt.Sprintf("%s%s-%d", prefix, s.Name, st.births)
		object, err := b.manifest(s, name, slot, owner, 0)
		if err != nil {
			return again, err
		}
		if _, err := b.keep(ctx, kubeapi.Pods, kubeapi.Object{}, false, object); err != nil {
			return again, err
		}
	}
	return again, nil
}

// rank orders the replicas that stay: the ready ones first.
func rank(l *life) int {
	if l.replica.Phase == serving.Ready {
		return 0
	}
	return 1
}

// keepPod makes the metadata of a pod what it was made with, and notes in it that it was ready.
func (b *Backend) keepPod(ctx context.Context, s spec, owner kubeapi.Owner, l *life) error {
	object, err := b.manifest(s, l.object.Meta.Name, l.slot, owner, l.replica.ReadyAt)
	if err != nil {
		return err
	}
	_, err = b.keep(ctx, kubeapi.Pods, l.object, true, object)
	return err
}
