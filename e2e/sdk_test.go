package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sovereign/e2e/sdk/golang"
	"sovereign/internal/base/secret"
)

// behaviours are the models of the SDK scenarios, as the mock provider knows them. The scenarios rely on the figures.
var behaviours = map[string]string{
	"chat":       "mock?chunks=5",
	"odd":        "mock?chunks=5&crlf&ping=blank&split=7",
	"plain":      "mock?chunks=5&refuse_stream_options",
	"tools":      "mock?tool",
	"structured": "mock?json",
	"reasoning":  "mock?reasoning=2",
	"embedding":  "mock",
	"limited":    "mock?status=429&retry_after=7",
	"flaky":      "mock?status=429&retry_after=1&fail_first=3", // more often than a gateway tries, fewer than it and the package together
	"down":       "mock?status=503",
	"locked":     "mock?status=401",
	"broken":     "mock?chunks=5&error_event_after=2",
	"slow":       "mock?chunks=500&chunk_delay=10ms&hang_after=100", // ends only when it is cancelled
}

// repaired are models whose faults the gateway corrects: it removes usage that was not asked for, reports broken
// streams, and encodes vectors as they were asked for.
var repaired = map[string]string{
	"unasked": "mock?chunks=5&usage=last",
	"inline":  "mock?chunks=5&inline_usage",
	"dies":    "mock?chunks=5&die_after=2",
	"ends":    "mock?chunks=5&end_after=2",
	"numbers": "mock?encoding=float",
	"packed":  "mock?encoding=base64",
}

// The official packages work unmodified, with the mock provider behind a gateway.
func TestTheOfficialSDKsWorkThroughTheGateway(t *testing.T) {
	t.Parallel()
	address := startProvider(t)
	target := golang.Target{Provider: address, Models: map[string]string{"listed": "mock/chat", "sim_chat": "sim/chat", "sim_embedding": "sim/embedding"}}
	upstream := maps.Clone(behaviours)
	maps.Copy(upstream, repaired)
	for name := range upstream {
		target.Models[name] = "mock/" + name
	}
	p := newInstance(t, secret.Text{})
	server := p.serve(t, "--config", mockConfig(t, address, upstream), "--limits-breaker-failures", "0")
	var poor struct {
		APIKey string `json:"api_key"`
	}
	p.mustAdmin(t, &poor, "bootstrap", "--workspace", "poor", "--email", "poor@example.test", "--balance-usd", "0.000001", "--json")
	target.BaseURL, target.Key, target.PoorKey = server.address()+"/v1", server.key(), poor.APIKey
	officialSDKs(t, target)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the gateway logged:\n%s", server.log)
		}
		p.verifyLedger(t)
	})
}

// The packages also work with the mock provider itself, which shows that it behaves as a provider does.
func TestTheOfficialSDKsWorkWithTheMockProvider(t *testing.T) {
	t.Parallel()
	address := startProvider(t)
	target := golang.Target{BaseURL: address + "/v1", Key: "provider-secret", Provider: address, Models: maps.Clone(behaviours)}
	target.Models["listed"] = "mock/chat"
	target.Models["final"] = "mock?status=503&should_retry=false"
	officialSDKs(t, target)
}

// officialSDKs runs the scenarios of all packages, side by side.
func officialSDKs(t *testing.T, target golang.Target) {
	t.Helper()
	models, err := json.Marshal(target.Models)
	if err != nil {
		t.Fatal(err)
	}
	environment := append(os.Environ(), "BASE_URL="+target.BaseURL, "API_KEY="+target.Key, "POOR_API_KEY="+target.PoorKey, "PROVIDER_URL="+target.Provider,
		"MODELS="+string(models), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "PYTHONDONTWRITEBYTECODE=1")
	node, python := nodePackage(t), pythonPackage(t)
	for name, command := range map[string]func(context.Context) *exec.Cmd{"node": node, "python": python} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*limit)
			defer cancel()
			child := command(ctx)
			child.Env = environment
			if out, ok := runChild(t, child); !ok {
				t.Errorf("%v\n%s", child.ProcessState, out)
			}
		})
	}
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		golang.Run(t, target)
	})
}

var buildProvider = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(filepath.Dir(binary), "provider")
	if os.Getenv("SOVEREIGN_TEST_BINARY") != "" { // built beside it
		return path, nil
	}
	if out, err := build(path, "./provider").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the provider: %w\n%s", err, out)
	}
	_, err = os.ReadDir("provider") // a cached result must not outlive a change
	return path, err
})

var providerAddress = regexp.MustCompile(`http://\S+`)

