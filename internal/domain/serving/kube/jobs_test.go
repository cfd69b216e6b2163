package kube_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/serving/kube"
)

// A queue is what the server knows of its runs.
type queue struct {
	mu   sync.Mutex
	runs []kube.Run
}

func (q *queue) set(runs ...kube.Run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.runs = runs
}

func (q *queue) list(context.Context) ([]kube.Run, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.runs, nil
}

// train starts a trainer, and returns what ends it.
func (f *fixture) train(t *testing.T, q *queue, command ...string) (stop func()) {
	t.Helper()
	trainer, err := kube.OpenTrainer(kube.TrainerConfig{
		Cluster: f.c.reach("server.token", f.namespace), Image: "trainer.example/worker:1", Command: command,
		URL: "http://sovereign.sovereign.svc:8080", Secret: "worker", Queue: "gpus", GPUType: serving.CPU,
		GPUs: map[string]kube.GPU{"h200": {}}, Runs: q.list, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Every: 50 * time.Millisecond, Pause: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); trainer.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

// jobs returns the names of Jobs that are not being deleted.
func (f *fixture) jobs(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, o := range f.objects(t) {
		if name, ok := strings.CutPrefix(o, "jobs/"); ok {
			found = append(found, name)
		}
	}
	return found
}

const runID = "ftjob_01k9abcdefghjkmnpqrstvwxyz"

// worker is a command that does nothing, for as long as it may.
func worker(behaviour string) []string {
	return []string{"env", "ENGINE_BEHAVIOUR=" + behaviour, os.Args[0], "{url}", "{run}", "{attempt}", "{gpu_type}", "{token_file}"}
}

func TestEachAttemptAtARunHasOneJob(t *testing.T) {
	f := newFixture(t)
	q := &queue{}
	q.set(kube.Run{ID: runID, Attempt: 1, Queued: true, GPUType: "h200", GPUCount: 4})
	f.kubelet.full = true
	stop := f.train(t, q, worker("serves")...)
	first := "train-" + strings.ReplaceAll(runID, "_", "-") + "-1"
	eventually(t, func() string {
		if got := f.jobs(t); len(got) != 1 || got[0] != first {
			return fmt.Sprintf("jobs: %v", got)
		}
		return ""
	})
	job := f.read(t, "jobs/"+first)
	pod := at(job, "spec", "template", "spec")
	for what, pair := range map[string][2]any{
		"Kueue":   {at(job, "metadata", "labels", "kueue.x-k8s.io/queue-name"), "gpus"},
		"run":     {at(job, "metadata", "labels", "sovereign/run"), runID},
		"again":   {at(job, "spec", "backoffLimit"), 0.0},
		"restart": {at(pod, "restartPolicy"), "Never"},
		"GPUs":    {at(pod, "containers", 0, "resources", "limits", "nvidia.com/gpu"), "4"},
		"token":   {at(pod, "volumes", 0, "secret", "secretName"), "worker"},
		"command": {at(pod, "containers", 0, "command", 4), runID},
		"account": {at(pod, "automountServiceAccountToken"), false},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %v, not %v", what, pair[0], pair[1])
		}
	}
	// A server that restarts makes no second one, and neither does a worker that has the run.
	uid := at(job, "metadata", "uid")
	stop()
	stop = f.train(t, q, worker("serves")...)
	q.set(kube.Run{ID: runID, Attempt: 1, GPUType: "h200", GPUCount: 4})
	// Its node dies: the lease runs out, and the next attempt has its own Job.
	q.set(kube.Run{ID: runID, Attempt: 2, Queued: true, GPUType: "h200", GPUCount: 4})
	eventually(t, func() string {
		if got := f.jobs(t); len(got) != 2 {
			return fmt.Sprintf("jobs: %v", got)
		}
		return ""
	})
	if again := f.read(t, "jobs/"+first); at(again, "metadata", "uid") != uid {
		t.Error("the first Job was made twice")
	}
	stop()
}

func TestAJobThatNobodyNeedsIsDeleted(t *testing.T) {
	f := newFixture(t)
	q := &queue{}
	f.kubelet.full = true
	q.set(kube.Run{ID: runID, Attempt: 1, Queued: true, GPUCount: 1})
	f.train(t, q, worker("serves")...)
	eventually(t, func() string { return missing(len(f.jobs(t)) == 1) })
	q.set() // it was cancelled
	eventually(t, func() string { return missing(len(f.objects(t)) == 0) })
}

func missing(ok bool) string {
	if ok {
		return ""
	}
	return "it is not so"
}

func TestAJobThatEndsBeforeItHasWorkIsMadeAgain(t *testing.T) {
	f := newFixture(t)
	q := &queue{}
	q.set(kube.Run{ID: runID, Attempt: 1, Queued: true, GPUCount: 1})
	f.train(t, q, worker("exits")...)
	eventually(t, func() string {
		f.kubelet.mu.Lock()
		defer f.kubelet.mu.Unlock()
		return missing(f.kubelet.started >= 3)
	})
	q.set()
	eventually(t, func() string { // those that have ended are left to be looked at
		for _, name := range f.jobs(t) {
			if at(f.read(t, "jobs/"+name), "status", "failed") == nil {
				return name
			}
		}
		return ""
	})
}

func TestDeletedJobsAreMadeAgain(t *testing.T) {
	f := newFixture(t)
	q := &queue{}
	q.set(kube.Run{ID: runID, Attempt: 3, Queued: true, GPUCount: 1})
	f.train(t, q, worker("serves")...)
	for range 3 {
		eventually(t, func() string { return missing(len(f.jobs(t)) == 1) })
		name := f.jobs(t)[0]
		before := at(f.read(t, "jobs/"+name), "metadata", "uid")
		f.c.must(t, http.MethodDelete, f.path("jobs", name), map[string]any{"propagationPolicy": "Background"}, nil)
		eventually(t, func() string {
			found := f.jobs(t)
			if len(found) != 1 {
				return fmt.Sprint(found)
			}
			var job map[string]any
			_, _ = f.c.call(t.Context(), http.MethodGet, f.path("jobs", found[0]), nil, &job)
			return missing(job != nil && at(job, "metadata", "uid") != before)
		})
	}
}
