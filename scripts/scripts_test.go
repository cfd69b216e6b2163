// Package scripts holds the tests of the shell scripts.
package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A check that could not be made must not look like one that passed.
func TestVulnEndsWithNotCheckedWithoutItsDatabase(t *testing.T) {
	for name, c := range map[string]struct {
		tool, last string
		code       int
		required   bool
	}{
		"nothing found":            {`exit 0`, "govulncheck: no known vulnerabilities", 0, false},
		"a finding":                {`echo 'Vulnerability #1'; exit 3`, "Vulnerability #1", 3, false},
		"no network":               {`echo 'govulncheck: fetching vulnerabilities: Get "https://…": dial tcp: lookup: no such host' >&2; exit 1`, "not checked", 0, false},
		"no network, and required": {`echo 'govulncheck: fetching vulnerabilities: 403 Forbidden' >&2; exit 1`, "not checked", 1, true},
		"it does not compile":      {`echo 'undefined: x' >&2; exit 1`, "undefined: x", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			tool := filepath.Join(t.TempDir(), "govulncheck")
			if err := os.WriteFile(tool, []byte("#!/bin/sh\n"+c.tool+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			if _, err := os.ReadFile("vuln"); err != nil { // so that a change of it is not answered from the cache
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "./vuln", tool)
			cmd.Env = os.Environ()
			if c.required {
				cmd.Env = append(cmd.Env, "REQUIRED=1")
			}
			out, _ := cmd.CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if got := cmd.ProcessState.ExitCode(); got != c.code || !strings.Contains(lines[len(lines)-1], c.last) {
				t.Errorf("exit %d, want %d; it ends with %q", got, c.code, lines[len(lines)-1])
			}
		})
	}
}

// What a page says that a test shows must be shown by a test.
func TestTheTestsThatPagesNameExist(t *testing.T) {
	source := ""
	for _, folder := range []string{"../internal", "../e2e"} {
		if err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source += string(text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, page := range []string{"../SECURITY.md", "../docs/evidence.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z]+)`").FindAllStringSubmatch(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no test", page)
		}
		for _, name := range names {
			if !strings.Contains(source, "\nfunc "+name[1]+"(") {
				t.Errorf("%s names %s, which does not exist", page, name[1])
			}
		}
	}
}
