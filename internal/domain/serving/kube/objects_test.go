package kube_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/serving/kube"
)

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

// The server may do what its Role says. What it does not need, it may not do: engines cannot be reached through its
// token.
func TestTheRoleAllowsNothingElse(t *testing.T) {
	f := newFixture(t)
	other := f.c.namespace(t)
	f.c.must(t, http.MethodDelete, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+other+"/rolebindings/sovereign", nil, nil)
	mine := "/api/v1/namespaces/" + f.namespace
	for _, c := range []struct{ method, path string }{
		{http.MethodGet, mine + "/secrets"},
		{http.MethodGet, mine + "/secrets/a"},
		{http.MethodPost, mine + "/pods/a/exec"},
		{http.MethodGet, mine + "/configmaps/kube-root-ca.crt"},
		{http.MethodPost, mine + "/serviceaccounts/default/token"},
		{http.MethodDelete, mine + "/services/a"},
		{http.MethodDelete, mine + "/pods"},
		{http.MethodPut, mine + "/pods/a"},
		{http.MethodPatch, mine + "/pods/a/status"},
		{http.MethodPost, mine + "/pods/a/eviction"},
		{http.MethodGet, mine + "/persistentvolumeclaims"},
		{http.MethodDelete, "/apis/networking.k8s.io/v1/namespaces/" + f.namespace + "/networkpolicies/a"},
		{http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/" + f.namespace + "/rolebindings"},
		{http.MethodGet, "/api/v1/nodes"},
		{http.MethodGet, "/api/v1/namespaces"},
		{http.MethodGet, "/api/v1/pods"},
		{http.MethodGet, "/api/v1/namespaces/" + other + "/pods"},
		{http.MethodPost, "/api/v1/namespaces/" + other + "/pods"},
		{http.MethodGet, "/api/v1/namespaces/kube-system/configmaps"},
	} {
		code, _ := f.c.callAs(t.Context(), serverToken, c.method, c.path, "application/json", map[string]any{}, nil)
		if code != http.StatusForbidden {
			t.Errorf("%s %s: %d", c.method, c.path, code)
		}
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
