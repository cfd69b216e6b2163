package netguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A source is a package as go list describes it, with its syntax and types.
type source struct {
	ImportPath, Dir                        string
	GoFiles, IgnoredGoFiles, Imports, Deps []string
	Standard                               bool
	Module                                 *struct {
		Path string
		Main bool
	}

	syntax []*ast.File
	info   *types.Info
	types  *types.Package
}

func (p *source) own() bool { return p.Module != nil && p.Module.Main }

// A module is all packages of this module and their dependencies.
type module struct {
	root      string
	overlay   map[string]string // contents of files that are not on disk
	files     *token.FileSet
	all       map[string]*source
	own       []*source
	urlFields map[types.Object]string // with the name of the use
}

// load parses and type-checks the module's packages, without their tests.
func load(t *testing.T) *module {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	m := &module{root: root, files: token.NewFileSet(), all: map[string]*source{}}
	m.overlay = map[string]string{filepath.Join(root, plantedFile): planted}
	needed := map[string]bool{}
	var order []*source
	for list := json.NewDecoder(bytes.NewReader(m.list(t))); ; {
		p := &source{}
		if err := list.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		order, m.all[p.ImportPath] = append(order, p), p
		if p.own() {
			m.own = append(m.own, p)
			for _, path := range p.Imports {
				needed[path] = true
			}
		}
	}
	for _, p := range order {
		if p.own() || p.Standard && needed[p.ImportPath] {
			if err := m.check(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.urlFields = map[types.Object]string{}
	for _, of := range urlFields {
		m.urlFields[m.field(t, of[0], of[1], of[2])] = "URL in " + of[1] + "." + of[2]
	}
	return m
}

// field finds a field of a struct.
func (m *module) field(t *testing.T, path, name, field string) types.Object {
	t.Helper()
	if p := m.all[path]; p != nil {
		if object := p.types.Scope().Lookup(name); object != nil {
			if found, _, _ := types.LookupFieldOrMethod(object.Type(), true, p.types, field); found != nil {
				return found
			}
		}
	}
	t.Fatalf("%s has no %s.%s", path, name, field)
	return nil
}

// list runs go list for all packages. Dependencies come before the packages that import them.
func (m *module) list(t *testing.T) []byte {
	t.Helper()
	replace, folder := map[string]string{}, t.TempDir()
	for name, text := range m.overlay {
		replace[name] = filepath.Join(folder, filepath.Base(name))
		if err := os.WriteFile(replace[name], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "list", "-overlay", file, "-deps",
		"-json=ImportPath,Dir,GoFiles,IgnoredGoFiles,Imports,Deps,Standard,Module", "./...")
	command.Dir, command.Env = m.root, append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off")
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, complaint.String())
	}
	return out
}

// check type-checks a package. The types of other modules, and of most of the standard library, stay unknown, and so
// does what depends on them. That is no error here: customers' URLs and the functions that dial are not of those types,
// and checking everything takes long.
func (m *module) check(p *source) error {
	if p.ImportPath == "unsafe" {
		p.types = types.Unsafe
		return nil
	}
	for _, name := range p.GoFiles {
		name = filepath.Join(p.Dir, name)
		var text any
		if planted, ok := m.overlay[name]; ok {
			text = planted
		}
		file, err := parser.ParseFile(m.files, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.syntax = append(p.syntax, file)
	}
	config := types.Config{
		Importer: importer(func(path string) (*types.Package, error) {
			if imported := m.all[path]; imported != nil && imported.types != nil {
				return imported.types, nil
			}
			return nil, errors.New(path + " is left unknown")
		}),
		IgnoreFuncBodies: !p.own(), FakeImportC: true, Error: func(error) {},
	}
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	p.types, _ = config.Check(p.ImportPath, m.files, p.syntax, p.info)
	return nil
}

type importer func(string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
