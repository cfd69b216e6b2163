package kube_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/net/kubeapi"
)

// A kubelet plays the scheduler and the node of one namespace: it binds its pods, runs their commands as processes of
// this machine, probes them, and reports of them as a kubelet does.
type kubelet struct {
	t         *testing.T
	c         *cluster
	namespace string
	node      string
	mirror    *kubeapi.Mirror
	logs      *httptest.Server

	mu      sync.Mutex
	pods    map[string]*run // by uid
	full    bool            // no pod is bound
	silent  bool            // it does nothing, as a node that is cut off
	started int
}

// A run is a pod's container.
type run struct {
	k       *kubelet
	name    string
	uid     string
	port    int
	spec    runSpec
	cmd     *exec.Cmd
	output  *bytes.Buffer
	started time.Time
	exited  chan struct{}
	lastly  chan struct{} // closed when its end is reported
	ending  bool
	lost    atomic.Bool // nothing is said of its end
}

type runSpec struct {
	NodeName   string `json:"nodeName"`
	Grace      int    `json:"terminationGracePeriodSeconds"`
	Containers []struct {
		Name    string   `json:"name"`
		Image   string   `json:"image"`
		Command []string `json:"command"`
		Env     []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"env"`
		Startup *struct {
			HTTP struct {
				Path string `json:"path"`
			} `json:"httpGet"`
			Period int `json:"periodSeconds"`
			Fails  int `json:"failureThreshold"`
		} `json:"startupProbe"`
	} `json:"containers"`
}

func startKubelet(t *testing.T, c *cluster, namespace string) *kubelet {
	t.Helper()
	k := &kubelet{t: t, c: c, namespace: namespace, node: "node-" + namespace, pods: map[string]*run{}}
	k.logs = httptest.NewTLSServer(http.HandlerFunc(k.serveLog))
	t.Cleanup(k.logs.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(k.logs.URL, "https://"), ":")
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	c.must(t, http.MethodPost, "/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": k.node}}, nil)
	_, err = c.callAs(t.Context(), adminToken, http.MethodPatch, "/api/v1/nodes/"+k.node+"/status", "application/merge-patch+json",
		map[string]any{"status": map[string]any{
			"addresses":       []any{map[string]any{"type": "InternalIP", "address": "127.0.0.1"}},
			"daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]any{"Port": n}},
		}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := kubeapi.Open(c.reach("admin.token", namespace))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	wake := make(chan struct{}, 1)
	k.mirror = admin.Mirror(kubeapi.Pods, func(kubeapi.Object) bool { return true }, func(kubeapi.Object) {
		select {
		case wake <- struct{}{}:
		default:
		}
	}, func(error) {})
	var done sync.WaitGroup
	done.Go(func() { k.mirror.Run(ctx) })
	done.Go(func() { k.loop(ctx, wake) })
	t.Cleanup(func() {
		stop()
		done.Wait()
		for _, r := range k.runs() {
			r.signal(syscall.SIGKILL)
			<-r.exited
		}
		admin.Close()
	})
	return k
}

func (k *kubelet) runs() []*run {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []*run
	for _, r := range k.pods {
		all = append(all, r)
	}
	return all
}

func (k *kubelet) find(uid string) *run {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[uid]
}

func (k *kubelet) loop(ctx context.Context, wake <-chan struct{}) {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-again.C:
		}
		k.mu.Lock()
		silent, full := k.silent, k.full
		k.mu.Unlock()
		if silent {
			continue
		}
		there := map[string]bool{}
		for _, o := range k.mirror.All() {
			there[o.Meta.UID] = true
			k.look(ctx, o, full)
		}
		for _, r := range k.runs() { // a pod that is gone is killed
			if !there[r.uid] {
				r.signal(syscall.SIGKILL)
				select {
				case <-r.exited:
					k.mu.Lock()
					delete(k.pods, r.uid)
					k.mu.Unlock()
				default:
				}
			}
		}
	}
}

// look does the next thing for a pod.
func (k *kubelet) look(ctx context.Context, o kubeapi.Object, full bool) {
	var spec runSpec
	var status struct {
		Phase string `json:"phase"`
	}
	if json.Unmarshal(o.Spec, &spec) != nil || json.Unmarshal(o.Status, &status) != nil {
		return
	}
	path := "/api/v1/namespaces/" + k.namespace + "/pods/" + o.Meta.Name
	over := status.Phase == "Failed" || status.Phase == "Succeeded"
	r := k.find(o.Meta.UID)
	switch deleted := !o.Meta.DeletionTimestamp.IsZero(); {
	case spec.NodeName == "" && !deleted && !full:
		_, _ = k.c.call(ctx, http.MethodPost, path+"/binding", map[string]any{
			"metadata": map[string]any{"name": o.Meta.Name, "uid": o.Meta.UID},
			"target":   map[string]any{"kind": "Node", "name": k.node},
		}, nil) // one that fails is tried again
	case spec.NodeName == "" && !deleted:
		k.report(ctx, o.Meta, map[string]any{"conditions": []any{map[string]any{
			"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
			"lastTransitionTime": stamp(o.Meta.CreationTimestamp),
		}}})
	case spec.NodeName != "" && r == nil && !over && !deleted:
		k.start(ctx, o.Meta, spec)
	case r != nil && deleted && !r.ending:
		r.ending = true
		go r.end()
	case deleted && spec.NodeName != "" && (r == nil || r.reported()):
		if r == nil && !over {
			k.report(ctx, o.Meta, map[string]any{"phase": "Failed"})
		}
		_, _ = k.c.call(ctx, http.MethodDelete, path,
			map[string]any{"gracePeriodSeconds": 0, "preconditions": map[string]any{"uid": o.Meta.UID}}, nil)
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// report changes the status of a pod, until the API server takes it or the pod is gone.
func (k *kubelet) report(ctx context.Context, m kubeapi.Meta, status map[string]any) {
	patch := map[string]any{"metadata": map[string]any{"uid": m.UID}, "status": status}
	for ctx.Err() == nil {
		code, err := k.c.callAs(ctx, adminToken, http.MethodPatch, "/api/v1/namespaces/"+k.namespace+"/pods/"+m.Name+"/status",
			"application/merge-patch+json", patch, nil)
		if err == nil || code == http.StatusNotFound || code == http.StatusConflict {
			return
		}
		if code == http.StatusUnprocessableEntity {
			k.t.Errorf("the API server refuses a status: %v", err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// start runs a pod's container.
func (k *kubelet) start(ctx context.Context, m kubeapi.Meta, spec runSpec) {
	c := spec.Containers[0]
	r := &run{
		k: k, name: m.Name, uid: m.UID, port: freePort(), spec: spec, output: &bytes.Buffer{},
		exited: make(chan struct{}), lastly: make(chan struct{}),
	}
	var args []string
	for _, arg := range c.Command {
		args = append(args, strings.ReplaceAll(arg, "$(POD_IP)", "127.0.0.1"))
	}
	r.cmd = exec.Command(args[0], args[1:]...)
	r.cmd.Stdout, r.cmd.Stderr = r.output, r.output
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "POD_IP=127.0.0.1", fmt.Sprintf("KUBELET_PORT=%d", r.port)}
	for _, v := range c.Env {
		if v.Name != "POD_IP" {
			r.cmd.Env = append(r.cmd.Env, v.Name+"="+v.Value)
		}
	}
	if err := startTied(r.cmd); err != nil {
		k.t.Errorf("start a pod: %v", err)
		return
	}
	r.started = time.Now()
	k.mu.Lock()
	k.pods[m.UID] = r
	k.started++
	k.mu.Unlock()
	go func() {
		_ = r.cmd.Wait()
		close(r.exited)
	}()
	k.report(ctx, m, r.status(false))
	go r.watch(ctx, m)
}

// status is that of a pod whose container runs.
func (r *run) status(ready bool) map[string]any {
	is := "False"
	if ready {
		is = "True"
	}
	conditions := []any{
		map[string]any{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(r.started)},
		map[string]any{"type": "ContainersReady", "status": is, "lastTransitionTime": stamp(time.Now())},
		map[string]any{"type": "Ready", "status": is, "lastTransitionTime": stamp(time.Now())},
	}
	return map[string]any{
		"phase": "Running", "podIP": "127.0.0.1", "podIPs": []any{map[string]any{"ip": "127.0.0.1"}}, "hostIP": "127.0.0.1",
		"startTime": stamp(r.started), "conditions": conditions, "containerStatuses": []any{map[string]any{
			"name": r.spec.Containers[0].Name, "image": r.spec.Containers[0].Image, "imageID": "", "restartCount": 0,
			"ready": ready, "started": ready, "state": map[string]any{"running": map[string]any{"startedAt": stamp(r.started)}},
		}},
	}
}

// watch probes a container and reports what becomes of it.
func (r *run) watch(ctx context.Context, m kubeapi.Meta) {
	startup := r.spec.Containers[0].Startup
	if startup != nil {
		limit := time.After(time.Duration(startup.Period*startup.Fails) * time.Second)
		for healthy := false; !healthy; {
			select {
			case <-r.exited:
				healthy = true
				continue
			case <-limit:
				r.signal(syscall.SIGKILL)
				<-r.exited
				continue
			case <-time.After(50 * time.Millisecond):
			}
			if answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", r.port, startup.HTTP.Path)); err == nil {
				_ = answer.Body.Close()
				healthy = answer.StatusCode == http.StatusOK
			}
		}
		select {
		case <-r.exited:
		default:
			r.k.report(ctx, m, r.status(true))
		}
	}
	select {
	case <-ctx.Done():
		return
	case <-r.exited:
	}
	if r.lost.Load() {
		return
	}
	for r.k.cutOff() { // a node that is cut off reports nothing
		if ctx.Err() != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	code, phase, reason := exitCode(r.cmd.ProcessState), "Failed", "Error"
	if code == 0 {
		phase, reason = "Succeeded", "Completed"
	}
	status := r.status(false)
	status["phase"] = phase
	one := status["containerStatuses"].([]any)[0].(map[string]any)
	one["state"] = map[string]any{"running": nil, "terminated": map[string]any{
		"exitCode": code, "reason": reason, "startedAt": stamp(r.started), "finishedAt": stamp(time.Now()),
		"containerID": "test://" + r.uid,
	}}
	r.k.report(ctx, m, status)
	close(r.lastly)
}

func (k *kubelet) cutOff() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.silent
}

func exitCode(s *os.ProcessState) int {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return s.ExitCode()
}

func (r *run) reported() bool {
	select {
	case <-r.lastly:
		return true
	default:
		return false
	}
}

// end asks a container to end, and kills it after its grace.
func (r *run) end() {
	r.signal(syscall.SIGTERM)
	select {
	case <-r.exited:
	case <-time.After(time.Duration(r.spec.Grace) * time.Second):
		r.signal(syscall.SIGKILL)
	}
}

func (r *run) signal(s syscall.Signal) {
	select {
	case <-r.exited:
	default:
		_ = syscall.Kill(-r.cmd.Process.Pid, s)
	}
}

// linePart is the most that a node keeps as one line of a log.
const linePart = 16 << 10

// serveLog answers as a kubelet does when the API server asks for a log.
func (k *kubelet) serveLog(w http.ResponseWriter, q *http.Request) {
	parts := strings.Split(strings.Trim(q.URL.Path, "/"), "/") // containerLogs/namespace/pod/container
	for _, r := range k.runs() {
		if len(parts) != 4 || r.name != parts[2] {
			continue
		}
		<-r.exited
		var lines [][]byte
		for line := range bytes.Lines(r.output.Bytes()) {
			for len(line) > linePart {
				lines = append(lines, line[:linePart])
				line = line[linePart:]
			}
			lines = append(lines, line)
		}
		tail, err := strconv.Atoi(q.URL.Query().Get("tailLines"))
		if err != nil {
			tail = len(lines)
		}
		for _, line := range lines[max(0, len(lines)-tail):] {
			_, _ = w.Write(line)
		}
		return
	}
	http.Error(w, "no such container", http.StatusNotFound)
}
