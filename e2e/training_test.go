package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// A trainingServer is a server whose jobs are trained by workers, in processes of their own. An hour of their CPU costs $36.
type trainingServer struct {
	instance
	server *process
	key    string
	python func(ctx context.Context, program string, args ...string) *exec.Cmd
	file   string // the id of the examples
}

// A trainerProcess is a running worker with a token of its own.
type trainerProcess struct {
	*exec.Cmd
	id   string
	out  *tail
	done chan struct{}
}

// A tuning is a fine-tuning job as the API shows it.
type tuning struct {
	ID, Status     string
	Attempt        int64
	Step           int64
	GPUSeconds     int64      `json:"gpu_seconds"`
	Spent          money.Nano `json:"spent_usd"`
	Budget         money.Nano `json:"budget_usd"`
	ModelVersionID string     `json:"model_version_id"`
	Error          *struct{ Code, Message string }
}

const trainingSteps = 240 // of the jobs in these tests

func newTrainingServer(t *testing.T, p instance, flags ...string) *trainingServer {
	t.Helper()
	s := &trainingServer{instance: p, python: trainer(t)}
	s.server = p.serve(t, append(flags, "--training-prices", "cpu=36")...)
	s.key = s.server.key()
	s.file = s.upload(t, examples())
	return s
}

// examples are 32 conversations.
func examples() []byte {
	var lines bytes.Buffer
	for i := range 32 {
		word := []string{"red", "green", "blue", "sky", "sea", "sun", "moon", "tree"}[i%8]
		fmt.Fprintf(&lines, `{"messages":[{"role":"user","content":"say %s %d"},{"role":"assistant","content":"%s %s %d"}]}`+"\n",
			word, i, word, word, i)
	}
	return lines.Bytes()
}

func (s *trainingServer) caller() *caller { return s.server.callerWith(s.key) }

// upload sends examples as OpenAI's clients do.
func (s *trainingServer) upload(t *testing.T, lines []byte) string {
	t.Helper()
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	_ = parts.WriteField("purpose", "fine-tune")
	file, err := parts.CreateFormFile("file", "words.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write(lines)
	_ = parts.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.address()+"/v1/fine-tuning/files", &form)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	request.Header.Set("Content-Type", parts.FormDataContentType())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	var made struct {
		ID   string
		Rows int64
	}
	if err != nil || response.StatusCode != http.StatusCreated || json.Unmarshal(text, &made) != nil || made.Rows != 32 {
		t.Fatalf("%d %s %v", response.StatusCode, text, err)
	}
	return made.ID
}

// worker starts a worker.
func (s *trainingServer) worker(t *testing.T) *trainerProcess {
	t.Helper()
	var minted struct{ ID, Token string }
	s.mustAdmin(t, &minted, "worker", "create", "test", "--json")
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "token"), minted.Token)
	w := &trainerProcess{id: minted.ID, out: newTail()}
	w.Cmd = s.python(t.Context(), "python", "-m", "sovereign_trainer", "work", "--url", s.server.address(),
		"--token-file", filepath.Join(folder, "token"), "--work", filepath.Join(folder, "work"))
	w.Stdout, w.Stderr = w.out, w.out
	w.done = startChild(t, w.Cmd)
	t.Cleanup(func() {
		w.kill()
		if t.Failed() {
			t.Logf("a worker said:\n%s", w.out)
		}
	})
	return w
}

func (w *trainerProcess) kill() {
	_ = w.Process.Kill()
	<-w.done
}

// over waits until the worker has saved n checkpoints of a job. It reports whether the job has ended before.
func (s *trainingServer) over(t *testing.T, w *trainerProcess, id string, n int) (over bool) {
	t.Helper()
	c := s.caller()
	line := regexp.MustCompile(fmt.Sprintf(`(?s)(%s: saved the checkpoint.*){%d}`, id, n))
	eventually(t, "a checkpoint", func() bool {
		var job tuning
		c.call(t, http.MethodGet, "/v1/fine-tuning/jobs/"+id, nil, http.StatusOK, &job)
		over = job.Status == "SUCCEEDED" || job.Status == "FAILED"
		return over || line.MatchString(w.out.String())
	})
	return over
}

// awaitWorker waits until a worker has said what it can train.
func (s *trainingServer) awaitWorker(t *testing.T) {
	t.Helper()
	c := s.caller()
	eventually(t, "a worker that can train", func() bool {
		var models []struct {
			ID     string
			Random bool
		}
		return c.get(t, "/v1/fine-tuning/models", &models) == http.StatusOK && len(models) == 1 && models[0].Random
	})
}

// start creates a job, when a worker has said what it can train.
func (s *trainingServer) start(t *testing.T, method string) string {
	t.Helper()
	s.awaitWorker(t)
	var job tuning
	s.caller().call(t, http.MethodPost, "/v1/fine-tuning/jobs", object{
		"baseModel": "tiny/bigram", "trainingFile": s.file, "method": method, "seed": 7, "budgetUsd": 5,
		"hyperparameters": object{"epochs": trainingSteps / 4, "checkpointEvery": 10},
	}, http.StatusCreated, &job)
	return job.ID
}

