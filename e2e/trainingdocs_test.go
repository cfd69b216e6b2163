package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"sovereign/internal/base/secret"
)

var (
	shellBlock   = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")
	laptopLosses = regexp.MustCompile(`loss ([0-9.]+) to [0-9.]+, and ([0-9.]+) on the held-out conversations`)
)

// laptopCommands are the commands of docs/training.md from the start to the files of a job, as one script.
func laptopCommands(t *testing.T, address, key string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/training.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "## Ten minutes on a laptop\n")
	text, _, ok := strings.Cut(text, "## What a run costs\n")
	if !ok {
		t.Fatal("the page has other sections")
	}
	commands := []string{"trap 'kill $(jobs -p)' EXIT\ntrap exit TERM\n"}
	for _, block := range shellBlock.FindAllStringSubmatch(text, -1) {
		commands = append(commands, block[1])
	}
	script := strings.Join(commands, "")
	for written, want := range map[string]string{"http://127.0.0.1:8080": address, "sk_sovereign_…": key} {
		if strings.Count(script, written) != 1 {
			t.Fatalf("the page says %s %d times", written, strings.Count(script, written))
		}
		script = strings.Replace(script, written, want, 1)
	}
	return script
}

// The commands of docs/training.md, run as they stand on a new server, end with a model that is better on what it has
// not seen, and whose signature verifies.
func TestTheCommandsOfTheTrainingPageMakeABetterModel(t *testing.T) {
	t.Parallel()
	trainer(t) // says why, where there is no Python for the worker
	p := newInstance(t, secret.Text{})
	server := p.serve(t)
	folder := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(folder, "sovereign")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", laptopCommands(t, server.address(), server.key()))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its worker too
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "HOME="+folder, "SOVEREIGN_DATA_DIR="+p.data,
		"SOVEREIGN_ROOT_KEY_FILE="+p.root, "PIP_NO_INDEX=1", "UV_OFFLINE=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	out := newTail()
	cmd.Stdout, cmd.Stderr = out, out
	<-startChild(t, cmd)
	if !cmd.ProcessState.Success() {
		t.Fatalf("%v:\n%s", cmd.ProcessState, out)
	}
	losses := laptopLosses.FindStringSubmatch(out.String())
	if losses == nil {
		t.Fatalf("it says nothing of losses:\n%s", out)
	}
	first, _ := strconv.ParseFloat(losses[1], 64)
	last, _ := strconv.ParseFloat(losses[2], 64)
	if !(last < first/2) {
		t.Errorf("the loss of a random model is %v, and that of the trained one %v", first, last)
	}
	if !strings.Contains(out.String(), "valid") {
		t.Errorf("nothing was verified:\n%s", out)
	}
}
