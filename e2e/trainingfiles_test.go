package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/artifact/artifacttest"
)

// installedWorker starts a worker as docs/training.md does: its environment is made by the binary, from a clean folder.
func (s *trainingServer) installedWorker(t *testing.T, dir string) *trainerProcess {
	t.Helper()
	var minted struct{ ID, Token string }
	s.mustAdmin(t, &minted, "worker", "create", "laptop", "--json")
	token := filepath.Join(t.TempDir(), "token")
	writeFile(t, token, minted.Token)
	w := &trainerProcess{id: minted.ID, out: newTail()}
	w.Cmd = exec.CommandContext(t.Context(), binary, "train", "worker", "--install", "--dir", dir, "--url", s.server.address(),
		"--token-file", token)
	w.Env = append(w.Environ(), "PIP_NO_INDEX=1", "UV_OFFLINE=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
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

// bucket returns the flags of a server whose files are in an S3.
func bucket(t *testing.T, endpoint string) []string {
	t.Helper()
	c := artifacttest.Config(t, endpoint)
	key := filepath.Join(t.TempDir(), "key")
	writeFile(t, key, c.SecretKey.Reveal()+"\n")
	return []string{
		"--training-s3-endpoint", endpoint, "--training-s3-bucket", c.Bucket, "--training-s3-prefix", c.Prefix,
		"--training-s3-access-key", c.AccessKey, "--training-s3-secret-key", "file:" + key,
	}
}

// A worker that the binary installed trains with files in S3. An S3 that fails half-way, for the server and for the
// worker, changes nothing of the model; bytes that are not those of their name are read by nobody. A backup has the
// references, and a server that is restored elsewhere finds the bytes.
func TestTrainingOnAnS3ThatFailsHalfWay(t *testing.T) {
	t.Parallel()
	memory := &artifacttest.Memory{}
	s3 := artifacttest.NewFaulty(t, memory)
	s := newTrainingServer(t, newInstance(t, secret.Text{}), bucket(t, s3.URL)...)
	dir := filepath.Join(t.TempDir(), "trainer")
	w := s.installedWorker(t, dir)
	want := s.trained(t, s.ended(t, s.start(t, "sft")))
	if keys, _ := memory.Keys(); len(keys) < trainingSteps/10 {
		t.Errorf("S3 has %v", keys)
	}
	w.kill()
	s.mustAdmin(t, nil, "worker", "revoke", w.id)
	s.installedWorker(t, dir)

	faults := []artifacttest.Fault{
		artifacttest.CutRequest, artifacttest.CutAnswer, artifacttest.Broken, artifacttest.SlowDown, artifacttest.WrongBytes,
		artifacttest.Lie, artifacttest.Shorter,
	}
	var spoiled atomic.Int64
	s3.Spoil(func(*http.Request) artifacttest.Fault {
		if rand.N(4) != 0 {
			return artifacttest.None
		}
		spoiled.Add(1)
		return faults[rand.N(len(faults))]
	})
	job := s.ended(t, s.start(t, "sft"))
	s.compare(t, s.trained(t, job), want)
	if spoiled.Load() == 0 {
		t.Error("nothing was spoiled")
	}

	s3.Spoil(func(*http.Request) artifacttest.Fault { return artifacttest.WrongBytes })
	model := "/v1/model-versions/" + job.ModelVersionID + "/files/model.bin"
	if got := s.download(t, model); got == want.files["model.bin"] {
		t.Error("it was not spoiled")
	}
	s3.Spoil(func(*http.Request) artifacttest.Fault { return artifacttest.None })
	if got := s.download(t, model); got != want.files["model.bin"] {
		t.Errorf("the model is %q", got)
	}
	if strings.Contains(s.server.log.String(), "X-Amz-Signature") {
		t.Error("the log has a signed address")
	}
	s.verifyLedger(t)

	backup := filepath.Join(t.TempDir(), "backup")
	s.mustAdmin(t, nil, "backup", backup)
	s.server.stop(t)
	elsewhere := &trainingServer{instance: newInstance(t, secret.Text{}), key: s.key}
	copyFile(t, s.root, elsewhere.root)
	elsewhere.mustAdmin(t, nil, "restore", backup)
	elsewhere.server = elsewhere.serve(t, bucket(t, s3.URL)...)
	if got := elsewhere.download(t, model); got != want.files["model.bin"] {
		t.Errorf("the model of a restored server is %q", got)
	}
}

// download returns the digest of a file that came whole, and nothing otherwise.
func (s *trainingServer) download(t *testing.T, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.address()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, response.Body); err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// The server starts without its bucket and says so. Training calls are 503 until there is one, and nothing else is.
func TestABucketThatCannotBeReachedEndsNothingButTraining(t *testing.T) {
	t.Parallel()
	memory := &artifacttest.Memory{}
	s3 := artifacttest.NewFaulty(t, memory)
	s := &trainingServer{instance: newInstance(t, secret.Text{})}
	flags := bucket(t, s3.URL)
	s3.Gone.Store(true)
	s.server = s.serve(t, flags...)
	s.key = s.server.key()
	eventually(t, "a word about it", func() bool {
		return strings.Contains(s.server.log.String(), "the store of training files does not answer")
	})
	w := s.raw(t, "")
	if status, code, _ := w.lease(); status != http.StatusServiceUnavailable || code != "unavailable" {
		t.Errorf("a worker is answered %d %s", status, code)
	}
	var models []any
	if status := s.caller().get(t, "/v1/fine-tuning/models", &models); status != http.StatusOK {
		t.Errorf("models: %d", status)
	}
	s3.Gone.Store(false)
	eventually(t, "that it is used", func() bool {
		return strings.Contains(s.server.log.String(), "the store of training files answers")
	})
	s.file = s.upload(t, examples())
}

// A disk without room refuses a file with 507 and keeps nothing of it. The run goes on, and so does the server.
func TestAFullDiskRefusesACheckpointAndEndsNoRun(t *testing.T) {
	t.Parallel()
	s := &trainingServer{instance: newInstance(t, secret.Text{})}
	s.server = s.serve(t, "--training-prices", "cpu=36")
	s.key = s.server.key()
	s.file = s.upload(t, examples())
	w := s.raw(t, "")
	w.take(t)
	const room = 96 << 20 // more than the database has, and less than the file
	full := unix.Rlimit{Cur: room, Max: room}
	if err := unix.Prlimit(s.server.Process.Pid, unix.RLIMIT_FSIZE, &full, nil); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, room+1)
	if status, code := w.send(large); status != http.StatusInsufficientStorage || code != "storage_full" {
		t.Errorf("%d %s", status, code)
	}
	left, err := filepath.Glob(filepath.Join(s.data, "artifacts", "incoming", "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
	digest := artifact.DigestOf(large)
	checkpoint := object{"step": 1, "files": []object{file("model.bin", digest, len(large))}}
	if status, code := w.post("checkpoints", checkpoint, nil); status != http.StatusBadRequest {
		t.Errorf("a checkpoint without its file: %d %s", status, code)
	}
	beat := object{"number": 1, "step": 1, "total_steps": 2, "tokens": 1}
	if status, code := w.post("heartbeat", beat, nil); status != http.StatusOK {
		t.Errorf("%d %s", status, code)
	}
	w.save(t, 2, "small weights")
	if status, code := w.post("done", object{"outcome": "succeeded", "step": 2, "tokens": 1}, nil); status != http.StatusOK {
		t.Errorf("%d %s", status, code)
	}
	s.verifyLedger(t)
}
