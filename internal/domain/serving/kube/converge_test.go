package kube_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/serving/kube"
	"sovereign/internal/net/kubeapi"
)

// paths are where the kinds are that engines have, by their plural.
func (f *fixture) path(plural, name string) string {
	group := map[string]string{
		"networkpolicies": "/apis/networking.k8s.io/v1", "poddisruptionbudgets": "/apis/policy/v1", "jobs": "/apis/batch/v1",
	}[plural]
	if group == "" {
		group = "/api/v1"
	}
	return group + "/namespaces/" + f.namespace + "/" + plural + "/" + name
}

func (f *fixture) read(t *testing.T, object string) map[string]any {
	t.Helper()
	plural, name, _ := strings.Cut(object, "/")
	var found map[string]any
	f.c.must(t, http.MethodGet, f.path(plural, name), nil, &found)
	return found
}

// at returns a part of an object.
func at(object any, path ...any) any {
	for _, step := range path {
		switch key := step.(type) {
		case string:
			inside, _ := object.(map[string]any)
			object = inside[key]
		case int:
			list, _ := object.([]any)
			if key >= len(list) {
				return nil
			}
			object = list[key]
		}
	}
	return object
}

func spec(replicas int) serving.Spec {
	return serving.Spec{
		Name: "one", Engine: "serves", BaseModel: "tiny/bigram", Model: "dedicated/key", GPUType: serving.CPU, GPUCount: 1,
		Replicas: replicas,
	}
}

