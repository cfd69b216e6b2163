package kube_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/serving/kube"
	"sovereign/internal/domain/serving/servingtest"
	"sovereign/internal/net/kubeapi"
)

// engineMain is what pods of the tests run.
func engineMain(behaviour string) {
	words := "\x1b[31m" + servingtest.LastWords + "\x1b[0m " + servingtest.Credential + "\n"
	switch servingtest.Behaviour(behaviour) {
	case servingtest.Serves, servingtest.NeverHealthy:
	case servingtest.Exits:
		fmt.Print(words)
		os.Exit(3)
	case servingtest.Floods:
		for range 10 << 10 {
			fmt.Print(strings.Repeat("x", 1<<10))
		}
		fmt.Print("\xff\x00\x07\n" + words)
		os.Exit(3)
	case servingtest.Stubborn:
		signal.Ignore(syscall.SIGTERM)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if servingtest.Behaviour(behaviour) == servingtest.NeverHealthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	_ = http.ListenAndServe("127.0.0.1:"+os.Getenv("KUBELET_PORT"), mux)
	os.Exit(4)
}

// manifests returns the objects of a file of deploy/kubernetes.
func manifests(t *testing.T, name string) []map[string]any {
	t.Helper()
	file, err := os.Open("../../../../deploy/kubernetes/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var all []map[string]any
	for decoder := yaml.NewDecoder(file); ; {
		var object map[string]any
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, object)
	}
}

// A fixture is a namespace with its kubelet.
type fixture struct {
	c         *cluster
	namespace string
	kubelet   *kubelet
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := start(t)
	namespace := c.namespace(t)
	return &fixture{c, namespace, startKubelet(t, c, namespace)}
}

// config is that of a server that may do what its Role says, and nothing else.
func (f *fixture) config(t *testing.T) kube.Config {
	t.Helper()
	c := configFor(f.c.reach("server.token", f.namespace))
	c.BaseURL = func(_ string, _ int, uid string) string {
		if r := f.kubelet.find(uid); r != nil {
			return fmt.Sprintf("http://127.0.0.1:%d", r.port)
		}
		return ""
	}
	c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	return c
}

// configFor is the configuration for a cluster, with engines of each behaviour.
func configFor(at kubeapi.Cluster) kube.Config {
	c := kube.Config{
		Cluster: at, GatewayNamespace: "sovereign", GatewayLabels: map[string]string{"app.kubernetes.io/name": "sovereign"},
		Times: kube.Times{LeastPause: 200 * time.Millisecond, MostPause: time.Second, Grace: time.Second, Lost: time.Second},
		GPUs:  map[string]kube.GPU{"h200": {NodeSelector: map[string]string{"nvidia.com/gpu.product": "NVIDIA-H200"}}},
	}
	for _, b := range []servingtest.Behaviour{
		servingtest.Serves, servingtest.Exits, servingtest.NeverHealthy, servingtest.Stubborn, servingtest.Floods,
	} {
		e := serving.Template(string(b))
		e.BaseModels, e.Command = []string{"*"}, []string{os.Args[0], "--host", "{host}", "--port", "{port}", "--name", "{name}"}
		e.Env = map[string]string{"ENGINE_BEHAVIOUR": string(b)}
		e.Image, e.GPUTypes = "engines.example/test:1", []string{serving.CPU, "h200"}
		if b == servingtest.NeverHealthy {
			e.StartTimeout = time.Second
		}
		c.Engines = append(c.Engines, e)
	}
	return c
}

// Open implements servingtest.Fixture.
func (f *fixture) Open(t *testing.T) serving.Backend {
	t.Helper()
	b, err := kube.Open(f.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Engine implements servingtest.Fixture.
func (f *fixture) Engine(b servingtest.Behaviour) string { return string(b) }

// Kill implements servingtest.Fixture.
func (f *fixture) Kill(t *testing.T, name string, r serving.Replica) {
	t.Helper()
	one := f.kubelet.find(r.ID)
	if one == nil {
		t.Fatalf("no pod %s of %s", r.ID, name)
	}
	one.signal(syscall.SIGKILL)
	<-one.exited
}

// objects returns the names of all objects of the namespace that begin as those of engines and jobs do.
func (f *fixture) objects(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, at := range []string{
		"/api/v1/namespaces/%s/pods", "/api/v1/namespaces/%s/configmaps", "/api/v1/namespaces/%s/services",
		"/apis/networking.k8s.io/v1/namespaces/%s/networkpolicies", "/apis/policy/v1/namespaces/%s/poddisruptionbudgets",
		"/apis/batch/v1/namespaces/%s/jobs",
	} {
		path := fmt.Sprintf(at, f.namespace)
		var list struct {
			Items []struct {
				Meta struct {
					Name string `json:"name"`
					UID  string `json:"uid"`
				} `json:"metadata"`
			} `json:"items"`
		}
		f.c.must(t, http.MethodGet, path, nil, &list)
		for _, o := range list.Items {
			if strings.HasPrefix(o.Meta.Name, "engine-") || strings.HasPrefix(o.Meta.Name, "train-") {
				all = append(all, path[strings.LastIndexByte(path, '/')+1:]+"/"+o.Meta.Name)
			}
		}
	}
	return all
}

// Check implements servingtest.Fixture. What the cluster collects, it collects in the background.
func (f *fixture) Check(t *testing.T, listed []serving.Deployment) {
	t.Helper()
	eventually(t, func() string {
		var extra []string
		for _, o := range f.objects(t) {
			known := false
			for _, d := range listed {
				known = known || strings.HasPrefix(o[strings.IndexByte(o, '/')+1:], "engine-"+d.Spec.Name)
			}
			if !known {
				extra = append(extra, o)
			}
		}
		runs := 0
		for _, r := range f.kubelet.runs() {
			select {
			case <-r.exited:
			default:
				runs++
			}
		}
		replicas := 0
		for _, d := range listed {
			replicas += len(d.Replicas)
		}
		if len(extra) > 0 || runs > replicas {
			return fmt.Sprintf("left over: %v, and %d engines run where %d are listed", extra, runs, replicas)
		}
		return ""
	})
}

// eventually waits until what says that nothing is wrong.
func eventually(t *testing.T, what func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		wrong := what()
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(wrong)
		}
	}
}

func TestServingOnKubernetesConforms(t *testing.T) {
	start(t)
	servingtest.Run(t, func(t *testing.T) servingtest.Fixture { return newFixture(t) })
}
