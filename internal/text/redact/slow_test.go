package redact

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// worst are texts that give the scanner as much to do as they can, over and over.
func worst() map[string]string {
	all := map[string]string{
		"jwt": "eyJ", "jwt parts": "eyJhbGciOiJIUzI1NiJ9.", "jwt dots": ".eyJ", "pem": "-----BEGIN ", "pem lines": "-----BEGIN PRIVATE KEY----- ", "pem cut": "-----BEGIN PRIVATE KEY-----!", "pem ends": "-----BEGIN PRIVATE KEY-----\n-----END ",
		"base64": "QWxhZGRpbjpvcGVu/+", "hex": "0123456789abcdef", "escapes": `\u0041`, "deep escapes": `\\\\u0041`, "backslashes": `\\`, "slashes": `\/`, "quotes": `\"`,
		"sk": "sk-", "sk dashes": "-sk-a", "aws": "AKIA", "passwords": "password=", "quoted passwords": `password='`, "keys": "key=", "key lists": "key,", "tokens": "token is ", "urls": "a://", "users": "a://b:",
		"many @": "a://b:c@", "bearer": "Bearer ", "basic": "Basic QWxh", "curl": " -u a:", "square": "EAAA", "digits": "12:A", "facebook": "12|a", "terraform": "a.atlasv1.", "azure": "1Q~", "spaces": " ", "names": `"value":`,
		"one line": "a",
	}
	for _, p := range Samples(source()) {
		if p.Before != "" {
			all[p.Rule+" cut"] = p.Text()[:len(p.Text())-len(p.After)-1]
		}
	}
	return all
}

// Eight times the text takes about eight times as long; were it quadratic, it would take 64 times.
func TestTimeIsLinear(t *testing.T) {
	const size, times, most, tries = 16 << 10, 8, 20, 8
	took := func(text []byte) time.Duration {
		start := time.Now()
		JSON(text)
		return max(time.Since(start), 20*time.Microsecond)
	}
	slowest, which := time.Duration(0), ""
	for name, text := range worst() {
		n := size / len(text)
		short, long := []byte(`"`+strings.Repeat(text, n)+`!-----END"`), []byte(`"`+strings.Repeat(text, n*times)+`!-----END"`)
		one, many := took(short), took(long)
		for try := 0; try < tries && many > most*one; try++ { // the machine may have been busy
			one, many = min(one, took(short)), min(many, took(long))
		}
		if many > most*one {
			t.Errorf("%s: %v for %d bytes, and %v for %d", name, one, len(short), many, len(long))
		}
		if many > slowest {
			slowest, which = many, name
		}
	}
	t.Logf("the slowest 128 KB take %v: %s", slowest, which)
}

// ordinary is source code and prose that holds no credentials but those of its own tests.
func ordinary(t testing.TB) map[string][]byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("the standard library is looked for with the go command: %v", err)
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

func TestOrdinaryTextHoldsFewFalseAlarms(t *testing.T) {
	const most = 1.0 // in a million bytes
	size, found := 0, 0
	for name, text := range ordinary(t) {
		size += len(text)
		for _, h := range find(text, false) {
			found++
			t.Logf("%s in %s: %s", rules[h.rule].name, filepath.Base(name), around(text, h))
		}
	}
	rate := float64(found) / float64(size) * 1e6
	t.Logf("%d in %d bytes: %.2f in a million", found, size, rate)
	if size < 1e6 || rate > most {
		t.Errorf("%.2f false alarms in a million bytes", rate)
	}
}

func around(text []byte, h hit) string {
	return fmt.Sprintf("%q", text[max(0, h.from-30):min(len(text), h.from+40)])
}
