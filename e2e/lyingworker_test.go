package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/store/artifact"
)

// A rawWorker speaks the protocol of workers as the test wants, and lies where it wants.
type rawWorker struct {
	s       *trainingServer
	ctx     context.Context //nolint:containedctx // the test's
	token   string
	run     string
	attempt int64
	fence   string
}

// raw returns a worker with a token of its own, of one workspace or of all.
func (s *trainingServer) raw(t *testing.T, workspace string) *rawWorker {
	t.Helper()
	var minted struct{ ID, Token string }
	args := []string{"worker", "create", "raw", "--json"}
	if workspace != "" {
		args = append(args, "--workspace", workspace)
	}
	s.mustAdmin(t, &minted, args...)
	return &rawWorker{s: s, ctx: t.Context(), token: minted.Token}
}

// ask sends a request with the worker's token, and returns the status and the code of a refusal.
func (w *rawWorker) ask(method, path string, body []byte, into any) (status int, code string) {
	request, err := http.NewRequestWithContext(w.ctx, method, w.s.server.address()+"/workers/v1"+path, bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+w.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	var refused struct{ Error struct{ Code string } }
	if response.StatusCode >= 400 {
		_ = json.Unmarshal(text, &refused) // without an envelope, the code is empty
	} else if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			return 0, err.Error()
		}
	}
	return response.StatusCode, refused.Error.Code
}

// lease asks for work.
func (w *rawWorker) lease() (status int, code string, found bool) {
	about, _ := json.Marshal(object{
		"release": "1", "engine": "raw", "methods": []string{"sft"}, "gpu_type": "cpu", "gpu_count": 1,
		"models": []object{{"id": "tiny/bigram", "parameters": 1, "context_window": 256, "random": true}},
	})
	var given struct {
		Lease *struct {
			Run, Fence string
			Attempt    int64
		}
	}
	status, code = w.ask(http.MethodPost, "/lease", about, &given)
	if given.Lease != nil {
		w.run, w.attempt, w.fence = given.Lease.Run, given.Lease.Attempt, given.Lease.Fence
	}
	return status, code, given.Lease != nil
}

// take creates a job, and leases it.
func (w *rawWorker) take(t *testing.T) {
	t.Helper()
	leased := make(chan bool, 1)
	go func() { // its first question says what it can train
		_, _, found := w.lease()
		leased <- found
	}()
	w.s.start(t, "sft")
	if !<-leased {
		w.again(t)
	}
}

// again leases what is queued.
func (w *rawWorker) again(t *testing.T) {
	t.Helper()
	eventually(t, "a lease", func() bool {
		_, _, found := w.lease()
		return found
	})
}

func (w *rawWorker) path(what string) string {
	return fmt.Sprintf("/runs/%s/%s?attempt=%d&fence=%s", w.run, what, w.attempt, w.fence)
}

// post makes a call for the lease.
func (w *rawWorker) post(what string, body object, into any) (status int, code string) {
	text, _ := json.Marshal(body)
	return w.ask(http.MethodPost, w.path(what), text, into)
}

// send sends a file under its own digest.
func (w *rawWorker) send(content []byte) (status int, code string) {
	return w.ask(http.MethodPost, w.path("files/"+string(artifact.DigestOf(content))), content, nil)
}

func file(name string, digest artifact.Digest, size int) object {
	return object{"name": name, "sha256": digest, "bytes": size}
}

// save commits a checkpoint with one file.
func (w *rawWorker) save(t *testing.T, step int, weights string) {
	t.Helper()
	if status, code := w.send([]byte(weights)); status != http.StatusNoContent {
		t.Fatalf("%d %s", status, code)
	}
	files := []object{file("model.bin", artifact.DigestOf([]byte(weights)), len(weights))}
	if status, code := w.post("checkpoints", object{"step": step, "files": files}, nil); status != http.StatusOK {
		t.Fatalf("%d %s", status, code)
	}
}

// with returns the worker with something changed.
func (w *rawWorker) with(change func(*rawWorker)) *rawWorker {
	other := *w
	change(&other)
	return &other
}

// A lie is what a worker says that is not so, and how it is refused.
type lie struct {
	name   string
	tell   func() (int, string)
	status int
	code   string
}

