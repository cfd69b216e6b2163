package redact

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// worstUnits are texts that, repeated, give the matchers as many candidates as possible.
func worstUnits() map[string]string {
	all := map[string]string{
		"jwt": "eyJ", "jwt parts": "eyJhbGciOiJIUzI1NiJ9.", "jwt dots": ".eyJ", "pem": "-----BEGIN ", "pem lines": "-----BEGIN PRIVATE KEY----- ", "pem cut": "-----BEGIN PRIVATE KEY-----!", "pem ends": "-----BEGIN PRIVATE KEY-----\n-----END ",
		"base64": "QWxhZGRpbjpvcGVu/+", "hex": "0123456789abcdef", "escapes": `\u0041`, "deep escapes": `\\\\u0041`, "backslashes": `\\`, "slashes": `\/`, "quotes": `\"`,
		"sk": "sk-", "sk dashes": "-sk-a", "aws": "AKIA", "passwords": "password=", "quoted passwords": `password='`, "keys": "key=", "key lists": "key,", "tokens": "token is ", "urls": "a://", "users": "a://b:",
		"many @": "a://b:c@", "bearer": "Bearer ", "basic": "Basic QWxh", "curl": " -u a:", "square": "EAAA", "digits": "12:A", "facebook": "12|a", "terraform": "a.atlasv1.", "azure": "1Q~", "spaces": " ", "names": `"value":`,
		"one line": "a", "netrc": "login a password ", "netrc lines": `machine a\nlogin b\npassword `, "aws words": "aws secret ", "aws keys": "aws " + strings.Repeat("Ab1+", 10) + " ",
		"base64 text": base64.StdEncoding.EncodeToString([]byte("only words here. ")), "base64 lines": base64.StdEncoding.EncodeToString([]byte(strings.Repeat("only text, no key. ", 3))) + `\n`,
	}
	for _, p := range Samples(newRand()) {
		if p.Before != "" {
			all[p.Rule+" cut"] = p.Text()[:len(p.Text())-len(p.After)-1]
		}
	}
	return all
}

// stepsOf returns how many bytes and candidates the matchers examine in all passes over a JSON text.
func stepsOf(text []byte) (steps int) {
	for range maxPasses {
		hits, n := findCounting(text, true)
		steps += n
		if len(hits) == 0 {
			break
		}
		text = replaceHits(text, hits)
	}
	return steps
}

// TestStepsAreLinear repeats one unit, then another, in every combination. Eight times the text may take about eight
// times the steps; quadratic work would take 64 times. Steps are counted, so that the result does not depend on the
// machine.
func TestStepsAreLinear(t *testing.T) {
	const size, times, most, free = 512, 8, 12, 8 // up to free steps for each byte are not compared
	units := worstUnits()
	tails := maps.Clone(units)
	for _, tail := range []string{".", ":", "?", "=", "-", "!", "@", "\\"} {
		tails["tail "+tail] = tail
	}
	steps := func(unit, tail string, size int) int {
		return stepsOf([]byte(`"` + strings.Repeat(unit, size/len(unit)+1) + strings.Repeat(tail, size/len(tail)+1) + `!-----END"`))
	}
	for unitName, unit := range units {
		for tailName, tail := range tails {
			short, long := steps(unit, tail, size), steps(unit, tail, times*size)
			if long > most*max(short, free*size) {
				t.Errorf("%s, then %s: %d steps for %d bytes, and %d steps for %d", unitName, tailName, short, 2*size, long, 2*size*times)
			}
		}
	}
}

// ordinaryTexts returns source code and documentation, which hold no credentials.
func ordinaryTexts(t testing.TB) map[string][]byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env GOROOT, to find the standard library: %v", err)
	}
	all := map[string][]byte{}
	for _, pattern := range []string{
		filepath.Join(strings.TrimSpace(string(out)), "src", "*", "*.go"), filepath.Join(strings.TrimSpace(string(out)), "src", "[c-n]*", "[a-t]*", "*.go"),
		"../../../docs/*.md", "../../../*.md",
	} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			if all[name], err = os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

func TestOrdinaryTextHasFewFalsePositives(t *testing.T) {
	const most = 1.0 // false positives per million bytes
	size, found := 0, 0
	for name, text := range ordinaryTexts(t) {
		size += len(text)
		for _, h := range find(text, false) {
			found++
			t.Logf("%s in %s: %s", rules[h.rule].name, filepath.Base(name), around(text, h))
		}
	}
	rate := float64(found) / float64(size) * 1e6
	t.Logf("%d in %d bytes: %.2f in a million", found, size, rate)
	if size < 1e6 || rate > most {
		t.Errorf("%.2f false positives per million bytes", rate)
	}
}

func around(text []byte, h hit) string {
	return fmt.Sprintf("%q", text[max(0, h.from-30):min(len(text), h.from+40)])
}
