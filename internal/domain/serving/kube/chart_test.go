package kube_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	chart      = "../../../../deploy/helm/sovereign"
	namespaces = "/api/v1/namespaces"
)

// rendered returns the objects of the chart with a file of values.
func rendered(t *testing.T, namespace, values string) []map[string]any {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv("SOVEREIGN_HELM"), "template", "gateway", chart, "--namespace", namespace,
		"--values", values, "--kube-version", "1.36.3")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err, problems.String())
	}
	var all []map[string]any
	for decoder := yaml.NewDecoder(strings.NewReader(string(out))); ; {
		var object map[string]any
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		if object != nil {
			all = append(all, object)
		}
	}
}

// collection is the path at which an object is made.
func collection(object map[string]any) string {
	version := object["apiVersion"].(string)
	root := "/apis/" + version
	if version == "v1" {
		root = "/api/v1"
	}
	kind := strings.ToLower(object["kind"].(string))
	switch {
	case strings.HasSuffix(kind, "y"):
		kind = strings.TrimSuffix(kind, "y") + "ies"
	case strings.HasSuffix(kind, "s"):
		kind += "es"
	default:
		kind += "s"
	}
	return root + "/namespaces/" + object["metadata"].(map[string]any)["namespace"].(string) + "/" + kind
}

// The API server takes every object of every set of values and knows each of its fields, and takes the pods where they
// have to keep to the strictest of Kubernetes' Pod Security Standards.
func TestTheAPIServerTakesEveryObjectOfTheChart(t *testing.T) {
	if os.Getenv("SOVEREIGN_HELM") == "" {
		t.Skip("SOVEREIGN_HELM is not set to a helm: make chart builds one")
	}
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	c := start(t)
	c.monitors(t)
	c.must(t, http.MethodPost, namespaces, map[string]any{"metadata": map[string]any{"name": "sovereign-engines"}}, nil)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), "-values.yaml")
		t.Run(name, func(t *testing.T) {
			namespace := "chart-" + name
			c.must(t, http.MethodPost, namespaces, map[string]any{"metadata": map[string]any{
				"name": namespace, "labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"},
			}}, nil)
			all := rendered(t, namespace, file)
			for _, object := range all {
				path := collection(object) + "?fieldValidation=Strict"
				if _, err := c.call(t.Context(), http.MethodPost, path, object, nil); err != nil {
					t.Errorf("%s: %v", object["kind"], err)
				}
			}
			at := slices.IndexFunc(all, func(o map[string]any) bool { return o["kind"] == "StatefulSet" })
			if at < 0 {
				t.Fatal("there is no StatefulSet")
			}
			c.takesPod(t, namespace, all[at])
		})
	}
}

// takesPod makes a pod as the StatefulSet would.
func (c *cluster) takesPod(t *testing.T, namespace string, set map[string]any) {
	t.Helper()
	pod := set["spec"].(map[string]any)["template"].(map[string]any)
	pod["metadata"].(map[string]any)["name"] = "gateway-0"
	spec := pod["spec"].(map[string]any)
	spec["volumes"] = append(spec["volumes"].([]any), map[string]any{
		"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data-gateway-0"},
	})
	c.must(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods?fieldValidation=Strict", pod, nil)
}

// monitors makes the smallest definition of the Prometheus operator's ServiceMonitor that has the fields of the chart.
func (c *cluster) monitors(t *testing.T) {
	t.Helper()
	text := map[string]any{"type": "string"}
	object := func(fields map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": fields}
	}
	c.must(t, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", map[string]any{
		"metadata": map[string]any{"name": "servicemonitors.monitoring.coreos.com"},
		"spec": map[string]any{
			"group": "monitoring.coreos.com", "scope": "Namespaced",
			"names": map[string]any{"kind": "ServiceMonitor", "plural": "servicemonitors"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": object(map[string]any{"spec": object(map[string]any{
					"selector": object(map[string]any{
						"matchLabels": map[string]any{"type": "object", "additionalProperties": text},
					}),
					"endpoints": map[string]any{
						"type": "array", "items": object(map[string]any{"port": text, "path": text, "interval": text}),
					},
				})})},
			}},
		},
	}, nil)
	const path = "/apis/monitoring.coreos.com/v1/servicemonitors"
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if code, _ := c.call(t.Context(), http.MethodGet, path, nil, nil); code == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the definition of ServiceMonitor is not in force")
		}
	}
}
