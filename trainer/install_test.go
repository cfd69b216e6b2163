package trainer

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An installation of the test: what it said, and where it is.
func install(t *testing.T, dir, engine string) (said string, err error) {
	t.Helper()
	var out bytes.Buffer
	e := &Environment{Dir: dir, Engine: engine, Out: &out}
	err = e.Install(t.Context())
	return out.String(), err
}

// alone makes a path with some programs in place of all others, so that no other Python is found.
func alone(t *testing.T, scripts map[string]string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder)
}

// realPython is a Python that the tests may use.
func realPython(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatalf("python3, which make setup installs: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func TestTheWholePackageIsEmbedded(t *testing.T) {
	embedded, err := files()
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("src", func(at string, entry fs.DirEntry, err error) error {
		inside, _ := filepath.Rel("src", at)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "__pycache__" || strings.HasSuffix(at, ".egg-info")):
			return filepath.SkipDir
		case !entry.IsDir() && embedded[filepath.ToSlash(inside)] == nil && entry.Name() != "py.typed":
			t.Errorf("%s is not embedded: name it in embed.go", at)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The pins of pyproject.toml are those of the list that is installed: uv pip compile writes it anew.
func TestTheRequirementsAreThoseOfTheProject(t *testing.T) {
	project, err := os.ReadFile("pyproject.toml")
	if err != nil {
		t.Fatal(err)
	}
	pins := regexp.MustCompile(`"([a-z]+==[0-9.]+)"`).FindAllStringSubmatch(string(project), -1)
	if len(pins) < 5 {
		t.Fatalf("only %d pins were found", len(pins))
	}
	lines := strings.Split(string(trl), "\n")
	for _, pin := range pins {
		if !slices.ContainsFunc(lines, func(line string) bool { return line == pin[1] || strings.HasPrefix(line, pin[1]+" ;") }) {
			t.Errorf("requirements-trl.txt lacks %s", pin[1])
		}
	}
}

// Without a network: the engine small needs none.
func TestTheSmallEngineIsInstalledOnceAndRepaired(t *testing.T) {
	python := realPython(t)
	alone(t, map[string]string{"python3": `exec ` + python + ` "$@"`})
	dir := filepath.Join(t.TempDir(), "trainer")
	e := &Environment{Dir: dir, Engine: "small"}
	if err := e.Exec("work", nil); err == nil || !strings.Contains(err.Error(), "is not installed") {
		t.Errorf("before: %v", err)
	}
	said, err := install(t, dir, "small")
	if err != nil || !strings.Contains(said, "uses Python 3.") || !strings.Contains(said, "installed the engine small") {
		t.Fatalf("%s %v", said, err)
	}
	if said, err := install(t, dir, "small"); err != nil || strings.Contains(said, "uses Python") {
		t.Errorf("again: %s %v", said, err)
	}
	_, source, err := e.want()
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"broken off before its end": func() error { return os.Remove(e.stamp()) },
		"a Python that is gone":     func() error { return os.Remove(e.python()) },
		"an older release":          func() error { return os.WriteFile(e.stamp(), []byte("source src-1\nrequirements 2\n"), 0o600) },
		"a file that is half written": func() error {
			return os.WriteFile(filepath.Join(source, "sovereign_trainer", "engine.py"), []byte("import"), 0o600)
		},
	} {
		if err := damage(); err != nil {
			t.Fatal(name, err)
		}
		if said, err := install(t, dir, "small"); err != nil {
			t.Errorf("%s: %s %v", name, said, err)
		}
		if err := e.ask(t.Context(), source, "-m", "sovereign_trainer.engine", "small", "--about"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	unlock, err := e.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := install(t, dir, "small"); err == nil || !strings.Contains(err.Error(), "another installation") {
		t.Errorf("at once: %v", err)
	}
}

func TestAMissingOrOldPythonIsRefusedWithWhatToInstall(t *testing.T) {
	for name, c := range map[string]struct {
		scripts map[string]string
		want    string
	}{
		"none":   {nil, "needs Python 3.11 or newer: install it"},
		"old":    {map[string]string{"python3": "echo 3.9.2"}, "is Python 3.9.2: install it"},
		"broken": {map[string]string{"python3": "exit 127"}, "needs Python 3.11 or newer: install it"},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, c.scripts)
			dir := filepath.Join(t.TempDir(), "trainer")
			if _, err := install(t, dir, "small"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "small.installed")); err == nil {
				t.Error("it counts as installed")
			}
		})
	}
}

// uv installs the packages where it is, and pip where it is not. What fails does not count as installed, and is begun
// anew.
func TestTheTRLEngineIsInstalledByUVOrByPip(t *testing.T) {
	fake := `echo "$@" >>` // what was asked for
	for name, want := range map[string]string{"uv": "pip install --python", "python3": "-m pip install"} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			// The environment's Python is this script, and its packages cannot be installed.
			script := `case "$*" in
*"import sys"*) echo 3.12.1 ;;
*venv*) ` + fake + log + `; for last; do :; done; /bin/mkdir -p "$last/bin"; /bin/cp "$0" "$last/bin/python" ;;
*) ` + fake + log + `; exit 1 ;;
esac`
			scripts := map[string]string{"python3": script}
			if name == "uv" {
				scripts["uv"] = script
			}
			alone(t, scripts)
			dir := filepath.Join(t.TempDir(), "trainer")
			for range 2 {
				_, err := install(t, dir, "trl")
				if err == nil || !strings.Contains(err.Error(), "cannot install the packages") {
					t.Errorf("%v", err)
				}
			}
			asked, _ := os.ReadFile(log)
			if strings.Count(string(asked), "venv") != 2 || strings.Count(string(asked), want) != 2 {
				t.Errorf("%s", asked)
			}
			if _, err := os.Stat(filepath.Join(dir, "trl.installed")); err == nil {
				t.Error("it counts as installed")
			}
		})
	}
}
