package kube_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/net/kubeapi"
)

// A podLife is how long a pod was ready, as the API server showed it.
type podLife struct {
	ready, finished time.Time
	noted           bool // the server has noted that it was ready
}

// A census writes down the lives of all pods of a namespace, from a watch of its own.
type census struct {
	mu    sync.Mutex
	lives map[string]*podLife // by uid
}

func startCensus(t *testing.T, f *fixture) *census {
	t.Helper()
	admin, err := kubeapi.Open(f.c.reach("admin.token", f.namespace))
	if err != nil {
		t.Fatal(err)
	}
	c := &census{lives: map[string]*podLife{}}
	mirror := admin.Mirror(kubeapi.Pods, func(kubeapi.Object) bool { return true }, c.see, func(error) {})
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { mirror.Run(ctx) })
	t.Cleanup(func() { stop(); done.Wait(); admin.Close() })
	return c
}

// see notes what a pod says.
func (c *census) see(o kubeapi.Object) {
	var status struct {
		Conditions []struct {
			Type   string    `json:"type"`
			Status string    `json:"status"`
			Since  time.Time `json:"lastTransitionTime"`
		} `json:"conditions"`
		Containers []struct {
			State struct {
				Terminated *struct {
					FinishedAt time.Time `json:"finishedAt"`
				} `json:"terminated"`
			} `json:"state"`
		} `json:"containerStatuses"`
	}
	if json.Unmarshal(o.Status, &status) != nil {
		return // it has none yet
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lives[o.Meta.UID]
	if l == nil {
		l = &podLife{}
		c.lives[o.Meta.UID] = l
	}
	_, noted := o.Meta.Annotations["sovereign/ready-at"]
	l.noted = l.noted || noted
	for _, one := range status.Conditions {
		if one.Type == "Ready" && one.Status == "True" && l.ready.IsZero() {
			l.ready = one.Since
		}
	}
	for _, one := range status.Containers {
		if one.State.Terminated != nil {
			l.finished = one.State.Terminated.FinishedAt
		}
	}
}

// A fleet is endpoints of a server whose engines are pods.
type fleet struct {
	*gateway
	f         *fixture
	endpoints []string
}

type dedicated struct {
	ID       string  `json:"id"`
	Status   string  `json:"status"`
	Replicas int64   `json:"replicas"`
	Spent    float64 `json:"spent_usd"`
}

func startFleet(t *testing.T, f *fixture) *fleet {
	t.Helper()
	g := newGateway(t, f, func(*gateway) string {
		return fmt.Sprintf(`serving:
  backend: kubernetes
  engines:
    - name: test
      base_models: ["test/*"]
      command: [%q, --host, "{host}", --port, "{port}", --name, "{name}"]
      env: {ENGINE_BEHAVIOUR: serves}
      image: "engines.example/test:1"
      gpu_types: [cpu]
`, os.Args[0])
	})
	var topped map[string]any
	g.admin(&topped, "wallet", "topup", "--workspace", "default", "--amount-usd", "975")
	fl := &fleet{gateway: g, f: f}
	for i := range 2 {
		var made dedicated
		g.call(http.MethodPost, "/v1/dedicated-endpoints", "application/json", fmt.Appendf(nil,
			`{"name": "drill %d", "baseModel": "test/words", "minReplicas": %d, "maxReplicas": 2}`, i, i+1), &made)
		fl.endpoints = append(fl.endpoints, made.ID)
	}
	return fl
}

// send sends a request that the death of the server may cut off.
func (fl *fleet) send(ctx context.Context, method, path string) {
	r, err := http.NewRequestWithContext(ctx, method, fl.url+path, bytes.NewReader(nil))
	if err != nil {
		return
	}
	r.Header.Set("Authorization", "Bearer "+fl.key)
	if answer, err := http.DefaultClient.Do(r); err == nil {
		_ = answer.Body.Close()
	}
}

// disturb stops or starts an endpoint, or kills an engine, or does nothing.
func (fl *fleet) disturb(ctx context.Context, r *rand.Rand) {
	path := "/v1/dedicated-endpoints/" + fl.endpoints[r.IntN(len(fl.endpoints))]
	switch r.IntN(4) {
	case 0:
		fl.send(ctx, http.MethodPost, path+"/stop")
	case 1:
		fl.send(ctx, http.MethodPost, path+"/start")
	case 2:
		for _, one := range fl.f.kubelet.runs() {
			one.signal(syscall.SIGKILL)
			return
		}
	}
}

// charged returns the seconds that each replica is charged, by its id. A second costs a cent.
func (fl *fleet) charged(t *testing.T) map[string]float64 {
	t.Helper()
	var page struct {
		Data []struct {
			ID      string  `json:"request_id"`
			Model   string  `json:"model"`
			Charged float64 `json:"charged_usd"`
		} `json:"data"`
		More bool `json:"has_more"`
	}
	fl.admin(&page, "usage", "--workspace", "default", "--limit", "1000")
	if page.More {
		t.Fatal("there are more charges than one page has")
	}
	all, seen := map[string]float64{}, map[string]bool{}
	for _, row := range page.Data {
		if seen[row.ID] {
			t.Errorf("%s is charged twice", row.ID)
		}
		seen[row.ID] = true
		replica, _, _ := strings.Cut(row.ID, ".")
		all[replica] += row.Charged * 100
	}
	return all
}

// The server is killed at random moments, while endpoints are stopped and started and engines die. What is left is what
// was asked for, and no second is charged that a pod did not live by what the API server shows of it.
func TestAServerThatIsKilledBillsNoSecondTwice(t *testing.T) {
	f := newFixture(t)
	lives := startCensus(t, f)
	fl := startFleet(t, f)
	r := seed(t)
	const kills = 20
	for range kills {
		ctx, cancel := context.WithCancel(context.Background())
		var asking sync.WaitGroup
		wait, act := time.Duration(r.IntN(4000))*time.Millisecond, rand.New(rand.NewPCG(r.Uint64(), 1))
		asking.Go(func() {
			for ctx.Err() == nil {
				fl.disturb(ctx, act)
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(act.IntN(2000)) * time.Millisecond):
				}
			}
		})
		time.Sleep(wait) // when is what is tried
		fl.kill()
		cancel()
		asking.Wait()
		fl.start()
	}
	for _, id := range fl.endpoints {
		eventually(t, func() string { // it may be stopping
			var deleted map[string]any
			fl.call(http.MethodDelete, "/v1/dedicated-endpoints/"+id, "", nil, &deleted)
			return ""
		})
	}
	f.Check(t, nil)
	eventually(t, func() string {
		var wallet struct {
			Held float64 `json:"held_usd"`
		}
		fl.admin(&wallet, "wallet", "show", "--workspace", "default")
		return missing(wallet.Held == 0)
	})
	fl.compare(t, lives)
	var proof struct {
		OK bool `json:"ok"`
	}
	if fl.admin(&proof, "ledger", "verify"); !proof.OK {
		t.Error("the ledger does not prove")
	}
}

// compare compares what is charged with the lives of pods. Times of pods are whole seconds.
func (fl *fleet) compare(t *testing.T, c *census) {
	t.Helper()
	charged := fl.charged(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	var lived, billed float64
	ready := 0
	for uid, l := range c.lives {
		life := 0.0
		if !l.ready.IsZero() {
			ready++
			life = l.finished.Sub(l.ready).Seconds()
		}
		lived, billed = lived+life, billed+charged[uid]
		switch at := charged[uid]; {
		case l.finished.IsZero() && !l.ready.IsZero():
			t.Errorf("nobody saw the pod %s end", uid)
		case at > life+1e-6:
			t.Errorf("the pod %s was ready for %v s, and %v s are charged", uid, life, at)
		case l.noted && at < life-1:
			t.Errorf("the pod %s was ready for %v s, and only %v s are charged", uid, life, at)
		}
		delete(charged, uid)
	}
	t.Logf("%d pods were ready for %.0f s, and %.0f s are charged", ready, lived, billed)
	if len(charged) > 0 {
		t.Errorf("charged, and no pod: %v", charged)
	}
	if ready < 5 {
		t.Errorf("%d pods were ready: the test has tried nothing", ready)
	}
}
