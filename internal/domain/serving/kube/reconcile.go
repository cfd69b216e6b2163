package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/panics"
	"sovereign/internal/domain/serving"
	"sovereign/internal/net/kubeapi"
)

// passEvery is the least time between two passes. It bounds the rate of updates when another controller changes the
// same fields.
const passEvery = 100 * time.Millisecond

// lookAgain is after which time all names are looked at, though nothing was heard of them.
const lookAgain = time.Minute

// loop makes what runs what is asked for, until ctx ends.
func (b *Backend) loop(ctx context.Context) {
	defer panics.Contain(b.config.Log, "engines in the cluster")
	if b.synced(ctx) != nil {
		return
	}
	b.markAll()
	all := time.NewTicker(lookAgain)
	defer all.Stop()
	tick := time.NewTicker(passEvery)
	defer tick.Stop()
	for leads := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-all.C:
			b.markAll()
		case <-tick.C:
		}
		was := leads
		if leads = b.config.Serving == nil || b.config.Serving() == nil; !leads {
			if was {
				b.forgetWanted()
			}
			continue
		}
		for _, name := range b.due() {
			b.pass(ctx, name)
		}
	}
}

// forgetWanted forgets what was asked for: another server may ask for something else meanwhile, and the cluster knows.
func (b *Backend) forgetWanted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.wanted)
}

// markAll marks all names, and lets go of what is known of pods that are gone.
func (b *Backend) markAll() {
	uids := map[string]bool{}
	for _, o := range b.mirrors[kubeapi.Pods].All() {
		uids[o.Meta.UID] = true
	}
	names := map[string]bool{}
	for k, m := range b.mirrors {
		for _, o := range m.All() {
			names[belongs(k, o)] = true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.wanted {
		names[name] = true
	}
	maps.DeleteFunc(b.lines, func(uid string, _ []string) bool { return !uids[uid] })
	maps.DeleteFunc(b.applied, func(key string, a applied) bool {
		return strings.HasPrefix(key, kubeapi.Pods.Plural+"/") && !uids[a.uid]
	})
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
	was, timed := st.problem, !st.timer.IsZero() && !time.Now().Before(st.timer)
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
	if changed && err != nil {
		b.config.Log.Warn("cannot make engines what they should be; it is tried again", "name", name, "err", err)
	}
	if changed || timed { // a pod that counts as lost tells nobody
		b.signal()
	}
}

func (b *Backend) state(name string) *state {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names[name] == nil {
		b.names[name] = &state{counted: map[string]bool{}, slots: map[int]*slotState{}}
	}
	return b.names[name]
}

// pause is the time after the n-th failure in a row.
func pause(n int, t Times) time.Duration {
	return min(t.LeastPause<<min(n, 16), t.MostPause)
}

// reconcile makes what runs of a name what is asked for, as far as one pass can. It returns when to look again; zero
// when a change will tell.
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
		w = want{s, !hasRoot || top.Meta.Annotations[removedNote] == "true"}
	}
	lives := b.lives(name)
	b.readLogs(ctx, lives)
	b.count(st, lives)
	if w.removed {
		return b.clear(ctx, name, lives, top, hasRoot)
	}
	owner, err := b.keepSurroundings(ctx, w.spec)
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
		return time.Time{}, b.client.Delete(ctx, kubeapi.ConfigMaps, top.Meta, -1) // the mirror tells when it has gone
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
	return b.client.Delete(ctx, kubeapi.Pods, kubeapi.Meta{Name: l.object.Meta.Name, UID: l.object.Meta.UID}, -1)
}

// watchLost returns when a pod that was told to end counts as lost, if that is sooner than the time given.
func (b *Backend) watchLost(again time.Time, l *life) time.Time {
	if !l.replica.Asked || l.replica.Phase == serving.Ended {
		return again
	}
	return sooner(again, l.object.Meta.DeletionTimestamp.Add(b.config.Times.Lost+time.Second))
}

