package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db/dbtest"
)

// A test process that is killed leaves no process behind: no server, no provider, no PostgreSQL, no child of make.
func TestAKilledTestProcessLeavesNoProcess(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^TestStartProcessesAndWait$")
	cmd.Env = append(os.Environ(), "SOVEREIGN_TEST_BINARY="+binary, "SOVEREIGN_TEST_WAIT=yes")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	done := startChild(t, cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	var children []int
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ready"; {
		if text, found := strings.CutPrefix(lines.Text(), "pid "); found {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, pid)
		}
	}
	if len(children) != 4 {
		t.Fatalf("the test process started %v", children)
	}
	for _, pid := range children {
		if !runs(pid) {
			t.Fatalf("process %d has ended already", pid)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	for _, pid := range children {
		eventually(t, fmt.Sprintf("process %d ends", pid), func() bool { return !runs(pid) })
	}
}

// TestStartProcessesAndWait is the test process that TestAKilledTestProcessLeavesNoProcess kills.
func TestStartProcessesAndWait(t *testing.T) {
	if os.Getenv("SOVEREIGN_TEST_WAIT") == "" {
		t.Skip("TestAKilledTestProcessLeavesNoProcess runs this")
	}
	pg, err := dbtest.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("pid", pg.PID())
	fmt.Println("pid", newInstance(t, secret.Text{}).serve(t).Process.Pid)
	provider := exec.Command(mustBuildProvider(t))
	startChild(t, provider)
	fmt.Println("pid", provider.Process.Pid)
	note := filepath.Join(t.TempDir(), "pid")
	startGroup(t, exec.Command("sh", "-c", `sleep 3600 & echo $! >"$0.new" && mv "$0.new" "$0"; wait`, note))
	eventually(t, "the child of the group runs", func() bool { _, err := os.Stat(note); return err == nil })
	text, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Print("pid ", string(text))
	fmt.Println("ready")
	select {}
}

// runs reports whether a process runs: it exists, and is not a zombie whose parent has not collected it.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}