// ended waits until a job has succeeded, and is charged.
func (s *trainingServer) ended(t *testing.T, id string) (job tuning) {
	t.Helper()
	c := s.caller()
	eventually(t, "the end of the job", func() bool {
		job = tuning{}
		c.call(t, http.MethodGet, "/v1/fine-tuning/jobs/"+id, nil, http.StatusOK, &job)
		return job.Status == "SUCCEEDED" && job.Spent == money.Nano(job.GPUSeconds)*money.Dollar/100 ||
			job.Status == "FAILED"
	})
	if job.Status != "SUCCEEDED" || job.Step != trainingSteps {
		t.Fatalf("%+v %+v", job, job.Error)
	}
	return job
}

// A trained is what a job has made: the losses by step, and the digests of the model's files.
type trained struct {
	losses map[int64]float64
	files  map[string]string
}

func (s *trainingServer) trained(t *testing.T, job tuning) trained {
	t.Helper()
	c := s.caller()
	made := trained{map[int64]float64{}, map[string]string{}}
	for after, more := int64(0), true; more; {
		var events []struct {
			Seq, Step int64
			Data      map[string]float64
		}
		c.get(t, fmt.Sprintf("/v1/fine-tuning/jobs/%s/events?after=%d&limit=1000", job.ID, after), &events)
		for _, e := range events {
			after = e.Seq
			loss, ok := e.Data["loss"]
			if before, again := made.losses[e.Step]; ok && again && before != loss {
				t.Errorf("step %d was trained twice, with the losses %v and %v", e.Step, before, loss)
			}
			if ok {
				made.losses[e.Step] = loss
			}
		}
		more = len(events) > 0
	}
	var files struct {
		Data []struct{ Name, SHA256 string }
	}
	c.call(t, http.MethodGet, "/v1/model-versions/"+url.PathEscape(job.ModelVersionID)+"/files", nil, http.StatusOK, &files)
	for _, f := range files.Data {
		made.files[f.Name] = f.SHA256
	}
	return made
}

func (s *trainingServer) compare(t *testing.T, got, want trained) {
	t.Helper()
	if got.losses[trainingSteps] != want.losses[trainingSteps] || !maps.Equal(got.files, want.files) {
		t.Errorf("the loss is %v and not %v, or the files are others: %v %v",
			got.losses[trainingSteps], want.losses[trainingSteps], got.files, want.files)
	}
	for step, loss := range got.losses {
		if loss != want.losses[step] {
			t.Errorf("the loss of step %d is %v and not %v", step, loss, want.losses[step])
		}
	}
}

// From examples to a model: a worker leases the job, its loss falls, and the model's files are there.
func TestAWorkerTrainsAFineTuningJob(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		s := newTrainingServer(t, p)
		w := s.worker(t)
		job := s.ended(t, s.start(t, "sft"))
		got := s.trained(t, job)
		if len(got.losses) != trainingSteps || got.losses[1] < 5.4 || got.losses[trainingSteps] > 1.7 {
			t.Errorf("%d losses, from %v to %v", len(got.losses), got.losses[1], got.losses[trainingSteps])
		}
		if job.Attempt != 1 || len(got.files) != 2 || got.files["model.bin"] == "" || got.files["config.json"] == "" {
			t.Errorf("%+v %v", job, got.files)
		}
		status, body := s.caller().read(t, "/v1/model-versions/"+job.ModelVersionID+"/files/model.bin")
		if status != http.StatusOK || len(body) != 257*257*8 {
			t.Errorf("%d %d bytes", status, len(body))
		}
		if err := w.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-w.done
		if code := w.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the worker ended with %d", code)
		}
		p.verifyLedger(t)
	})
}

// A worker that is killed at any point is replaced. The model and every loss are those of a run that was left alone,
// and what the lost workers did is not charged.
func TestDrillKilledWorkersLeaveTheSameModel(t *testing.T) {
	t.Parallel()
	s := newTrainingServer(t, newInstance(t, secret.Text{}))
	w := s.worker(t)
	want := s.trained(t, s.ended(t, s.start(t, "sft")))
	for kills, most := 0, drills(2, 20); kills < most; {
		id := s.start(t, "sft")
		for ; kills < most && !s.over(t, w, id, 1); kills++ {
			time.Sleep(rand.N(100 * time.Millisecond)) // anywhere
			w.kill()
			s.mustAdmin(t, nil, "worker", "revoke", w.id) // so that nobody waits for its lease to run out
			w = s.worker(t)
		}
		job := s.ended(t, id)
		s.compare(t, s.trained(t, job), want)
	}
	s.verifyLedger(t)
}

// A server that is killed at any point ends no run: the worker trains on, and tells the next server. Nothing is charged
// twice.
func TestDrillKilledServersEndNoTraining(t *testing.T) {
	t.Parallel()
	s := newTrainingServer(t, newInstance(t, secret.Text{}))
	w := s.worker(t)
	want := s.trained(t, s.ended(t, s.start(t, "sft")))
	address := s.server.address()
	for kills, most := 0, drills(2, 20); kills < most; {
		id := s.start(t, "sft")
		for n := 1; kills < most && !s.over(t, w, id, n); n += 4 {
			time.Sleep(rand.N(100 * time.Millisecond)) // anywhere
			s.server.kill()
			s.server = s.serve(t, "--training-prices", "cpu=36", "--listen", hostOf(t, address))
			kills++
		}
		job := s.ended(t, id)
		if job.Attempt != 1 {
			t.Errorf("it took %d attempts", job.Attempt)
		}
		s.compare(t, s.trained(t, job), want)
	}
	s.verifyLedger(t)
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Host
}
