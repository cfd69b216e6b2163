package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// An Environment is a folder with the worker's package, and a Python with what an engine needs.
type Environment struct {
	Dir    string
	Engine string // small or trl
	Python string // the Python to use; empty to look for one
	Wait   bool   // for another installation in the folder, rather than being refused
	Out    io.Writer
}

// DefaultDir is where environments are unless a folder is named.
func DefaultDir() (string, error) {
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "sovereign", "trainer"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the worker: %w: name one with --dir", err)
	}
	return filepath.Join(home, ".local", "share", "sovereign", "trainer"), nil
}

func (e *Environment) env() string    { return filepath.Join(e.Dir, e.Engine) }
func (e *Environment) stamp() string  { return filepath.Join(e.Dir, e.Engine+".installed") }
func (e *Environment) python() string { return filepath.Join(e.env(), "bin", "python") }
func (e *Environment) say(format string, args ...any) {
	_, _ = fmt.Fprintf(e.Out, "train worker: "+format+"\n", args...)
}

// want is what the stamp of a complete environment says. It is written last: without it, nothing counts.
func (e *Environment) want() (stamp, source string, err error) {
	texts, err := files()
	if err != nil {
		return "", "", err
	}
	source = filepath.Join(e.Dir, "src-"+digest(texts, slices.Sorted(maps.Keys(texts))))
	needs := digest(map[string][]byte{"requirements": engines[e.Engine].requirements}, []string{"requirements"})
	return fmt.Sprintf("source %s\nrequirements %s\n", filepath.Base(source), needs), source, nil
}

// Install makes the environment, unless it is there. One that was broken off is made again.
func (e *Environment) Install(ctx context.Context) error {
	stamp, source, err := e.want()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(e.Dir, 0o700); err != nil {
		return fmt.Errorf("make the worker's folder: %w", err)
	}
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := unpack(source); err != nil {
		return err
	}
	said, _ := os.ReadFile(e.stamp()) // none is that of an environment that is not complete
	_, needs, _ := strings.Cut(stamp, "\n")
	complete := strings.HasSuffix(string(said), needs) && e.ask(ctx, source, "-c", "import sovereign_trainer") == nil
	switch {
	case complete && string(said) == stamp:
		e.say("the engine %s is installed in %s", e.Engine, e.Dir)
		return nil
	case !complete:
		if err := e.build(ctx); err != nil {
			return err
		}
	}
	// The engine says what it can do here when everything that it needs is there.
	if err := e.ask(ctx, source, "-m", "sovereign_trainer.engine", e.Engine, "--about"); err != nil {
		return fmt.Errorf("the engine %s does not start: %w", e.Engine, err)
	}
	if err := replace(e.stamp(), []byte(stamp)); err != nil {
		return err
	}
	e.say("installed the engine %s in %s", e.Engine, e.Dir)
	return nil
}

