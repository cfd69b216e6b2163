package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sovereign/internal/base/secret"
)

// pythonTools answers how to run a program with what sdk/rewards pins: httpx, and the tools that check Python.
func pythonTools(t *testing.T) func(ctx context.Context, program string, args ...string) *exec.Cmd {
	t.Helper()
	version := atLeast(t, "python3", 3, 11)
	folder := installed(t, "rewards", version, []string{"requirements.txt"}, func(folder string) [][]string {
		pip := folder + "/venv/bin/pip"
		return [][]string{
			{"python3", "-m", "venv", "venv"},
			{pip, "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"},
		}
	})
	return func(ctx context.Context, program string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(folder, "venv/bin", program), args...)
		cmd.Env = append(os.Environ(), "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1", "RUFF_NO_CACHE=true",
			"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
		return cmd
	}
}

// readAll reads the Python files of folders: a cached result must not outlive a change.
func readAll(t *testing.T, root string, folders ...string) {
	t.Helper()
	for _, part := range folders {
		files, err := filepath.Glob(filepath.Join(root, part, "*.py"))
		if err != nil || len(files) == 0 {
			t.Fatal("no files", part, err)
		}
		for _, file := range files {
			if _, err := os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// rewardClient answers how to run a program with the Python client.
func rewardClient(t *testing.T) func(ctx context.Context, program string, args ...string) *exec.Cmd {
	t.Helper()
	client, err := filepath.Abs("../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	tools := pythonTools(t)
	readAll(t, client, "src/sovereign_rewards", "tests")
	return func(ctx context.Context, program string, args ...string) *exec.Cmd {
		cmd := tools(ctx, program, args...)
		cmd.Dir = client
		return cmd
	}
}

// The client's own tests pass, and its source satisfies the type checker and the linter.
func TestThePythonRewardClient(t *testing.T) {
	t.Parallel()
	client := rewardClient(t)
	for name, command := range map[string][]string{
		"tests":  {"python", "-m", "unittest", "discover", "-s", "tests"},
		"types":  {"mypy", "--no-incremental", "--cache-dir", os.DevNull},
		"lint":   {"ruff", "check", ".", "../../e2e/trainers", "../../e2e/sdk/rewards"},
		"format": {"ruff", "format", "--check", ".", "../../e2e/trainers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*limit)
			defer cancel()
			cmd := client(ctx, command[0], command[1:]...)
			if out, ok := runChild(t, cmd); !ok {
				t.Errorf("%v\n%s", cmd.ProcessState, out)
			}
		})
	}
}

// The client scores at the server: in chunks, once per content, until the session ends.
func TestThePythonRewardClientScores(t *testing.T) {
	t.Parallel()
	client := rewardClient(t)
	p := newInstance(t, secret.Text{})
	server := p.serve(t, "--config", judgeConfig(t, startProvider(t), map[string]string{"judges": "mock?judge"}, nil))
	c := server.callerWith(server.key())
	criterion := c.criterion(t, "mock/judges", nil)
	c.grade(t, criterion, inlines("what", 240))
	path := "/v1/criteria/" + criterion + "/calibrations"
	if w := c.wait(t, path+"/"+c.begin(t, path, nil).ID); w.Status != "DONE" || w.Block.Trust == "provisional" {
		t.Fatalf("%+v", w)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*limit)
	defer cancel()
	program, err := filepath.Abs("sdk/rewards/live.py")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(program); err != nil { // a cached result must not outlive a change
		t.Fatal(err)
	}
	cmd := client(ctx, "python", program)
	cmd.Env = append(cmd.Env, "CRITERION="+criterion,
		"SOVEREIGN_BASE_URL="+server.address(), "SOVEREIGN_API_KEY="+server.key())
	if out, ok := runChild(t, cmd); !ok || !strings.Contains(string(out), "scored 601") {
		t.Errorf("%v\n%s\nthe server logged:\n%s", cmd.ProcessState, out, server.log)
	}
	p.verifyLedger(t)
}
