package process_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/serving/process"
	"sovereign/internal/domain/serving/servingtest"
)

// The test's own program is the engines too: with a behaviour and an address as its arguments.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "engine" {
		if os.Args[2] == "server" {
			server(os.Args[3])
		}
		engine(servingtest.Behaviour(os.Args[2]), os.Args[3])
	}
	os.Exit(m.Run())
}

// engine behaves as it is told.
func engine(b servingtest.Behaviour, address string) {
	words := "\x1b[31m" + servingtest.LastWords + "\x1b[0m\a with " + servingtest.Credential + "\n"
	switch b {
	case servingtest.Exits:
		_, _ = os.Stderr.WriteString(words)
		os.Exit(3)
	case servingtest.Floods:
		for range 160 {
			_, _ = os.Stdout.WriteString(strings.Repeat("x\x00\xff\x1b", 1<<14))
		}
		_, _ = os.Stdout.WriteString("\n" + words)
		os.Exit(3)
	case servingtest.NeverHealthy:
		select {}
	case servingtest.Stubborn:
		signal.Ignore(syscall.SIGTERM)
	case servingtest.Serves:
	}
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Join(os.Environ(), "\n"))
	})))
	os.Exit(1)
}

func engines() serving.Engines {
	var all serving.Engines
	for _, b := range []servingtest.Behaviour{
		servingtest.Serves, servingtest.Exits, servingtest.NeverHealthy, servingtest.Stubborn, servingtest.Floods,
	} {
		e := serving.Template(string(b))
		e.BaseModels, e.GPUTypes = []string{"tiny/*"}, []string{"cpu", "h200"}
		e.Command = []string{"{sovereign}", "engine", string(b), "{host}:{port}"}
		if b == servingtest.NeverHealthy {
			e.StartTimeout = time.Millisecond
		}
		all = append(all, e)
	}
	return all
}

// A machine is a folder of engines.
type machine struct{ folder string }

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t.TempDir()}
	t.Cleanup(func() { // whatever became of the test, no process is left
		for _, pid := range m.processes(t) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return m
}

func (m *machine) config(t *testing.T) process.Config {
	t.Helper()
	return process.Config{
		Folder: m.folder, Engines: engines(), GPUs: []string{"0", "1"}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Pause: time.Millisecond, Grace: 50 * time.Millisecond, Look: 10 * time.Millisecond, LogBytes: 1 << 20,
	}
}

func (m *machine) Open(t *testing.T) serving.Backend {
	t.Helper()
	b, err := process.Open(m.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (m *machine) Engine(b servingtest.Behaviour) string { return string(b) }

// processes returns the processes that write to files in the folder.
func (m *machine) processes(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	outputs, err := filepath.Glob("/proc/[0-9]*/fd/1")
	if err != nil {
		t.Fatal(err)
	}
	for _, output := range outputs {
		to, err := os.Readlink(output)
		if err != nil || !strings.HasPrefix(to, m.folder+"/") {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(output, "/proc/%d/", &pid); err != nil {
			t.Fatal(err)
		}
		id := strings.TrimSuffix(filepath.Base(to), ".log")
		if before, known := found[id]; !known || pid < before { // the engine, and not what it has started
			found[id] = pid
		}
	}
	return found
}

func (m *machine) Kill(t *testing.T, _ string, r serving.Replica) {
	t.Helper()
	pid := m.processes(t)[r.ID]
	if pid == 0 {
		t.Fatalf("%s has no process", r.ID)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) Check(t *testing.T, listed []serving.Deployment) {
	t.Helper()
	runs, files := map[string]bool{}, map[string]bool{}
	for _, d := range listed {
		files[filepath.Join(d.Spec.Name, "deployment.json")] = true
		for _, r := range d.Replicas {
			runs[r.ID] = r.Phase != serving.Ended
			files[filepath.Join(d.Spec.Name, r.ID+".json")] = true
			files[filepath.Join(d.Spec.Name, r.ID+".log")] = true
		}
	}
	for id, pid := range m.processes(t) {
		if !runs[id] {
			t.Errorf("process %d of %s is left", pid, id)
		}
	}
	if cgroups, err := process.Cgroups(m.folder); err != nil || len(cgroups) > len(m.processes(t)) {
		t.Errorf("cgroups are left: %v %v", cgroups, err)
	}
	found, err := filepath.Glob(filepath.Join(m.folder, "run", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range found {
		if name, _ := filepath.Rel(filepath.Join(m.folder, "run"), at); !files[name] {
			t.Errorf("%s is left", name)
		}
	}
}

func TestBackend(t *testing.T) {
	t.Parallel()
	servingtest.Run(t, func(t *testing.T) servingtest.Fixture { return newMachine(t) })
}