func opened(t *testing.T, c kube.Config) *kube.Backend {
	t.Helper()
	b, err := kube.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func apply(t *testing.T, b serving.Backend, s serving.Spec) {
	t.Helper()
	if err := b.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, b serving.Backend) []serving.Deployment {
	t.Helper()
	all, err := b.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// phases counts the replicas of a name by phase, those that were told to end apart.
func phases(all []serving.Deployment, name string) (ready, starting, ended, asked int) {
	for _, d := range all {
		if d.Spec.Name != name {
			continue
		}
		for _, r := range d.Replicas {
			switch {
			case r.Phase == serving.Ended:
				ended++
			case r.Asked:
				asked++
			case r.Phase == serving.Ready:
				ready++
			default:
				starting++
			}
		}
	}
	return ready, starting, ended, asked
}

// forgetAll removes everything, and forgets what has ended, until nothing is listed.
func forgetAll(t *testing.T, b serving.Backend) {
	t.Helper()
	eventually(t, func() string {
		all := list(t, b)
		for _, d := range all {
			if err := b.Remove(t.Context(), d.Spec.Name); err != nil {
				t.Fatal(err)
			}
			for _, r := range d.Replicas {
				if r.Phase != serving.Ended {
					continue
				}
				if err := b.Forget(t.Context(), d.Spec.Name, r.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(all) > 0 {
			return fmt.Sprintf("%+v is listed", all)
		}
		return ""
	})
}

// edits are what people do to objects, by their plural; of all kinds under "".
var edits = map[string][]string{
	"": {
		`{"metadata":{"labels":null}}`, `{"metadata":{"annotations":null}}`, `{"metadata":{"ownerReferences":null}}`,
		`{"metadata":{"finalizers":null}}`, `{"metadata":{"labels":{"sovereign/engine":"other","app.kubernetes.io/managed-by":"me"}}}`,
	},
	"configmaps": {
		`{"data":{"spec":"{}"}}`, `{"data":null}`, `{"data":{"spec":"not JSON"}}`,
		`{"metadata":{"annotations":{"sovereign/removed":"true"}}}`,
	},
	"services":             {`{"spec":{"selector":{"app":"other"}}}`, `{"spec":{"ports":[{"name":"api","port":8000,"targetPort":1}]}}`},
	"networkpolicies":      {`{"spec":{"ingress":[{}]}}`, `{"spec":{"podSelector":{"matchLabels":{"a":"b"}}}}`, `{"spec":{"ingress":null}}`},
	"poddisruptionbudgets": {`{"spec":{"minAvailable":9}}`, `{"spec":{"minAvailable":0}}`},
	"pods": {
		`{"metadata":{"labels":{"sovereign/hash":"other"}}}`, `{"metadata":{"labels":{"sovereign/slot":"7"}}}`,
		`{"metadata":{"annotations":{"sovereign/spec":"{}"}}}`, `{"spec":{"containers":[{"name":"engine","image":"other"}]}}`,
	},
}

// disturb does something to an object of the namespace, and says what.
func (f *fixture) disturb(t *testing.T, r *rand.Rand) string {
	t.Helper()
	all := f.objects(t)
	if len(all) == 0 {
		return "nothing is there"
	}
	object := all[r.IntN(len(all))]
	plural, name, _ := strings.Cut(object, "/")
	path := f.path(plural, name)
	switch r.IntN(3) {
	case 0:
		code, _ := f.c.call(t.Context(), http.MethodDelete, path, nil, nil)
		return fmt.Sprintf("delete %s: %d", object, code)
	case 1:
		grace := map[string]any{"gracePeriodSeconds": 0, "propagationPolicy": []string{"Foreground", "Background", "Orphan"}[r.IntN(3)]}
		code, _ := f.c.call(t.Context(), http.MethodDelete, path, grace, nil)
		return fmt.Sprintf("delete %s with %v: %d", object, grace, code)
	}
	patches := slices.Concat(edits[""], edits[plural])
	patch := patches[r.IntN(len(patches))]
	kind := "application/merge-patch+json"
	if strings.Contains(patch, "containers") { // of which the rest stays
		kind = "application/strategic-merge-patch+json"
	}
	code, err := f.c.callAs(t.Context(), adminToken, http.MethodPatch, path, kind, jsontext.Value(patch), nil)
	if code >= 300 && code != http.StatusNotFound {
		return fmt.Sprintf("edit %s by %s: %v", object, patch, err)
	}
	return fmt.Sprintf("edit %s by %s: %d", object, patch, code)
}

// wrong says what is not as a spec wants it.
func (f *fixture) wrong(t *testing.T, b serving.Backend, s serving.Spec) string {
	t.Helper()
	all := list(t, b)
	if ready, starting, ended, asked := phases(all, s.Name); ready != s.Replicas || starting+asked > 0 {
		return fmt.Sprintf("%d ready, %d starting, %d ended, %d told to end: %+v", ready, starting, ended, asked, all)
	}
	for _, d := range all {
		if d.Spec != s {
			return fmt.Sprintf("the spec is %+v", d.Spec)
		}
		for _, r := range d.Replicas { // the caller records ends
			if r.Phase == serving.Ended {
				if err := b.Forget(t.Context(), s.Name, r.ID); err != nil {
					return err.Error()
				}
			}
		}
	}
	objects := f.objects(t)
	if len(objects) != 4+s.Replicas {
		return fmt.Sprintf("objects: %v", objects)
	}
	var root map[string]any
	if code, _ := f.c.call(t.Context(), http.MethodGet, f.path("configmaps", "engine-"+s.Name), nil, &root); code != http.StatusOK {
		return "no root"
	}
	for _, o := range objects {
		plural, name, _ := strings.Cut(o, "/")
		var found map[string]any
		if code, _ := f.c.call(t.Context(), http.MethodGet, f.path(plural, name), nil, &found); code != http.StatusOK {
			return o + " has gone"
		}
		text, _ := json.Marshal(found)
		switch {
		case at(found, "metadata", "labels", "sovereign/engine") != s.Name,
			at(found, "metadata", "labels", "app.kubernetes.io/managed-by") != "sovereign",
			plural != "configmaps" && at(found, "metadata", "ownerReferences", 0, "uid") != at(root, "metadata", "uid"),
			plural == "configmaps" && at(found, "metadata", "annotations", "sovereign/removed") != "false",
			plural == "pods" && at(found, "metadata", "finalizers", 0) != "sovereign/recorded",
			plural == "pods" && at(found, "metadata", "annotations", "sovereign/ready-at") == nil,
			plural == "pods" && at(found, "spec", "containers", 0, "image") != "engines.example/test:1",
			plural == "services" && at(found, "spec", "selector", "sovereign/engine") != s.Name,
			plural == "services" && at(found, "spec", "ports", 0, "targetPort") != "api",
			plural == "networkpolicies" && at(found, "spec", "ingress", 0, "from", 0, "podSelector", "matchLabels", "app.kubernetes.io/name") != "sovereign",
			plural == "networkpolicies" && at(found, "spec", "podSelector", "matchLabels", "sovereign/engine") != s.Name,
			plural == "poddisruptionbudgets" && at(found, "spec", "minAvailable") != float64(max(s.Replicas-1, 0)):
			return o + " is " + string(text)
		}
	}
	return ""
}

// seed returns a random generator whose seed is in the test's output.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", n)
	return rand.New(rand.NewPCG(n, n))
}

func TestWhateverIsDeletedOrEditedItConverges(t *testing.T) {
	f := newFixture(t)
	r := seed(t)
	b := f.Open(t)
	defer func() { b.Close() }()
	s := spec(2)
	apply(t, b, s)
	for round := range 20 {
		var done []string
		for range 1 + r.IntN(5) {
			switch r.IntN(8) {
			case 0: // a server that restarts, and asks for what it wants again
				b.Close()
				done = append(done, "restart", f.disturb(t, r))
				b = f.Open(t)
				apply(t, b, s)
			case 1:
				s.Replicas = 1 + r.IntN(3)
				apply(t, b, s)
				done = append(done, fmt.Sprintf("%d replicas", s.Replicas))
			default:
				done = append(done, f.disturb(t, r))
			}
		}
		t.Logf("round %d: %s", round, strings.Join(done, "; "))
		eventually(t, func() string { return f.wrong(t, b, s) })
		if t.Failed() {
			return
		}
	}
	forgetAll(t, b)
	f.Check(t, nil)
}

// serverMain is a server that asks for other things all the time, until it is killed.
func serverMain() {
	var at kubeapi.Cluster
	if err := json.Unmarshal([]byte(os.Getenv("SERVER_CONFIG")), &at); err != nil {
		panic(err)
	}
	b, err := kube.Open(configFor(at))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for {
		s := spec(rand.IntN(4))
		s.Name = []string{"one", "two", "three"}[rand.IntN(3)]
		s.Model = []string{"dedicated/a", "dedicated/b"}[rand.IntN(8)/7]
		if rand.IntN(4) == 0 {
			_ = b.Remove(ctx, s.Name) // whatever fails, the next server goes on
		} else {
			_ = b.Apply(ctx, s)
		}
		all, _ := b.List(ctx)
		for _, d := range all {
			for _, r := range d.Replicas {
				if r.Phase == serving.Ended && rand.IntN(2) == 0 {
					_ = b.Forget(ctx, d.Spec.Name, r.ID)
				}
			}
		}
		time.Sleep(rand.N(200 * time.Millisecond))
	}
}

func TestAServerThatIsKilledLeaksNoObject(t *testing.T) {
	f := newFixture(t)
	r := seed(t)
	text, err := json.Marshal(f.c.reach("server.token", f.namespace))
	if err != nil {
		t.Fatal(err)
	}
	kills := 20
	for range kills {
		server := exec.Command(os.Args[0])
		server.Env = append(os.Environ(), "SERVER_CONFIG="+string(text))
		server.Stderr = t.Output()
		if err := startTied(server); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(100+r.IntN(2500)) * time.Millisecond) // when is what is tried
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	b := f.Open(t)
	defer b.Close()
	all := list(t, b)
	t.Logf("after %d kills: %d names, %d objects, %d engines were started", kills, len(all), len(f.objects(t)), f.kubelet.started)
	f.Check(t, all) // everything that is there is listed
	s := spec(2)
	apply(t, b, s)
	for _, name := range []string{"two", "three"} {
		if err := b.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() string {
		for _, d := range list(t, b) {
			for _, r := range d.Replicas {
				if r.Phase == serving.Ended {
					if err := b.Forget(t.Context(), d.Spec.Name, r.ID); err != nil {
						return err.Error()
					}
				}
			}
		}
		return f.wrong(t, b, s)
	})
	forgetAll(t, b)
	f.Check(t, nil)
}

// A node that is cut off says nothing of its pods. Kubernetes deletes them; nobody sees their ends.
func TestAReplicaOnALostNodeIsReplacedAndItsEndIsUnknown(t *testing.T) {
	f := newFixture(t)
	b := opened(t, f.config(t))
	apply(t, b, spec(1))
	eventually(t, func() string { return f.wrong(t, b, spec(1)) })
	before := list(t, b)[0].Replicas[0]
	f.kubelet.mu.Lock()
	f.kubelet.silent = true
	f.kubelet.mu.Unlock()
	f.c.must(t, http.MethodDelete, f.path("pods", "engine-one-1"), nil, nil)
	eventually(t, func() string {
		for _, r := range list(t, b)[0].Replicas {
			if r.ID == before.ID && r.Phase == serving.Ended {
				if r.EndedAt != 0 || !r.Asked || r.ReadyAt != before.ReadyAt || !strings.Contains(r.Reason, "node") {
					t.Errorf("the lost one is %+v", r)
				}
				return ""
			}
		}
		return "it is not ended"
	})
	if err := b.Forget(t.Context(), "one", before.ID); err != nil {
		t.Fatal(err)
	}
	f.kubelet.mu.Lock()
	f.kubelet.silent = false
	f.kubelet.mu.Unlock()
	eventually(t, func() string { return f.wrong(t, b, spec(1)) })
	if after := list(t, b)[0].Replicas[0]; after.ID == before.ID {
		t.Error("it is the same replica")
	}
}
