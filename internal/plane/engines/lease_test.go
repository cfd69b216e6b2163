package engines

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/net/fastpath"
	"sovereign/internal/net/life"
	"sovereign/internal/wire/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, c GroupConfig) *Group {
	t.Helper()
	r := NewRegistry()
	c.Name = "g"
	t.Cleanup(func() { r.Close("g") })
	return r.Open(c)
}

func acquire(t *testing.T, g *Group) *Lease {
	t.Helper()
	l, err := g.Acquire(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// closings counts how often the sender of a replica was closed.
type closings struct {
	upstream.Sender
	n atomic.Int64
}

func (c *closings) Close() {
	c.n.Add(1)
	c.Sender.Close()
}

func TestARequestReachesTheReplicaAndItsStreamCanBePolled(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "" || r.Header.Get("X-Client-Request-Id") != "req_1" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		_, _ = w.Write(body)
	}))
	defer server.Close()
	g := open(t, GroupConfig{})
	g.Set([]Replica{{ID: "a", BaseURL: server.URL + "/v1"}})
	l := acquire(t, g)
	defer l.Release(false)
	response, err := l.Send(&life.Life{}, &upstream.Request{
		Model: &live.Model{Provider: live.Engines}, Path: upstream.ChatPath, Body: [][]byte{[]byte("{}")}, ID: "req_1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := response.Body.(fastpath.PolledBody); !ok {
		t.Errorf("a %T cannot be polled", response.Body)
	}
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "{}" || response.Body.Close() != nil {
		t.Errorf("%q %v", text, err)
	}
}

func TestAReplicaThatWasLeftOutIsClosedWhenItIsIdle(t *testing.T) {
	g := open(t, GroupConfig{})
	busy, idle := Replica{ID: "busy", BaseURL: "http://127.0.0.1:1"}, Replica{ID: "idle", BaseURL: "http://127.0.0.1:1"}
	g.Set([]Replica{busy, idle})
	senders := map[string]*closings{}
	for _, r := range g.replicas {
		senders[r.ID] = &closings{Sender: r.sender}
		r.sender = senders[r.ID]
	}
	l := acquire(t, g)
	if l.Replica() != busy {
		t.Fatalf("%v", l.Replica())
	}
	g.Set([]Replica{{ID: "new", BaseURL: "http://127.0.0.1:1"}})
	if senders["busy"].n.Load() != 0 || senders["idle"].n.Load() != 1 || g.Busy("busy") != 1 {
		t.Errorf("%d %d closed, %d busy", senders["busy"].n.Load(), senders["idle"].n.Load(), g.Busy("busy"))
	}
	if l.Release(false); senders["busy"].n.Load() != 1 || g.Busy("busy") != 0 {
		t.Errorf("%d closed, %d busy", senders["busy"].n.Load(), g.Busy("busy"))
	}
}

func TestAReplicaThatComesBackKeepsItsRequests(t *testing.T) {
	g := open(t, GroupConfig{})
	a := []Replica{{ID: "a", BaseURL: "http://127.0.0.1:1"}}
	g.Set(a)
	l := acquire(t, g)
	g.Set(nil)
	g.Set(a)
	if g.Busy("a") != 1 || len(g.leaving) != 0 {
		t.Errorf("%d busy, %d leaving", g.Busy("a"), len(g.leaving))
	}
	l.Release(false)
	acquire(t, g).Release(false)
}

func TestAReplicaThatFailedIsAskedLastForAWhile(t *testing.T) {
	g := open(t, GroupConfig{})
	now := time.Now()
	g.now = func() time.Time { return now }
	g.Set([]Replica{{ID: "a", BaseURL: "http://127.0.0.1:1"}, {ID: "b", BaseURL: "http://127.0.0.1:1"}})
	failed := acquire(t, g)
	failed.Release(true)
	for range 5 { // however busy the other one is
		if l := acquire(t, g); l.Replica() == failed.Replica() {
			t.Error("the replica that failed was asked")
		}
	}
	now = now.Add(shunTime)
	if l := acquire(t, g); l.Replica() != failed.Replica() {
		t.Error("the replica that failed is not asked any more")
	}
}

func TestTheOnlyReplicaIsAskedAlsoWhenItFailed(t *testing.T) {
	g := open(t, GroupConfig{})
	g.Set([]Replica{{ID: "a", BaseURL: "http://127.0.0.1:1"}})
	acquire(t, g).Release(true)
	acquire(t, g).Release(true)
}

func TestPrepareIsCalledWithTheModelAndEndedWithTheRequest(t *testing.T) {
	var ended atomic.Int64
	g := open(t, GroupConfig{Wait: time.Hour, Prepare: func(_ context.Context, r Replica, model string) (func(), error) {
		if r.ID != "a" || model != "m" {
			t.Errorf("%v %s", r, model)
		}
		return func() { ended.Add(1) }, nil
	}})
	g.Set([]Replica{{ID: "a", BaseURL: "http://127.0.0.1:1"}})
	l := acquire(t, g)
	if ended.Load() != 0 || g.Busy("a") != 1 {
		t.Errorf("ended %d times, %d busy", ended.Load(), g.Busy("a"))
	}
	if l.Release(false); ended.Load() != 1 {
		t.Errorf("ended %d times", ended.Load())
	}
}