// everyCall are the calls of a lease.
func (w *rawWorker) everyCall(name string, status int, code string) (all []lie) {
	weights := artifact.DigestOf([]byte("weights"))
	for what, body := range map[string]object{
		"heartbeat":   {"number": 99, "step": 99, "total_steps": 100, "tokens": 9},
		"events":      {"events": []object{{"number": 99, "level": "info", "type": "message", "step": 1, "message": "a lie"}}},
		"uploads":     {"files": []object{{"sha256": weights, "bytes": 7}}},
		"checkpoints": {"step": 9, "files": []object{file("model.bin", weights, 7)}},
		"done":        {"outcome": "failed", "step": 9, "tokens": 9, "error_code": "a_lie"},
	} {
		all = append(all, lie{name + ": " + what, func() (int, string) { return w.post(what, body, nil) }, status, code})
	}
	return append(all,
		lie{name + ": a file", func() (int, string) { return w.send([]byte("weights")) }, status, code},
		lie{name + ": a download", func() (int, string) { return w.ask(http.MethodGet, w.path("files/"+string(weights)), nil, nil) }, status, code},
	)
}

// fileLies are those about files. Another workspace has theirs.
func (w *rawWorker) fileLies(theirs []byte) []lie {
	const bad, invalid = http.StatusBadRequest, "invalid_parameter"
	named, sent := artifact.DigestOf([]byte("what it names")), []byte("what it sends")
	checkpoint := func(files ...object) func() (int, string) {
		return func() (int, string) { return w.post("checkpoints", object{"step": 9, "files": files}, nil) }
	}
	send := func(digest string, content []byte) func() (int, string) {
		return func() (int, string) { return w.ask(http.MethodPost, w.path("files/"+digest), content, nil) }
	}
	foreign, weights := artifact.DigestOf(theirs), artifact.DigestOf([]byte("true weights"))
	never := artifact.DigestOf([]byte("never"))
	return []lie{
		{"other bytes", send(string(named), sent), bad, invalid},
		{"fewer bytes", send(string(named), sent[:4]), bad, invalid},
		{"no digest", send(strings.Repeat("G", 64), sent), bad, invalid},
		{"a length below zero", func() (int, string) {
			return w.post("uploads", object{"files": []object{{"sha256": named, "bytes": -1}}}, nil)
		}, bad, invalid},
		{"a checkpoint of a file that was refused", checkpoint(file("model.bin", named, len(sent))), bad, invalid},
		{"a checkpoint of a file that was never sent", checkpoint(file("model.bin", never, 5)), bad, invalid},
		{"a checkpoint with another length", checkpoint(file("model.bin", weights, 11)), bad, invalid},
		{"a checkpoint of another workspace's file", checkpoint(file("model.bin", foreign, len(theirs))), bad, invalid},
		{"a name that leads out", checkpoint(file("../model.bin", weights, 12)), bad, invalid},
		{"a download of another workspace's file", func() (int, string) {
			return w.ask(http.MethodGet, w.path("files/"+string(foreign)), nil, nil)
		}, http.StatusNotFound, "not_found"},
	}
}

func tellAll(t *testing.T, lies []lie) {
	t.Helper()
	for _, l := range lies {
		if status, code := l.tell(); status != l.status || code != l.code {
			t.Errorf("%s: %d %s, want %d %s", l.name, status, code, l.status, l.code)
		}
	}
}

