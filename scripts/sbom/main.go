// Command sbom writes the software bill of materials of a built binary, as CycloneDX 1.6 JSON: the modules that the
// linker put into it, with their versions and checksums, and the Go release. The same binary gives the same bytes.
//
//	go run ./scripts/sbom BINARY > BINARY.cdx.json
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// A document is the part of CycloneDX that we use.
type document struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// describe returns the document of a binary with a name, a checksum and the build info that the linker wrote.
func describe(name, sum string, info *debug.BuildInfo) document {
	var settings []property
	for _, s := range info.Settings {
		settings = append(settings, property{"go:build:" + s.Key, s.Value})
	}
	self := component{
		Type: "application", Ref: name, Name: name, Version: strings.TrimPrefix(info.Main.Version, "(devel)"),
		Hashes: []hash{{"SHA-256", sum}}, Properties: settings,
	}
	parts := []component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, library(m.Path, m.Version, m.Sum))
	}
	slices.SortFunc(parts, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	return document{
		Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{Component: self}, Components: parts,
	}
}

// library describes a module. Its checksum is that of go.sum, which is a hash of its files and not of one file.
func library(path, version, sum string) component {
	c := component{Type: "library", Name: path, Version: version, PURL: "pkg:golang/" + path + "@" + version}
	c.Ref = c.PURL
	if sum != "" {
		c.Properties = []property{{"go:sum", sum}}
	}
	return c
}

func write(path string, out io.Writer) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path) //nolint:gosec // the caller's own path
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	text, err := json.MarshalIndent(describe(filepath.Base(path), hex.EncodeToString(sum[:]), info), "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, string(text))
	return err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}