// mustBuildProvider returns the path of the mock provider.
func mustBuildProvider(t *testing.T) string {
	t.Helper()
	path, err := buildProvider()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startProvider runs the mock provider, and returns its address.
func startProvider(t *testing.T) string {
	t.Helper()
	cmd, out, log := exec.Command(mustBuildProvider(t)), newTail(), newTail()
	cmd.Stdout, cmd.Stderr = out, log
	done := startChild(t, cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	address := out.find(providerAddress, done)
	if address == "" {
		t.Fatalf("the provider does not serve: %s", log)
	}
	return address
}

// mockConfig writes a configuration in which models, by name, are at the mock provider as mock/NAME.
func mockConfig(t *testing.T, address string, models map[string]string) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "providers:\n  - {name: mock, kind: openai, base_url: %q, api_key: provider-secret, transport: %s}\nmodels:\n", address+"/v1", transport())
	for name, upstream := range models {
		kind, more := "chat", ""
		if name == "embedding" || strings.Contains(upstream, "encoding=") {
			kind = "embedding"
		}
		if strings.Contains(upstream, "refuse_stream_options") {
			more = "stream_usage: false, "
		}
		fmt.Fprintf(&text, "  - {id: mock/%s, provider: mock, upstream_model: %q, kind: %s, context_window: 128000, max_output_tokens: 4096, %sprice: {input_per_mtok_usd: 2.5, output_per_mtok_usd: 10, cached_input_per_mtok_usd: 1.25}}\n", name, upstream, kind, more)
	}
	path := filepath.Join(t.TempDir(), "sovereign.yaml")
	writeFile(t, path, text.String())
	return path
}

// nodePackage installs the Node package and answers the command that tests it.
func nodePackage(t *testing.T) func(context.Context) *exec.Cmd {
	t.Helper()
	folder := nodeFolder(t, "sdk.test.mjs")
	return func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "node", "--test", "sdk.test.mjs")
		cmd.Dir = folder
		return cmd
	}
}

// nodeFolder installs the Node packages, and answers the folder where a program of sdk/node stands beside them.
func nodeFolder(t *testing.T, program string) string {
	t.Helper()
	version := atLeast(t, "node", 18, 0)
	folder := installed(t, "node", version, []string{"package.json", "package-lock.json", ".npmrc"}, func(string) [][]string {
		return [][]string{{"npm", "ci"}}
	})
	text, err := os.ReadFile("sdk/node/" + program)
	if err != nil {
		t.Fatal(err)
	}
	// Modules are found from where a file stands. Tests share the folder, so the file appears whole.
	part, err := os.CreateTemp(folder, program)
	if err != nil {
		t.Fatal(err)
	}
	_, failed := part.Write(text)
	if err := errors.Join(failed, part.Close(), os.Rename(part.Name(), filepath.Join(folder, program))); err != nil {
		t.Fatal(err)
	}
	return folder
}

// pythonPackage installs the Python package and answers the command that tests it.
func pythonPackage(t *testing.T) func(context.Context) *exec.Cmd {
	t.Helper()
	version := atLeast(t, "python3", 3, 10)
	folder := installed(t, "python", version, []string{"requirements.txt"}, func(folder string) [][]string {
		return [][]string{{"python3", "-m", "venv", "venv"}, {folder + "/venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"}}
	})
	if _, err := os.ReadFile("sdk/python/test_sdk.py"); err != nil { // a cached result must not outlive a change
		t.Fatal(err)
	}
	return func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, folder+"/venv/bin/python", "sdk/python/test_sdk.py")
	}
}

var versionText = regexp.MustCompile(`(\d+)\.(\d+)`)

// atLeast fails the test unless a program is there, and new enough. It answers what the program says of itself.
func atLeast(t *testing.T, program string, major, minor int) string {
	t.Helper()
	out, err := exec.Command(program, "--version").CombinedOutput()
	if err != nil {
		t.Fatalf("%s is missing (%v): scripts/setup test installs it", program, err)
	}
	found := versionText.FindStringSubmatch(string(out))
	if found == nil {
		t.Fatalf("%s --version says %q", program, out)
	}
	gotMajor, _ := strconv.Atoi(found[1])
	gotMinor, _ := strconv.Atoi(found[2])
	if gotMajor < major || gotMajor == major && gotMinor < minor {
		t.Fatalf("the tests need %s %d.%d or newer, and this is %s", program, major, minor, bytes.TrimSpace(out))
	}
	return string(out)
}

// installed is pinned for the files in sdk/NAME.
func installed(t *testing.T, name, version string, files []string, steps func(folder string) [][]string) string {
	t.Helper()
	return pinned(t, "sdk/"+name, name, version, files, steps)
}

// pinned brings what the files in a folder pin into .tools/sdk/NAME, unless it is there already, and answers that
// folder.
func pinned(t *testing.T, from, name, version string, files []string, steps func(folder string) [][]string) string {
	t.Helper()
	folder, err := filepath.Abs("../.tools/sdk/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(folder + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	pins, hash := map[string][]byte{}, sha256.New()
	_, _ = hash.Write([]byte(version))
	for _, file := range files {
		if pins[file], err = os.ReadFile(filepath.Join(from, file)); err != nil {
			t.Fatal(err)
		}
		_, _ = hash.Write(pins[file])
	}
	stamp, want := filepath.Join(folder, "stamp"), hex.EncodeToString(hash.Sum(nil))
	if have, err := os.ReadFile(stamp); err == nil && string(have) == want {
		return folder
	}
	t.Logf("installing what %s pins", from)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range pins {
		writeFile(t, filepath.Join(folder, file), string(text))
	}
	for _, step := range steps(folder) {
		cmd := exec.Command(step[0], step[1:]...)
		cmd.Dir = folder
		if out, ok := runChild(t, cmd); !ok {
			t.Fatalf("%v: %v\n%s", step, cmd.ProcessState, out)
		}
	}
	writeFile(t, stamp, want)
	return folder
}
