// Package chart holds the Helm chart and the Compose file of deploy against the programs that read them. What an API
// server says of the chart's objects is tested in internal/domain/serving/kube.
package chart

import (
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

var update = flag.Bool("update", false, "write testdata anew")

const (
	folder = "../../deploy/helm/sovereign"
	oldest = "1.30.0" // Kubernetes that the chart is for
)

// helm runs the helm that scripts/chart built, without any repository or cluster.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	program := os.Getenv("SOVEREIGN_HELM")
	if program == "" {
		t.Skip("SOVEREIGN_HELM is not set to a helm: make chart builds one")
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	return out.String(), problems.String(), err
}

func render(t *testing.T, args ...string) (string, string, error) {
	t.Helper()
	return helm(t, append([]string{"template", "gateway", folder, "--namespace", "models", "--kube-version", oldest}, args...)...)
}

// sets are the values of ci, by name.
func sets(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(folder + "/ci/*-values.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		all[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = file
	}
	return all
}

func TestTheChartPassesHelmsLinterWithEverySetOfValues(t *testing.T) {
	for name, file := range sets(t) {
		t.Run(name, func(t *testing.T) {
			if out, problems, err := helm(t, "lint", "--strict", "--quiet", "--kube-version", oldest, folder, "--values", file); err != nil {
				t.Error(out, problems)
			}
		})
	}
}

// What most people install changes only on purpose: -update writes it anew.
func TestTheMinimalValuesRenderAsTheyDid(t *testing.T) {
	got, problems, err := render(t, "--values", sets(t)["minimal"])
	if err != nil {
		t.Fatal(problems)
	}
	if *update {
		if err := os.WriteFile("testdata/minimal.yaml", []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("testdata/minimal.yaml differs; -update writes it anew. Now it is\n%s", got)
	}
}

func TestValuesThatCannotWorkAreRefusedWithTheirName(t *testing.T) {
	minimal := sets(t)["minimal"]
	for set, want := range map[string]string{
		"replica=3":                              "replica",
		"replicas=three":                         "replicas",
		"replicas=0":                             "replicas",
		"image.pullPolicy=Sometimes":             "pullPolicy",
		"database.url=postgres://x":              "url",
		"database.secret=":                       "database.secret is missing",
		"rootKey.secret=":                        "rootKey.secret is missing",
		"config.database_url=postgres://x":       "database_url",
		"config.listen=0.0.0.0:1":                "listen",
		"config.data_dir=/x":                     "data_dir",
		"config.limits.drain=1m":                 "drain",
		"config.serving.backend=process":         "backend",
		"config.kubernetes.namespace=x":          "namespace",
		"secretEnv.OPENAI_API_KEY=sk-secret":     "OPENAI_API_KEY",
		"secretEnv.A.secret=x":                   "key",
		"drainSeconds=5m":                        "drainSeconds",
		"storage.size=big":                       "size",
		"storage.accessMode=ReadWriteMany":       "accessMode",
		"engines.enabled=true":                   "engines.namespace is missing",
		"engines.claim=models":                   "go together",
		"serviceMonitor.enabled=true":            "networkPolicy.metricsFrom is empty",
		"ingress.enabled=true":                   "ingress.hosts is empty",
		"networkPolicy.from.cidr=10.0.0.0/8":     "from",
		"podDisruptionBudget.maxUnavailable=one": "maxUnavailable",
	} {
		t.Run(set, func(t *testing.T) {
			out, problems, err := render(t, "--values", minimal, "--set", set)
			if err == nil || !strings.Contains(problems, want) {
				t.Errorf("%v, want %q: %s%s", err, want, out, problems)
			}
		})
	}
}

type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Rules    []any
	Spec     map[string]any
}

func objects(t *testing.T, text string) (all []object) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var o object
		switch err := decoder.Decode(&o); {
		case err == io.EOF:
			return all
		case err != nil:
			t.Fatal(err)
		}
		if o.Kind != "" {
			all = append(all, o)
		}
	}
}

func find(t *testing.T, all []object, kind string) object {
	t.Helper()
	at := slices.IndexFunc(all, func(o object) bool { return o.Kind == kind })
	if at < 0 {
		t.Fatalf("there is no %s", kind)
	}
	return all[at]
}

// The rights of the chart are those that the tests of engines run with.
func TestTheRoleOfTheChartIsTheTestedOne(t *testing.T) {
	tested, err := os.ReadFile("../../deploy/kubernetes/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, problems, err := render(t, "--values", sets(t)["engines"])
	if err != nil {
		t.Fatal(problems)
	}
	want, _ := yaml.Marshal(find(t, objects(t, string(tested)), "Role").Rules)
	have, _ := yaml.Marshal(find(t, objects(t, got), "Role").Rules)
	if !bytes.Equal(want, have) {
		t.Errorf("deploy/kubernetes/rbac.yaml\n%s\nthe chart\n%s", want, have)
	}
}

// A configuration that the server takes lets it come as far as to look for its database.
func TestTheServerTakesTheConfigurationOfEverySetOfValues(t *testing.T) {
	for name, file := range sets(t) {
		t.Run(name, func(t *testing.T) {
			got, problems, err := render(t, "--values", file)
			if err != nil {
				t.Fatal(problems)
			}
			serveUntilTheDatabase(t, find(t, objects(t, got), "ConfigMap").Data["sovereign.yaml"])
		})
	}
}

func serveUntilTheDatabase(t *testing.T, config string) {
	t.Helper()
	program := os.Getenv("SOVEREIGN_SERVER")
	if program == "" {
		t.Skip("SOVEREIGN_SERVER is not set to the server's program: make chart builds it")
	}
	home, err := os.MkdirTemp("", "") // a short path, for the socket in the data folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	file := filepath.Join(home, "sovereign.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "serve", "--config", file, "--data-dir", filepath.Join(home, "store"),
		"--root-key-file", filepath.Join(home, "root.key"), "--listen", "127.0.0.1:0", "--operations-listen", "off",
		"--kubernetes-url", "https://127.0.0.1:1", "--kubernetes-token-file", file)
	cmd.Env = append(os.Environ(), "SOVEREIGN_DATABASE_URL=postgres://nobody@127.0.0.1:1/none?connect_timeout=5",
		"OPENAI_API_KEY=x", "S3_SECRET_KEY=x")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "cannot be reached") {
		t.Errorf("%v, want that the database cannot be reached: %s\n%s", err, out, config)
	}
}

// Every object has the fields of its type and no others. ServiceMonitor's type is not Kubernetes' own.
func TestEveryObjectIsOneOfKubernetesWithoutUnknownFields(t *testing.T) {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, file := range sets(t) {
		t.Run(name, func(t *testing.T) {
			got, problems, err := render(t, "--values", file)
			if err != nil {
				t.Fatal(problems)
			}
			for text := range strings.SplitSeq(got, "\n---\n") {
				if strings.Contains(text, "kind: ServiceMonitor\n") {
					continue
				}
				if _, _, err := strict.Decode([]byte(text), nil, nil); err != nil {
					t.Errorf("%v:\n%s", err, text)
				}
			}
		})
	}
}