func TestAReplicaThatCannotBePreparedIsGivenBack(t *testing.T) {
	broken := errors.New("no room")
	full := fault.Unavailable.New("every slot is taken")
	for name, c := range map[string]struct {
		prepare func(context.Context) error
		want    func(error) bool
	}{
		"an error":             {func(context.Context) error { return broken }, func(err error) bool { return errors.Is(err, broken) }},
		"a refusal":            {func(context.Context) error { return full }, func(err error) bool { return errors.Is(err, full) }},
		"longer than the wait": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, func(err error) bool { return fault.From(err).Kind == fault.Unavailable }},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup("g")
			g.configure(GroupConfig{Wait: time.Minute, Prepare: func(ctx context.Context, _ Replica, _ string) (func(), error) {
				return nil, c.prepare(ctx)
			}})
			g.Set([]Replica{{ID: "a", BaseURL: "http://127.0.0.1:1"}})
			if _, err := g.Acquire(t.Context(), "m"); err == nil || !c.want(err) || g.Busy("a") != 0 {
				t.Errorf("%s: %v, %d busy", name, err, g.Busy("a"))
			}
		})
	}
}

func TestTheWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup("g")
		g.configure(GroupConfig{Wait: time.Minute})
		before := time.Now()
		_, err := g.Acquire(t.Context(), "m")
		f := fault.From(err)
		if waited := time.Since(before); err == nil || f.Kind != fault.Unavailable || f.RetryAfter <= 0 || waited != time.Minute {
			t.Errorf("%v after %s", err, waited)
		}
		if u := g.Use(); u != (Use{}) {
			t.Errorf("%+v", u)
		}
	})
}

func TestAClosedGroupRefuses(t *testing.T) {
	r := NewRegistry()
	g := r.Open(GroupConfig{Name: "g", Wait: time.Hour})
	waiting := make(chan error)
	go func() {
		_, err := r.Acquire(context.Background(), "g", "m")
		waiting <- err
	}()
	for g.Use().Waiting == 0 {
		runtime.Gosched()
	}
	r.Close("g")
	r.Close("g")
	g.Set([]Replica{{ID: "late", BaseURL: "http://127.0.0.1:1"}})
	for name, acquire := range map[string]func() error{
		"waiting":   func() error { return <-waiting },
		"by name":   func() error { _, err := r.Acquire(t.Context(), "g", "m"); return err },
		"the group": func() error { _, err := g.Acquire(t.Context(), "m"); return err },
	} {
		if err := acquire(); err == nil || fault.From(err).Kind != fault.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.Find("g") != nil {
		t.Error("a closed group is found")
	}
}

func TestOpeningAgainKeepsReplicasAndRequests(t *testing.T) {
	r := NewRegistry()
	g := r.Open(GroupConfig{Name: "g"})
	g.Set([]Replica{{ID: "a", BaseURL: "http://127.0.0.1:1"}})
	l := acquire(t, g)
	prepared := false
	again := r.Open(GroupConfig{Name: "g", Wait: time.Hour, Prepare: func(context.Context, Replica, string) (func(), error) {
		prepared = true
		return func() {}, nil
	}})
	if again != g || r.Find("g") != g || g.Busy("a") != 1 {
		t.Errorf("%p %p, %d busy", again, g, g.Busy("a"))
	}
	l.Release(false)
	if acquire(t, g).Release(false); !prepared {
		t.Error("the new configuration is not in force")
	}
	r.Close("g")
}

// Whoever is woken may say at once what there is.
func TestWakeMaySetReplicasOrFail(t *testing.T) {
	var g *Group
	g = open(t, GroupConfig{Wait: time.Hour, Wake: func() { g.Set([]Replica{{ID: "a", BaseURL: "http://127.0.0.1:1"}}) }})
	acquire(t, g).Release(false)
	var f *Group
	f = NewRegistry().Open(GroupConfig{Name: "f", Wait: time.Hour, Wake: func() { f.Fail(errors.New("no image")) }})
	for range 2 {
		if _, err := f.Acquire(t.Context(), "m"); err == nil || !strings.Contains(err.Error(), "no image") {
			t.Error(err)
		}
	}
}

func TestAReplicaWithoutAURLFailsItsRequests(t *testing.T) {
	g := open(t, GroupConfig{})
	g.Set([]Replica{{ID: "a", BaseURL: "::"}})
	l := acquire(t, g)
	defer l.Release(true)
	if _, err := l.Send(t.Context(), &upstream.Request{Path: upstream.ChatPath}); err == nil {
		t.Error("it was sent")
	}
}
