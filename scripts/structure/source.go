package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const maxColumns = 120

// A source is a package as it is written.
type source struct {
	listed    listed
	fset      *token.FileSet
	files     []*ast.File // as in listed.GoFiles
	lines     int
	longest   int // columns
	longestAt string
	wide      int // lines over maxColumns
	long      []function
}

// A function is one that is longer than maxFunction.
type function struct {
	name  string
	lines int
}

// read parses a package, and measures its lines and functions.
func read(p listed) (*source, error) {
	s := &source{listed: p, fset: token.NewFileSet()}
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(path) //nolint:gosec // a file of the module
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(s.fset, path, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, file)
		s.measure(name, string(text), file)
	}
	return s, nil
}

func (s *source) measure(name, text string, file *ast.File) {
	_, short, _ := strings.Cut(s.listed.ImportPath, "/internal/")
	for line := range strings.Lines(text) {
		s.lines++
		columns := utf8.RuneCountInString(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    "))
		if columns > maxColumns {
			s.wide++
		}
		if columns > s.longest {
			s.longest, s.longestAt = columns, short+"/"+name
		}
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if lines := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; lines > maxFunction {
			s.long = append(s.long, function{short + "/" + name + " " + f.Name.Name, lines})
		}
	}
}

// uses finds which files use names that other files of the package declare: package-level names, methods and fields.
func (s *source) uses(exports map[string]string) (*graph, error) {
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(s.fset, "gc", lookup)}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	if _, err := config.Check(s.listed.ImportPath, s.fset, s.files, info); err != nil {
		return nil, err
	}
	g := newGraph(s.listed.GoFiles)
	for at, used := range info.Uses {
		if used.Pkg() == nil || used.Pkg().Path() != s.listed.ImportPath || !shared(used) {
			continue
		}
		g.add(filepath.Base(s.fset.Position(at.Pos()).Filename), filepath.Base(s.fset.Position(used.Pos()).Filename))
	}
	return g, nil
}

// shared reports whether a name can be used from another file than its own.
func shared(o types.Object) bool {
	if v, ok := o.(*types.Var); ok && v.IsField() {
		return true
	}
	if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
		return true
	}
	return o.Parent() == o.Pkg().Scope()
}