// lock keeps a second installation out of the folder.
func (e *Environment) lock() (unlock func(), err error) {
	held, err := os.OpenFile(filepath.Join(e.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the worker's folder: %w", err)
	}
	how := syscall.LOCK_EX
	if !e.Wait {
		how |= syscall.LOCK_NB
	}
	if err := syscall.Flock(int(held.Fd()), how); err != nil {
		_ = held.Close()
		return nil, fmt.Errorf("another installation works in %s", e.Dir)
	}
	return func() { _ = held.Close() }, nil
}

// unpack writes the package into a folder that is named by what it has. A worker of another release keeps its own.
func unpack(to string) error {
	texts, err := files()
	if err != nil {
		return err
	}
	for name, text := range texts {
		at := filepath.Join(to, filepath.FromSlash(name))
		if there, err := os.ReadFile(at); err == nil && bytes.Equal(there, text) { //nolint:gosec // our own folder
			continue
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return fmt.Errorf("unpack the worker: %w", err)
		}
		if err := replace(at, text); err != nil {
			return fmt.Errorf("unpack the worker: %w", err)
		}
	}
	return nil
}

// replace writes a file whole, or not at all.
func replace(at string, text []byte) error {
	if err := os.WriteFile(at+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(at+".new", at)
}

// build makes the Python environment anew.
func (e *Environment) build(ctx context.Context) error {
	if err := errors.Join(removeIfThere(e.stamp()), os.RemoveAll(e.env())); err != nil {
		return fmt.Errorf("remove an incomplete environment: %w", err)
	}
	needs := engines[e.Engine]
	python, version, err := e.find(ctx, needs.minor)
	if err != nil {
		return err
	}
	e.say("uses Python %s, %s", version, python)
	if needs.requirements == nil {
		return e.run(ctx, "cannot make an environment", python, "-m", "venv", "--without-pip", e.env())
	}
	list := filepath.Join(e.Dir, "requirements-"+e.Engine+".txt")
	if err := replace(list, needs.requirements); err != nil {
		return fmt.Errorf("write the requirements: %w", err)
	}
	e.say("installs %d packages: some gigabytes, once", bytes.Count(needs.requirements, []byte("==")))
	if uv, err := exec.LookPath("uv"); err == nil {
		if err := e.run(
			ctx, "uv cannot make an environment", uv, "venv", "--quiet", "--python", python, e.env(),
		); err != nil {
			return err
		}
		return e.run(ctx, "uv cannot install the packages", uv, "pip", "install", "--python", e.python(), "-r", list)
	}
	const lacking = "cannot make an environment with pip: install Python's venv module (Debian: apt install python3-venv), or uv"
	if err := e.run(ctx, lacking, python, "-m", "venv", e.env()); err != nil {
		return err
	}
	return e.run(ctx, "pip cannot install the packages", e.python(), "-m", "pip", "install", "--disable-pip-version-check",
		"--progress-bar", "on", "-r", list)
}

func removeIfThere(at string) error {
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// find returns a Python that is new enough.
func (e *Environment) find(ctx context.Context, minor int) (python, version string, err error) {
	names := []string{e.Python}
	if e.Python == "" {
		names = []string{"python3", "python3.14", "python3.13", "python3.12", "python3.11", "python"}
	}
	old := ""
	for _, name := range names {
		at, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		const question = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
		out, err := exec.CommandContext(ctx, at, "-c", question).Output() //nolint:gosec // a Python of the operator's
		var major, found int
		if _, bad := fmt.Sscanf(string(out), "%d.%d", &major, &found); err != nil || bad != nil {
			continue // such as a name that stands for no Python now
		}
		if version = strings.TrimSpace(string(out)); major == 3 && found >= minor {
			return at, version, nil
		}
		old = fmt.Sprintf("; %s is Python %s", at, version)
	}
	return "", "", fmt.Errorf("the engine %s needs Python 3.%d or newer%s: install it (Debian: apt install python3), "+
		"or name one with --python", e.Engine, minor, old)
}

// run runs a step, and shows what it says.
func (e *Environment) run(ctx context.Context, failed, program string, args ...string) error {
	step := exec.CommandContext(ctx, program, args...) //nolint:gosec // our own steps, with the operator's programs
	step.Stdout, step.Stderr = e.Out, e.Out
	if err := step.Run(); err != nil {
		return fmt.Errorf("%s: %s: %w", failed, filepath.Base(program), err)
	}
	return nil
}

// ask runs the environment's Python, and returns the last line of what it complains about.
func (e *Environment) ask(ctx context.Context, source string, args ...string) error {
	ask := exec.CommandContext(ctx, e.python(), args...) //nolint:gosec // it was installed by us
	ask.Env = environ(source)
	var words bytes.Buffer
	ask.Stderr = &words
	if err := ask.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(words.String()), "\n")
		return fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return nil
}

// environ is the environment of the worker: its package, and nothing of the folder that it is started in.
func environ(source string) []string {
	own := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "PYTHONPATH=") || strings.HasPrefix(variable, "PYTHONHOME=")
	})
	return append(own, "PYTHONPATH="+source, "PYTHONSAFEPATH=1")
}

// Exec becomes the worker, or another command of its package. It returns only when it could not.
func (e *Environment) Exec(command string, args []string) error {
	stamp, source, err := e.want()
	if err != nil {
		return err
	}
	if said, err := os.ReadFile(e.stamp()); err != nil || string(said) != stamp {
		return fmt.Errorf("the engine %s of this release is not installed in %s: add --install", e.Engine, e.Dir)
	}
	argv := append([]string{e.python(), "-m", "sovereign_trainer", command}, args...)
	if err := syscall.Exec(e.python(), argv, environ(source)); err != nil { //nolint:gosec // it was installed by us
		return fmt.Errorf("start %s: %w", command, err)
	}
	return nil
}
