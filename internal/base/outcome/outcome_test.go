package outcome

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// declared returns the values of the constants of type Outcome, as the source declares them.
func declared(t *testing.T) (all []Outcome) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "outcome.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Outcome" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value) //nolint:forcetypeassert // the test fails by it
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Outcome(text))
		return true
	})
	return all
}

func TestEveryOutcomeHasExactlyOneRow(t *testing.T) {
	rows := map[Outcome]int{}
	for _, row := range Table {
		rows[row.Outcome]++
	}
	all := declared(t)
	for _, o := range all {
		if rows[o] != 1 {
			t.Errorf("%q has %d rows", o, rows[o])
		}
	}
	if len(all) != len(Table) || len(all) < 7 {
		t.Errorf("%d outcomes are declared, and the table has %d rows", len(all), len(Table))
	}
}

func TestAnUnknownOutcomeIsNeitherChargedNorLogged(t *testing.T) {
	if o := Outcome("other"); o.Basis() != None || o.Logged() {
		t.Errorf("%q: %v, %v", o, o.Basis(), o.Logged())
	}
}
