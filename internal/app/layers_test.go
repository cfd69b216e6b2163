package app

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const prefix = "sovereign/internal/"

// folders are the folders of internal/, lowest first. A package imports from its own folder and from those before it.
var folders = []string{"base", "text", "net", "live", "wire", "grade", "plane", "store", "domain", "dash", "app"}

// imports runs go list with a format over the packages of internal/, and returns its lines.
func imports(t *testing.T, format string, packages ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-f", format}, packages...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// folder is the first part of a package's path below internal/. It is empty for packages of other modules.
func folder(path string) string {
	inside, ours := strings.CutPrefix(path, prefix)
	if !ours {
		return ""
	}
	name, _, _ := strings.Cut(inside, "/")
	return name
}

func TestImportsPointDownwards(t *testing.T) {
	for _, line := range imports(t, `{{.ImportPath}} {{join .Imports " "}}`, prefix+"...") {
		names := strings.Fields(line)
		own := slices.Index(folders, folder(names[0]))
		if own < 0 {
			t.Errorf("%s is in no folder of the list", names[0])
		}
		for _, name := range names[1:] {
			if other := folder(name); other != "" && slices.Index(folders, other) > own {
				t.Errorf("%s imports %s, which stands above it", names[0], name)
			}
		}
	}
}

// `make race` leaves their tests out.
func TestPureFoldersStartNoGoroutine(t *testing.T) {
	for _, line := range imports(t, `{{.Name}} {{.Dir}} {{join .GoFiles " "}}`, prefix+"text/...", prefix+"wire/...", prefix+"grade/...") {
		names := strings.Fields(line)
		if names[0] == "main" {
			continue
		}
		for _, name := range names[2:] {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(names[1], name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if _, starts := n.(*ast.GoStmt); starts {
					t.Errorf("%s/%s starts a goroutine", names[1], name)
				}
				return true
			})
		}
	}
}

func TestDataPlaneReachesNoDatabase(t *testing.T) {
	for _, line := range imports(t, `{{.ImportPath}} {{join .Deps " "}}`, prefix+"plane/...") {
		names := strings.Fields(line)
		for _, name := range names[1:] {
			if name == "database/sql" || folder(name) == "store" {
				t.Errorf("%s reaches %s", names[0], name)
			}
		}
	}
}

func TestLibrariesAreImportedInOnePlace(t *testing.T) {
	only := map[string]string{
		"github.com/danielgtaylor/huma/v2": "store/api",
		"database/sql":                     "store/db",
		"modernc.org/sqlite":               "store/db",
		"github.com/jackc/pgx/v5":          "store/db",
	}
	for _, line := range imports(t, `{{.ImportPath}} {{join .Imports " "}}`, prefix+"...") {
		names := strings.Fields(line)
		for library, place := range only {
			if names[0] == prefix+place || strings.HasPrefix(names[0], prefix+place+"/") {
				continue
			}
			for _, name := range names[1:] {
				if name == library || strings.HasPrefix(name, library+"/") {
					t.Errorf("%s imports %s, which is for %s alone", names[0], name, place)
				}
			}
		}
	}
}
