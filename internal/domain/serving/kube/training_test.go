package kube_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// A gateway is a real server of the built binary whose training runs in the cluster.
type gateway struct {
	t                    *testing.T
	binary, folder       string
	url, key, log, token string
	command              *exec.Cmd
}

// newGateway builds the server and starts it. config are further lines of its configuration, by the server's address.
func newGateway(t *testing.T, f *fixture, config func(g *gateway) string) *gateway {
	t.Helper()
	folder := t.TempDir()
	g := &gateway{t: t, folder: folder, binary: filepath.Join(folder, "sovereign"), token: filepath.Join(folder, "token")}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", g.binary, "sovereign/cmd/sovereign")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, text)
	}
	port := freePort()
	g.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	cluster := f.c.reach("server.token", f.namespace)
	g.write("sovereign.yaml", fmt.Sprintf(`
listen: 127.0.0.1:%d
operations_listen: "off"
data_dir: %s/data
root_key_file: %s/root.key
training: {prices: [cpu=36]}
kubernetes:
  url: %s
  namespace: %s
  token_file: %s
  ca_file: %s
%s`, port, folder, folder, cluster.URL, cluster.Namespace, cluster.TokenFile, cluster.CAFile, config(g)))
	g.start()
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			t.Logf("the server said:\n%s", g.said())
		}
	})
	g.key = regexp.MustCompile(`sk_sovereign_[0-9a-z]{47}`).FindString(g.said())
	return g
}

// startGateway starts a server that trains with workers in Jobs.
func startGateway(t *testing.T, f *fixture) *gateway {
	t.Helper()
	source, err := filepath.Abs("../../../../trainer/src")
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, f, func(g *gateway) string {
		command, err := json.Marshal([]string{
			"env", "PYTHONPATH=" + source, "python3", "-m", "sovereign_trainer", "work", "--url", "{url}", "--token-file", g.token,
			"--run", "{run}", "--attempt", "{attempt}", "--gpu-type", "{gpu_type}", "--once",
		})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`  trainer: {image: "trainer.example/worker:1", url: "%s", secret: worker, models: [tiny/bigram], methods: [sft], command: %s}
`, g.url, command)
	})
	var minted struct {
		Token string `json:"token"`
	}
	g.admin(&minted, "worker", "create", "cluster")
	g.write("token", minted.Token)
	return g
}

// admin runs an admin command.
func (g *gateway) admin(out any, command ...string) {
	g.t.Helper()
	command = append([]string{"admin", "--data-dir", g.folder + "/data", "--root-key-file", g.folder + "/root.key"}, command...)
	text, err := exec.Command(g.binary, append(command, "--json")...).Output()
	if err != nil || json.Unmarshal(text, out) != nil {
		g.t.Fatalf("admin %v: %v %s", command, err, text)
	}
}

func (g *gateway) write(name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.folder, name), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) said() string {
	text, _ := os.ReadFile(g.log) // what is missing is not shown
	return string(text)
}

// start starts the server, and waits until it serves and has printed its key.
func (g *gateway) start() {
	g.t.Helper()
	g.log = filepath.Join(g.folder, "log")
	out, err := os.OpenFile(g.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	g.command = exec.Command(g.binary, "serve", "--bootstrap", "--config", filepath.Join(g.folder, "sovereign.yaml"))
	g.command.Stdout, g.command.Stderr = out, out
	if err := startTied(g.command); err != nil {
		g.t.Fatal(err)
	}
	eventually(g.t, func() string {
		answer, err := http.Get(g.url + "/v1/models")
		if err != nil {
			return err.Error() + g.said()
		}
		_ = answer.Body.Close()
		return missing(strings.Contains(g.said(), "sk_sovereign_"))
	})
}

func (g *gateway) kill() {
	_ = g.command.Process.Signal(syscall.SIGKILL)
	_ = g.command.Wait()
}

// call makes a request with the workspace's key.
func (g *gateway) call(method, path, kind string, body []byte, out any) {
	g.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, g.url+path, bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+g.key)
	r.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 || json.Unmarshal(text, out) != nil {
		g.t.Fatalf("%s %s: %d %s %v", method, path, answer.StatusCode, text, err)
	}
}