// keepSurroundings applies the root of a name and what stands around its pods, where they are not as they were applied.
func (b *Backend) keepSurroundings(ctx context.Context, s spec) (kubeapi.Owner, error) {
	object, err := root(s, false)
	if err != nil {
		return kubeapi.Owner{}, err
	}
	made, err := b.keep(ctx, kubeapi.ConfigMaps, object.Meta.Name, object)
	if err != nil {
		return kubeapi.Owner{}, err
	}
	owner := kubeapi.ConfigMaps.Owner(made.Meta)
	for kind, object := range b.surroundings(s, owner) {
		if _, err := b.keep(ctx, kind, prefix+s.Name, object); err != nil {
			return kubeapi.Owner{}, err
		}
	}
	return owner, nil
}

// keep applies an object unless it is as it was last applied. An apply that changes nothing makes no new version.
func (b *Backend) keep(ctx context.Context, k kubeapi.Kind, name string, object any) (kubeapi.Object, error) {
	text, err := json.Marshal(object, json.Deterministic(true))
	if err != nil {
		return kubeapi.Object{}, fmt.Errorf("write the %s %s: %w", k.Name, name, err)
	}
	now, there := b.mirrors[k].Find(name)
	key := k.Plural + "/" + name
	as := func(o kubeapi.Object) applied {
		return applied{o.Meta.UID, o.Meta.ResourceVersion, sha256.Sum256(text)}
	}
	if there && b.applied[key] == as(now) {
		return now, nil
	}
	made, err := b.client.Apply(ctx, k, name, object)
	if err != nil {
		return kubeapi.Object{}, err
	}
	b.applied[key] = as(made)
	b.mirrors[k].Add(made)
	return made, nil
}

// count notes the replicas that ended by themselves, each once, and those that are ready.
func (b *Backend) count(st *state, lives []*life) {
	b.mu.Lock()
	if st.fresh {
		st.fresh = false
		clear(st.slots)
		for _, l := range lives {
			st.counted[l.object.Meta.UID] = true
		}
	}
	b.mu.Unlock()
	there := map[string]bool{}
	for _, l := range lives {
		uid := l.object.Meta.UID
		there[uid] = true
		st.births = max(st.births, podNumber(l.object.Meta.Name))
		slot := st.slots[l.slot]
		if slot == nil {
			slot = &slotState{}
			st.slots[l.slot] = slot
		}
		switch {
		case l.replica.Phase == serving.Ready:
			slot.failures = 0
		case l.replica.Phase == serving.Ended && !l.replica.Asked && !st.counted[uid]:
			st.counted[uid] = true
			slot.next = time.Now().Add(pause(slot.failures, b.config.Times))
			slot.failures++
		}
	}
	maps.DeleteFunc(st.counted, func(uid string, _ bool) bool { return !there[uid] })
}

// podNumber is the number at the end of a pod's name.
func podNumber(pod string) int {
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
	for slot, missing := 0, s.Replicas-len(good); missing > 0; slot++ {
		if taken[slot] {
			continue
		}
		missing--
		if before := st.slots[slot]; before != nil && time.Now().Before(before.next) {
			again = sooner(again, before.next)
			continue
		}
		if err := b.addPod(ctx, s, owner, st, slot); err != nil {
			return again, err
		}
	}
	return again, nil
}

// sooner returns the earlier of two times, of which the first may be none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// addPod makes a pod.
func (b *Backend) addPod(ctx context.Context, s spec, owner kubeapi.Owner, st *state, slot int) error {
	st.births++
	name := fmt.Sprintf("%s%s-%d", prefix, s.Name, st.births)
	object, err := b.manifest(s, name, "", slot, owner, 0)
	if err != nil {
		return err
	}
	_, err = b.keep(ctx, kubeapi.Pods, name, object)
	return err
}

// rank orders the replicas that stay: the ready ones first.
func rank(l *life) int {
	if l.replica.Phase == serving.Ready {
		return 0
	}
	return 1
}

// keepPod makes a pod what it was made as, and notes in it when it was ready. One that has gone meanwhile is not made
// again, since its uid is part of what is applied.
func (b *Backend) keepPod(ctx context.Context, s spec, owner kubeapi.Owner, l *life) error {
	m := l.object.Meta
	object, err := b.manifest(s, m.Name, m.UID, l.slot, owner, max(l.replica.ReadyAt, l.readyAt))
	if err != nil {
		return err
	}
	_, err = b.keep(ctx, kubeapi.Pods, m.Name, object)
	if kubeapi.Is(err, http.StatusConflict, http.StatusNotFound) {
		return nil
	}
	return err
}
