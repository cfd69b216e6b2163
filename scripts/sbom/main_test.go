package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// What the linker put into a binary is what the document lists: every module, once, with its version and checksum.
func TestABinarysModulesAreListed(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "sovereign")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", binary, "../../cmd/sovereign")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	var first, again bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &again} {
		if err := write(binary, out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), again.Bytes()) {
		t.Error("the same binary gives two documents")
	}
	var read document
	if err := json.Unmarshal(first.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	if read.Format != "CycloneDX" || read.Spec != "1.6" || read.Metadata.Component.Name != "sovereign" {
		t.Errorf("%+v", read)
	}
	listed := map[string]bool{}
	for _, c := range read.Components {
		if listed[c.Name] || c.Version == "" || c.PURL != "pkg:golang/"+c.Name+"@"+c.Version || c.Name != "std" && !strings.HasPrefix(c.Properties[0].Value, "h1:") {
			t.Errorf("%+v", c)
		}
		listed[c.Name] = true
	}
	said, err := exec.CommandContext(t.Context(), "go", "version", "-m", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for line := range strings.Lines(string(said)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "dep" {
			modules++
			if !listed[fields[1]] {
				t.Errorf("%s is linked and not listed", fields[1])
			}
		}
	}
	if modules == 0 || len(listed) != modules+1 || !strings.Contains(first.String(), "pkg:golang/std@"+strings.TrimPrefix(runtime.Version(), "go")) {
		t.Errorf("%d modules are linked, %d are listed", modules, len(listed))
	}
}