// Every lie of a worker is refused, and nothing of it stays: the run ends as the worker with the lease has said first.
func TestALyingWorkerIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		s := &trainingServer{instance: p}
		s.server = p.serve(t, "--training-prices", "cpu=36")
		s.key = s.server.key()
		s.file = s.upload(t, examples())
		theirs := bytes.ReplaceAll(examples(), []byte("say"), []byte("cry"))
		other := &trainingServer{instance: p, server: s.server, key: p.newWorkspace(t, "others", money.Dollar)}
		var kept struct{ SHA256 artifact.Digest }
		other.caller().get(t, "/v1/fine-tuning/files/"+other.upload(t, theirs), &kept)
		if kept.SHA256 != artifact.DigestOf(theirs) {
			t.Fatalf("another workspace's file is %s", kept.SHA256)
		}
		w := s.raw(t, "")
		w.take(t)
		old := *w
		w.save(t, 5, "true weights")
		if status, code := w.post("done", object{"outcome": "stopped", "step": 5, "tokens": 0}, nil); status != http.StatusOK {
			t.Fatalf("%d %s", status, code)
		}
		w.again(t)
		const stale, unknown = http.StatusConflict, http.StatusUnauthorized
		tellAll(t, old.everyCall("the fence that was replaced", stale, "stale_lease"))
		tellAll(t, w.with(func(x *rawWorker) { x.fence = "x" }).everyCall("another fence", stale, "stale_lease"))
		tellAll(t, w.with(func(x *rawWorker) { x.attempt++ }).everyCall("the next attempt", stale, "stale_lease"))
		foreign := s.raw(t, "others")
		tellAll(t, w.with(func(x *rawWorker) { x.token = foreign.token }).everyCall("a token of another workspace", stale, "stale_lease"))
		tellAll(t, w.with(func(x *rawWorker) { x.token = s.key }).everyCall("a customer's key", unknown, "invalid_api_key"))
		tellAll(t, w.fileLies(theirs))
		s.numbers(t, w)
		s.ends(t, w)
		p.verifyLedger(t)
	})
}

// numbers are lies about what came before: what is sent again is kept once, and a heartbeat of the past moves nothing.
func (s *trainingServer) numbers(t *testing.T, w *rawWorker) {
	t.Helper()
	for i, message := range []string{"first", "again", "another text"} {
		var kept struct{ Kept int }
		told := object{"events": []object{{"number": 1, "level": "info", "type": "message", "step": 6, "message": message}}}
		if status, code := w.post("events", told, &kept); status != http.StatusOK || (kept.Kept == 1) != (i == 0) {
			t.Errorf("event %q: %d %s, %d kept", message, status, code, kept.Kept)
		}
	}
	for _, beat := range []struct{ number, step int }{{5, 50}, {5, 60}, {3, 10}, {1, 90}} {
		body := object{"number": beat.number, "step": beat.step, "total_steps": 100, "tokens": beat.step}
		if status, code := w.post("heartbeat", body, nil); status != http.StatusOK {
			t.Errorf("heartbeat %d: %d %s", beat.number, status, code)
		}
	}
	var job tuning
	s.caller().call(t, http.MethodGet, "/v1/fine-tuning/jobs/"+w.run, nil, http.StatusOK, &job)
	if job.Step != 50 {
		t.Errorf("the step is %d", job.Step)
	}
	var events []struct{ Message string }
	s.caller().get(t, "/v1/fine-tuning/jobs/"+w.run+"/events", &events)
	for _, e := range events {
		if e.Message == "again" || e.Message == "another text" || e.Message == "a lie" {
			t.Errorf("the run has the event %q", e.Message)
		}
	}
}

// ends are lies about the end: it comes once, with a checkpoint that is there.
func (s *trainingServer) ends(t *testing.T, w *rawWorker) {
	t.Helper()
	done := func(outcome string, step int) func() (int, string) {
		return func() (int, string) {
			return w.post("done", object{"outcome": outcome, "step": step, "tokens": 50}, nil)
		}
	}
	tellAll(t, []lie{
		{"success without its checkpoint", done("succeeded", 50), http.StatusConflict, "conflict"},
		{"an end that is none", done("won", 5), http.StatusBadRequest, "invalid_parameter"},
		{"the end", done("succeeded", 5), http.StatusOK, ""},
		{"the end again", done("succeeded", 5), http.StatusOK, ""},
		{"another end", done("failed", 5), http.StatusConflict, "stale_lease"},
		{"a stop after the end", done("stopped", 5), http.StatusConflict, "stale_lease"},
	})
	tellAll(t, w.with(func(*rawWorker) {}).everyCall("after the end", http.StatusConflict, "stale_lease"))
	var job tuning
	eventually(t, "a model", func() bool {
		s.caller().call(t, http.MethodGet, "/v1/fine-tuning/jobs/"+w.run, nil, http.StatusOK, &job)
		return job.ModelVersionID != ""
	})
	if job.Status != "SUCCEEDED" || job.Step != 5 || job.Attempt != 2 || job.Error != nil {
		t.Errorf("%+v %+v", job, job.Error)
	}
	got := s.download(t, "/v1/model-versions/"+job.ModelVersionID+"/files/model.bin")
	if got != string(artifact.DigestOf([]byte("true weights"))) {
		t.Errorf("the model is %q", got)
	}
}