type tuning struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Attempt int64  `json:"attempt"`
	Step    int64  `json:"step"`
	Error   any    `json:"error"`
	Version string `json:"model_version_id"`
}

// create uploads examples and queues a job.
func (g *gateway) create() tuning {
	g.t.Helper()
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	_ = parts.WriteField("purpose", "fine-tune")
	file, err := parts.CreateFormFile("file", "words.jsonl")
	if err != nil {
		g.t.Fatal(err)
	}
	for i := range 320 { // so that the run outlasts what is done to it
		_, _ = fmt.Fprintf(file, `{"messages":[{"role":"user","content":"say %d"},{"role":"assistant","content":"it is %d"}]}`+"\n", i, i)
	}
	_ = parts.Close()
	var uploaded, made tuning
	g.call(http.MethodPost, "/v1/fine-tuning/files", parts.FormDataContentType(), form.Bytes(), &uploaded)
	g.call(http.MethodPost, "/v1/fine-tuning/jobs", "application/json", fmt.Appendf(nil,
		`{"baseModel": "tiny/bigram", "trainingFile": "%s", "seed": 7, "budgetUsd": 2, "hyperparameters": {"epochs": 100, "checkpointEvery": 200}}`,
		uploaded.ID), &made)
	return made
}

// lose ends a pod's process and says nothing of it, as a node does that has lost its power.
func (k *kubelet) lose(name string) bool {
	for _, r := range k.runs() {
		if r.name == name || strings.HasPrefix(r.name, name+"-") {
			r.lost.Store(true)
			r.signal(syscall.SIGKILL)
			<-r.exited
			return true
		}
	}
	return false
}

func TestTrainingRunsInAJobForEachAttemptThoughANodeDies(t *testing.T) {
	f := newFixture(t)
	g := startGateway(t, f)
	made := g.create()
	job := "train-" + strings.ReplaceAll(made.ID, "_", "-")
	now := func() tuning {
		var got tuning
		g.call(http.MethodGet, "/v1/fine-tuning/jobs/"+made.ID, "", nil, &got)
		return got
	}
	eventually(t, func() string { // the first attempt has saved something
		if got := now(); got.Status != "RUNNING" || got.Step < 200 {
			return fmt.Sprintf("%+v, jobs %v", got, f.jobs(t))
		}
		return ""
	})
	g.kill() // the server is killed too, and finds the Job again
	g.start()
	if !f.kubelet.lose(job + "-1") {
		t.Fatal("no pod of the first attempt")
	}
	began := time.Now()
	eventually(t, func() string {
		got := now()
		if got.Status == "FAILED" {
			t.Fatalf("it failed: %+v", got)
		}
		if got.Status != "SUCCEEDED" {
			return fmt.Sprintf("%+v, jobs %v", got, f.jobs(t))
		}
		return ""
	})
	got := now()
	t.Logf("%s after the node was lost: %+v, jobs %v", time.Since(began).Round(time.Second), got, f.jobs(t))
	if got.Attempt != 2 || got.Version == "" {
		t.Errorf("the run is %+v", got)
	}
	jobs := slices.DeleteFunc(f.jobs(t), func(name string) bool { return name == job+"-1" }) // it may be removed by now
	if !slices.Equal(jobs, []string{job + "-2"}) {
		t.Errorf("the Jobs are %v", jobs)
	}
	eventually(t, func() string { // the second one ended by itself, and the first is not needed
		for _, name := range f.jobs(t) {
			if at(f.read(t, "jobs/"+name), "status", "succeeded") == nil {
				return name
			}
		}
		return ""
	})
}
