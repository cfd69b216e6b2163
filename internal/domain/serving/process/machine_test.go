package process_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/serving/process"
)

// until waits for a backend to list what is wanted.
func until(t *testing.T, b serving.Backend, what string, wanted func([]serving.Deployment) bool) []serving.Deployment {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		all, err := b.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if wanted(all) {
			return all
		}
		select {
		case <-b.Changed():
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s: %+v", what, all)
		}
	}
}

func phases(all []serving.Deployment, phase serving.Phase) (found []serving.Replica) {
	for _, d := range all {
		for _, r := range d.Replicas {
			if r.Phase == phase {
				found = append(found, r)
			}
		}
	}
	return found
}

func spec(name string, replicas int) serving.Spec {
	return serving.Spec{
		Name: name, Engine: "serves", BaseModel: "tiny/bigram", Model: "m", GPUType: serving.CPU, GPUCount: 1, Replicas: replicas,
	}
}

// empty removes all deployments of a machine, and checks that nothing is left.
func (m *machine) empty(t *testing.T, b serving.Backend) {
	t.Helper()
	until(t, b, "all is gone", func(all []serving.Deployment) bool {
		for _, d := range all {
			if err := b.Remove(t.Context(), d.Spec.Name); err != nil {
				t.Fatal(err)
			}
			for _, r := range d.Replicas {
				if r.Phase == serving.Ended {
					if err := b.Forget(t.Context(), d.Spec.Name, r.ID); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		left, err := b.List(t.Context())
		return err == nil && len(left) == 0
	})
	m.Check(t, nil)
}

// environment asks a replica's engine for its variables.
func environment(t *testing.T, r serving.Replica) []string {
	t.Helper()
	answer, err := http.Get(r.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

func TestAnEngineGetsNoSecretOfTheServer(t *testing.T) {
	t.Setenv("SOVEREIGN_DATABASE_URL", "postgres://u:canary@h/d")
	t.Setenv("OPENAI_API_KEY", "canary")
	m := newMachine(t)
	b := m.Open(t)
	defer b.Close()
	if err := b.Apply(t.Context(), spec("a", 1)); err != nil {
		t.Fatal(err)
	}
	ready := until(t, b, "one is ready", func(all []serving.Deployment) bool { return len(phases(all, serving.Ready)) == 1 })
	got := environment(t, phases(ready, serving.Ready)[0])
	if strings.Contains(strings.Join(got, " "), "canary") || !slices.Contains(got, "PATH="+os.Getenv("PATH")) ||
		!slices.Contains(got, "CUDA_VISIBLE_DEVICES=") {
		t.Errorf("%q", got)
	}
	m.empty(t, b)
}

func TestNoTwoReplicasShareAGPU(t *testing.T) {
	t.Parallel()
	m := newMachine(t) // with two
	b := m.Open(t)
	defer b.Close()
	three := spec("a", 3)
	three.GPUType = "h200"
	if err := b.Apply(t.Context(), three); err != nil {
		t.Fatal(err)
	}
	all := until(t, b, "two are ready", func(all []serving.Deployment) bool { return len(phases(all, serving.Ready)) == 2 })
	if want := "a replica needs 1 GPUs, and 0 of the machine's 2 are free"; all[0].Problem != want {
		t.Errorf("the problem is %q", all[0].Problem)
	}
	have := map[string]bool{}
	for _, r := range phases(all, serving.Ready) {
		for _, variable := range environment(t, r) {
			if gpu, ok := strings.CutPrefix(variable, "CUDA_VISIBLE_DEVICES="); ok {
				have[gpu] = true
			}
		}
	}
	if !have["0"] || !have["1"] {
		t.Errorf("GPUs: %v", have)
	}
	other := spec("b", 1)
	other.GPUType = "h200"
	if err := b.Apply(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	three.Replicas = 1 // its GPU goes to the other
	if err := b.Apply(t.Context(), three); err != nil {
		t.Fatal(err)
	}
	until(t, b, "both have one", func(all []serving.Deployment) bool {
		return len(all) == 2 && len(phases(all[:1], serving.Ready)) == 1 && len(phases(all[1:], serving.Ready)) == 1 &&
			all[0].Problem == "" && all[1].Problem == ""
	})
	m.empty(t, b)
}

// An engine may start others, in sessions of their own, and be killed before it ends them.
func TestWhatAnEngineStartedEndsWithIt(t *testing.T) {
	t.Parallel()
	for _, without := range []bool{false, true} {
		t.Run("without cgroups "+strconv.FormatBool(without), func(t *testing.T) {
			t.Parallel()
			endsWithIt(t, without)
		})
	}
}

func endsWithIt(t *testing.T, withoutCgroups bool) {
	t.Helper()
	m := newMachine(t)
	c := m.config(t)
	c.NoCgroups = withoutCgroups
	forks := serving.Template("forks")
	forks.BaseModels, forks.GPUTypes, forks.Health = []string{"tiny/*"}, []string{"cpu"}, "/"
	// The last one has no marker: its environment is empty.
	forks.Command = []string{"/bin/sh", "-c", `setsid sleep 1000 & sleep 1000 & env -i /bin/sleep 1000 & exec "$0" engine serves "$1"`, "{sovereign}", "{host}:{port}"}
	c.Engines = append(c.Engines, forks)
	b, err := process.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := spec("a", 1)
	s.Engine = "forks"
	if err := b.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	ready := until(t, b, "one is ready", func(all []serving.Deployment) bool { return len(phases(all, serving.Ready)) == 1 })
	m.Kill(t, "a", serving.Replica{ID: phases(ready, serving.Ready)[0].ID})
	s.Replicas = 0
	if err := b.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	until(t, b, "none runs", func(all []serving.Deployment) bool {
		return len(phases(all, serving.Ended)) >= 1 && len(phases(all, serving.Ready))+len(phases(all, serving.Starting)) == 0
	})
	m.empty(t, b)
}

// server is the part of a server that runs engines: it scales its deployment up and down until it is killed.
func server(folder string) {
	c := process.Config{
		Folder: folder, Engines: engines(), Log: slog.New(slog.DiscardHandler),
		Pause: time.Millisecond, Grace: 50 * time.Millisecond, Look: 10 * time.Millisecond,
	}
	b, err := process.Open(c)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("open\n")
	for n := 0; ; n++ {
		s := spec("drill", n%4)
		if err := b.Apply(context.Background(), s); err != nil {
			panic(err)
		}
		all, err := b.List(context.Background())
		if err != nil {
			panic(err)
		}
		for _, r := range phases(all, serving.Ended) {
			if err := b.Forget(context.Background(), "drill", r.ID); err != nil {
				panic(err)
			}
		}
		_, _ = os.Stdout.WriteString(strconv.Itoa(n) + "\n")
		time.Sleep(time.Millisecond) // not to be the only one who runs
	}
}

// Whenever a server is killed, the next one knows every engine that runs.
func TestAServerThatIsKilledAtAnyPointLeaksNoEngine(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for range 25 {
		kill(t, m.folder)
		b := m.Open(t)
		m.allListed(t, b)
		b.Close()
		m.onlyRecords(t)
	}
	b := m.Open(t)
	defer b.Close()
	m.empty(t, b)
}

// allListed waits until every process of the machine is one that the backend lists. A process that waits for its record
// ends by itself when its server was killed.
func (m *machine) allListed(t *testing.T, b serving.Backend) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		strange := m.processes(t)
		all, err := b.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			for _, r := range d.Replicas {
				delete(strange, r.ID)
			}
		}
		if len(strange) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("processes that are not listed: %v", strange)
		}
	}
}

// onlyRecords fails if the folder has files of replicas without records.
func (m *machine) onlyRecords(t *testing.T) {
	t.Helper()
	outputs, err := filepath.Glob(filepath.Join(m.folder, "run", "*", "*.log"))
	torn, err2 := filepath.Glob(filepath.Join(m.folder, "run", "*", "*.new"))
	if err != nil || err2 != nil || len(torn) > 0 {
		t.Error("files are left:", torn, err, err2)
	}
	for _, at := range outputs {
		if _, err := os.Stat(strings.TrimSuffix(at, ".log") + ".json"); err != nil {
			t.Errorf("%s has no record", at)
		}
	}
}

// kill starts a server, lets it work for a while, and kills it.
func kill(t *testing.T, folder string) {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), own, "engine", "server", folder)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 1 + rand.IntN(20) {
		if !lines.Scan() {
			t.Error("the server has ended by itself")
		}
	}
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) // somewhere between two lines
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
}
