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

func TestEveryObjectIsWhatTheSpecSaysAndOneDeletionCollectsAll(t *testing.T) {
	f := newFixture(t)
	f.kubelet.full = true // of GPUs there are none
	c := f.config(t)
	c.Claim, c.ClaimPath, c.Versions, c.PullSecrets = "data", "/data", "/data/engines/models", []string{"registry"}
	b := opened(t, c)
	s := spec(3)
	s.GPUType, s.GPUCount, s.Folder, s.Version, s.Workspace = "h200", 2, "/data/engines/models/abc", "mv_1", "ws_1"
	apply(t, b, s)
	eventually(t, func() string {
		if n := len(f.objects(t)); n != 7 {
			return fmt.Sprintf("%d objects", n)
		}
		if d := list(t, b)[0]; !strings.Contains(d.Problem, "Insufficient nvidia.com/gpu") {
			return fmt.Sprintf("the problem is %q", d.Problem)
		}
		return ""
	})
	pod := f.read(t, "pods/engine-one-1")
	root := f.read(t, "configmaps/engine-one")
	for what, pair := range map[string][2]any{
		"GPUs":         {at(pod, "spec", "containers", 0, "resources", "limits", "nvidia.com/gpu"), "2"},
		"requests":     {at(pod, "spec", "containers", 0, "resources", "requests", "nvidia.com/gpu"), "2"},
		"node":         {at(pod, "spec", "nodeSelector", "nvidia.com/gpu.product"), "NVIDIA-H200"},
		"files":        {at(pod, "spec", "containers", 0, "volumeMounts", 2, "subPath"), "engines/models/abc"},
		"read only":    {at(pod, "spec", "containers", 0, "volumeMounts", 2, "readOnly"), true},
		"token":        {at(pod, "spec", "automountServiceAccountToken"), false},
		"health":       {at(pod, "spec", "containers", 0, "readinessProbe", "httpGet", "path"), "/health"},
		"pull secret":  {at(pod, "spec", "imagePullSecrets", 0, "name"), "registry"},
		"quality":      {at(pod, "spec", "restartPolicy"), "Never"},
		"owner":        {at(pod, "metadata", "ownerReferences", 0, "uid"), at(root, "metadata", "uid")},
		"service":      {at(f.read(t, "services/engine-one"), "spec", "clusterIP"), "None"},
		"budget":       {at(f.read(t, "poddisruptionbudgets/engine-one"), "spec", "minAvailable"), 2.0},
		"who may call": {at(f.read(t, "networkpolicies/engine-one"), "spec", "ingress", 0, "from", 0, "podSelector", "matchLabels", "app.kubernetes.io/name"), "sovereign"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %v, not %v", what, pair[0], pair[1])
		}
	}
	b.Close()
	f.c.must(t, http.MethodDelete, f.path("configmaps", "engine-one"), nil, nil)
	eventually(t, func() string { // what has a record to be taken waits for that
		for _, o := range f.objects(t) {
			if !strings.HasPrefix(o, "pods/") || at(f.read(t, o), "metadata", "deletionTimestamp") == nil {
				return o + " is left"
			}
		}
		return ""
	})
	b = opened(t, c)
	forgetAll(t, b)
	f.Check(t, nil)
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

// The server may do what its Role says. What it does not need, it may not do: engines cannot be reached through its token.
func TestTheRoleAllowsNothingElse(t *testing.T) {
	f := newFixture(t)
	other := f.c.namespace(t)
	f.c.must(t, http.MethodDelete, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+other+"/rolebindings/sovereign", nil, nil)
	mine := "/api/v1/namespaces/" + f.namespace
	for _, c := range []struct{ method, path string }{
		{http.MethodGet, mine + "/secrets"}, {http.MethodGet, mine + "/secrets/a"}, {http.MethodPost, mine + "/pods/a/exec"},
		{http.MethodGet, mine + "/configmaps/kube-root-ca.crt"},
		{http.MethodPost, mine + "/serviceaccounts/default/token"}, {http.MethodDelete, mine + "/services/a"},
		{http.MethodDelete, mine + "/pods"}, {http.MethodPut, mine + "/pods/a"}, {http.MethodPatch, mine + "/pods/a/status"},
		{http.MethodPost, mine + "/pods/a/eviction"}, {http.MethodGet, mine + "/persistentvolumeclaims"},
		{http.MethodDelete, "/apis/networking.k8s.io/v1/namespaces/" + f.namespace + "/networkpolicies/a"},
		{http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/" + f.namespace + "/rolebindings"},
		{http.MethodGet, "/api/v1/nodes"}, {http.MethodGet, "/api/v1/namespaces"}, {http.MethodGet, "/api/v1/pods"},
		{http.MethodGet, "/api/v1/namespaces/" + other + "/pods"}, {http.MethodPost, "/api/v1/namespaces/" + other + "/pods"},
		{http.MethodGet, "/api/v1/namespaces/kube-system/configmaps"},
	} {
		code, _ := f.c.callAs(t.Context(), serverToken, c.method, c.path, "application/json", map[string]any{}, nil)
		if code != http.StatusForbidden {
			t.Errorf("%s %s: %d", c.method, c.path, code)
		}
	}
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
	return rand.New(rand.NewPCG(n, n)) //nolint:gosec // a test's
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

func TestARefusalOfTheClusterIsTheProblem(t *testing.T) {
	f := newFixture(t)
	quota := map[string]any{"metadata": map[string]any{"name": "q"}, "spec": map[string]any{"hard": map[string]any{"pods": "0"}}}
	f.c.must(t, http.MethodPost, f.path("resourcequotas", ""), quota, nil)
	eventually(t, func() string {
		if at(f.read(t, "resourcequotas/q"), "status", "hard", "pods") == nil {
			return "the quota is not in force"
		}
		return ""
	})
	b := opened(t, f.config(t))
	apply(t, b, spec(1))
	eventually(t, func() string {
		if d := list(t, b)[0]; !strings.Contains(d.Problem, "exceeded quota") {
			return fmt.Sprintf("the problem is %q", d.Problem)
		}
		return ""
	})
	f.c.must(t, http.MethodDelete, f.path("resourcequotas", "q"), nil, nil)
	eventually(t, func() string { return f.wrong(t, b, spec(1)) })
	if p := list(t, b)[0].Problem; p != "" {
		t.Errorf("the problem is still %q", p)
	}
}

func TestASpecThatCannotRunIsRefused(t *testing.T) {
	c := kube.Config{
		GatewayNamespace: "a", GatewayLabels: map[string]string{"a": "b"},
		Engines: serving.Engines{{Name: "serves", Image: "x", API: "/v1"}, {Name: "bare", API: "/v1"}},
	}
	c.Cluster.URL, c.Cluster.Namespace, c.Cluster.TokenFile = "https://127.0.0.1:1", "a", "/none"
	b := opened(t, c)
	for what, edit := range map[string]func(*serving.Spec){
		"there is no engine": func(s *serving.Spec) { s.Engine = "none" },
		"has no image":       func(s *serving.Spec) { s.Engine = "bare" },
		"claim":              func(s *serving.Spec) { s.Folder = "/data/x" },
	} {
		s := spec(1)
		edit(&s)
		if err := b.Apply(t.Context(), s); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The API server takes the manifests as they are, with no field that it does not know.
func TestTheManifestsAreAccepted(t *testing.T) {
	c := start(t)
	plurals := map[string]string{
		"Namespace": "/api/v1/namespaces", "PersistentVolumeClaim": "/api/v1/namespaces/%s/persistentvolumeclaims",
		"StatefulSet": "/apis/apps/v1/namespaces/%s/statefulsets", "ConfigMap": "/api/v1/namespaces/%s/configmaps",
		"Service": "/api/v1/namespaces/%s/services", "ServiceAccount": "/api/v1/namespaces/%s/serviceaccounts",
		"Role":        "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles",
		"RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
	}
	for _, file := range []string{"sovereign.yaml", "rbac.yaml"} {
		for _, object := range manifests(t, file) {
			path := plurals[object["kind"].(string)]
			if namespace, ok := at(object, "metadata", "namespace").(string); ok {
				path = fmt.Sprintf(path, namespace)
			}
			c.must(t, http.MethodPost, path+"?fieldValidation=Strict", object, nil)
		}
	}
}
