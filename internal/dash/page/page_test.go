package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"sovereign/internal/base/fault"
)

// entryMost is what a browser loads before it can draw: the page's goal, gzipped.
const entryMost = 150 << 10

func TestBuiltPageIsThatOfItsSources(t *testing.T) {
	recorded, err := os.ReadFile("sources.sha256")
	if err != nil {
		t.Fatal(err)
	}
	sources := filepath.Join("..", "..", "..", "web")
	var lines []string
	err = filepath.WalkDir(sources, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "node_modules":
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		text, err := os.ReadFile(path)
		sum := sha256.Sum256(text)
		name, _ := filepath.Rel(sources, path)
		lines = append(lines, "./"+filepath.ToSlash(name)+"\x00"+hex.EncodeToString(sum[:]))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	all := sha256.New()
	for _, line := range lines {
		name, sum, _ := strings.Cut(line, "\x00")
		_, _ = fmt.Fprintf(all, "%s  %s\n", sum, name) // as sha256sum writes it
	}
	if got := hex.EncodeToString(all.Sum(nil)); got != strings.TrimSpace(string(recorded)) {
		t.Errorf("web/ has changed since the page was built (%s, recorded %s): run make web", got, recorded)
	}
}

// get asks a server of the built page.
func get(t *testing.T, method, path string, headers ...string) (*http.Response, []byte, error) {
	t.Helper()
	s := &server{load: sync.OnceValues(func() (*site, error) { return load(built) })}
	request := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	err := s.serve(recorder, request)
	answer := recorder.Result()
	defer func() { _ = answer.Body.Close() }()
	body, readErr := io.ReadAll(answer.Body)
	if readErr != nil {
		t.Fatal(readErr)
	}
	return answer, body, err
}

var referred = regexp.MustCompile(`(?:src|href)="([^"]*)"`)

func TestIndexRefersToFilesThatAreServedForGood(t *testing.T) {
	_, index, err := get(t, http.MethodGet, "/dashboard")
	if err != nil {
		t.Fatal(err)
	}
	found := referred.FindAllSubmatch(index, -1)
	if len(found) < 3 {
		t.Fatalf("index.html refers to %d files", len(found))
	}
	for _, reference := range found {
		answer, body, err := get(t, http.MethodGet, string(reference[1]))
		if err != nil || answer.StatusCode != http.StatusOK || len(body) == 0 {
			t.Errorf("%s: %v %d", reference[1], err, answer.StatusCode)
		}
		if got := answer.Header.Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
			t.Errorf("%s: Cache-Control %q", reference[1], got)
		}
	}
}

func TestEveryViewIsTheSamePageUnderTheStrictPolicy(t *testing.T) {
	_, index, _ := get(t, http.MethodGet, "/dashboard")
	for _, path := range []string{
		"/dashboard", "/dashboard/", "/dashboard/sign-in", "/dashboard/w/ws_1/logs", "/dashboard/w/ws_1/judges/crit_1?tab=x",
	} {
		answer, body, err := get(t, http.MethodGet, path)
		if err != nil || !bytes.Equal(body, index) {
			t.Errorf("%s: not the page: %v", path, err)
		}
		for name, want := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "Cross-Origin-Opener-Policy": "same-origin", "Referrer-Policy": "no-referrer",
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
				"connect-src 'self'; font-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; " +
				"form-action 'self'; require-trusted-types-for 'script'; trusted-types 'none'",
		} {
			if got := answer.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if answer.Header.Get("Cache-Control") == "public, max-age=31536000, immutable" {
			t.Errorf("%s may be kept for good, so that no upgrade would reach it", path)
		}
	}
}

func TestPageShadowsNoAPI(t *testing.T) {
	for _, path := range []string{
		"/dashboard/api", "/dashboard/api/session", "/dashboard/api/w/ws_1/x", "/dashboard/v1/ws_1/logs", "/dashboard/webhooks/stripe",
		"/dashboard/_/0000000000000000/index.js", "/dashboard/_/", "/dashboard/_/x",
	} {
		_, _, err := get(t, http.MethodGet, path)
		if status := fault.From(err).Status; err == nil || status != http.StatusNotFound {
			t.Errorf("%s: %v, want 404", path, err)
		}
	}
}

func TestFilesAreCompressedForWhoTakesIt(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "identity": false, "GZIP": true, "gzip; q=0.0": false, "*": false,
	} {
		answer, body, err := get(t, http.MethodGet, "/dashboard", "Accept-Encoding", header)
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.Header.Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("%q: gzip %v, want %v", header, got, want)
		}
		if !want {
			continue
		}
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(r); err != nil || !bytes.Contains(text, []byte("<html")) {
			t.Errorf("%q: %v", header, err)
		}
	}
	if answer, body, _ := get(t, http.MethodHead, "/dashboard"); len(body) != 0 || answer.Header.Get("Content-Length") == "0" {
		t.Error("HEAD has a body, or no length")
	}
}

var (
	staticImport = regexp.MustCompile(`(?:from|import)\s*["']\./([^"']+)["']`)
	inline       = regexp.MustCompile(`(?i)<style|\sstyle=|\son\w+=|<script(?:\s+[^>]*)?>[^<]+</script>`)
)

func TestEntryIsSmallAndNothingIsInline(t *testing.T) {
	s, err := load(built)
	if err != nil {
		t.Fatal(err)
	}
	if found := inline.Find(s.index.plain); found != nil {
		t.Errorf("index.html has something inline: %s", found)
	}
	files := map[string]file{}
	for path, f := range s.files {
		files[filepath.Base(path)] = f
	}
	total, seen := 0, map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		total += len(files[name].gzipped)
		for _, found := range staticImport.FindAllSubmatch(files[name].plain, -1) {
			visit(string(found[1]))
		}
	}
	for _, reference := range referred.FindAllSubmatch(s.index.plain, -1) {
		visit(filepath.Base(string(reference[1])))
	}
	if total == 0 || total > entryMost {
		t.Errorf("the entry is %d bytes gzipped, in %d files; at most %d", total, len(seen), entryMost)
	}
	t.Logf("entry: %d bytes gzipped, in %d files", total, len(seen))
}

func TestChangedFileHasAnotherPath(t *testing.T) {
	index := &fstest.MapFile{Data: []byte(`<html><script src="./a.js"></script>`)}
	paths := map[string]bool{}
	for _, text := range []string{"1", "2"} {
		s, err := load(fstest.MapFS{"dist/index.html": index, "dist/a.js": &fstest.MapFile{Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		paths[string(s.index.plain)] = true
	}
	if len(paths) != 2 {
		t.Errorf("two builds have the same paths: %v", paths)
	}
	if _, err := load(fstest.MapFS{"dist/index.html": index, "dist/a.exe": &fstest.MapFile{}}); err == nil {
		t.Error("a file of an unknown kind was taken")
	}
}
