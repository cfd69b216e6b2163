package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// trainer answers how to run a Python program with the training worker's package, and the tools that check it.
func trainer(t *testing.T) func(ctx context.Context, program string, args ...string) *exec.Cmd {
	t.Helper()
	folder, err := filepath.Abs("../trainer")
	if err != nil {
		t.Fatal(err)
	}
	tools := pythonTools(t)
	readAll(t, folder, "src/sovereign_trainer", "src/sovereign_trainer/engines", "tests")
	return func(ctx context.Context, program string, args ...string) *exec.Cmd {
		cmd := tools(ctx, program, args...)
		cmd.Dir = folder
		return cmd
	}
}

// The worker's own tests pass, and its source satisfies the type checker and the linter.
func TestTheTrainingWorker(t *testing.T) {
	t.Parallel()
	python := trainer(t)
	for name, command := range map[string][]string{
		"tests":  {"python", "-m", "unittest", "discover", "-s", "tests"},
		"types":  {"mypy", "--no-incremental", "--cache-dir", os.DevNull},
		"lint":   {"ruff", "check", "."},
		"format": {"ruff", "format", "--check", "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*limit)
			defer cancel()
			cmd := python(ctx, command[0], command[1:]...)
			if out, ok := runChild(t, cmd); !ok {
				t.Errorf("%v\n%s", cmd.ProcessState, out)
			}
		})
	}
}
